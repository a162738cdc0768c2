"""The batch service of one deployment, called through LiteLLM."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import litellm
from litellm.types.router import CredentialLiteLLMParams

from wiserouter_litellm.batches.allocation import wire_model
from wiserouter_litellm.deployments.registry import Deployment

FILE_KEY = "wiserouter"
"""The key of a batch's metadata that tells which file it was made of."""

_CREDENTIALS = frozenset(
    {*CredentialLiteLLMParams.model_fields, "organization", "extra_headers", "litellm_credential_name"}
)
_PAGE = 100


class ProviderBatches:
    """The batch service of a deployment; each method raises as LiteLLM does.

    Parameters
    ----------
    deployment : mapping
        The deployment, as LiteLLM's router has it.
    """

    def __init__(self, deployment: Deployment) -> None:
        params = deployment["litellm_params"]
        own = {name: value for name, value in params.items() if name in _CREDENTIALS and value is not None}
        self._terms: dict[str, Any] = {**own, "custom_llm_provider": wire_model(deployment)[1]}

    def upload(self, path: Path) -> str:
        """Upload a file, and return its id."""
        with path.open("rb") as content:
            file = litellm.create_file(file=(path.name, content), purpose="batch", **self._terms)
        return str(_fields(file)["id"])

    def create(self, file_id: str, mark: str, window: Literal["24h"]) -> Mapping[str, Any]:
        """Create a batch, once: a request that fails is not repeated."""
        return _fields(
            litellm.create_batch(
                completion_window=window,
                endpoint="/v1/chat/completions",
                input_file_id=file_id,
                metadata={FILE_KEY: mark},
                max_retries=0,
                **self._terms,
            )
        )

    def find(self, mark: str) -> Mapping[str, Any] | None:
        """Return the batch of a mark, or None."""
        after: str | None = None
        while True:
            page = _fields(litellm.list_batches(after=after, limit=_PAGE, **self._terms))
            rows = [_fields(row) for row in page.get("data") or ()]
            found = next((row for row in rows if (row.get("metadata") or {}).get(FILE_KEY) == mark), None)
            if found is not None or not rows or not page.get("has_more"):
                return found
            after = str(rows[-1]["id"])

    def batch(self, batch_id: str) -> Mapping[str, Any]:
        """Return a batch."""
        return _fields(litellm.retrieve_batch(batch_id=batch_id, **self._terms))

    def cancel(self, batch_id: str) -> None:
        """Ask for the end of a batch."""
        litellm.cancel_batch(batch_id=batch_id, **self._terms)

    def download(self, file_id: str, path: Path) -> None:
        """Write the content of a file, whole or not at all."""
        content: Any = litellm.file_content(file_id=file_id, **self._terms)
        unfinished = path.with_name(f"{path.name}.unfinished")
        unfinished.write_bytes(content.content)
        unfinished.replace(path)


def _fields(answer: Any) -> Mapping[str, Any]:
    return answer if isinstance(answer, Mapping) else answer.model_dump()
