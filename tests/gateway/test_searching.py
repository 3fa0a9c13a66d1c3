"""A client that declares its provider's own tool search, in front of upstreams that have none."""

import asyncio
import json
import time
from typing import Any

import msgspec
import pytest

from tests.gateway.running import Running, in_front_of, run, running
from tests.gateway.test_exchange import Script
from tests.gateway.test_faults import STREAM, events_of, piece, whole
from tests.sdk import accept_response
from tests.sdk_stream import fold_body
from tests.upstream.sockets import upstream
from toolwire.canonical.content import Message, Reasoning, ReasoningText, Seal, Text, ToolCall
from toolwire.canonical.fold import Folder, unfold
from toolwire.canonical.request import Request
from toolwire.canonical.response import Candidate, Response, Stop, Usage
from toolwire.canonical.tools import FunctionTool, NativeTool
from toolwire.codec.interface import Context, Route, Target
from toolwire.codec.tools import tools_in_force
from toolwire.gateway.passing import Asked
from toolwire.protocols import PROTOCOLS
from toolwire.runtime.search.index import Entry, Index

UPSTREAMS = ["openai-chat", "gemini", "gemini-interactions", "ollama", "openrouter"]
CLIENTS = ["anthropic", "openai-responses"]
NAMES = {"send_email": "Sends an email.", "pay_invoice": "Pays an invoice.", "read_file": "Reads a file."}
SCHEMA = {"type": "object", "properties": {"what": {"type": "string"}}}
REGEX = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
BM25 = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}


def asked(client: str, *, stream: bool = False, search: dict[str, Any] = BM25, more: Any = ()) -> tuple[str, bytes]:
    """A request with one tool at once, two that are loaded later, and a search."""
    if client == "anthropic":
        tools: list[Any] = [search]
        tools += [
            {"name": name, "description": about, "input_schema": SCHEMA, "defer_loading": name != "read_file"}
            for name, about in NAMES.items()
        ]
        said = [{"role": "user", "content": "Pay it."}, *more]
        body: dict[str, Any] = {"max_tokens": 99, "messages": said}
        path = "/v1/messages"
    else:
        tools = [{"type": "tool_search"}]
        tools += [
            {"type": "function", "name": name, "description": about, "parameters": SCHEMA, "strict": False}
            | {"defer_loading": name != "read_file"}
            for name, about in NAMES.items()
        ]
        body = {"input": [{"role": "user", "content": "Pay it."}, *more], "store": False}
        path = "/v1/responses"
    return path, json.dumps({"model": "m", "tools": tools, "stream": stream, **body}).encode()


def answer(*parts: Any, reason: Any = "tool_use") -> Response:
    usage = Usage(input_tokens=10, output_tokens=5, total=15)
    said = Message(role="assistant", parts=parts)
    return Response(
        origin="", id="r", model="m", candidates=(Candidate(messages=(said,), stop=Stop(reason=reason)),), usage=usage
    )


def call(name: str, id: str = "call_1", **arguments: Any) -> ToolCall:
    return ToolCall(id=id, name=name, arguments=json.dumps(arguments))


def wired(protocol: str, response: Response, *, stream: bool) -> bytes:
    """The answer as the upstream writes it."""
    codec, context = PROTOCOLS[protocol], Context(created=1)
    if not stream:
        return whole("200 OK", codec.encode_response(response, context).to_bytes())
    encoder = codec.stream_encoder(context)
    data = encoder.encode(list(unfold(response))) + encoder.close()
    head = STREAM.replace(b"text/event-stream", b"application/x-ndjson") if protocol == "ollama" else STREAM
    return head + piece(data) + b"0\r\n\r\n"


async def told(gateway: Running, client: str, path: str, body: bytes, *, stream: bool) -> tuple[Any, Response]:
    """The answer as the client gets it, and what it means."""
    got = await gateway.post(path, body)
    data = await got.read(1_000_000)
    assert got.status == 200, data
    codec = PROTOCOLS[client]
    if stream:
        folder = Folder()
        for event in events_of(client, data):
            folder.add(event)
        response = folder.response()
    else:
        response = codec.decode_response(data, Context())
    # As the official SDK has it, which would repeat it.
    got_whole = fold_body(client, data) if stream else json.loads(data)
    assert accept_response(client, got_whole) is None
    return got_whole, response


