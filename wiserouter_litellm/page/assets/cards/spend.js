// What was spent, by day and model.

import { Chart, axis } from "../charts.js";
import { colourOf } from "../colours.js";
import { card, figures, fill, el } from "../dom.js";
import { count, percent, usd } from "../format.js";

const { node, body } = card("spend", "Spend", "Charged calls by the day of their decision, in UTC.");
const text = el("div");
const chart = new Chart("Spend by day and model");
body.append(text, chart.node);

export default { node, update };

function update({ savings }) {
  node.hidden = !savings?.actual.calls;
  if (node.hidden) return;
  const { actual, days } = savings;
  fill(
    text,
    el("p", { class: "big" }, usd(actual.cost_usd), " ", el("small", {}, `for ${count(actual.calls)} calls since ${savings.since}`)),
    figures([
      ["Mean cost of a call", usd(actual.models_usd / actual.calls)],
      ["Embeddings and judges", actual.other_usd ? usd(actual.other_usd) : null],
      ["Read from prompt caches", actual.cached_share ? percent(actual.cached_share) : null, "Share of the prompt tokens"],
    ]),
  );
  const first = days.findIndex((day) => day.calls);
  const shown = days.slice(Math.max(0, first));
  const names = Object.keys(actual.by_model);
  const x = shown.map(({ date }) => Date.parse(`${date}T12:00:00Z`) / 1000);
  const cost = names.map((name) => shown.map((day) => day.by_model[name]?.cost_usd ?? 0));
  chart.show(stacked({ x, names, cost, dates: shown.map(({ date }) => date), label: `Spend by day and model since ${savings.since}.` }));
}

/** Return the drawing of stacked bars: the sum of all names behind, the first name in front. */
export function stacked({ x, names, cost, dates, label }) {
  const sums = names.map((_, i) => x.map((_, at) => cost.slice(0, i + 1).reduce((sum, one) => sum + one[at], 0)));
  const behind = names.map((_, i) => names.length - 1 - i);
  return {
    label,
    data: [x, ...behind.map((i) => sums[i])],
    columns: [["day"], ...names.map((name) => [name, "num"]), ["all", "num"]],
    rows: () => dates.map((date, at) => [date, ...cost.map((one) => usd(one[at])), usd(sums.at(-1)?.[at] ?? 0)]).reverse(),
    options: () => ({
      tzDate: (seconds) => uPlot.tzDate(new Date(1000 * seconds), "Etc/UTC"),
      scales: { x: { range: (_, least, most) => [least - 43200, most + 43200] }, y: { range: (_, __, most) => [0, (most || 1) * 1.06] } },
      axes: [axis(), axis({ size: 64, values: (_, ticks) => ticks.map(usd) })],
      series: [
        { label: "Day", value: (_, raw) => new Date(1000 * raw).toISOString().slice(0, 10) },
        ...behind.map((i) => ({
          label: names[i],
          fill: colourOf(names[i]),
          raw: cost[i],
          value: (_, raw) => usd(raw),
          paths: uPlot.paths.bars({ size: [0.72, 48], radius: 0.12 }),
          points: { show: false },
        })),
      ],
    }),
  };
}
