"""Protocols that pair by name or issue no ids (ID-7 to ID-10, ID-17 and ID-18)."""

from typing import Any

import pytest

from tests.support.bodies.google import (
    USER_CONTENT,
    gemini_call,
    gemini_request,
    gemini_response,
    gemini_result,
    gemini_stream,
    gemini_turn,
    interactions_call,
    interactions_input,
    interactions_request,
    interactions_result,
    interactions_turn,
)
from tests.support.bodies.minimal import (
    USER_MESSAGE,
    anthropic_call,
    anthropic_request,
    anthropic_result,
    anthropic_turn,
    chat_call,
    chat_request,
    chat_result,
    chat_turn,
    responses_call,
    responses_output,
    responses_request,
    responses_turn,
    tool_cycle_request,
)
from tests.support.bodies.ollama import (
    ollama_assistant,
    ollama_call,
    ollama_request,
    ollama_response,
    ollama_result,
    ollama_stream,
    ollama_turn,
)
from tests.support.bodies.readers import (
    content_text,
    declared_names,
    gemini_parts,
    interaction_steps,
    tool_calls_in,
    tool_results_in,
)
from tests.support.protocols import (
    ALL_PAIRS,
    ALL_PROTOCOLS,
    ANTHROPIC,
    CHAT,
    GEMINI,
    INTERACTIONS,
    OLLAMA,
    OPENROUTER,
    RESPONSES,
)
from tests.support.sdk.validation import Call, fold_stream
from tests.support.translation import loss_kinds, translate_stream_bytes, translated_body

NAMING_PROTOCOLS = (GEMINI, INTERACTIONS, OLLAMA)
PAIRS_TO_NAMING = [(source, target) for source, target in ALL_PAIRS if target in NAMING_PROTOCOLS]


def history_without_names(source: str) -> dict[str, Any]:
    """Build a history whose result has only the id of its call, where the protocol permits it."""
    body = tool_cycle_request(source, "call_1")
    if source == OLLAMA:
        del body["messages"][2]["tool_name"]
    if source == INTERACTIONS:
        del body["input"][2]["name"]
    return body


ORPHANS: dict[str, tuple[dict[str, Any], str]] = {
    ANTHROPIC: (
        anthropic_request(USER_MESSAGE, {"role": "user", "content": [anthropic_result("call_9")]}),
        "/messages/1/content/0/tool_use_id",
    ),
    CHAT: (chat_request(USER_MESSAGE, chat_result("call_9")), "/messages/1/tool_call_id"),
    RESPONSES: (responses_request(USER_MESSAGE, responses_output("call_9")), "/input/1/call_id"),
    GEMINI: (
        gemini_request(USER_CONTENT, {"role": "user", "parts": [gemini_result("call_9")]}),
        "/contents/1/parts/0/functionResponse/id",
    ),
    INTERACTIONS: (interactions_request(interactions_input(), interactions_result("call_9")), "/input/1/call_id"),
    OLLAMA: (ollama_request(USER_MESSAGE, ollama_result("call_9")), "/messages/1/tool_call_id"),
    OPENROUTER: (chat_request(USER_MESSAGE, chat_result("call_9")), "/messages/1/tool_call_id"),
}


def user_text(protocol: str, body: Any) -> str:
    """Return all text of the user in a request."""
    match protocol:
        case "gemini":
            return "".join(part.get("text", "") for part in gemini_parts(body))
        case "gemini-interactions":
            return "".join(content_text(step["content"]) for step in interaction_steps(body))
        case "openai-responses":
            return "".join(content_text(item["content"]) for item in body["input"])
        case _:
            return "".join(content_text(message["content"]) for message in body["messages"])


@pytest.mark.parametrize(("source", "target"), ALL_PAIRS)
def test_id_7_results_carry_the_name_of_their_call_and_become_text_without_one(source: str, target: str) -> None:
    translated = translated_body(history_without_names(source), source, target)
    assert declared_names(target, translated) == ["get_weather" if target in NAMING_PROTOCOLS else None]
    body, path = ORPHANS[source]
    orphan = translated_body(body, source, target)
    assert tool_results_in(target, orphan) == []
    name = "get_weather" if source in NAMING_PROTOCOLS else "a tool"
    assert user_text(target, orphan) == f"Go on.[result of {name}, call call_9]18C"
    assert loss_kinds(body, source, target)[path] == "approximated"


