// The models: what they cost, what they are worth, and how much is known of that.

import { action, confirmChange } from "../act.js";
import { colourOf } from "../colours.js";
import { card, el, fill, table } from "../dom.js";
import { NONE, count, percent, quality, usd } from "../format.js";

const { node, body } = card("models", "Models");

export default { node, update };

const perMillion = (price, kind) => (price && price[kind] !== null ? usd(1e6 * price[kind]) : NONE);

function update(view) {
  const { status, account } = view;
  if (body.querySelector("button:active")) return; // do not pull it away
  const rows = Object.entries(status.models).map(([name, model]) => {
    const mark = el("span", { class: "mark", "aria-hidden": "true" });
    mark.style.background = colourOf(name);
    const price = model.price_usd_per_token;
    return [
      [mark, name, ...marks(model)],
      percent(account.mix?.[name]),
      count(model.calls),
      usd(model.mean_cost_usd),
      quality(model.mean_reward),
      count(model.labels),
      perMillion(price, "input"),
      perMillion(price, "output"),
      count(model.deployments),
      model.retired ? action("Bring back …", () => change(view, name, false), "plain") : action("Retire …", () => change(view, name, true), "plain"),
    ].map((cell) => (Array.isArray(cell) ? el("span", { class: "cell" }, cell) : cell));
  });
  const columns = ["planned", "calls", "mean cost", "quality", "scores", "$/M in", "$/M out", "deployments"];
  fill(body, table("Models", [["model"], ...columns.map((name) => [name, "num"]), [HIDDEN_HEADING()]], rows));
}

const HIDDEN_HEADING = () => el("span", { class: "hidden" }, "change");

function marks(model) {
  const texts = [model.retired ? "retired" : null, known(model.max_share) ? `at most ${percent(model.max_share)}` : null];
  return texts.filter(Boolean).map((text) => el("span", { class: "chip" }, text));
}

const known = (value) => value !== null && value !== undefined;

function change(view, name, retired) {
  confirmChange({
    title: `${retired ? "Retire" : "Bring back"} ${name}`,
    effect: () =>
      retired
        ? "It gets no more queries, in all workers; its estimates are kept, and calls in flight are settled."
        : "It gets queries again where the plan has a use for it, in all workers.",
    body: () => ({ group: view.status.budget ?? view.group, model: name, retired }),
    path: "model",
    button: retired ? "Retire it" : "Bring it back",
    danger: retired,
    done: view.renew,
  });
}
