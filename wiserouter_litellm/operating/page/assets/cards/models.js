// The models: what they cost, what they are worth, and how much is known of that.

import { action, confirmChange, field } from "../act.js";
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
      action("Change …", () => changeTerms(view, name), "plain"),
    ].map((cell) => (Array.isArray(cell) ? el("span", { class: "cell" }, cell) : cell));
  });
  const columns = ["planned", "calls", "mean cost", "quality", "scores", "$/M in", "$/M out", "deployments"];
  fill(body, table("Models", [["model"], ...columns.map((name) => [name, "num"]), [HIDDEN_HEADING("service")], [HIDDEN_HEADING("share and price")]], rows));
}

const HIDDEN_HEADING = (text) => el("span", { class: "hidden" }, text);

function marks(model) {
  const texts = [model.retired ? "retired" : null, known(model.max_share) ? `at most ${percent(model.max_share)}` : null];
  return texts.filter(Boolean).map((text) => el("span", { class: "chip" }, text));
}

const known = (value) => value !== null && value !== undefined;

const perToken = (perMillion) => Number((perMillion / 1e6).toPrecision(12));

const KINDS = { input: "Input", output: "Output", cache_read: "Cache reads", cache_write: "Cache writes", reasoning: "Reasoning" };

/** Ask for the largest share and the price of a model; what stays as it is shown is not sent. */
function changeTerms(view, name) {
  const { max_share: shareNow, price_usd_per_token: priceNow } = view.status.models[name];
  const number = (value) => el("input", { type: "number", min: 0, step: "any", inputmode: "decimal", value: known(value) ? Number(value.toPrecision(12)) : null });
  const share = number(known(shareNow) ? 100 * shareNow : null);
  const prices = Object.keys(KINDS).map((kind) => [kind, number(known(priceNow?.[kind]) ? 1e6 * priceNow[kind] : null)]);
  const shown = new Map([share, ...prices.map(([, input]) => input)].map((input) => [input, input.value]));
  const isNew = (input) => input.value !== shown.get(input);
  const isPrice = () => prices.some(([, input]) => isNew(input));
  const price = () => Object.fromEntries(prices.filter(([, input]) => input.value !== "").map(([kind, input]) => [kind, perToken(input.value)]));
  confirmChange({
    title: `Share and price of ${name}`,
    fields: [field("Largest share, in %", share), ...prices.map(([kind, input]) => field(`${KINDS[kind]}, in USD per million tokens`, input))],
    effect: () => {
      if (share.validity.badInput || Number(share.value) > 100) return null;
      const { input, output } = price();
      const none = isPrice() && !Object.keys(price()).length;
      if (isPrice() && !none && !(input >= 0 && output >= 0)) return null;
      const parts = [
        isNew(share) ? (share.value ? `It gets at most ${percent(Number(share.value) / 100)} of the decisions.` : "Its share has no bound by order any more.") : null,
        isPrice() ? (none ? "Its price is that of the configuration again." : "The plan follows its new price at once; bills are LiteLLM's own.") : null,
      ].filter(Boolean);
      return parts.length ? `${parts.join(" ")} All workers follow.` : null;
    },
    body: () => ({
      group: view.status.budget ?? view.group,
      model: name,
      ...(isNew(share) ? { max_share: share.value ? Number(share.value) / 100 : null } : {}),
      ...(isPrice() ? { price: Object.keys(price()).length ? price() : null } : {}),
    }),
    path: "model",
    button: "Change it",
    done: view.renew,
  });
}

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
