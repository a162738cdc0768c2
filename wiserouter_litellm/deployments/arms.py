"""Arms in LiteLLM: one deployment that is called with different parameters is several models of the pool.

What a request says itself is never changed: it is served by an arm that agrees with it, or, where none does, by the
plain model, whose costs and scores are apart. Only a limit of the output is a default that any request may replace.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from wiserouter import Model
from wiserouter.errors import InvalidInput
from wiserouter.integration import Params, arm_name, checked_params
from wiserouter_litellm.requests.limits import ALL_LIMITS

EFFORTS = ("reasoning_effort", "reasoning", "thinking", "output_config")
"""The parameters by which providers are asked to think more or less; LiteLLM translates between them."""

PARAMETERS = frozenset(
    {
        *EFFORTS,
        *ALL_LIMITS,
        *("verbosity", "temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty"),
        *("service_tier", "extra_body", "chat_template_kwargs"),
    }
)
"""The parameters that an arm may set."""

ARM_KEY = "wiserouter_arm"
"""Key of `model_info` under which a deployment's copy carries its arm to the log events of its call."""


class ArmSettings(NamedTuple):
    """One arm as the settings give it: its own name, or "" for the one that its parameters make, and these."""

    name: str
    params: dict[str, Any]

    def named(self, model: str) -> str:
        """Return the name of the arm of a model."""
        return self.name or arm_name(model, self.params)


Arms = Mapping[str, Sequence[ArmSettings]]
"""The arms of models, by model, deployment id or LiteLLM model."""


def arms_of_settings(given: Mapping[str, Iterable[Params]]) -> dict[str, list[ArmSettings]]:
    """Return the arms of models; each is a mapping of parameters, to which `name` may be added.

    Raises
    ------
    InvalidInput
        If a model has none, two have one name, or one sets what no arm may set.

    Examples
    --------
    >>> arms = arms_of_settings({"gpt-5": [{"reasoning_effort": "low"}, {"reasoning_effort": "high"}, {}]})
    >>> [arm.named("gpt-5") for arm in arms["gpt-5"]]
    ['gpt-5@low', 'gpt-5@high', 'gpt-5']
    """
    return {model: _arms_of_model(model, list(arms)) for model, arms in given.items()}


def arms_of_pool(models: Iterable[Model]) -> dict[str, list[ArmSettings]]:
    """Return the arms in a fitted pool, by family."""
    arms: dict[str, list[ArmSettings]] = {}
    for model in models:
        if model.params and PARAMETERS.issuperset(model.params):
            arms.setdefault(model.family, []).append(ArmSettings(model.name, dict(model.params)))
    return arms


def with_arm(params: Mapping[str, Any], arm: Params) -> Mapping[str, Any]:
    """Return the `litellm_params` of a deployment with the parameters of an arm in place of its own.

    Examples
    --------
    >>> with_arm({"max_tokens": 9, "reasoning": {"effort": "low"}}, {"reasoning_effort": "high"})
    {'max_tokens': 9, 'reasoning_effort': 'high'}
    """
    replaced = {name for names in (EFFORTS, ALL_LIMITS) if not arm.keys().isdisjoint(names) for name in names}
    return {name: value for name, value in params.items() if name not in replaced} | dict(arm)


def agrees(arm: Params, kwargs: Mapping[str, Any]) -> bool:
    """Return True if an arm says nothing else than a request does, apart from limits of the output.

    Examples
    --------
    >>> agrees({"reasoning_effort": "low"}, {"reasoning": {"effort": "low"}, "max_tokens": 5})
    True
    >>> agrees({"temperature": 0}, {"reasoning_effort": "low"})
    False
    """
    asked = _effort(kwargs)
    if asked is not None and asked != _effort(arm):
        return False
    others = (name for name in arm if name not in EFFORTS and name not in ALL_LIMITS)
    return all(kwargs.get(name) is None or kwargs[name] == arm[name] for name in others)


def is_said(arm: Params, kwargs: Mapping[str, Any]) -> bool:
    """Return True if parameters of a call say all that an arm does.

    Examples
    --------
    >>> is_said({"reasoning_effort": "low"}, {"reasoning_effort": "low", "n": 1}), is_said({"seed": 1}, {})
    (True, False)
    """
    others = (name for name in arm if name not in EFFORTS)
    return _effort(arm) in (None, _effort(kwargs)) and all(kwargs.get(name) == arm[name] for name in others)


def drop_null_parameters(kwargs: dict[str, Any]) -> None:
    """Remove parameters that are null from a request, in place: LiteLLM would let them replace those of an arm."""
    for name in PARAMETERS & kwargs.keys():
        if kwargs[name] is None:
            del kwargs[name]


def _arms_of_model(model: str, given: Sequence[Params]) -> list[ArmSettings]:
    arms = [_arm(model, one) for one in given]
    names = [arm.named(model) for arm in arms]
    twice = next((name for name in names if names.count(name) > 1), None)
    if not arms or twice is not None:
        got = "none" if twice is None else f"{twice!r} {names.count(twice)} times"
        raise InvalidInput(f"the arms of {model!r} must be several with different names, got {got}", value=given)
    return arms


def _arm(model: str, given: Params) -> ArmSettings:
    params = checked_params(given)
    name = params.pop("name", "")
    unknown = sorted(params.keys() - PARAMETERS)
    if unknown:
        raise InvalidInput(
            f"an arm of {model!r} may set {', '.join(sorted(PARAMETERS))}, and have a name, got {unknown[0]!r}: set it "
            f"in litellm_params",
            value=unknown[0],
        )
    if not isinstance(name, str):
        raise InvalidInput(f"the name of an arm of {model!r} must be a text, got {name!r}", value=name)
    return ArmSettings(name, params)


def _effort(params: Mapping[str, Any]) -> str | None:
    """Return the effort that parameters ask for, as one word where they say one; None where they ask for none."""
    words = {_word(value) for name in EFFORTS if (value := params.get(name)) is not None}
    words.discard("")
    return " ".join(sorted(words)) or None


def _word(value: object) -> str:
    """Return the effort in a parameter; "" for an object that says none, as the format of an answer does."""
    if not isinstance(value, Mapping):
        return str(value)
    if "effort" in value or "format" in value:
        return str(value.get("effort") or "")
    return json.dumps(value, sort_keys=True, default=str)