def declared(protocol: str, body: Any) -> list[str]:
    request = PROTOCOLS[protocol].decode_request(json.dumps(body).encode(), Route())
    return [placed.tool.name or "" for placed in tools_in_force(request)]


def items(client: str, body: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body["content" if client == "anthropic" else "output"]
    return found


SEARCHES: dict[str, list[tuple[str, str | None]]] = {
    "anthropic": [("server_tool_use", "tool_search_tool_bm25"), ("tool_search_tool_result", None)],
    "openai-responses": [("tool_search_call", None), ("tool_search_output", None)],
}
CALLED = {"anthropic": ("tool_use", "pay_invoice"), "openai-responses": ("function_call", "pay_invoice")}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("protocol", UPSTREAMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_the_gateway_searches_and_the_client_sees_its_own_search(client: str, protocol: str, stream: bool) -> None:
    async def work() -> None:
        first = answer(Text(text="Let me look."), call("tool_search", query="settle an invoice"))
        second = answer(call("pay_invoice", "call_2", what="it"))
        script = Script(*(wired(protocol, one, stream=stream) for one in (first, second)))
        async with upstream(script) as origin, running(in_front_of(origin, protocol)) as gateway:
            path, body = asked(client, stream=stream)
            got, response = await told(gateway, client, path, body, stream=stream)
            assert len(script.asked) == 2
            before, after = script.bodies
            assert declared(protocol, before) == ["tool_search", "read_file"]
            assert declared(protocol, after) == ["tool_search", "read_file", "pay_invoice"]
            kinds = [
                (one["type"], one.get("name")) for one in items(client, got) if one["type"] not in ("text", "message")
            ]
            assert kinds == [*SEARCHES[client], CALLED[client]]
            assert "pay_invoice" in json.dumps(items(client, got)[-2])
            assert '"name": "tool_search"' not in json.dumps(got)
            assert response.candidates[0].stop is not None
            assert response.candidates[0].stop.reason == "tool_use"
            assert response.usage is not None
            assert response.usage.output_tokens == 10
            assert [
                part.text for one in response.candidates[0].messages for part in one.parts if isinstance(part, Text)
            ]

    run(work())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("client", "protocol", "search"),
    [("anthropic", "openai-responses", "tool_search"), ("openai-responses", "anthropic", "tool_search_tool_bm25")],
)
def test_an_upstream_that_searches_itself_is_let(client: str, protocol: str, search: str, stream: bool) -> None:
    async def work() -> None:
        script = Script(wired(protocol, answer(call("pay_invoice", what="it")), stream=stream))
        async with upstream(script) as origin, running(in_front_of(origin, protocol)) as gateway:
            path, body = asked(client, stream=stream)
            got, _ = await told(gateway, client, path, body, stream=stream)
        (sent,) = script.bodies
        first, *functions = PROTOCOLS[protocol].decode_request(json.dumps(sent).encode(), Route()).tools or ()
        assert isinstance(first, NativeTool)
        assert first.kind == search
        assert [(one.name, bool(getattr(one, "defer", None))) for one in functions] == [
            (name, name != "read_file") for name in NAMES
        ]
        assert [(one["type"], one["name"]) for one in items(client, got)] == [CALLED[client]]

    run(work())


@pytest.mark.parametrize("protocol", ["anthropic", "openai-responses"])
def test_a_model_that_cannot_search_is_not_left_to_it(protocol: str) -> None:
    async def work() -> None:
        client, model = {
            "anthropic": ("openai-responses", "claude-3-opus"),
            "openai-responses": ("anthropic", "gpt-4o"),
        }[protocol]
        script = Script(
            wired(protocol, answer(call("tool_search", query="settle an invoice")), stream=False),
            wired(protocol, answer(call("pay_invoice", "call_2", what="it")), stream=False),
        )
        async with upstream(script) as origin, running(in_front_of(origin, protocol)) as gateway:
            path, body = asked(client)
            await told(
                gateway, client, path, body.replace(b'"model": "m"', f'"model": "{model}"'.encode()), stream=False
            )
        assert [declared(protocol, one) for one in script.bodies] == [
            ["tool_search", "read_file"],
            ["tool_search", "read_file", "pay_invoice"],
        ]

    run(work())


@pytest.mark.parametrize("protocol", UPSTREAMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_leg_only_adds_to_what_was_sent(client: str, protocol: str) -> None:
    async def work() -> None:
        first = answer(call("tool_search", query="settle an invoice"))
        second = answer(Text(text="Done."), reason="end_turn")
        script = Script(*(wired(protocol, one, stream=False) for one in (first, second)))
        async with upstream(script) as origin, running(in_front_of(origin, protocol)) as gateway:
            path, body = asked(client)
            await told(gateway, client, path, body, stream=False)
            before, after = script.bodies
            for field in ("messages", "contents", "input"):
                assert after.get(field, [])[: len(before.get(field, []))] == before.get(field, [])
            checked = PROTOCOLS[protocol].check_request(msgspec.json.decode(json.dumps(after)))
            assert [one.rule for one in checked] == []

    run(work())


@pytest.mark.parametrize("client", CLIENTS)
def test_what_was_found_is_declared_in_the_next_request(client: str) -> None:
    async def work() -> None:
        first = answer(call("tool_search", query="settle an invoice"))
        script = Script(
            wired("openai-chat", first, stream=False),
            wired("openai-chat", answer(call("pay_invoice", "call_2", what="it")), stream=False),
            wired("openai-chat", answer(Text(text="Paid."), reason="end_turn"), stream=False),
        )
        async with upstream(script) as origin, running(in_front_of(origin)) as gateway:
            path, body = asked(client)
            got, _ = await told(gateway, client, path, body, stream=False)
            if client == "anthropic":
                id = got["content"][-1]["id"]
                result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "ok"}]}
                more: list[Any] = [{"role": "assistant", "content": got["content"]}, result]
            else:
                result = {"type": "function_call_output", "call_id": got["output"][-1]["call_id"], "output": "ok"}
                more = [*got["output"], result]
            path, body = asked(client, more=more)
            _, response = await told(gateway, client, path, body, stream=False)
            assert declared("openai-chat", script.bodies[2]) == ["tool_search", "pay_invoice", "read_file"]
            assert response.candidates[0].stop == Stop(reason="end_turn", raw=response.candidates[0].stop.raw)  # type: ignore[union-attr]

    run(work())