def history_of_two_tools(source: str) -> dict[str, Any]:
    """Build a history with calls of two tools and results in the opposite order."""
    tools = (("call_1", "first"), ("call_2", "second"))
    results = (("call_2", "of second"), ("call_1", "of first"))
    match source:
        case "anthropic":
            return anthropic_turn(
                [anthropic_call(*tool) for tool in tools], [anthropic_result(*result) for result in results]
            )
        case "openai-responses":
            return responses_turn(
                [responses_call(*tool) for tool in tools], [responses_output(*result) for result in results]
            )
        case "gemini":
            named_results = [gemini_result(*result, name=result[1].removeprefix("of ")) for result in results]
            return gemini_turn([gemini_call(*tool) for tool in tools], named_results)
        case "gemini-interactions":
            named_results = [interactions_result(*result, name=result[1].removeprefix("of ")) for result in results]
            return interactions_turn([interactions_call(*tool) for tool in tools], named_results)
        case "ollama":
            named_results = [ollama_result(*result, name=result[1].removeprefix("of ")) for result in results]
            return ollama_turn([ollama_call(*tool) for tool in tools], named_results)
        case _:
            return chat_turn([chat_call(*tool) for tool in tools], [chat_result(*result) for result in results])


@pytest.mark.parametrize(("source", "target"), PAIRS_TO_NAMING)
def test_id_8_results_are_named_after_the_calls_they_answer(source: str, target: str) -> None:
    translated = translated_body(history_of_two_tools(source), source, target)
    assert declared_names(target, translated) == ["first", "second"]
    assert tool_results_in(target, translated) == [("call_1", "of first"), ("call_2", "of second")]


@pytest.mark.parametrize(("source", "target"), PAIRS_TO_NAMING)
def test_id_9_ids_from_the_provider_stand_on_call_and_result(source: str, target: str) -> None:
    translated = translated_body(tool_cycle_request(source, "call_7"), source, target)
    assert [call["id"] for call in tool_calls_in(target, translated)] == ["call_7"]
    assert tool_results_in(target, translated) == [("call_7", "result 0")]


GEMINI_TWICE = gemini_turn([gemini_call(), gemini_call()], [gemini_result(output="one"), gemini_result(output="two")])
OLLAMA_TWICE = ollama_turn([ollama_call(), ollama_call()], [ollama_result(content="one"), ollama_result(content="two")])
NEXT_TURNS: dict[str, Any] = {GEMINI: {"role": "model", "parts": [{"text": "18C."}]}, OLLAMA: USER_MESSAGE}
PROTOCOLS_WITH_IDS = (ANTHROPIC, CHAT, RESPONSES, INTERACTIONS, OPENROUTER)


def paired_call_ids(protocol: str, body: Any) -> list[str]:
    """Return the call ids of a request, after checking that its two results follow them in order."""
    call_ids = [str(call["id"]) for call in tool_calls_in(protocol, body)]
    assert tool_results_in(protocol, body) == [(call_ids[0], "one"), (call_ids[1], "two")]
    return call_ids


def check_stable_ids(body: dict[str, Any], source: str, target: str, history: str) -> list[str]:
    """Check that calls without ids get two stable ids, which are not sent back."""
    first = translated_body(body, source, target)
    call_ids = paired_call_ids(target, first)
    assert len(set(call_ids)) == 2
    assert translated_body(body, source, target) == first
    longer = {**body, history: [*body[history], NEXT_TURNS[source]]}
    assert paired_call_ids(target, translated_body(longer, source, target)) == call_ids
    restored = translated_body(first, target, source)
    assert [call["id"] for call in tool_calls_in(source, restored)] == [None, None]
    assert tool_results_in(source, restored) == [(None, "one"), (None, "two")]
    return call_ids


