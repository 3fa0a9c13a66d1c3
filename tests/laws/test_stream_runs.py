"""Streams translate to the same bytes, with the same losses, whether or not runs of like frames take the fast path."""

from random import Random

import pytest

import toolwire as tw
from tests.support.assertions import non_empty
from tests.support.samples import recorded_bodies
from tests.support.slices import slice_at
from toolwire.codec.fast_path import TextMember

TARGETS = recorded_bodies.PROTOCOL_NAMES


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", recorded_bodies.PROTOCOL_NAMES)
def test_recorded_streams_translate_the_same(source: str, target: str) -> None:
    wrong = []
    streams = recorded_bodies.sample_for_target(recorded_bodies.streams(source), target, one_in=1)
    for name, wire in non_empty(streams.items()):
        random = Random(f"{name} {target}")
        for frames in _variants(name, wire, target):
            chunks = slice_at(frames, [random.randrange(len(frames) + 1) for _ in range(random.randrange(6))])
            fast = _translate(chunks, source, target)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(TextMember, "template", lambda *_: None)
                if _translate(chunks, source, target) != fast:
                    wrong.append(name)
    assert wrong == []


def _variants(name: str, wire: bytes, target: str) -> list[bytes]:
    """Return the stream and one with repeated frames; each target gets one of them, and both in `make test-laws`."""
    variants = [wire, _repeat_frames(wire)]
    return [
        variant
        for number, variant in enumerate(variants)
        if recorded_bodies.is_sampled(f"{name}{number}", target, one_in=2)
    ]


def _repeat_frames(wire: bytes) -> bytes:
    """Send each frame three times, so that every kind of frame is in a run."""
    end = b"\n\n" if b"\n\n" in wire else b"\n"
    return b"".join((frame + end) * 3 for frame in wire.replace(b"\r\n", b"\n").split(end) if frame)


def _translate(chunks: list[bytes], source: str, target: str) -> tuple[list[bytes], list[str], bool]:
    stream = tw.translate_stream(chunks, source, target, tool_call_parser="auto", reasoning_parser="auto")
    frames = list(stream)
    return frames, list(map(str, stream.losses)), stream.broken
