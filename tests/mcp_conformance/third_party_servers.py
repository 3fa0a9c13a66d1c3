"""Third-party servers: listing, calls, media, errors, notifications and cancellation."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.mcp_conformance.client import AgreeingApprover
from tests.mcp_conformance.installation import SERVERS, program
from toolwire import Agent, Policy
from toolwire.canonical.content import Media, PlainText, Text
from toolwire.protocols import PROTOCOLS
from toolwire.runtime.mcp.config import McpServerConfig, SamplingConfig
from toolwire.runtime.mcp.toolset import McpToolset
from toolwire.runtime.tool import ToolContext, ToolOutput
from toolwire.testing import ScriptedModel

EVERYTHING, FILES = SERVERS


class Visit:
    """One server and its expected results."""

    def __init__(self, toolset: McpToolset) -> None:
        self.toolset = toolset
        self.progress: list[str] = []
        self.logs: list[str] = []
        self.begun = asyncio.Event()

    def progressed(self, text: str) -> None:
        self.progress.append(text)
        self.begun.set()

    async def names(self) -> list[str]:
        return [tool.name for tool in await self.toolset.tools()]

    async def call(self, name: str, **arguments: Any) -> ToolOutput:
        tool = next(tool for tool in await self.toolset.tools() if tool.name == f"{self.toolset.name}__{name}")
        calling = ToolContext(
            run="real",
            id="1",
            tool=name,
            idempotency_key="1",
            approver=AgreeingApprover(),
            report_progress=self.progressed,
            report_log=lambda _, text: self.logs.append(text),
            model=ScriptedModel("the answer"),
        )
        output = await tool.run(arguments, calling)
        assert isinstance(output, ToolOutput)
        return output


def text(output: ToolOutput) -> str:
    return "\n".join(part.text for part in output.content if isinstance(part, Text))


async def lists(visit: Visit) -> None:
    assert "everything__echo" in await visit.names()
    assert len(await visit.names()) > 10


async def calls(visit: Visit) -> None:
    assert text(await visit.call("echo", message="Grüße")) == "Echo: Grüße"


async def structure(visit: Visit) -> None:
    output = await visit.call("get-structured-content", location="New York")
    assert set(output.structured) == {"temperature", "conditions", "humidity"}


async def media(visit: Visit) -> None:
    output = await visit.call("get-tiny-image")
    assert [part.media_type for part in output.content if isinstance(part, Media)] == ["image/png"]


async def resources(visit: Visit) -> None:
    output = await visit.call("get-resource-reference", resourceType="Text", resourceId=1)
    media = next(part for part in output.content if isinstance(part, Media))
    assert isinstance(media.source, PlainText)
    assert media.name == "demo://resource/dynamic/text/1"


async def links(visit: Visit) -> None:
    assert "demo://resource/" in text(await visit.call("get-resource-links", count=2))


async def errors(visit: Visit) -> None:
    output = await visit.call("echo")
    assert (output.is_error, output.error_kind) == (True, "tool")


async def progress(visit: Visit) -> None:
    visit.progress.clear()
    await visit.call("trigger-long-running-operation", duration=1, steps=4)
    assert visit.progress == ["1/4", "2/4", "3/4", "4/4"]


async def questions(visit: Visit) -> None:
    assert '"action": "accept"' in text(await visit.call("trigger-elicitation-request"))


async def cancels(visit: Visit) -> None:
    visit.begun.clear()
    running = asyncio.create_task(visit.call("trigger-long-running-operation", duration=60, steps=60))
    await visit.begun.wait()
    running.cancel()
    async with asyncio.timeout(30):  # half of what the operation takes
        assert isinstance((await asyncio.gather(running, return_exceptions=True))[0], asyncio.CancelledError)
    assert text(await visit.call("echo", message="still there")) == "Echo: still there"


async def samples(visit: Visit) -> None:
    assert '"text": "the answer"' in text(await visit.call("trigger-sampling-request", prompt="hi", maxTokens=50))


async def roots(visit: Visit) -> None:
    assert "URI: file:///" in text(await visit.call("get-roots-list"))


async def tasks(visit: Visit) -> None:
    visit.progress.clear()
    assert "Research Report: fog" in text(await visit.call("simulate-research-query", topic="fog", ambiguous=True))
    assert "Gathering sources..." in visit.progress


async def logs(visit: Visit) -> None:
    await visit.call("toggle-simulated-logging")
    await visit.call("toggle-simulated-logging")
    assert visit.logs


async def reads_resources(visit: Visit) -> None:
    assert "demo://resource/dynamic/text/{resourceId}" in [
        resource.uri for resource in await visit.toolset.list_resources() if resource.is_template
    ]
    (part,) = await visit.toolset.read_resource("demo://resource/dynamic/text/1")
    assert isinstance(part.source, PlainText)
    assert "Resource 1" in part.source.text


async def writes_and_reads(visit: Visit) -> None:
    folder = visit.toolset.config.args[-1]
    await visit.call("write_file", path=f"{folder}/note.txt", content="eins\nzwei\n")
    assert "eins\nzwei" in text(await visit.call("read_text_file", path=f"{folder}/note.txt"))
    assert "note.txt" in text(await visit.call("list_directory", path=folder))


async def stays_inside(visit: Visit) -> None:
    output = await visit.call("read_text_file", path="/etc/hostname")
    assert (output.is_error, output.error_kind) == (True, "tool")


Check = Callable[[Visit], Awaitable[None]]
CHECKS: dict[str, tuple[Check, ...]] = {
    EVERYTHING: (
        *(lists, calls, structure, media, resources, links, errors, progress, questions, cancels),
        *(samples, roots, tasks, logs, reads_resources),
    ),
    FILES: (writes_and_reads, stays_inside),
}


def settings(cache: Path, path: str, package: str, folder: Path) -> McpServerConfig:
    last = "stdio" if package == EVERYTHING else str(folder)
    return McpServerConfig(
        command="node",
        args=(str(program(cache, package)), last),
        env={"PATH": path},
        roots=(str(folder),) if package == EVERYTHING else (),
        sampling=SamplingConfig() if package == EVERYTHING else None,
        log_level="debug",
    )


async def check_server(cache: Path, path: str, package: str, folder: Path) -> list[tuple[str, str]]:
    """Return each check by name with its failure, or an empty text."""
    name = "everything" if package == EVERYTHING else "files"
    toolset = McpToolset(name, settings(cache, path, package, folder))
    results = []
    try:
        visit = Visit(toolset)
        for check in CHECKS[package]:
            try:
                async with asyncio.timeout(60):
                    await check(visit)
                results.append((check.__name__, ""))
            except Exception as error:  # noqa: BLE001 - it is told, and the others go on
                results.append((check.__name__, f"{type(error).__name__}: {error}"))
    finally:
        await toolset.close()
    return results


async def in_agents(cache: Path, path: str, folder: Path) -> list[tuple[str, str]]:
    """Run an agent on every protocol, with a scripted model that calls a tool of the server."""
    results = []
    for protocol in PROTOCOLS:
        toolset = McpToolset("everything", settings(cache, path, EVERYTHING, folder))
        provider = "openai" if protocol == "openai-responses" else protocol
        agent = Agent(f"{provider}/any", tools=[toolset], policy=Policy(allow=["everything__*"]))
        try:
            run = await agent.run('everything__get-sum {"a": 20, "b": 22}')
            failure = "" if "42" in run.text else f"it said {run.text!r} ({run.stopped}: {run.reason})"
            results.append((f"an agent on {protocol}", failure))
        finally:
            await agent.aclose()
    return results