@pytest.mark.parametrize("target", PROTOCOLS_WITH_IDS)
def test_id_10_calls_without_ids_get_stable_ids_that_are_not_sent_back(target: str) -> None:
    check_stable_ids(GEMINI_TWICE, GEMINI, target, "contents")
    streamed_calls = fold_stream(
        target, translate_stream_bytes(gemini_stream(gemini_call(), gemini_call()), GEMINI, target)
    )["calls"]
    assert len({call["id"] for call in streamed_calls} - {None, ""}) == 2
    full_body = translated_body(gemini_response(gemini_call(), gemini_call()), GEMINI, target, "response")
    assert [call["id"] for call in tool_calls_in(target, full_body)] == [call["id"] for call in streamed_calls]


@pytest.mark.parametrize("target", PROTOCOLS_WITH_IDS)
def test_id_17_parallel_calls_of_one_tool_get_distinct_ids_and_return_by_name(target: str) -> None:
    check_stable_ids(OLLAMA_TWICE, OLLAMA, target, "messages")
    restored = translated_body(translated_body(OLLAMA_TWICE, OLLAMA, target), target, OLLAMA)
    assert declared_names(OLLAMA, restored) == ["get_weather", "get_weather"]
    full_body = translated_body(
        ollama_response(ollama_assistant(ollama_call(), ollama_call())), OLLAMA, target, "response"
    )
    assert len({call["id"] for call in tool_calls_in(target, full_body)} - {None, ""}) == 2
    lines = [ollama_assistant(ollama_call()), ollama_assistant(ollama_call())]
    calls: list[Call] = fold_stream(target, translate_stream_bytes(ollama_stream(*lines), OLLAMA, target))["calls"]
    assert len({call["id"] for call in calls} - {None, ""}) == 2


# The paths of the call ids of both results.
RESULT_IDS = {
    ANTHROPIC: ["/messages/2/content/0/tool_use_id", "/messages/2/content/1/tool_use_id"],
    CHAT: ["/messages/2/tool_call_id", "/messages/3/tool_call_id"],
    RESPONSES: ["/input/3/call_id", "/input/4/call_id"],
    GEMINI: ["/contents/2/parts/0/functionResponse/id", "/contents/2/parts/1/functionResponse/id"],
    INTERACTIONS: ["/input/3/call_id", "/input/4/call_id"],
    OPENROUTER: ["/messages/2/tool_call_id", "/messages/3/tool_call_id"],
}


def history_with_reversed_results(source: str) -> dict[str, Any]:
    """Build a history with two calls of one tool and results in the opposite order."""
    body = tool_cycle_request(source, "call_1", "call_2")
    match source:
        case "anthropic":
            body["messages"][2]["content"].reverse()
        case "gemini":
            body["contents"][2]["parts"].reverse()
        case "openai-responses" | "gemini-interactions":
            body["input"][3:] = reversed(body["input"][3:])
        case _:
            body["messages"][2:] = reversed(body["messages"][2:])
    return body


@pytest.mark.parametrize("source", list(RESULT_IDS))
def test_id_18_results_of_one_tool_stay_in_call_order_and_the_ambiguity_is_reported(source: str) -> None:
    body = history_with_reversed_results(source)
    translated = translated_body(body, source, OLLAMA)
    assert tool_results_in(OLLAMA, translated) == [("call_1", "result 0"), ("call_2", "result 1")]
    kinds = loss_kinds(body, source, OLLAMA)
    assert [kinds.get(path) for path in RESULT_IDS[source]] == ["approximated", "approximated"]
    assert loss_kinds(tool_cycle_request(source, "call_1"), source, OLLAMA) == {}
    assert loss_kinds(history_of_two_tools(source), source, OLLAMA) == {}


def test_every_protocol_is_covered() -> None:
    assert set(ORPHANS) == set(ALL_PROTOCOLS)
    assert set(RESULT_IDS) == set(ALL_PROTOCOLS) - {OLLAMA}
