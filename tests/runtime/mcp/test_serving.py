"""toolwire as an MCP server, of both versions, over HTTP and stdio, asked by toolwire as a client."""

import asyncio
import json
from typing import Any, Self

import httpx2
import mcp_types as types
import pytest

from tests.loops import some
from tests.patience import PATIENCE, wait_until_async
from tests.runtime.mcp.offering import made, offering
from tests.runtime.mcp.playing import NEW, OLD, VERSIONS, Someone, actor, called, calling, playing, tool_of, words
from toolwire.canonical.content import Data, Inline, Media, PlainText, Text, Url
from toolwire.canonical.tools import Grammar
from toolwire.runtime.approval import Ask
from toolwire.runtime.mcp import content
from toolwire.runtime.mcp.eliciting import Eliciting
from toolwire.runtime.mcp.settings import Server
from toolwire.runtime.mcp.suspended import Calls
from toolwire.runtime.mcp.toolset import McpToolset
from toolwire.runtime.policy import Policy
from toolwire.runtime.toolset import Annotations, Arguments, Calling, Output, Tool, ToolFault

both = pytest.mark.parametrize("version", VERSIONS)


def at(url: str, version: str, **more: Any) -> Server:
    return Server(url=url, version=version, timeout=PATIENCE, **more)  # type: ignore[arg-type]


NUMBERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
ran: list[str] = []


async def add(arguments: Arguments, calling: Calling) -> Output:
    ran.append("add")
    calling.progress("1/2 half")
    calling.progress("2/2")
    total = arguments["a"] + arguments["b"]
    return Output(content=(Text(text=str(total)),), structured={"sum": total})


