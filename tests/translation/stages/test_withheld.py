"""Proofs that are held back from an answer, and put back into the next request."""

from msgspec import Raw

from toolwire.canonical.content import Message, Reasoning, ReasoningText, Signature, Text, ToolCall, ToolResult
from toolwire.canonical.events import PartDelta
from toolwire.canonical.fold import fold, unfold
from toolwire.canonical.response import Candidate, Response, Stop
from toolwire.translation.history import reinsert_turn
from toolwire.translation.stages.withheld import WithheldSignatures

PROOF = Signature(issuer="google", data="abc", kind="signature")
THOUGHT = Reasoning(content=(ReasoningText(kind="full", text="Hm."),), signature=PROOF)
CALL = ToolCall(id="c1", name="look", arguments="{}", signature=PROOF)
ANSWER = Response(
    origin="gemini",
    candidates=(
        Candidate(
            messages=(Message(role="assistant", parts=(THOUGHT, Text(text="So"), CALL)),), stop=Stop(reason="tool_use")
        ),
    ),
)


def test_an_answer_passes_without_its_proofs_whole_and_as_a_stream() -> None:
    whole, streamed = WithheldSignatures(), WithheldSignatures()
    shown = whole.process_response(ANSWER)
    told = fold(streamed.process(unfold(ANSWER)))
    for response in (shown, told):
        assert [part.signature for part in response.candidates[0].messages[0].parts] == [None] * 3  # type: ignore[union-attr]
    for held in (whole, streamed):
        assert held.has_signatures
        assert held.original_messages() == ANSWER.candidates[0].messages


def test_an_answer_without_proofs_passes_as_it_is() -> None:
    plain = Response(
        origin="gemini", candidates=(Candidate(messages=(Message(role="assistant", parts=(Text(text="Hi"),)),)),)
    )
    held = WithheldSignatures()
    assert held.process_response(plain) is plain
    events = list(unfold(plain))
    assert held.process(events) is events
    assert not held.has_signatures


def test_a_proof_that_comes_alone_is_held_back_too() -> None:
    held = WithheldSignatures()
    (event,) = held.process([PartDelta(index=0, signature=PROOF)])
    assert event == PartDelta(index=0)
    assert held.has_signatures


def conversation(*answers: Message) -> list[Message]:
    asked = Message(role="user", parts=(Text(text="?"),))
    repeated = Message(role="assistant", parts=(ToolCall(id="mine", name="look", arguments="{}"),), at="/messages/1")
    return [asked, repeated, *answers]


def test_results_answer_the_calls_as_they_were_made() -> None:
    result = Message(role="user", parts=(ToolResult(call_id="mine"), Text(text="so")))
    later = Message(role="assistant", parts=(ToolCall(id="mine", name="look", arguments="{}"),))
    last = Message(role="user", parts=(ToolResult(call_id="mine"),))
    whole = ANSWER.candidates[0].messages
    back = reinsert_turn(conversation(result, later, last), (1, 2), whole)
    assert back[1].parts[2].signature == PROOF  # type: ignore[union-attr]
    assert back[1].at == "/messages/1"
    assert back[2].parts == (ToolResult(call_id="c1"), Text(text="so"))
    assert back[3:] == [later, last]  # its ids are of another turn


def test_results_without_ids_find_their_calls_by_name_then_by_order() -> None:
    calls = tuple(ToolCall(id=None, name=name, arguments="{}") for name in ("a", "b", "a"))
    issued = tuple(ToolCall(id=str(number), name=call.name, arguments="{}") for number, call in enumerate(calls))
    results = tuple(ToolResult(call_id=None, name=name) for name in ("b", "a", None))
    messages = [Message(role="assistant", parts=calls), Message(role="user", parts=results)]
    back = reinsert_turn(messages, (0, 1), [Message(role="assistant", parts=issued)])
    assert [part.call_id for part in back[1].parts] == ["1", "0", "2"]  # type: ignore[union-attr]


def test_what_the_client_added_is_not_forgotten() -> None:
    call = ToolCall(id="mine", name="look", arguments="{}", extras={"openai-chat": {"odd": Raw(b"1")}})
    said = Message(role="assistant", parts=(call,), extras={"openai-chat": {"mood": Raw(b"2")}})
    whole = [Message(role="assistant", parts=(CALL,), extras={"gemini": {"own": Raw(b"3")}})]
    (back,) = reinsert_turn([said], (0, 1), whole)
    kept = {family: sorted(values) for family, values in (back.extras or {}).items()}
    assert kept == {"gemini": ["own"], "openai-chat": ["mood", "odd"]}
