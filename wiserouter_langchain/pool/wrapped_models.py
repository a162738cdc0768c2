"""Chat models that `bind`, `with_config`, `with_retry` or `with_fallbacks` has wrapped before they join a pool."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.config import merge_configs
from langchain_core.runnables.fallbacks import RunnableWithFallbacks
from langchain_core.runnables.retry import RunnableRetry

from wiserouter import WiseRouter
from wiserouter.errors import InvalidInput
from wiserouter.integration import arm_name, checked_params
from wiserouter_langchain.requests.limits import ANSWERS, ARM_PARAMETERS, OUTPUT_LIMITS, costly

logger = logging.getLogger("wiserouter.langchain")


@dataclass(frozen=True, slots=True)
class Wrapping:
    """What was wrapped around a chat model.

    Attributes
    ----------
    kwargs : dict
        The arguments that were bound, without the limits for which the model has a field.
    config : RunnableConfig
        The configuration that was set.
    retry : RunnableRetry or None
        The retries; a hard budget leaves them out, since each may be billed.
    params : dict
        The parameters among the bound arguments that make the model an arm, limits included.
    family : str
        The model that it is an arm of, where several arms were given under one name.
    """

    kwargs: dict[str, Any] = field(default_factory=dict)
    config: RunnableConfig = field(default_factory=RunnableConfig)
    retry: RunnableRetry[Any, Any] | None = None
    params: dict[str, Any] = field(default_factory=dict)
    family: str = ""

    @property
    def unbounded(self) -> str | None:
        """The bound argument by which a hard budget cannot bound a call; None where there is none."""
        for name, value in self.kwargs.items():
            if name in (*OUTPUT_LIMITS, *ANSWERS) or costly(name, value):
                return f"the bound argument {name} may change the cost"
        return None

    def arguments(self, given: Mapping[str, Any], *, own_tools: bool) -> dict[str, Any]:
        """Return the arguments of a call with those that were bound; `own_tools` where the call brings its own."""
        left_out = ("tools", "tool_choice") if own_tools else ()
        return {**{name: value for name, value in self.kwargs.items() if name not in left_out}, **given}

    def around(self, runnable: Runnable[Any, Any], *, retries: bool) -> Runnable[Any, Any]:
        """Return a runnable with the configuration, and with the retries where they are wanted."""
        if self.config:
            runnable = runnable.with_config(self.config)
        if self.retry is None or not retries:
            return runnable
        return self.retry.model_copy(update={"bound": runnable, "kwargs": {}, "config": {}})


PLAIN = Wrapping()


def unwrapped(name: str, model: object) -> tuple[BaseChatModel, Wrapping]:
    """Return the chat model within its wrappers, and what was wrapped around it.

    Parameters
    ----------
    name : str
        Its name in the pool.
    model : BaseChatModel or Runnable
        The chat model. The fallbacks of a wrapper are not called: the router tries the next model of its pool.

    Raises
    ------
    InvalidInput
        If there is no chat model inside.

    Examples
    --------
    >>> from langchain_core.language_models import FakeListChatModel
    >>> model, wrapping = unwrapped("small", FakeListChatModel(responses=["hi"]).bind(stop=["."]).with_retry())
    >>> type(model).__name__, wrapping.kwargs, wrapping.retry.max_attempt_number
    ('FakeListChatModel', {'stop': ['.']}, 3)
    """
    inner, wrapping = model, PLAIN
    while not isinstance(inner, BaseChatModel):
        if isinstance(inner, RunnableWithFallbacks):
            logger.warning("the fallbacks of %s are not called: add them to the models of the router", name)
            inner = inner.runnable
        elif isinstance(inner, RunnableBindingBase) and not inner.config_factories:
            retry = inner if isinstance(inner, RunnableRetry) else None
            kwargs, config = {**inner.kwargs, **wrapping.kwargs}, merge_configs(inner.config, wrapping.config)
            wrapping, inner = (
                Wrapping(kwargs, config if inner.config else wrapping.config, wrapping.retry or retry),
                inner.bound,
            )
        else:
            raise InvalidInput(
                f"models must be chat models, with nothing but bind, with_config, with_retry or with_fallbacks around "
                f"them, got {type(inner).__name__} for {name!r}: pass the model itself",
                value=name,
            )
    params = _params_of(wrapping.kwargs)
    return _with_fields(inner, replace(wrapping, params=params) if params else wrapping)


def all_unwrapped(
    models: object, router: WiseRouter | None = None
) -> tuple[dict[str, BaseChatModel], dict[str, Wrapping]]:
    """Return the chat models of a pool, and what was wrapped around those that were wrapped.

    Parameters
    ----------
    models : mapping of str to chat model, or to a list of them
        Several under one name are arms of that model, each with a name of its own, such as "gpt-5@low".
    router : WiseRouter, optional
        Fitted on history; a model that it knows by its arms only is called as these.

    Raises
    ------
    InvalidInput
        As `unwrapped` does, or if two arms have one name.
    """
    if not isinstance(models, Mapping):
        raise InvalidInput(f"models must be a dictionary of chat models by name, got {type(models).__name__}")
    both: dict[str, tuple[BaseChatModel, Wrapping]] = {}
    for key, given in models.items():
        for name, model in _named_arms(str(key), given, router):
            if name in both:
                raise InvalidInput(f"models must have different names, got {name!r} twice", value=name)
            both[name] = model
    wrappings = {name: wrapping for name, (_, wrapping) in both.items() if wrapping != PLAIN}
    return {name: model for name, (model, _) in both.items()}, wrappings


def _named_arms(
    key: str, given: object, router: WiseRouter | None
) -> Iterator[tuple[str, tuple[BaseChatModel, Wrapping]]]:
    """Yield the arms of a model with their names; the model itself where it has none."""
    if isinstance(given, list | tuple):
        for one in given:
            model, wrapping = unwrapped(key, one)
            yield (
                arm_name(key, wrapping.params),
                (model, replace(wrapping, family=key) if wrapping.params else wrapping),
            )
        return
    fitted = () if router is None or key in router.pool.names else router.pool.models
    arms = [arm for arm in fitted if arm.family == key and arm.params]
    for arm in arms:
        model, wrapping = unwrapped(arm.name, given)
        bound = replace(wrapping, kwargs={**wrapping.kwargs, **arm.params}, params=dict(arm.params), family=key)
        yield arm.name, _with_fields(model, bound)
    if not arms:
        yield key, unwrapped(key, given)


def _params_of(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bound arguments that are parameters of an arm."""
    return checked_params({name: value for name, value in kwargs.items() if name in ARM_PARAMETERS})


def _with_fields(model: BaseChatModel, wrapping: Wrapping) -> tuple[BaseChatModel, Wrapping]:
    """Return a model whose own fields hold the limits that were bound, and the rest of its wrapping."""
    if wrapping is PLAIN:
        return model, wrapping
    fields = type(model).model_fields
    limits = {
        key: value for key, value in wrapping.kwargs.items() if key in (*OUTPUT_LIMITS, *ANSWERS) and key in fields
    }
    rest = {key: value for key, value in wrapping.kwargs.items() if key not in limits}
    model = model.model_copy(update=limits) if limits else model
    return model, replace(wrapping, kwargs=rest)
