"""The digest of a conversation ignores differences of form, and changes with the content."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from toolwire.canonical.content import (
    Inline,
    Media,
    Message,
    Part,
    Reasoning,
    Role,
    Signature,
    Text,
    ToolCall,
    ToolResult,
    Url,
)
from toolwire.canonical.tools import CacheMark
from toolwire.translation.history import ConversationDigest, assistant_turns, digest_before, digests_before_turns


def user(*parts: Part) -> Message:
    return Message(role="user", parts=parts)


def model(*parts: Part) -> Message:
    return Message(role="assistant", parts=parts)


CALL = ToolCall(id="a", name="look", arguments='{"x": 1, "y": "é"}')
RESULT = ToolResult(call_id="a", content=(Text(text="dry"),))
IMAGE = Media(kind="image", source=Inline(data="AAAA"), media_type="image/png")
CONVERSATION = (user(Text(text="Hello. Rain?")), model(Text(text="I look."), CALL), user(RESULT, IMAGE))

SAME = {
    "texts are split": (user(Text(text="Hello. "), Text(text="Rain?")), *CONVERSATION[1:]),
    "ids are others": (
        CONVERSATION[0],
        model(Text(text="I look.", id="x"), replace(CALL, id="b")),
        user(replace(RESULT, call_id="b", name="look"), IMAGE),
    ),
    "arguments are spelt otherwise": (
        CONVERSATION[0],
        model(Text(text="I look."), replace(CALL, arguments='{"y":"\\u00e9","x":1.0}')),
        CONVERSATION[2],
    ),
    "a mark is put": (user(Text(text="Hello. Rain?", cache=CacheMark())), *CONVERSATION[1:]),
    "reasoning is there": (
        CONVERSATION[0],
        model(
            Reasoning(signature=Signature(issuer="x", data="y", kind="signature")),
            Text(text="I look.", signature=Signature(issuer="x", data="y", kind="signature")),
            CALL,
        ),
        CONVERSATION[2],
    ),
    "system text is there": (Message(role="system", parts=(Text(text="Be kind."),)), *CONVERSATION),
    "messages are split": (CONVERSATION[0], model(Text(text="I look.")), model(CALL), *CONVERSATION[2:]),
}
OTHER = {
    "a text is changed": (user(Text(text="Hello. Snow?")), *CONVERSATION[1:]),
    "a text is gone": (CONVERSATION[0], model(CALL), CONVERSATION[2]),
    "another tool": (CONVERSATION[0], model(Text(text="I look."), replace(CALL, name="see")), CONVERSATION[2]),
    "other arguments": (
        CONVERSATION[0],
        model(Text(text="I look."), replace(CALL, arguments='{"x": 2}')),
        CONVERSATION[2],
    ),
    "broken arguments": (CONVERSATION[0], model(Text(text="I look."), replace(CALL, arguments="{")), CONVERSATION[2]),
    "another result": (*CONVERSATION[:2], user(replace(RESULT, content=(Text(text="wet"),)), IMAGE)),
    "another picture": (*CONVERSATION[:2], user(RESULT, replace(IMAGE, source=Url(url="https://a.b/c.png")))),
    "text in place of a result": (*CONVERSATION[:2], user(Text(text="dry"), IMAGE)),
    "one turn less": CONVERSATION[:2],
    "none": (),
}


@pytest.mark.parametrize("case", SAME)
def test_digest_ignores_differences_of_form(case: str) -> None:
    assert digest_before(SAME[case]) == digest_before(CONVERSATION)


@pytest.mark.parametrize("case", OTHER)
def test_digest_changes_with_the_content(case: str) -> None:
    assert digest_before(OTHER[case]) != digest_before(CONVERSATION)


def test_digest_covers_everything_before_the_turn() -> None:
    continuation = (model(Text(text="b")), model(Text(text="c")), user(Text(text="d")), model(Text(text="e")))
    digests = digests_before_turns((*CONVERSATION, *continuation))
    assert digests[3] == digests[4] == digest_before(CONVERSATION)
    assert digests[6] == digest_before((*CONVERSATION, *continuation[:3]))
    assert digest_before((*CONVERSATION, continuation[0])) == digest_before(
        CONVERSATION
    )  # a turn that the client began


def test_turn_digest_covers_the_conversation_up_to_its_end() -> None:
    question, first, second, reply, last = (
        user(Text(text="a")),
        model(Text(text="b")),
        model(Text(text="c")),
        user(Text(text="d")),
        model(Text(text="e")),
    )
    reminder = Message(role="system", parts=(Text(text="s"),))
    messages = [question, first, second, reply, last]
    turns = assistant_turns(messages)
    digest = turns[0][2]
    assert [(begin, end) for begin, end, _ in turns] == [(1, 3), (4, 5)]
    assert digest == digests_before_turns(messages)[3] == assistant_turns(messages[:3])[0][2]
    assert assistant_turns([reply, *messages[1:]])[0][2] != digest
    # Texts may be split differently; system text may surround a turn, but not interrupt it.
    assert assistant_turns([reminder, question, model(Text(text="bc")), reminder, reply]) == [(2, 3, digest)]
    assert assistant_turns([question, first, reminder, second, reply]) == []


@given(st.lists(st.tuples(st.integers(0, 14), st.integers(0, 14)), max_size=8))
def test_a_continued_digest_equals_a_new_one(steps: list[tuple[int, int]]) -> None:
    """The conversation grows and shrinks, and messages at its end are replaced."""
    roles: list[Role] = ["user", "assistant", "assistant", "user", "system"]
    messages = [Message(role=roles[number % 5], parts=(Text(text=f"text {number}"),)) for number in range(15)]
    conversation = ConversationDigest()
    for size, changed in steps:
        request = messages[:size]
        if changed < size:
            request[changed] = Message(role=request[changed].role, parts=(Text(text="changed"),))
        assert (
            conversation.digest_before(request)
            == digests_before_turns([*request, Message(role="assistant", parts=())])[-1]
        )
