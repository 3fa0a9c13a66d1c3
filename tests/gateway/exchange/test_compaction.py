"""Compaction and clearing by the gateway, in front of the strict simulator of every protocol."""

import json
import re
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.support.assertions import non_empty
from tests.support.gateway.in_process import run_async, with_memory_state
from tests.support.gateway.setup import GatewaySetup, ObservedExchange, routed_model, serve_gateway
from tests.support.servers.asgi import http_client, read_request_body, send_response, serve_app
from toolwire.canonical.content import OpaquePart, Reasoning, Text
from toolwire.canonical.fold import fold
from toolwire.canonical.request import Request
from toolwire.codec.interface import Route
from toolwire.gateway.config import Config, ProviderSection
from toolwire.gateway.in_process import open_model
from toolwire.protocols import PROTOCOLS
from toolwire.translation.compaction import SUMMARY_INTRODUCTION, SUMMARY_PROMPT, compacted_request, find_recent
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.script import Script, ScriptedError, ScriptedTurn

UPSTREAMS = tuple(PROTOCOLS)
OTHERS = tuple(name for name in PROTOCOLS if name != "openai-responses")
INPUT_TOKENS = re.compile(
    r'"(?:input_tokens|prompt_tokens|promptTokenCount|total_input_tokens|prompt_eval_count)":(\d+)'
)
HEADERS = {"authorization": "Bearer key-of-the-client"}
SUMMARY = "The user wants the weather of Paris. It is 18 degrees there; the code word is xyzzy."
ANSWER = "It stays warm."
TOOL = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
RESPONSES_TOOLS = [{"type": "function", "name": "weather", "parameters": TOOL, "strict": False}]
MESSAGES_TOOLS = [{"name": "weather", "input_schema": TOOL}]
ITEMS: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": "How is the weather in Paris?"},
    {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city":"Paris"}'},
    {"type": "function_call_output", "call_id": "call_1", "output": "18 degrees"},
    {"role": "assistant", "content": "It is 18 degrees in Paris."},
]
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "How is the weather in Paris?"},
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "P"}}],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "18 degrees " * 50}]},
    {"role": "assistant", "content": "It is 18 degrees in Paris."},
]


class SummaryScript(Script):
    """Answers requests for a summary with a summary, and all others with one sentence."""

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.failures: list[ScriptedTurn] = []
        self.thinking: str | None = None

    def next_turn(self, request: Request, protocol: str) -> ScriptedTurn | None:
        last = "".join(part.text for part in request.messages[-1].parts if isinstance(part, Text))
        start = max(last.find(SUMMARY_PROMPT[:40]), last.find("Sum it up"))
        if start < 0:
            return ScriptedTurn(thinking=self.thinking, text=ANSWER)
        self.prompts.append(last[start:])
        return self.failures.pop(0) if self.failures else ScriptedTurn(text=SUMMARY)


SCRIPT = SummaryScript()


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewaySetup]:
    config = '[[routes]]\nmatch = "prompted"\nprovider = "gemini"\nmodel = "gemini-3-pro"\n'
    config += 'compaction_prompt = "Sum it up in one line."\n'
    config += '[[routes]]\nmatch = "two"\nproviders = ["gemini", "openai-chat"]\nmodel = "m"\n'
    config += '[[routes]]\nmatch = "mixed"\nproviders = ["openai-responses", "gemini"]\nmodel = "m"\n'
    with serve_gateway(Simulator(script=SCRIPT, require_key=True), config) as served:
        yield served


@pytest.fixture
def setup(gateway: GatewaySetup) -> GatewaySetup:
    gateway.reset()
    SCRIPT.prompts.clear()
    SCRIPT.failures.clear()
    SCRIPT.thinking = None
    return gateway


def post(setup: GatewaySetup, path: str, **body: Any) -> Any:
    return http_client.post(setup.base_url + path, json=body, headers=HEADERS)


def openai_client(setup: GatewaySetup) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{setup.base_url}/v1", api_key="k", max_retries=0, timeout=600)


def anthropic_client(setup: GatewaySetup) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=setup.base_url, api_key="k", max_retries=0, timeout=600)


def sent(setup: GatewaySetup) -> ObservedExchange:
    """Return the last request that an upstream got."""
    return setup.upstream.exchanges[-1]


def input_tokens(exchange: ObservedExchange) -> int:
    """Return the largest number of input tokens in a response, which all simulators report at its end."""
    return max(map(int, INPUT_TOKENS.findall(exchange.response_body.decode())))


