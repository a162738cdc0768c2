"""The parts that all adapters share; they import only this package, `wiserouter` and `wiserouter.errors`."""

from __future__ import annotations

from wiserouter.budgets.changes import BudgetChange, ChangeAnswer, ChangeRefused
from wiserouter.budgets.pauses import BudgetPaused
from wiserouter.conversations.conversation import Unit
from wiserouter.conversations.identity import ConversationKey
from wiserouter.integration.billing import Bill, estimated_usage, settle
from wiserouter.integration.call import (
    FRAME_TOKENS,
    SHORT_TEXT_CHARS,
    TOOLS_TOKENS,
    CallRequest,
    DrawBy,
    template_tokens,
)
from wiserouter.integration.context_lookup import ContextAssignment, ContextLookup
from wiserouter.integration.conversation_id import ConversationId, StatedIds, conversation_of, name_of_answer, share_key
from wiserouter.integration.outcome import proves_unbilled, refuses_request
from wiserouter.integration.rate_card import Rate, RateCard, exact_encoding, rates_of
from wiserouter.integration.setup import PreparedRouter, check_bounded, keep_conversations, prepare_router, shadow_of
from wiserouter.integration.waiting import MAX_WAIT_S, AdmissionQueue, admission_queue
from wiserouter.judging.judge import Judge
from wiserouter.judging.prompted import JudgeReply, PromptedJudge
from wiserouter.judging.verdict import UnbilledFailure
from wiserouter.operating.budget_warnings import BudgetWarnings, DeliveryFailed, Notice, WarningRules, Webhook
from wiserouter.operating.metrics import Metrics, RouterMetrics
from wiserouter.operating.savings import savings
from wiserouter.operating.tracing import below, trace_decisions
from wiserouter.planning.value_mix import check_value
from wiserouter.pricing.arms import Params, arm_name, checked_params, split_arm
from wiserouter.pricing.prices import check_price
from wiserouter.pricing.prior_scores import PriorScore, PriorScores
from wiserouter.pricing.tokens import count_tokens, load_tokenizer
from wiserouter.prompts.encoders.remote import Embedded, RemoteEncoder
from wiserouter.prompts.question import Message, Question, question_of
from wiserouter.routing.batch_methods import batch_decisions
from wiserouter.routing.ordered_models import KEEP
from wiserouter.routing.orders import OrderAnswer, Orders
from wiserouter.routing.signals import RULES, Signals
from wiserouter.routing.status import WhatIf, what_if
from wiserouter.stores.ids import fresh_id
from wiserouter.stores.offload import offload
from wiserouter.types import IntArray
from wiserouter.validation import check_amount, check_reward

__all__ = [
    "FRAME_TOKENS",
    "KEEP",
    "MAX_WAIT_S",
    "RULES",
    "SHORT_TEXT_CHARS",
    "TOOLS_TOKENS",
    "AdmissionQueue",
    "Bill",
    "BudgetChange",
    "BudgetPaused",
    "BudgetWarnings",
    "CallRequest",
    "ChangeAnswer",
    "ChangeRefused",
    "ContextAssignment",
    "ContextLookup",
    "ConversationId",
    "ConversationKey",
    "DeliveryFailed",
    "DrawBy",
    "Embedded",
    "IntArray",
    "Judge",
    "JudgeReply",
    "Message",
    "Metrics",
    "Notice",
    "OrderAnswer",
    "Orders",
    "Params",
    "PreparedRouter",
    "PriorScore",
    "PriorScores",
    "PromptedJudge",
    "Question",
    "Rate",
    "RateCard",
    "RemoteEncoder",
    "RouterMetrics",
    "Signals",
    "StatedIds",
    "UnbilledFailure",
    "Unit",
    "WarningRules",
    "Webhook",
    "WhatIf",
    "admission_queue",
    "arm_name",
    "batch_decisions",
    "below",
    "check_amount",
    "check_bounded",
    "check_price",
    "check_reward",
    "check_value",
    "checked_params",
    "conversation_of",
    "count_tokens",
    "estimated_usage",
    "exact_encoding",
    "fresh_id",
    "keep_conversations",
    "load_tokenizer",
    "name_of_answer",
    "offload",
    "prepare_router",
    "proves_unbilled",
    "question_of",
    "rates_of",
    "refuses_request",
    "savings",
    "settle",
    "shadow_of",
    "share_key",
    "split_arm",
    "template_tokens",
    "trace_decisions",
    "what_if",
]
