// How much of the traffic is scored, by whom, and whether they agree.

import { card, el, figures, fill, table } from "../dom.js";
import { NONE, count, number, percent, usd } from "../format.js";

const { node, body } = card("feedback", "Feedback", "Scores of the answers: without them the router goes by prices and priors.");

export default { node, update };

function update({ status, savings }) {
  const { judge, warnings } = status;
  const { calls = 0, scores = 0, mean_score: mean = null } = savings?.actual ?? {};
  fill(
    body,
    savings
      ? figures([
          ["Calls that are scored", `${percent(calls ? scores / calls : 0)} (${count(scores)} of ${count(calls)})`, `Since ${savings.since}`],
          ["Mean score", mean === null ? NONE : mean.toFixed(3)],
        ])
      : null,
    calls && !scores ? el("p", { class: "note" }, "No answer was scored. POST /wiserouter/feedback takes scores of people, rules and judges.") : null,
    judge ? judged(judge) : el("p", { class: "about" }, "No judge scores answers."),
    warnings.map((line) => el("p", { class: "note" }, line)),
  );
}

function judged(judge) {
  const rows = Object.entries(judge.models).map(([name, one]) => [name, count(one.pairs), percent(one.agreement ?? one.share)]);
  return [
    el("h3", {}, `Judge: ${judge.source}`),
    figures([
      ["Share of calls", percent(judge.share)],
      ["Judged", `${count(judge.judged)} of ${count(judge.offered)}`],
      ["Failed, dropped, unpaid", `${count(judge.failed)}, ${count(judge.dropped)}, ${count(judge.unpaid)}`],
      ["Cost", usd(judge.spent_usd)],
      ["Agreement with people", judge.agreement === null ? NONE : percent(judge.agreement), `By ${number(judge.pairs)} calls that both scored`],
    ]),
    rows.length ? table("Agreement by model", [["model"], ["scored by both", "num"], ["agreement", "num"]], rows) : null,
  ];
}
