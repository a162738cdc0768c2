// Whether a budget lasts: the cost per request so far, over the requests that are forecast.

import { duration, time, usd } from "./format.js";

const STEPS = 48;

const DAY_S = 86400;

/** Return the past and the forecast of one window as arrays over the same x, and the forecast in words. */
export function forecastOf(window, past, days, now) {
  const byTime = window.renews_at !== null && window.renews_at !== undefined;
  const amount = window.amount_usd + window.carried_usd;
  const unspent = amount - window.spent_usd;
  const here = byTime ? now : window.decided;
  const end = byTime ? Math.max(window.renews_at, now + 1) : Math.max(window.horizon, window.decided + 1);
  const start = byTime ? Math.min(past?.starts_at ?? now, now) : 0;
  const points = pointsOf(window, past, days, now).filter(([at, , decided]) => (byTime ? at > start && at < now : decided < here));
  const known = [[start, amount], ...points.map(([at, spent, n]) => [byTime ? at : n, amount - spent]), [here, unspent]];
  const settled = window.charged + window.presumed;
  const each = settled ? window.spent_usd / settled : window.rate_usd;
  const costs = [window.horizon_left, toCome(window, "horizon_low"), toCome(window, "horizon_high")].map((n) => n * each);
  const ahead = Array.from({ length: STEPS }, (_, i) => here + ((end - here) * (i + 1)) / STEPS);
  const x = [...known.map(([at]) => at), ...ahead];
  const before = known.slice(1).map(() => null);
  const line = (cost) => [...before, ...[here, ...ahead].map((at) => rest(unspent, cost, (at - here) / (end - here)))];
  return {
    byTime,
    x,
    left: [...known.map(([, value]) => value), ...ahead.map(() => null)],
    even: x.map((at) => amount * (1 - (at - start) / (end - start))),
    expected: line(costs[0]),
    high: line(costs[1]),
    low: line(costs[2]),
    text: inWords({ byTime, unspent, costs, here, end, settled }),
  };
}

/** Return time, spend and requests of the window so far: the ends of its days, then what the worker has read since. */
function pointsOf(window, past, days, now) {
  const read = past?.points ?? [];
  const ends = daysOf(window, past?.starts_at, days ?? []).filter(([at]) => at < now);
  const last = ends.at(-1)?.[0] ?? -Infinity;
  return [...ends, ...read.filter(([at]) => at > last)];
}

/** Return the ends of the days since a start; none where their sum is not what the window has spent. */
function daysOf(window, start, days) {
  if (start === undefined) return [];
  let spent = 0;
  let calls = 0;
  const ends = [];
  for (const day of days) {
    const at = Date.parse(`${day.date}T00:00:00Z`) / 1000 + DAY_S;
    if (at <= start) continue;
    spent += day.cost_usd + day.other_usd;
    calls += day.calls;
    ends.push([at, spent, calls]);
  }
  const covers = ends.length && ends[0][0] - DAY_S <= start;
  return covers && Math.abs(spent - window.spent_usd) <= 0.02 * window.spent_usd ? ends : [];
}

const rest = (unspent, cost, share) => Math.max(0, unspent - cost * share);

function toCome(window, bound) {
  const total = window[bound];
  return total === null || total === undefined ? window.horizon_left : Math.max(0, total - window.decided);
}

function inWords({ byTime, unspent, costs, here, end, settled }) {
  if (!settled) return "No call is settled yet: the forecast is that of an even pace.";
  const [cost, least, most] = costs;
  const until = byTime ? "at the renewal" : "at the end";
  if (unspent <= 0) return "The budget is used up.";
  if (cost > unspent * 1.005) {
    const at = here + ((end - here) * unspent) / cost;
    const when = byTime ? `on ${time(at)}, ${duration(end - at)} before the renewal` : `after ${Math.floor(at)} requests`;
    return `At the cost per request so far it would run out ${when}; the plan spends less per request before that.`;
  }
  const range = most > least ? ` (${usd(rest(unspent, most, 1))} to ${usd(rest(unspent, least, 1))} for 80 % of forecasts)` : "";
  return `At the cost per request so far, ${usd(unspent - cost)} would be left ${until}${range}.`;
}
