// The page: who looks at which budget, and when its cards read again.

import budget from "./cards/budget.js";
import decisions from "./cards/decisions.js";
import feedback from "./cards/feedback.js";
import health from "./cards/health.js";
import kinds from "./cards/kinds.js";
import models from "./cards/models.js";
import plan from "./cards/plan.js";
import savings from "./cards/savings.js";
import shadow from "./cards/shadow.js";
import spend from "./cards/spend.js";
import teams from "./cards/teams.js";
import { know } from "./colours.js";
import { el, fill } from "./dom.js";
import { Refused, ask, isKnown, use } from "./session.js";

const EVERY_MS = 10_000;
const OWN = "default";
const DAYS = 30;
const cards = [budget, plan, shadow, savings, spend, kinds, models, teams, feedback, decisions, health];
const main = document.getElementById("main");
const choices = document.getElementById("choices");
const freshness = document.getElementById("freshness");
const fault = el("p", { class: "note bad", role: "alert", hidden: true });

let chosen = { group: "", scope: OWN };
let timer = 0;
let reading = 0;
let open = false;

start();

function start() {
  document.addEventListener("visibilitychange", () => document.hidden || !open || read());
  if (isKnown()) read();
  else askForKey("");
}

/** Read everything again, and then every ten seconds while the page can be seen. */
async function read() {
  clearTimeout(timer);
  const turn = ++reading;
  try {
    const { groups } = await ask("status");
    if (turn !== reading) return;
    if (!open) fill(main, fault, cards.map((card) => card.node));
    open = true;
    await show(groups, turn);
    if (turn !== reading) return;
    fault.hidden = true;
    freshness.textContent = `Read at ${new Date().toLocaleTimeString()}`;
  } catch (error) {
    if (turn !== reading) return;
    if (error instanceof Refused) return askForKey(error.message);
    if (!open) fill(main, fault);
    fault.hidden = false;
    fault.textContent = `The figures cannot be read: ${error.message}`;
  }
  timer = setTimeout(() => document.hidden || read(), EVERY_MS);
}

async function show(groups, turn) {
  const names = accountsOf(groups);
  if (!names.has(chosen.group)) chosen = { group: [...names.keys()][0] ?? "", scope: OWN };
  const status = groups[chosen.group];
  if (!status) return fill(main, el("p", { class: "card" }, "No group has a budget."));
  const scopes = Object.keys(status.scopes);
  if (chosen.scope !== OWN && !scopes.includes(chosen.scope)) chosen.scope = OWN;
  offer(names, scopes);
  know(Object.keys(status.models));
  const account = chosen.scope === OWN ? status : { ...status.scopes[chosen.scope] };
  const view = { ...chosen, status, account, now: Date.now() / 1000, choose: (scope) => choose({ scope }), renew: read };
  const answers = await others(status);
  if (turn !== reading) return;
  await Promise.all(cards.map((card) => card.update({ ...view, ...answers })));
}

/** Return what the other routes say, by name; null for what is not there. */
async function others(status) {
  const { group, scope } = chosen;
  const of = scope === OWN ? { group } : { group, scope };
  const asked = {
    history: ask("history", chosen),
    kinds: ask("kinds", chosen),
    decisions: ask("decisions", { group }),
    shadow: ask("shadow", { group }),
    spend: ask("spend", { ...of, days: DAYS }),
    savings: ask("savings", { ...of, since: `${DAYS}d` }).then(({ groups }) => groups[status.budget ?? group] ?? null),
  };
  const answers = await Promise.all(Object.values(asked).map((answer) => answer.catch(missing)));
  return Object.fromEntries(Object.keys(asked).map((name, i) => [name, answers[i]]));
}

/** Return null for a route that this version of the proxy does not have, or a figure that is not there yet. */
function missing(error) {
  if (error instanceof Refused) throw error;
  return null;
}

/** Return the groups by the name to show, one for each budget. */
function accountsOf(groups) {
  const found = new Map();
  const seen = new Set();
  for (const [name, status] of Object.entries(groups)) {
    if (status.budget && seen.has(status.budget)) continue;
    seen.add(status.budget);
    found.set(name, status.budget ? `${status.budget} (shared)` : name);
  }
  return found;
}

function offer(names, scopes) {
  const key = JSON.stringify([[...names], scopes, chosen]);
  if (choices.dataset.key === key) return;
  choices.dataset.key = key;
  const select = (label, name, options) =>
    el(
      "label",
      {},
      label,
      el(
        "select",
        { onchange: (event) => choose({ [name]: event.target.value }) },
        options.map(([value, text]) => el("option", { value, selected: value === chosen[name] }, text)),
      ),
    );
  fill(
    choices,
    names.size > 1 ? select("Budget", "group", [...names]) : null,
    scopes.length ? select("Scope", "scope", [[OWN, "the whole group"], ...scopes.map((scope) => [scope, scope])]) : null,
  );
}

function choose(part) {
  chosen = part.group ? { group: part.group, scope: OWN } : { ...chosen, ...part };
  read();
  scrollTo({ top: 0 });
}

function askForKey(why) {
  clearTimeout(timer);
  open = false;
  fill(choices);
  delete choices.dataset.key;
  freshness.textContent = "";
  const input = el("input", { type: "password", id: "key", autocomplete: "off", required: true, spellcheck: "false" });
  const form = el(
    "form",
    {
      onsubmit: (event) => {
        event.preventDefault();
        use(input.value);
        read();
      },
    },
    el("label", { for: "key" }, "Key of a proxy administrator"),
    input,
    el("button", { class: "main" }, "Show the figures"),
  );
  fill(
    main,
    el(
      "section",
      { class: "card signin", "aria-labelledby": "signin-title" },
      el("h2", { id: "signin-title" }, "Sign in"),
      el("p", { class: "about" }, "The key stays in the memory of this tab. Whoever is signed in to LiteLLM's own interface as an administrator needs none."),
      why ? el("p", { class: "note bad", role: "alert" }, why) : null,
      form,
    ),
  );
  use("");
  input.focus();
}
