"""A stand-in for the package `semantic_router` below LiteLLM's semantic auto router: utterances and cosines."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from pydantic import BaseModel

THRESHOLD = 0.5


class Route(NamedTuple):
    name: str
    description: str | None = None
    utterances: Sequence[str] = ()
    score_threshold: float | None = None


class RouteChoice(NamedTuple):
    name: str | None = None


class DenseEncoder(BaseModel):
    name: str
    score_threshold: float | None = None


class AsymmetricDenseMixin:
    """Marks an encoder that embeds questions and utterances apart."""


class SemanticRouter:
    """Chooses the route whose utterance is nearest; the encoder is asked for all utterances at once."""

    def __init__(self, routes: list[Route], encoder: Any, auto_sync: str) -> None:
        pairs = [(route.name, text) for route in routes for text in route.utterances]
        self.names = [name for name, _ in pairs]
        self.vectors = np.array(encoder.encode_documents([text for _, text in pairs]))

    async def acall(self, vector: list[float]) -> RouteChoice:
        lengths = np.linalg.norm(self.vectors, axis=1) * np.linalg.norm(vector)
        cosines = self.vectors @ np.array(vector) / lengths
        best = int(cosines.argmax())
        return RouteChoice(self.names[best] if cosines[best] >= THRESHOLD else None)


def stand_in(patch: pytest.MonkeyPatch) -> None:
    """Let LiteLLM import this in place of the package, which the tests do not install."""
    parts = {
        "semantic_router": {},
        "semantic_router.routers": {"SemanticRouter": SemanticRouter},
        "semantic_router.routers.base": {"Route": Route},
        "semantic_router.schema": {"RouteChoice": RouteChoice},
        "semantic_router.encoders": {"DenseEncoder": DenseEncoder},
        "semantic_router.encoders.base": {"AsymmetricDenseMixin": AsymmetricDenseMixin},
    }
    for name, members in parts.items():
        module = ModuleType(name)
        vars(module).update(members)
        patch.setitem(sys.modules, name, module)
    patch.delitem(sys.modules, "litellm.router_strategy.auto_router.litellm_encoder", raising=False)
