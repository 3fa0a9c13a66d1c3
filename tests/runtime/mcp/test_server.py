"""Toolwire as an MCP server in both protocol versions, over HTTP and stdio, with toolwire as the client."""

import asyncio
import json

import mcp_types as types
import pytest
from msgspec.structs import replace

from tests.support.assertions import non_empty
from tests.support.deadlines import wait_until_async
from tests.support.mcp.raw_client import ELICITATION_META, RawMcpClient
from tests.support.mcp.tool_server import ADD_TOOL, NUMBERS_SCHEMA, build_tool_server, executed_tools, serve_tools
from tests.support.mcp.toolsets import (
    MCP_VERSIONS,
    NEW_VERSION,
    OLD_VERSION,
    RecordingApprover,
    call_context,
    call_tool,
    find_tool,
    open_toolset,
    scripted_server,
    server_at,
    text_of_output,
)
from toolwire.canonical.content import Data, Inline, Media, PlainText, Text, Url
from toolwire.canonical.tools import Grammar
from toolwire.runtime.calls.approval import ApprovalRequest
from toolwire.runtime.mcp import content
from toolwire.runtime.mcp.config import LogLevel
from toolwire.runtime.mcp.elicitation import ElicitationApprover
from toolwire.runtime.mcp.server import SuspendedCalls
from toolwire.runtime.mcp.toolset import McpToolset
from toolwire.runtime.policy import Policy
from toolwire.runtime.tool import Annotations, Arguments, Tool, ToolContext, ToolError, ToolOutput

both = pytest.mark.parametrize("version", MCP_VERSIONS)


async def confirm(arguments: Arguments, calling: ToolContext) -> str:
    executed_tools.append("begun")
    answers = [await calling.approver.answer("Sure?", ("yes", "no")), await calling.approver.answer("Why?")]
    executed_tools.append("ended")
    return json.dumps(answers)


CONFIRM = Tool(name="confirm", run=confirm)


async def fail(arguments: Arguments, calling: ToolContext) -> str:
    raise ToolError("it can't be done")


async def wait(arguments: Arguments, calling: ToolContext) -> str:
    executed_tools.append("waiting")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        executed_tools.append("cancelled")
        raise
    return ""


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    executed_tools.clear()


@both
def test_tools_are_listed_and_run(version: str) -> None:
    async def work() -> None:
        notices: list[str] = []
        async with (
            serve_tools(build_tool_server([ADD_TOOL])) as offered,
            open_toolset(server_at(offered.url, version), "me") as toolset,
        ):
            tool = await find_tool(toolset, "add")
            assert (tool.description, tool.parameters, tool.output_schema) == (
                ADD_TOOL.description,
                NUMBERS_SCHEMA,
                ADD_TOOL.output_schema,
            )
            assert tool.annotations == Annotations(read_only=True)
            output = await tool.run({"a": 1, "b": 2}, call_context(progress=notices.append))
            assert (text_of_output(output), output.structured) == ("3", {"sum": 3})
        assert notices == ["1/2 half", "2/2"]

    asyncio.run(work())


@both
def test_invalid_call_is_a_tool_error_and_unknown_tool_a_protocol_error(version: str) -> None:
    async def work() -> None:
        served = build_tool_server([ADD_TOOL, Tool(name="fail", run=fail)])
        async with serve_tools(served) as offered, open_toolset(server_at(offered.url, version), "me") as toolset:
            bad = await call_tool(toolset, "add", {"a": "one"})
            assert bad.is_error
            assert "nothing was run" in text_of_output(bad)
            assert executed_tools == []
            failed = await call_tool(toolset, "fail")
            assert (failed.is_error, text_of_output(failed)) == (True, "it can't be done")
            await toolset.tools()
            session = await toolset._connection.session()
            with pytest.raises(Exception, match="Unknown tool: rm") as error:
                await session.call_tool("rm", {})
            assert getattr(error.value, "code", None) == -32602

    asyncio.run(work())


@both
def test_policy_applies_to_every_call(version: str) -> None:
    async def work() -> None:
        served = build_tool_server([ADD_TOOL], Policy(allow=["*"], deny=["add(a=13)"]))
        async with serve_tools(served) as offered, open_toolset(server_at(offered.url, version), "me") as toolset:
            assert not (await call_tool(toolset, "add", {"a": 1, "b": 2})).is_error
            executed_tools.clear()
            denied = await call_tool(toolset, "add", {"a": 13, "b": 2})
            assert denied.is_error
            assert text_of_output(denied).startswith("denied: ")
            assert executed_tools == []

    asyncio.run(work())


