"""Gemini streams: two framings, complete responses as chunks, and partial arguments."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolwire as tw
from tests.support.bodies.minimal import chat_stream
from toolwire.canonical.content import Part, Reasoning, Text, ToolCall
from toolwire.canonical.events import PartDelta, PartDeltas, ResponseEnd, ResponseFailed, UsageReport
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
    return b"".join(f"data: {json.dumps(chunk)}\r\n\r\n".encode() for chunk in chunks)


def events(wire: bytes) -> list[Any]:
    decoder = CODEC.stream_decoder(ResponseContext())
    return decoder.feed(wire) + decoder.close()


def fold_chunks(*chunks: Any) -> Response:
    return fold(events(sse(*chunks)))


def parts(*chunks: Any) -> tuple[Part, ...]:
    return fold_chunks(*chunks).candidates[0].messages[0].parts


def test_consecutive_texts_of_one_kind_are_one_part() -> None:
    decoded = parts(
        chunk({"text": "Let me", "thought": True}),
        chunk({"text": " think.", "thought": True}),
        chunk({"text": "Pa"}),
        chunk({"text": "ris."}, reason="STOP"),
    )
    assert [type(part) for part in decoded] == [Reasoning, Text]
    assert isinstance(decoded[1], Text)
    assert decoded[1].text == "Paris."


def test_signed_text_stays_a_separate_part() -> None:
    decoded = parts(
        chunk({"text": "One "}),
        chunk({"text": "two ", "thoughtSignature": "YQ=="}),
        chunk({"text": "three"}, reason="STOP"),
    )
    assert [(part.text, part.signature is not None) for part in decoded if isinstance(part, Text)] == [
        ("One ", False),
        ("two ", True),
        ("three", False),
    ]


def test_text_deltas_of_one_read_are_one_event() -> None:
    decoded = events(sse(*[chunk({"text": text}) for text in "abc"], chunk({"text": "d"}, reason="STOP")))
    deltas = [event.texts for event in decoded if isinstance(event, PartDeltas)]
    assert deltas == [["b", "c"]]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_json_array_decodes_like_sse(size: int) -> None:
    chunks = [chunk({"text": 'a "}{" \\'}), chunk({"text": "é{"}), chunk({"text": "c"}, reason="STOP")]
    wire = json.dumps(chunks, indent=1, ensure_ascii=False).encode()
    decoder = CODEC.stream_decoder(ResponseContext())
    pieces = [wire[start : start + size] for start in range(0, len(wire), size)]
    decoded = [event for piece in pieces for event in decoder.feed(piece)] + decoder.close()
    assert fold(decoded) == fold_chunks(*chunks)


def test_an_error_body_in_place_of_a_stream_is_decoded() -> None:
    body = [{"error": {"code": 429, "message": "Slow down.", "status": "RESOURCE_EXHAUSTED"}}]
    failed = events(json.dumps(body, indent=2).encode())[-1]
    assert isinstance(failed, ResponseFailed)
    assert (failed.error.kind, failed.error.status, failed.broken) == ("rate_limit", 429, False)


def test_a_stream_without_finish_reason_is_broken() -> None:
    failed = events(sse(chunk({"text": "Hel"})))[-1]
    assert isinstance(failed, ResponseFailed)
    assert failed.broken


def test_the_last_token_counts_win() -> None:
    first = {"promptTokenCount": 3, "totalTokenCount": 3}
    last = {"promptTokenCount": 3, "candidatesTokenCount": 2, "thoughtsTokenCount": 5, "totalTokenCount": 10}
    wire = sse(
        chunk({"text": "a"}, usageMetadata=first),
        chunk({"text": "b"}, reason="STOP", usageMetadata=last),
        {"usageMetadata": {"trafficType": "ON_DEMAND"}},
    )
    decoded = events(wire)
    (report,) = [event for event in decoded if isinstance(event, UsageReport)]
    assert (report.usage.output_tokens, report.usage.reasoning, report.usage.total) == (7, 5, 10)
    assert isinstance(decoded[-1], ResponseEnd)


def call_piece(*pieces: Any, will_continue: bool = True, **fields: Any) -> Any:
    call = {
        **fields,
        **({"partialArgs": list(pieces)} if pieces else {}),
        **({"willContinue": True} if will_continue else {}),
    }
    return chunk({"functionCall": call})


def test_partial_arguments_are_joined_by_path() -> None:
    (first, second) = parts(
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
        call_piece(will_continue=False),
        chunk({"functionCall": {"name": "now"}}, reason="STOP"),
    )
    assert isinstance(first, ToolCall)
    assert (first.id, first.name) == ("c1", "plan")
    assert first.arguments == (
        '{"to":"Rome \\"","stops":[{"n":2.5,"ok":true},null,[false]],"a.b":{"it\'s":null,"it\'s \\\\":""}}'
    )
    assert isinstance(second, ToolCall)
    assert (second.name, second.arguments) == ("now", "{}")


def quoted(key: str) -> str:
    return key.replace("\\", "\\\\").replace("'", "\\'")


def paths(value: Any, path: str = "$") -> list[dict[str, Any]]:
    """List the pieces of a value; empty containers have none."""
    if isinstance(value, dict):
        return [piece for key, inner in value.items() for piece in paths(inner, f"{path}['{quoted(key)}']")]
    if isinstance(value, list):
        return [piece for index, inner in enumerate(value) for piece in paths(inner, f"{path}[{index}]")]
    if isinstance(value, str):
        middle = len(value) // 2
        pieces: list[dict[str, Any]] = [
            {"stringValue": value[:middle], "willContinue": True},
            {"stringValue": value[middle:]},
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
                st.lists(inner, min_size=1, max_size=3)
                | st.dictionaries(st.text(min_size=1, max_size=4), inner, min_size=1, max_size=3)
            ),
            max_leaves=20,
        ),
        min_size=1,
        max_size=3,
    )
)
def test_partial_argument_deltas_form_the_json_value(value: dict[str, Any]) -> None:
    decoded = events(
        sse(
            call_piece(name="plan"),
            *(call_piece(piece) for piece in paths(value)),
            call_piece(will_continue=False),
            chunk(reason="STOP"),
        )
    )
    deltas = [event.text for event in decoded if isinstance(event, PartDelta)]
    assert json.loads("".join(deltas)) == value
    (call,) = fold(decoded).candidates[0].messages[0].parts
    assert isinstance(call, ToolCall)
    assert call.arguments == "".join(deltas)
    assert len(deltas) > 1


def test_returning_to_a_closed_object_fails_the_stream() -> None:
    decoded = events(
        sse(
            call_piece(name="plan"),
            call_piece({"jsonPath": "$.a.b", "numberValue": 1}, {"jsonPath": "$.c", "numberValue": 2}),
            call_piece({"jsonPath": "$.a.d", "numberValue": 3}),
        )
    )
    assert isinstance(decoded[-1], ResponseFailed)
    assert "'a'" in decoded[-1].error.message


def test_a_truncated_call_is_incomplete() -> None:
    response = fold_chunks(call_piece(name="plan"), call_piece({"jsonPath": "$.to", "stringValue": "Ro"}))
    (call,) = response.candidates[0].messages[0].parts
    assert isinstance(call, ToolCall)
    assert not call.complete


@pytest.mark.parametrize("path", ["$.__proto__.a", "$.a.b", "$[0]", "", "$.x[99999999]", "$.a[0][0]", DEEP])
def test_hostile_paths_are_rejected_or_harmless(path: str) -> None:
    arguments = PartialArguments()
    text = arguments.add(PartialArgumentShape(json_path="$.a", string_value="text"))
    try:
        text += arguments.add(PartialArgumentShape(json_path=path, string_value="x"))
    except ValueError:
        assert path in ("$.a.b", "$.a[0][0]", "$.x[99999999]", DEEP)
        return
    assert isinstance(json.loads(text + arguments.close()), dict)


def test_json_objects_are_split_byte_by_byte() -> None:
    splitter = JsonObjectSplitter()
    objects = [item for byte in b'[{"a":"}\\""}\n,\n{"b":{}}]' for item in splitter.feed(bytes([byte]))]
    assert objects == [b'{"a":"}\\""}', b'{"b":{}}']


@pytest.mark.parametrize("target", ["anthropic", "openai-chat", "openai-responses"])
def test_interleaved_candidates_are_decoded(target: str) -> None:
    def two_candidates(first: str, second: str, reason: str | None = None) -> Any:
        encoded = chunk({"text": first}, reason=reason)
        encoded["candidates"].append({**chunk({"text": second}, reason=reason)["candidates"][0], "index": 1})
        return encoded

    response = fold_chunks(two_candidates("a", "x"), two_candidates("b", "y", "STOP"))
    texts = [
        part.text for candidate in response.candidates for part in candidate.messages[0].parts if isinstance(part, Text)
    ]
    assert texts == ["ab", "xy"]
    stream = tw.translate_stream([sse(two_candidates("a", "x"), two_candidates("b", "y", "STOP"))], "gemini", target)
    assert b"".join(stream)
    assert stream.error is None


def test_foreign_text_is_streamed_delta_by_delta() -> None:
    wire = chat_stream({"content": "Hel"}, {"content": "lo"}, finish_reason="length")
    out = b"".join(tw.translate_stream([wire], "openai-chat", "gemini")).decode()
    frames = [json.loads(line[6:]) for line in out.splitlines() if line.startswith("data: ")]
    texts = [part["text"] for frame in frames for part in frame["candidates"][0]["content"]["parts"]]
    assert texts == ["Hel", "lo", ""]
    assert frames[-1]["candidates"][0]["finishReason"] == "MAX_TOKENS"
    assert frames[0]["responseId"] == frames[-1]["responseId"]


def test_an_incomplete_source_ends_with_an_error() -> None:
    encoder = CODEC.stream_encoder(ResponseContext())
    assert json.loads(encoder.close()[6:])["error"]["status"] == "INTERNAL"


def test_block_reason_loss_is_the_same_in_streams() -> None:
    body = {"promptFeedback": {"blockReason": "SAFETY"}, "modelVersion": "m"}
    stream = tw.translate_stream([sse(body)], "gemini", "ollama")
    b"".join(stream)
    losses = tw.translate(body, "gemini", "ollama", "response").losses
    assert "/promptFeedback/blockReason" in {loss.path for loss in losses}
    assert {loss.path for loss in stream.losses} == {loss.path for loss in losses}
