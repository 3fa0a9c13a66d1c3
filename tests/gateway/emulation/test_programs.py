"""Clients whose provider runs programs that call tools, in front of upstreams that run none."""

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
from toolwire.gateway.exchange.exchange import ClientRequest
from toolwire.gateway.server.auth import ANONYMOUS
from toolwire.gateway.state.store import Row
from toolwire.protocols import PROTOCOLS

SCHEMA = {"type": "object", "properties": {"sql": {"type": "string"}}, "required": ["sql"]}
CODE = "rows = await query(sql='select 1')\nprint('counted')\nlen(rows)"
BOTH = "import asyncio\na, b = await asyncio.gather(query(sql='a'), query(sql='b'))\na[0] + b[0]"
DONE = canonical_response(Text(text="There are three."), reason="end_turn")


def body(client: str, *more: Any, stream: bool = False, direct: bool = False, **fields: Any) -> tuple[str, bytes]:
    """Build a request with a tool that only programs may call, and one for direct calls."""
    if client == "anthropic":
        callers = ["code_execution_20260120", *(["direct"] if direct else [])]
        tools: list[Any] = [
            {"type": "code_execution_20260120", "name": "code_execution"},
            {"name": "query", "description": "Queries.", "input_schema": SCHEMA, "allowed_callers": callers},
            {"name": "note", "description": "Notes.", "input_schema": SCHEMA},
        ]
        request = {"max_tokens": 99, "messages": [{"role": "user", "content": "How many?"}, *more]}
        path = "/v1/messages"
    else:
        function = {"type": "function", "parameters": SCHEMA, "strict": False}
        callers = ["programmatic", *(["direct"] if direct else [])]
        tools = [
            {"type": "programmatic_tool_calling"},
            {**function, "name": "query", "description": "Queries.", "allowed_callers": callers},
            {**function, "name": "note", "description": "Notes."},
        ]
        request = {"input": [{"role": "user", "content": "How many?"}, *more], "store": False}
        path = "/v1/responses"
    return path, json.dumps({"model": "m", "tools": tools, "stream": stream, **request, **fields}).encode()


def scripted_program(code: str, *, stream: bool = False) -> ScriptedUpstream:
    """Script a model that writes this program and then ends its turn."""
    return ScriptedUpstream(
        *(
            encode_http_response("openai-chat", one, stream=stream)
            for one in (canonical_response(canonical_call("run_code", code=code)), DONE)
        )
    )


def program_host_of(gateway: RunningGateway) -> ProgramHost:
    program_host = gateway.gateway.app._dispatcher.services.emulator.program_host
    assert program_host is not None
    return program_host


def calls(client: str, decoded: Any) -> list[dict[str, Any]]:
    kind = "tool_use" if client == "anthropic" else "function_call"
    return [one for one in output_items(client, decoded) if one["type"] == kind]


def next_input(client: str, decoded: Any, *outputs: str, failed: bool = False) -> list[Any]:
    """Return the client's next input: the response and the results of its tools."""
    client_calls = calls(client, decoded)
    if client == "anthropic":
        results = [
            {"type": "tool_result", "tool_use_id": one["id"], "content": text, "is_error": failed}
            for one, text in zip(client_calls, outputs, strict=True)
        ]
        return [{"role": "assistant", "content": decoded["content"]}, {"role": "user", "content": results}]
    results = [
        {"type": "function_call_output", "call_id": one["call_id"], "output": text, "caller": one["caller"]}
        for one, text in zip(client_calls, outputs, strict=True)
    ]
    return [*decoded["output"], *results]


async def two_requests(
    gateway: RunningGateway, client: str, *outputs: str, stream: bool = False, **more: Any
) -> tuple[Any, Any, Any]:
    """Start a program that suspends, then resume it with results."""
    path, request_body = body(client, stream=stream)
    first, response = await post_and_decode(gateway, client, path, request_body, stream=stream)
    assert response.candidates[0].stop is not None
    assert response.candidates[0].stop.reason == "tool_use"
    path, request_body = body(client, *next_input(client, first, *outputs, **more), stream=stream)
    second, response = await post_and_decode(gateway, client, path, request_body, stream=stream)
    return first, second, response


