// Changes of a budget: raised, on other terms, paused, resumed or ended; and the mode of its group.

import { action, choice, confirmChange, field } from "../act.js";
import { el, fill } from "../dom.js";
import { count, percent, usd } from "../format.js";

const SPANS = [["1", "in this window only"], ["2", "for 2 windows"], ["3", "for 3 windows"], ["6", "for 6 windows"], ["12", "for 12 windows"], ["", "from now on"]];
const PAUSES = [["", "until it is resumed"], ["3600", "for an hour"], ["86400", "for a day"]];

/** Fill the row of buttons of a budget. */
export function offerChanges(actions, view) {
  const { account, history } = view;
  if (account.unavailable) return fill(actions);
  if (history?.ended && history.stopped_scope === view.scope) return fill(actions); // for good
  const paused = Boolean(history?.paused) && history.stopped_scope === view.scope; // not one that encloses it
  const key = JSON.stringify([view.group, view.scope, paused, account.windows.map((one) => one.every)]);
  if (actions.dataset.key !== key) {
    actions.dataset.key = key;
    fill(
      actions,
      action("Raise the budget …", () => raise(actions.view)),
      action("Other terms …", () => changeTerms(actions.view)),
      paused ? action("Resume …", () => resume(actions.view)) : action("Pause …", () => pause(actions.view)),
      action("End …", () => end(actions.view)),
      view.scope === "default" ? action("Mode …", () => changeMode(actions.view)) : null,
    );
  }
  actions.view = view;
}

const target = ({ status, group, scope }) => ({ group: status.budget ?? group, scope });
const nameOf = ({ status, group, scope }) => (scope === "default" ? (status.budget ?? group) : scope);

/** Return the field that chooses among the budgets of a scope, and what names the chosen one. */
function chooser(view) {
  const windows = ownWindows(view);
  const which = choice(windows.map((one, i) => [String(i), one.every ? `per ${one.every}, ${usd(one.amount_usd)}` : usd(one.amount_usd)]));
  const chosen = () => windows[Number(which.value)];
  return {
    chosen,
    fields: windows.length > 1 ? [field("Which budget", which)] : [],
    named: () => (windows.length > 1 ? { every: chosen().every ?? "never" } : {}),
    renews: windows.some((one) => one.every),
  };
}

function raise(view) {
  const { chosen, fields, named, renews } = chooser(view);
  const more = el("input", { type: "number", min: 0, step: "any", required: true, inputmode: "decimal" });
  const span = choice(SPANS);
  const lasts = () => (chosen().every ? span.value : "");
  const terms = () => {
    const add = Number(more.value);
    return lasts() ? { ...named(), add_usd: add, windows: Number(lasts()) } : { ...named(), amount_usd: chosen().amount_usd + add };
  };
  confirmChange({
    title: `Raise the budget of ${nameOf(view)}`,
    fields: [...fields, field("By, in USD", more), ...(renews ? [field("How long", span)] : [])],
    effect: () => {
      const add = Number(more.value);
      if (!(add > 0)) return null;
      const { amount_usd: amount } = chosen();
      return `${usd(amount)} becomes ${usd(amount + add)} ${lasts() ? span.selectedOptions[0].text : "from now on"}, in all workers.`;
    },
    body: () => ({ ...target(view), ...terms() }),
    path: "budget",
    button: "Raise it",
    done: view.renew,
  });
}

function changeTerms(view) {
  const { chosen, fields, named } = chooser(view);
  const amount = el("input", { type: "number", min: 0, step: "any", inputmode: "decimal" });
  const requests = el("input", { type: "number", min: 1, step: 1, inputmode: "numeric" });
  const limit = choice([["", "as it is"], ["expected", "expected: plans on mean costs"], ["hard", "hard: is never exceeded"]]);
  const terms = () => ({
    ...(amount.value ? { amount_usd: Number(amount.value) } : {}),
    ...(requests.value ? { requests: Number(requests.value) } : {}),
    ...(limit.value ? { limit: limit.value } : {}),
  });
  confirmChange({
    title: `Other terms for the budget of ${nameOf(view)}`,
    fields: [...fields, field("Amount, in USD", amount), field("Requests", requests), field("Limit", limit)],
    effect: () => {
      const { amount_usd: usdGiven, requests: n, limit: kind } = terms();
      const parts = [
        usdGiven === undefined ? null : `${usd(chosen().amount_usd)} becomes ${usd(usdGiven)} from now on; increases are over.`,
        n === undefined ? null : `It is planned for ${count(n)} requests${chosen().every ? " a window" : ""}.`,
        kind === "hard" ? "Its limit becomes hard, which takes a pause without calls in flight." : kind ? `Its limit becomes ${kind}.` : null,
      ].filter(Boolean);
      return parts.length ? `${parts.join(" ")} All workers follow.` : null;
    },
    body: () => ({ ...target(view), ...named(), ...terms() }),
    path: "budget",
    button: "Change it",
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

function end(view) {
  confirmChange({
    title: `End the budget of ${nameOf(view)}`,
    effect: () => "All its calls are refused for good, and no change brings it back: it begins again where the configuration names other terms. Calls in flight are settled.",
    body: () => ({ ...target(view), end: true }),
    path: "budget",
    button: "End it",
    danger: true,
    done: view.renew,
  });
}

const MODES = {
  route: "Every call goes where the router decides.",
  shadow: "The router decides beside the calls, which go where they went, and acts on this share of them; the budgets are divided likewise.",
  "": "The order is taken back: the mode is that of the configuration.",
};

function changeMode(view) {
  const now = view.status.mode;
  const mode = choice([["route", "route"], ["shadow", "shadow: observe"], ["", "as configured"]]);
  const share = el("input", { type: "number", min: 0, max: 100, step: "any", value: 0, inputmode: "decimal" });
  const shareField = field("Share that it acts on, in %", share);
  const isShadow = () => mode.value === "shadow";
  confirmChange({
    title: `Mode of ${nameOf(view)}`,
    fields: [field("Mode", mode), shareField],
    effect: () => {
      shareField.hidden = !isShadow();
      if (isShadow() && !(share.value !== "" && share.value >= 0 && share.value <= 100)) return null;
      const is = now ? ` It is in mode ${now.mode}${now.mode === "shadow" ? ` and acts on ${percent(now.share)}` : ""} now.` : "";
      return `${MODES[mode.value]} Changes of amounts made so far are over.${is}`;
    },
    body: () => ({ group: target(view).group, mode: mode.value || null, ...(isShadow() ? { share: Number(share.value) / 100 } : {}) }),
    path: "mode",
    button: "Change the mode",
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
