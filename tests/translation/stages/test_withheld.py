"""Signatures are withheld from a response, and put back into the next request."""

from msgspec import Raw

from toolwire.canonical.content import Message, Reasoning, ReasoningText, Signature, Text, ToolCall, ToolResult
from toolwire.canonical.events import PartDelta
from toolwire.canonical.fold import fold, unfold
from toolwire.canonical.response import Candidate, Response, Stop
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS
from toolwire.translation.history import reinsert_turn
from toolwire.translation.pipeline import adapt_response, run_stages
from toolwire.translation.stages.withheld import WithheldSignatures

SIGNATURE = Signature(issuer="google", data="abc", kind="signature")
REASONING = Reasoning(content=(ReasoningText(kind="full", text="Hm."),), signature=SIGNATURE)
CALL = ToolCall(id="c1", name="look", arguments="{}", signature=SIGNATURE)
RESPONSE = Response(
    origin="gemini",
    candidates=(
        Candidate(
            messages=(Message(role="assistant", parts=(REASONING, Text(text="So"), CALL)),),
            stop=Stop(reason="tool_use"),
        ),
    ),
)


def test_signatures_are_withheld_from_bodies_and_streams() -> None:
    from_body, from_stream = WithheldSignatures(), WithheldSignatures()
    gemini, chat = PROTOCOLS["gemini"], PROTOCOLS["openai-chat"]
    body = adapt_response(RESPONSE, gemini, chat, ResponseContext(withheld=from_body))
    streamed_response = fold([item for event in unfold(RESPONSE) for item in run_stages([from_stream], [event])])
    for response in (body, streamed_response):
        assert [part.signature for part in response.candidates[0].messages[0].parts] == [None] * 3  # type: ignore[union-attr]
    for withheld in (from_body, from_stream):
        assert withheld.has_signatures
        assert withheld.original_messages() == RESPONSE.candidates[0].messages


def test_response_without_signatures_is_unchanged() -> None:
    plain = Response(
        origin="gemini", candidates=(Candidate(messages=(Message(role="assistant", parts=(Text(text="Hi"),)),)),)
    )
    withheld = WithheldSignatures()
    assert not withheld.applies(plain)
    events = list(unfold(plain))
    assert run_stages([withheld], events) is events
    assert not withheld.has_signatures


def test_signature_delta_is_withheld() -> None:
    withheld = WithheldSignatures()
    (event,) = run_stages([withheld], [PartDelta(index=0, signature=SIGNATURE)])
    assert event == PartDelta(index=0)
    assert withheld.has_signatures


def conversation(*following: Message) -> list[Message]:
    question = Message(role="user", parts=(Text(text="?"),))
    repeated = Message(role="assistant", parts=(ToolCall(id="mine", name="look", arguments="{}"),), at="/messages/1")
    return [question, repeated, *following]


def test_results_refer_to_original_call_ids() -> None:
    result = Message(role="user", parts=(ToolResult(call_id="mine"), Text(text="so")))
    later = Message(role="assistant", parts=(ToolCall(id="mine", name="look", arguments="{}"),))
    last = Message(role="user", parts=(ToolResult(call_id="mine"),))
    original = RESPONSE.candidates[0].messages
    restored = reinsert_turn(conversation(result, later, last), (1, 2), original)
    assert restored[1].parts[2].signature == SIGNATURE  # type: ignore[union-attr]
    assert restored[1].at == "/messages/1"
    assert restored[2].parts == (ToolResult(call_id="c1"), Text(text="so"))
    assert restored[3:] == [later, last]  # these ids belong to another turn


def test_results_without_ids_match_by_name_then_order() -> None:
    calls = tuple(ToolCall(id=None, name=name, arguments="{}") for name in ("a", "b", "a"))
    issued = tuple(ToolCall(id=str(number), name=call.name, arguments="{}") for number, call in enumerate(calls))
    results = tuple(ToolResult(call_id=None, name=name) for name in ("b", "a", None))
    messages = [Message(role="assistant", parts=calls), Message(role="user", parts=results)]
    restored = reinsert_turn(messages, (0, 1), [Message(role="assistant", parts=issued)])
    assert [part.call_id for part in restored[1].parts] == ["1", "0", "2"]  # type: ignore[union-attr]


def test_client_extras_survive_reinsertion() -> None:
    call = ToolCall(id="mine", name="look", arguments="{}", extras={"openai-chat": {"odd": Raw(b"1")}})
    message = Message(role="assistant", parts=(call,), extras={"openai-chat": {"mood": Raw(b"2")}})
    original = [Message(role="assistant", parts=(CALL,), extras={"gemini": {"own": Raw(b"3")}})]
    (restored,) = reinsert_turn([message], (0, 1), original)
    keys = {family: sorted(values) for family, values in (restored.extras or {}).items()}
    assert keys == {"gemini": ["own"], "openai-chat": ["mood", "odd"]}