PROGRAM = {"anthropic": "server_tool_use", "openai-responses": "program"}
ENDED = {"anthropic": "code_execution_tool_result", "openai-responses": "program_output"}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("client", "protocol"), [(one, other) for one in CLIENTS_WITH_SEARCH for other in PROTOCOLS if one != other]
)
def test_program_suspends_for_client_calls_and_resumes(client: str, protocol: str, stream: bool) -> None:
    async def work() -> None:
        responses = [canonical_response(Text(text="Let me count."), canonical_call("run_code", code=CODE)), DONE]
        script = ScriptedUpstream(*(encode_http_response(protocol, one, stream=stream) for one in responses))
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin, protocol)) as gateway:
            first, second, response = await two_requests(gateway, client, "[1, 2, 3]", stream=stream)
            assert len(script.requests) == 2
            assert declared_tool_names(protocol, script.bodies[0]) == ["run_code", "note"]
            kinds = [one["type"] for one in output_items(client, first) if one["type"] not in ("text", "message")]
            assert kinds == [PROGRAM[client], calls(client, first)[0]["type"]]
            (client_calls,) = calls(client, first)
            program_item = output_items(client, first)[-2]
            assert (program_item["input"] if client == "anthropic" else program_item)["code"] == CODE
            if client == "anthropic":
                assert client_calls["caller"] == {"type": "code_execution_20260120", "tool_id": program_item["id"]}
                assert client_calls["input"] == {"sql": "select 1"}
            else:
                assert client_calls["caller"] == {"type": "program", "caller_id": program_item["call_id"]}
                assert json.loads(client_calls["arguments"]) == {"sql": "select 1"}
            ended = output_items(client, second)[0]
            assert ended["type"] == ENDED[client]
            assert "counted\\n3" in json.dumps(ended)
            assert response.candidates[0].stop is not None
            assert response.candidates[0].stop.reason == "end_turn"
            # The model gets its code and the result, and nothing else.
            sent_body = json.dumps(script.bodies[1])
            assert "counted\\\\n3" in sent_body or "counted\\n3" in sent_body
            assert "[1, 2, 3]" not in sent_body
            checked = PROTOCOLS[protocol].check_request(script.bodies[1])
            assert [one.rule for one in checked] == []

    run_async(work())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_anthropic_client_gets_the_container_expiry(stream: bool) -> None:
    async def work() -> None:
        script = scripted_program(CODE, stream=stream)
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, request_body = body("anthropic", stream=stream)
            data = (await (await gateway.post(path, request_body)).read(100_000)).decode()
            frames = [json.loads(line[6:]) for line in data.splitlines() if line.startswith("data: ")]
            (ended,) = [one["delta"] for one in frames if one["type"] == "message_delta"] or [json.loads(data)]
            assert ended["stop_reason"] == "tool_use"
            assert ended["container"]["id"].startswith("container_")
            waits = datetime.fromisoformat(ended["container"]["expires_at"]) - datetime.now(UTC)
            assert 200 < waits.total_seconds() < 300

    run_async(work())


@pytest.mark.parametrize("client", CLIENTS_WITH_SEARCH)
def test_concurrent_calls_reach_the_client_together(client: str) -> None:
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
def test_program_may_suspend_repeatedly(client: str, stream: bool) -> None:
    """Twenty calls take one turn of the model."""

    async def work() -> None:
        code = "total = 0\nfor i in range(20):\n    total += (await query(sql=str(i)))['n']\ntotal"
        responses = [canonical_response(canonical_call("run_code", code=code)), DONE]
        script = ScriptedUpstream(*(encode_http_response("openai-chat", one, stream=stream) for one in responses))
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            history: list[Any] = []
            for number in range(20):
                path, request_body = body(client, *history, stream=stream)
                decoded, response = await post_and_decode(gateway, client, path, request_body, stream=stream)
                assert len(calls(client, decoded)) == 1
                assert response.candidates[0].stop is not None
                assert response.candidates[0].stop.reason == "tool_use"
                assert len(script.requests) == 1
                history += next_input(client, decoded, json.dumps({"n": number}))
            path, request_body = body(client, *history, stream=stream)
            decoded, _ = await post_and_decode(gateway, client, path, request_body, stream=stream)
            assert "190" in json.dumps(output_items(client, decoded)[0])
            assert len(script.requests) == 2
            assert len(script.bodies[1]["messages"]) == 3

    run_async(work())