ADD = Tool(
    name="add",
    run=add,
    description="Adds",
    parameters=NUMBERS,
    output_schema={"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]},
    annotations=Annotations(read_only=True),
)


async def confirm(arguments: Arguments, calling: Calling) -> str:
    ran.append("begun")
    answers = [await calling.person.answer("Sure?", ("yes", "no")), await calling.person.answer("Why?")]
    ran.append("ended")
    return json.dumps(answers)


CONFIRM = Tool(name="confirm", run=confirm)


async def fail(arguments: Arguments, calling: Calling) -> str:
    raise ToolFault("it can't be done")


async def wait(arguments: Arguments, calling: Calling) -> str:
    ran.append("waiting")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        ran.append("cancelled")
        raise
    return ""


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


@both
def test_tools_are_offered_and_carried_out(version: str) -> None:
    async def work() -> None:
        told: list[str] = []
        async with offering(made([ADD])) as offered, playing(at(offered.url, version), "me") as toolset:
            tool = await tool_of(toolset, "add")
            assert (tool.description, tool.parameters, tool.output_schema) == (
                ADD.description,
                NUMBERS,
                ADD.output_schema,
            )
            assert tool.annotations == Annotations(read_only=True)
            output = await tool.run({"a": 1, "b": 2}, calling(progress=told.append))
            assert (words(output), output.structured) == ("3", {"sum": 3})
        assert told == ["1/2 half", "2/2"]

    asyncio.run(work())


@both
def test_a_bad_call_and_a_failing_tool_are_tool_errors_and_an_unknown_tool_is_none(version: str) -> None:
    async def work() -> None:
        served = made([ADD, Tool(name="fail", run=fail)])
        async with offering(served) as offered, playing(at(offered.url, version), "me") as toolset:
            bad = await called(toolset, "add", {"a": "one"})
            assert bad.is_error
            assert "nothing was run" in words(bad)
            assert ran == []
            failed = await called(toolset, "fail")
            assert (failed.is_error, words(failed)) == (True, "it can't be done")
            await toolset.tools()
            client = await toolset._connection.client()
            with pytest.raises(Exception, match="Unknown tool: rm") as error:
                await client.session.call_tool("rm", {})
            assert getattr(error.value, "code", None) == -32602

    asyncio.run(work())


@both
def test_every_call_goes_past_the_policy(version: str) -> None:
    async def work() -> None:
        served = made([ADD], Policy(allow=["*"], deny=["add(a=13)"]))
        async with offering(served) as offered, playing(at(offered.url, version), "me") as toolset:
            assert not (await called(toolset, "add", {"a": 1, "b": 2})).is_error
            ran.clear()
            denied = await called(toolset, "add", {"a": 13, "b": 2})
            assert denied.is_error
            assert words(denied).startswith("denied: ")
            assert ran == []

    asyncio.run(work())


@both
@pytest.mark.parametrize("answer", ["yes", "no"])
def test_what_the_policy_asks_is_asked_of_the_clients_user(version: str, answer: str) -> None:
    async def work() -> None:
        person = Someone(answer)
        served = made([ADD], Policy(ask=["add"]))
        async with offering(served) as offered, playing(at(offered.url, version), "me") as toolset:
            output = await called(toolset, "add", {"a": 1, "b": 2}, person)
        assert output.is_error == (answer == "no")
        assert ran == (["add"] if answer == "yes" else [])
        question, choices = person.asked[0]
        assert 'Allow add with {"a": 1, "b": 2}? (the rule ask add)' in question
        assert choices == ("yes", "no")

    asyncio.run(work())


def test_s_7_the_clients_user_sees_the_complete_call() -> None:
    """S-7: the form showed the first 2,000 characters of the arguments."""
    forms: list[str] = []

    async def fill(_: str, form: types.ElicitRequestFormParams) -> types.ElicitResult:
        forms.append(form.message)
        return types.ElicitResult(action="accept", content={"answer": "no"})

    arguments = f"git status{' ' * 2500}; touch HIDDEN"
    ask = Ask(run="r", call_id="c", tool="sh", arguments=arguments, why="no rule allows it")
    assert asyncio.run(Eliciting(fill).approve(ask)) == "no"
    assert arguments in forms[0]


@both
def test_a_client_that_can_not_ask_is_denied(version: str) -> None:
    async def work() -> None:
        async with offering(made([ADD], Policy(ask=["add"]))) as offered:
            meta = {
                "io.modelcontextprotocol/protocolVersion": NEW,
                "io.modelcontextprotocol/clientInfo": {"name": "plain", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            }
            async with Plain(offered.url, version, meta) as plain:
                result = await plain.request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
        assert result["result"]["isError"] is True
        assert "nobody is there to ask" in result["result"]["content"][0]["text"]
        assert ran == []

    asyncio.run(work())


class Plain:
    """A client that writes what it is told to."""

    def __init__(self, url: str, version: str, meta: dict[str, Any], **headers: str) -> None:
        self._url, self._version, self._meta = url, version, meta
        self._client = httpx2.AsyncClient(trust_env=False, timeout=PATIENCE)
        self._headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": version, **headers}

    async def __aenter__(self) -> Self:
        if self._version == OLD:
            who = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "plain", "version": "1"}}
            response = await self.post({"method": "initialize", "id": 0, "params": who})
            if (session := response.headers.get("mcp-session-id")) is not None:
                self._headers["mcp-session-id"] = session
            await self.post({"method": "notifications/initialized"})
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def post(self, message: dict[str, Any], **headers: str) -> httpx2.Response:
        return await self._client.post(self._url, json={"jsonrpc": "2.0", **message}, headers=self._headers | headers)

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        headers = {}
        if self._version == NEW:
            params = {**params, "_meta": self._meta}
            headers = {"mcp-method": method}
            if (name := params.get("name", params.get("uri"))) is not None:
                headers["mcp-name"] = name
        response = await self.post({"method": method, "id": 1, "params": params}, **headers)
        text = response.text
        lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
        found: dict[str, Any] = json.loads(lines[-1] if lines else text)
        return found


@both
def test_a_tool_that_asks_is_suspended_and_runs_once(version: str) -> None:
    async def work() -> None:
        person = Someone("yes", "because")
        async with offering(made([CONFIRM])) as offered, playing(at(offered.url, version), "me") as toolset:
            output = await called(toolset, "confirm", person=person)
        assert json.loads(words(output)) == ["yes", "because"]
        assert ran == ["begun", "ended"]
        assert [choices for _, choices in person.asked] == [("yes", "no"), ()]
        rounds = len(offered.asked("tools/call"))
        assert rounds == (1 if version == OLD else 3)

    asyncio.run(work())


CAN_ASK = {
    "io.modelcontextprotocol/protocolVersion": NEW,
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}


def test_a_suspended_call_is_resumed_by_its_own_state_once_and_with_the_same_arguments() -> None:
    async def work() -> None:
        async with offering(made([CONFIRM])) as offered, Plain(offered.url, NEW, CAN_ASK) as plain:
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
        assert ran == ["begun"]

    asyncio.run(work())


def test_a_suspended_call_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.runtime.mcp.suspended._PATIENCE", 0.0)

    async def work() -> None:
        async with offering(made([CONFIRM])) as offered, Plain(offered.url, NEW, CAN_ASK) as plain:
            first = (await plain.request("tools/call", {"name": "confirm", "arguments": {}}))["result"]
            again = {"name": "confirm", "arguments": {}, "inputResponses": {}, "requestState": first["requestState"]}
            assert (await plain.request("tools/call", again))["error"]["code"] == -32602

    asyncio.run(work())


