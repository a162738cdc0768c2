// What was spent, by day and model.

import { Chart, axis } from "../charts.js";
import { colourOf } from "../colours.js";
import { card, figures, fill, el } from "../dom.js";
import { count, percent, usd } from "../format.js";

const { node, body } = card("spend", "Spend", "Charged calls by the day of their decision, in UTC.");
const MOST_KINDS = 6;
const OTHER = "other kinds";
const text = el("div");
const chart = new Chart("Spend by day");
const byModel = el("input", { type: "radio", name: "spend-by", value: "model", checked: true });
const byKind = el("input", { type: "radio", name: "spend-by", value: "kind" });
const choice = el(
  "fieldset",
  { class: "choice" },
  el("legend", { class: "hidden" }, "Spend by"),
  el("label", {}, byModel, el("span", {}, "by model")),
  el("label", {}, byKind, el("span", {}, "by kind of question")),
);
body.append(text, choice, chart.node);
choice.addEventListener("change", () => draw());

let shown = {};

export default { node, update };

function update({ savings, spend, kinds }) {
  node.hidden = !savings?.actual.calls;
  if (node.hidden) return;
  shown = { savings, spend, kinds };
  const { actual } = savings;
  fill(
    text,
    el("p", { class: "big" }, usd(actual.cost_usd), " ", el("small", {}, `for ${count(actual.calls)} calls since ${savings.since}`)),
    figures([
      ["Mean cost of a call", usd(actual.models_usd / actual.calls)],
      ["Embeddings and judges", actual.other_usd ? usd(actual.other_usd) : null],
      ["Read from prompt caches", actual.cached_share ? percent(actual.cached_share) : null, "Share of the prompt tokens"],
    ]),
  );
  choice.hidden = !spend || (kinds?.kinds.length ?? 0) < 2;
  draw();
}

function draw() {
  const { savings, spend, kinds } = shown;
  const wanted = byKind.checked && !choice.hidden ? ofKinds(spend.days, kinds.kinds) : ofModels(savings);
  const first = wanted.days.findIndex((day) => Object.keys(day.cost).length);
  const days = wanted.days.slice(Math.max(0, first));
  chart.show(
    stacked({
      x: days.map(({ date }) => Date.parse(`${date}T12:00:00Z`) / 1000),
      names: wanted.names,
      cost: wanted.names.map((name) => days.map((day) => day.cost[name] ?? 0)),
      dates: days.map(({ date }) => date),
      label: `Spend by day and ${wanted.what} since ${savings.since}.`,
    }),
  );
}

function ofModels({ days, actual }) {
  const cost = ({ by_model: models }) => Object.fromEntries(Object.entries(models).map(([name, one]) => [name, one.cost_usd]));
  return { what: "model", names: Object.keys(actual.by_model), days: days.map((day) => ({ date: day.date, cost: cost(day) })) };
}

/** Return the days by the words of the largest kinds; the others are one. */
function ofKinds(days, kinds) {
  const names = new Map(kinds.slice(0, MOST_KINDS).map((kind) => [String(kind.id), nameOf(kind)]));
  const cost = (of) => {
    const sums = {};
    for (const [id, value] of Object.entries(of)) {
      const name = names.get(id) ?? OTHER;
      sums[name] = (sums[name] ?? 0) + value;
    }
    return sums;
  };
  const shownDays = days.map((day) => ({ date: day.date, cost: cost(day.kinds) }));
  const used = [...names.values(), OTHER].filter((name) => shownDays.some((day) => day.cost[name]));
  return { what: "kind of question", names: used, days: shownDays };
}

const nameOf = (kind) => (kind.words.length ? `${kind.words.slice(0, 3).join(" · ")}` : `kind ${kind.id}`);

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
