"""Fast paths of the codecs, which must agree with the full decoder and encoder, whatever came before."""

import json
from contextlib import suppress
from unittest import mock

from tests.fuzz.engine import Target
from tests.support.samples.fixture_files import fixtures
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.events import Event, separate_deltas
from toolwire.codec.fast_path import TextMember
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS as CODECS
from toolwire.translation.body import body_bytes


def _check_usage(data: bytes) -> None:
    """Check that the usage scan of a passed-through response agrees with the decoder; UTF-8 is checked earlier."""
    with suppress(DecodeError):
        _check_glances(body_bytes(data, ""))


def _check_glances(data: bytes) -> None:
    for name in ("openai-chat", "anthropic", "gemini", "openai-responses"):
        codec = CODECS[name]
        if (glanced := codec.peek(data)) is None:
            continue
        try:
            decoded = codec.decode_response(data, ResponseContext())
        except DecodeError as error:
            if error.path.startswith("/usage"):
                raise AssertionError(f"{name}: a glance took what decoding refuses: {error}") from None
            continue  # content that passes through is not looked at: only decoding can refuse it
        assert glanced.model == decoded.model, name
        assert (glanced.usage and glanced.usage.input_tokens) == (decoded.usage and decoded.usage.input_tokens), name
        assert (glanced.usage and glanced.usage.output_tokens) == (decoded.usage and decoded.usage.output_tokens), name


def _check_stream(data: bytes) -> None:
    """Check that a Chat stream decodes to the same events with and without templates of its frames."""

    def decode() -> list[Event]:
        decoder = CODECS["openai-chat"].stream_decoder(ResponseContext())
        return separate_deltas([*decoder.feed(data), *decoder.close()])

    fast = decode()
    with mock.patch.object(TextMember, "template", return_value=None):
        assert fast == decode()


def _check_lines(data: bytes) -> None:
    """Check that an Ollama stream decodes to the same events with and without the fast path for lines of text."""

    def decode() -> list[Event]:
        decoder = CODECS["ollama"].stream_decoder(ResponseContext())
        return separate_deltas([*decoder.feed(data), *decoder.close()])

    fast = decode()
    with mock.patch("toolwire.protocols.ollama.stream_decoder._match_text_line", return_value=None):
        assert fast == decode()


def _stream_seeds() -> list[bytes]:
    return [stream for _, stream in fixtures("openai-chat", "streams")]


def _line_seeds() -> list[bytes]:
    return [stream for _, stream in fixtures("ollama", "streams")]


def _usage_seeds() -> list[bytes]:
    names = ("openai-chat", "anthropic", "gemini", "openai-responses")
    return [json.dumps(body).encode() for name in names for _, body in fixtures(name, "responses")]


TARGETS = [
    Target("fast-usage", _usage_seeds, _check_usage),
    Target("fast-chat-stream", _stream_seeds, _check_stream),
    Target("fast-ollama-stream", _line_seeds, _check_lines),
]
