"""Folding events in any legal order, and unfolding a response into events."""

from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import (
    Citation,
    Data,
    Inline,
    Media,
    Message,
    OpaquePart,
    Part,
    Reasoning,
    ReasoningText,
    Refusal,
    Signature,
    Text,
    ToolCall,
    ToolResult,
)
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import (
    CandidateEnd,
    Event,
    MessageEnd,
    MessageStart,
    Notice,
    PartDelta,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    UsageReport,
)
from toolwire.canonical.fold import MAX_LOOSE_PIECES, ResponseAccumulator, TextPieces, fold, unfold
from toolwire.canonical.request import Continuation
from toolwire.canonical.response import Candidate, Response, Stop, Usage

SIGNATURE = Signature(issuer="acme", data="s", kind="signature")
MEDIA = Media(kind="image", source=Inline(data="QUJD"))


def call(arguments: str = "", **more: Any) -> ToolCall:
    return ToolCall(id="1", name="f", arguments=arguments, **more)


def fold_part(part: Part, *deltas: PartDelta, end: PartEnd | None) -> Part:
    """Return the part that results from a start, deltas and an end."""
    events: list[Event] = [MessageStart(), PartStart(index=0, part=part), *deltas, *([] if end is None else [end])]
    (candidate,) = fold(events).candidates
    ((folded,),) = [message.parts for message in candidate.messages]
    return folded


def text(text: str, kind: Literal["full", "summary"] = "full") -> ReasoningText:
    return ReasoningText(kind=kind, text=text)


@pytest.mark.parametrize(
    ("start", "deltas", "expected"),
    [
        (Text(text=""), [], Text(text="")),
        (Text(text="a"), [{"text": "b"}, {"text": "c"}], Text(text="abc")),
        (Refusal(text="a"), [{"text": "b"}], Refusal(text="ab")),
        (call("{"), [{"text": '"a"'}, {"text": ":1}"}], call('{"a":1}')),
        (call(), [{"signature": SIGNATURE}], call(signature=SIGNATURE)),
        (Text(text="a", signature=SIGNATURE), [{"text": "b"}], Text(text="ab", signature=SIGNATURE)),
        (
            Text(text="a"),
            [{"signature": SIGNATURE}, {"signature": replace(SIGNATURE, data="t")}],
            Text(text="a", signature=replace(SIGNATURE, data="t")),
        ),
        (
            Text(text="", annotations=(Citation(url="a"),)),
            [{"text": "x"}, {"annotation": Citation(url="b")}],
            Text(text="x", annotations=(Citation(url="a"), Citation(url="b"))),
        ),
        # Each text block of a reasoning grows separately.
        (Reasoning(), [{"text": "a", "kind": "full"}, {"text": "b", "kind": "full"}], Reasoning(content=(text("ab"),))),
        (
            Reasoning(),
            [
                {"text": "a", "kind": "summary"},
                {"text": "b", "kind": "summary", "block": 1},
                {"text": "c", "kind": "full"},
                {"text": "d", "kind": "summary"},
                {"signature": SIGNATURE},
            ],
            Reasoning(content=(text("ad", "summary"), text("b", "summary"), text("c")), signature=SIGNATURE),
        ),
        (
            Reasoning(content=(text("a", "summary"), MEDIA, text("b"), text("c", "summary"))),
            [{"text": "x", "kind": "summary", "block": 1}, {"text": "y", "kind": "full"}],
            Reasoning(content=(text("a", "summary"), MEDIA, text("by"), text("cx", "summary"))),
        ),
        # A part without text ignores deltas.
        (MEDIA, [{"text": "a"}], MEDIA),
    ],
)
def test_deltas_are_appended_to_their_part(start: Part, deltas: list[dict[str, Any]], expected: Part) -> None:
    pieces = [PartDelta(index=0, **delta) for delta in deltas]
    assert fold_part(start, *pieces, end=PartEnd(index=0)) == expected
    if not isinstance(expected, ToolCall):
        assert fold_part(start, *pieces, end=None) == expected