@pytest.mark.parametrize("client", CLIENTS_WITH_SEARCH)
def test_conversation_continues_after_a_program(client: str) -> None:
    async def work() -> None:
        responses = [
            canonical_response(canonical_call("run_code", code=CODE)),
            DONE,
            canonical_response(Text(text="Bye."), reason="end_turn"),
        ]
        script = ScriptedUpstream(*(encode_http_response("openai-chat", one, stream=False) for one in responses))
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            first, second, _ = await two_requests(gateway, client, "[1]")
            history = next_input(client, first, "[1]")
            if client == "anthropic":
                history += [{"role": "assistant", "content": second["content"]}, {"role": "user", "content": "Thanks."}]
            else:
                history += [*second["output"], {"role": "user", "content": "Thanks."}]
            path, request_body = body(client, *history)
            await post_and_decode(gateway, client, path, request_body, stream=False)
            roles = [one["role"] for one in script.bodies[2]["messages"]]
            assert roles == ["user", "assistant", "tool", "assistant", "user"]
            assert script.bodies[2]["messages"][:3] == script.bodies[1]["messages"][:3]

    run_async(work())


@pytest.mark.parametrize("client", CLIENTS_WITH_SEARCH)
def test_program_without_calls_completes_within_one_response(client: str) -> None:
    async def work() -> None:
        responses = [canonical_response(canonical_call("run_code", code="sum(range(10))")), DONE]
        script = ScriptedUpstream(*(encode_http_response("openai-chat", one, stream=False) for one in responses))
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, request_body = body(client)
            decoded, _ = await post_and_decode(gateway, client, path, request_body, stream=False)
            kinds = [one["type"] for one in output_items(client, decoded)]
            assert kinds[:2] == [PROGRAM[client], ENDED[client]]
            assert "45" in json.dumps(output_items(client, decoded)[1])
            assert len(script.requests) == 2

    run_async(work())


def test_model_gets_errors_of_its_code() -> None:
    async def work() -> None:
        responses = [canonical_response(canonical_call("run_code", code="await query(wrong=1)")), DONE]
        script = ScriptedUpstream(*(encode_http_response("openai-chat", one, stream=False) for one in responses))
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, request_body = body("anthropic")
            decoded, _ = await post_and_decode(gateway, "anthropic", path, request_body, stream=False)
            content = decoded["content"][1]["content"]
            assert (content["stdout"], content["return_code"]) == ("", 1)
            assert "`wrong` does not match" in content["stderr"]
            assert "`wrong` does not match" in script.bodies[1]["messages"][-1]["content"]

    run_async(work())


def test_failed_tool_result_raises_in_the_program() -> None:
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
def test_direct_call_of_a_program_only_tool_is_denied(client: str) -> None:
    async def work() -> None:
        responses = [canonical_response(canonical_call("query", sql="select 1")), DONE]
        script = ScriptedUpstream(*(encode_http_response("openai-chat", one, stream=False) for one in responses))
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, request_body = body(client)
            decoded, _ = await post_and_decode(gateway, client, path, request_body, stream=False)
            assert "query" not in json.dumps(output_items(client, decoded))
            assert "Denied: only code may call query" in script.bodies[1]["messages"][-1]["content"]

    run_async(work())


def test_tool_open_to_both_callers_is_declared() -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            encode_http_response("openai-chat", canonical_response(canonical_call("query", sql="x")), stream=False)
        )
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, request_body = body("anthropic", direct=True)
            decoded, _ = await post_and_decode(gateway, "anthropic", path, request_body, stream=False)
            assert declared_tool_names("openai-chat", script.bodies[0]) == ["run_code", "query", "note"]
            (client_calls,) = calls("anthropic", decoded)
            assert client_calls["caller"] == {"type": "direct"}

    run_async(work())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_direct_client_call_beside_a_program_reaches_the_client(stream: bool) -> None:
    async def work() -> None:
        mixed_response = canonical_response(
            canonical_call("run_code", code=CODE), canonical_call("note", "call_2", sql="n")
        )
        script = ScriptedUpstream(
            *(encode_http_response("openai-chat", one, stream=stream) for one in (mixed_response, DONE))
        )
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            first, second, _ = await two_requests(gateway, "anthropic", "noted", "[1]", stream=stream)
            assert [one["name"] for one in calls("anthropic", first)] == ["note", "query"]
            results = [one["content"] for one in script.bodies[1]["messages"] if one["role"] == "tool"]
            assert sorted(results) == ["counted\n1", "noted"]
            assert second["stop_reason"] == "end_turn"

    run_async(work())


