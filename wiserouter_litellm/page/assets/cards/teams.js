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
  const sorted = scopes.sort(([, one], [, other]) => (other.spent_usd ?? 0) - (one.spent_usd ?? 0));
  const rows = sorted.slice(0, MOST).map(([name, account]) => {
    const open = el("button", { class: "plain", type: "button", onclick: () => choose(name) }, name);
    if (account.unavailable) return [open, "unavailable", "", "", "", ""];
    const amount = account.amount_usd + account.carried_usd;
    return [
      open,
      usd(account.spent_usd),
      usd(amount),
      percent(amount ? account.spent_usd / amount : 0),
      count(account.decided),
      account.renews_at ? duration(account.renews_at - now) : "never",
    ];
  });
  const columns = [["scope"], ["spent", "num"], ["of", "num"], ["share", "num"], ["requests", "num"], ["renews in", "num"]];
  const more = sorted.length > MOST ? el("p", { class: "about" }, `${sorted.length - MOST} more are on GET /wiserouter/status.`) : null;
  fill(body, table("Budgets of teams and other scopes", columns, rows), more);
}
