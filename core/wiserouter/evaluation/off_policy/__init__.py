r"""Off-policy evaluation: the outcome of another budget, policy or pool, estimated from a journal of decisions.

A journal holds all probabilities :math:`p_i(a)` with which models were drawn, for every decision `i`. With
:math:`\pi_i(a)` those of a target policy, :math:`w_i = \pi_i(a_i) / p_i(a_i)` and outcome :math:`y_i` (reward or cost):

.. math::
    \text{IPS} = \frac{1}{n} \sum_i w_i y_i, \quad
    \text{SNIPS} = \frac{\sum_i w_i y_i}{\sum_i w_i}, \quad
    \text{DR} = \frac{1}{n} \sum_i \Bigl( \sum_a \pi_i(a)\, \hat q_i(a) + w_i (y_i - \hat q_i(a_i)) \Bigr)

(Horvitz and Thompson 1952; Swaminathan and Joachims 2015; Dudik, Langford and Li 2011). A router that learns draws with
probabilities that depend on its past. Given that past, each term of IPS and DR still has the target's value as its
mean, because :math:`\hat q_i` is fitted on earlier decisions only (Hadad et al., PNAS 2021): they are sums of
martingale differences, whose variance the mean of their squares estimates. None of this holds if the target's choices
were almost never drawn; `evaluate` then refuses.
"""

from wiserouter.evaluation.off_policy.estimators import Estimate, doubly_robust, ips, snips
from wiserouter.evaluation.off_policy.evaluate import Evaluation, evaluate
from wiserouter.evaluation.off_policy.logged_decisions import Decisions, read_decisions
from wiserouter.evaluation.off_policy.overlap import Overlap, overlap_of
from wiserouter.evaluation.off_policy.several_targets import evaluate_each
from wiserouter.evaluation.off_policy.target_policies import always, at_logged_estimates, at_plan, check_contexts

__all__ = [
    "Decisions",
    "Estimate",
    "Evaluation",
    "Overlap",
    "always",
    "at_logged_estimates",
    "at_plan",
    "check_contexts",
    "doubly_robust",
    "evaluate",
    "evaluate_each",
    "ips",
    "overlap_of",
    "read_decisions",
    "snips",
]
