"""The tools of an MCP server as a toolset, in both protocol versions."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

import toolwire as tw
from tests.support.clock import Clock
from tests.support.deadlines import DEADLINE, wait_until_async
from tests.support.mcp.scripted_server import PNG, tool_definition
from tests.support.mcp.toolsets import (
    MCP_VERSIONS,
    NEW_VERSION,
    OLD_VERSION,
    RecordingApprover,
    call_context,
    call_tool,
    find_tool,
    open_toolset,
    read_message_log,
    scripted_server,
    text_of_output,
)
from toolwire.canonical.content import Data, Inline, Media, PlainText, Text
from toolwire.runtime.calls.approval import NoApprover
from toolwire.runtime.mcp.config import McpServerConfig, SamplingConfig
from toolwire.runtime.mcp.toolset import McpToolset, build_toolsets
from toolwire.runtime.tool import Annotations, ToolError

both = pytest.mark.parametrize("version", MCP_VERSIONS)
PROMISE = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@both
def test_tools_are_listed_and_called(version: str) -> None:
    async def work() -> None:
        async with open_toolset(scripted_server(version)) as toolset:
            found = await find_tool(toolset, "echo")
            assert (found.name, found.locus, found.source) == ("actor__echo", "mcp", "actor")
            assert await toolset.protocol_version() == version
            assert (
                text_of_output(await call_tool(toolset, "echo", {"a": [1, None, "ä"]})) == '{"a": [1, null, "\\u00e4"]}'
            )

    asyncio.run(work())


@both
def test_all_pages_of_a_tool_list_are_read(version: str) -> None:
    async def work() -> None:
        listed = [tool_definition(f"tool{number}") for number in range(25)]
        async with open_toolset(scripted_server(version, tools=listed, page=10)) as toolset:
            assert [one.name for one in await toolset.tools()] == [f"actor__tool{number}" for number in range(25)]

    asyncio.run(work())


@both
def test_tool_failure_is_an_output_and_protocol_failure_an_error(version: str) -> None:
    async def work() -> None:
        async with open_toolset(scripted_server(version)) as toolset:
            failed = await call_tool(toolset, "fail")
            assert (failed.is_error, failed.error_kind, text_of_output(failed)) == (True, "tool", "the disk is full")
            with pytest.raises(ToolError, match=r"something broke inside \(-32603\)") as error_info:
                await call_tool(toolset, "fault")
            assert error_info.value.kind == "protocol"

    asyncio.run(work())


@both
@pytest.mark.parametrize("code", [-32002, -32602])
def test_unknown_tool_is_a_protocol_error_with_either_code(version: str, code: int) -> None:
    async def work() -> None:
        async with open_toolset(scripted_server(version)) as toolset:
            with pytest.raises(ToolError, match=str(code)) as error_info:
                await call_tool(toolset, "fault", {"code": code})
            assert error_info.value.kind == "protocol"

    asyncio.run(work())


@both
def test_every_content_type_becomes_a_part(version: str) -> None:
    async def work() -> None:
        async with open_toolset(scripted_server(version)) as toolset:
            image, audio, link, document, blob, page = (await call_tool(toolset, "media")).content
            assert image == Media(kind="image", source=Inline(data=PNG), media_type="image/png")
            assert audio == Media(kind="audio", source=Inline(data="UklGRg=="), media_type="audio/wav")
            assert link == Text(text="[resource b at file:///b.md (text/markdown, 9 bytes)]")
            inside = PlainText(text="inside")
            assert document == Media(kind="document", source=inside, media_type="text/plain", name="file:///a.txt")
            assert page == Media(
                kind="document", source=PlainText(text="<p>"), media_type="text/html", name="file:///a.html"
            )
            assert blob == Media(kind="image", source=Inline(data=PNG), media_type="image/png", name="file:///a.png")

    asyncio.run(work())


@both
def test_structured_content_is_validated(version: str) -> None:
    async def work() -> None:
        async with open_toolset(
            scripted_server(
                version, tools=[tool_definition("structured", outputSchema=PROMISE), tool_definition("echo")]
            )
        ) as toolset:
            good = await call_tool(toolset, "structured", {"n": 1})
            assert good.structured == {"n": 1}
            assert good.content == (Data(json=good.content[0].json),)  # type: ignore[union-attr]
            with pytest.raises(ToolError, match="at n: ") as error_info:
                await call_tool(toolset, "structured", {"n": "1"})
            assert error_info.value.kind == "output"

    asyncio.run(work())


def test_missing_structured_content_is_an_error() -> None:
    async def work() -> None:
        async with open_toolset(scripted_server(tools=[tool_definition("echo", outputSchema=PROMISE)])) as toolset:
            with pytest.raises(ToolError, match="no structured content"):
                await call_tool(toolset, "echo")

    asyncio.run(work())


def test_failed_call_needs_no_structured_content() -> None:
    async def work() -> None:
        async with open_toolset(scripted_server(tools=[tool_definition("fail", outputSchema=PROMISE)])) as toolset:
            assert (await call_tool(toolset, "fail")).is_error

    asyncio.run(work())


def test_any_value_may_be_structured_content_in_the_newer_version() -> None:
    async def work() -> None:
        listed = [tool_definition("structured", outputSchema={"type": "array", "items": {"type": "integer"}})]
        async with open_toolset(scripted_server(NEW_VERSION, tools=listed)) as toolset:
            with pytest.raises(ToolError, match="at the result: "):
                await call_tool(toolset, "structured", {"a": 1})

    asyncio.run(work())


@both
def test_progress_is_reported(version: str) -> None:
    async def work() -> None:
        notices: list[str] = []
        async with open_toolset(scripted_server(version)) as toolset:
            await (await find_tool(toolset, "progress")).run({}, call_context(progress=notices.append))
        assert notices == ["1/2 part 1", "2/2 part 2"]

    asyncio.run(work())


@both
def test_cancelled_call_is_cancelled_on_the_server(version: str, tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def work() -> None:
        async with open_toolset(scripted_server(version, log=str(log))) as toolset:
            waiting = asyncio.create_task(call_tool(toolset, "wait"))
            await asyncio.sleep(0)
            while "tools/call" not in methods(log):  # noqa: ASYNC110 - it is another process
                await asyncio.sleep(0.02)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert text_of_output(await call_tool(toolset, "echo")) == "{}"

    asyncio.run(work())
    sent = read_message_log(log)
    call = next(one for one in sent if one.get("method") == "tools/call")
    cancelled = next(one for one in sent if one.get("method") == "notifications/cancelled")
    assert cancelled["params"]["requestId"] == call["id"]


FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name"},
        "age": {"type": "integer", "minimum": 18},
        "team": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}},
        "sure": {"type": "boolean"},
        "nick": {"type": "string"},
    },
    "required": ["name", "age", "tags", "sure"],
}


@both
def test_form_is_asked_field_by_field(version: str) -> None:
    async def work() -> None:
        person = RecordingApprover("Ada", "seven", "17", "36", "", "a, c", "true", "")
        async with open_toolset(scripted_server(version)) as toolset:
            output = await call_tool(toolset, "ask", {"schema": FORM}, person)
        content = {"name": "Ada", "age": 36, "team": "red", "tags": ["a", "c"], "sure": True}
        assert json.loads(text_of_output(output)) == {"action": "accept", "content": content}
        assert person.answers == []
        question, _ = person.questions[0]
        assert question == "MCP server 'actor' asks: Who are you?[31m\nYour name"
        assert [choices for _, choices in person.questions if choices] == [("red", "blue"), ("true", "false")]

    asyncio.run(work())


@both
def test_form_can_be_cancelled_and_is_declined_without_approver(version: str) -> None:
    async def work() -> None:
        async with open_toolset(scripted_server(version)) as toolset:
            left = await call_tool(toolset, "ask", {"schema": FORM}, RecordingApprover("Ada", None))
            assert json.loads(text_of_output(left))["action"] == "cancel"
            wrong = await call_tool(toolset, "ask", {"schema": FORM}, RecordingApprover("Ada", "x", "y", "z"))
            assert json.loads(text_of_output(wrong))["action"] == "decline"
            nobody = await call_tool(toolset, "ask", {"schema": FORM}, NoApprover())
            assert json.loads(text_of_output(nobody))["action"] == "decline"

    asyncio.run(work())


def test_missing_hints_default_to_unsafe_values() -> None:
    async def work() -> None:
        listed = [
            tool_definition("silent"),
            tool_definition("safe", annotations={"destructiveHint": False, "openWorldHint": False}),
            tool_definition("reads", annotations={"readOnlyHint": True, "idempotentHint": True}),
        ]
        async with open_toolset(scripted_server(tools=listed)) as toolset:
            silent, safe, reads = await toolset.tools()
        assert silent.annotations == Annotations(destructive=True, open_world=True)
        assert safe.annotations == Annotations(destructive=False, open_world=False)
        assert reads.annotations == Annotations(read_only=True, idempotent=True, open_world=True)
        assert (silent.retries, reads.retries) == (0, 2)
        assert silent.resources({}) == safe.resources({}) == frozenset({"mcp:actor"})
        assert reads.resources({}) == frozenset()

    asyncio.run(work())


def test_only_configured_tools_are_offered() -> None:
    async def work() -> None:
        settings = scripted_server(tools=[tool_definition(name) for name in ("read_a", "read_b", "write_a")])
        chosen = McpServerConfig(command=settings.command, args=settings.args, tools=("read_*",), without=("*_b",))
        async with open_toolset(chosen) as toolset:
            assert [one.name for one in await toolset.tools()] == ["actor__read_a"]

    asyncio.run(work())


def listings(log: Path) -> int:
    return sum(one.get("method") == "tools/list" for one in read_message_log(log))


def test_tool_list_is_cached_until_it_expires(tmp_path: Path) -> None:
    async def work(ttl: int, log: Path) -> None:
        async with open_toolset(scripted_server(NEW_VERSION, ttl=ttl, log=str(log))) as toolset:
            await toolset.tools()
            await toolset.tools()

    asyncio.run(work(60_000, tmp_path / "long"))
    asyncio.run(work(0, tmp_path / "none"))
    assert (listings(tmp_path / "long"), listings(tmp_path / "none")) == (1, 2)


def test_change_notification_expires_the_tool_list(tmp_path: Path) -> None:
    async def work() -> None:
        async with open_toolset(scripted_server(log=str(tmp_path / "log"))) as toolset:
            noticed = asyncio.Event()
            toolset.on_change = noticed.set
            await call_tool(toolset, "change")
            await noticed.wait()
            assert [one.name for one in await toolset.tools()] == ["actor__new"]

    asyncio.run(work())
    assert listings(tmp_path / "log") == 2


def test_change_during_listing_expires_the_tool_list(tmp_path: Path) -> None:
    async def work() -> None:
        settings = scripted_server(
            tools=[tool_definition("a"), tool_definition("b")], page=1, changing=True, log=str(tmp_path / "log")
        )
        async with open_toolset(settings) as toolset:
            assert [one.name for one in await toolset.tools()] == ["actor__a", "actor__b"]
            assert [one.name for one in await toolset.tools()] == ["actor__new"]

    asyncio.run(work())


def methods(log: Path) -> list[str]:
    return [one["method"] for one in read_message_log(log) if "method" in one] if log.exists() else []


def test_older_server_never_receives_newer_messages(tmp_path: Path) -> None:
    async def work(log: Path, pin: str) -> None:
        async with open_toolset(scripted_server(OLD_VERSION, pin=pin, log=str(log))) as toolset:
            await call_tool(toolset, "echo")

    asyncio.run(work(tmp_path / "auto", "auto"))
    asyncio.run(work(tmp_path / "pinned", OLD_VERSION))
    assert methods(tmp_path / "auto") == [
        "server/discover",
        "initialize",
        "notifications/initialized",
        "tools/list",
        "tools/call",
    ]
    assert methods(tmp_path / "pinned") == ["initialize", "notifications/initialized", "tools/list", "tools/call"]
    for log in ("auto", "pinned"):
        for one in read_message_log(tmp_path / log):
            if one.get("method", "").startswith("tools/"):
                meta = one.get("params", {}).get("_meta", {})
                assert not [key for key in meta if key.startswith("io.modelcontextprotocol/")]


def test_newer_server_receives_no_handshake(tmp_path: Path) -> None:
    async def work(log: Path, pin: str) -> None:
        async with open_toolset(scripted_server(NEW_VERSION, pin=pin, log=str(log))) as toolset:
            await call_tool(toolset, "echo")

    for pin in ("auto", NEW_VERSION):
        asyncio.run(work(tmp_path / pin, pin))
        assert methods(tmp_path / pin) == ["server/discover", "tools/list", "tools/call"]
        for one in read_message_log(tmp_path / pin):
            meta: dict[str, Any] = one["params"]["_meta"]
            assert meta["io.modelcontextprotocol/protocolVersion"] == NEW_VERSION
            assert meta["io.modelcontextprotocol/clientInfo"]["name"] == "toolwire"
            assert set(meta["io.modelcontextprotocol/clientCapabilities"]) == {"elicitation", "extensions"}


@pytest.mark.parametrize(
    ("version", "pin"), [(OLD_VERSION, NEW_VERSION), (NEW_VERSION, OLD_VERSION), ("2025-06-18", OLD_VERSION)]
)
def test_pinned_version_is_required(version: str, pin: str) -> None:
    async def work() -> None:
        async with open_toolset(scripted_server(version, pin=pin)) as toolset:
            assert await toolset.tools() == ()
            assert toolset.state == "down"
            assert len(toolset.take_warnings()) == 1

    asyncio.run(work())


def test_failing_server_is_reported_once_and_others_work() -> None:
    async def work() -> None:
        servers = {
            "good": scripted_server(),
            "gone": McpServerConfig(command="no-such-program-anywhere"),
            "off": McpServerConfig(enabled=False),
        }
        good, gone = build_toolsets(servers)
        try:
            for one in (good, gone):
                await one.open()
            assert await good.tools()
            for _ in range(3):
                assert await gone.tools() == ()
            assert gone.take_warnings() == [
                "MCP server 'gone' failed to start: command not found: no-such-program-anywhere"
            ]
            assert (good.state, gone.state, gone.error) == (
                "up",
                "down",
                "command not found: no-such-program-anywhere",
            )
        finally:
            await good.close()
            await gone.close()

    asyncio.run(work())


def test_stderr_of_an_ended_program_is_reported() -> None:
    async def work() -> None:
        script = "import sys; sys.exit('the key is missing')"
        settings = scripted_server()
        async with open_toolset(McpServerConfig(command=settings.command, args=("-c", script))) as toolset:
            assert await toolset.tools() == ()
            assert "stderr: the key is missing" in toolset.error

    asyncio.run(work())


@both
def test_dead_server_is_restarted(version: str) -> None:
    async def work() -> None:
        async with open_toolset(scripted_server(version)) as toolset:
            with pytest.raises(ToolError) as error_info:
                await call_tool(toolset, "die")
            assert error_info.value.kind == "unavailable"
            assert not toolset._connection.is_alive
            assert text_of_output(await call_tool(toolset, "echo")) == "{}"
            assert toolset.state == "up"

    asyncio.run(work())


def test_failing_server_is_retried_with_backoff() -> None:
    async def work() -> None:
        toolset = McpToolset("gone", McpServerConfig(command="no-such-program-anywhere"))
        connection = toolset._connection
        for wait in (0.5, 1.0, 2.0, 4.0):
            began = time.monotonic()
            assert await toolset.tools() == ()
            if connection._reconnect_task is not None:
                await asyncio.wait([connection._reconnect_task])
            assert began + wait <= connection._retry_at <= time.monotonic() + wait
            connection._retry_at = time.monotonic() + 3600
            assert await toolset.tools() == ()
            assert connection._reconnect_task is None  # it is not time yet
            connection._retry_at = 0
        assert toolset.error == "command not found: no-such-program-anywhere"
        await toolset.close()

    asyncio.run(work())


def test_server_that_starts_later_is_found_in_the_background(tmp_path: Path) -> None:
    async def work() -> None:
        settings = scripted_server(tools=[tool_definition("echo")])
        program = tmp_path / "server"
        toolset = McpToolset(
            "late", McpServerConfig(command=str(program), args=settings.args, connect_timeout=DEADLINE)
        )
        assert await toolset.tools() == ()
        program.symlink_to(settings.command or "")
        there = asyncio.Event()
        toolset.on_change = there.set
        toolset._connection._retry_at = 0
        assert await toolset.tools() == ()  # it does not wait for the server to come up
        await there.wait()
        assert [one.name for one in await toolset.tools()] == ["late__echo"]
        await toolset.close()

    asyncio.run(work())


def test_tool_listing_times_out(clock: Clock, tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def work() -> None:
        settings = scripted_server(mute=True, log=str(log))
        patient = McpServerConfig(
            command=settings.command, args=settings.args, connect_timeout=DEADLINE, timeout=2 * DEADLINE
        )
        async with open_toolset(patient) as toolset:
            listing = asyncio.ensure_future(toolset.tools())
            await wait_until_async(lambda: log.exists() and "tools/list" in methods(log))
            assert await clock.advance_until_done(listing) == ()
            assert "listing its tools failed" in toolset.take_warnings()[0]

    asyncio.run(work())


def test_silent_server_times_out() -> None:
    async def work() -> None:
        settings = scripted_server(slow=60)
        quick = McpServerConfig(command=settings.command, args=settings.args, connect_timeout=0.5)
        async with open_toolset(quick) as toolset:
            assert await toolset.tools() == ()
            assert toolset.error == "no response within 0.5 seconds"

    asyncio.run(work())


def test_environment_secrets_do_not_reach_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "TOOLWIRE_KEY"):
        monkeypatch.setenv(name, "sk-do-not-tell")

    async def work() -> None:
        async with open_toolset(scripted_server(env={"ITS_OWN": "1"})) as toolset:
            environment = json.loads(text_of_output(await call_tool(toolset, "environment")))
        assert "sk-do-not-tell" not in environment.values()
        assert environment["ITS_OWN"] == "1"
        assert "PATH" in environment

    asyncio.run(work())


def test_server_described_in_code_is_checked() -> None:
    toolset = tw.mcp_server("math", command="python", args=["server.py"], sampling={"max_tokens": 5}, log_level="off")
    assert toolset.name == "math"
    assert toolset.config == McpServerConfig(
        command="python", args=("server.py",), sampling=SamplingConfig(max_tokens=5), log_level="off"
    )
    with pytest.raises(tw.ToolwireError, match="set either command or url"):
        tw.mcp_server("math")
    with pytest.raises(tw.ToolwireError, match=r"Expected `int`, got `str` - at `\$.sampling.max_tokens`"):
        tw.mcp_server("math", url="http://localhost", sampling={"max_tokens": "5"})
