"""Ranking by meaning: similarities between a query and tools, from vectors that the user's function returns.

The vectors of the tools are kept. If the function fails, is too slow or returns something else, the search ranks by
words alone and a warning says why.
"""

import asyncio
import inspect
import math
import sys
import warnings
from array import array
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias

from toolwire.runtime.search.index import IndexedTool
from toolwire.runtime.thread_call import call_in_thread

Embed: TypeAlias = Callable[[list[str]], Sequence[Sequence[float]] | Awaitable[Sequence[Sequence[float]]]]
"""A function, or a coroutine function, that returns a vector for each text."""
_Vector: TypeAlias = "array[float]"

_BATCH_SIZE = 128
_MAX_DIMENSIONS = 4_096
_MAX_TEXT_LENGTH = 2_000
_MAX_VECTORS = 20_000
_TIMEOUT_SECONDS = 30.0


class ToolEmbeddings:
    """Computes how similar tools are to a query in meaning."""

    def __init__(self, embed: Embed, timeout: float = _TIMEOUT_SECONDS) -> None:
        """Use `embed` for the vectors; a search gives up on them after `timeout` seconds."""
        self._embed = embed
        self._timeout = timeout
        self._vectors: dict[str, _Vector] = {}

    async def similarities(self, query: str, tools: Sequence[IndexedTool]) -> list[float] | None:
        """Return the cosine of the query and each tool; None if there are no usable vectors, after a warning."""
        try:
            async with asyncio.timeout(self._timeout):
                return await self._compute(query[:_MAX_TEXT_LENGTH], [_text(tool) for tool in tools])
        except Exception as error:  # noqa: BLE001 - the function is the user's
            reason = (
                "timed out" if isinstance(error, TimeoutError) else f"failed: {type(error).__name__}: {error!s:.200}"
            )
            warnings.warn(f"tool search ranks by words only: embed {reason}", RuntimeWarning, stacklevel=2)
            return None

    async def _compute(self, query: str, texts: list[str]) -> list[float]:
        """Return the cosine of the query and each text."""
        if len(texts) > _MAX_VECTORS:
            raise ValueError(f"there are {len(texts):,} tools, more than {_MAX_VECTORS:,}")
        vectors = self._vectors
        missing = list(dict.fromkeys(text for text in texts if text not in vectors))
        if len(vectors) + len(missing) > _MAX_VECTORS:
            vectors = self._vectors = {}
            missing = list(dict.fromkeys(texts))
        for start in range(0, len(missing), _BATCH_SIZE):
            batch = missing[start : start + _BATCH_SIZE]
            vectors.update(zip(batch, await self._embed_texts(batch), strict=True))
        (direction,) = await self._embed_texts([query])
        return await asyncio.to_thread(_dot_products, direction, [vectors[text] for text in texts])

    async def _embed_texts(self, texts: list[str]) -> list[_Vector]:
        """Call the user's function, outside the event loop unless it is asynchronous, and check what it returns."""
        if inspect.iscoroutinefunction(self._embed):
            result = await self._embed(texts)
        else:
            result = await call_in_thread(partial(self._embed, texts))
            if inspect.isawaitable(result):
                result = await result
        vectors = [_unit_vector(vector) for vector in result]
        if len(vectors) != len(texts):
            raise ValueError(f"it returned {len(vectors)} vectors for {len(texts)} texts")
        return vectors


def _text(tool: IndexedTool) -> str:
    """Return the text of a tool that is embedded."""
    return f"{tool.name}: {tool.description}"[:_MAX_TEXT_LENGTH]


def _unit_vector(values: Sequence[float]) -> _Vector:
    """Return the vector with length 1; raise `ValueError` if it has none."""
    if not 0 < len(values) <= _MAX_DIMENSIONS:
        raise ValueError(f"it returned a vector of {len(values):,} numbers: return 1 to {_MAX_DIMENSIONS:,}")
    length = math.hypot(*values)
    if not math.isfinite(length) or length == 0:
        raise ValueError("it returned a vector that is zero or not finite")
    return array("d", [value / length for value in values])


def _dot_products(query: _Vector, vectors: Sequence[_Vector]) -> list[float]:
    """Return the dot product of the query and each vector."""
    return [_dot_product(query, vector) for vector in vectors]


if sys.version_info >= (3, 12):

    def _dot_product(one: _Vector, other: _Vector) -> float:
        """Return the dot product of two vectors; raise `ValueError` if their dimensions differ."""
        return math.sumprod(one, other)

else:

    def _dot_product(one: _Vector, other: _Vector) -> float:
        """Return the dot product of two vectors; raise `ValueError` if their dimensions differ."""
        return sum(a * b for a, b in zip(one, other, strict=True))
