// Colours: one per name, the same in every chart, readable on light and dark paper.

const dark = matchMedia("(prefers-color-scheme: dark)");
const LIGHT = ["#2f6fde", "#d9730d", "#1f8a5b", "#9a4fc4", "#c23b5e", "#0d8a9c", "#8a6d1f", "#5a6472"];
const DARK = ["#6ea2ff", "#f2994a", "#4cc38a", "#c18aef", "#f0708f", "#3fbfd0", "#d3b04f", "#9aa5b4"];
const order = [];

/** Let names keep the colours of their order from now on. */
export function know(names) {
  for (const name of names) if (!order.includes(name)) order.push(name);
}

export function colourOf(name) {
  know([name]);
  return (dark.matches ? DARK : LIGHT)[order.indexOf(name) % LIGHT.length];
}

export const fromCss = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const onScheme = (listener) => dark.addEventListener("change", listener);
