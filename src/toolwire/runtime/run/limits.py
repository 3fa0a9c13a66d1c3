"""Limits of a run."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Struct

from toolwire.codec.options import OptionsMeta

T = TypeVar("T")
CompactAt: TypeAlias = int | Literal["auto", "never"]


class RunLimits(Struct, frozen=True, kw_only=True, metaclass=OptionsMeta):
    """Limits of one run; None means unlimited."""

    turns: int = 50
    """Model turns."""
    seconds: float | None = 1800.0
    """Total time."""
    tokens: int | None = None
    """Input and output tokens, including those of sub-agents; estimated if the provider reports none."""
    requests: int | None = None
    """Model requests, including those of sub-agents."""
    cost: float | None = None
    """US dollars, by the prices of the model catalog, including those of sub-agents. Each model must have a price."""
    repeats: int = 3
    """Repetitions of the same calls, or of a cycle of turns, before the run stops."""
    continuations: int = 3
    """Responses to continue after the model's own output limit; a limit set by `max_tokens` ends the run."""
    handoffs: int = 10
    """Moves of the conversation to another agent; further ones are denied."""
    parallel: int = 8
    """Concurrent tool calls."""
    history: int | None = None
    """Approximate tokens of conversation sent to the model; the oldest turns beyond it are omitted."""
    compact_at: CompactAt = "auto"
    """Tokens of a request above which a summary takes the place of the earlier conversation; `auto` is four fifths of
    the model's context window, and with `history` the same as `never`."""

    def __post_init__(self) -> None:
        """Raise `TypeError` or `ValueError` for a limit that is no number, or negative."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is None or (name == "compact_at" and value in ("auto", "never")):
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"RunLimits({name}={value!r}) is invalid: use a number")
            if not value >= (1 if name == "parallel" else 0):
                raise ValueError(f"RunLimits({name}={value!r}) is invalid: use a positive number")


class RunTimeout(Exception):
    """The run's time limit expired while waiting."""


class _Deadline:
    """A context manager like `asyncio.timeout` that many waits share, one at a time and in any task.

    A single timer serves all of them. Setting one for each event of a stream cost more than handling the event.
    """

    def __init__(self, seconds: float | None) -> None:
        self._timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self._expire)
        self._expired = False
        self._task: asyncio.Task[Any] | None = None  # while it waits
        self._cancelling = 0

    def _expire(self) -> None:
        """Cancel the task that waits, if any; a later wait fails at once."""
        self._expired = True
        if self._task is not None:
            self._task.cancel()

    def __enter__(self) -> None:
        if self._expired:
            raise RunTimeout
        if (task := asyncio.current_task()) is not None:
            self._task, self._cancelling = task, task.cancelling()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        task, self._task = self._task, None
        is_cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
        # A task that was cancelled for another reason as well stays cancelled.
        if self._expired and task is not None and task.uncancel() <= self._cancelling and is_cancelled:
            raise RunTimeout from None

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()


async def with_deadline(seconds: float | None, items: AsyncIterator[T]) -> AsyncIterator[T]:
    """Yield the items until the time is over; None means that it is unlimited.

    The time passes while the consumer handles an item, too, but only waiting for one is interrupted.

    Raises `RunTimeout` if the time expired before the next item.
    """
    deadline = _Deadline(seconds)
    try:
        while True:
            try:
                with deadline:
                    item = await anext(items)
            except StopAsyncIteration:
                return
            yield item
    finally:
        deadline.stop()
        if isinstance(items, AsyncGenerator):
            await items.aclose()
