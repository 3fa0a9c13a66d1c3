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


def learnt(data: bytes) -> ChunkTemplate | None:
    return chunk_template(data, msgspec.json.decode(data, type=ChunkShape))


def test_what_stands_around_a_delta_is_learnt_and_the_next_delta_found_in_it() -> None:
    repeats = learnt(HEAD + b'{"content":"a"}' + TAIL)
    assert repeats is not None
    delta = repeats.decode_delta(HEAD + b'{"content":"b"}' + TAIL)
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
def test_a_chunk_that_says_anything_else_is_read_whole(chunk: bytes) -> None:
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
def test_nothing_is_learnt_from_a_chunk_that_says_more_than_its_delta(chunk: bytes) -> None:
    assert learnt(chunk) is None


PADDED = TAIL[:-1] + b',"obfuscation":"%b"}'


def test_the_padding_that_hides_lengths_is_passed_over() -> None:
    repeats = learnt(HEAD + b'{"content":"a"}' + PADDED % b"x7Kq")
    assert repeats is not None
    for padding in (b"", b"y", b"Zz09" * 9):
        delta = repeats.decode_delta(HEAD + b'{"content":"b"}' + PADDED % padding)
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
def test_what_only_looks_like_padding_is_read_whole(chunk: bytes) -> None:
    assert ChunkTemplate(HEAD, TAIL[:-1], 0, has_padding=True).decode_delta(chunk) is None


def test_what_changes_around_the_deltas_is_still_told() -> None:
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


def told(deltas: list[bytes], tail: bytes) -> list[Event]:
    decoder = stream_decoder(ResponseContext())
    events = [event for one in deltas for event in decoder.feed(b"data: %b\n\n" % (HEAD + one + tail))]
    return events + decoder.close()


@pytest.mark.parametrize("tail", [TAIL, PADDED % b"x7Kq"], ids=["bare", "padded"])
@given(deltas=lists(sampled_from(DELTAS), min_size=3, max_size=12))
@settings(max_examples=300, deadline=None)
def test_strings_that_go_on_are_what_the_whole_chunks_say(tail: bytes, deltas: list[bytes]) -> None:
    short = told(deltas, tail)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChunkTemplate, "_build_text_template", lambda *_: None)
        assert short == told(deltas, tail)


@pytest.mark.parametrize(("delta", "call"), [(b'{"content":"a"}', None), (MORE % b'"a"', 0)])
def test_of_chunks_that_go_on_only_the_string_is_read(delta: bytes, call: int | None) -> None:
    repeats = ChunkTemplate(HEAD, TAIL, 0)
    assert repeats.decode_delta(HEAD + delta + TAIL) is not None
    assert repeats.text_template is not None
    assert repeats.text_template.call_index == call
    assert repeats.text_template.next_text(HEAD + delta.replace(b'"a"', rb'"\"b"') + TAIL) == '"b'
    assert repeats.text_template.next_text(HEAD + delta.replace(b'"a"', b'"a","b"') + TAIL) == ""
