"""The context of a turn, for instructions and tools that depend on it."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct

from toolwire.canonical.content import Message
from toolwire.canonical.response import Usage
from toolwire.runtime.tool import DepsT, Tool

T = TypeVar("T")


class RunContext(Struct, Generic[DepsT], frozen=True, kw_only=True):
    """The state of a run before a turn of the model."""

    run: str
    """Id of the run."""
    agent: str = ""
    """Name of the agent that has the conversation."""
    turn: int
    """Number of the turn; the first is 1."""
    deps: DepsT
    """The run's dependencies, as passed to `run`."""
    messages: tuple[Message, ...]
    """The conversation so far."""
    usage: Usage | None = None
    """Tokens used so far."""


Instructions: TypeAlias = str | Callable[[RunContext[Any]], str | Awaitable[str]]
"""The system prompt, or a function that returns it for each turn."""

ToolPreparation: TypeAlias = Callable[[RunContext[Any], Sequence[Tool]], Sequence[Tool] | Awaitable[Sequence[Tool]]]
"""Returns the tools to offer in a turn, of those that the agent has."""


async def resolve(value: T | Awaitable[T]) -> T:
    """Return a value, awaited if it is awaitable."""
    return await value if inspect.isawaitable(value) else value
