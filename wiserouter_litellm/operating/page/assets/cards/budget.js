// The budgets of a scope: what is left, and whether it lasts.

import { Chart, axis, faded } from "../charts.js";
import { fromCss } from "../colours.js";
import { card, el, figures, fill } from "../dom.js";
import { NONE, count, duration, number, percent, quality, time, usd } from "../format.js";
import { forecastOf } from "../forecast.js";
import { offerChanges, ownWindows } from "./budget_changes.js";

const { node, body } = card("budget", "Budget");
const notes = el("div");
const rest = el("div");
const actions = el("div", { class: "actions" });
body.append(rest, notes, actions);
const blocks = new Map();

export default { node, update };

function update(view) {
  const { account, history, savings, now } = view;
  offerChanges(actions, view);
  if (account.unavailable) {
    blocks.clear();
    fill(notes);
    return fill(rest, el("p", { class: "note bad" }, account.unavailable));
  }
  if (!blocks.size) fill(rest);
  const own = ownWindows(view);
  account.windows.forEach((window, i) => {
    const name = `${i}:${window.every}`;
    if (!blocks.has(name)) {
      blocks.set(name, blockOf());
      rest.append(blocks.get(name).node);
    }
    const days = own.includes(window) ? savings?.days : null; // which are those of the scope
    blocks.get(name).show({ ...window, enclosing: !own.includes(window) }, account, history?.windows?.[i], days, now);
  });
  for (const [name, block] of [...blocks]) {
    if (account.windows.some((window, i) => `${i}:${window.every}` === name)) continue;
    block.node.remove();
    blocks.delete(name);
  }
  const lines = [history?.paused, account.unspent, ...(account.warnings ?? [])].filter((line) => typeof line === "string");
  fill(notes, lines.map((line) => el("p", { class: "note" }, line)));
}

function blockOf() {
  const text = el("div");
  const chart = new Chart("Budget that is left");
  const outlook = el("p", { class: "sub" });
  const block = el("div", { class: "window" }, text, outlook, chart.node);
  return { node: block, show: (...terms) => showWindow(text, chart, outlook, ...terms) };
}

function showWindow(text, chart, outlook, window, account, past, days, now) {
  const amount = window.amount_usd + window.carried_usd;
  const unspent = amount - window.spent_usd;
  const chips = [window.every ? `per ${window.every}` : `for ${count(window.horizon)} requests`, `${window.limit} limit`];
  if (window.enclosing) chips.push("of the whole group");
  if (window.rules && account.windows.length > 1) chips.push("sets the rate");
  fill(
    text,
    el("p", { class: "big" }, usd(unspent), " ", el("small", {}, `not spent of ${usd(amount)}`)),
    meter(window, amount),
    el(
      "p",
      { class: "sub" },
      `${percent(amount ? window.spent_usd / amount : 0)} spent`,
      window.renews_at ? ` · renews in ${duration(window.renews_at - now)} (${time(window.renews_at)}) ` : " ",
      chips.map((chip) => [" ", el("span", { class: "chip" }, chip)]).flat(),
    ),
    figures([
      ["Spent", usd(window.spent_usd)],
      ["Presumed", window.presumed_usd ? usd(window.presumed_usd) : null, "Calls whose true cost is not known"],
      ["Held for calls in flight", usd(window.reserved_usd)],
      ["Leased to workers", window.leased_usd ? usd(window.leased_usd) : null],
      ["Requests so far", count(window.decided)],
      ["Requests to come", toCome(window), "With the 80 % interval where it is a forecast"],
      ["Rate per request", usd(window.rate_usd), "Budget left per request to come"],
      ...(window.rules ? ofPlan(account) : []),
    ]),
  );
  const outcome = forecastOf(window, past, days, now);
  outlook.textContent = outcome.text;
  chart.show(drawing(outcome, window));
}

const ofPlan = (account) => [
  ["Expected quality", quality(account.expected_reward), "Mean score of the requests to come"],
  ["Price of quality", account.shadow_price === null ? NONE : `${number(account.shadow_price)} / $`, "Shadow price"],
];

function toCome(window) {
  const text = count(window.horizon_left);
  if (window.horizon_low === null) return text;
  return `${text} (${count(window.horizon_low - window.decided)}–${count(window.horizon_high - window.decided)})`;
}

function meter(window, amount) {
  const bar = el("div", { class: "meter", "aria-hidden": "true" });
  const parts = [
    ["spent", window.spent_usd - window.presumed_usd],
    ["presumed", window.presumed_usd],
    ["held", window.reserved_usd + window.leased_usd],
  ];
  for (const [kind, value] of parts) {
    const part = el("span", { class: kind });
    part.style.width = `${amount > 0 ? Math.min(100, (100 * Math.max(0, value)) / amount) : 0}%`;
    bar.append(part);
  }
  return bar;
}

function drawing({ x, left, even, expected, low, high, byTime, text }, window) {
  const at = (value) => (byTime ? time(value) : count(value));
  return {
    label: `Budget that is left, ${byTime ? "over time" : "by requests"}. ${text}`,
    data: [x, left, even, expected, low, high],
    columns: [[byTime ? "time" : "request"], ["left", "num"], ["even pace", "num"], ["forecast", "num"]],
    rows: () => x.map((value, i) => [at(value), usd(left[i]), usd(even[i]), usd(expected[i])]),
    options: () => {
      const ink = fromCss("--accent");
      const dots = { stroke: ink, dash: [2, 4], width: 2, points: { show: false } };
      const value = (_, raw) => usd(raw);
      const bound = { stroke: faded(ink, 0), width: 0, points: { show: false } };
      return {
        scales: { x: { time: byTime }, y: { range: (_, __, most) => [0, Math.max(most, window.amount_usd) * 1.04] } },
        axes: [
          axis(byTime ? {} : { values: (_, ticks) => ticks.map(count) }),
          axis({ size: 64, values: (_, ticks) => ticks.map(usd) }),
        ],
        bands: [{ series: [5, 4], fill: faded(ink, 0.15) }],
        series: [
          { label: byTime ? "Time" : "Requests", value: (_, raw) => at(raw) },
          { label: "Left", stroke: ink, width: 2, fill: faded(ink, 0.08), value, points: { show: false } },
          { label: "Even pace", stroke: fromCss("--faint"), dash: [6, 4], width: 1, value, points: { show: false } },
          { label: "Forecast", ...dots, value },
          { label: "", ...bound },
          { label: "", ...bound },
        ],
      };
    },
  };
}