@both
@pytest.mark.parametrize("answer", ["yes", "no"])
def test_approval_is_requested_from_the_clients_user(version: str, answer: str) -> None:
    async def work() -> None:
        person = RecordingApprover(answer)
        served = build_tool_server([ADD_TOOL], Policy(ask=["add"]))
        async with serve_tools(served) as offered, open_toolset(server_at(offered.url, version), "me") as toolset:
            output = await call_tool(toolset, "add", {"a": 1, "b": 2}, person)
        assert output.is_error == (answer == "no")
        assert executed_tools == (["add"] if answer == "yes" else [])
        question, choices = person.questions[0]
        assert 'Allow add with {"a": 1, "b": 2}? (matches rule \'ask add\')' in question
        assert choices == ("yes", "no")

    asyncio.run(work())


def test_approval_shows_the_complete_call() -> None:
    """The form showed the first 2,000 characters of the arguments."""
    forms: list[str] = []

    async def fill(_: str, form: types.ElicitRequestFormParams) -> types.ElicitResult:
        forms.append(form.message)
        return types.ElicitResult(action="accept", content={"answer": "no"})

    arguments = f"git status{' ' * 2500}; touch HIDDEN"
    ask = ApprovalRequest(run="r", call_id="c", tool="sh", arguments=arguments, reason="no rule allows it")
    assert asyncio.run(ElicitationApprover(fill).approve(ask)) == "no"
    assert arguments in forms[0]


