// The latest decisions, and why each was made.

import { card, el, figures, fill, table } from "../dom.js";
import { NONE, count, number, percent, quality, usd } from "../format.js";
import { ask } from "../session.js";

const MOST = 20;
const { node, body } = card("decisions", "Latest decisions", "Without a word of the prompts. “Why” shows the figures that a decision was made from.");
const list = el("div");
const explained = el("div", { "aria-live": "polite" });
body.append(list, explained);

let known = new Map();
let group = "";

export default { node, update };

/** Show the decisions of all workers that have answered so far. */
function update(view) {
  if (group !== view.group) {
    known = new Map();
    fill(explained);
  }
  group = view.group;
  for (const one of view.decisions?.decisions ?? []) known.set(one.id, one);
  const latest = [...known.values()].sort((one, other) => other.decided_at - one.decided_at).slice(0, MOST);
  known = new Map(latest.map((one) => [one.id, one]));
  if (!latest.length) return fill(list, el("p", { class: "about" }, "None since this worker started."));
  if (list.contains(document.activeElement) && document.activeElement.tagName === "BUTTON") return; // do not pull it away
  const columns = [["at"], ["model"], ["scope"], ["state"], ["cost", "num"], ["score", "num"], [el("span", { class: "hidden" }, "explanation")]];
  fill(list, table("Latest decisions", columns, latest.map(row)));
}

function row(one) {
  const at = new Date(1000 * one.decided_at).toLocaleTimeString();
  const name = one.answered_by === one.model ? one.model : `${one.answered_by} (for ${one.model})`;
  const why = el("button", { class: "plain", type: "button", onclick: () => explain(one.id), "aria-label": `Why ${one.model} at ${at}` }, "Why");
  return [at, name, one.scope === "default" ? NONE : one.scope, one.state, one.cost_usd === null ? NONE : usd(one.cost_usd), one.score === null ? NONE : number(one.score), why];
}

async function explain(id) {
  fill(explained, el("p", { class: "about" }, "Reading …"));
  try {
    fill(explained, explanation(await ask(`explain/${encodeURIComponent(id)}`)));
  } catch (error) {
    fill(explained, el("p", { class: "note" }, error.message));
  }
  explained.scrollIntoView({ block: "nearest" });
}

const RULES = {
  plan: "the mix that the plan has for such questions",
  first: "no call was paid for yet: only the cheapest model is called",
  explore: "a trial, to learn what a model is worth",
  cheapest: "the budget is used up: the cheapest model",
  hold: "the model that its run or conversation has",
};

function explanation(why) {
  const rows = why.models.map((one) => [
    one.name,
    percent(one.probability),
    quality(one.expected_reward),
    usd(one.expected_cost_usd),
    one.worth === null ? NONE : one.worth.toFixed(3),
    one.excluded_by ?? "",
  ]);
  const columns = [["model"], ["chance", "num"], ["quality", "num"], ["cost", "num"], ["worth", "num"], ["excluded by"]];
  return el(
    "div",
    { class: "explained" },
    el("div", { class: "kind" }, el("h3", {}, `Why ${why.model}`), el("button", { class: "plain", type: "button", onclick: () => fill(explained) }, "Close")),
    el("p", { class: "sub" }, `${RULES[why.rule] ?? why.rule}.`, why.context.terms.length ? ` Kind: ${why.context.terms.slice(0, 6).join(" · ")}.` : ""),
    figures([
      ["State", why.state],
      ["Rate per request", usd(why.rate_usd)],
      ["Price of quality", why.shadow_price === null ? NONE : `${number(why.shadow_price)} / $`],
      ["Budget left then", usd(why.left_usd)],
      ["Requests to come then", count(why.requests_left)],
      ["Cost", why.cost_usd === null ? null : usd(why.cost_usd)],
      ["Score", why.reward === null ? null : number(why.reward)],
    ]),
    why.unspent ? el("p", { class: "note" }, why.unspent) : null,
    table("Models of the decision", columns, rows),
    el("p", { class: "about" }, `Worth is quality less the price of quality times cost. Decision ${why.id}.`),
  );
}
