// What another budget would buy, by the plan of the router.

import { Chart, axis, faded } from "../charts.js";
import { colourOf, fromCss } from "../colours.js";
import { card, el, figures, fill, shareBar } from "../dom.js";
import { NONE, count, number, percent, quality, usd } from "../format.js";
import { Refused, ask } from "../session.js";

const STEPS = 200;
const PAUSE_MS = 120;

const { node, body } = card("plan", "What another budget would buy", "For the requests to come, by what is known of the models now.");
const amount = el("input", { type: "number", id: "plan-budget", min: 0, step: "any", inputmode: "decimal" });
const requests = el("input", { type: "number", id: "plan-requests", min: 1, step: 1, inputmode: "numeric" });
const slider = el("input", { type: "range", id: "plan-slider", min: 0, max: STEPS, step: 1, "aria-label": "Budget" });
const reset = el("button", { type: "button", onclick: () => follow() }, "Back to the running budget");
const message = el("p", { class: "note", hidden: true });
const bought = el("div");
const mix = el("div");
const chart = new Chart("Expected quality by budget", 200);
const form = el(
  "div",
  { class: "row" },
  el("div", { class: "field" }, el("label", { for: "plan-budget" }, "Budget in USD"), amount),
  el("div", { class: "field" }, el("label", { for: "plan-requests" }, "Requests"), requests),
  reset,
);
const parts = el("div", {}, form, slider, bought, mix, chart.node);
body.append(message, parts);

let shown = { group: "", scope: "" };
let running = null;
let range = null;
let follows = true;
let timer = 0;
let latest = 0;

export default { node, update };

slider.addEventListener("input", () => {
  follows = false;
  const value = at(Number(slider.value));
  amount.value = value.toPrecision(4);
  later(value);
});
for (const field of [amount, requests]) {
  field.addEventListener("input", () => {
    follows = false;
    later(Number(amount.value));
  });
}

async function update({ group, scope }) {
  if (shown.group !== group || shown.scope !== scope) {
    running = null;
    follow();
  }
  shown = { group, scope };
  try {
    running = await ask("plan", { group, scope });
  } catch (error) {
    if (error instanceof Refused) throw error;
    return say(error.message);
  }
  say("");
  const { rate_usd: rates } = running.curve;
  const least = rates[0] * running.requests;
  const most = Math.max(rates.at(-1) * running.requests, running.budget_usd, least * 1.01) * 1.05;
  range = { least: least * 0.9, most };
  if (follows) show(running);
}

/** Show the running budget again. */
function follow() {
  follows = true;
  clearTimeout(timer);
  latest += 1;
  if (running) show(running);
}

function later(budget) {
  clearTimeout(timer);
  timer = setTimeout(() => query(budget), PAUSE_MS);
}

async function query(budget) {
  const turn = ++latest;
  const n = Math.max(1, Math.round(Number(requests.value) || 1));
  if (!(budget >= 0) || !running) return;
  try {
    const answer = await ask("plan", { ...shown, budget_usd: budget, requests: n });
    if (turn !== latest) return; // a later one is on its way
    say("");
    show(answer);
  } catch (error) {
    if (turn === latest) say(error.message);
  }
}

function say(text) {
  message.hidden = !text;
  message.textContent = text;
  parts.hidden = Boolean(text) && !running;
}

/** Return the budget of a position of the slider: by ratios, so that cheap and expensive budgets have equal room. */
function at(position) {
  if (!range) return 0;
  const { least, most } = range;
  return least * (most / least) ** (position / STEPS);
}

function positionOf(budget) {
  if (!range || !(budget > 0)) return 0;
  const { least, most } = range;
  return Math.round(Math.min(1, Math.max(0, Math.log(budget / least) / Math.log(most / least))) * STEPS);
}

function show(plan) {
  if (follows || document.activeElement !== amount) amount.value = Number(plan.budget_usd).toPrecision(4);
  if (follows || document.activeElement !== requests) requests.value = plan.requests;
  if (document.activeElement !== slider || follows) slider.value = positionOf(plan.budget_usd);
  reset.disabled = follows;
  const words = `${usd(plan.budget_usd)}: expected quality ${quality(plan.expected_reward)}`;
  slider.setAttribute("aria-valuetext", words);
  const gain = running ? plan.expected_reward - running.expected_reward : 0;
  const change = Math.abs(gain) >= 0.0005 && !follows ? ` (${gain > 0 ? "+" : ""}${gain.toFixed(3)})` : "";
  fill(
    bought,
    el("p", { class: "big" }, quality(plan.expected_reward), " ", el("small", {}, `expected quality${change} for ${usd(plan.budget_usd)}`)),
    plan.feasible ? null : el("p", { class: "note" }, "Less than the cheapest models cost: the money would run out early."),
    figures([
      ["Requests", count(plan.requests)],
      ["Rate per request", usd(plan.rate_usd)],
      ["Expected spend", usd(plan.expected_spend_usd)],
      ["Price of quality", plan.shadow_price ? `${number(plan.shadow_price)} / $` : "0: more buys nothing", "Quality per dollar at the margin"],
    ]),
  );
  const shares = Object.entries(plan.mix).sort((one, other) => other[1] - one[1]);
  fill(mix, el("h3", {}, "Where the requests would go"), shareBar(shares, colourOf, percent));
  draw(plan);
}

function draw(plan) {
  const { rate_usd: rates, reward } = plan.curve;
  const last = Math.max(rates.at(-1), plan.rate_usd) * 1.05;
  const x = [...new Set([...rates, plan.rate_usd, running.rate_usd, last])].sort((one, other) => one - other);
  const worth = x.map((rate) => interpolated(rates, reward, rate));
  const marked = (rate) => x.map((one, i) => (one === rate ? worth[i] : null));
  chart.show({
    label: `Expected quality by budget per request, from ${usd(rates[0])} to ${usd(rates.at(-1))} per request.`,
    data: [x, worth, marked(running.rate_usd), marked(plan.rate_usd)],
    columns: [["USD per request"], ["expected quality", "num"]],
    rows: () => x.map((rate, i) => [usd(rate), worth[i] === null ? NONE : quality(worth[i])]),
    options: () => {
      const ink = fromCss("--accent");
      const value = (_, raw) => quality(raw);
      const dot = (colour) => ({ stroke: colour, width: 0, value, points: { show: true, size: 10, fill: colour } });
      return {
        scales: { x: { time: false } },
        axes: [axis({ values: (_, ticks) => ticks.map(usd), space: 70, size: 32 }), axis({ size: 56, values: (_, ticks) => ticks.map((t) => t.toFixed(2)) })],
        series: [
          { label: "Per request", value: (_, raw) => usd(raw) },
          { label: "Quality", stroke: ink, width: 2, fill: faded(ink, 0.08), value, points: { show: false } },
          { label: "Now", ...dot(fromCss("--faint")) },
          { label: "Chosen", ...dot(ink) },
        ],
      };
    },
  });
}

/** Return the value of a concave curve at a rate; null below its first point. */
function interpolated(xs, ys, x) {
  if (x < xs[0]) return null;
  const above = xs.findIndex((one) => one >= x);
  if (above < 0) return ys.at(-1);
  if (above === 0 || xs[above] === x) return ys[above];
  const share = (x - xs[above - 1]) / (xs[above] - xs[above - 1]);
  return ys[above - 1] + share * (ys[above] - ys[above - 1]);
}
