"""LiteLLM's own tables in a real Postgres, made by its migrations, and rows as its proxy writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support.postgres import postgres_server, psycopg

START = datetime(2026, 11, 1, tzinfo=UTC)


@contextmanager
def spend_database() -> Iterator[str]:
    """Run a server with LiteLLM's tables, and yield its URL."""
    extras = pytest.importorskip("litellm_proxy_extras", reason="litellm-proxy-extras has the migrations")
    migrations = sorted((Path(extras.__file__).parent / "migrations").glob("*/migration.sql"))
    with postgres_server() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            for migration in migrations:
                statements = migration.read_text()
                if "CONCURRENTLY" not in statements:  # indexes only, which no transaction may make
                    connection.execute(statements.encode())
        yield url


def row(n: int, **changes: Any) -> dict[str, Any]:
    """Return the n-th row of the spend log."""
    start = START + timedelta(seconds=n)
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": f"question {n}"}]
    return {
        "request_id": f"r-{n:07}",
        "litellm_call_id": f"c-{n}",
        "call_type": "acompletion",
        "api_key": "hash",
        "model": "openai/small" if n % 3 else "openai/large",
        "model_group": "wise" if n % 2 else "other",
        "spend": 0.001 * (n % 7),
        "prompt_tokens": 100 + n % 50,
        "completion_tokens": 20,
        "total_tokens": 120 + n % 50,
        "startTime": start.replace(tzinfo=None),
        "endTime": (start + timedelta(seconds=1.5)).replace(tzinfo=None),
        "session_id": f"s-{n // 10}",
        "status": "success",
        "cache_hit": "False",
        "messages": "{}",
        "metadata": json.dumps({"usage_object": {"prompt_tokens_details": {"cached_tokens": 40}}}),
        "proxy_server_request": json.dumps({"model": "wise", "messages": messages, "metadata": {"key": "secret"}}),
        **changes,
    }


def fill(url: str, rows: Sequence[dict[str, Any]]) -> None:
    """Replace the rows of the spend log, and drop all verdicts."""
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute('TRUNCATE "LiteLLM_SpendLogs"; TRUNCATE "LiteLLM_ShadowEvalAttempt"')
        columns = ", ".join(f'"{name}"' for name in rows[0])
        copying = f'COPY "LiteLLM_SpendLogs" ({columns}, updated_at) FROM STDIN'
        with cursor.copy(copying.encode()) as copy:
            for one in rows:
                copy.write_row([*one.values(), START.replace(tzinfo=None)])
