"""Requests that bring a router of their own (`user_config`): refused where it has a model of the name of a group.

LiteLLM makes a router of it for the one request, with deployments, ids and prices as the client states them. They would
join the group, in place of its own where the ids are the same, and be reserved and charged at those prices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from litellm.exceptions import BadRequestError

from wiserouter_litellm.requests.json_objects import fields_of


def refuse_client_router(groups: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    """Refuse a request to the proxy whose `user_config` has a model of the name of one of our groups.

    Raises
    ------
    litellm.BadRequestError
        Naming the parameter.

    Examples
    --------
    >>> refuse_client_router({"wise": None}, {"model": "wise"})
    >>> refuse_client_router({"wise": None}, {"model": "own", "user_config": {"model_list": [{"model_name": "own"}]}})
    """
    if data.get("user_config") is None:
        return
    named = {data.get("model"), *_names_in(fields_of(data["user_config"]))}
    group = next((name for name in groups if name in named and not groups[name].observes), None)
    if group is not None:
        raise BadRequestError(
            f"group {group!r}: user_config must have no model of this name: its deployments and prices would take the "
            "place of those of the group; give the model another name",
            model=group,
            llm_provider="wiserouter",
        )


def _names_in(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the models and the routing groups of a router."""
    for key, name in (("model_list", "model_name"), ("routing_groups", "group_name")):
        rows = config.get(key)
        for row in rows if isinstance(rows, list) else ():
            yield str(fields_of(row).get(name))