def texts_sent(setup: GatewaySetup, upstream: str) -> list[str]:
    return [part.text for part in sent(setup).parts(upstream) if isinstance(part, Text)]


def respond(setup: GatewaySetup, *, stream: bool, **body: Any) -> dict[str, Any]:
    """Return a complete response of the Responses API, from the SDK's accumulator if it is streamed."""
    client = openai_client(setup)
    if not stream:
        return dict(client.responses.create(**body).model_dump(mode="json"))
    with client.responses.stream(**body) as events:
        return dict(events.get_final_response().model_dump(mode="json"))


def message(setup: GatewaySetup, *, stream: bool, **body: Any) -> dict[str, Any]:
    """Return a complete message of the Messages API, from the SDK's accumulator if it is streamed."""
    client = anthropic_client(setup)
    limits: Any = {"max_tokens": 1000, "tools": MESSAGES_TOOLS}
    if not stream:
        return dict(client.beta.messages.create(**limits, **body).model_dump(mode="json"))
    with client.beta.messages.stream(**limits, **body) as events:
        return dict(events.get_final_message().model_dump(mode="json"))


def assert_continues(setup: GatewaySetup, upstream: str, path: str, body: dict[str, Any]) -> None:
    """Check that another upstream reads the summary and the user's messages, and nothing that it replaces."""
    response = post(setup, path, **body, model=routed_model(upstream))
    assert response.status_code == 200, response.text
    texts = "\n".join(texts_sent(setup, upstream))
    assert SUMMARY_INTRODUCTION in texts
    assert SUMMARY in texts
    assert "It is 18 degrees in Paris." not in texts
    assert not sent(setup).calls(upstream)
    assert not sent(setup).results(upstream)
    assert not any(isinstance(part, OpaquePart) for part in sent(setup).parts(upstream))


# ---- Responses


@pytest.mark.parametrize("upstream", OTHERS)
def test_endpoint_returns_user_messages_and_a_compaction_that_every_upstream_reads(
    upstream: str, setup: GatewaySetup
) -> None:
    compacted = openai_client(setup).responses.compact(model=routed_model(upstream), input=ITEMS)  # type: ignore[arg-type]
    assert [item.type for item in compacted.output] == ["message", "compaction"]
    assert compacted.usage.input_tokens > 0
    assert compacted.usage.output_tokens > 0
    output = json.loads(setup.gateway.exchanges[-1].response_body)["output"]
    question = {"role": "user", "content": "And tomorrow?"}
    for other in UPSTREAMS:
        assert_continues(setup, other, "/v1/responses", {"input": [*output, question], "store": False})
        texts = "\n".join(texts_sent(setup, other))
        assert texts.startswith("How is the weather in Paris?")
        assert texts.endswith("And tomorrow?")


@pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])
@pytest.mark.parametrize("upstream", OTHERS)
def test_trigger_is_answered_with_one_compaction(upstream: str, stream: bool, setup: GatewaySetup) -> None:
    trigger = {"type": "compaction_trigger"}
    body = {"model": routed_model(upstream), "tools": RESPONSES_TOOLS, "store": False}
    response = respond(setup, stream=stream, input=[*ITEMS, trigger], **body)
    assert [item["type"] for item in response["output"]] == ["compaction"]
    assert response["status"] == "completed"
    assert response["usage"]["output_tokens"] > 0
    assert len(setup.upstream.exchanges) == 1  # nothing besides the summary is requested
    history = {"input": [*ITEMS, *response["output"]], "tools": RESPONSES_TOOLS, "store": False}
    assert_continues(setup, "ollama", "/v1/responses", history)
    assert texts_sent(setup, "ollama")[:2] == ["Be brief.", "How is the weather in Paris?"]


@pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])
@pytest.mark.parametrize("upstream", OTHERS)
def test_conversation_above_the_threshold_is_compacted_before_the_answer(
    upstream: str, stream: bool, setup: GatewaySetup
) -> None:
    items = [*ITEMS, {"role": "user", "content": "And tomorrow?"}]
    body = {"model": routed_model(upstream), "tools": RESPONSES_TOOLS, "store": False}
    asked = {"context_management": [{"type": "compaction", "compact_threshold": 100}]}
    response = respond(setup, stream=stream, input=items, **body, **asked)
    kinds = [item["type"] for item in response["output"] if item["type"] != "reasoning"]
    assert kinds == ["compaction", "message"]
    assert response["output"][-1]["content"][0]["text"] == ANSWER
    summary_request, answer_request = setup.upstream.exchanges
    assert len(summary_request.calls(upstream)) == 1
    assert not answer_request.calls(upstream)
    assert "And tomorrow?" in "\n".join(texts_sent(setup, upstream))
    assert response["usage"]["input_tokens"] == sum(map(input_tokens, setup.upstream.exchanges))
    assert_continues(setup, upstream, "/v1/responses", {"input": [*items, *response["output"]], "store": False})