def test_only_so_many_calls_are_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.runtime.mcp.suspended._WAITING", 3)

    async def work() -> None:
        served = made([CONFIRM])
        async with offering(served) as offered, Plain(offered.url, NEW, CAN_ASK) as plain:
            for _ in range(10):
                await plain.request("tools/call", {"name": "confirm", "arguments": {}})
            calls: Calls = served._calls
            assert len(calls._waiting) <= 4

    asyncio.run(work())


@both
def test_a_call_that_is_cancelled_is_stopped(version: str) -> None:
    async def work() -> None:
        served = made([Tool(name="wait", run=wait)])
        async with offering(served) as offered, playing(at(offered.url, version), "me") as toolset:
            waiting = asyncio.create_task(called(toolset, "wait"))
            while "waiting" not in ran:  # noqa: ASYNC110 - the tool is told nothing
                await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await wait_until_async(lambda: "cancelled" in ran)
        assert ran == ["waiting", "cancelled"]

    asyncio.run(work())


def test_the_newer_version_is_spoken_without_sessions_and_with_its_headers() -> None:
    async def work() -> None:
        async with offering(made([ADD])) as offered, playing(at(offered.url, NEW), "me") as toolset:
            await called(toolset, "add", {"a": 1, "b": 2})
        assert offered.asked("initialize") == []
        for one in offered.sent:
            assert one.method == "POST"
            assert "mcp-session-id" not in one.headers
            assert one.headers["mcp-protocol-version"] == NEW
            assert one.headers["mcp-method"] == one.body["method"]
            assert one.body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == NEW
        (call,) = offered.asked("tools/call")
        assert call.headers["mcp-name"] == "add"

    asyncio.run(work())


def test_the_older_version_is_spoken_with_a_handshake_and_a_session() -> None:
    async def work() -> None:
        async with offering(made([ADD])) as offered, playing(at(offered.url, OLD), "me") as toolset:
            await called(toolset, "add", {"a": 1, "b": 2})
        assert offered.asked("server/discover") == []
        (begun,) = offered.asked("initialize")
        assert begun.body["params"]["protocolVersion"] == OLD
        (call,) = offered.asked("tools/call")
        assert "mcp-session-id" in call.headers
        assert "mcp-method" not in call.headers
        assert not [key for key in call.body["params"].get("_meta", {}) if "/" in key]

    asyncio.run(work())


def test_lists_say_how_long_they_count_only_where_the_version_has_it() -> None:
    async def work() -> None:
        async with offering(made([ADD])) as offered:
            async with Plain(offered.url, NEW, CAN_ASK) as plain:
                new = (await plain.request("tools/list", {}))["result"]
                found = (await plain.request("server/discover", {}))["result"]
            async with Plain(offered.url, OLD, {}) as plain:
                old = (await plain.request("tools/list", {}))["result"]
        assert (new["ttlMs"], new["cacheScope"], new["resultType"]) == (60_000, "private", "complete")
        assert found["supportedVersions"] == [NEW]
        assert set(old) == {"tools"}

    asyncio.run(work())


def test_what_is_not_offered_is_not_found() -> None:
    """001:343: the server has no resources, so that neither code of a resource that is not found is ever sent."""

    async def work() -> None:
        async with offering(made([ADD])) as offered:
            for version in VERSIONS:
                async with Plain(offered.url, version, CAN_ASK) as plain:
                    answer = await plain.request("resources/read", {"uri": "file:///etc/passwd"})
                    assert answer["error"]["code"] == -32601

    asyncio.run(work())


def test_a_version_that_is_not_known_is_refused() -> None:
    async def work() -> None:
        async with offering(made([ADD])) as offered:
            meta = {**CAN_ASK, "io.modelcontextprotocol/protocolVersion": "2031-01-01"}
            async with Plain(offered.url, NEW, meta, **{"mcp-protocol-version": "2031-01-01"}) as plain:
                answer = await plain.request("tools/list", {})
        assert answer["error"]["code"] == -32022
        assert NEW in answer["error"]["data"]["supported"]

    asyncio.run(work())


@both
def test_clients_are_told_that_tools_changed(version: str) -> None:
    async def work() -> None:
        tools: list[Tool] = [ADD]
        served = made([])

        async def offered_now() -> list[Tool]:
            return tools

        served._offered = offered_now
        async with offering(served) as offered, playing(at(offered.url, version), "me") as toolset:
            noticed = asyncio.Event()
            toolset.on_change = noticed.set
            assert [one.name for one in await toolset.tools()] == ["me__add"]
            tools.append(CONFIRM)
            while not noticed.is_set():  # it may not listen yet
                await served.changed()
                await asyncio.sleep(0.01)
            assert [one.name for one in await toolset.tools()] == ["me__add", "me__confirm"]

    asyncio.run(work())


