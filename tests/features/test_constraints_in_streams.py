"""A constraint that the target cannot carry ends the stream with an error of the client's protocol."""

import pytest

import toolwire as tw
from tests.support.protocols import ALL_PROTOCOLS, RESPONSES
from tests.support.samples import recorded_bodies
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import ResponseFailed
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS

WIRE = recorded_bodies.fixture_streams(RESPONSES)["computer"]
CHECKS = b'"pending_safety_checks": [{"id": "cu_sc_1", "code": "malicious_instructions", "message": "Check this."}]'
CHECKS_PATH = "/output/0/pending_safety_checks/0"
OTHER_PROTOCOLS = [name for name in ALL_PROTOCOLS if name != RESPONSES]


@pytest.mark.parametrize("target", OTHER_PROTOCOLS)
def test_a_stream_fails_where_its_body_is_refused(target: str) -> None:
    body = recorded_bodies.fixture_responses(RESPONSES)["computer"]
    with pytest.raises(tw.LossyTranslationError, match=CHECKS_PATH):
        tw.translate(body, RESPONSES, target, "response")
    stream = tw.translate_stream([WIRE], RESPONSES, target)
    streamed = b"".join(stream)
    assert stream.error is not None
    assert stream.error.kind == "invalid_request"
    assert CHECKS_PATH in stream.error.message
    assert not stream.broken
    assert (CHECKS_PATH, True) in [(loss.path, loss.constraint) for loss in stream.losses]
    last = _stream_error(streamed, target)
    assert CHECKS_PATH in last.message
    assert b"click" not in streamed
    assert b"screenshot" not in streamed


@pytest.mark.parametrize("target", OTHER_PROTOCOLS)
def test_late_safety_checks_end_the_stream_before_the_call_is_complete(target: str) -> None:
    assert WIRE.count(CHECKS) == 3
    stream = tw.translate_stream([WIRE.replace(CHECKS, b'"pending_safety_checks": []', 1)], RESPONSES, target)
    streamed = b"".join(stream)
    assert CHECKS_PATH in _stream_error(streamed, target).message
    assert b"screenshot" not in streamed


@pytest.mark.parametrize("target", OTHER_PROTOCOLS)
def test_a_call_without_safety_checks_passes(target: str) -> None:
    stream = tw.translate_stream([WIRE.replace(CHECKS, b'"pending_safety_checks": []')], RESPONSES, target)
    assert b"screenshot" in b"".join(stream)
    assert stream.error is None


def test_safety_checks_pass_within_their_protocol() -> None:
    stream = tw.translate_stream([WIRE], RESPONSES, RESPONSES)
    assert b"cu_sc_1" in b"".join(stream)
    assert stream.error is None
    assert stream.losses == []


def _stream_error(wire: bytes, protocol: str) -> ApiError:
    """Return the error that a client of the protocol receives."""
    decoder = PROTOCOLS[protocol].stream_decoder(ResponseContext())
    events = [*decoder.feed(wire), *decoder.close()]
    (error,) = [event.error for event in events if isinstance(event, ResponseFailed)]
    return error
