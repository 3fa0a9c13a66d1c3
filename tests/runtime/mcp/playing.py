"""Toolsets on the actor, and calls of their tools."""

import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE
from toolwire.canonical.content import Text
from toolwire.runtime.approval import Answer, Ask, Person
from toolwire.runtime.mcp.settings import Server
from toolwire.runtime.mcp.toolset import McpToolset
from toolwire.runtime.toolset import Calling, Output, Tool

ACTOR = Path(__file__).with_name("actor.py")
OLD, NEW = "2025-11-25", "2026-07-28"
VERSIONS = (OLD, NEW)


class Someone:
    """Answers with what was given, in order, and keeps what was asked."""

    name = "someone"

    def __init__(self, *answers: str | None, approves: Answer = "yes") -> None:
        self.answers = list(answers)
        self.approves = approves
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self.asks: list[Ask] = []

    async def approve(self, ask: Ask) -> Answer:
        self.asks.append(ask)
        return self.approves

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        self.asked.append((question, choices))
        return self.answers.pop(0)


def actor(version: str = OLD, *, env: dict[str, str] | None = None, pin: str = "auto", **options: Any) -> Server:
    settings = json.dumps({"version": version, **options})
    return Server(
        command=sys.executable,
        args=("-S", str(ACTOR), settings),
        env=env or {},
        version=pin,  # type: ignore[arg-type]
        timeout=PATIENCE,
        connect_timeout=PATIENCE,
    )


@asynccontextmanager
async def playing(settings: Server, name: str = "actor") -> AsyncIterator[McpToolset]:
    toolset = McpToolset(name, settings)
    try:
        yield toolset
    finally:
        await toolset.close()


async def tool_of(toolset: McpToolset, name: str) -> Tool:
    return next(one for one in await toolset.tools() if one.name == f"{toolset.name}__{name}")


def calling(person: Person | None = None, progress: Callable[[str], None] = lambda _: None) -> Calling:
    return Calling(run="r", id="c", tool="t", key="k", person=person or Someone(), progress=progress)


async def called(toolset: McpToolset, name: str, arguments: Any = None, person: Person | None = None) -> Output:
    output = await (await tool_of(toolset, name)).run(arguments or {}, calling(person))
    assert isinstance(output, Output)
    return output


def words(output: Output) -> str:
    return "".join(part.text for part in output.content if isinstance(part, Text))


def written(path: Path) -> list[dict[str, Any]]:
    """What a server was sent, if it keeps a log."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