def test_program_resumes_by_previous_response_id() -> None:
    async def work() -> None:
        async with (
            serve_upstream(script := scripted_program(CODE)) as origin,
            run_gateway(one_provider_config(origin)) as gateway,
        ):
            path, request_body = body("openai-responses", store=True)
            first, _ = await post_and_decode(gateway, "openai-responses", path, request_body, stream=False)
            *_, output = next_input("openai-responses", first, "[1, 2]")
            path, request_body = body("openai-responses", store=True, previous_response_id=first["id"], input=[output])
            second, _ = await post_and_decode(gateway, "openai-responses", path, request_body, stream=False)
            assert second["output"][0]["result"] == "counted\n2"
            assert [one["role"] for one in script.bodies[1]["messages"]] == ["user", "assistant", "tool"]

    run_async(work())


# ---- programs that can't be resumed


@pytest.mark.parametrize("client", CLIENTS_WITH_SEARCH)
def test_expired_program_times_out(client: str) -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            *(
                encode_http_response("openai-chat", one, stream=False)
                for one in (canonical_response(canonical_call("run_code", code=CODE)), DONE)
            )
        )
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, request_body = body(client)
            first, _ = await post_and_decode(gateway, client, path, request_body, stream=False)
            program_host = program_host_of(gateway)
            now = program_host.clock()
            program_host.clock = lambda: now + 271
            path, request_body = body(client, *next_input(client, first, "[1]"))
            second, _ = await post_and_decode(gateway, client, path, request_body, stream=False)
            ended = output_items(client, second)[0]
            assert ended["type"] == ENDED[client]
            if client == "anthropic":
                assert ended["content"]["error_code"] == "execution_time_exceeded"
            else:
                assert ended["status"] == "incomplete"
            assert "timed out" in script.bodies[1]["messages"][-1]["content"]

    run_async(work())


def test_tampered_program_is_not_resumed() -> None:
    async def work() -> None:
        script = ScriptedUpstream(
            *(
                encode_http_response("openai-chat", one, stream=False)
                for one in (canonical_response(canonical_call("run_code", code=CODE)), DONE)
            )
        )
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, request_body = body("anthropic")
            first, _ = await post_and_decode(gateway, "anthropic", path, request_body, stream=False)
            store, id = program_host_of(gateway)._store, first["content"][0]["id"]
            stored = (await store.get(ANONYMOUS.tenant, "program", [id]))[id]
            store.enqueue([Row(ANONYMOUS.tenant, "program", id, stored[:-1] + bytes([stored[-1] ^ 1]))])
            path, request_body = body("anthropic", *next_input("anthropic", first, "[1]"))
            second, _ = await post_and_decode(gateway, "anthropic", path, request_body, stream=False)
            assert second["content"][0]["content"]["error_code"] == "execution_time_exceeded"

    run_async(work())


def test_program_of_another_tenant_is_not_found() -> None:
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
            path, request_body = body("anthropic")
            first = json.loads(await (await gateway.post(path, request_body, x_api_key="key-of-alice")).read(100_000))
            path, request_body = body("anthropic", *next_input("anthropic", first, "[1]"))
            second = json.loads(await (await gateway.post(path, request_body, x_api_key="key-of-bob")).read(100_000))
            assert second["content"][0]["content"]["error_code"] == "execution_time_exceeded"

    run_async(work())


# ---- the request


def test_losses_of_emulated_programs_are_reported() -> None:
    async def work() -> None:
        async with serve_upstream(ScriptedUpstream()) as origin, run_gateway(one_provider_config(origin)) as gateway:
            _, request_body = body("anthropic")
            asking = ClientRequest(codec=PROTOCOLS["anthropic"], body=request_body, route=Route(), tenant="")
            losses = (await gateway.gateway.app._dispatcher.translate(asking)).losses
            assert [(one.kind, one.path) for one in losses] == [
                ("approximated", "/tools/0"),
                ("approximated", "/tools/1"),
            ]

    run_async(work())


