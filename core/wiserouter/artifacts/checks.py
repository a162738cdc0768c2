"""Checks of an artifact's content: every array has its name, type, shape and range, and every setting its JSON type.

An array that is not listed here is refused, except the state of an encoder, which the encoder checks itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wiserouter.artifacts.json_values import MAX_NUMBER
from wiserouter.conversations.call_estimates import CallEstimates
from wiserouter.errors import InvalidInput
from wiserouter.learning.estimates import FIELDS, Estimates
from wiserouter.learning.residuals.ridge import Ridge
from wiserouter.learning.smoothing import Smoothing
from wiserouter.pricing.pool import Model

Arrays = Mapping[str, NDArray[Any]]
Shape = tuple[int, ...]

_TAKEN_BACK = ("invoked", "met", "reward", "reward_sq")
_COUNT_OF = {"cost": "calls", "cost_sq": "calls", "reward": "labels", "reward_sq": "labels", "delay_s": "scored"}
_DEVIATING = ("cost", "reward", "reward_sq")


class Rule(NamedTuple):
    """The rule of one array: its shape, least value, and the kinds of its numbers."""

    shape: Shape
    least: float = 0.0
    kinds: str = "fiu"


def check_manifest(manifest: Mapping[str, Any]) -> None:
    """Raise `InvalidInput` if a value that its own class does not check has another JSON type."""
    for model in _list("models", manifest["models"]):
        _check_is(model, dict, "a model")
        _check_is(model.get("retired", False), bool, "Model.retired")
        for name in ("price", "batch_price"):
            _check_is(model.get(name) or {}, dict, f"Model.{name}")
        _check_is(model.get("params", {}), dict, "Model.params")
    _check_policy(manifest["policy"])
    _check_is(manifest.get("first_prices", {}), dict, "first_prices")
    for name, price in manifest.get("first_prices", {}).items():
        _check_is(price, dict, f"the first price of {name}")
    for key in ("encoder", "finer"):
        _check_is(manifest.get(key) or {}, dict, key)
    for summary in _list("portraits", manifest["portraits"]):
        for name in ("terms", "prompts"):
            for text in _list(f"portraits.{name}", summary[name]):
                _check_is(text, str, f"portraits.{name}")


def _check_policy(policy: dict[str, Any]) -> None:
    _check_is(policy, dict, "policy")
    settings = policy["settings"]
    _check_is(settings, dict, "the policy's settings")
    _check_is(settings.get("allow_skip", False), bool, "allow_skip")
    if settings.get("accounting", "actual") not in ("actual", "paper"):
        raise InvalidInput(f"accounting must be 'actual' or 'paper', got {settings['accounting']!r}")


def _list(name: str, value: list[Any]) -> list[Any]:
    _check_is(value, list, name)
    return value


def check_contexts(arrays: Arrays) -> None:
    """Raise `InvalidInput` unless centroids and frequencies are numbers, and distances to the centroids are finite."""
    centroids, freq = arrays["contexts.centroids"], arrays["contexts.freq"]
    rows, columns = centroids.shape if centroids.ndim == 2 else (0, 0)
    check_array("contexts.centroids", centroids, Rule((rows, columns), -MAX_NUMBER))
    check_array("contexts.freq", freq, Rule((rows,)))
    _check_length("contexts.centroids", centroids)


def check_estimates(arrays: Arrays, shape: Shape, *, deviating: bool) -> None:
    """Raise `InvalidInput` unless counts and sums have the shape (n_contexts, n_models), and signs that they can have.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        The arrays of `Estimates`.
    shape : tuple of int
        Number of contexts and of models.
    deviating : bool
        True where costs and rewards are counted less the deviation of their query, so that a sum may be negative.
    """
    _check_names("estimates.", arrays, FIELDS)
    for name in FIELDS:
        least = -MAX_NUMBER if deviating and name in _DEVIATING else -1.0 if name in _TAKEN_BACK else 0.0
        check_array(f"estimates.{name}", arrays[name], Rule(shape, least))


def check_smoothing(arrays: Arrays, shape: Shape) -> None:
    """Raise `InvalidInput` unless what smooths the rewards has the shape of the estimates, and counts of at least 0."""
    _check_names("smoothing.", arrays, Smoothing._fields)
    for name, least in (("labels", 0.0), ("reward", -MAX_NUMBER)):
        check_array(f"smoothing.{name}", arrays[name], Rule(shape, least))


def without_negatives(arrays: Arrays, *, deviating: bool) -> dict[str, NDArray[Any]]:
    """Return the arrays of estimates with 0 for a sum below it, as after observations that were taken back.

    Examples
    --------
    >>> without_negatives({"labels": np.array([[-0.5, 2.0]])}, deviating=False)
    {'labels': array([[0., 2.]])}
    """
    return {
        name: array if deviating and name in _DEVIATING else np.maximum(array, 0.0) for name, array in arrays.items()
    }


def without_remainders(arrays: Arrays, *, deviating: bool) -> dict[str, NDArray[Any]]:
    """Return the arrays of estimates without negatives, and with 0 for what is left of a sum whose count is 0.

    Examples
    --------
    >>> arrays = {"labels": np.array([[-0.5, 2.0]]), "reward": np.array([[0.1, 1.0]])}
    >>> without_remainders(arrays, deviating=False)
    {'labels': array([[0., 2.]]), 'reward': array([[0., 1.]])}
    """
    left = without_negatives(arrays, deviating=deviating)
    return {
        name: np.where(left[_COUNT_OF[name]] > 0.0, array, 0.0) if name in _COUNT_OF else array
        for name, array in left.items()
    }


def check_means(estimates: Estimates, *, deviating: bool) -> None:
    """Raise `InvalidInput` unless the means that follow from the estimates are finite, and no cost is negative."""
    for count, total in (("calls", "cost"), ("labels", "reward")):
        if (getattr(estimates, total).any(axis=0) & ~getattr(estimates, count).any(axis=0)).any():
            raise InvalidInput(f"estimates.{total} must be 0 for a model whose estimates.{count} are 0, got a sum")
    if not estimates.calls.any():
        return
    with np.errstate(all="ignore"):
        reward, cost_usd = estimates.means()
        spread = estimates.cost_spread_usd()
    if not (np.isfinite(reward).all() and np.isfinite(cost_usd).all() and np.isfinite(spread).all()):
        raise InvalidInput("estimates must give finite means, got NaN or an infinity")
    if not deviating and (cost_usd < 0).any():
        raise InvalidInput(f"estimates must give costs of at least 0, got {cost_usd.min():.6g}")


def check_call_sums(arrays: Arrays, shape: Shape) -> None:
    """Raise `InvalidInput` unless the sums of the calls of conversations fit the contexts and the models."""
    n_contexts, n_models = shape
    known = CallEstimates([Model(str(k)) for k in range(n_models)], n_contexts).sums()
    _check_names("calls.", arrays, known)
    for name, sums in known.items():
        per_context = name.startswith("tokens.")  # one row for all contexts where these change while serving
        rows = arrays[name].shape[-1:] if per_context and arrays[name].shape[-1:] == (1,) else sums.shape[2:]
        check_array(f"calls.{name}", arrays[name], Rule((*sums.shape[:2], *rows) if per_context else sums.shape))


def check_residuals(settings: Mapping[str, Any], arrays: Arrays, shape: Shape, dim: int) -> None:
    """Raise `InvalidInput` unless the estimators of single queries fit the contexts and the models.

    Parameters
    ----------
    settings : mapping
        Those of `QueryResiduals`; null where all that was fitted are costs by length, of earlier versions.
    arrays : mapping of str to ndarray
        Its arrays.
    shape : tuple of int
        Number of contexts and of models.
    dim : int
        Length of an embedding; 0 where the contexts need none.
    """
    if settings["n_models"] != shape[1] or not isinstance(settings["n_models"], int):
        raise InvalidInput(f"finer.n_models must be the number of models, {shape[1]}, got {settings['n_models']!r}")
    rules = _residual_rules(settings["residual"], arrays, shape, dim)
    if any(name.startswith("prices.") for name in arrays):
        n = arrays["prices.price"].size
        rules |= {"prices.price": Rule((n,)), "prices.spend_usd": Rule((n,))}
    _check_names("finer.", arrays, rules)
    for name, rule in rules.items():
        check_array(f"finer.{name}", arrays[name], rule)
    if "prices.price" in arrays and not (arrays["prices.price"].size and (np.diff(arrays["prices.price"]) >= 0).all()):
        raise InvalidInput("finer.prices.price must hold prices that never fall, got others")


def check_array(name: str, array: NDArray[Any], rule: Rule) -> None:
    """Raise `InvalidInput` unless an array follows its rule, with no number beyond `MAX_NUMBER`."""
    if array.dtype.kind not in rule.kinds:
        raise InvalidInput(f"{name} must hold numbers, got {array.dtype}")
    if array.shape != rule.shape:
        raise InvalidInput(f"{name} must have shape {rule.shape}, got {array.shape}")
    with np.errstate(all="ignore"):
        values = array.astype(np.float64)
        good = (values >= rule.least) & (values <= MAX_NUMBER)
    if not good.all():
        bad = values[~good].flat[0].item()
        raise InvalidInput(f"{name} must hold finite numbers from {rule.least:g} to {MAX_NUMBER:g}, got {bad!r}")


def _residual_rules(name: str | None, arrays: Arrays, shape: Shape, dim: int) -> dict[str, Rule]:
    n_contexts, n_models = shape
    if name == Ridge.name:
        width = dim or arrays["residual.weights"].shape[-1]
        _check_length("finer.residual.weights", arrays["residual.weights"])
        return {
            "residual.weights": Rule((n_models, width), -MAX_NUMBER),
            "residual.offset": Rule((n_contexts, n_models), -MAX_NUMBER),
        }
    if name is None:
        return {}
    raise InvalidInput(f"finer.residual must be {Ridge.name!r} or null, got {name!r}")


def _check_length(name: str, rows: NDArray[Any]) -> None:
    """Raise `InvalidInput` if the squared length of a row exceeds what float32 holds, in which distances are taken."""
    if rows.ndim != 2 or rows.dtype.kind not in "fiu":
        raise InvalidInput(f"{name} must be a matrix of numbers, got {rows.dtype} of shape {rows.shape}")
    with np.errstate(all="ignore"):
        squares = np.square(rows, dtype=np.float64).sum(axis=1)
    if not (squares < np.finfo(np.float32).max).all():
        raise InvalidInput(f"{name} must hold rows of finite length, got {squares.max():g} as the square of one")


def _check_names(prefix: str, arrays: Arrays, names: Mapping[str, object] | tuple[str, ...]) -> None:
    for name in names:
        if name not in arrays:
            raise KeyError(prefix + name)
    unknown = sorted(set(arrays) - set(names))
    if unknown:
        raise InvalidInput(f"the arrays of an artifact must be known ones, got {prefix + unknown[0]!r}")


def _check_is(value: object, kind: type, name: str) -> None:
    if not isinstance(value, kind):
        raise InvalidInput(f"{name} must be a JSON {_JSON_NAMES[kind]}, got {value!r:.80}")


_JSON_NAMES = {list: "array", dict: "object", str: "string", bool: "boolean"}