def test_an_answer_that_also_calls_the_client_ends_there() -> None:
    async def work() -> None:
        both = answer(call("tool_search", query="invoice"), call("read_file", "call_2", what="x"))
        script = Script(wired("openai-chat", both, stream=False))
        async with upstream(script) as origin, running(in_front_of(origin)) as gateway:
            path, body = asked("anthropic")
            got, _ = await told(gateway, "anthropic", path, body, stream=False)
            assert len(script.asked) == 1
            kinds = [one["type"] for one in got["content"]]
            assert kinds == ["server_tool_use", "tool_search_tool_result", "tool_use"]
            assert got["stop_reason"] == "tool_use"

    run(work())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("client", "stop"), [("anthropic", "paused"), ("openai-responses", "end_turn")])
def test_a_model_that_only_searches_is_not_asked_for_ever(client: str, stop: str, stream: bool) -> None:
    async def work() -> None:
        script = Script(wired("openai-chat", answer(call("tool_search", query="invoice")), stream=stream))
        more = "[limits]\npauses = 2"
        async with upstream(script) as origin, running(in_front_of(origin, more=more)) as gateway:
            path, body = asked(client, stream=stream)
            got, response = await told(gateway, client, path, body, stream=stream)
            assert len(script.asked) == 3
            assert len(items(client, got)) == 6
            assert response.candidates[0].stop is not None
            assert response.candidates[0].stop.reason == stop

    run(work())


