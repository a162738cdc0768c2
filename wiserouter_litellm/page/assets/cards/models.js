// The models: what they cost, what they are worth, and how much is known of that.

import { colourOf } from "../colours.js";
import { card, el, fill, table } from "../dom.js";
import { NONE, count, percent, quality, usd } from "../format.js";

const { node, body } = card("models", "Models");

export default { node, update };

const perMillion = (price, kind) => (price && price[kind] !== null ? usd(1e6 * price[kind]) : NONE);

function update({ status, account }) {
  const rows = Object.entries(status.models).map(([name, model]) => {
    const mark = el("span", { class: "mark", "aria-hidden": "true" });
    mark.style.background = colourOf(name);
    const price = model.price_usd_per_token;
    return [
      [mark, name, model.retired ? el("span", { class: "chip" }, "retired") : null].filter(Boolean),
      percent(account.mix?.[name]),
      count(model.calls),
      usd(model.mean_cost_usd),
      quality(model.mean_reward),
      count(model.labels),
      perMillion(price, "input"),
      perMillion(price, "output"),
      count(model.deployments),
    ].map((cell) => (Array.isArray(cell) ? el("span", { class: "cell" }, cell) : cell));
  });
  const columns = ["planned", "calls", "mean cost", "quality", "scores", "$/M in", "$/M out", "deployments"];
  fill(body, table("Models", [["model"], ...columns.map((name) => [name, "num"])], rows));
}