def test_final_part_overrides_start_and_deltas() -> None:
    final = Text(text="what it really was", id="msg")
    assert fold_part(Text(text="a"), PartDelta(index=0, text="b"), end=PartEnd(index=0, final=final)) == final
    final_call = call("{}")
    assert fold_part(call(), PartDelta(index=0, text='{"a'), end=PartEnd(index=0, final=final_call)) == final_call


def test_call_without_end_is_incomplete() -> None:
    assert fold_part(call(), PartDelta(index=0, text='{"a'), end=None) == call('{"a', complete=False)
    assert fold_part(call(), end=None) == call(complete=False)
    assert fold_part(call("{}"), end=PartEnd(index=0)) == call("{}")


@pytest.mark.parametrize(
    ("events", "usage"),
    [
        ([], None),
        ([ResponseStart(origin="", usage=Usage(input_tokens=1))], Usage(input_tokens=1)),
        # A report is a complete snapshot, not an addition.
        (
            [
                ResponseStart(origin="", usage=Usage(input_tokens=1, cache_read=9)),
                UsageReport(usage=Usage(output_tokens=2)),
            ],
            Usage(output_tokens=2),
        ),
        ([UsageReport(usage=Usage(output_tokens=count)) for count in (1, 5, 3)], Usage(output_tokens=3)),
    ],
)
def test_last_usage_report_wins(events: list[Event], usage: Usage | None) -> None:
    assert fold(events).usage == usage


def test_ends_override_starts_and_merge_extras() -> None:
    first, last = {"acme": {"a": Raw(b"1"), "b": Raw(b"2")}}, {"acme": {"b": Raw(b"3")}, "other": {"c": Raw(b"4")}}
    both = {"acme": {"a": Raw(b"1"), "b": Raw(b"3")}, "other": {"c": Raw(b"4")}}
    stop, continuation = Stop(reason="end_turn"), Continuation(id="r")
    response = fold(
        [
            ResponseStart(origin="acme", id="r", model="m", created=7, status="begun", extras=first, wire_form=("f",)),
            MessageStart(
                id="m", name="n", status="begun", phase="early", extras=first, wire_form=("f",), at="/message"
            ),
            Notice(kind="ping", extras=last),
            MessageEnd(id="m2", status="done", phase="late", extras=last, wire_form=("g",)),
            CandidateEnd(stop=stop, extras=last, wire_form=("h",)),
            ResponseEnd(status="done", continuation=continuation, extras=last, wire_form=("g",)),
        ]
    )
    message = Message(
        role="assistant",
        parts=(),
        id="m2",
        name="n",
        status="done",
        phase="late",
        extras=both,
        wire_form=("f", "g"),
        at="/message",
    )
    assert response == Response(
        origin="acme",
        id="r",
        model="m",
        created=7,
        status="done",
        continuation=continuation,
        candidates=(Candidate(messages=(message,), stop=stop, extras=last, wire_form=("h",)),),
        extras=both,
        wire_form=("f", "g"),
    )
    assert first == {"acme": {"a": Raw(b"1"), "b": Raw(b"2")}}


def test_failed_response_keeps_its_content_so_far() -> None:
    error = ApiError(kind="overloaded", message="later")
    events: list[Event] = [
        ResponseStart(origin="acme", usage=Usage(input_tokens=1)),
        MessageStart(),
        PartStart(index=0, part=Text(text="")),
        PartDelta(index=0, text="a"),
        ResponseFailed(error=error, status="failed"),
    ]
    response = fold(events)
    assert (response.error, response.status, response.usage) == (error, "failed", Usage(input_tokens=1))
    assert response.candidates[0].messages[0].parts == (Text(text="a"),)