def test_without_the_sandbox_programs_are_refused() -> None:
    """The sandbox is an optional extra: it is loaded only for programs."""
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
    _, request_body = body("anthropic")
    subprocess.run([sys.executable, "-c", program], input=request_body, check=True, timeout=DEADLINE)


def test_tool_choice_of_a_program_only_tool_is_refused() -> None:
    async def work() -> None:
        async with serve_upstream(ScriptedUpstream()) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, request_body = body("anthropic", tool_choice={"type": "tool", "name": "query"})
            response = await gateway.post(path, request_body)
            assert response.status == 400
            assert "only programs may call" in (await response.read(10_000)).decode()

    run_async(work())


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, "disable_parallel_tool_use is not"),
        ({"tools": "strict"}, "strict is not"),
    ],
    ids=["parallel", "strict"],
)
def test_fields_the_provider_refuses_beside_programs_are_refused(field: dict[str, Any], message: str) -> None:
    async def work() -> None:
        async with serve_upstream(ScriptedUpstream()) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, request_body = body("anthropic")
            request = json.loads(request_body)
            if field == {"tools": "strict"}:
                request["tools"][1] |= {"strict": True, "input_schema": {**SCHEMA, "additionalProperties": False}}
            else:
                request |= field
            response = await gateway.post(path, json.dumps(request).encode())
            assert response.status == 400
            assert f"{message} supported with programmatic tool calling" in (await response.read(10_000)).decode()
            # The provider's own wording.
            (finding,) = [one for one in tw.check(request, "anthropic") if "programmatic" in one.rule]
            assert f"{message} supported with programmatic tool calling" in finding.message

    run_async(work())


@pytest.mark.parametrize(
    ("version", "caller"),
    [
        ("code_execution_20250825", "code_execution_20250825"),
        ("code_execution_20260521", "code_execution_20260120"),  # not a valid caller in a response
    ],
)
def test_caller_kind_is_the_declared_sandbox(version: str, caller: str) -> None:
    async def work() -> None:
        async with (
            serve_upstream(scripted_program(CODE)) as origin,
            run_gateway(one_provider_config(origin)) as gateway,
        ):
            path, request_body = body("anthropic")
            request_body = request_body.replace(b"code_execution_20260120", version.encode())
            decoded, _ = await post_and_decode(gateway, "anthropic", path, request_body, stream=False)
            assert [one["caller"]["type"] for one in calls("anthropic", decoded)] == [caller]

    run_async(work())


def test_mcp_tools_are_not_callable_by_programs() -> None:
    async def work() -> None:
        script = scripted_program("print(search_tools('wiki'))\nawait wiki()")
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, request_body = body("anthropic")
            request = json.loads(request_body)
            request["tools"].append({"type": "mcp_toolset", "mcp_server_name": "wiki"})
            request["mcp_servers"] = [{"type": "url", "name": "wiki", "url": "https://wiki.example/mcp"}]
            decoded, _ = await post_and_decode(gateway, "anthropic", path, json.dumps(request).encode(), stream=False)
        code = next(one for one in script.bodies[0]["tools"] if one["function"]["name"] == "run_code")
        assert "wiki" not in code["function"]["description"]
        assert decoded["content"][1]["content"]["return_code"] == 1

    run_async(work())


def test_signature_of_the_program_call_is_restored() -> None:
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


def test_programs_and_tool_search_combine() -> None:
    async def work() -> None:
        responses = [
            canonical_response(canonical_call("tool_search", query="mail")),
            canonical_response(canonical_call("run_code", "call_2", code=CODE)),
            DONE,
        ]
        script = ScriptedUpstream(*(encode_http_response("openai-chat", one, stream=False) for one in responses))
        async with serve_upstream(script) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, request_body = body("anthropic")
            request = json.loads(request_body)
            mail = {"name": "send_mail", "description": "Sends mail.", "input_schema": SCHEMA, "defer_loading": True}
            request["tools"] += [BM25_SEARCH, mail]
            decoded, _ = await post_and_decode(gateway, "anthropic", path, json.dumps(request).encode(), stream=False)
            kinds = [one["type"] for one in decoded["content"]]
            assert kinds == ["server_tool_use", "tool_search_tool_result", "server_tool_use", "tool_use"]
            assert declared_tool_names("openai-chat", script.bodies[1]) == [
                "run_code",
                "note",
                "tool_search",
                "send_mail",
            ]

    run_async(work())
