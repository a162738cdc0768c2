// The budgets of teams and other scopes.

import { card, el, fill, table } from "../dom.js";
import { count, duration, percent, usd } from "../format.js";

const MOST = 200;
const { node, body } = card("teams", "Teams", "Scopes with a budget of their own, those that have spent most first.");

export default { node, update };

function update({ status, now, choose }) {
  const scopes = Object.entries(status.scopes);
  node.hidden = !scopes.length;
  if (node.hidden) return;
  const spent = (account) => ownBudget(account).spent_usd ?? 0;
  const sorted = scopes.sort(([, one], [, other]) => spent(other) - spent(one));
  const rows = sorted.slice(0, MOST).map(([name, account]) => {
    const open = el("button", { class: "plain", type: "button", onclick: () => choose(name) }, name);
    if (account.unavailable) return [open, "unavailable", "", "", "", ""];
    const budget = ownBudget(account);
    const amount = budget.amount_usd + budget.carried_usd;
    return [
      open,
      usd(budget.spent_usd),
      usd(amount),
      percent(amount ? budget.spent_usd / amount : 0),
      count(budget.decided),
      budget.renews_at ? duration(budget.renews_at - now) : "never",
    ];
  });
  const columns = [["scope"], ["spent", "num"], ["of", "num"], ["share", "num"], ["requests", "num"], ["renews in", "num"]];
  const more = sorted.length > MOST ? el("p", { class: "about" }, `${sorted.length - MOST} more are on GET /wiserouter/status.`) : null;
  fill(body, table("Budgets of teams and other scopes", columns, rows), more);
}

/** Return the innermost budget of a scope; the account itself has the figures of the tightest, which may be the group's. */
const ownBudget = (account) => account.windows?.[0] ?? account;
