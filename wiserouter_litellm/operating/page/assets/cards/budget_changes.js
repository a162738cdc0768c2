// Raising, pausing and resuming a budget.

import { action, choice, confirmChange, field } from "../act.js";
import { el, fill } from "../dom.js";
import { usd } from "../format.js";

const PAUSES = [["", "until it is resumed"], ["3600", "for an hour"], ["86400", "for a day"]];

/** Fill the row of buttons of a budget. */
export function offerChanges(actions, view) {
  const { account, history } = view;
  if (account.unavailable) return fill(actions);
  const paused = Boolean(history?.paused);
  const key = JSON.stringify([view.group, view.scope, paused, account.windows.map((one) => one.every)]);
  if (actions.dataset.key !== key) {
    actions.dataset.key = key;
    fill(
      actions,
      action("Raise the budget …", () => raise(actions.view)),
      paused ? action("Resume …", () => resume(actions.view)) : action("Pause …", () => pause(actions.view)),
    );
  }
  actions.view = view;
}

const target = ({ status, group, scope }) => ({ group: status.budget ?? group, scope });
const nameOf = ({ status, group, scope }) => (scope === "default" ? (status.budget ?? group) : scope);

function raise(view) {
  const windows = ownWindows(view);
  const which = choice(windows.map((one, i) => [String(i), one.every ? `per ${one.every}, ${usd(one.amount_usd)}` : usd(one.amount_usd)]));
  const more = el("input", { type: "number", min: 0, step: "any", required: true, inputmode: "decimal" });
  const span = choice([["1", "in this window only"], ["", "from now on"]]);
  const chosen = () => windows[Number(which.value)];
  const lasts = () => (chosen().every ? span.value : "");
  const terms = () => {
    const add = Number(more.value);
    const { every, amount_usd: amount } = chosen();
    const of = windows.length > 1 ? { every: every ?? "never" } : {};
    return lasts() ? { ...of, add_usd: add, windows: 1 } : { ...of, amount_usd: amount + add };
  };
  confirmChange({
    title: `Raise the budget of ${nameOf(view)}`,
    fields: [
      windows.length > 1 ? field("Which budget", which) : null,
      field("By, in USD", more),
      windows.some((one) => one.every) ? field("How long", span) : null,
    ].filter(Boolean),
    effect: () => {
      const add = Number(more.value);
      if (!(add > 0)) return null;
      const { amount_usd: amount } = chosen();
      return `${usd(amount)} becomes ${usd(amount + add)} ${lasts() ? "in this window only" : "from now on"}, in all workers.`;
    },
    body: () => ({ ...target(view), ...terms() }),
    path: "budget",
    button: "Raise it",
    done: view.renew,
  });
}

function pause(view) {
  const reason = el("input", { type: "text", maxlength: 200 });
  const span = choice(PAUSES);
  confirmChange({
    title: `Pause ${nameOf(view)}`,
    fields: [field("Reason, for those who are refused", reason), field("How long", span)],
    effect: () => "All its calls are refused with status 429 and the reason; calls in flight are settled.",
    body: () => ({
      ...target(view),
      paused: true,
      reason: reason.value,
      ...(span.value ? { pause_s: Number(span.value) } : {}),
    }),
    path: "budget",
    button: "Pause it",
    danger: true,
    done: view.renew,
  });
}

function resume(view) {
  confirmChange({
    title: `Resume ${nameOf(view)}`,
    effect: () => "Its calls are decided again, in all workers.",
    body: () => ({ ...target(view), paused: false }),
    path: "budget",
    button: "Resume it",
    done: view.renew,
  });
}

/** Return the budgets of the scope itself: the last ones of a team may be those of the group, which it is within. */
export function ownWindows({ scope, status, account: { windows } }) {
  const own = windows.length - status.windows.length;
  const same = (one, other) => ["every", "amount_usd", "spent_usd", "decided"].every((name) => one[name] === other[name]);
  const within = own > 0 && status.windows.every((one, i) => same(one, windows[own + i]));
  return scope !== "default" && within ? windows.slice(0, own) : windows;
}