@both
def test_servers_behind_it_are_offered_with_it(version: str) -> None:
    """A form of a server behind it goes whole to the client's user, and a progress to the client."""

    async def work() -> None:
        behind = McpToolset("far", actor(OLD))
        told: list[str] = []
        schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        async with offering(made([ADD, behind])) as offered, playing(at(offered.url, version), "me") as toolset:
            asked = await called(toolset, "far__ask", {"schema": schema}, Someone("Ada"))
            assert json.loads(words(asked)) == {"action": "accept", "content": {"name": "Ada"}}
            await (await tool_of(toolset, "far__progress")).run({}, calling(progress=told.append))
            failed = await called(toolset, "far__fail")
            assert (failed.is_error, words(failed)) == (True, "the disk is full")
        assert told == ["1/2 part 1", "2/2 part 2"]
        await behind.close()

    asyncio.run(work())


def test_a_grammar_tool_is_offered_with_one_text() -> None:
    async def shout(arguments: Arguments, calling: Calling) -> str:
        return str(arguments).upper()

    async def work() -> None:
        grammar = Grammar(syntax="regex", definition="[a-z]+")
        served = made([Tool(name="shout", run=shout, grammar=grammar)])
        async with offering(served) as offered, playing(at(offered.url, NEW), "me") as toolset:
            assert words(await called(toolset, "shout", {"input": "abc"})) == "ABC"
            assert (await called(toolset, "shout", {"input": "123"})).is_error

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
def test_a_page_of_another_origin_or_under_another_name_is_turned_away(headers: dict[str, str], status: int) -> None:
    async def work() -> None:
        async with offering(made([ADD])) as offered, Plain(offered.url, NEW, CAN_ASK) as plain:
            message = {"method": "tools/list", "id": 1, "params": {"_meta": CAN_ASK}}
            assert (await plain.post(message, **{"mcp-method": "tools/list"}, **headers)).status_code == status

    asyncio.run(work())


def test_with_keys_only_who_has_one_gets_in() -> None:
    async def work() -> None:
        async with offering(made([ADD]), keys=["a-long-enough-key"]) as offered:
            message = {"method": "tools/list", "id": 1, "params": {"_meta": CAN_ASK}}
            async with Plain(offered.url, NEW, CAN_ASK) as plain:
                assert (await plain.post(message)).status_code == 401
                right = {"authorization": "Bearer a-long-enough-key", "mcp-method": "tools/list"}
                assert (await plain.post(message, **right)).status_code == 200
                in_query = f"{offered.url}?key=a-long-enough-key"
                assert (await plain._client.post(in_query, json=message)).status_code == 401
            settings = at(offered.url, "auto", headers={"Authorization": "Bearer a-long-enough-key"})
            async with playing(settings, "me") as toolset:
                assert await toolset.tools()

    asyncio.run(work())


def test_nothing_of_a_callers_headers_goes_to_a_server_behind() -> None:
    async def work() -> None:
        async with offering(made([ADD])) as far:
            behind = McpToolset("far", at(far.url, NEW))
            async with offering(made([behind]), keys=["a-long-enough-key"]) as near:
                headers = {"Authorization": "Bearer a-long-enough-key", "X-Who": "me"}
                async with playing(at(near.url, OLD, headers=headers), "me") as toolset:
                    await called(toolset, "far__add", {"a": 1, "b": 2})
            await behind.close()
            for one in some(far.sent):
                assert not {"authorization", "mcp-session-id", "x-who"} & one.headers.keys()

    asyncio.run(work())


def test_results_are_written_as_mcp_has_them() -> None:
    parts = (
        Text(text="t"),
        Data(json=json.dumps({"a": 1}).encode()),  # type: ignore[arg-type]
        Media(kind="image", source=Inline(data="aQ=="), media_type="image/png"),
        Media(kind="audio", source=Inline(data="aQ=="), media_type="audio/wav"),
        Media(kind="document", source=PlainText(text="d"), media_type="text/plain", name="file:///d"),
        Media(kind="document", source=Inline(data="aQ=="), media_type="application/pdf", name="d.pdf"),
        Media(kind="image", source=Url(url="https://x.example/i.png")),
    )
    blocks = content.encode(Output(content=parts)).content
    assert [block.type for block in blocks] == [
        "text",
        "text",
        "image",
        "audio",
        "resource",
        "resource",
        "resource_link",
    ]
    again = content.decode(content.encode(Output(content=parts[:5], structured=[1])))
    assert again.content[2:] == parts[2:5]
    assert again.structured == [1]