def test_conversation_below_the_threshold_is_left_alone(setup: GatewaySetup) -> None:
    asked = {"context_management": [{"type": "compaction", "compact_threshold": 100_000}]}
    response = respond(setup, stream=False, model=routed_model("gemini"), input=ITEMS, store=False, **asked)
    assert [item["type"] for item in response["output"] if item["type"] != "reasoning"] == ["message"]
    assert len(setup.upstream.exchanges) == 1


def test_second_compaction_replaces_the_first(setup: GatewaySetup) -> None:
    model = routed_model("gemini")
    first = post(setup, "/v1/responses/compact", model=model, input=ITEMS).json()["output"]
    items = [*first, {"role": "user", "content": "And in Rome?"}, {"role": "assistant", "content": "20 degrees."}]
    second = post(setup, "/v1/responses/compact", model=model, input=items).json()["output"]
    assert SUMMARY in "\n".join(texts_sent(setup, "gemini"))  # the first is part of what is summarized
    assert [item["type"] for item in second] == ["message", "message", "compaction"]
    assert_continues(setup, "openai-chat", "/v1/responses", {"input": second, "store": False})
    assert sum(SUMMARY_INTRODUCTION in text for text in texts_sent(setup, "openai-chat")) == 1
    both = [*first, *items[len(first) :], *second[-1:]]
    assert_continues(setup, "openai-chat", "/v1/responses", {"input": both, "store": False})
    assert sum(SUMMARY_INTRODUCTION in text for text in texts_sent(setup, "openai-chat")) == 1


def test_stored_conversation_is_compacted(setup: GatewaySetup) -> None:
    model = routed_model("gemini")
    stored = post(setup, "/v1/responses", model=model, input=ITEMS).json()["id"]
    compacted = post(setup, "/v1/responses/compact", model=model, previous_response_id=stored).json()
    assert [item["type"] for item in compacted["output"]] == ["message", "compaction"]
    missing = post(setup, "/v1/responses/compact", model=model, previous_response_id="resp_none")
    assert missing.status_code == 400
    assert missing.json()["error"]["code"] == "previous_response_not_found"


def test_prompt_of_the_route_is_used(setup: GatewaySetup) -> None:
    assert post(setup, "/v1/responses/compact", model="prompted", input=ITEMS).status_code == 200
    assert SCRIPT.prompts == ["Sum it up in one line."]


# ---- Messages


@pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])
@pytest.mark.parametrize("upstream", [name for name in UPSTREAMS if name != "anthropic"])
def test_compaction_request_is_answered_with_a_block_that_every_upstream_reads(
    upstream: str, stream: bool, setup: GatewaySetup
) -> None:
    response = message(
        setup,
        stream=stream,
        model=routed_model(upstream),
        messages=MESSAGES,
        extra_body={"compaction": {"type": "summarize"}},
    )
    assert [block["type"] for block in response["content"]] == ["compaction"]
    assert response["content"][0]["content"] == SUMMARY
    assert response["stop_reason"] == "compaction"
    (iteration,) = response["usage"]["iterations"]
    assert iteration["type"] == "compaction"
    assert iteration["output_tokens"] > 0
    block = {key: value for key, value in response["content"][0].items() if value is not None}
    history = [{"role": "assistant", "content": [block]}, {"role": "user", "content": "And tomorrow?"}]
    for other in UPSTREAMS if not stream else ("anthropic",):
        assert_continues(setup, other, "/v1/messages", {"messages": history, "max_tokens": 1000})


@pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])
@pytest.mark.parametrize("pauses", [False, True])
@pytest.mark.parametrize("upstream", ["openai-chat", "openai-responses", "gemini"])
def test_long_conversation_is_compacted_by_threshold(
    upstream: str, pauses: bool, stream: bool, setup: GatewaySetup
) -> None:
    edit = {
        "type": "compact_20260112",
        "trigger": {"type": "input_tokens", "value": 100},
        "pause_after_compaction": pauses,
        "instructions": "Name the code word.",
    }
    messages = [*MESSAGES, {"role": "user", "content": "And tomorrow?"}]
    asked = {"extra_body": {"context_management": {"edits": [edit]}}}
    response = message(setup, stream=stream, model=routed_model(upstream), messages=messages, **asked)
    kinds = [block["type"] for block in response["content"] if block["type"] != "thinking"]
    assert kinds == (["compaction"] if pauses else ["compaction", "text"])
    assert response["stop_reason"] == ("compaction" if pauses else "end_turn")
    assert SCRIPT.prompts == [f"{SUMMARY_PROMPT}\n\nName the code word."]
    iterations = response["usage"]["iterations"]
    assert [entry["type"] for entry in iterations] == (["compaction"] if pauses else ["compaction", "message"])
    assert response["usage"]["input_tokens"] == (0 if pauses else iterations[1]["input_tokens"])
    assert "And tomorrow?" in response["content"][0]["content"]  # asked, and not yet answered
    echoed = [
        {key: value for key, value in block.items() if value is not None}
        for block in response["content"]
        if block["type"] != "thinking"
    ]
    history = [*messages, {"role": "assistant", "content": echoed}, {"role": "user", "content": "Thanks."}]
    assert_continues(setup, upstream, "/v1/messages", {"messages": history, "max_tokens": 1000})


@pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])
@pytest.mark.parametrize("upstream", ["openai-chat", "openai-responses", "gemini", "ollama"])
def test_old_results_are_cleared_and_reported(upstream: str, stream: bool, setup: GatewaySetup) -> None:
    calls = [
        part
        for number in range(4)
        for part in (
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": f"toolu_{number}", "name": "weather", "input": {"city": f"C{number}"}}
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": f"{number}0 C " * 30}],
            },
        )
    ]
    edit = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "tool_uses", "value": 2},
        "keep": {"type": "tool_uses", "value": 1},
        "clear_tool_inputs": True,
    }
    response = message(
        setup,
        stream=stream,
        model=routed_model(upstream),
        messages=[MESSAGES[0], *calls],
        extra_body={"context_management": {"edits": [edit]}},
    )
    (applied,) = response["context_management"]["applied_edits"]
    assert applied["type"] == "clear_tool_uses_20250919"
    assert applied["cleared_tool_uses"] == 3
    assert applied["cleared_input_tokens"] > 0
    results = [
        "".join(str(getattr(part, "text", "") or bytes(getattr(part, "json", b""))) for part in result.content or ())
        for result in sent(setup).results(upstream)
    ]
    assert ["cleared" in result for result in results] == [True, True, True, False]
    arguments = [json.loads(call.arguments) for call in sent(setup).calls(upstream)]
    assert arguments == [{}, {}, {}, {"city": "C3"}]
    assert any(loss["path"] == "/context_management" for loss in non_empty(setup.losses()))


def test_unused_edits_leave_request_and_response_alone(setup: GatewaySetup) -> None:
    edits = [{"type": "clear_thinking_20251015", "keep": "all"}, {"type": "clear_tool_uses_20250919"}]
    plain = message(setup, stream=False, model=routed_model("gemini"), messages=MESSAGES[:3])
    expected = sent(setup).request_body
    body = {"context_management": {"edits": edits}}
    edited = message(setup, stream=False, model=routed_model("gemini"), messages=MESSAGES[:3], extra_body=body)
    assert sent(setup).request_body == expected
    assert edited["content"][-1] == plain["content"][-1]
    assert not any(loss["path"] == "/context_management" for loss in setup.losses())


# ---- providers of the same protocol


def test_provider_of_the_same_protocol_compacts_itself(setup: GatewaySetup) -> None:
    model = routed_model("openai-responses")
    compacted = post(setup, "/v1/responses/compact", model=model, input=ITEMS)
    assert sent(setup).path == "/v1/responses/compact"
    assert sent(setup).response_body == compacted.content
    assert json.loads(sent(setup).request_body) == {"model": model.partition("/")[2], "input": ITEMS}
    output = compacted.json()["output"]
    own = post(setup, "/v1/responses", model=model, input=output, store=False)
    assert own.status_code == 200
    assert json.loads(sent(setup).request_body)["input"] == output
    elsewhere = post(setup, "/v1/responses", model=routed_model("gemini"), input=output)
    assert elsewhere.status_code == 400
    assert "/input/1: only the openai-responses provider" in elsewhere.json()["error"]["message"]
    assert SCRIPT.prompts == []


