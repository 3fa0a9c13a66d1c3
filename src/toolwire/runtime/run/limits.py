"""Where a run stops by itself."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import TypeVar

from msgspec import Struct

T = TypeVar("T")


class RunLimits(Struct, frozen=True, kw_only=True):
    """`turns` of the model, `seconds` in all, `tokens` in and out (also of agents among the tools; estimated where the
    provider reports none), `parallel` calls at once; None is no cap. `repeats` of one turn's calls in a row, or of
    several turns that come by turns. `history` is about how many tokens of conversation go to the model: the oldest
    turns of a longer one are left out."""

    turns: int = 50
    seconds: float | None = 1800.0
    tokens: int | None = None
    repeats: int = 3
    parallel: int = 8
    history: int | None = None


class RunTimeout(Exception):
    """The time of a run is over while something is waited for."""


async def with_deadline(remaining: Callable[[], float | None], items: AsyncIterator[T]) -> AsyncIterator[T]:
    """The items as they come, for as long as there is time. Each is waited for by itself, since whoever reads them may
    do it from another task."""
    try:
        while True:
            try:
                async with asyncio.timeout(remaining()) as bound:
                    item = await anext(items)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if bound.expired():
                    raise RunTimeout from None
                raise
            yield item
    finally:
        if isinstance(items, AsyncGenerator):
            await items.aclose()
