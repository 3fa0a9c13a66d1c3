"""Marks and keys that are added for the prompt cache of another provider."""

from typing import Any

import pytest

import toolwire as tw
from tests.support.bodies.minimal import anthropic_request, chat_request
from tests.support.translation import translate_body
from toolwire.protocols import PROTOCOLS
from toolwire.translation.cache_share import estimate_cache_share

MARK = {"type": "ephemeral"}
SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Hi"}
CLAUDE = "anthropic/claude-opus-5-5"
REQUESTS: dict[str, Any] = {
    "openai-chat": {"model": "m", "messages": [SYSTEM, USER]},
    "openai-responses": {"model": "m", "instructions": "Be brief.", "input": [USER]},
    "gemini": {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
    },
    "gemini-interactions": {"model": "m", "system_instruction": "Be brief.", "input": "Hi"},
    "ollama": {"model": "m", "messages": [SYSTEM, USER]},
    "openrouter": {"model": "m", "messages": [SYSTEM, USER]},
}


def added_values(translation: tw.Translation) -> set[str | None]:
    """Return the pointers of added values that have no effect on the response."""
    return {loss.target for loss in translation.losses if loss.kind == "added" and loss.severity == "info"}


@pytest.mark.parametrize("source", REQUESTS)
def test_requests_to_anthropic_are_marked(source: str) -> None:
    translation = translate_body(REQUESTS[source], source, "anthropic", cache="auto")
    assert translation.value["system"] == [{"type": "text", "text": "Be brief.", "cache_control": MARK}]
    assert translation.value["cache_control"] == MARK
    assert {"/system/0/cache_control", "/cache_control"} <= added_values(translation)
    plain = translate_body(REQUESTS[source], source, "anthropic")
    assert "cache_control" not in str(plain.value)


@pytest.mark.parametrize("source", [name for name in REQUESTS if name != "openrouter"])
def test_requests_to_claude_at_openrouter_are_marked(source: str) -> None:
    translation = translate_body(REQUESTS[source], source, "openrouter", cache="auto", model=CLAUDE)
    marked = [{"type": "text", "text": "Be brief.", "cache_control": MARK}]
    assert (translation.value["messages"][0]["content"], translation.value["cache_control"]) == (marked, MARK)
    assert {"/messages/0/content/0/cache_control", "/cache_control"} <= added_values(translation)
    other = translate_body(REQUESTS[source], source, "openrouter", cache="auto", model="openai/gpt-6")
    assert "cache_control" not in str(other.value)


@pytest.mark.parametrize(("target", "model"), [("anthropic", None), ("openrouter", CLAUDE)])
def test_tools_are_marked_so_that_more_of_them_can_be_added(target: str, model: str | None) -> None:
    tools = [{"type": "function", "name": name, "parameters": {"type": "object"}, "strict": False} for name in "ab"]
    bodies = [{"model": "m", "input": "Hi", "tools": tools[:count]} for count in (1, 2)]
    sent = [translate_body(body, "openai-responses", target, cache="auto", model=model) for body in bodies]
    assert [tool.get("cache_control") for tool in sent[1].value["tools"]] == [None, MARK]
    assert "/tools/1/cache_control" in added_values(sent[1])
    share = estimate_cache_share(sent[1].to_bytes(), [sent[0].to_bytes()], PROTOCOLS[target])
    assert share.readable_tokens > 0
    again = translate_body(bodies[1], "openai-responses", target, cache="auto", model=model)
    assert again.to_bytes() == sent[1].to_bytes()  # with tools that are known by now
    assert added_values(again) == added_values(sent[1])


def test_marks_of_the_client_are_sent_without_further_ones() -> None:
    part = {"type": "text", "text": "A manual.", "prompt_cache_breakpoint": {"mode": "explicit"}}
    body = chat_request({"role": "user", "content": [part, {"type": "text", "text": "Question?"}]})
    translated = translate_body(body, "openai-chat", "anthropic", cache="auto").value
    assert "cache_control" not in translated
    assert [block.get("cache_control") for block in translated["messages"][0]["content"]] == [MARK, None]


def test_anthropic_clients_without_marks_get_none() -> None:
    assert "cache_control" not in str(
        translate_body(anthropic_request(), "anthropic", "openrouter", cache="auto").value
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_is_added_for_the_same_protocol(protocol: str) -> None:
    body = REQUESTS.get(protocol, anthropic_request())
    translation = translate_body(body, protocol, protocol, cache="auto")
    assert (translation.value, translation.losses) == (body, [])


# ---- key


def cache_key(body: Any, source: str = "anthropic", target: str = "openai-chat", **options: Any) -> str | None:
    translation = translate_body(body, source, target, cache="auto", **options)
    key: str | None = translation.value.get("prompt_cache_key")
    assert ("/prompt_cache_key" in added_values(translation)) is (key is not None)
    return key


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses"])
@pytest.mark.parametrize("source", ["anthropic", "gemini", "gemini-interactions", "ollama"])
def test_key_is_added_for_clients_that_have_none(source: str, target: str) -> None:
    key = cache_key(REQUESTS.get(source, anthropic_request()), source, target)
    assert key is not None
    assert len(key) <= 64
    assert "Hi" not in key


def test_key_is_stable_within_a_conversation_and_differs_between_conversations() -> None:
    first = {"role": "user", "content": "Fix the test."}
    later = [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "Thanks."}]
    tool = {"name": "f", "input_schema": {"type": "object"}}
    key = cache_key(anthropic_request(first))
    assert key == cache_key(anthropic_request(first, *later, system="Be brief.", tools=[tool]))
    marked = [{"type": "text", "text": "Fix the test.", "cache_control": MARK}]
    assert key == cache_key(anthropic_request({"role": "user", "content": marked}))
    assert key != cache_key(anthropic_request({"role": "user", "content": "Fix the tests."}))
    long = "x" * 5000
    assert cache_key(anthropic_request({"role": "user", "content": long})) != cache_key(
        anthropic_request({"role": "user", "content": long + "x"})
    )


def test_key_of_the_client_is_sent_and_none_is_added_for_protocols_that_have_one() -> None:
    body = {"model": "m", "input": [USER], "prompt_cache_key": "session-1"}
    translated = translate_body(body, "openai-responses", "openai-chat", cache="auto").value
    assert translated["prompt_cache_key"] == "session-1"
    assert cache_key({"model": "m", "input": [USER]}, "openai-responses") is None


@pytest.mark.parametrize(
    ("host", "has_key"), [("openai", True), ("azure", True), ("mistral", True), ("generic", False)]
)
def test_key_is_sent_to_hosts_that_use_it(host: str, has_key: bool) -> None:
    assert (cache_key(anthropic_request(), host=host) is not None) is has_key


def test_image_alone_gives_no_key() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    assert cache_key(anthropic_request({"role": "user", "content": [{"type": "image", "source": source}]})) is None
