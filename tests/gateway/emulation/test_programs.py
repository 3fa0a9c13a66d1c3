"""A client whose provider runs programs that call tools, in front of upstreams that run none."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

import toolwire as tw
from tests.support.deadlines import DEADLINE
from tests.support.gateway.emulated_exchange import (
    canonical_call,
    canonical_response,
    encode_http_response,
    post_and_decode,
)
from tests.support.gateway.in_process import RunningGateway, one_provider_config, run_async, run_gateway
from tests.support.gateway.tool_search import BM25_SEARCH, CLIENTS_WITH_SEARCH, declared_tool_names, output_items
from tests.support.servers.upstream import ScriptedUpstream, serve_upstream
from toolwire.canonical.content import Signature, Text
from toolwire.codec.interface import Route
from toolwire.gateway.emulation.program_rounds import ProgramHost
from toolwire.gateway.exchange.types import ClientRequest
from toolwire.gateway.server.auth import ANONYMOUS
from toolwire.gateway.state.store import Row
from toolwire.protocols import PROTOCOLS

SCHEMA = {"type": "object", "properties": {"sql": {"type": "string"}}, "required": ["sql"]}
CODE = "rows = await query(sql='select 1')\nprint('counted')\nlen(rows)"
BOTH = "import asyncio\na, b = await asyncio.gather(query(sql='a'), query(sql='b'))\na[0] + b[0]"
DONE = canonical_response(Text(text="There are three."), reason="end_turn")


def body(client: str, *more: Any, stream: bool = False, direct: bool = False, **fields: Any) -> tuple[str, bytes]:
    """A request with a tool that only programs may call, and one that the model calls itself."""
    if client == "anthropic":
        callers = ["code_execution_20260120", *(["direct"] if direct else [])]
        tools: list[Any] = [
            {"type": "code_execution_20260120", "name": "code_execution"},
            {"name": "query", "description": "Queries.", "input_schema": SCHEMA, "allowed_callers": callers},
            {"name": "note", "description": "Notes.", "input_schema": SCHEMA},
        ]
        said = {"max_tokens": 99, "messages": [{"role": "user", "content": "How many?"}, *more]}
        path = "/v1/messages"
    else:
        function = {"type": "function", "parameters": SCHEMA, "strict": False}
        callers = ["programmatic", *(["direct"] if direct else [])]
        tools = [
            {"type": "programmatic_tool_calling"},
            {**function, "name": "query", "description": "Queries.", "allowed_callers": callers},
            {**function, "name": "note", "description": "Notes."},
        ]
        said = {"input": [{"role": "user", "content": "How many?"}, *more], "store": False}
        path = "/v1/responses"
    return path, json.dumps({"model": "m", "tools": tools, "stream": stream, **said, **fields}).encode()


def scripted(code: str, *, stream: bool = False) -> ScriptedUpstream:
    """A model that writes this program, and then is done."""
    return ScriptedUpstream(
        *(
            encode_http_response("openai-chat", one, stream=stream)
            for one in (canonical_response(canonical_call("run_code", code=code)), DONE)
        )
    )


def desk_of(gateway: RunningGateway) -> ProgramHost:
    desk = gateway.gateway.app._dispatcher._emulator.program_host
    assert desk is not None
    return desk


def calls(client: str, got: Any) -> list[dict[str, Any]]:
    kind = "tool_use" if client == "anthropic" else "function_call"
    return [one for one in output_items(client, got) if one["type"] == kind]


def repeated(client: str, got: Any, *outputs: str, failed: bool = False) -> list[Any]:
    """What the client says next: what it got, and what its tools gave."""
    made = calls(client, got)
    if client == "anthropic":
        results = [
            {"type": "tool_result", "tool_use_id": one["id"], "content": text, "is_error": failed}
            for one, text in zip(made, outputs, strict=True)
        ]
        return [{"role": "assistant", "content": got["content"]}, {"role": "user", "content": results}]
    results = [
        {"type": "function_call_output", "call_id": one["call_id"], "output": text, "caller": one["caller"]}
        for one, text in zip(made, outputs, strict=True)
    ]
    return [*got["output"], *results]


async def two_requests(
    gateway: RunningGateway, client: str, *outputs: str, stream: bool = False, **more: Any
) -> tuple[Any, Any, Any]:
    """The program is written and waits; then it gets what it waited for."""
    path, asked = body(client, stream=stream)
    first, response = await post_and_decode(gateway, client, path, asked, stream=stream)
    assert response.candidates[0].stop is not None
    assert response.candidates[0].stop.reason == "tool_use"
    path, asked = body(client, *repeated(client, first, *outputs, **more), stream=stream)
    second, response = await post_and_decode(gateway, client, path, asked, stream=stream)
    return first, second, response


PROGRAM = {"anthropic": "server_tool_use", "openai-responses": "program"}
ENDED = {"anthropic": "code_execution_tool_result", "openai-responses": "program_output"}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("client", "protocol"), [(one, other) for one in CLIENTS_WITH_SEARCH for other in PROTOCOLS if one != other]
)
def test_a_program_runs_waits_for_the_client_and_goes_on(client: str, protocol: str, stream: bool) -> None:
    async def work() -> None:
        answers = [canonical_response(Text(text="Let me count."), canonical_call("run_code", code=CODE)), DONE]
        script = ScriptedUpstream(*(encode_http_response(protocol, one, stream=stream) for one in answers))
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin, protocol)) as gateway:
            first, second, response = await two_requests(gateway, client, "[1, 2, 3]", stream=stream)
            assert len(script.requests) == 2
            assert declared_tool_names(protocol, script.bodies[0]) == ["run_code", "note"]
            kinds = [one["type"] for one in output_items(client, first) if one["type"] not in ("text", "message")]
            assert kinds == [PROGRAM[client], calls(client, first)[0]["type"]]
            (made,) = calls(client, first)
            begun = output_items(client, first)[-2]
            assert (begun["input"] if client == "anthropic" else begun)["code"] == CODE
            if client == "anthropic":
                assert made["caller"] == {"type": "code_execution_20260120", "tool_id": begun["id"]}
                assert made["input"] == {"sql": "select 1"}
            else:
                assert made["caller"] == {"type": "program", "caller_id": begun["call_id"]}
                assert json.loads(made["arguments"]) == {"sql": "select 1"}
            ended = output_items(client, second)[0]
            assert ended["type"] == ENDED[client]
            assert "counted\\n3" in json.dumps(ended)
            assert response.candidates[0].stop is not None
            assert response.candidates[0].stop.reason == "end_turn"
            # The model reads its code and what came of it, and nothing else.
            sent = json.dumps(script.bodies[1])
            assert "counted\\\\n3" in sent or "counted\\n3" in sent
            assert "[1, 2, 3]" not in sent
            checked = PROTOCOLS[protocol].check_request(script.bodies[1])
            assert [one.rule for one in checked] == []

    run_async(work())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_client_of_anthropics_is_told_how_long_it_waits(stream: bool) -> None:
    async def work() -> None:
        script = scripted(CODE, stream=stream)
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, asked = body("anthropic", stream=stream)
            data = (await (await gateway.post(path, asked)).read(100_000)).decode()
            frames = [json.loads(line[6:]) for line in data.splitlines() if line.startswith("data: ")]
            (ended,) = [one["delta"] for one in frames if one["type"] == "message_delta"] or [json.loads(data)]
            assert ended["stop_reason"] == "tool_use"
            assert ended["container"]["id"].startswith("container_")
            waits = datetime.fromisoformat(ended["container"]["expires_at"]) - datetime.now(UTC)
            assert 200 < waits.total_seconds() < 300

    run_async(work())


@pytest.mark.parametrize("client", CLIENTS_WITH_SEARCH)
def test_gathered_calls_reach_the_client_together(client: str) -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            *(
                encode_http_response("openai-chat", one, stream=False)
                for one in (canonical_response(canonical_call("run_code", code=BOTH)), DONE)
            )
        )
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            first, second, _ = await two_requests(gateway, client, "[1]", "[2]")
            assert len(calls(client, first)) == 2
            assert '"3"' in json.dumps(output_items(client, second)[0])

    run_async(work())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", CLIENTS_WITH_SEARCH)
def test_a_program_may_wait_again_and_again(client: str, stream: bool) -> None:
    """A task of twenty calls takes one turn of the model."""

    async def work() -> None:
        code = "total = 0\nfor i in range(20):\n    total += (await query(sql=str(i)))['n']\ntotal"
        answers = [canonical_response(canonical_call("run_code", code=code)), DONE]
        script = ScriptedUpstream(*(encode_http_response("openai-chat", one, stream=stream) for one in answers))
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            history: list[Any] = []
            for number in range(20):
                path, asked = body(client, *history, stream=stream)
                got, response = await post_and_decode(gateway, client, path, asked, stream=stream)
                assert len(calls(client, got)) == 1
                assert response.candidates[0].stop is not None
                assert response.candidates[0].stop.reason == "tool_use"
                assert len(script.requests) == 1
                history += repeated(client, got, json.dumps({"n": number}))
            path, asked = body(client, *history, stream=stream)
            got, _ = await post_and_decode(gateway, client, path, asked, stream=stream)
            assert "190" in json.dumps(output_items(client, got)[0])
            assert len(script.requests) == 2
            assert len(script.bodies[1]["messages"]) == 3

    run_async(work())


@pytest.mark.parametrize("client", CLIENTS_WITH_SEARCH)
def test_the_conversation_goes_on_after_a_program(client: str) -> None:
    async def work() -> None:
        answers = [
            canonical_response(canonical_call("run_code", code=CODE)),
            DONE,
            canonical_response(Text(text="Bye."), reason="end_turn"),
        ]
        script = ScriptedUpstream(*(encode_http_response("openai-chat", one, stream=False) for one in answers))
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            first, second, _ = await two_requests(gateway, client, "[1]")
            history = repeated(client, first, "[1]")
            if client == "anthropic":
                history += [{"role": "assistant", "content": second["content"]}, {"role": "user", "content": "Thanks."}]
            else:
                history += [*second["output"], {"role": "user", "content": "Thanks."}]
            path, asked = body(client, *history)
            await post_and_decode(gateway, client, path, asked, stream=False)
            roles = [one["role"] for one in script.bodies[2]["messages"]]
            assert roles == ["user", "assistant", "tool", "assistant", "user"]
            assert script.bodies[2]["messages"][:3] == script.bodies[1]["messages"][:3]

    run_async(work())


@pytest.mark.parametrize("client", CLIENTS_WITH_SEARCH)
def test_a_program_that_calls_nothing_never_reaches_the_client_alone(client: str) -> None:
    async def work() -> None:
        answers = [canonical_response(canonical_call("run_code", code="sum(range(10))")), DONE]
        script = ScriptedUpstream(*(encode_http_response("openai-chat", one, stream=False) for one in answers))
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, asked = body(client)
            got, _ = await post_and_decode(gateway, client, path, asked, stream=False)
            kinds = [one["type"] for one in output_items(client, got)]
            assert kinds[:2] == [PROGRAM[client], ENDED[client]]
            assert "45" in json.dumps(output_items(client, got)[1])
            assert len(script.requests) == 2

    run_async(work())


def test_a_fault_of_the_code_is_told_to_the_model() -> None:
    async def work() -> None:
        answers = [canonical_response(canonical_call("run_code", code="await query(wrong=1)")), DONE]
        script = ScriptedUpstream(*(encode_http_response("openai-chat", one, stream=False) for one in answers))
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, asked = body("anthropic")
            got, _ = await post_and_decode(gateway, "anthropic", path, asked, stream=False)
            content = got["content"][1]["content"]
            assert (content["stdout"], content["return_code"]) == ("", 1)
            assert "`wrong` does not match" in content["stderr"]
            assert "`wrong` does not match" in script.bodies[1]["messages"][-1]["content"]

    run_async(work())


def test_a_failed_result_is_an_exception_in_the_code() -> None:
    async def work() -> None:
        code = "try:\n    await query(sql='x')\nexcept RuntimeError as error:\n    print('caught', error)"
        script = ScriptedUpstream(
            *(
                encode_http_response("openai-chat", one, stream=False)
                for one in (canonical_response(canonical_call("run_code", code=code)), DONE)
            )
        )
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            _, second, _ = await two_requests(gateway, "anthropic", "no such table", failed=True)
            assert second["content"][0]["content"]["stdout"] == "caught no such table"

    run_async(work())


@pytest.mark.parametrize("client", CLIENTS_WITH_SEARCH)
def test_a_direct_call_of_what_only_programs_may_call_is_denied(client: str) -> None:
    async def work() -> None:
        answers = [canonical_response(canonical_call("query", sql="select 1")), DONE]
        script = ScriptedUpstream(*(encode_http_response("openai-chat", one, stream=False) for one in answers))
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, asked = body(client)
            got, _ = await post_and_decode(gateway, client, path, asked, stream=False)
            assert "query" not in json.dumps(output_items(client, got))
            assert "Denied: only code may call query" in script.bodies[1]["messages"][-1]["content"]

    run_async(work())


def test_a_tool_that_both_may_call_is_declared_too() -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            encode_http_response("openai-chat", canonical_response(canonical_call("query", sql="x")), stream=False)
        )
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, asked = body("anthropic", direct=True)
            got, _ = await post_and_decode(gateway, "anthropic", path, asked, stream=False)
            assert declared_tool_names("openai-chat", script.bodies[0]) == ["run_code", "query", "note"]
            (made,) = calls("anthropic", got)
            assert made["caller"] == {"type": "direct"}

    run_async(work())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_call_of_the_models_beside_a_program_is_the_clients(stream: bool) -> None:
    async def work() -> None:
        both = canonical_response(canonical_call("run_code", code=CODE), canonical_call("note", "call_2", sql="n"))
        script = ScriptedUpstream(*(encode_http_response("openai-chat", one, stream=stream) for one in (both, DONE)))
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            first, second, _ = await two_requests(gateway, "anthropic", "noted", "[1]", stream=stream)
            assert [one["name"] for one in calls("anthropic", first)] == ["note", "query"]
            results = [one["content"] for one in script.bodies[1]["messages"] if one["role"] == "tool"]
            assert sorted(results) == ["counted\n1", "noted"]
            assert second["stop_reason"] == "end_turn"

    run_async(work())


def test_a_client_may_go_on_by_the_id_of_the_answer() -> None:
    async def work() -> None:
        async with (
            serve_upstream(script := scripted(CODE)) as origin,
            run_gateway(one_provider_config(origin)) as gateway,
        ):
            path, asked = body("openai-responses", store=True)
            first, _ = await post_and_decode(gateway, "openai-responses", path, asked, stream=False)
            *_, output = repeated("openai-responses", first, "[1, 2]")
            path, asked = body("openai-responses", store=True, previous_response_id=first["id"], input=[output])
            second, _ = await post_and_decode(gateway, "openai-responses", path, asked, stream=False)
            assert second["output"][0]["result"] == "counted\n2"
            assert [one["role"] for one in script.bodies[1]["messages"]] == ["user", "assistant", "tool"]

    run_async(work())


# ---- programs that nobody can go on with


@pytest.mark.parametrize("client", CLIENTS_WITH_SEARCH)
def test_a_program_that_waited_too_long_timed_out(client: str) -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            *(
                encode_http_response("openai-chat", one, stream=False)
                for one in (canonical_response(canonical_call("run_code", code=CODE)), DONE)
            )
        )
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, asked = body(client)
            first, _ = await post_and_decode(gateway, client, path, asked, stream=False)
            desk = desk_of(gateway)
            now = desk.clock()
            desk.clock = lambda: now + 271
            path, asked = body(client, *repeated(client, first, "[1]"))
            second, _ = await post_and_decode(gateway, client, path, asked, stream=False)
            ended = output_items(client, second)[0]
            assert ended["type"] == ENDED[client]
            if client == "anthropic":
                assert ended["content"]["error_code"] == "execution_time_exceeded"
            else:
                assert ended["status"] == "incomplete"
            assert "timed out" in script.bodies[1]["messages"][-1]["content"]

    run_async(work())


def test_a_program_that_somebody_changed_is_not_gone_on_with() -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            *(
                encode_http_response("openai-chat", one, stream=False)
                for one in (canonical_response(canonical_call("run_code", code=CODE)), DONE)
            )
        )
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, asked = body("anthropic")
            first, _ = await post_and_decode(gateway, "anthropic", path, asked, stream=False)
            store, id = desk_of(gateway)._store, first["content"][0]["id"]
            kept = (await store.get(ANONYMOUS.tenant, "program", [id]))[id]
            store.enqueue([Row(ANONYMOUS.tenant, "program", id, kept[:-1] + bytes([kept[-1] ^ 1]))])
            path, asked = body("anthropic", *repeated("anthropic", first, "[1]"))
            second, _ = await post_and_decode(gateway, "anthropic", path, asked, stream=False)
            assert second["content"][0]["content"]["error_code"] == "execution_time_exceeded"

    run_async(work())


def test_the_program_of_another_tenant_is_not_there() -> None:
    async def work() -> None:
        keys = '[server]\nkeys = ["key-of-alice", "key-of-bob"]'
        script = ScriptedUpstream(
            *(
                encode_http_response("openai-chat", one, stream=False)
                for one in (canonical_response(canonical_call("run_code", code=CODE)), DONE)
            )
        )
        async with (
            serve_upstream(script) as origin,
            run_gateway(one_provider_config(origin, extra_config=keys)) as gateway,
        ):
            path, asked = body("anthropic")
            first = json.loads(await (await gateway.post(path, asked, x_api_key="key-of-alice")).read(100_000))
            path, asked = body("anthropic", *repeated("anthropic", first, "[1]"))
            second = json.loads(await (await gateway.post(path, asked, x_api_key="key-of-bob")).read(100_000))
            assert second["content"][0]["content"]["error_code"] == "execution_time_exceeded"

    run_async(work())


# ---- the request


def test_what_the_report_says() -> None:
    async def work() -> None:
        async with serve_upstream(ScriptedUpstream()) as origin, run_gateway(one_provider_config(origin)) as gateway:
            _, asked = body("anthropic")
            asking = ClientRequest(codec=PROTOCOLS["anthropic"], body=asked, route=Route(), tenant="")
            losses = (await gateway.gateway.app._dispatcher.translate(asking)).losses
            assert [(one.kind, one.path) for one in losses] == [
                ("approximated", "/tools/0"),
                ("approximated", "/tools/1"),
            ]

    run_async(work())


def test_without_the_sandbox_the_gateway_works_and_refuses_as_before() -> None:
    """It is another extra: nothing may want it before a program does."""
    program = """
