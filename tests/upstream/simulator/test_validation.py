"""Rejected requests, with the provider's messages, as the exceptions of the SDKs."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.deadlines import DEADLINE
from tests.support.sdk import validation
from tests.support.sdk.clients import API_KEY, SDK_CLIENTS
from tests.support.servers.asgi import http_client, serve_app
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.simulator.app import Simulator

CALL = {"role": "user", "content": "Hi"}
# An invalid history or setting for each provider, and the provider's message.
BROKEN: dict[str, tuple[list[Any], dict[str, Any], str]] = {
    "anthropic": (
        [
            CALL,
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "get_weather", "input": {}}]},
        ],
        {},
        "`tool_use` ids were found without `tool_result` blocks immediately after: t1",
    ),
    "openai-chat": (
        [{"role": "tool", "tool_call_id": "call_1", "content": "18"}],
        {},
        "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'",
    ),
    "openai-responses": (
        [{"type": "function_call_output", "call_id": "call_1", "output": "18"}],
        {},
        "No tool call found for function call output with call_id call_1.",
    ),
    "gemini": (
        [{"role": "user", "parts": [{"function_response": {"name": "get_weather", "response": {"output": "18"}}}]}],
        {},
        "Please ensure that function response turn comes immediately after a function call turn.",
    ),
    "gemini-interactions": (
        [{"type": "function_result", "call_id": "c1", "result": "18"}],
        {},
        "No function call with id 'c1' precedes this result.",
    ),
    "ollama": ([], {"logprobs": True, "top_logprobs": 50}, "top_logprobs must be between 0 and 20"),
    "openrouter": ([], {"reasoning": {"effort": "high"}, "reasoning_effort": "low"}, "differ"),
}


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with serve_app(Simulator()) as url:
        yield url


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("protocol", SDK_CLIENTS)
def test_invalid_request_raises_bad_request_in_sdk(base_url: str, protocol: str, stream: bool) -> None:
    kind, model = SDK_CLIENTS[protocol]
    history, options, words = BROKEN[protocol]
    talk = kind(base_url, model, stream=stream, history=list(history), options=options)
    with pytest.raises(kind.rejection, match=re.escape(words)):
        talk.send_text("And now?")


# ---- over plain HTTP: requests that no SDK sends

ADDRESSES = {
    "anthropic": "/v1/messages",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "gemini": "/v1beta/models/gemini-3-pro:generateContent",
    "gemini-interactions": "/v1beta/interactions",
    "ollama": "/api/chat",
    "openrouter": "/api/v1/chat/completions",
}


def error_message(protocol: str, answer: httpx.Response, status: int) -> str:
    """Return the error message of a response that the protocol's SDK recognizes as an error."""
    assert answer.status_code == status, answer.text
    assert validation.accept_error(protocol, answer.json()) is None
    return PROTOCOLS[protocol].decode_error(answer.content, status).message


@pytest.mark.parametrize("protocol", ADDRESSES)
def test_invalid_json_body_is_rejected(base_url: str, protocol: str) -> None:
    answer = http_client.post(base_url + ADDRESSES[protocol], content=b'{"model": ')
    assert "JSON" in error_message(protocol, answer, 400)


@pytest.mark.parametrize("protocol", ADDRESSES)
def test_unknown_path_is_not_found(protocol: str) -> None:
    with serve_app(Simulator([protocol])) as url:
        assert "/v1/nowhere" in error_message(protocol, http_client.post(url + "/v1/nowhere", json={}), 404)
        assert ADDRESSES[protocol] in error_message(protocol, http_client.get(url + ADDRESSES[protocol]), 404)


def test_body_over_the_limit_is_rejected() -> None:
    with serve_app(Simulator(limit_body=1000)) as url:
        for protocol, path in ADDRESSES.items():
            answer = http_client.post(url + path, content=b" " * 2000)
            error_message(protocol, answer, PROTOCOLS[protocol].surface.status_of("too_large"))


def test_missing_key_is_rejected_when_required() -> None:
    with serve_app(Simulator(require_key=True)) as url:
        for protocol, path in ADDRESSES.items():
            without = http_client.post(url + path, json={})
            error_message(protocol, without, 403 if protocol.startswith("gemini") else 401)
            with_key = http_client.post(
                url + path, content=b"{", headers=dict([PROTOCOLS[protocol].surface.auth_header(API_KEY)])
            )
            assert with_key.status_code == 400


def test_unknown_model_is_rejected() -> None:
    with serve_app(Simulator(models=("another",))) as url:
        for kind, model in SDK_CLIENTS.values():
            with pytest.raises(Exception, match=re.escape(model)) as raised:
                kind(url, model).send_text("Hi")
            assert getattr(raised.value, "status_code", getattr(raised.value, "code", None)) == 404


