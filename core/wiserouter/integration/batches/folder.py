"""The folder of a batch: its terms, its requests, and for each round the requests as decided and the files to send.

What is begun is told from what is complete by names: a round has its list `round-1.jsonl` once it is decided, and its
folder `round-1` once its costs are reserved. Either appears at once, by a renaming.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wiserouter.errors import InvalidInput
from wiserouter.integration.batches.requests import BatchRequest, json_line, json_lines
from wiserouter.pricing.prices import Price
from wiserouter.router import WiseRouter
from wiserouter.stores import Store, open_store
from wiserouter.types import Decision

if TYPE_CHECKING:
    from collections.abc import Iterator

RESERVATION_TTL_S = 30 * 86_400.0
"""How long a request may be without a result: Anthropic keeps results for 29 days."""

DECISION_TTL_S = 365 * 86_400.0
"""How long a request can be scored."""

_ERRORS, _ANSWERED, _REQUESTS, _TERMS, _ROUTER, _LEDGER = (
    *("errors.jsonl", "answered.jsonl", "requests.jsonl", "batch.json"),
    *("router.wise", "ledger.db"),
)


@dataclass(frozen=True)
class BatchTerms:
    """The terms of a batch.

    Attributes
    ----------
    budget_usd : float, USD
        What all rounds may cost together.
    prices : mapping of str to Price
        The price of each model in its batch service.
    factors : mapping of str to float
        Costs in the batch over those of plain calls, by model.
    providers : mapping of str to str
        The provider of each model.
    max_tokens : int
        The limit of the output where a request sets none and the provider asks for one.
    models : sequence of str, optional
        The models that may take requests; all by default.
    capacities : mapping of str to int
        The most requests that a model takes.
    confidence : float, optional
        The probability with which the first round is to stay within the budget.
    hard : bool
        Whether the worst cases of all requests have to fit into the budget.
    """

    budget_usd: float
    prices: Mapping[str, Price]
    factors: Mapping[str, float]
    providers: Mapping[str, str]
    max_tokens: int = 4_096
    models: Sequence[str] | None = None
    capacities: Mapping[str, int] = field(default_factory=dict)
    confidence: float | None = None
    hard: bool = False


class Sent(NamedTuple):
    """One request as decided in a round."""

    round: int
    id: str
    request: int
    decision: Decision


class BatchFolder:
    """The folder of a batch.

    Parameters
    ----------
    path : Path
        The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, router: WiseRouter, requests: Sequence[BatchRequest], terms: BatchTerms) -> BatchFolder:
        """Write the folder of a batch that has no round yet; one that was stopped before its first is written again."""
        folder = cls(path)
        if folder.rounds:
            raise InvalidInput(f"{path} is the folder of a batch already: choose another one", value=path)
        path.mkdir(parents=True, exist_ok=True)
        router.save(path / _ROUTER)
        _write_lines(path / _REQUESTS, (asdict(one) for one in requests))
        _write(path / _TERMS, json.dumps(asdict(terms), indent=1).encode())
        return folder

    @classmethod
    def known(cls, path: Path) -> BatchFolder:
        """Return a folder that holds a batch; raise `InvalidInput` for another one."""
        folder = cls(path)
        if not folder.exists:
            raise InvalidInput(f"{path} is no folder of a batch: make one with wiserouter batch route", value=path)
        return folder

    @property
    def exists(self) -> bool:
        """Whether the folder holds a batch."""
        return (self.path / _TERMS).exists()

    @property
    def terms(self) -> BatchTerms:
        """The terms of the batch."""
        fields = json.loads((self.path / _TERMS).read_text(encoding="utf-8"))
        return BatchTerms(**{**fields, "prices": {name: Price(**one) for name, one in fields["prices"].items()}})

    def requests(self) -> list[BatchRequest]:
        """Return the requests of the batch, in order."""
        return [BatchRequest(**line) for _, line in json_lines(self.path / _REQUESTS)]

    @property
    def rounds(self) -> int:
        """The number of rounds that are decided, complete or not."""
        found = 0
        while self._list(found + 1).exists():
            found += 1
        return found

    def is_complete(self, number: int) -> bool:
        """Return True if the costs of a round are reserved, so that its files may be sent."""
        return self.files(number).is_dir()

    def files(self, number: int) -> Path:
        """Return the folder of the files of a round."""
        return self.path / f"round-{number}"

    def begin(self, number: int) -> Path:
        """Return an empty folder for the files of a round that is not complete."""
        unfinished = self.path / f"round-{number}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        return unfinished

    def decide(self, number: int, sent: Iterable[Sent]) -> None:
        """Write the list of a round, whose files are written."""
        lines = (
            {"custom_id": one.decision.id, "id": one.id, "request": one.request, **_figures(one.decision)}
            for one in sent
        )
        _write_lines(self._list(number), lines)

    def complete(self, number: int) -> None:
        """Mark a round as complete."""
        (self.path / f"round-{number}.unfinished").replace(self.files(number))

    def sent(self, number: int | None = None) -> list[Sent]:
        """Return the requests of a round, or of all rounds that are complete."""
        numbers = filter(self.is_complete, range(1, self.rounds + 1)) if number is None else (number,)
        return [_sent(n, line) for n in numbers for _, line in json_lines(self._list(n))]

    def add_error(self, custom_id: str, outcome: str, error: str) -> None:
        """Keep why a request failed."""
        _add_line(self.path / _ERRORS, {"custom_id": custom_id, "outcome": outcome, "error": error})

    def errors(self) -> dict[str, tuple[str, str]]:
        """Return outcome and error of each request that failed, by custom id."""
        path = self.path / _ERRORS
        found = json_lines(path) if path.exists() else ()
        return {line["custom_id"]: (line["outcome"], line["error"]) for _, line in found}

    def add_answered(self, custom_id: str) -> None:
        """Keep that a request was answered, of which the ledger knows no cost."""
        _add_line(self.path / _ANSWERED, {"custom_id": custom_id})

    def answered(self) -> set[str]:
        """Return the custom ids of the requests that were answered without a usage."""
        path = self.path / _ANSWERED
        return {line["custom_id"] for _, line in json_lines(path)} if path.exists() else set()

    @contextmanager
    def opened(self) -> Iterator[tuple[WiseRouter, Store]]:
        """Open the router of the batch, and its store."""
        store = open_store(
            f"sqlite:///{self.path / _LEDGER}?synchronous=normal",
            reservation_ttl_s=RESERVATION_TTL_S,
            decision_ttl_s=DECISION_TTL_S,
        )
        router = WiseRouter.load(self.path / _ROUTER, store=store)
        try:
            store.refresh()  # what earlier commands have learned
            yield router, store
        finally:
            router.close()

    def _list(self, number: int) -> Path:
        return self.path / f"round-{number}.jsonl"


def _figures(decision: Decision) -> dict[str, Any]:
    figures = decision._asdict()
    names = ("model", "context", "rate_usd", "shadow_price", "expected_cost_usd", "expected_reward")
    return {name: figures[name] for name in (*names, "reserved_usd", "decided_at")}


def _sent(number: int, line: Mapping[str, Any]) -> Sent:
    cost = line["expected_cost_usd"]
    decision = Decision(
        *(line["custom_id"], line["model"], line["context"], 1.0, line["rate_usd"], line["shadow_price"]),
        *(cost, line["expected_reward"], line.get("reserved_usd", cost), "default", line["decided_at"]),
    )
    return Sent(number, line["id"], line["request"], decision)


def _write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    _write(path, b"".join(json_line(line) + b"\n" for line in lines))


def _add_line(path: Path, line: Mapping[str, Any]) -> None:
    with path.open("ab", buffering=0) as lines:  # one write, also where several threads add lines
        lines.write(json.dumps(line).encode() + b"\n")


def _write(path: Path, content: bytes) -> None:
    """Write a file that appears whole or not at all."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.write_bytes(content)
    unfinished.replace(path)
