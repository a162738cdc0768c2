"""Requests by which hard budgets were once broken, each with a group of its own that has little money."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from support.hostile_bodies import HI
from support.hostile_proxy import PATHS, HostileProxy

CHAT, TEXT = "openai", "text-completion-openai"


class Attack(NamedTuple):
    """The provider of a group, and the bodies that are sent to it in turn, with their surface."""

    provider: str
    surface: str
    bodies: tuple[dict[str, Any], ...]


def chat(**body: Any) -> dict[str, Any]:
    return {"messages": HI, **body}


ATTACKS = {
    "limit": Attack(
        CHAT,
        "chat",
        (
            chat(max_tokens=None),
            chat(max_tokens=-1),
            chat(max_tokens="4096"),
            chat(drop_params=True),
            chat(extra_body={"max_tokens": 4_096}),
            chat(),
        ),
    ),
    "answers": Attack(CHAT, "chat", (chat(n="20"), chat(extra_body={"n": 20}), chat(n=3, max_completion_tokens=90))),
    "best-of": Attack(TEXT, "completions", ({"prompt": "hello", "best_of": 20}, {"prompt": "hello", "best_of": "3"})),
    "prompts": Attack(TEXT, "completions", ({"prompt": ["hello"] * 40}, {"prompt": ["hello"] * 3, "max_tokens": 60})),
    "empty": Attack(CHAT, "chat", ({"messages": []},)),
    "embeddings": Attack(CHAT, "embeddings", ({"input": ["word " * 1_000] * 5},)),
    "timeout": Attack(CHAT, "chat", (chat(timeout=0.3),)),
    "retried": Attack(CHAT, "chat", (chat(timeout=0.3, num_retries=3),)),
    "left": Attack(CHAT, "streams", (chat(stream=True, max_tokens=400),)),
}


def attack(proxy: HostileProxy, name: str, calls: int = 30) -> list[int]:
    """Send the bodies of an attack in turn until four calls in a row are not served; return the HTTP statuses."""
    group, (_, surface, bodies) = f"tight-{name}", ATTACKS[name]
    path = PATHS.get(surface, "/v1/embeddings")
    codes: list[int] = []
    for i in range(calls):
        body = {"model": group, **bodies[i % len(bodies)]}
        codes.append(leave(proxy, path, body) if name == "left" else proxy.post(path, json.dumps(body)))
        if len(codes) >= 2 * len(bodies) and 200 not in codes[-max(4, len(bodies)) :]:
            break
    return codes


def leave(proxy: HostileProxy, path: str, body: dict[str, Any]) -> int:
    """Read one piece of a stream and leave."""
    headers = {"Authorization": "Bearer sk-user-a"}
    with proxy.http.stream("POST", f"{proxy.url}{path}", json=body, headers=headers) as answer:
        if answer.status_code == 200:
            next(answer.iter_raw())
        return answer.status_code
