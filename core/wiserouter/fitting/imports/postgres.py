"""Rows of LiteLLM's tables in Postgres, page by page in the order of their time, so that an import can go on later."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from wiserouter.errors import InvalidInput, MissingExtra
from wiserouter.fitting.imports.calls import Recorded

if TYPE_CHECKING:
    import psycopg
    from psycopg.sql import Composed

PAGE_ROWS = 5_000
"""Rows that are read at once."""

SPEND, VERDICTS = "LiteLLM_SpendLogs", "LiteLLM_ShadowEvalAttempt"

_SPEND_COLUMNS = (
    *("request_id", "litellm_call_id", "call_type", "model", "model_group", "spend", "prompt_tokens"),
    *("completion_tokens", "startTime", "endTime", "session_id", "cache_hit", "status"),
)
_JSON_COLUMNS = {
    "messages": "messages",
    "proxy_server_request": """jsonb_build_object(
        'messages', proxy_server_request->'messages', 'input', proxy_server_request->'input',
        'prompt', proxy_server_request->'prompt', 'contents', proxy_server_request->'contents',
        'reasoning_effort', proxy_server_request->'reasoning_effort', 'reasoning', proxy_server_request->'reasoning',
        'body', proxy_server_request->'body')""",
    "metadata": "jsonb_build_object('usage_object', metadata->'usage_object', 'status', metadata->'status')",
}
"""What is read of each column of objects: the rest of a request may be large."""


class SpendTables:
    """LiteLLM's tables of spend and of verdicts in one database.

    Parameters
    ----------
    url : str
        `postgresql://user:password@host/database`.

    Raises
    ------
    MissingExtra
        Without psycopg.
    InvalidInput
        If the database cannot be reached, or has no table of spend.
    """

    def __init__(self, url: str) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise MissingExtra("an import from Postgres", "psycopg", "postgres") from error
        self._name = url.rpartition("@")[2].partition("?")[0]
        try:
            self._connection = psycopg.connect(url, connect_timeout=10)
        except psycopg.Error as error:
            raise InvalidInput(f"the database {self._name} must answer, got {_one_line(error)}") from error
        self._columns = self._columns_of(SPEND)
        if not self._columns:
            self.close()
            raise InvalidInput(f"the database {self._name} has no table {SPEND}: is it the one of the proxy?")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def pages(self, since_s: float | None, after: list[Any] | None) -> Iterator[tuple[list[Recorded], list[Any]]]:
        """Yield pages of calls, each with the place after it, from a place that was yielded before."""
        from psycopg.sql import SQL, Identifier

        read = [SQL("{}").format(Identifier(name)) for name in _SPEND_COLUMNS if name in self._columns]
        read += [
            SQL("{} AS {}").format(SQL(part), Identifier(name))
            for name, part in _JSON_COLUMNS.items()
            if name in self._columns
        ]
        query = SQL(
            'SELECT {} FROM {} WHERE ("startTime", "request_id") > (%s, %s) ORDER BY "startTime", "request_id" LIMIT {}'
        ).format(SQL(", ").join(read), Identifier(SPEND), PAGE_ROWS)
        place = after or [0.0 if since_s is None else since_s, ""]
        while rows := self._rows(query, (_utc(place[0]), place[1])):
            place = [rows[-1]["startTime"].replace(tzinfo=UTC).timestamp(), rows[-1]["request_id"]]
            yield rows, place

    def verdicts(self) -> Iterator[Recorded]:
        """Yield the verdicts of LiteLLM's shadow evaluation; none where there is no such table."""
        from psycopg.sql import SQL, Identifier

        if self._columns_of(VERDICTS):
            query = SQL("SELECT request_id, outcome FROM {} ORDER BY created_at").format(Identifier(VERDICTS))
            yield from self._rows(query, ())

    def _rows(self, query: Composed, values: tuple[Any, ...]) -> list[Recorded]:
        from psycopg import Error
        from psycopg.rows import dict_row

        try:
            with self._connection.cursor(row_factory=dict_row) as cursor:
                cursor.execute(query, values)
                return list(cursor.fetchall())
        except Error as error:
            rule = f"the database {self._name} must answer, got {_one_line(error)}"
            raise InvalidInput(f"{rule}: run the same command again, it goes on after its last part") from error

    def _columns_of(self, table: str) -> set[str]:
        with self._connection.cursor() as cursor:
            cursor.execute("SELECT column_name FROM information_schema.columns WHERE table_name = %s", (table,))
            return {str(row[0]) for row in cursor.fetchall()}


def _utc(seconds: float) -> datetime:
    """Return a time as LiteLLM keeps it: of UTC, without a zone."""
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)


def _one_line(error: psycopg.Error) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