@both
def test_client_without_elicitation_is_denied(version: str) -> None:
    async def work() -> None:
        async with serve_tools(build_tool_server([ADD_TOOL], Policy(ask=["add"]))) as offered:
            meta = {
                "io.modelcontextprotocol/protocolVersion": NEW_VERSION,
                "io.modelcontextprotocol/clientInfo": {"name": "plain", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            }
            async with RawMcpClient(offered.url, version, meta) as plain:
                result = await plain.request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
        assert result["result"]["isError"] is True
        assert "no approver is available" in result["result"]["content"][0]["text"]
        assert executed_tools == []

    asyncio.run(work())


@both
def test_tool_with_a_question_is_suspended_and_runs_once(version: str) -> None:
    async def work() -> None:
        person = RecordingApprover("yes", "because")
        async with (
            serve_tools(build_tool_server([CONFIRM])) as offered,
            open_toolset(server_at(offered.url, version), "me") as toolset,
        ):
            output = await call_tool(toolset, "confirm", person=person)
        assert json.loads(text_of_output(output)) == ["yes", "because"]
        assert executed_tools == ["begun", "ended"]
        assert [choices for _, choices in person.questions] == [("yes", "no"), ()]
        rounds = len(offered.messages_with("tools/call"))
        assert rounds == (1 if version == OLD_VERSION else 3)

    asyncio.run(work())


def test_suspended_call_resumes_once_with_the_same_arguments() -> None:
    async def work() -> None:
        async with (
            serve_tools(build_tool_server([CONFIRM])) as offered,
            RawMcpClient(offered.url, NEW_VERSION, ELICITATION_META) as plain,
        ):
            first = (await plain.request("tools/call", {"name": "confirm", "arguments": {}}))["result"]
            assert first["resultType"] == "input_required"
            answers = {"question_1": {"action": "accept", "content": {"answer": "yes"}}}
            state = first["requestState"]
            for wrong in (
                {"requestState": state + "x", "arguments": {}},
                {"requestState": state, "arguments": {"other": 1}},
            ):
                refused = await plain.request("tools/call", {"name": "confirm", "inputResponses": answers, **wrong})
                assert refused["error"]["code"] == -32602
            again = {"name": "confirm", "arguments": {}, "inputResponses": answers, "requestState": state}
            second = (await plain.request("tools/call", again))["result"]
            assert list(second["inputRequests"]) == ["question_2"]
            assert second["requestState"] != state
            assert (await plain.request("tools/call", again))["error"]["code"] == -32602
        assert executed_tools == ["begun"]

    asyncio.run(work())


def test_suspended_call_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.runtime.mcp.server._SUSPENDED_TTL", 0.0)

    async def work() -> None:
        async with (
            serve_tools(build_tool_server([CONFIRM])) as offered,
            RawMcpClient(offered.url, NEW_VERSION, ELICITATION_META) as plain,
        ):
            first = (await plain.request("tools/call", {"name": "confirm", "arguments": {}}))["result"]
            again = {"name": "confirm", "arguments": {}, "inputResponses": {}, "requestState": first["requestState"]}
            assert (await plain.request("tools/call", again))["error"]["code"] == -32602

    asyncio.run(work())


def test_number_of_suspended_calls_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.runtime.mcp.server._MAX_SUSPENDED", 3)

    async def work() -> None:
        served = build_tool_server([CONFIRM])
        async with serve_tools(served) as offered, RawMcpClient(offered.url, NEW_VERSION, ELICITATION_META) as plain:
            for _ in range(10):
                await plain.request("tools/call", {"name": "confirm", "arguments": {}})
            calls: SuspendedCalls = served._suspended_calls
            assert len(calls._suspended) <= 4

    asyncio.run(work())


@both
def test_cancelled_call_stops(version: str) -> None:
    async def work() -> None:
        served = build_tool_server([Tool(name="wait", run=wait)])
        async with serve_tools(served) as offered, open_toolset(server_at(offered.url, version), "me") as toolset:
            waiting = asyncio.create_task(call_tool(toolset, "wait"))
            while "waiting" not in executed_tools:  # noqa: ASYNC110 - the tool is told nothing
                await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await wait_until_async(lambda: "cancelled" in executed_tools)
        assert executed_tools == ["waiting", "cancelled"]

    asyncio.run(work())


def test_newer_version_uses_headers_without_sessions() -> None:
    async def work() -> None:
        async with (
            serve_tools(build_tool_server([ADD_TOOL])) as offered,
            open_toolset(server_at(offered.url, NEW_VERSION), "me") as toolset,
        ):
            await call_tool(toolset, "add", {"a": 1, "b": 2})
        assert offered.messages_with("initialize") == []
        for one in offered.messages:
            assert one.method == "POST"
            assert "mcp-session-id" not in one.headers
            assert one.headers["mcp-protocol-version"] == NEW_VERSION
            assert one.headers["mcp-method"] == one.body["method"]
            assert one.body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == NEW_VERSION
        (call,) = offered.messages_with("tools/call")
        assert call.headers["mcp-name"] == "add"

    asyncio.run(work())


def test_older_version_uses_handshake_and_session() -> None:
    async def work() -> None:
        async with (
            serve_tools(build_tool_server([ADD_TOOL])) as offered,
            open_toolset(server_at(offered.url, OLD_VERSION), "me") as toolset,
        ):
            await call_tool(toolset, "add", {"a": 1, "b": 2})
        assert offered.messages_with("server/discover") == []
        (begun,) = offered.messages_with("initialize")
        assert begun.body["params"]["protocolVersion"] == OLD_VERSION
        (call,) = offered.messages_with("tools/call")
        assert "mcp-session-id" in call.headers
        assert "mcp-method" not in call.headers
        assert not [key for key in call.body["params"].get("_meta", {}) if "/" in key]

    asyncio.run(work())


def test_tool_list_has_a_ttl_in_the_newer_version_only() -> None:
    async def work() -> None:
        async with serve_tools(build_tool_server([ADD_TOOL])) as offered:
            async with RawMcpClient(offered.url, NEW_VERSION, ELICITATION_META) as plain:
                new = (await plain.request("tools/list", {}))["result"]
                discovered = (await plain.request("server/discover", {}))["result"]
            async with RawMcpClient(offered.url, OLD_VERSION, {}) as plain:
                old = (await plain.request("tools/list", {}))["result"]
        assert (new["ttlMs"], new["cacheScope"], new["resultType"]) == (60_000, "private", "complete")
        assert discovered["supportedVersions"] == [NEW_VERSION]
        assert set(old) == {"tools"}

    asyncio.run(work())


def test_unlisted_methods_are_not_found() -> None:
    """The server has no resources, so it never sends either code for a missing resource."""

    async def work() -> None:
        async with serve_tools(build_tool_server([ADD_TOOL])) as offered:
            for version in MCP_VERSIONS:
                async with RawMcpClient(offered.url, version, ELICITATION_META) as plain:
                    answer = await plain.request("resources/read", {"uri": "file:///etc/passwd"})
                    assert answer["error"]["code"] == -32601

    asyncio.run(work())


def test_unknown_protocol_version_is_refused() -> None:
    async def work() -> None:
        async with serve_tools(build_tool_server([ADD_TOOL])) as offered:
            meta = {**ELICITATION_META, "io.modelcontextprotocol/protocolVersion": "2031-01-01"}
            async with RawMcpClient(offered.url, NEW_VERSION, meta, **{"mcp-protocol-version": "2031-01-01"}) as plain:
                answer = await plain.request("tools/list", {})
        assert answer["error"]["code"] == -32022
        assert NEW_VERSION in answer["error"]["data"]["supported"]

    asyncio.run(work())


@both
def test_clients_are_notified_of_tool_changes(version: str) -> None:
    async def work() -> None:
        tools: list[Tool] = [ADD_TOOL]
        served = build_tool_server([])

        async def offered_now() -> list[Tool]:
            return tools

        served._list_tools = offered_now
        async with serve_tools(served) as offered, open_toolset(server_at(offered.url, version), "me") as toolset:
            noticed = asyncio.Event()
            toolset.on_change = noticed.set
            assert [one.name for one in await toolset.tools()] == ["me__add"]
            tools.append(CONFIRM)
            while not noticed.is_set():  # it may not listen yet
                await served.notify_changed()
                await asyncio.sleep(0.01)
            assert [one.name for one in await toolset.tools()] == ["me__add", "me__confirm"]

    asyncio.run(work())


@both
def test_tools_of_configured_servers_are_offered(version: str) -> None:
    """Forms and progress of a configured server are forwarded to the client."""

    async def work() -> None:
        behind = McpToolset("far", scripted_server(OLD_VERSION))
        notices: list[str] = []
        schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        async with (
            serve_tools(build_tool_server([ADD_TOOL, behind])) as offered,
            open_toolset(server_at(offered.url, version), "me") as toolset,
        ):
            form_output = await call_tool(toolset, "far__ask", {"schema": schema}, RecordingApprover("Ada"))
            assert json.loads(text_of_output(form_output)) == {"action": "accept", "content": {"name": "Ada"}}
            await (await find_tool(toolset, "far__progress")).run({}, call_context(progress=notices.append))
            failed = await call_tool(toolset, "far__fail")
            assert (failed.is_error, text_of_output(failed)) == (True, "the disk is full")
        assert notices == ["1/2 part 1", "2/2 part 2"]
        await behind.close()

    asyncio.run(work())


def test_grammar_tool_has_one_text_argument() -> None:
    async def shout(arguments: Arguments, calling: ToolContext) -> str:
        return str(arguments).upper()

    async def work() -> None:
        grammar = Grammar(syntax="regex", definition="[a-z]+")
        served = build_tool_server([Tool(name="shout", run=shout, grammar=grammar)])
        async with serve_tools(served) as offered, open_toolset(server_at(offered.url, NEW_VERSION), "me") as toolset:
            assert text_of_output(await call_tool(toolset, "shout", {"input": "abc"})) == "ABC"
            assert (await call_tool(toolset, "shout", {"input": "123"})).is_error

    asyncio.run(work())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "127.0.0.1@evil.example"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://localhost:3000"}, 200),
        ({"host": "localhost:1"}, 200),
    ],
)
def test_foreign_origin_or_host_is_rejected(headers: dict[str, str], status: int) -> None:
    async def work() -> None:
        async with (
            serve_tools(build_tool_server([ADD_TOOL])) as offered,
            RawMcpClient(offered.url, NEW_VERSION, ELICITATION_META) as plain,
        ):
            message = {"method": "tools/list", "id": 1, "params": {"_meta": ELICITATION_META}}
            assert (await plain.post(message, **{"mcp-method": "tools/list"}, **headers)).status_code == status

    asyncio.run(work())


