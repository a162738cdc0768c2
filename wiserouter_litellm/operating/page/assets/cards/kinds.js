// What kinds of questions go where, and why.

import { colourOf } from "../colours.js";
import { card, el, fill, shareBar, table } from "../dom.js";
import { count, number, percent, quality, usd } from "../format.js";

const SHOWN = 6;
const { node, body } = card("kinds", "Kinds of questions", "The router tells them apart by their words, and sends each where a dollar buys most.");
const list = el("ol", { class: "kinds" });
const all = el("details", { class: "more" });
body.append(list, all);

export default { node, update };

function update({ kinds }) {
  node.hidden = !kinds?.kinds.length;
  if (node.hidden) return;
  const items = kinds.kinds.map((kind) => item(kind, kinds.shadow_price));
  fill(list, items.slice(0, SHOWN));
  const wasOpen = all.open;
  all.hidden = items.length <= SHOWN;
  fill(all, el("summary", {}, `${items.length - SHOWN} more kinds`), el("ol", { class: "kinds", start: SHOWN + 1 }, items.slice(SHOWN)));
  all.open = wasOpen;
}

const open = new Set();

function item(kind, price) {
  const name = kind.words.length ? kind.words.slice(0, 6).join(" · ") : `kind ${kind.id}`;
  const shares = kind.models.map((one) => [one.name, one.share]).sort((one, other) => other[1] - one[1]);
  const rows = kind.models.map((one) => [one.name, percent(one.share), quality(one.quality), usd(one.cost_usd), count(one.calls), count(one.scores)]);
  const columns = ["share", "quality", "cost", "calls", "scores"].map((each) => [each, "num"]);
  const figures = el("details", { open: open.has(kind.id) }, el("summary", {}, "Figures"), table(`Models for ${name}`, [["model"], ...columns], rows));
  figures.addEventListener("toggle", () => (figures.open ? open.add(kind.id) : open.delete(kind.id)));
  return el(
    "li",
    {},
    el("div", { class: "kind" }, el("h3", { class: "words" }, name), el("span", {}, `${percent(kind.share)} of the questions`)),
    shareBar(shares, colourOf, percent),
    el("p", { class: "sub" }, why(kind.models, price ?? 0)),
    figures,
  );
}

/** Return why the plan stops where it does: what the next better model gives for a dollar, and what the last step gave. */
export function why(models, price) {
  const used = models.filter((one) => one.share > 0.0005).sort((one, other) => one.cost_usd - other.cost_usd);
  if (!used.length) return "";
  const top = used.at(-1);
  const up = best(models.filter((one) => one.cost_usd > top.cost_usd && one.quality > top.quality), (one) => slope(top, one));
  const down = best(models.filter((one) => one.cost_usd < top.cost_usd && one.quality < top.quality), (one) => -slope(one, top));
  const parts = [];
  if (used.length > 1) parts.push(`The budget pays for ${top.name} on ${percent(top.share)} of these.`);
  if (up) parts.push(`${up.name} would give ${gain(top, up)}: less than a dollar buys elsewhere (${number(price)}).`);
  else parts.push(`No model is expected to do better than ${top.name}.`);
  if (down && price > 0) parts.push(`Beside ${down.name} it gives ${gain(down, top)}.`);
  return parts.join(" ");
}

const slope = (from, to) => (to.quality - from.quality) / (to.cost_usd - from.cost_usd);
const gain = (from, to) =>
  `${number(to.quality - from.quality)} more quality for ${usd(to.cost_usd - from.cost_usd)} more, ${number(slope(from, to))} per dollar`;

function best(models, worth) {
  return models.reduce((found, one) => (found && worth(found) >= worth(one) ? found : one), null);
}
