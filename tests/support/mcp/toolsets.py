"""Toolsets connected to the scripted server, and calls of their tools."""

import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.deadlines import DEADLINE
from toolwire.canonical.content import Text
from toolwire.runtime.calls.approval import ApprovalAnswer, ApprovalRequest, Approver
from toolwire.runtime.mcp.config import McpServerConfig
from toolwire.runtime.mcp.toolset import McpToolset
from toolwire.runtime.tool import Tool, ToolContext, ToolOutput

SCRIPTED_SERVER = Path(__file__).with_name("scripted_server.py")
OLD_VERSION, NEW_VERSION = "2025-11-25", "2026-07-28"
MCP_VERSIONS = (OLD_VERSION, NEW_VERSION)


class RecordingApprover:
    """An approver that gives prepared answers in order and records the questions."""

    name = "someone"

    def __init__(self, *answers: str | None, decision: ApprovalAnswer = "yes") -> None:
        self.answers = list(answers)
        self.decision = decision
        self.questions: list[tuple[str, tuple[str, ...]]] = []
        self.requests: list[ApprovalRequest] = []

    async def approve(self, ask: ApprovalRequest) -> ApprovalAnswer:
        self.requests.append(ask)
        return self.decision

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        self.questions.append((question, choices))
        return self.answers.pop(0)


def scripted_server(
    version: str = OLD_VERSION, *, env: dict[str, str] | None = None, pin: str = "auto", **options: Any
) -> McpServerConfig:
    settings = json.dumps({"version": version, **options})
    return McpServerConfig(
        command=sys.executable,
        args=("-S", str(SCRIPTED_SERVER), settings),
        env=env or {},
        version=pin,  # type: ignore[arg-type]
        timeout=DEADLINE,
        connect_timeout=DEADLINE,
    )


@asynccontextmanager
async def open_toolset(settings: McpServerConfig, name: str = "actor") -> AsyncIterator[McpToolset]:
    toolset = McpToolset(name, settings)
    try:
        yield toolset
    finally:
        await toolset.close()


async def find_tool(toolset: McpToolset, name: str) -> Tool:
    return next(tool for tool in await toolset.tools() if tool.name == f"{toolset.name}__{name}")


def call_context(person: Approver | None = None, progress: Callable[[str], None] = lambda _: None) -> ToolContext:
    return ToolContext(
        run="r", id="c", tool="t", idempotency_key="k", approver=person or RecordingApprover(), report_progress=progress
    )


async def call_tool(
    toolset: McpToolset, name: str, arguments: Any = None, person: Approver | None = None
) -> ToolOutput:
    output = await (await find_tool(toolset, name)).run(arguments or {}, call_context(person))
    assert isinstance(output, ToolOutput)
    return output


def text_of_output(output: ToolOutput) -> str:
    return "".join(part.text for part in output.content if isinstance(part, Text))


def read_message_log(path: Path) -> list[dict[str, Any]]:
    """Return the messages a server received, if it writes a log."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def server_at(url: str, version: str, **more: Any) -> McpServerConfig:
    return McpServerConfig(url=url, version=version, timeout=DEADLINE, **more)  # type: ignore[arg-type]
