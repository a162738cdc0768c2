"""Any LangChain `Embeddings` as the router's encoder, with a cache; its cost is paid from the router's budget."""

from __future__ import annotations

from langchain_core.embeddings import Embeddings

from wiserouter.integration import Embedded, RemoteEncoder, count_tokens


class EmbeddingsEncoder(RemoteEncoder):
    """An encoder that calls a LangChain embedding model, synchronously and asynchronously.

    Parameters
    ----------
    embeddings : Embeddings
        The model.
    token_usd : float, default 0
        Price in USD per token; tokens are counted here, since LangChain's embeddings report none.
    cache_size : int, default 10,000
        Vectors kept, each under a hash of its text.

    Examples
    --------
    >>> from langchain_core.embeddings import DeterministicFakeEmbedding
    >>> EmbeddingsEncoder(DeterministicFakeEmbedding(size=8)).encode("hello").shape
    (8,)
    """

    def __init__(self, embeddings: Embeddings, *, token_usd: float = 0.0, cache_size: int = 10_000) -> None:
        super().__init__(
            type(embeddings).__name__, self._embed, self._aembed, token_usd=token_usd, cache_size=cache_size
        )
        self._embeddings = embeddings

    def _embed(self, texts: list[str]) -> Embedded:
        return Embedded(self._embeddings.embed_documents(texts), _tokens(texts))

    async def _aembed(self, texts: list[str]) -> Embedded:
        return Embedded(await self._embeddings.aembed_documents(texts), _tokens(texts))


def _tokens(texts: list[str]) -> int:
    return sum(count_tokens(text).tokens for text in texts)
