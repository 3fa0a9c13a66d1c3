"""Limits of a run."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")


class RunLimits(Struct, frozen=True, kw_only=True):
    """Limits of one run; None means unlimited."""

    turns: int = 50
    """Model turns."""
    seconds: float | None = 1800.0
    """Total time."""
    tokens: int | None = None
    """Input and output tokens, including those of sub-agents; estimated if the provider reports none."""
    repeats: int = 3
    """Repetitions of the same calls, or of a cycle of turns, before the run stops."""
    parallel: int = 8
    """Concurrent tool calls."""
    history: int | None = None
    """Approximate tokens of conversation sent to the model; the oldest turns beyond it are omitted."""


class RunTimeout(Exception):
    """The run's time limit expired while waiting."""


class _StartedAwait(Generic[T]):
    """The rest of an `await` that is suspended at its first future."""

    def __init__(self, future: Any, rest: Generator[Any, Any, T]) -> None:
        self._future = future
        self._rest = rest

    def __await__(self) -> Generator[Any, Any, T]:
        future = self._future
        while True:
            try:
                yield future
            except BaseException as error:  # noqa: BLE001 - the awaited coroutine handles cancellation, too
                resume = partial(self._rest.throw, error)
            else:
                resume = partial(next, self._rest)
            try:
                future = resume()
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]


async def with_deadline(remaining: Callable[[], float | None], items: AsyncIterator[T]) -> AsyncIterator[T]:
    """Yield the items until the remaining time is over.

    The timeout covers one item at a time, because the consumer may continue in another task. Items that are ready need
    no timeout.

    Raises `RunTimeout` if the time expired while waiting for an item.
    """
    try:
        while True:
            try:
                rest: Any = items.__anext__().__await__()
                future = next(rest)
            except StopIteration as ready:
                yield ready.value
                continue
            except StopAsyncIteration:
                return
            try:
                async with asyncio.timeout(remaining()) as timeout:
                    item = await _StartedAwait[T](future, rest)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if timeout.expired():
                    raise RunTimeout from None
                raise
            yield item
    finally:
        if isinstance(items, AsyncGenerator):
            await items.aclose()
