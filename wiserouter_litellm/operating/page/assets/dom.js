// Elements, made from text alone: no function here reads HTML.

/** Return an element with attributes (or `on...` listeners) and children; text stays text. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Put children in place of those that a node has; tables stay scrolled, and the place that had the focus has it again. */
export function fill(node, ...children) {
  const all = (selector) => [...node.querySelectorAll(selector)];
  const scrolled = all(".scroll").map((one) => [one.scrollLeft, one.scrollTop]);
  const focused = all("button, summary, .scroll").indexOf(document.activeElement);
  node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  all(".scroll").forEach((one, i) => one.scrollTo(...(scrolled[i] ?? [0, 0])));
  all("button, summary, .scroll")[focused]?.focus({ preventScroll: true });
}

/** Return a card with a heading; `body` is its content. */
export function card(id, title, about = "") {
  const body = el("div", { class: "body" });
  const heading = el("h2", { id: `${id}-title` }, title);
  const lead = about ? el("p", { class: "about" }, about) : null;
  return { node: el("section", { class: "card", id, "aria-labelledby": `${id}-title` }, heading, lead, body), body };
}

/** Return a list of named figures. */
export function figures(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined);
  return el(
    "dl",
    { class: "figures" },
    shown.map(([name, value, title]) => el("div", { title }, el("dt", {}, name), el("dd", {}, value))),
  );
}

/** Return a table that scrolls sideways where it must; `columns` are [heading, "num"?]. */
export function table(label, columns, rows) {
  const head = el("tr", {}, columns.map(([name, kind]) => el("th", { scope: "col", class: kind }, name)));
  const line = (cells) =>
    el("tr", {}, cells.map((cell, i) => el(i ? "td" : "th", { scope: i ? null : "row", class: columns[i][1] }, cell)));
  const made = el("table", {}, el("caption", { class: "hidden" }, label), el("thead", {}, head));
  made.append(el("tbody", {}, rows.map(line)));
  return el("div", { class: "scroll", role: "region", "aria-label": label, tabindex: 0 }, made);
}

/** Return a bar of shares with its legend; the figures are in the legend, so the bar itself is decoration. */
export function shareBar(shares, colour, digits) {
  const shown = shares.filter(([, share]) => share > 0.0005);
  const bar = el("div", { class: "bar", "aria-hidden": "true" });
  for (const [name, share] of shown) {
    const part = el("span", { title: name });
    part.style.width = `${100 * share}%`;
    part.style.background = colour(name);
    bar.append(part);
  }
  const legend = el("ul", { class: "legend" });
  for (const [name, share] of shown) {
    const mark = el("span", { class: "mark", "aria-hidden": "true" });
    mark.style.background = colour(name);
    legend.append(el("li", {}, mark, el("span", { class: "name" }, name), " ", digits(share)));
  }
  return el("div", { class: "shares" }, bar, legend);
}