def test_stream_without_start_events_is_folded() -> None:
    events: list[Event] = [
        PartDelta(index=9, text="of nothing"),
        PartEnd(index=9),
        PartStart(index=0, message=1, part=Text(text="a")),
        MessageEnd(message=1, id="m"),
        CandidateEnd(candidate=2, stop=Stop(reason="end_turn")),
    ]
    assert fold(events) == Response(
        origin="",
        candidates=(
            Candidate(messages=(Message(role="assistant", parts=(Text(text="a"),), id="m"),)),
            Candidate(index=2, stop=Stop(reason="end_turn")),
        ),
    )


def test_accumulator_returns_partial_responses() -> None:
    accumulator = ResponseAccumulator()
    responses = []
    for event in unfold(Response(origin="", candidates=(Candidate(messages=(_message(call("{}")),)),))):
        accumulator.add(event)
        responses.append(accumulator.response())
    parts = [response.candidates[0].messages[0].parts for response in responses if response.candidates]
    assert parts == [
        (),
        (call(complete=False),),
        (call("{}", complete=False),),
        (call("{}"),),
        (call("{}"),),
        (call("{}"),),
        (call("{}"),),
    ]


def test_many_deltas_are_compacted() -> None:
    """Adding a delta has constant cost, and only the text is retained."""
    accumulator = ResponseAccumulator()
    accumulator.add(PartStart(index=0, part=Text(text="")))
    (part,) = accumulator._parts.values()
    for _ in range(20_000):
        accumulator.add(PartDelta(index=0, text="ab"))
    assert part.start.part == Text(text="")
    assert len(part.text) < 20_000 / 100
    assert accumulator.response().candidates[0].messages[0].parts == (Text(text="ab" * 20_000),)


# ---- round trips


def _message(*parts: Part) -> Message:
    return Message(role="assistant", parts=parts)


WORDS = st.text(max_size=5)
MAYBE = st.none() | WORDS
OPTIONAL_SIGNATURES = st.none() | st.just(SIGNATURE)
EXTRAS = st.none() | st.just({"acme": {"x": Raw(b"1")}})
FORMS = st.sampled_from([(), ("acme:spelling",)])
KINDS: st.SearchStrategy[Any] = st.sampled_from(["full", "summary"])
PARTS: st.SearchStrategy[Part] = st.one_of(
    st.builds(
        Text,
        text=WORDS,
        signature=OPTIONAL_SIGNATURES,
        annotations=st.sampled_from([None, (Citation(url="u"),)]),
        extras=EXTRAS,
    ),
    st.builds(Refusal, text=WORDS, wire_form=FORMS),
    st.builds(
        ToolCall,
        id=MAYBE,
        name=WORDS,
        arguments=WORDS,
        complete=st.booleans(),
        signature=OPTIONAL_SIGNATURES,
        extras=EXTRAS,
    ),
    st.builds(
        Reasoning,
        content=st.lists(st.builds(ReasoningText, kind=KINDS, text=WORDS) | st.just(MEDIA), max_size=4).map(tuple),
        hidden=st.sampled_from([None, "omitted", "redacted"]),
        signature=OPTIONAL_SIGNATURES,
        id=MAYBE,
        wire_form=FORMS,
    ),
    st.just(MEDIA),
    st.just(Data(json=Raw(b"1"))),
    st.just(ToolResult(call_id="1", content=(Text(text="a"),))),
    st.just(OpaquePart(protocol="acme", body=Raw(b"{}"))),
)
MESSAGES = st.builds(
    Message,
    role=st.just("assistant"),
    parts=st.lists(PARTS, max_size=4).map(tuple),
    id=MAYBE,
    name=MAYBE,
    status=MAYBE,
    phase=MAYBE,
    extras=EXTRAS,
    wire_form=FORMS,
    at=st.sampled_from([None, "", "/x"]),
)
STOPS = st.builds(Stop, reason=st.sampled_from(["end_turn", "tool_use", "max_tokens"]), raw=MAYBE, extras=EXTRAS)


