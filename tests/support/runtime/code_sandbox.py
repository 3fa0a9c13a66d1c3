"""A code sandbox with real tools and steps stored in memory."""

import asyncio
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from toolwire.canonical.content import Text
from toolwire.runtime.calls.approval import NoApprover
from toolwire.runtime.sandbox.code.description import CodeLimits
from toolwire.runtime.sandbox.code.tool import CodeSandbox, SnapshotStore
from toolwire.runtime.tool import Tool, ToolContext, ToolError, ToolOutput

SMALL_LIMITS = CodeLimits(memory_bytes=32 * 1024 * 1024, seconds=120.0, calls=30, output_characters=2_000)
QUICK_LIMITS = replace(SMALL_LIMITS, seconds=1.0)
NUMBERS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}


class InMemorySteps:
    """Recorded steps of a run, in memory."""

    def __init__(self) -> None:
        self.intents: dict[str, bytes] = {}
        self.outcomes: dict[str, bytes] = {}

    def intent(self, name: str) -> bytes | None:
        return self.intents.get(name)

    def outcome(self, name: str) -> bytes | None:
        return self.outcomes.get(name)

    def begin(self, name: str, intent: bytes) -> None:
        assert name not in self.intents
        self.intents[name] = intent

    def finish(self, name: str, outcome: bytes) -> None:
        self.outcomes[name] = outcome


class SandboxTools:
    """Tools, and the executor of their calls."""

    def __init__(self, *more: Tool) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.running = self.peak_running = 0
        self.stop_at: int | None = None
        self.stopped = asyncio.Event()
        self.batch_size = 0
        self._full = asyncio.Event()
        tools = [
            Tool(name="add", description="Adds two numbers.", run=self._add, parameters=NUMBERS_SCHEMA),
            Tool(name="fail", description="Always fails.", run=self._fail),
            Tool(name="say-it", description="Says something.", run=self._say),
            *more,
        ]
        self.tools = {tool.name: tool for tool in tools}

    async def _add(self, arguments: Any, calling: ToolContext) -> ToolOutput:
        self.running += 1
        self.peak_running = max(self.peak_running, self.running)
        if self.running >= self.batch_size:  # so many are under way before the first ends
            self._full.set()
        await self._full.wait()
        await asyncio.sleep(0.01)
        self.running -= 1
        return ToolOutput(structured=arguments["a"] + arguments["b"])

    async def _fail(self, arguments: Any, calling: ToolContext) -> ToolOutput:
        raise ToolError("it is broken")

    async def _say(self, arguments: Any, calling: ToolContext) -> ToolOutput:
        return ToolOutput(content=(Text(text="hello"),))

    async def call(self, name: str, arguments: Any, id: str | None = None) -> ToolOutput:
        if self.stop_at is not None and len(self.calls) >= self.stop_at:
            self.stopped.set()
            await asyncio.Event().wait()
        self.calls.append((name, arguments))
        output: ToolOutput = await self.tools[name].run(arguments, self.context())
        return output

    def context(self, key: str = "run/1") -> ToolContext:
        return ToolContext(
            run="run", id="1", tool="run_code", idempotency_key=key, approver=NoApprover(), call=self.call
        )


def run_code(
    code: str,
    tools: SandboxTools | None = None,
    limits: CodeLimits = SMALL_LIMITS,
    memory: InMemorySteps | None = None,
    *,
    key: bytes = b"k" * 32,
    name: str = "run/1",
) -> ToolOutput:
    """Run code with the `run_code` tool and return its result."""
    sandbox_tools = tools or SandboxTools()

    async def run_in_sandbox() -> ToolOutput:
        store = None if memory is None else SnapshotStore(lambda _: memory, key)
        sandbox = CodeSandbox(limits, store)
        try:
            tool = sandbox.tool(list(sandbox_tools.tools.values()))
            output: ToolOutput = await tool.run({"code": code}, sandbox_tools.context(name))
            return output
        finally:
            await sandbox.close()

    return asyncio.run(run_in_sandbox())


def output_text(output: ToolOutput) -> str:
    (part,) = output.content
    assert isinstance(part, Text)
    return part.text


def run_code_description(tools: Mapping[str, Tool], limits: CodeLimits = SMALL_LIMITS) -> str:
    async def describe() -> str:
        return CodeSandbox(limits).tool(list(tools.values())).description

    return asyncio.run(describe())