def test_ids_of_searches_are_unique_and_well_formed() -> None:
    async def work() -> None:
        script = Script(wired("openai-chat", answer(call("tool_search", "call-1.x", query="invoice")), stream=False))
        async with upstream(script) as origin, running(in_front_of(origin)) as gateway:
            path, body = asked("anthropic")
            got, _ = await told(gateway, "anthropic", path, body, stream=False)
            ids = [one["id"] for one in got["content"] if one["type"] == "server_tool_use"]
            assert len(ids) == len(set(ids)) == 6
            assert all(id.startswith("srvtoolu_") and id.isidentifier() for id in ids)
            history = [{"role": "assistant", "content": got["content"]}, {"role": "user", "content": "go on"}]
            path, body = asked("anthropic", more=history)
            assert PROTOCOLS["anthropic"].check_request(json.loads(body)) == []

    run(work())


@pytest.mark.parametrize(
    ("arguments", "why"),
    [({"pattern": "("}, "can't be read"), ({"pattern": "x" * 201}, "200 characters"), ({}, "there is no query")],
)
def test_a_search_that_cannot_be_is_told_to_both(arguments: dict[str, str], why: str) -> None:
    async def work() -> None:
        script = Script(
            wired("openai-chat", answer(call("tool_search", **arguments)), stream=False),
            wired("openai-chat", answer(Text(text="Well."), reason="end_turn"), stream=False),
        )
        async with upstream(script) as origin, running(in_front_of(origin)) as gateway:
            path, body = asked("anthropic", search=REGEX)
            got, _ = await told(gateway, "anthropic", path, body, stream=False)
            assert got["content"][0]["name"] == "tool_search_tool_regex"
            content = got["content"][1]["content"]
            assert (content["type"], content["error_code"]) == ("tool_search_tool_result_error", "invalid_tool_input")
            assert why in content["error_message"]
            (result,) = [one for one in script.bodies[1]["messages"] if one["role"] == "tool"]
            assert result["content"].startswith("[tool error] ")

    run(work())


def test_a_pattern_finds_and_the_loss_is_told_once() -> None:
    async def work() -> None:
        script = Script(
            wired("openai-chat", answer(call("tool_search", pattern="^send_")), stream=False),
            wired("openai-chat", answer(Text(text="Well."), reason="end_turn"), stream=False),
        )
        async with upstream(script) as origin, running(in_front_of(origin)) as gateway:
            path, body = asked("anthropic", search=REGEX)
            got = await gateway.post(path, body)
            found = json.loads(await got.read(100_000))
            references = found["content"][1]["content"]["tool_references"]
            assert references == [{"type": "tool_reference", "tool_name": "send_email"}]
            exchanger = gateway.gateway.app._exchanger
            sent = await exchanger.translate(Asked(client=PROTOCOLS["anthropic"], body=body, route=Route(), tenant=""))
            assert [(one.kind, one.path) for one in sent.losses] == [("approximated", "/tools/0")]

    run(work())


def test_losses_of_other_tools_keep_their_place() -> None:
    async def work() -> None:
        async with upstream(Script()) as origin, running(in_front_of(origin)) as gateway:
            _, body = asked("anthropic")
            request = json.loads(body)
            for number in (2, 3):  # one of them deferred
                request["tools"][number]["eager_input_streaming"] = True
            exchanger = gateway.gateway.app._exchanger
            asking = Asked(client=PROTOCOLS["anthropic"], body=json.dumps(request).encode(), route=Route(), tenant="")
            losses = (await exchanger.translate(asking)).losses
            fields = {f"/tools/{number}/eager_input_streaming" for number in (2, 3)}
            assert {one.path for one in losses} == {"/tools/0", *fields}

    run(work())


