// The store, the faults and the queue of this worker.

import { card, el, figures, fill, table } from "../dom.js";
import { count, duration } from "../format.js";

const { node, body } = card("health", "Health", "As the worker that answered sees it.");

export default { node, update };

function update({ status }) {
  const { store, faults, waiting } = status;
  const counted = Object.entries(faults).filter(([, n]) => n > 0);
  const state = store.reachable ? el("span", { class: "good" }, "reachable") : el("span", { class: "bad-text" }, "away");
  fill(
    body,
    figures([
      ["Store", state],
      ["Age of its figures", duration(store.staleness_s)],
      ["Events to send", count(store.waiting)],
      ["Failed exchanges", `${count(store.failures)} of ${count(store.failures + store.exchanges)}`],
      ["Requests that wait", count(waiting)],
      ["Faults", counted.length ? el("span", { class: "warn" }, count(counted.reduce((sum, [, n]) => sum + n, 0))) : "none"],
    ]),
    counted.length ? table("Faults by kind", [["fault"], ["count", "num"]], counted.map(([kind, n]) => [kind, count(n)])) : null,
  );
}