def test_request_for_a_compaction_passes_to_anthropic_unchanged(setup: GatewaySetup) -> None:
    model = routed_model("anthropic")
    body = {"messages": MESSAGES, "max_tokens": 1000, "compaction": {"type": "summarize"}}
    response = post(setup, "/v1/messages", **body, model=model)
    assert response.content == sent(setup).response_body
    assert json.loads(sent(setup).request_body)["compaction"] == {"type": "summarize"}
    (block,) = response.json()["content"]
    history = [{"role": "assistant", "content": [block]}, {"role": "user", "content": "And tomorrow?"}]
    assert post(setup, "/v1/messages", messages=history, max_tokens=100, model=model).status_code == 200
    assert json.loads(sent(setup).request_body)["messages"] == history


# ---- errors


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "no messages"),
        ([{"role": "developer", "content": "Be brief."}], "no messages"),
        (ITEMS[:3], "'call_1' has no result"),
    ],
)
def test_conversation_that_cannot_be_compacted_is_rejected(
    items: list[dict[str, Any]], message: str, setup: GatewaySetup
) -> None:
    response = post(setup, "/v1/responses/compact", model=routed_model("gemini"), input=items)
    assert response.status_code == 400
    assert message in response.json()["error"]["message"]
    assert setup.upstream.exchanges == []


@pytest.mark.parametrize(
    ("member", "value", "location"),
    [
        ("context_management", {"edits": [{"type": "forget"}]}, "/context_management/edits/0/type"),
        ("context_management", {"edits": "all"}, "/context_management"),
        ("context_management", {"edits": [{"type": "clear_thinking_20251015"}] * 100}, "/context_management/edits"),
        (
            "context_management",
            {"edits": [{"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses", "value": -1}}]},
            "/context_management/edits/0/keep/value",
        ),
        ("compaction", {"type": "shrink"}, "/compaction/type"),
    ],
)
def test_invalid_context_management_is_rejected(member: str, value: Any, location: str, setup: GatewaySetup) -> None:
    body = {"messages": MESSAGES, "max_tokens": 100, "model": routed_model("gemini"), member: value}
    response = post(setup, "/v1/messages", **body)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert location in response.json()["error"]["message"]
    assert setup.upstream.exchanges == []


def test_altered_compaction_is_refused_by_name(setup: GatewaySetup) -> None:
    output = post(setup, "/v1/responses/compact", model=routed_model("gemini"), input=ITEMS).json()["output"]
    output[1]["encrypted_content"] = output[1]["encrypted_content"][:-8] + "AAAAAAAA"
    for upstream in ("gemini", "openai-responses"):
        response = post(setup, "/v1/responses", model=routed_model(upstream), input=output)
        assert response.status_code == 400
        assert response.json()["error"]["message"].startswith("/input/1: this compaction was altered")
    assert len(setup.upstream.exchanges) == 1


@pytest.mark.parametrize("failure", [ScriptedTurn(text="The us", stop="max_tokens"), ScriptedTurn(text=" ")])
def test_failed_summary_is_an_error_that_can_be_retried(failure: ScriptedTurn, setup: GatewaySetup) -> None:
    SCRIPT.failures.append(failure)
    body = {"model": routed_model("gemini"), "input": ITEMS}
    response = post(setup, "/v1/responses/compact", **body)
    assert response.status_code == 503
    assert "the conversation was not compacted" in response.json()["error"]["message"]
    assert post(setup, "/v1/responses/compact", **body).status_code == 200
    SCRIPT.failures.append(failure)
    message = {"messages": MESSAGES, "max_tokens": 100, "compaction": {"type": "summarize"}}
    response = post(setup, "/v1/messages", **message, model=routed_model("gemini"))
    assert response.status_code == 529
    assert response.json()["error"]["type"] == "overloaded_error"


# ---- providers that lack the feature, and other backends


NOTHING = {"type": "tool_uses", "value": 0}