@pytest.mark.parametrize("deferred", [True, False])
def test_a_deferred_tool_that_only_programs_may_call_is_refused_as_any(deferred: bool) -> None:
    """It must not be found, and then called by the model itself."""

    async def work() -> None:
        async with upstream(Script()) as origin, running(in_front_of(origin)) as gateway:
            path, body = asked("anthropic")
            request = json.loads(body)
            request["tools"][2] |= {"allowed_callers": ["code_execution_20260120"], "defer_loading": deferred}
            got = await gateway.post(path, json.dumps(request).encode())
            assert got.status == 400
            assert "allowed_callers" in (await got.read(10_000)).decode()

    run(work())


def test_a_tool_of_the_clients_own_keeps_its_name() -> None:
    async def work() -> None:
        script = Script(
            wired("openai-chat", answer(call("tool_search_2", query="invoice")), stream=False),
            wired("openai-chat", answer(call("tool_search", "call_2", what="mine")), stream=False),
        )
        async with upstream(script) as origin, running(in_front_of(origin)) as gateway:
            path, body = asked("anthropic")
            request = json.loads(body)
            request["tools"].append({"name": "tool_search", "input_schema": SCHEMA})
            got, _ = await told(gateway, "anthropic", path, json.dumps(request).encode(), stream=False)
            assert [one["type"] for one in got["content"]] == ["server_tool_use", "tool_search_tool_result", "tool_use"]
            assert got["content"][-1]["name"] == "tool_search"

    run(work())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_member_of_a_namespace_is_found_and_called_by_its_own_name(stream: bool) -> None:
    async def work() -> None:
        script = Script(
            wired("openai-chat", answer(call("tool_search", query="orders")), stream=stream),
            wired("openai-chat", answer(call("crm__list_orders", "call_2", what="x")), stream=stream),
        )
        async with upstream(script) as origin, running(in_front_of(origin)) as gateway:
            path, body = asked("openai-responses", stream=stream)
            request = json.loads(body)
            orders = {"type": "function", "name": "list_orders", "description": "Lists orders.", "parameters": SCHEMA}
            shown = {**orders, "name": "get_order", "description": "Gets one."}
            members = [{**orders, "strict": False, "defer_loading": True}, {**shown, "strict": False}]
            request["tools"].append({"type": "namespace", "name": "crm", "description": "Records.", "tools": members})
            got, _ = await told(gateway, "openai-responses", path, json.dumps(request).encode(), stream=stream)
            before, after = script.bodies
            assert declared("openai-chat", before) == ["tool_search", "read_file", "crm__get_order"]
            assert declared("openai-chat", after) == [*declared("openai-chat", before), "crm__list_orders"]
            _, output, called = got["output"]
            assert (output["tools"][0]["name"], output["tools"][0]["description"]) == ("crm", "Records.")
            assert [one["name"] for one in output["tools"][0]["tools"]] == ["list_orders"]
            assert (called["namespace"], called["name"]) == ("crm", "list_orders")

    run(work())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_name_that_the_upstream_refuses_is_restored_after_it_was_found(stream: bool) -> None:
    async def work() -> None:
        long = "list_all_the_open_orders_" + "x" * 60
        shortened = PROTOCOLS["openai-chat"].encode_request(
            Request(origin="", tools=(FunctionTool(name=long),)), Target()
        )
        alias = json.loads(shortened.to_bytes())["tools"][0]["function"]["name"]
        assert alias != long
        script = Script(
            wired("openai-chat", answer(call("tool_search", query="open orders")), stream=stream),
            wired("openai-chat", answer(call(alias, "call_2", what="x")), stream=stream),
        )
        async with upstream(script) as origin, running(in_front_of(origin)) as gateway:
            path, body = asked("anthropic", stream=stream)
            request = json.loads(body)
            request["tools"].append({"name": long, "input_schema": SCHEMA, "defer_loading": True})
            got, _ = await told(gateway, "anthropic", path, json.dumps(request).encode(), stream=stream)
            assert got["content"][-1]["name"] == long

    run(work())