def test_requests_without_a_key_are_rejected() -> None:
    async def work() -> None:
        async with serve_tools(build_tool_server([ADD_TOOL]), keys=["a-long-enough-key"]) as offered:
            message = {"method": "tools/list", "id": 1, "params": {"_meta": ELICITATION_META}}
            async with RawMcpClient(offered.url, NEW_VERSION, ELICITATION_META) as plain:
                assert (await plain.post(message)).status_code == 401
                right = {"authorization": "Bearer a-long-enough-key", "mcp-method": "tools/list"}
                assert (await plain.post(message, **right)).status_code == 200
                in_query = f"{offered.url}?key=a-long-enough-key"
                assert (await plain._client.post(in_query, json=message)).status_code == 401
            settings = server_at(offered.url, "auto", headers={"Authorization": "Bearer a-long-enough-key"})
            async with open_toolset(settings, "me") as toolset:
                assert await toolset.tools()

    asyncio.run(work())


def test_client_headers_do_not_reach_configured_servers() -> None:
    async def work() -> None:
        async with serve_tools(build_tool_server([ADD_TOOL])) as far:
            behind = McpToolset("far", server_at(far.url, NEW_VERSION))
            async with serve_tools(build_tool_server([behind]), keys=["a-long-enough-key"]) as near:
                headers = {"Authorization": "Bearer a-long-enough-key", "X-Who": "me"}
                async with open_toolset(server_at(near.url, OLD_VERSION, headers=headers), "me") as toolset:
                    await call_tool(toolset, "far__add", {"a": 1, "b": 2})
            await behind.close()
            for one in non_empty(far.messages):
                assert not {"authorization", "mcp-session-id", "x-who"} & one.headers.keys()

    asyncio.run(work())


