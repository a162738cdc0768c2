// In shadow mode: what the router would have spent and gained.

import { card, el, figures, fill, table } from "../dom.js";
import { count, percent, usd } from "../format.js";

const { node, body } = card(
  "shadow",
  "Shadow mode",
  "The router decides and records; calls go where they went before, but for the share on which it acts. What it would have spent and gained, by the journal of this machine.",
);

export default { node, update };

function update({ shadow }) {
  node.hidden = typeof shadow?.share !== "number";
  if (node.hidden) return;
  if (shadow.missing) return fill(body, acts(shadow), el("p", { class: "note" }, `No report: ${shadow.missing}`));
  const rows = shadow.models.map((one) => [one.model, percent(one.incumbent), percent(one.would_be)]);
  fill(
    body,
    acts(shadow),
    shadow.lines.map((line) => el("p", { class: line.startsWith(" ") ? "about" : "" }, line.trim())),
    table("Models without the router and with it", [["model"], ["without the router", "num"], ["with it", "num"]], rows),
  );
}

function acts({ share, calls, acted, scored, spent_usd: spent }) {
  return figures([
    ["Acts on", percent(share), "The share of conversations on which it acts"],
    ["Calls", calls === undefined ? null : `${count(calls)}, ${count(acted)} of them acted on`],
    ["Scored", scored === undefined ? null : count(scored)],
    ["Spent", spent === undefined ? null : usd(spent)],
  ]);
}
