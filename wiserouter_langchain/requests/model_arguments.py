"""The arguments of a call, bound to the chat model within the runnable that a model makes for structured answers.

Such a runnable is a sequence that begins with the model, or with parallel steps of which the model is one
(`include_raw=True`): these drop the arguments of a call when they are invoked, and refuse them when they are streamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableParallel, RunnableSequence
from langchain_core.runnables.base import RunnableBindingBase


def with_arguments(runnable: Runnable[Any, Any], kwargs: Mapping[str, Any]) -> Runnable[Any, Any]:
    """Return a runnable whose chat model receives further arguments.

    Examples
    --------
    >>> from langchain_core.language_models import FakeListChatModel
    >>> raw = RunnableParallel(raw=FakeListChatModel(responses=["hi"]))
    >>> with_arguments(raw, {"stop": ["."]}).steps__["raw"].kwargs
    {'stop': ['.']}
    """
    if isinstance(runnable, RunnableSequence):
        return runnable.model_copy(update={"first": with_arguments(runnable.first, kwargs)})
    if isinstance(runnable, RunnableParallel):
        steps = runnable.steps__.items()
        bound = {name: with_arguments(step, kwargs) if _begins_with_model(step) else step for name, step in steps}
        return runnable.model_copy(update={"steps__": bound})
    if isinstance(runnable, RunnableBindingBase) and isinstance(runnable.bound, RunnableSequence | RunnableParallel):
        return runnable.model_copy(update={"bound": with_arguments(runnable.bound, kwargs)})
    return runnable.bind(**kwargs)


def _begins_with_model(step: Runnable[Any, Any]) -> bool:
    while isinstance(step, RunnableBindingBase | RunnableSequence):
        step = step.first if isinstance(step, RunnableSequence) else step.bound
    return isinstance(step, BaseChatModel)
