"""The routes of files and batches that are ours, behind the proxy's own authentication, in OpenAI's shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, File, UploadFile
from fastapi.responses import FileResponse
from litellm.exceptions import BadRequestError, PermissionDeniedError, RateLimitError
from litellm.proxy._types import LitellmUserRoles, ProxyException, UserAPIKeyAuth
from litellm.proxy.auth.user_api_key_auth import user_api_key_auth
from litellm.proxy.openai_files_endpoints.common_utils import authorize_model_for_key
from pydantic import BaseModel, Field

from wiserouter.errors import BudgetError, InvalidInput, StoreError, WiseRouterError
from wiserouter.integration import offload
from wiserouter.integration.batches.requests import CHAT_URL
from wiserouter_litellm.batches.group_batches import GroupBatches
from wiserouter_litellm.batches.kept_files import UnknownBatch
from wiserouter_litellm.conversations.conversation_ids import tenant_of
from wiserouter_litellm.conversations.feedback_keys import feedback_key
from wiserouter_litellm.errors import refusal_text

Caller = Annotated[UserAPIKeyAuth, Depends(user_api_key_auth)]


class BatchOrder(BaseModel):
    """The body that creates a batch; parameters of other services are ignored, as LiteLLM does."""

    input_file_id: str
    endpoint: str
    completion_window: str = "24h"
    metadata: dict[str, str] | None = Field(None, max_length=16)


def routes_of(batches: Callable[[], GroupBatches], prefix: str) -> APIRouter:
    """Return the routes over the batches of the current configuration, below a prefix."""
    router = APIRouter(prefix=prefix)
    _add_files(router, batches)
    _add_batches(router, batches)
    return router


def _add_files(router: APIRouter, batches: Callable[[], GroupBatches]) -> None:
    """Add the routes of files."""

    @router.post("/files")
    async def upload(caller: Caller, file: Annotated[UploadFile, File()]) -> dict[str, Any]:
        """Keep a batch file."""
        with _http_errors():
            kept = batches().upload
            return (await offload(lambda: kept(file.file, _owner(caller), file.filename or "batch.jsonl"))).shown()

    @router.get("/files/{file_id}")
    def describe(caller: Caller, file_id: str) -> dict[str, Any]:
        """Return the description of a file."""
        with _http_errors():
            return batches().files.find(file_id, _asking(caller)).shown()

    @router.delete("/files/{file_id}")
    def delete(caller: Caller, file_id: str) -> dict[str, Any]:
        """Delete a file."""
        with _http_errors():
            files = batches().files
            files.delete(files.find(file_id, _asking(caller)).id)
            return {"id": file_id, "object": "file", "deleted": True}

    @router.get("/files/{file_id}/content")
    def content(caller: Caller, file_id: str) -> FileResponse:
        """Return a file."""
        with _http_errors():
            files = batches().files
            kept = files.find(file_id, _asking(caller))
            return FileResponse(files.path(kept.id), media_type="application/octet-stream", filename=kept.filename)


def _add_batches(router: APIRouter, batches: Callable[[], GroupBatches]) -> None:
    """Add the routes of batches."""

    @router.post("/batches")
    async def create(caller: Caller, body: BatchOrder) -> dict[str, Any]:
        """Create a batch of an uploaded file."""
        with _http_errors():
            ours, owner = batches(), _owner(caller)
            if body.endpoint != CHAT_URL or body.completion_window != "24h":
                raise InvalidInput(
                    f"a batch of a routed group must be of {CHAT_URL}, within 24h, got {body.endpoint!r:.60}"
                )
            group = await offload(lambda: ours.group_of(body.input_file_id, owner))
            await authorize_model_for_key(group, _proxy().llm_router, caller)
            _check_unguarded(caller)
            token = {**(body.metadata or {}), "user_api_key_auth": caller}
            batch = await offload(
                lambda: ours.create(body.input_file_id, owner, caller.api_key, body.metadata or {}, token)
            )
            return batch.shown()

    @router.get("/batches/{batch_id}")
    def retrieve(caller: Caller, batch_id: str) -> dict[str, Any]:
        """Return a batch, after a look at its jobs."""
        with _http_errors():
            ours = batches()
            ours.batches.find(batch_id, _asking(caller))
            ours.progress.advance(batch_id)
            return ours.batches.find(batch_id, _asking(caller)).shown()

    @router.post("/batches/{batch_id}/cancel")
    def cancel(caller: Caller, batch_id: str) -> dict[str, Any]:
        """Cancel a batch."""
        with _http_errors():
            ours = batches()
            ours.batches.find(batch_id, _asking(caller))
            ours.progress.cancel(batch_id)
            return ours.batches.find(batch_id, _asking(caller)).shown()


def _owner(caller: UserAPIKeyAuth) -> str:
    """Return a digest of the key of a caller, or of its user and team, which reveals neither."""
    names = {"user_api_key_hash": caller.api_key, "user_api_key_user_id": caller.user_id}
    return feedback_key("batches", tenant_of({**names, "user_api_key_team_id": caller.team_id}))


def _asking(caller: UserAPIKeyAuth) -> str | None:
    """Return whose files and batches a caller may see; None for those of all keys."""
    return None if caller.user_role == LitellmUserRoles.PROXY_ADMIN else _owner(caller)


def _check_unguarded(caller: UserAPIKeyAuth) -> None:
    """Refuse a batch where guardrails would have to read it: these routes do not run them."""
    logging = _proxy().proxy_logging_obj
    metadata = {**(caller.metadata or {}), **(caller.team_metadata or {})}
    if logging.has_pre_call_guardrails(metadata):
        raise InvalidInput("batches of a routed group are not read by guardrails, and this key has some: send calls")


def _proxy() -> Any:
    from litellm.proxy import proxy_server  # loaded, since it mounts these routes

    return proxy_server


@contextmanager
def _http_errors() -> Iterator[None]:
    """Translate errors into the ones that LiteLLM's clients know."""
    try:
        yield
    except Exception as error:
        translated = _translated(error)
        if translated is None:
            raise
        raise translated from error


def _translated(error: Exception) -> ProxyException | None:
    """Return an error as clients get it; None for a fault, and for one that is in that shape already."""
    if isinstance(error, UnknownBatch):
        return _refused(str(error), 404)
    if isinstance(error, BudgetError):
        return _refused(refusal_text(error), 429, "budget_exceeded")
    if isinstance(error, StoreError):
        return _refused("the store of the budget cannot be reached", 503, "service_unavailable")
    if isinstance(error, WiseRouterError):
        return _refused(str(error), 400)
    if isinstance(error, (BadRequestError, RateLimitError, PermissionDeniedError)):
        return _refused(error.message, error.status_code, getattr(error, "type", None))
    return None


def _refused(message: str, status: int, kind: str | None = None) -> ProxyException:
    return ProxyException(message=message, type=kind or "invalid_request_error", param=None, code=status)
