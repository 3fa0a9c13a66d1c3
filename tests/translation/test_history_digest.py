"""The digest of a conversation: the same however its clients repeat it, another for whoever changes it."""

import pytest
from msgspec.structs import replace

from toolwire.canonical.content import (
    Inline,
    Media,
    Message,
    Part,
    Reasoning,
    Signature,
    Text,
    ToolCall,
    ToolResult,
    Url,
)
from toolwire.canonical.tools import CacheMark
from toolwire.translation.history import assistant_turns, digest_before, digests_before_turns


def user(*parts: Part) -> Message:
    return Message(role="user", parts=parts)


def model(*parts: Part) -> Message:
    return Message(role="assistant", parts=parts)


CALL = ToolCall(id="a", name="look", arguments='{"x": 1, "y": "é"}')
RESULT = ToolResult(call_id="a", content=(Text(text="dry"),))
PICTURE = Media(kind="image", source=Inline(data="AAAA"), media_type="image/png")
WHOLE = (user(Text(text="Hello. Rain?")), model(Text(text="I look."), CALL), user(RESULT, PICTURE))

SAME = {
    "texts are split": (user(Text(text="Hello. "), Text(text="Rain?")), *WHOLE[1:]),
    "ids are others": (
        WHOLE[0],
        model(Text(text="I look.", id="x"), replace(CALL, id="b")),
        user(replace(RESULT, call_id="b", name="look"), PICTURE),
    ),
    "arguments are spelt otherwise": (
        WHOLE[0],
        model(Text(text="I look."), replace(CALL, arguments='{"y":"\\u00e9","x":1.0}')),
        WHOLE[2],
    ),
    "a mark is put": (user(Text(text="Hello. Rain?", cache=CacheMark())), *WHOLE[1:]),
    "reasoning is there": (
        WHOLE[0],
        model(
            Reasoning(signature=Signature(issuer="x", data="y", kind="signature")),
            Text(text="I look.", signature=Signature(issuer="x", data="y", kind="signature")),
            CALL,
        ),
        WHOLE[2],
    ),
    "system text is there": (Message(role="system", parts=(Text(text="Be kind."),)), *WHOLE),
    "messages are split": (WHOLE[0], model(Text(text="I look.")), model(CALL), *WHOLE[2:]),
}
OTHER = {
    "a text is changed": (user(Text(text="Hello. Snow?")), *WHOLE[1:]),
    "a text is gone": (WHOLE[0], model(CALL), WHOLE[2]),
    "another tool": (WHOLE[0], model(Text(text="I look."), replace(CALL, name="see")), WHOLE[2]),
    "other arguments": (WHOLE[0], model(Text(text="I look."), replace(CALL, arguments='{"x": 2}')), WHOLE[2]),
    "broken arguments": (WHOLE[0], model(Text(text="I look."), replace(CALL, arguments="{")), WHOLE[2]),
    "another result": (*WHOLE[:2], user(replace(RESULT, content=(Text(text="wet"),)), PICTURE)),
    "another picture": (*WHOLE[:2], user(RESULT, replace(PICTURE, source=Url(url="https://a.b/c.png")))),
    "text in place of a result": (*WHOLE[:2], user(Text(text="dry"), PICTURE)),
    "one turn less": WHOLE[:2],
    "none": (),
}


@pytest.mark.parametrize("case", SAME)
def test_it_is_the_same_conversation(case: str) -> None:
    assert digest_before(SAME[case]) == digest_before(WHOLE)


@pytest.mark.parametrize("case", OTHER)
def test_it_is_another_one(case: str) -> None:
    assert digest_before(OTHER[case]) != digest_before(WHOLE)


def test_an_answer_comes_after_all_that_was_said_before_its_turn() -> None:
    answer = (model(Text(text="b")), model(Text(text="c")), user(Text(text="d")), model(Text(text="e")))
    found = digests_before_turns((*WHOLE, *answer))
    assert found[3] == found[4] == digest_before(WHOLE)
    assert found[6] == digest_before((*WHOLE, *answer[:3]))
    assert digest_before((*WHOLE, answer[0])) == digest_before(WHOLE)  # a turn that the client began


def test_a_turn_is_known_by_all_up_to_its_end() -> None:
    asked, first, second, answered, last = (
        user(Text(text="a")),
        model(Text(text="b")),
        model(Text(text="c")),
        user(Text(text="d")),
        model(Text(text="e")),
    )
    reminder = Message(role="system", parts=(Text(text="s"),))
    talk = [asked, first, second, answered, last]
    turns = assistant_turns(talk)
    digest = turns[0][2]
    assert [(begin, after) for begin, after, _ in turns] == [(1, 3), (4, 5)]
    assert digest == digests_before_turns(talk)[3] == assistant_turns(talk[:3])[0][2]
    assert assistant_turns([answered, *talk[1:]])[0][2] != digest
    # Texts may be cut otherwise, and system text may stand around a turn but not within it.
    assert assistant_turns([reminder, asked, model(Text(text="bc")), reminder, answered]) == [(2, 3, digest)]
    assert assistant_turns([asked, first, reminder, second, answered]) == []
