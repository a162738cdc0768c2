"""The dispatcher: the one callback by which LiteLLM reaches the budgets of all routers of a process.

LiteLLM takes a limited number of callbacks, and drops further ones with a warning. It calls each of them for every
router of the process; the mark of a decision says whose call an event belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import litellm
from litellm.integrations.custom_logger import CustomLogger

from wiserouter.errors import InvalidInput
from wiserouter_litellm.deployments.registry import Deployment
from wiserouter_litellm.groups.group import DECISION_KEY
from wiserouter_litellm.groups.last_look import drop_last, sparing
from wiserouter_litellm.hooks.wise_callback import WiseCallback
from wiserouter_litellm.requests.json_objects import MAPPING
from wiserouter_litellm.settlement.events import about_to_be_sent, answering, attempted
from wiserouter_litellm.settlement.other_surfaces import UNROUTED_KEY
from wiserouter_litellm.settlement.recorder import Recorder


class Dispatcher(CustomLogger):
    """Passes a selection to the callback of its router, and events to the recorder that made the decision."""

    def __init__(self) -> None:
        super().__init__()
        self._recorders: dict[str, Recorder] = {}

    def add(self, recorder: Recorder) -> None:
        """Begin to pass on selections and events."""
        self._recorders[recorder.owner] = recorder
        recorder.registered = self

    def remove(self, recorder: Recorder) -> bool:
        """Pass on nothing any more; return True if there is no other recorder."""
        self._recorders.pop(recorder.owner, None)
        return not self._recorders

    async def async_filter_deployments(
        self,
        model: str,
        healthy_deployments: list[Any],
        messages: list[Any] | None,
        request_kwargs: dict[str, Any] | None = None,
        parent_otel_span: Any = None,
    ) -> list[Any]:
        """Return the deployments as the callback of their router ranks them."""
        callback = self._callback_of(healthy_deployments[0]) if healthy_deployments else None
        if callback is None:
            return healthy_deployments
        return await callback.async_filter_deployments(
            model, healthy_deployments, messages, request_kwargs, parent_otel_span
        )

    @sparing
    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any] | None:
        """Return the arguments of a call that is sent, as the recorders change them."""
        info = kwargs.get("model_info")
        if isinstance(info, MAPPING) and DECISION_KEY in info:  # one of them has reserved it
            recorder = self._of(info)
            recorders = [] if recorder is None else [recorder]
        else:
            recorders = list(self._recorders.values())
        for recorder in recorders:
            changed = await recorder.async_pre_call_deployment_hook(kwargs, call_type)
            if changed is not None:
                return changed
        return kwargs

    async def alook_again(self, kwargs: Mapping[str, Any], call_type: Any) -> None:
        """Look at a call once more before it is sent."""
        if recorder := self._of(about_to_be_sent(kwargs)):
            await recorder.alook_again(kwargs, call_type)

    async def async_post_call_success_deployment_hook(
        self, request_data: dict[str, Any], response: Any, call_type: Any
    ) -> None:
        """Report an answer that LiteLLM may still keep back."""
        if recorder := self._of(request_data.get("model_info")):
            await recorder.async_post_call_success_deployment_hook(request_data, response, call_type)

    async def async_post_call_failure_deployment_hook(
        self, request_data: Mapping[str, Any], exception: Exception, call_type: Any, fallback_depth: int | None = None
    ) -> None:
        """Report a failed attempt."""
        if recorder := self._of(about_to_be_sent(request_data)):
            await recorder.async_post_call_failure_deployment_hook(request_data, exception, call_type, fallback_depth)

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Report an answer."""
        if recorder := self._of(answering(kwargs)):
            await recorder.async_log_success_event(kwargs, response_obj, start_time, end_time)

    async def async_log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Report a failure."""
        if recorder := self._of(attempted(kwargs)):
            await recorder.async_log_failure_event(kwargs, response_obj, start_time, end_time)

    def log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Report the answer to a synchronous call."""
        if recorder := self._of(answering(kwargs)):
            recorder.log_success_event(kwargs, response_obj, start_time, end_time)

    def log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Report the failure of a synchronous call."""
        if recorder := self._of(attempted(kwargs)):
            recorder.log_failure_event(kwargs, response_obj, start_time, end_time)

    def _callback_of(self, deployment: Deployment) -> WiseCallback | None:
        """Return the callback of the router that hands out a deployment; ids do not tell two like routers apart."""
        serving = [
            each
            for each in self._recorders.values()
            if isinstance(each, WiseCallback) and each.selects and each.serves(deployment)
        ]
        if len(serving) > 1:
            serving = [each for each in serving if each.hands_out(deployment)] or serving
        return serving[0] if serving else None

    def _of(self, model_info: object) -> Recorder | None:
        """Return the recorder whose mark a deployment carries."""
        if not isinstance(model_info, MAPPING):
            return None
        for key in (DECISION_KEY, UNROUTED_KEY):
            mark = model_info.get(key)
            if isinstance(mark, MAPPING) and (recorder := self._recorders.get(str(mark.get("owner")))) is not None:
                return recorder
        return None


def register(recorder: Recorder) -> None:
    """Let LiteLLM call a recorder, through the dispatcher of the process.

    Raises
    ------
    InvalidInput
        If LiteLLM takes no further callback: the budget would not hold.
    """
    dispatcher = _dispatcher()
    if dispatcher is None:
        dispatcher = Dispatcher()
        _add(dispatcher)
    dispatcher.add(recorder)


def unregister(recorder: Recorder) -> None:
    """Let LiteLLM call a recorder no more."""
    dispatcher = _dispatcher()
    if dispatcher is not None and dispatcher.remove(recorder):
        drop_last(dispatcher)
        litellm.logging_callback_manager.remove_callback_from_all_lists(dispatcher, require_self=False)


def _add(dispatcher: Dispatcher) -> None:
    """Add the dispatcher to the callbacks, and to the lists of those that hear of answers and failures.

    LiteLLM copies callbacks to these lists at each call, while there is room: every one of its routers takes a place.
    """
    manager = litellm.logging_callback_manager
    manager.add_litellm_callback(dispatcher)
    manager.add_litellm_success_callback(dispatcher)
    manager.add_litellm_failure_callback(dispatcher)
    manager.add_litellm_async_success_callback(dispatcher)
    manager.add_litellm_async_failure_callback(dispatcher)
    events = (litellm.success_callback, litellm._async_success_callback, litellm._async_failure_callback)
    full = next(
        (each for each in (litellm.callbacks, *events, litellm.failure_callback) if dispatcher not in each), None
    )
    if full is None:
        return
    manager.remove_callback_from_all_lists(dispatcher, require_self=False)
    raise InvalidInput(
        f"LiteLLM takes no further callback, it has {len(full)}: remove some, or raise LITELLM_MAX_CALLBACKS; without "
        f"its callback a budget would not hold",
        value=len(full),
    )


def _dispatcher() -> Dispatcher | None:
    return next((each for each in litellm.callbacks if isinstance(each, Dispatcher)), None)
