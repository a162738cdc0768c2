"""A runnable that answers in a schema, by the chosen model's own method."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from langchain_core.language_models import LanguageModelInput
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.utils import ConfigurableFieldSpec

from wiserouter_langchain.requests.operations import OPERATIONS


class StructuredWiseRouter(Runnable[LanguageModelInput, Any]):
    """A router whose answers follow a schema.

    Parameters
    ----------
    router : Runnable
        The router, which chooses the model.
    operations : tuple
        The queued operations, which are replayed on the chosen model.
    """

    def __init__(self, router: Runnable[LanguageModelInput, Any], operations: tuple[Any, ...]) -> None:
        self.router, self._operations = router, operations

    @property
    def config_specs(self) -> list[ConfigurableFieldSpec]:
        """The keys that `config["configurable"]` may hold."""
        return self.router.config_specs

    def get_input_schema(self, config: RunnableConfig | None = None) -> Any:
        """Return the schema of the router's input, by which a server reads messages as what they are."""
        return self.router.get_input_schema(config)

    def invoke(self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Return the parsed answer."""
        return self.router.invoke(input, config, **{OPERATIONS: self._operations, **kwargs})

    async def ainvoke(self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Return the parsed answer."""
        return await self.router.ainvoke(input, config, **{OPERATIONS: self._operations, **kwargs})

    def stream(self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:
        """Yield the parsed answer as it grows."""
        yield from self.router.stream(input, config, **{OPERATIONS: self._operations, **kwargs})

    async def astream(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """Yield the parsed answer as it grows."""
        async for chunk in self.router.astream(input, config, **{OPERATIONS: self._operations, **kwargs}):
            yield chunk
