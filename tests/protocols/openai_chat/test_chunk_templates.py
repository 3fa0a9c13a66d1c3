"""The fast path for chunks that differ only in their delta, or only in the text inside it."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis.strategies import lists, sampled_from
from msgspec import UNSET

from toolwire.canonical.events import Event, PartDelta, ResponseEnd
from toolwire.codec.interface import ResponseContext
from toolwire.protocols.openai_chat.fast_path import ChunkTemplate, chunk_template
from toolwire.protocols.openai_chat.stream_decoder import stream_decoder
from toolwire.protocols.openai_chat.wire import ChunkShape

HEAD = b'{"id":"c1","model":"m","choices":[{"index":0,"delta":'
TAIL = b',"logprobs":null,"finish_reason":null}],"usage":null}'


def template_of(data: bytes) -> ChunkTemplate | None:
    return chunk_template(data, msgspec.json.decode(data, type=ChunkShape))


def test_next_delta_is_decoded_by_template() -> None:
    template = template_of(HEAD + b'{"content":"a"}' + TAIL)
    assert template is not None
    delta = template.decode_delta(HEAD + b'{"content":"b"}' + TAIL)
    assert delta is not None
    assert delta.content == "b"
    assert delta.role is UNSET


@pytest.mark.parametrize(
    "chunk",
    [
        HEAD.replace(b"c1", b"c2") + b'{"content":"b"}' + TAIL,
        HEAD + b'{"content":"b"}' + TAIL.replace(b":null}]", b':"stop"}]'),
        HEAD + b'{"content":"b","unheard_of":1}' + TAIL,
        HEAD + b'{"content":"b"},"delta":{}' + TAIL,
        HEAD + TAIL,
        HEAD + TAIL[5:],
    ],
)
def test_chunk_with_other_differences_does_not_match(chunk: bytes) -> None:
    assert ChunkTemplate(HEAD, TAIL, 0).decode_delta(chunk) is None


@pytest.mark.parametrize(
    "chunk",
    [
        b'{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}',
        b'{"choices":[{"delta":{"content":"a"},"logprobs":{"content":[]}}]}',
        b'{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":1}}',
        b'{"choices":[{"delta":{"content":"a"}},{"index":1,"delta":{"content":"b"}}]}',
        b'{"choices":[{"delta":{"content":"a"},"delta":{"content":"a"}}]}',
        b'{"choices":[{"delta":null}]}',
        b'{"choices":[]}',
    ],
)
def test_chunk_with_more_than_a_delta_gives_no_template(chunk: bytes) -> None:
    assert template_of(chunk) is None


PADDED = TAIL[:-1] + b',"obfuscation":"%b"}'


def test_padding_is_ignored() -> None:
    template = template_of(HEAD + b'{"content":"a"}' + PADDED % b"x7Kq")
    assert template is not None
    for padding in (b"", b"y", b"Zz09" * 9):
        delta = template.decode_delta(HEAD + b'{"content":"b"}' + PADDED % padding)
        assert delta is not None
        assert delta.content == "b"


@pytest.mark.parametrize(
    "chunk",
    [
        HEAD + b'{"content":"b"}' + TAIL,
        HEAD + b'{"content":"b"}' + PADDED % b'x","usage":{"prompt_tokens":1},"more":"',
        HEAD + b'{"content":"b"}' + TAIL[:-1].replace(b":null}]", b':"stop"}]') + PADDED[len(TAIL) - 1 :] % b"x",
        HEAD + b'{"content":"b"}' + PADDED % b"x" + b" ",
    ],
)
def test_invalid_padding_does_not_match(chunk: bytes) -> None:
    assert ChunkTemplate(HEAD, TAIL[:-1], 0, has_padding=True).decode_delta(chunk) is None


def test_changed_response_fields_are_still_decoded() -> None:
    tiers = [b"default", b"default", b"flex", b"default"]
    frames = [
        b'{"id":"c1","service_tier":"%b","choices":[{"delta":{"content":"%d"}}]}' % (tier, number)
        for number, tier in enumerate(tiers)
    ]
    frames.append(b'{"id":"c1","choices":[{"delta":{},"finish_reason":"stop"}]}')
    decoder = stream_decoder(ResponseContext())
    events = decoder.feed(b"".join(b"data: %b\n\n" % frame for frame in [*frames, b"[DONE]"]))
    assert [event.text for event in events if isinstance(event, PartDelta)] == ["0", "1", "2", "3"]
    assert isinstance(end := events[-1], ResponseEnd)
    assert end.extras == {"openai-chat": {"service_tier": msgspec.Raw(b'"default"')}}


CALL = b'{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"look","arguments":""}}]}'
MORE = b'{"tool_calls":[{"index":0,"function":{"arguments":%b}}]}'
DELTAS = (
    *(b'{"content":"a"}', b'{"content":""}', b'{"content": "b"}', b'{ "content" :"c" }', b'{"content":null}'),
    *(rb'{"content":"\"}"}', rb'{"content":"\\"}', rb'{"content":"\ud83d\ude00"}', rb'{"content":"\ud83d"}'),
    *(b'{"content":"\n"}', b'{"content":"a" "b"}', b'{"content":"a"b"}', b'{"content":"a","role":"assistant"}'),
    *(b'{"content":"a","content":"b"}', b'{"content":["a"]}', b'{"content":"a"},"delta":{"content":"b"}', b"{}"),
    *(b'{"refusal":"no"}', b'{"reasoning_content":"hm"}', '{"content":"ä😀"}'.encode(), b'{"content":"\xff"}'),
    *(
        CALL,
        MORE % b'"{"',
        MORE % b'"}"',
        MORE % b'""',
        MORE % b"null",
        MORE % b"{}",
        CALL.replace(b"call_1", b"call_2"),
    ),
    *(MORE.replace(b":0,", b":1,") % b'"{}"', MORE.replace(b":0,", b":0 , ") % b'"1"', MORE % b'"a","arguments":"b"'),
    b'{"tool_calls":[{"index":0,"function":{"arguments":"a"},"index":1,"function":{"arguments":"b"}}]}',
)


def decode_deltas(deltas: list[bytes], tail: bytes) -> list[Event]:
    decoder = stream_decoder(ResponseContext())
    events = [event for delta in deltas for event in decoder.feed(b"data: %b\n\n" % (HEAD + delta + tail))]
    return events + decoder.close()


@pytest.mark.parametrize("tail", [TAIL, PADDED % b"x7Kq"], ids=["bare", "padded"])
@given(deltas=lists(sampled_from(DELTAS), min_size=3, max_size=12))
@settings(max_examples=300, deadline=None)
def test_text_template_gives_the_same_events(tail: bytes, deltas: list[bytes]) -> None:
    fast_events = decode_deltas(deltas, tail)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChunkTemplate, "_build_text_template", lambda *_: None)
        assert fast_events == decode_deltas(deltas, tail)


@pytest.mark.parametrize(("delta", "call"), [(b'{"content":"a"}', None), (MORE % b'"a"', 0)])
def test_text_template_decodes_only_the_string(delta: bytes, call: int | None) -> None:
    template = ChunkTemplate(HEAD, TAIL, 0)
    assert template.decode_delta(HEAD + delta + TAIL) is not None
    assert template.text_template is not None
    assert template.text_template.call_index == call
    assert template.text_template.next_text(HEAD + delta.replace(b'"a"', rb'"\"b"') + TAIL) == '"b'
    assert template.text_template.next_text(HEAD + delta.replace(b'"a"', b'"a","b"') + TAIL) == ""
