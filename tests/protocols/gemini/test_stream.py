"""What is particular to Gemini's streams: two framings, chunks that are whole responses, arguments by their paths."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolwire as tw
from tests.support.bodies.minimal import chat_stream
from toolwire.canonical.content import Part, Reasoning, Text, ToolCall
from toolwire.canonical.events import PartDelta, ResponseEnd, ResponseFailed, UsageReport
from toolwire.canonical.fold import fold
from toolwire.canonical.response import Response
from toolwire.codec.interface import ResponseContext
from toolwire.protocols.gemini import CODEC
from toolwire.protocols.gemini.stream_decoder import JsonObjectSplitter, PartialArguments
from toolwire.protocols.gemini.wire import PartialArgumentShape

DEEP = "$" + ".a" * 201


def chunk(*parts: Any, reason: str | None = None, **fields: Any) -> Any:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if reason is not None:
        candidate["finishReason"] = reason
    return {"candidates": [candidate], "modelVersion": "m", "responseId": "r", **fields}


def sse(*chunks: Any) -> bytes:
    return b"".join(f"data: {json.dumps(one)}\r\n\r\n".encode() for one in chunks)


def events(wire: bytes) -> list[Any]:
    decoder = CODEC.stream_decoder(ResponseContext())
    return decoder.feed(wire) + decoder.close()


def told(*chunks: Any) -> Response:
    return fold(events(sse(*chunks)))


def parts(*chunks: Any) -> tuple[Part, ...]:
    return told(*chunks).candidates[0].messages[0].parts


def test_texts_of_one_kind_are_one_part() -> None:
    found = parts(
        chunk({"text": "Let me", "thought": True}),
        chunk({"text": " think.", "thought": True}),
        chunk({"text": "Pa"}),
        chunk({"text": "ris."}, reason="STOP"),
    )
    assert [type(part) for part in found] == [Reasoning, Text]
    assert isinstance(found[1], Text)
    assert found[1].text == "Paris."


def test_a_signed_text_is_never_joined_with_others() -> None:
    found = parts(
        chunk({"text": "One "}),
        chunk({"text": "two ", "thoughtSignature": "YQ=="}),
        chunk({"text": "three"}, reason="STOP"),
    )
    assert [(part.text, part.signature is not None) for part in found if isinstance(part, Text)] == [
        ("One ", False),
        ("two ", True),
        ("three", False),
    ]


def test_plain_text_costs_nothing_but_its_delta() -> None:
    found = events(sse(chunk({"text": "a"}), chunk({"text": "b"}), chunk({"text": "c"}, reason="STOP")))
    deltas = [event for event in found if isinstance(event, PartDelta)]
    assert [delta.plain for delta in deltas] == [True, True, True]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_an_array_is_read_like_events(size: int) -> None:
    chunks = [chunk({"text": 'a "}{" \\'}), chunk({"text": "é{"}), chunk({"text": "c"}, reason="STOP")]
    wire = json.dumps(chunks, indent=1, ensure_ascii=False).encode()
    decoder = CODEC.stream_decoder(ResponseContext())
    pieces = [wire[start : start + size] for start in range(0, len(wire), size)]
    found = [event for piece in pieces for event in decoder.feed(piece)] + decoder.close()
    assert fold(found) == told(*chunks)


def test_an_error_in_place_of_a_stream_is_told() -> None:
    body = [{"error": {"code": 429, "message": "Slow down.", "status": "RESOURCE_EXHAUSTED"}}]
    failed = events(json.dumps(body, indent=2).encode())[-1]
    assert isinstance(failed, ResponseFailed)
    assert (failed.error.kind, failed.error.status, failed.broken) == ("rate_limit", 429, False)


def test_an_end_without_a_reason_is_a_cut() -> None:
    failed = events(sse(chunk({"text": "Hel"})))[-1]
    assert isinstance(failed, ResponseFailed)
    assert failed.broken


def test_the_last_counts_hold_and_chunks_that_count_nothing_do_not() -> None:
    first = {"promptTokenCount": 3, "totalTokenCount": 3}
    last = {"promptTokenCount": 3, "candidatesTokenCount": 2, "thoughtsTokenCount": 5, "totalTokenCount": 10}
    wire = sse(
        chunk({"text": "a"}, usageMetadata=first),
        chunk({"text": "b"}, reason="STOP", usageMetadata=last),
        {"usageMetadata": {"trafficType": "ON_DEMAND"}},
    )
    found = events(wire)
    (report,) = [event for event in found if isinstance(event, UsageReport)]
    assert (report.usage.output_tokens, report.usage.reasoning, report.usage.total) == (7, 5, 10)
    assert isinstance(found[-1], ResponseEnd)


def call_piece(*pieces: Any, more: bool = True, **fields: Any) -> Any:
    call = {**fields, **({"partialArgs": list(pieces)} if pieces else {}), **({"willContinue": True} if more else {})}
    return chunk({"functionCall": call})


def test_arguments_by_their_paths() -> None:
    (one, two) = parts(
        call_piece(name="plan", id="c1"),
        call_piece({"jsonPath": "$.to", "stringValue": "Ro", "willContinue": True}),
        call_piece(),
        call_piece({"jsonPath": "$.to", "stringValue": 'me "'}, {"jsonPath": "$.stops[0].n", "numberValue": 2.5}),
        call_piece(
            {"jsonPath": "$.to", "stringValue": ""},
            {"jsonPath": "$.stops[0].ok", "boolValue": True},
            {"jsonPath": "$.stops[2][0]", "boolValue": False},
            {"jsonPath": "$['a.b'][\"it's\"]", "nullValue": "NULL_VALUE"},
            {"jsonPath": r"$['a.b']['it\'s \\']", "stringValue": ""},
        ),
        call_piece(more=False),
        chunk({"functionCall": {"name": "now"}}, reason="STOP"),
    )
    assert isinstance(one, ToolCall)
    assert (one.id, one.name) == ("c1", "plan")
    assert one.arguments == (
        '{"to":"Rome \\"","stops":[{"n":2.5,"ok":true},null,[false]],"a.b":{"it\'s":null,"it\'s \\\\":""}}'
    )
    assert isinstance(two, ToolCall)
    assert (two.name, two.arguments) == ("now", "{}")


def quoted(key: str) -> str:
    return key.replace("\\", "\\\\").replace("'", "\\'")


def paths(value: Any, path: str = "$") -> list[dict[str, Any]]:
    """A value as its pieces; what is empty has none."""
    if isinstance(value, dict):
        return [one for key, inner in value.items() for one in paths(inner, f"{path}['{quoted(key)}']")]
    if isinstance(value, list):
        return [one for index, inner in enumerate(value) for one in paths(inner, f"{path}[{index}]")]
    if isinstance(value, str):
        cut = len(value) // 2
        pieces: list[dict[str, Any]] = [
            {"stringValue": value[:cut], "willContinue": True},
            {"stringValue": value[cut:]},
        ]
        return [{"jsonPath": path, **piece} for piece in pieces]
    kinds = {bool: "boolValue", int: "numberValue", type(None): "nullValue"}
    return [{"jsonPath": path, kinds[type(value)]: "NULL_VALUE" if value is None else value}]


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=4),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=4),
            lambda inner: (
                st.lists(inner, min_size=1, max_size=3) | st.dictionaries(st.text(min_size=1), inner, min_size=1)
            ),
        ),
        min_size=1,
    )
)
def test_the_deltas_make_the_arguments(value: dict[str, Any]) -> None:
    found = events(
        sse(
            call_piece(name="plan"),
            *(call_piece(piece) for piece in paths(value)),
            call_piece(more=False),
            chunk(reason="STOP"),
        )
    )
    deltas = [event.text for event in found if isinstance(event, PartDelta)]
    assert json.loads("".join(deltas)) == value
    (call,) = fold(found).candidates[0].messages[0].parts
    assert isinstance(call, ToolCall)
    assert call.arguments == "".join(deltas)
    assert len(deltas) > 1


def test_what_goes_back_ends_the_stream() -> None:
    found = events(
        sse(
            call_piece(name="plan"),
            call_piece({"jsonPath": "$.a.b", "numberValue": 1}, {"jsonPath": "$.c", "numberValue": 2}),
            call_piece({"jsonPath": "$.a.d", "numberValue": 3}),
        )
    )
    assert isinstance(found[-1], ResponseFailed)
    assert "'a'" in found[-1].error.message


def test_a_call_that_was_cut_is_not_complete() -> None:
    response = told(call_piece(name="plan"), call_piece({"jsonPath": "$.to", "stringValue": "Ro"}))
    (call,) = response.candidates[0].messages[0].parts
    assert isinstance(call, ToolCall)
    assert not call.complete


@pytest.mark.parametrize("path", ["$.__proto__.a", "$.a.b", "$[0]", "", "$.x[99999999]", "$.a[0][0]", DEEP])
def test_any_path_is_bounded(path: str) -> None:
    arguments = PartialArguments()
    text = arguments.add(PartialArgumentShape(json_path="$.a", string_value="text"))
    try:
        text += arguments.add(PartialArgumentShape(json_path=path, string_value="x"))
    except ValueError:
        assert path in ("$.a.b", "$.a[0][0]", "$.x[99999999]", DEEP)
        return
    assert isinstance(json.loads(text + arguments.close()), dict)


def test_objects_are_found_whatever_is_between_them() -> None:
    splitter = JsonObjectSplitter()
    found = [one for byte in b'[{"a":"}\\""}\n,\n{"b":{}}]' for one in splitter.feed(bytes([byte]))]
    assert found == [b'{"a":"}\\""}', b'{"b":{}}']


@pytest.mark.parametrize("target", ["anthropic", "openai-chat", "openai-responses"])
def test_candidates_may_interleave(target: str) -> None:
    def both(first: str, second: str, reason: str | None = None) -> Any:
        made = chunk({"text": first}, reason=reason)
        made["candidates"].append({**chunk({"text": second}, reason=reason)["candidates"][0], "index": 1})
        return made

    response = told(both("a", "x"), both("b", "y", "STOP"))
    texts = [part.text for one in response.candidates for part in one.messages[0].parts if isinstance(part, Text)]
    assert texts == ["ab", "xy"]
    stream = tw.translate_stream([sse(both("a", "x"), both("b", "y", "STOP"))], "gemini", target)
    assert b"".join(stream)
    assert stream.error is None


def test_text_of_others_arrives_as_it_grows() -> None:
    wire = chat_stream({"content": "Hel"}, {"content": "lo"}, finish_reason="length")
    out = b"".join(tw.translate_stream([wire], "openai-chat", "gemini")).decode()
    frames = [json.loads(line[6:]) for line in out.splitlines() if line.startswith("data: ")]
    texts = [part["text"] for frame in frames for part in frame["candidates"][0]["content"]["parts"]]
    assert texts == ["Hel", "lo", ""]
    assert frames[-1]["candidates"][0]["finishReason"] == "MAX_TOKENS"
    assert frames[0]["responseId"] == frames[-1]["responseId"]


def test_a_cut_upstream_ends_with_an_error() -> None:
    encoder = CODEC.stream_encoder(ResponseContext())
    assert json.loads(encoder.close()[6:])["error"]["status"] == "INTERNAL"


def test_why_a_prompt_was_blocked_is_reported_where_it_stands() -> None:
    body = {"promptFeedback": {"blockReason": "SAFETY"}, "modelVersion": "m"}
    stream = tw.translate_stream([sse(body)], "gemini", "ollama")
    b"".join(stream)
    whole = tw.translate(body, "gemini", "ollama", "response").losses
    assert "/promptFeedback/blockReason" in {loss.path for loss in whole}
    assert {loss.path for loss in stream.losses} == {loss.path for loss in whole}