def refuse_compaction(body: bytes, path: str) -> tuple[int, bytes] | None:
    """Return status and body by which servers without context management refuse the endpoint, or the member."""
    if path.endswith("/compact"):
        return 404, b'{"error":{"message":"Not Found","type":"invalid_request_error"}}'
    if "context_management" in json.loads(body):
        message = "context_management: Extra inputs are not permitted"
        return 400, json.dumps(
            {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
        ).encode()
    return None


def rename(entry: dict[str, Any]) -> dict[str, Any]:
    """Return a message with another call id."""
    renamed: dict[str, Any] = json.loads(json.dumps(entry).replace("toolu_1", "toolu_2"))
    return renamed


def replay(body: bytes) -> Any:
    """Return a `receive` function that yields a body that was read already."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


@pytest.mark.parametrize("stream", [False, True], ids=["buffered", "streamed"])
def test_gateway_takes_over_where_the_provider_refuses(stream: bool) -> None:
    edits = [{"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 1}, "keep": NOTHING}]
    calls = [*MESSAGES, *[rename(entry) for entry in MESSAGES], {"role": "user", "content": "And tomorrow?"}]

    class Refusing(Simulator):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http":
                await super().__call__(scope, receive, send)
                return
            body = await read_request_body(receive)
            if (refusal := refuse_compaction(body, scope["path"])) is None:
                await super().__call__(scope, replay(body), send)
                return
            status, error = refusal
            await send_response(send, error, status, (b"content-type", b"application/json"))

    with serve_gateway(Refusing(script=SCRIPT)) as setup:
        for _ in range(2):  # the second time, the provider is not asked
            setup.reset()
            response = message(
                setup,
                stream=stream,
                model=routed_model("anthropic"),
                messages=calls,
                extra_body={"context_management": {"edits": edits}},
            )
            assert response["context_management"]["applied_edits"][0]["cleared_tool_uses"] == 2
        assert [exchange.status for exchange in setup.upstream.exchanges] == [200]
        compacted = post(setup, "/v1/responses/compact", model=routed_model("openai-responses"), input=ITEMS)
        assert [item["type"] for item in compacted.json()["output"]] == ["message", "compaction"]
        assert_continues(setup, "gemini", "/v1/responses", {"input": compacted.json()["output"], "store": False})


def test_summary_moves_on_to_the_next_backend(setup: GatewaySetup) -> None:
    SCRIPT.failures.append(ScriptedTurn(error=ScriptedError(kind="server", status=500)))
    compacted = post(setup, "/v1/responses/compact", model="two", input=ITEMS)
    assert [item["type"] for item in compacted.json()["output"]] == ["message", "compaction"]
    assert [exchange.status for exchange in setup.upstream.exchanges] == [500, 200]


def test_routes_with_other_protocols_never_leave_a_compaction_to_the_provider(setup: GatewaySetup) -> None:
    compacted = post(setup, "/v1/responses/compact", model="mixed", input=ITEMS).json()["output"]
    assert sent(setup).path == "/v1/responses"
    assert_continues(setup, "gemini", "/v1/responses", {"input": compacted, "store": False})


def test_thinking_of_old_turns_is_cleared(setup: GatewaySetup) -> None:
    SCRIPT.thinking = "It is probably warm."
    thinking = {"type": "enabled", "budget_tokens": 1024}
    messages = [{"role": "user", "content": "How is the weather in Paris?"}]
    for _ in range(3):
        body = {"model": routed_model("openai-responses"), "max_tokens": 2000, "thinking": thinking}
        answer = post(setup, "/v1/messages", **body, messages=messages).json()["content"]
        assert "thinking" in {block["type"] for block in answer}
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "And tomorrow?"}]
    edits = {"edits": [{"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}]}
    response = post(setup, "/v1/messages", **body, messages=messages, context_management=edits).json()
    (applied,) = response["context_management"]["applied_edits"]
    assert applied["cleared_thinking_turns"] == 2
    kept = [part for part in sent(setup).parts("openai-responses") if isinstance(part, Reasoning)]
    assert len(kept) == 1


@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_runtime_compacts_its_history_with_its_own_model(upstream: str) -> None:
    codec = PROTOCOLS["openai-responses"]
    history = codec.decode_request(json.dumps({"input": [*ITEMS, ITEMS[1]]}).encode(), Route())

    async def work(url: str) -> None:
        section = ProviderSection(protocol=upstream, base_url=url, api_key="k", default_model="m")
        model = await open_model("m", with_memory_state(Config(providers={"up": section})), {"HOME": "/nonexistent"})
        summary, usage = await model.summarize(history)
        assert summary == SUMMARY
        assert usage.output_tokens
        recent = find_recent(history.messages, 10)
        assert recent == len(history.messages) - 1
        continued = compacted_request(history, summary, keep_from=recent)
        assert [message.role for message in continued.messages] == ["developer", "user", "user"]
        answer = fold([event async for event in model.stream(continued)])
        assert ANSWER in [part.text for part in answer.candidates[0].messages[-1].parts if isinstance(part, Text)]
        await model.close()

    with serve_app(Simulator((upstream,), script=SCRIPT)) as url:
        run_async(work(url))
