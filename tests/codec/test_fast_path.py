"""Templates of stream frames: which frames give one, and which frames match it."""

import pytest

from toolwire.codec.fast_path import TextMember, TextTemplate

CONTENT = TextMember("content")
HEAD = b'data: {"id":"c1","choices":[{"index":0,"delta":{"content":'
TAIL = b'},"finish_reason":null,"token_ids":null}],"usage":null}'
PADDED = TAIL[:-1] + b',"obfuscation":"%b"}'


def template_of(frame: bytes, text: str = "a") -> TextTemplate:
    template = CONTENT.template(frame, text)
    assert template is not None
    return template


def test_like_frames_give_their_strings() -> None:
    strings = [b'"b"', rb'"\"}"', rb'"\\"', '"ä😀"'.encode(), rb'"\ud83d\ude00"', b'" "']
    frames = [HEAD + string + TAIL for string in strings]
    assert template_of(HEAD + b'"a"' + TAIL).next_texts(frames, 0) == ["b", '"}', "\\", "ä😀", "😀", " "]


def test_strings_are_read_from_the_start_up_to_another_frame() -> None:
    frames = [HEAD + b'"%d"' % number + TAIL for number in range(4)]
    frames.insert(3, b"data: [DONE]")
    assert template_of(HEAD + b'"a"' + TAIL).next_texts(frames, 1) == ["1", "2"]


@pytest.mark.parametrize(
    "frame",
    [
        HEAD.replace(b"c1", b"c2") + b'"b"' + TAIL,
        HEAD + b'"b"' + TAIL.replace(b":null,", b':"stop",'),
        HEAD + b'"b","more":1' + TAIL,
        HEAD + b'"b"' + TAIL + b" ",
        HEAD + b'""' + TAIL,
        HEAD + b'"b\nb"' + TAIL,
        HEAD + b'"b\xff"' + TAIL,
        HEAD + b'"b"\n' + TAIL,
        HEAD + rb'"\ud83d"' + TAIL,
        HEAD + b'"b' + TAIL,
        HEAD + b'b"' + TAIL,
        HEAD + b'"' + TAIL,
        HEAD + b"null" + TAIL,
        HEAD + TAIL,
        HEAD,
    ],
)
def test_other_frames_do_not_match(frame: bytes) -> None:
    assert template_of(HEAD + b'"a"' + TAIL).next_texts([frame], 0) == []


@pytest.mark.parametrize(
    "frame",
    [
        HEAD + b'"b"' + TAIL,
        HEAD + b'{"content":"a"}' + TAIL,
        HEAD + b'["a"],"content":"a"' + TAIL,
        HEAD + rb'"a","cont\u0065nt":"a"' + TAIL,
        HEAD + b"null" + TAIL,
        HEAD + b'"a',
        HEAD + b'"a"' + b" " * 20_000 + TAIL,
        b"data: {}",
    ],
)
def test_frames_that_may_have_the_text_elsewhere_give_no_template(frame: bytes) -> None:
    assert CONTENT.template(frame, "a") is None


def test_spaces_around_the_text_are_part_of_the_template() -> None:
    template = template_of(b'data: {"content" : "a" , "id": 1}')
    assert template.next_texts([b'data: {"content" : "b" , "id": 1}', b'data: {"content":"c","id":1}'], 0) == ["b"]


def test_padding_is_ignored() -> None:
    frames = [HEAD + b'"b"' + PADDED % padding for padding in (b"", b"y", b"Zz09" * 9)]
    assert template_of(HEAD + b'"a"' + PADDED % b"x7Kq").next_texts(frames, 0) == ["b", "b", "b"]


@pytest.mark.parametrize(
    "frame",
    [
        HEAD + b'"b"' + TAIL,
        HEAD + b'"b"' + PADDED % b'x","usage":{"prompt_tokens":1},"more":"',
        HEAD + b'"b"' + PADDED % rb"\u0041",
        HEAD + b'"b"' + PADDED.replace(b"finish_reason", b"reason") % b"x",
        HEAD + b'"b"' + PADDED % b"x" + b" ",
    ],
)
def test_other_padding_does_not_match(frame: bytes) -> None:
    assert template_of(HEAD + b'"a"' + PADDED % b"x7Kq").next_texts([frame], 0) == []
