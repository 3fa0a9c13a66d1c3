"""The fast path for chunks that differ only in the text or the arguments that they add."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis.strategies import lists, sampled_from

from toolwire.canonical.events import Event, PartDelta, PartDeltas, ResponseEnd, separate_deltas
from toolwire.codec.fast_path import TextMember
from toolwire.codec.interface import ResponseContext
from toolwire.protocols.openai_chat.stream_decoder import Decoder, stream_decoder

HEAD = b'{"id":"c1","model":"m","choices":[{"index":0,"delta":'
TAIL = b',"logprobs":null,"finish_reason":null}],"usage":null}'


PADDED = TAIL[:-1] + b',"obfuscation":"%b"}'


def test_changed_response_fields_are_still_decoded() -> None:
    tiers = [b"default", b"default", b"flex", b"default"]
    frames = [
        b'{"id":"c1","service_tier":"%b","choices":[{"delta":{"content":"%d"}}]}' % (tier, number)
        for number, tier in enumerate(tiers)
    ]
    frames.append(b'{"id":"c1","choices":[{"delta":{},"finish_reason":"stop"}]}')
    decoder = stream_decoder(ResponseContext())
    events = separate_deltas(decoder.feed(b"".join(b"data: %b\n\n" % frame for frame in [*frames, b"[DONE]"])))
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
    return separate_deltas(events + decoder.close())


@pytest.mark.parametrize("tail", [TAIL, PADDED % b"x7Kq", TAIL.replace(b"}],", b',"token_ids":null}],')])
@given(deltas=lists(sampled_from(DELTAS), min_size=3, max_size=12))
@settings(max_examples=300, deadline=None)
def test_runs_give_the_same_events(tail: bytes, deltas: list[bytes]) -> None:
    fast_events = decode_deltas(deltas, tail)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TextMember, "template", lambda *_: None)
        assert fast_events == decode_deltas(deltas, tail)


@pytest.mark.parametrize("delta", [b'{"content":%b}', b'{"content":null,"reasoning_content":%b}', MORE])
@pytest.mark.parametrize(
    ("head", "tail"),
    [
        (HEAD, TAIL),
        (HEAD, PADDED % b"x7Kq"),
        (HEAD, TAIL.replace(b"}],", b',"token_ids":null}],')),
        (HEAD, TAIL.replace(b"}],", b',"seed":7}],"provider_tier":"fast",')),
        (b'{"choices":[{"finish_reason":null,"index":0,"delta":', b'}],"created":1,"id":"c1","object":"chunk"}'),
    ],
    ids=["openai", "padded", "vllm", "unknown members", "llamacpp"],
)
def test_only_the_first_chunks_of_a_run_are_decoded_in_full(delta: bytes, head: bytes, tail: bytes) -> None:
    decoder = stream_decoder(ResponseContext())
    start = CALL if delta is MORE else b'{"role":"assistant"}'
    for change in (start, delta % b'"a"', delta % b'"b"'):
        decoder.feed(b"data: %b\n\n" % (head + change + tail))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Decoder, "_read_frame", None)
        events = decoder.feed(b"data: %b\n\n" % (head + delta % rb'"\"c"' + tail) * 2)
    assert [event.texts for event in events if isinstance(event, PartDeltas)] == [['"c', '"c']]