def test_results_are_encoded_as_mcp_content() -> None:
    parts = (
        Text(text="t"),
        Data(json=json.dumps({"a": 1}).encode()),  # type: ignore[arg-type]
        Media(kind="image", source=Inline(data="aQ=="), media_type="image/png"),
        Media(kind="audio", source=Inline(data="aQ=="), media_type="audio/wav"),
        Media(kind="document", source=PlainText(text="d"), media_type="text/plain", name="file:///d"),
        Media(kind="document", source=Inline(data="aQ=="), media_type="application/pdf", name="d.pdf"),
        Media(kind="image", source=Url(url="https://x.example/i.png")),
    )
    blocks = content.encode_result(ToolOutput(content=parts)).content
    assert [block.type for block in blocks] == [
        "text",
        "text",
        "image",
        "audio",
        "resource",
        "resource",
        "resource_link",
    ]
    again = content.decode_result(content.encode_result(ToolOutput(content=parts[:5], structured=[1])))
    assert again.content[2:] == parts[2:5]
    assert again.structured == [1]


@both
@pytest.mark.parametrize(("level", "expected"), [("warning", ["warning"]), ("debug", ["debug", "info", "warning"])])
def test_logs_of_a_tool_reach_the_client_from_its_level_on(version: str, level: LogLevel, expected: list[str]) -> None:
    async def run_logging(arguments: Arguments, calling: ToolContext) -> str:
        for each in ("debug", "loud", "warning"):  # an unknown level counts as `info`
            calling.report_log(each, f"a message at {each}")
        return "done"

    logged: list[str] = []

    async def work() -> None:
        served = build_tool_server([Tool(name="log", run=run_logging)])
        async with (
            serve_tools(served) as offered,
            open_toolset(replace(server_at(offered.url, version), log_level=level), "me") as toolset,
        ):
            context = replace(call_context(), report_log=lambda each, text: logged.append(each))
            await (await find_tool(toolset, "log")).run({}, context)

    asyncio.run(work())
    assert logged == expected


def test_log_level_of_an_older_session_limits_what_is_sent() -> None:
    async def run_logging(arguments: Arguments, calling: ToolContext) -> str:
        calling.report_log("info", "unwanted")
        calling.report_log("error", "wanted")
        return "done"

    async def work() -> str:
        served = build_tool_server([Tool(name="log", run=run_logging)])
        async with serve_tools(served) as offered, RawMcpClient(offered.url, OLD_VERSION, {}) as client:
            await client.request("logging/setLevel", {"level": "error"})
            call = {"method": "tools/call", "id": 2, "params": {"name": "log", "arguments": {}}}
            return (await client.post(call)).text

    text = asyncio.run(work())
    assert "wanted" in text.replace("unwanted", "")
    assert "unwanted" not in text
