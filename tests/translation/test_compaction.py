"""Compaction of canonical histories: what is kept, what is asked, and what is read back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from toolwire.canonical.content import Media, Message, OpaquePart, Part, Reasoning, Text, ToolCall, ToolResult, Url
from toolwire.canonical.request import Request
from toolwire.canonical.response import Candidate, Response, Stop, StopReason
from toolwire.canonical.tools import FunctionTool, Sampling, Thinking
from toolwire.protocols import PROTOCOLS
from toolwire.translation.compaction import (
    LIMIT_SUMMARY,
    SUMMARY_INTRODUCTION,
    SummaryFailed,
    compacted_request,
    find_obstacle,
    find_recent,
    kept_user_messages,
    open_compactions,
    read_summary,
    summary_message,
    summary_request,
    with_open_request,
)

NAMES = PROTOCOLS["openai-responses"].wire_names


def user(text: str) -> Message:
    return Message(role="user", parts=(Text(text=text),))


def assistant(*parts: Part) -> Message:
    return Message(role="assistant", parts=parts)


def call(id: str) -> ToolCall:
    return ToolCall(id=id, name="weather", arguments="{}")


def result(id: str, text: str = "18 degrees") -> Message:
    return Message(role="user", parts=(ToolResult(call_id=id, content=(Text(text=text),)),))


def summary_of(text: str, reason: StopReason = "end_turn") -> Response:
    candidate = Candidate(messages=(assistant(Text(text=text)),), stop=Stop(reason=reason))
    return Response(origin="", candidates=(candidate,))


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Draw a history in which every call has its result, possibly much later."""
    messages: list[Message] = []
    open_calls: list[str] = []
    for number in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["user", "answer", "call", "result"]))
        if kind == "user":
            messages.append(user("x" * draw(st.integers(0, 60))))
        elif kind == "answer":
            messages.append(assistant(Text(text="y" * draw(st.integers(0, 60)))))
        elif kind == "call":
            messages.append(assistant(Reasoning(), call(f"c{number}")))
            open_calls.append(f"c{number}")
        elif open_calls:
            messages.append(result(open_calls.pop(0)))
    return [*messages, *map(result, open_calls)]


@given(histories(), st.integers(0, 100))
def test_calls_are_never_parted_from_their_results(messages: list[Message], tokens: int) -> None:
    start = find_recent(messages, tokens)
    kept = [part for message in messages[start:] for part in message.parts]
    called = {part.id for part in kept if isinstance(part, ToolCall)}
    answered = {part.call_id for part in kept if isinstance(part, ToolResult)}
    assert called == answered


def test_as_much_as_fits_is_kept() -> None:
    messages = [user("a" * 300), assistant(call("1")), result("1", "b" * 300), assistant(Text(text="c")), user("d")]
    assert find_recent(messages, 0) == 5
    assert find_recent(messages, 1) == 4
    assert find_recent(messages, 150) == 1  # the assistant turn with its calls is one piece
    assert find_recent(messages, 10_000) == 1


def test_summary_request_keeps_the_prefix_and_forbids_calls() -> None:
    tools = (FunctionTool(name="weather", parameters=Raw(b"{}")),)
    thinking = Thinking(enabled=True, budget_tokens=4000)
    sampling = Sampling(max_tokens=100, stop=("x",), n=3)
    request = Request(
        origin="anthropic", messages=(user("Hi"),), tools=tools, sampling=sampling, thinking=thinking, stream=True
    )
    asked = summary_request(request, "Sum up.", 1000)
    assert asked.messages[:-1] == request.messages
    assert asked.messages[-1] == user("Sum up.")
    assert asked.tools == tools
    assert asked.tool_choice is not None
    assert asked.tool_choice.mode == "none"
    assert asked.sampling == Sampling(max_tokens=5000)
    assert asked.stream is False
    assert summary_request(Request(origin="", messages=(user("Hi"),))).tool_choice is None


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (Response(origin=""), "no summary"),
        (summary_of("  "), "empty"),
        (summary_of("The us", "max_tokens"), "incomplete"),
        (summary_of("No.", "refusal"), "incomplete"),
        (summary_of("x" * (LIMIT_SUMMARY + 1)), "limit"),
        (Response(origin="", candidates=(Candidate(messages=(assistant(call("1")),)),)), "called a tool"),
    ],
)
def test_unusable_summaries_are_refused(response: Response, reason: str) -> None:
    with pytest.raises(SummaryFailed, match=reason):
        read_summary(response)
    assert read_summary(summary_of(" It is warm. ")) == "It is warm."


def test_obstacles() -> None:
    assert find_obstacle([Message(role="system", parts=(Text(text="Be brief."),))]) is not None
    assert "'1'" in (find_obstacle([user("Hi"), assistant(call("1"))]) or "")
    assert find_obstacle([user("Hi"), assistant(call("1")), result("1")]) is None


def test_system_messages_and_wanted_user_messages_stay() -> None:
    system = Message(role="developer", parts=(Text(text="Be brief."),))
    picture = Message(role="user", parts=(Media(kind="image", source=Url(url="https://x.test/a.png")),))
    messages = (system, user("Hi"), picture, assistant(call("1")), result("1"), summary_message("Earlier."))
    request = Request(origin="", messages=messages)
    compacted = compacted_request(request, "Sum.", keeps_user_messages=True)
    assert compacted.messages == (system, user("Hi"), picture, summary_message("Sum."))
    assert compacted_request(request, "Sum.").messages == (system, summary_message("Sum."))
    assert kept_user_messages(messages, 1) == []
    assert kept_user_messages(messages) == [user("Hi"), picture]


def test_open_request_is_quoted() -> None:
    assert with_open_request("Sum.", [user("And tomorrow?")]).endswith("not yet answered:\nAnd tomorrow?")
    assert with_open_request("Sum.", [user("Hi"), assistant(Text(text="Hello."))]) == "Sum."
    assert with_open_request("Sum.", [assistant(call("1")), result("1")]) == "Sum."


def test_last_readable_compaction_replaces_what_is_before_it() -> None:
    def compaction(text: str) -> OpaquePart:
        body = Raw(json.dumps({"type": "compaction", "encrypted_content": text}).encode())
        return OpaquePart(protocol="openai-responses", kind="compaction", body=body, at="")

    def read(part: OpaquePart) -> str | None:
        text = json.loads(bytes(part.body))["encrypted_content"]
        return None if text == "theirs" else text

    messages = (user("a"), assistant(compaction("one")), assistant(compaction("two")), assistant(Text(text="b")))
    request = Request(origin="openai-responses", messages=messages)
    opened = open_compactions(request, read, NAMES, keeps_user_messages=True)
    assert opened.messages[0].parts == user("a").parts
    assert SUMMARY_INTRODUCTION in opened.messages[1].parts[0].text  # type: ignore[union-attr]
    assert [message.at for message in opened.messages] == ["/input/0", "/input/2", "/input/3"]
    theirs = Request(origin="openai-responses", messages=(user("a"), assistant(compaction("theirs"))))
    assert open_compactions(theirs, read, NAMES, keeps_user_messages=True) is theirs
