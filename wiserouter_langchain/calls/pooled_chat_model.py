"""The half of the router that shows its pool as one chat model: names, limits and token counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.runnables.utils import ConfigurableFieldSpec
from pydantic import Field

from wiserouter_langchain.calls.call_environment import FORCED, SCOPE, VALUE
from wiserouter_langchain.calls.one_budget import OneBudget
from wiserouter_langchain.decisions.conversation_ids import PARENT, RUN
from wiserouter_langchain.pool.pool_member import common_params, common_profile


class PooledChatModel(OneBudget):
    """A chat model made of several: it shows what all of them have in common."""

    models: dict[str, BaseChatModel]
    rest_s: float = Field(default=5.0, ge=0.0)
    encoder_timeout_s: float = Field(default=1.0, ge=0.0)
    history_size: int = 10_000
    judge: Any = Field(default=None, exclude=True)
    judge_share: float = 0.1
    judge_budget_usd: float | None = None
    judge_terms: dict[str, Any] = Field(default_factory=dict, exclude=True)

    @property
    def _llm_type(self) -> str:
        kinds = {model._llm_type for model in list(self.models.values())}
        return kinds.pop() if len(kinds) == 1 else "wise-router"

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        params = super()._get_ls_params(stop=stop, **kwargs)
        name = params.get("ls_model_name", "wiserouter")
        common = common_params([model._get_ls_params(stop=stop, **kwargs) for model in list(self.models.values())])
        return {**params, "ls_provider": "wiserouter", **common, "ls_model_name": name}

    def _resolve_model_profile(self) -> Any:
        return common_profile(list(self.models.values()))

    @property
    def config_specs(self) -> list[ConfigurableFieldSpec]:
        """The keys that `config["configurable"]` may hold."""
        keys = {FORCED: ("Model", f"Force one of {', '.join(self.models)}"), SCOPE: ("Scope", "The scope that pays")}
        if self._environment.unit != "call":
            keys |= {RUN: ("Run", "The id of the run"), PARENT: ("Parent", "The id of the run that it works for")}
        specs = [
            ConfigurableFieldSpec(id=id_, annotation=str | None, name=name, description=description, default=None)
            for id_, (name, description) in keys.items()
        ]
        told = "The value of the call relative to 1"
        value = ConfigurableFieldSpec(id=VALUE, annotation=float | None, name="Value", description=told, default=None)
        return [*specs, value]

    def get_num_tokens(self, text: str) -> int:
        """Count tokens as the first model does."""
        return self._first_model.get_num_tokens(text)

    def get_num_tokens_from_messages(self, messages: list[BaseMessage], tools: Sequence[Any] | None = None) -> int:
        """Count tokens as the first model does."""
        return self._first_model.get_num_tokens_from_messages(messages, tools)

    def get_token_ids(self, text: str) -> list[int]:
        """Tokenize as the first model does."""
        return self._first_model.get_token_ids(text)

    @property
    def _first_model(self) -> BaseChatModel:
        return next(iter(self.models.values()))
