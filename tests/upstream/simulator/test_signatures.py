"""Signatures of thinking that the simulator requires back, as each provider does."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.support.sdk.clients import SDK_CLIENTS, SdkClient
from tests.support.servers.asgi import http_client, serve_app
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.validation import SignatureKey

WISH = 'get_weather {"city": "Oslo"}'


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with serve_app(Simulator()) as url:
        yield url


def as_plain_data(value: Any) -> Any:
    """Return a history as plain data, so that a test can modify it."""
    return value.model_dump(mode="json", exclude_none=True) if hasattr(value, "model_dump") else value


def map_objects(history: list[Any], change: Callable[[dict[str, Any]], Any]) -> list[Any]:
    """Return the history with a change applied to every object; None removes the object."""

    def walk(value: Any) -> Any:
        value = as_plain_data(value)
        if isinstance(value, list):
            return [walked for one in value if (walked := walk(one)) is not None]
        if isinstance(value, dict):
            changed = change({name: walk(inner) for name, inner in value.items()})
            return changed if changed is None else dict(changed)
        return value

    walked: list[Any] = walk(history)
    return walked


def remove_objects(**fields: str) -> Callable[[dict[str, Any]], Any]:
    """Return a change that removes objects with these values."""
    return lambda one: None if all(one.get(name) == value for name, value in fields.items()) else one


def replace_field(field: str, value: str) -> Callable[[dict[str, Any]], Any]:
    return lambda one: {**one, field: value} if one.get(field) else one


FOREIGN = SignatureKey(b"another's key").sign("anthropic", "x").data
MISSING: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "anthropic": (remove_objects(type="thinking"), "blocks in the latest assistant message cannot be modified"),
    "openai-responses": (remove_objects(type="reasoning"), "was provided without its required 'reasoning' item: 'rs_"),
    "gemini": (
        lambda one: {name: value for name, value in one.items() if name != "thought_signature"},
        "is missing a thought_signature in functionCall parts",
    ),
    "gemini-interactions": (remove_objects(type="thought"), "is missing a `thought_signature`"),
}
CHANGED: dict[str, tuple[str, str]] = {
    "anthropic": ("signature", "messages.1.content.0: Invalid `signature` in `thinking` block"),
    "openai-responses": ("encrypted_content", "could not be verified"),
    "gemini": ("thought_signature", "Corrupted thought signature."),
    "gemini-interactions": ("signature", "Invalid thought signature."),
    "openrouter": ("signature", "Provider returned error"),
}


def call_tool(protocol: str, base_url: str, *, stream: bool = False, **options: Any) -> tuple[SdkClient, Any]:
    kind, model = SDK_CLIENTS[protocol]
    talk = kind(base_url, model, stream=stream, thinking=True, options=options)
    return talk, talk.send_text(WISH).calls


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("protocol", MISSING)
def test_missing_signature_is_rejected(base_url: str, protocol: str, stream: bool) -> None:
    talk, calls = call_tool(protocol, base_url, stream=stream)
    change, words = MISSING[protocol]
    talk.history = map_objects(talk.history, change)
    with pytest.raises(talk.rejection, match=re.escape(words)):
        talk.send_results(calls, ["18"])


@pytest.mark.parametrize("protocol", CHANGED)
def test_foreign_signature_is_rejected(base_url: str, protocol: str) -> None:
    talk, calls = call_tool(protocol, base_url)
    field, words = CHANGED[protocol]
    talk.history = map_objects(talk.history, replace_field(field, FOREIGN))
    with pytest.raises(talk.rejection, match=re.escape(words)):
        talk.send_results(calls, ["18"])


@pytest.mark.parametrize("account", ["", "second"])
@pytest.mark.parametrize("protocol", CHANGED)
def test_signature_of_another_account_is_rejected(base_url: str, protocol: str, account: str) -> None:
    talk, calls = call_tool(protocol, base_url)
    with serve_app(Simulator([protocol], account=account)) as other_url:
        other, _ = call_tool(protocol, other_url)
        other.history = talk.history
        if not account:  # another server of the same account
            assert "18" in other.send_results(calls, ["18"]).text
            return
        with pytest.raises(talk.rejection, match=re.escape(CHANGED[protocol][1])):
            other.send_results(calls, ["18"])


@pytest.mark.parametrize("protocol", CHANGED)
def test_signature_of_another_model_is_rejected(base_url: str, protocol: str) -> None:
    talk, calls = call_tool(protocol, base_url)
    kind, model = SDK_CLIENTS[protocol]
    vendor, slash, _ = model.rpartition("/")
    names = {"anthropic": "claude-sonnet-5", "openai-responses": "gpt-5.4", "openrouter": "claude-sonnet-5"}
    other = kind(base_url, f"{vendor}{slash}{names.get(protocol, 'gemini-3.8-flash')}", thinking=True)
    other.send_text(WISH)
    other.history = talk.history
    with pytest.raises(talk.rejection, match=re.escape(CHANGED[protocol][1])):
        other.send_results(calls, ["18"])


def test_edited_thinking_is_rejected(base_url: str) -> None:
    talk, calls = call_tool("anthropic", base_url)
    talk.history = map_objects(talk.history, replace_field("thinking", "I never thought that."))
    with pytest.raises(talk.rejection, match="Invalid `signature`"):
        talk.send_results(calls, ["18"])


def test_unsigned_thinking_is_rejected(base_url: str) -> None:
    talk, calls = call_tool("anthropic", base_url)
    talk.history = map_objects(talk.history, replace_field("signature", ""))
    with pytest.raises(talk.rejection, match="Invalid `signature`"):
        talk.send_results(calls, ["18"])


def test_missing_thinking_with_budget_has_its_own_message(base_url: str) -> None:
    kind, _ = SDK_CLIENTS["anthropic"]
    talk = kind(base_url, "claude-haiku-4-5", options={"thinking": {"type": "enabled", "budget_tokens": 1024}})
    calls = talk.send_text(WISH).calls
    talk.history = map_objects(talk.history, remove_objects(type="thinking"))
    expected = "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`"
    with pytest.raises(talk.rejection, match=re.escape(expected)):
        talk.send_results(calls, ["18"])


# ---- accepted deviations


def test_missing_thinking_is_accepted_when_thinking_is_off(base_url: str) -> None:
    talk, calls = call_tool("anthropic", base_url)
    talk.history = map_objects(talk.history, remove_objects(type="thinking"))
    talk.thinking = False
    assert "18" in talk.send_results(calls, ["18"]).text


def test_item_without_id_needs_no_reasoning(base_url: str) -> None:
    talk, calls = call_tool("openai-responses", base_url)
    talk.history = map_objects(
        map_objects(talk.history, remove_objects(type="reasoning")),
        lambda one: {name: value for name, value in one.items() if name != "id"},
    )
    assert "18" in talk.send_results(calls, ["18"]).text


@pytest.mark.parametrize(
    ("protocol", "call"),
    [
        ("anthropic", {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]}),
        ("gemini-interactions", {"type": "function_call", "id": "t1", "name": "f", "arguments": {}}),
        ("openai-responses", {"type": "function_call", "id": "fc_1", "call_id": "t1", "name": "f", "arguments": "{}"}),
    ],
)
def test_call_of_another_model_needs_no_thinking(base_url: str, protocol: str, call: Any) -> None:
    from tests.support.sdk.clients import ReceivedCall

    talk, _ = call_tool(protocol, base_url)
    talk.history = [talk.history[0], call]
    assert "18" in talk.send_results([ReceivedCall("t1", "f", {})], ["18"]).text


def gemini_turns(signature: str | None, model: str, base_url: str) -> httpx.Response:
    part: dict[str, Any] = {"functionCall": {"name": "get_weather", "args": {}}}
    if signature is not None:
        part["thoughtSignature"] = signature
    result = {"functionResponse": {"name": "get_weather", "response": {"output": "18"}}}
    contents = [
        {"role": "user", "parts": [{"text": "Hi"}]},
        {"role": "model", "parts": [part]},
        {"role": "user", "parts": [result]},
    ]
    return http_client.post(f"{base_url}/v1beta/models/{model}:generateContent", json={"contents": contents})


@pytest.mark.parametrize(
    ("signature", "model", "status"),
    [
        ("skip_thought_signature_validator", "gemini-3-pro", 200),
        ("c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=", "gemini-3-pro", 200),
        (None, "gemini-3-pro", 400),
        ("AAAA", "gemini-3-pro", 400),
        (None, "gemini-2.5-flash", 200),
        ("AAAA", "gemini-2.5-flash", 200),
    ],
)
def test_gemini_signatures_depend_on_the_generation(
    base_url: str, signature: str | None, model: str, status: int
) -> None:
    answer = gemini_turns(signature, model, base_url)
    assert answer.status_code == status, answer.text


def test_signature_in_urlsafe_base64_is_accepted(base_url: str) -> None:
    for number in range(40):
        wish = {"contents": [{"parts": [{"text": f"get_weather {json.dumps({'city': str(number)})}"}]}]}
        tool = {"name": "get_weather", "parametersJsonSchema": {"type": "object"}}
        body = {**wish, "tools": [{"functionDeclarations": [tool]}]}
        answer = http_client.post(f"{base_url}/v1beta/models/gemini-3-pro:generateContent", json=body).json()
        signature = answer["candidates"][0]["content"]["parts"][0]["thoughtSignature"]
        other = signature.replace("+", "-").replace("/", "_")
        if other != signature:
            assert gemini_turns(other, "gemini-3-pro", base_url).status_code == 200
            return
    pytest.fail("no signature has a letter that differs")