def test_thoughts_go_back_with_their_proofs() -> None:
    """Gemini refuses a call whose signature is missing."""

    async def work() -> None:
        seal = Seal(issuer="google", data="c2ln", kind="signature")
        thought = Reasoning(content=(ReasoningText(kind="summary", text="Hm."),))
        searching = msgspec.structs.replace(call("tool_search", query="invoice"), seal=seal)
        first, second = answer(thought, searching), answer(Text(text="Done."), reason="end_turn")
        script = Script(*(wired("gemini", one, stream=False) for one in (first, second)))
        async with upstream(script) as origin, running(in_front_of(origin, "gemini")) as gateway:
            path, body = asked("anthropic")
            await told(gateway, "anthropic", path, body, stream=False)
            assert '"thoughtSignature":"c2ln"' in json.dumps(script.bodies[1], separators=(",", ":"))

    run(work())


def test_a_schema_without_end_is_only_a_tool_that_is_hard_to_find() -> None:
    async def work() -> None:
        script = Script(
            wired("openai-chat", answer(call("tool_search", query="invoice")), stream=False),
            wired("openai-chat", answer(Text(text="Well."), reason="end_turn"), stream=False),
        )
        async with upstream(script) as origin, running(in_front_of(origin)) as gateway:
            path, body = asked("anthropic")
            deep = '{"properties":{"p":' * 400 + "{}" + "}}" * 400
            bomb = '{"name":"bomb","defer_loading":true,"input_schema":' + deep + "}"
            request = body.decode()
            tools = request.index('"tools": [') + len('"tools": [')
            request = request[:tools] + bomb + "," + request[tools:]
            got, _ = await told(gateway, "anthropic", path, request.encode(), stream=False)
            references = got["content"][1]["content"]["tool_references"]
            assert [one["tool_name"] for one in references] == ["pay_invoice"]

    run(work())


def test_without_tools_to_find_nothing_is_emulated() -> None:
    async def work() -> None:
        script = Script(wired("openai-chat", answer(Text(text="Well."), reason="end_turn"), stream=False))
        async with upstream(script) as origin, running(in_front_of(origin)) as gateway:
            path, body = asked("anthropic")
            request = json.loads(body)
            for tool in request["tools"]:
                tool.pop("defer_loading", None)
            await told(gateway, "anthropic", path, json.dumps(request).encode(), stream=False)
            assert declared("openai-chat", script.bodies[0]) == ["send_email", "pay_invoice", "read_file"]

    run(work())


def test_a_large_catalog_that_is_new_holds_up_nobody_else() -> None:
    async def work() -> None:
        script = Script(
            wired("openai-chat", answer(Text(text="Hello."), reason="end_turn"), stream=False),
            wired("openai-chat", answer(call("tool_search", query="settle an invoice")), stream=False),
            wired("openai-chat", answer(Text(text="Done."), reason="end_turn"), stream=False),
        )
        many: list[dict[str, Any]] = [
            {"name": f"tool_{number}", "description": "Does this and that. " * 200, "input_schema": SCHEMA}
            for number in range(800)
        ]
        entries = [Entry(one["name"], one["description"], SCHEMA) for one in many]
        begun = time.thread_time()
        Index(entries).make()
        made = time.thread_time() - begun
        path, body = asked("anthropic")
        request = json.loads(body)
        request["tools"] += [one | {"defer_loading": True} for one in many]
        sent = json.dumps(request).encode()
        async with upstream(script) as origin, running(in_front_of(origin)) as gateway:
            await (await gateway.post(path, body)).read(1_000_000)  # modules are loaded with it
            watch = asyncio.create_task(longest_pause())
            got = await (await gateway.post(path, sent)).read(1_000_000)
            watch.cancel()
            assert b'"tool_name":"pay_invoice"' in got
            assert await watch < made / 2

    run(work())


async def longest_pause() -> float:
    """How long this thread worked at one thing, at most, until it is cancelled."""
    longest, last = 0.0, time.thread_time()
    try:
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, last = max(longest, now - last), now
    except asyncio.CancelledError:
        return longest