def test_version_header_selects_validation_rules(base_url: str) -> None:
    body = {"model": "claude-haiku-4-5", "max_tokens": 9, "temperature": 0.5, "messages": [CALL]}
    old = http_client.post(base_url + "/v1/messages", json=body, headers={"anthropic-version": "2023-06-01"})
    new = http_client.post(base_url + "/v1/messages", json=body, headers={"anthropic-version": "2026-10-21"})
    assert old.status_code == 200, old.text
    assert "temperature" in error_message("anthropic", new, 400)


# ---- protocol of a path, when all are served

LISTS = [
    ({}, "/v1/models", "gpt-6-astra"),
    ({"anthropic-version": "2023-06-01"}, "/v1/models", "claude-opus-5-5"),
    ({"x-goog-api-key": API_KEY}, "/v1/models", "models/gemini-3-pro"),
    ({}, "/v1beta/models", "models/gemini-3-pro"),
    ({}, "/api/tags", "qwen3:latest"),
    ({}, "/api/v1/models", "openai/gpt-6-astra"),
]


@pytest.mark.parametrize(("headers", "path", "model"), LISTS)
def test_models_are_listed_in_the_format_of_the_protocol(
    base_url: str, headers: dict[str, str], path: str, model: str
) -> None:
    listed = http_client.get(base_url + path, headers=headers).json()
    names = [entry.get("id") or entry["name"] for entry in listed.get("data") or listed["models"]]
    assert model in names


def test_sdks_parse_the_model_lists(base_url: str) -> None:
    import anthropic
    import ollama
    import openai
    from google import genai

    with anthropic.Anthropic(base_url=base_url, api_key=API_KEY, timeout=DEADLINE) as claude:
        assert claude.models.retrieve(next(iter(claude.models.list())).id).id == "claude-opus-5-5"
    with openai.OpenAI(base_url=f"{base_url}/v1", api_key=API_KEY, timeout=DEADLINE) as gpt:
        assert gpt.models.retrieve(next(iter(gpt.models.list())).id).id == "gpt-6-astra"
    with genai.Client(api_key=API_KEY, http_options={"base_url": base_url}) as gemini:
        first = next(iter(gemini.models.list()))
        assert gemini.models.get(model=first.name or "").name == "models/gemini-3-pro"
    with ollama.Client(host=base_url) as local:
        (first_local, *_) = local.list().models
        assert "tools" in (local.show(first_local.model or "").capabilities or ())
    assert http_client.get(f"{base_url}/api/version").json().keys() == {"version"}


# ---- stored conversations


def test_conversation_continues_by_previous_response_id(base_url: str) -> None:
    import openai

    with openai.OpenAI(base_url=f"{base_url}/v1", api_key=API_KEY, max_retries=0, timeout=DEADLINE) as client:
        tools: Any = [{"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": False}]
        model = "gpt-6-astra"
        first = client.responses.create(model=model, input="get_weather {}", tools=tools, reasoning={"effort": "low"})
        call: Any = first.output[-1]
        result: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees"}]
        second = client.responses.create(model=model, input=result, tools=tools, previous_response_id=first.id)
        assert second.output_text == "get_weather returned: 18 degrees"
        with pytest.raises(openai.BadRequestError, match="Previous response with id 'resp_x' not found") as raised:
            client.responses.create(model=model, input="Hi", previous_response_id="resp_x")
        assert raised.value.code == "previous_response_not_found"
        forgotten = client.responses.create(model=model, input="Hi", store=False)
        with pytest.raises(openai.BadRequestError, match="not found"):
            client.responses.create(model=model, input="Hi", previous_response_id=forgotten.id)


def test_interaction_continues_by_id(base_url: str) -> None:
    from google import genai
    from google.genai._gaos.lib.compat_errors import NotFoundError

    with genai.Client(api_key=API_KEY, http_options={"base_url": base_url}) as client:
        body: dict[str, Any] = {
            "model": "gemini-3-pro",
            "tools": [{"type": "function", "name": "get_weather", "parameters": {"type": "object"}}],
        }
        first: Any = client.interactions.create(**body, input="get_weather {}")
        assert first.status == "requires_action"
        call = next(step for step in first.steps if step.type == "function_call")
        result = {"type": "function_result", "call_id": call.id, "result": "18 degrees"}
        second: Any = client.interactions.create(**body, input=[result], previous_interaction_id=first.id)
        assert "get_weather returned: 18 degrees" in json.dumps([step.model_dump(mode="json") for step in second.steps])
        with pytest.raises(NotFoundError, match="not found"):
            client.interactions.create(**body, input="Hi", previous_interaction_id="v1_x")