@st.composite
def responses(draw: st.DrawFn) -> Response:
    candidates = []
    for index in range(draw(st.integers(0, 3))):
        stop = draw(st.none() | STOPS)
        messages = tuple(draw(st.lists(MESSAGES, max_size=3)))
        candidates.append(
            Candidate(index=index, messages=messages, stop=stop, extras=draw(EXTRAS), wire_form=draw(FORMS))
        )
    failed = draw(st.booleans())
    return Response(
        origin="acme",
        id=draw(MAYBE),
        model=draw(MAYBE),
        created=draw(st.none() | st.integers(0, 9)),
        candidates=tuple(candidates),
        usage=draw(st.none() | st.builds(Usage, input_tokens=st.integers(0, 9), extras=EXTRAS)),
        status=draw(MAYBE),
        error=ApiError(kind="server", message="m") if failed else None,
        continuation=draw(st.none() | st.builds(Continuation, id=MAYBE)),
        extras=draw(EXTRAS),
        wire_form=draw(FORMS),
    )


@settings(deadline=None)
@given(responses())
def test_fold_inverts_unfold(response: Response) -> None:
    assert fold(unfold(response)) == response


@settings(deadline=None)
@given(responses())
def test_deltas_suffice_without_final_parts(response: Response) -> None:
    """Encoders that write as events arrive never see the final parts."""
    events = [replace(event, final=None) if isinstance(event, PartEnd) else event for event in unfold(response)]
    assert fold(events) == _media_first(response)


def _media_first(response: Response) -> Response:
    """Move media to the start of reasoning, since deltas only bring texts."""
    candidates = tuple(
        replace(
            candidate,
            messages=tuple(
                replace(message, parts=tuple(map(_ordered, message.parts))) for message in candidate.messages
            ),
        )
        for candidate in response.candidates
    )
    return replace(response, candidates=candidates)


def _ordered(part: Part) -> Part:
    if not isinstance(part, Reasoning):
        return part
    return replace(part, content=tuple(sorted(part.content, key=lambda block: not isinstance(block, Media))))


@settings(deadline=None)
@given(responses(), st.randoms(use_true_random=False))
def test_parts_may_interleave_in_any_order(response: Response, random: Any) -> None:
    """Events keep their order within a part, but not across parts."""
    opening: list[Event] = []
    closing: list[Event] = []
    threads: dict[tuple[int, int], list[Event]] = {}
    for event in unfold(response):
        if isinstance(event, PartStart | PartDelta | PartEnd):
            threads.setdefault((event.candidate, event.index), []).append(event)
        elif isinstance(event, ResponseStart | MessageStart):
            opening.append(event)
        else:
            closing.append(event)
    # The order of starts numbers the parts, so it is kept.
    starts = [thread.pop(0) for thread in threads.values()]
    turns = [key for key, thread in threads.items() for _ in thread]
    random.shuffle(turns)
    middle = [threads[key].pop(0) for key in turns]
    assert fold([*opening, *starts, *middle, *closing]) == response


@pytest.mark.parametrize("size", [1, 2, 4, MAX_LOOSE_PIECES])
def test_text_pieces_stay_few_and_count_all_that_were_added(size: int) -> None:
    """`size`: pieces that are added together."""
    pieces, texts, scanned = TextPieces(), list[str](), (0, 0)
    for number in range(3000 // size):
        texts += [f"{number};"] * size
        if size == 1:
            pieces.append(texts[-1])
        else:
            pieces.extend(texts[-size:])
        assert len(pieces) < 2 * MAX_LOOSE_PIECES + 3000 // MAX_LOOSE_PIECES
        assert pieces.append_count == len(texts)
        if number % 97 == 0:
            assert "".join(pieces.text_after(*scanned)) == "".join(texts)[scanned[1] :]
            scanned = len(texts), len("".join(texts))
    assert "".join(pieces) == "".join(texts)