import sys
sys.modules["pydantic_monty"] = sys.modules["re2"] = None
import json
import toolwire.gateway.server.launch
from toolwire.codec.interface import Route
from toolwire.gateway.emulation.programs import plan_programs
from toolwire.protocols import PROTOCOLS
client, upstream = PROTOCOLS["anthropic"], PROTOCOLS["openai-chat"]
assert plan_programs(client.decode_request(sys.stdin.buffer.read(), Route()), client, upstream) is None
"""
    _, asked = body("anthropic")
    subprocess.run([sys.executable, "-c", program], input=asked, check=True, timeout=DEADLINE)


def test_a_choice_of_what_only_programs_may_call_is_refused() -> None:
    async def work() -> None:
        async with serve_upstream(ScriptedUpstream()) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, asked = body("anthropic", tool_choice={"type": "tool", "name": "query"})
            got = await gateway.post(path, asked)
            assert got.status == 400
            assert "only programs may call" in (await got.read(10_000)).decode()

    run_async(work())


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, "disable_parallel_tool_use is not"),
        ({"tools": "strict"}, "strict is not"),
    ],
    ids=["parallel", "strict"],
)
def test_what_the_provider_refuses_beside_programs_is_refused(field: dict[str, Any], said: str) -> None:
    async def work() -> None:
        async with serve_upstream(ScriptedUpstream()) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, asked = body("anthropic")
            request = json.loads(asked)
            if field == {"tools": "strict"}:
                request["tools"][1] |= {"strict": True, "input_schema": {**SCHEMA, "additionalProperties": False}}
            else:
                request |= field
            got = await gateway.post(path, json.dumps(request).encode())
            assert got.status == 400
            assert f"{said} supported with programmatic tool calling" in (await got.read(10_000)).decode()
            # So says the provider's own rule, word for word.
            (finding,) = [one for one in tw.check(request, "anthropic") if "programmatic" in one.rule]
            assert f"{said} supported with programmatic tool calling" in finding.message

    run_async(work())


@pytest.mark.parametrize(
    ("version", "caller"),
    [
        ("code_execution_20250825", "code_execution_20250825"),
        ("code_execution_20260521", "code_execution_20260120"),  # which is no caller in an answer
    ],
)
def test_the_caller_is_the_sandbox_that_was_declared(version: str, caller: str) -> None:
    async def work() -> None:
        async with serve_upstream(scripted(CODE)) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, asked = body("anthropic")
            asked = asked.replace(b"code_execution_20260120", version.encode())
            got, _ = await post_and_decode(gateway, "anthropic", path, asked, stream=False)
            assert [one["caller"]["type"] for one in calls("anthropic", got)] == [caller]

    run_async(work())


def test_a_servers_tools_are_not_for_programs() -> None:
    async def work() -> None:
        script = scripted("print(search_tools('wiki'))\nawait wiki()")
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, asked = body("anthropic")
            request = json.loads(asked)
            request["tools"].append({"type": "mcp_toolset", "mcp_server_name": "wiki"})
            request["mcp_servers"] = [{"type": "url", "name": "wiki", "url": "https://wiki.example/mcp"}]
            got, _ = await post_and_decode(gateway, "anthropic", path, json.dumps(request).encode(), stream=False)
        code = next(one for one in script.bodies[0]["tools"] if one["function"]["name"] == "run_code")
        assert "wiki" not in code["function"]["description"]
        assert got["content"][1]["content"]["return_code"] == 1

    run_async(work())


def test_proofs_of_the_call_go_back_with_it() -> None:
    async def work() -> None:
        from msgspec.structs import replace

        coded = replace(
            canonical_call("run_code", code=CODE), signature=Signature(issuer="google", data="c2ln", kind="signature")
        )
        script = ScriptedUpstream(
            *(encode_http_response("gemini", one, stream=False) for one in (canonical_response(coded), DONE))
        )
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin, "gemini")) as gateway:
            await two_requests(gateway, "anthropic", "[1]")
            assert '"thoughtSignature": "c2ln"' in json.dumps(script.bodies[1])

    run_async(work())


def test_programs_and_tool_search_go_together() -> None:
    async def work() -> None:
        answers = [
            canonical_response(canonical_call("tool_search", query="mail")),
            canonical_response(canonical_call("run_code", "call_2", code=CODE)),
            DONE,
        ]
        script = ScriptedUpstream(*(encode_http_response("openai-chat", one, stream=False) for one in answers))
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, asked = body("anthropic")
            request = json.loads(asked)
            mail = {"name": "send_mail", "description": "Sends mail.", "input_schema": SCHEMA, "defer_loading": True}
            request["tools"] += [BM25_SEARCH, mail]
            got, _ = await post_and_decode(gateway, "anthropic", path, json.dumps(request).encode(), stream=False)
            kinds = [one["type"] for one in got["content"]]
            assert kinds == ["server_tool_use", "tool_search_tool_result", "server_tool_use", "tool_use"]
            assert declared_tool_names("openai-chat", script.bodies[1]) == [
                "run_code",
                "note",
                "tool_search",
                "send_mail",
            ]

    run_async(work())
