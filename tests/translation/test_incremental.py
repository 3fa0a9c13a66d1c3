"""Incremental translation: which bodies continue a conversation, and which are decoded or encoded completely."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from toolwire.canonical.content import Message, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.codec.interface import EncodedBody, Route, Target
from toolwire.protocols import PROTOCOLS
from toolwire.translation.body import get_host_profile
from toolwire.translation.encoding_snapshot import EncodingSnapshot
from toolwire.translation.incremental import (
    RequestSnapshot,
    conversation_key,
    find_messages,
    is_regular,
)

CLIENT, UPSTREAM = PROTOCOLS["anthropic"], PROTOCOLS["openai-chat"]
TARGET = Target(model="gpt-6", stream=False)
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
TOOLS = [{"name": "read", "input_schema": {"type": "object", "properties": {"messages": {"type": "array"}}}}]


def turn(number: int, **call: Any) -> list[Any]:
    """Return a tool call and its result."""
    use = {"type": "tool_use", "id": f"toolu_{number}", "name": "read", "input": {"n": number}} | call
    result = {"type": "tool_result", "tool_use_id": use["id"], "content": f"result {number}"}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]


def history(turns: int) -> list[Any]:
    return [{"role": "user", "content": "Hello"}] + [message for number in range(turns) for message in turn(number)]


def serialize(messages: list[Any], **fields: Any) -> bytes:
    body = {
        "model": "claude-x",
        "tools": TOOLS,
        "messages": messages,
        "max_tokens": 100,
        "system": "Be brief.",
    } | fields
    return json.dumps(body, separators=(",", ":")).encode()


def snapshot_of(body: bytes) -> RequestSnapshot:
    start = find_messages(body, CLIENT)
    assert start is not None
    return RequestSnapshot(body, start, Route(), CLIENT.decode_request(body, Route()))


def resume(first: bytes, second: bytes) -> RequestSnapshot | None:
    """Decode the second body from the first one; if that is possible, the result must be the same."""
    continued = snapshot_of(first).continue_with(CLIENT, second, Route())
    if continued is not None:
        assert continued.request == CLIENT.decode_request(second, Route())
    return continued


def resume_encoding(first: bytes, second: bytes) -> EncodingSnapshot | None:
    """Encode the second body from the first one; if that is possible, the result must be the same."""
    request, later = CLIENT.decode_request(first, Route()), CLIENT.decode_request(second, Route())
    known = EncodingSnapshot.from_encoding(UPSTREAM.encode_request(request, TARGET), request, CLIENT, UPSTREAM, TARGET)
    continued = known.continue_with(later, UPSTREAM, TARGET)
    if continued is not None:
        assert continued.encoding.to_bytes() == UPSTREAM.encode_request(later, TARGET).to_bytes()
    return continued


def test_appended_messages_continue_a_conversation() -> None:
    continued = resume(serialize(history(3)), serialize(history(4)))
    assert continued is not None
    assert continued.continue_with(CLIENT, serialize(history(5)), Route()) is not None


def test_old_messages_are_the_same_objects() -> None:
    first = snapshot_of(serialize(history(3)))
    continued = first.continue_with(CLIENT, serialize(history(4)), Route())
    assert continued is not None
    assert all(old is new for old, new in zip(first.request.messages, continued.request.messages, strict=False))


def test_a_moved_cache_mark_costs_only_the_messages_after_it() -> None:
    marked = history(3)
    marked[-1]["content"][0]["cache_control"] = {"type": "ephemeral"}
    continued = resume(serialize(marked), serialize(history(4)))
    assert continued is not None
    assert resume_encoding(serialize(marked), serialize(history(4))) is not None


def test_an_equal_body_continues_a_conversation() -> None:
    assert resume(serialize(history(3)), serialize(history(3))) is not None


@pytest.mark.parametrize(
    "fields",
    [{"max_tokens": 99}, {"system": "Be verbose."}, {"tools": []}, {"model": "claude-y"}, {"temperature": 1}],
    ids=lambda fields: next(iter(fields)),
)
def test_a_change_outside_the_messages_is_decoded_completely(fields: dict[str, Any]) -> None:
    assert resume(serialize(history(3)), serialize(history(4), **fields)) is None
    assert resume_encoding(serialize(history(3)), serialize(history(4), **fields)) is None


def test_another_first_message_is_decoded_completely() -> None:
    assert resume(serialize(history(3)), serialize([{"role": "user", "content": "Bye"}, *history(4)[1:]])) is None


def test_fewer_messages_are_decoded_completely() -> None:
    assert resume(serialize(history(3)), serialize(history(2))) is None


def test_another_route_is_decoded_completely() -> None:
    first = snapshot_of(serialize(history(3)))
    assert first.continue_with(CLIENT, serialize(history(4)), Route(model="other")) is None


def test_a_hosted_call_is_decoded_completely() -> None:
    hosted = turn(3, type="server_tool_use", name="web_search")
    assert resume(serialize(history(3)), serialize(history(3) + hosted)) is None
    early, later = history(3) + hosted + turn(8), history(3) + hosted + turn(8) + turn(9)
    assert resume(serialize(early), serialize(later)) is None
    assert resume_encoding(serialize(early), serialize(later)) is None


def test_a_declared_computer_is_decoded_completely() -> None:
    computer = {"type": "computer_20250124", "name": "computer", "display_width_px": 800, "display_height_px": 600}
    assert resume(serialize(history(3), tools=[computer]), serialize(history(4), tools=[computer])) is None


@pytest.mark.parametrize("spelling", ["messages", "mess\\u0061ges"])
def test_a_later_member_of_the_same_name_is_the_effective_one(spelling: str) -> None:
    duplicate = b',"%b":[{"role":"user","content":"Effective"}]}' % spelling.encode()
    bodies = [serialize(history(turns))[:-1] + duplicate for turns in (3, 4)]
    assert resume(*bodies) is None


def test_an_equal_later_member_of_the_same_name_is_the_effective_one() -> None:
    duplicate = b"," + serialize(history(3))[1:]
    bodies = [serialize(messages)[:-1] + duplicate for messages in (history(3), history(3) + history(3))]
    assert resume(*bodies) is None


def test_a_nested_member_of_the_same_name_is_not_the_messages() -> None:
    tools = [{"name": "send", "input_schema": {"type": "object", "default": {"messages": [{"role": "user"}]}}}]
    assert resume(serialize(history(3), tools=tools), serialize(history(4), tools=tools)) is None


def test_messages_that_close_the_array_are_decoded_completely() -> None:
    body = serialize(history(3))
    end = body.index(b'],"max_tokens"')
    closed = body[:end] + b'],"max_tokens":7,"stop_sequences":["x"' + body[end:]
    assert resume(body, closed) is None


def test_invalid_new_messages_are_left_to_the_complete_decoder() -> None:
    body = serialize(history(3))
    end = body.index(b'],"max_tokens"')
    invalid_input = b',{"role":"assistant","content":[{"type":"tool_use","id":"i","name":"read","input":{"n":"\xff"}}]}'
    invalid_role = b',{"role":"nobody","content":""}'
    for added in (b',{"role":"user","content":"\xff"}', invalid_input, invalid_role, b",{", b",1", b","):
        assert snapshot_of(body).continue_with(CLIENT, body[:end] + added + body[end:], Route()) is None


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" ,\n", "\t: ")])
def test_whitespace_between_messages_is_allowed(separators: tuple[str, str]) -> None:
    bodies = [json.dumps(json.loads(serialize(history(turns))), separators=separators).encode() for turns in (3, 4, 5)]
    continued = resume(bodies[0], bodies[1])
    assert continued is not None
    assert continued.continue_with(CLIENT, bodies[2], Route()) is not None


def test_the_key_of_a_conversation_is_its_first_message() -> None:
    keys = {conversation_key(body, find_messages(body, CLIENT) or 0) for body in map(serialize, map(history, range(4)))}
    assert keys == {b'{"role":"user","content":"Hello'}


def test_the_key_of_a_conversation_does_not_depend_on_cache_marks() -> None:
    block = {"type": "text", "text": "Hello"}
    marked = block | {"cache_control": {"type": "ephemeral"}}
    bodies = [serialize([{"role": "user", "content": [part]}, *history(3)[1:]]) for part in (block, marked)]
    assert len({conversation_key(body, find_messages(body, CLIENT) or 0) for body in bodies}) == 1


def test_turns_between_changed_ones_are_copied() -> None:
    """A client moves its two cache marks: the turn that loses one changes, and the next one stays."""
    bodies = [history(turns) for turns in (4, 5, 6)]
    for body in bodies:
        for message in (body[-1], body[-3]):
            message["content"][0]["cache_control"] = {"type": "ephemeral"}
    first, *later = [CLIENT.decode_request(serialize(body), Route()) for body in bodies]
    encoding = UPSTREAM.encode_request(first, TARGET)
    known: EncodingSnapshot | None = EncodingSnapshot.from_encoding(encoding, first, CLIENT, UPSTREAM, TARGET)
    for request in later:
        assert known is not None
        known = known.continue_with(request, UPSTREAM, TARGET)
        assert known is not None
        complete = UPSTREAM.encode_request(request, TARGET)
        assert known.encoding.to_bytes() == complete.to_bytes()
        losses = known.encoding.report.resolve(request, CLIENT.wire_names)
        assert sorted(losses, key=repr) == sorted(complete.report.resolve(request, CLIENT.wire_names), key=repr)


def test_the_key_of_a_long_first_message_is_its_beginning() -> None:
    start = {"role": "user", "content": [{"type": "text", "text": 'a "quoted" {brace} ' * 100}]}
    bodies = [serialize([start, *history(turns)[1:]]) for turns in (0, 3)]
    first, second = (conversation_key(body, find_messages(body, CLIENT) or 0) for body in bodies)
    assert first == second
    assert bodies[0].count(first) == 1


def test_an_undeclared_tool_is_encoded_completely() -> None:
    """Names of undeclared tools are assigned in the order of the conversation."""
    unknown = turn(3, name="no such tool")
    assert resume_encoding(serialize(history(3)), serialize(history(3) + unknown)) is None


def test_a_result_without_its_call_is_encoded_completely() -> None:
    orphan = [{"role": "assistant", "content": "Hm."}, turn(0)[1]]
    assert resume_encoding(serialize(history(3)), serialize(history(3) + orphan)) is None


def test_calls_of_a_turn_with_one_id_are_encoded_completely() -> None:
    """They get ids derived from their positions."""
    repeated = turn(3)
    repeated[0]["content"] *= 2
    assert resume_encoding(serialize(history(3)), serialize(history(3) + repeated)) is None


def encode_with_count(request: Request, target: Target) -> EncodedBody:
    """Encode a request with the number of its messages in a member."""
    encoding = UPSTREAM.encode_request(request, target)
    encoding.body["count"] = len(request.messages)
    return encoding


def encode_with_numbers(request: Request, target: Target) -> EncodedBody:
    """Encode a request with a number in each message, counted from the end of the conversation."""
    encoding = UPSTREAM.encode_request(request, target)
    for number, message in enumerate(encoding.body["messages"]):
        message["number"] = len(encoding.body["messages"]) - number if number < 4 else 0
    return encoding


@pytest.mark.parametrize("encode", [encode_with_count, encode_with_numbers])
def test_an_encoder_that_can_not_be_split_is_noticed(encode: Callable[[Request, Target], EncodedBody]) -> None:
    upstream = replace(UPSTREAM, encode_request=encode)
    first, second = (history(turns) for turns in (4, 5))
    first[-1]["content"][0]["content"] = "replaced by the second request"
    request, later = (CLIENT.decode_request(serialize(messages), Route()) for messages in (first, second))
    known = EncodingSnapshot.from_encoding(upstream.encode_request(request, TARGET), request, CLIENT, upstream, TARGET)
    assert known.continue_with(later, upstream, TARGET) is None
    assert resume_encoding(serialize(first), serialize(second)) is not None


def test_counted_cache_marks_are_encoded_completely() -> None:
    client, upstream = PROTOCOLS["openrouter"], PROTOCOLS["anthropic"]
    mark = {"cache_control": {"type": "ephemeral"}}
    messages: list[Any] = []
    for number in range(6):
        messages.append({"role": "user", "content": [{"type": "text", "text": f"question {number}"} | mark]})
        messages.append({"role": "assistant", "content": "answer"})
    requests = [
        client.decode_request(json.dumps({"model": "m", "messages": messages[:length]}).encode(), Route())
        for length in (9, 11)
    ]
    known = EncodingSnapshot.from_encoding(
        upstream.encode_request(requests[0], TARGET), requests[0], client, upstream, TARGET
    )
    assert known.continue_with(requests[1], upstream, TARGET) is None


def test_calls_without_ids_are_not_regular() -> None:
    """They get ids derived from their positions."""
    for id, regular in (("call_1", True), ("", False), (None, False)):
        assert is_regular(Message(role="assistant", parts=(ToolCall(id=id, name="read", arguments="{}"),))) is regular
        assert is_regular(Message(role="user", parts=(ToolResult(call_id=id),))) is regular


def test_messages_added_for_a_host_are_not_reported_after_their_cause_is_gone() -> None:
    target = Target(model="mistral-large", stream=False, host=get_host_profile("mistral"))
    first, second = history(4), history(5)
    first[-1]["content"].append({"type": "text", "text": "text after a result, which this host rejects"})
    request, later = (CLIENT.decode_request(serialize(messages), Route()) for messages in (first, second))
    encoding = UPSTREAM.encode_request(request, target)
    assert encoding.report
    known = EncodingSnapshot.from_encoding(encoding, request, CLIENT, UPSTREAM, target)
    assert known.continue_with(later, UPSTREAM, target) is None


def test_another_target_is_encoded_completely() -> None:
    request = CLIENT.decode_request(serialize(history(3)), Route())
    known = EncodingSnapshot.from_encoding(UPSTREAM.encode_request(request, TARGET), request, CLIENT, UPSTREAM, TARGET)
    for other in (Target(model="gpt-6", stream=True), Target(model="gpt-6", stream=False, binary_results="summary")):
        assert known.continue_with(request, UPSTREAM, other) is None
    assert known.continue_with(request, UPSTREAM, TARGET) is not None


def test_a_changed_early_message_is_encoded_completely() -> None:
    changed = history(4)
    changed[2]["content"][0]["content"] = "another result"
    assert resume_encoding(serialize(history(4)), serialize(changed)) is None


def test_responses_do_not_share_a_mapping() -> None:
    request = CLIENT.decode_request(serialize(history(3)), Route())
    known = EncodingSnapshot.from_encoding(UPSTREAM.encode_request(request, TARGET), request, CLIENT, UPSTREAM, TARGET)
    first, second = known.encoding.mapping, known.encoding.mapping
    assert first == second
    first.tools.clear()
    first.used_names.add("other")
    assert "other" not in second.used_names


# ---- thinking at Anthropic, which depends on the turns since the user's last text


def thinking_chat(*kinds: str) -> bytes:
    """Return a Chat request with thinking; `kinds` are tool calls and texts."""
    messages: list[Any] = [{"role": "user", "content": "Hello"}]
    for number, kind in enumerate(kinds):
        if kind == "text":
            messages += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "Go on."}]
            continue
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": "ok"},
        ]
    tools = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}]
    return json.dumps({"model": "m", "messages": messages, "tools": tools, "reasoning_effort": "high"}).encode()


@pytest.mark.parametrize(
    ("messages", "is_certain"),
    [
        (turn(0), True),
        ([{"role": "assistant", "content": "Done."}, {"role": "user", "content": "Go on."}], True),
        ([{"role": "assistant", "content": "Done."}, {"role": "user", "content": " "}], False),
        ([{"role": "assistant", "content": [THOUGHT, turn(0)[0]["content"][0]]}, turn(0)[1]], False),
        ([{"role": "assistant", "content": "Done."}], False),
    ],
    ids=["call", "text", "blank", "thinking", "nothing"],
)
def test_thinking_is_separable_if_these_messages_decide_it(messages: list[Any], is_certain: bool) -> None:
    request = CLIENT.decode_request(serialize(messages, thinking={"type": "adaptive"}), Route())
    assert PROTOCOLS["anthropic"].is_separable(request) is is_certain
    assert PROTOCOLS["anthropic"].is_separable(replace(request, thinking=None))


@pytest.mark.parametrize(
    ("first", "second", "is_incremental"),
    [
        (("call",) * 3, ("call",) * 4, True),
        (("call",) * 3, ("call", "call", "call", "text"), False),  # thinking is possible again
        (("text",) * 3, ("text",) * 4, True),
    ],
)
def test_thinking_for_anthropic(first: tuple[str, ...], second: tuple[str, ...], is_incremental: bool) -> None:
    chat, anthropic = PROTOCOLS["openai-chat"], PROTOCOLS["anthropic"]
    target = Target(model="claude-sonnet-4-5", stream=False)
    request, later = (chat.decode_request(thinking_chat(*kinds), Route()) for kinds in (first, second))
    known = EncodingSnapshot.from_encoding(anthropic.encode_request(request, target), request, chat, anthropic, target)
    continued = known.continue_with(later, anthropic, target)
    assert (continued is not None) is is_incremental
    if continued is not None:
        assert continued.encoding.to_bytes() == anthropic.encode_request(later, target).to_bytes()
