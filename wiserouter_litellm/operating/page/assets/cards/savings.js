// What the router saves against other ways to choose a model.

import { Chart, axis } from "../charts.js";
import { fromCss } from "../colours.js";
import { card, el, fill, table } from "../dom.js";
import { NONE, count, percent, quality, usd } from "../format.js";

const { node, body } = card("savings", "Savings", "What was charged, beside what the same calls would have cost otherwise.");
const text = el("div");
const chart = new Chart("Spend by day, as it was and as it would have been", 200);
body.append(text, chart.node);

const NAMES = { best: "always the best model", cheapest: "always the cheapest model", before: "as before" };

export default { node, update };

function update({ savings }) {
  node.hidden = !savings?.coverage.compared_calls;
  if (node.hidden) return;
  const { against, coverage } = savings;
  const main = against.before ?? against.best;
  fill(
    text,
    main ? headline(main, against.before ? "before" : "best") : null,
    table("Savings", COLUMNS, [...Object.entries(against)].map(([name, one]) => row(name, one))),
    el("p", { class: "about" }, covered(coverage)),
  );
  draw(savings);
}

function headline(one, name) {
  const models = Object.keys(one.models).join(", ");
  const saved = one.saved_usd >= 0 ? "saved against" : "more than";
  const share = one.saved_share === null ? "" : ` (${percent(Math.abs(one.saved_share))})`;
  return [
    el("p", { class: "big" }, usd(Math.abs(one.saved_usd)), " ", el("small", {}, `${saved} ${NAMES[name]}, ${models}${share}`)),
    el("p", { class: "sub" }, difference(one)),
  ];
}

function difference(one) {
  if (one.quality_difference === null) return "No score says yet what that did to the quality.";
  const [low, high] = one.quality_difference_interval;
  const sign = (value) => `${value >= 0 ? "+" : "−"}${Math.abs(value).toFixed(3)}`;
  return `Quality ${sign(one.quality_difference)} (95 % interval ${sign(low)} to ${sign(high)}), by ${count(one.quality_scores)} scores.`;
}

const COLUMNS = [["against"], ["cost", "num"], ["saved", "num"], ["share", "num"], ["quality", "num"], ["difference", "num"]];

function row(name, one) {
  const models = Object.keys(one.models).join(", ");
  return [
    el("span", {}, NAMES[name] ?? name, el("br"), el("small", { class: "faint" }, models)),
    usd(one.cost_usd),
    usd(one.saved_usd),
    one.saved_share === null || one.saved_share < -1 ? NONE : percent(one.saved_share),
    quality(one.quality),
    one.quality_difference === null ? NONE : one.quality_difference.toFixed(3),
  ];
}

function covered({ compared_share: share, calls, without_tokens: blind, without_price: unpriced }) {
  const parts = [`${percent(share)} of ${count(calls)} calls are compared.`];
  if (blind) parts.push(`The tokens of ${count(blind)} are not known.`);
  if (unpriced.length) parts.push(`Without a price: ${unpriced.join(", ")}.`);
  return parts.join(" ");
}

function draw({ days, against }) {
  const shown = days.slice(Math.max(0, days.findIndex((day) => day.calls)));
  const names = Object.keys(against);
  const x = shown.map(({ date }) => Date.parse(`${date}T12:00:00Z`) / 1000);
  const sums = running(shown.map((day) => day.compared_usd));
  const others = names.map((name) => running(shown.map((day) => day.against_usd[name] ?? 0)));
  chart.show({
    label: "Spend since the first day, as it was and as it would have been.",
    data: [x, sums, ...others],
    columns: [["until"], ["spent", "num"], ...names.map((name) => [NAMES[name] ?? name, "num"])],
    rows: () => shown.map(({ date }, i) => [date, usd(sums[i]), ...others.map((one) => usd(one[i]))]).reverse(),
    options: () => {
      const value = (_, raw) => usd(raw);
      const colours = ["--warn", "--faint", "--good"].map(fromCss);
      const other = (name, i) => ({ label: NAMES[name] ?? name, stroke: colours[i % 3], dash: [6, 4], width: 1.5, value, points: { show: false } });
      return {
        tzDate: (seconds) => uPlot.tzDate(new Date(1000 * seconds), "Etc/UTC"),
        scales: { y: { range: (_, __, most) => [0, (most || 1) * 1.05] } },
        axes: [axis(), axis({ size: 64, values: (_, ticks) => ticks.map(usd) })],
        series: [
          { label: "Until", value: (_, raw) => new Date(1000 * raw).toISOString().slice(0, 10) },
          { label: "spent", stroke: fromCss("--accent"), width: 2, value, points: { show: false } },
          ...names.map(other),
        ],
      };
    },
  });
}

function running(values) {
  let sum = 0;
  return values.map((value) => (sum += value));
}
