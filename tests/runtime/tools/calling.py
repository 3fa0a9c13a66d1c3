"""One tool, called as the runtime calls it, without the runtime around it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from toolwire.canonical.content import Text
from toolwire.runtime.approval import Nobody, Person
from toolwire.runtime.sandbox.shell import Sandbox
from toolwire.runtime.tools import built_in
from toolwire.runtime.toolset import Calling, Output, Tool

BARE = Sandbox(why_not="the tests run without one")


def tool(workspace: Path, name: str, **settings: Any) -> Tool:
    """One of the built-in tools; no bubblewrap is asked for unless that is what is tested."""
    return named(built_in(workspace, **{"sandbox": BARE, **settings}), name)


def named(tools: Sequence[Tool], name: str) -> Tool:
    return next(one for one in tools if one.name == name)


def calling(tool: Tool, person: Person | None = None) -> Calling:
    return Calling(run="run", id="call", tool=tool.name, key="run/call", person=person or Nobody())


async def give(tool: Tool, person: Person | None = None, /, **arguments: Any) -> Output:
    given = await tool.run(arguments, calling(tool, person))
    return Output(content=(Text(text=given),)) if isinstance(given, str) else msgspec.convert(given, Output)


def call(tool: Tool, person: Person | None = None, /, **arguments: Any) -> Output:
    return asyncio.run(give(tool, person, **arguments))


def text(output: Output) -> str:
    (part,) = output.content
    assert isinstance(part, Text)
    return part.text


def said(tool: Tool, person: Person | None = None, /, **arguments: Any) -> str:
    return text(call(tool, person, **arguments))
