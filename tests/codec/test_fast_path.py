"""Templates of stream frames: which frames give one, and which frames match it."""

import msgspec
import pytest

from toolwire.canonical.content import Citation, Signature
from toolwire.canonical.events import PartDelta, PartDeltas
from toolwire.canonical.fold import TextPieces
from toolwire.codec.fast_path import KNOWN_TEXTS, FrameTemplate, TextMember, adds_only_text, encode_frames

CONTENT = TextMember("content")
HEAD = b'data: {"id":"c1","choices":[{"index":0,"delta":{"content":'
TAIL = b'},"finish_reason":null,"token_ids":null}],"usage":null}'
DELTA = PartDelta(index=0, text="a")


def template_of(frame: bytes) -> FrameTemplate:
    template = CONTENT.template(frame, DELTA)
    assert template is not None
    return template


def matches(frame: bytes, frames: list[bytes], first: int = 0) -> list[str]:
    """Return the texts of the frames from the first one on that match the template of a frame."""
    deltas = template_of(frame).match(frames, first)
    return [] if deltas is None else deltas.texts


def test_like_frames_give_their_strings() -> None:
    strings = [b'"b"', rb'"\"}"', rb'"\\"', '"ä😀"'.encode(), rb'"\ud83d\ude00"', b'" "']
    frames = [HEAD + string + TAIL for string in strings]
    assert matches(HEAD + b'"a"' + TAIL, frames) == ["b", '"}', "\\", "ä😀", "😀", " "]


def test_strings_are_read_from_the_start_up_to_another_frame() -> None:
    frames = [HEAD + b'"%d"' % number + TAIL for number in range(4)]
    frames.insert(3, b"data: [DONE]")
    assert matches(HEAD + b'"a"' + TAIL, frames, 1) == ["1", "2"]


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
    assert matches(HEAD + b'"a"' + TAIL, [frame]) == []


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
    assert CONTENT.template(frame, DELTA) is None


def test_spaces_around_the_text_are_part_of_the_template() -> None:
    frames = [b'data: {"content" : "b" , "id": 1}', b'data: {"content":"c","id":1}']
    assert matches(b'data: {"content" : "a" , "id": 1}', frames) == ["b"]


OTHERS = [HEAD + string + TAIL for string in (b'"b" "c"', b'"b""c"', b'"b"\n"c"', b'"b', b'""', b"")]


@pytest.mark.parametrize("frame", [*OTHERS, HEAD + TAIL[1:]])
@pytest.mark.parametrize("empty", [HEAD[:-1] + TAIL, HEAD + TAIL, HEAD[: -len(TAIL)] + TAIL])
def test_no_frame_makes_up_for_another(frame: bytes, empty: bytes) -> None:
    frames = [HEAD + b'"a"' + TAIL, frame, empty, HEAD + b'"d"' + TAIL]
    assert matches(frames[0], frames) == ["a"]
    assert matches(frames[0], [frames[0], empty, frame]) == ["a"]


def test_deltas_belong_to_the_part_of_the_template_and_are_collected() -> None:
    frames, pieces = [HEAD + b'"b"' + TAIL] * 2, TextPieces(["a"])
    delta = PartDelta(index=3, text="a", candidate=1, kind="full", block=2)
    template = CONTENT.template(HEAD + b'"a"' + TAIL, delta, pieces)
    assert template is not None
    deltas = template.match(frames, 0)
    wire = b'"b"\n"b"'
    assert deltas == PartDeltas(index=3, texts=["b", "b"], candidate=1, kind="full", block=2, wire=wire)
    assert pieces == ["a", "b", "b"]


def test_every_other_field_of_a_delta_prevents_a_template() -> None:
    values = {
        "signature": Signature(issuer="x", data="y", kind="signature"),
        "annotation": Citation(),
        "extras": {"x": {}},
        "wire_form": ("x",),
        "at": "/x",
    }
    shared = set(PartDelta.__struct_fields__) & set(PartDeltas.__struct_fields__) - {"extras", "wire_form", "at"}
    assert set(PartDelta.__struct_fields__) == shared | {"text"} | values.keys()
    assert adds_only_text(PartDelta(index=3, text="a", candidate=1, kind="full", block=2))
    for name, value in values.items():
        delta = PartDelta(index=0, text="a", **{name: value})  # type: ignore[arg-type]
        assert CONTENT.template(HEAD + b'"a"' + TAIL, delta) is None, name


@pytest.mark.parametrize("texts", [["a"], ["a", "b"], ['","', '"', ",", "\\", '\\","'], ["\n", "é😀\u2028", "\x7f"]])
def test_texts_are_encoded_one_frame_each(texts: list[str]) -> None:
    frames = b"".join(b'{"x":' + msgspec.json.encode(text) + b"}\n" for text in texts)
    assert encode_frames(b'{"x":', texts, b"}\n") == frames


def test_a_known_text_need_not_be_decoded() -> None:
    template, frame = template_of(HEAD + b'"a"' + TAIL), HEAD + b'" known"' + TAIL
    KNOWN_TEXTS[b'" known"'] = " known"
    try:
        for frames in ([frame], [frame.replace(b"c1", b"c2")], [frame + b" "], [HEAD + b'" known' + TAIL], [frame] * 2):
            deltas = template.match(frames, 0)
            assert (deltas is not None and deltas.known) is (frames == [frame])
        known = template.match([frame], 0)
        assert known is not None
        assert known.texts == [" known"]
        assert (known.index, known.candidate, known.kind, known.block) == (0, 0, None, 0)
        pieces = TextPieces()
        assert CONTENT.template(frame, PartDelta(index=0, text=" known"), pieces).match([frame], 0)  # type: ignore[union-attr]
        assert list(pieces) == [" known"]
    finally:
        del KNOWN_TEXTS[b'" known"']
