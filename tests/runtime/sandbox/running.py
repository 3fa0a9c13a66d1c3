"""A sandbox to test in: tools that are called for real, and what a run remembers, in memory."""

import asyncio
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from toolwire.canonical.content import Text
from toolwire.runtime.approval import Nobody
from toolwire.runtime.sandbox.code.limits import Limits
from toolwire.runtime.sandbox.code.tool import Keeping, Sandbox
from toolwire.runtime.toolset import Calling, Output, Tool, ToolFault

SMALL = Limits(memory=32 * 1024 * 1024, seconds=120.0, calls=30, output=2_000)
QUICK = replace(SMALL, seconds=1.0)
NUMBERS: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}


class Memory:
    """What a run remembers."""

    def __init__(self) -> None:
        self.intents: dict[str, bytes] = {}
        self.outcomes: dict[str, bytes] = {}

    def begun(self, name: str) -> bytes | None:
        return self.intents.get(name)

    def outcome(self, name: str) -> bytes | None:
        return self.outcomes.get(name)

    def begin(self, name: str, intent: bytes) -> None:
        assert name not in self.intents
        self.intents[name] = intent

    def finish(self, name: str, outcome: bytes) -> None:
        self.outcomes[name] = outcome


class Desk:
    """Some tools, and who carries out the calls of them."""

    def __init__(self, *more: Tool) -> None:
        self.made: list[tuple[str, Any]] = []
        self.now = self.most = 0
        self.stop_at: int | None = None
        self.stopped = asyncio.Event()
        self.together = 0
        self._full = asyncio.Event()
        tools = [
            Tool(name="add", description="Adds two numbers.", run=self._add, parameters=NUMBERS),
            Tool(name="fail", description="Always fails.", run=self._fail),
            Tool(name="say-it", description="Says something.", run=self._say),
            *more,
        ]
        self.tools = {tool.name: tool for tool in tools}

    async def _add(self, arguments: Any, calling: Calling) -> Output:
        self.now += 1
        self.most = max(self.most, self.now)
        if self.now >= self.together:  # so many are under way before the first ends
            self._full.set()
        await self._full.wait()
        await asyncio.sleep(0.01)
        self.now -= 1
        return Output(structured=arguments["a"] + arguments["b"])

    async def _fail(self, arguments: Any, calling: Calling) -> Output:
        raise ToolFault("it is broken")

    async def _say(self, arguments: Any, calling: Calling) -> Output:
        return Output(content=(Text(text="hello"),))

    async def call(self, name: str, arguments: Any, id: str | None = None) -> Output:
        if self.stop_at is not None and len(self.made) >= self.stop_at:
            self.stopped.set()
            await asyncio.Event().wait()
        self.made.append((name, arguments))
        found: Output = await self.tools[name].run(arguments, self.calling())
        return found

    def calling(self, key: str = "run/1") -> Calling:
        return Calling(run="run", id="1", tool="run_code", key=key, person=Nobody(), call=self.call)


def run(
    code: str,
    desk: Desk | None = None,
    limits: Limits = SMALL,
    memory: Memory | None = None,
    *,
    key: bytes = b"k" * 32,
    name: str = "run/1",
) -> Output:
    """What `run_code` gives for it."""
    asked = desk or Desk()

    async def whole() -> Output:
        keeping = None if memory is None else Keeping(lambda _: memory, key)
        sandbox = Sandbox(limits, keeping)
        try:
            tool = sandbox.tool(list(asked.tools.values()))
            found: Output = await tool.run({"code": code}, asked.calling(name))
            return found
        finally:
            await sandbox.close()

    return asyncio.run(whole())


def text(output: Output) -> str:
    (part,) = output.content
    assert isinstance(part, Text)
    return part.text


def described(tools: Mapping[str, Tool], limits: Limits = SMALL) -> str:
    async def made() -> str:
        return Sandbox(limits).tool(list(tools.values())).description

    return asyncio.run(made())
