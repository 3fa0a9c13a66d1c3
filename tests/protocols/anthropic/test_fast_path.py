"""The fast path produces the bytes and losses of the general encoder."""

import json
from typing import Any

import pytest

import toolwire
from tests.support.assertions import non_empty
from tests.support.bodies.chat_variants import PLAIN_COMPLETION, body_variants
from tests.support.samples.fixture_files import PROTOCOLS, fixtures
from toolwire.canonical.content import Message, Text, ToolCall
from toolwire.canonical.errors import ToolwireError
from toolwire.canonical.response import Candidate, Response, Stop, Usage
from toolwire.protocols.anthropic import fast_path
from toolwire.protocols.anthropic import response as responses


def translate_response(body: Any, source: str) -> tuple[Any, ...] | str:
    try:
        translation = toolwire.translate(body, source, "anthropic", "response")
        return translation.to_bytes(), translation.losses
    except ToolwireError as error:
        return str(error)


def translate_slowly(body: Any, source: str) -> tuple[Any, ...] | str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(responses, "encode_fast", lambda id, response: None)
        return translate_response(body, source)


@pytest.mark.parametrize("source", [name for name in PROTOCOLS if name != "anthropic"])
def test_fixtures_are_encoded_alike(source: str) -> None:
    for name, body in non_empty(fixtures(source, "responses")):
        assert translate_response(body, source) == translate_slowly(body, source), name


def test_variants_of_a_plain_response_are_encoded_alike() -> None:
    for variant in non_empty(body_variants(PLAIN_COMPLETION)):
        assert translate_response(variant, "openai-chat") == translate_slowly(variant, "openai-chat"), json.dumps(
            variant
        )


def test_plain_response_takes_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "_encode_response", None)
    assert b'"name":"look"' in translate_response(PLAIN_COMPLETION, "openai-chat")[0]


def test_every_canonical_field_is_checked() -> None:
    """A new canonical field that the fast path does not check would be lost without a report."""
    common_fields = {"wire_form", "at"}
    for kind, getter, other_fields in (
        (Text, fast_path._text_fields, {"text", "id"}),  # no response encoder sends the id of a text
        (ToolCall, fast_path._call_fields, {"id", "name", "arguments", "complete"}),
        (Message, fast_path._message_fields, {"role", "name", "parts", "clear_at", "extras"}),
        (
            Usage,
            fast_path._usage_fields,
            {"extras", "input_tokens", "output_tokens", "total", "cache_read", "cache_write", "reasoning"}
            | {"estimated"},  # no decoder sets it
        ),
        (Stop, None, {"reason", "raw", "sequence", "extras"}),
        (Candidate, None, {"index", "messages", "stop", "plain", "extras"}),
        (
            Response,
            None,
            {"origin", "id", "model", "candidates", "usage", "extras", "plain"}
            | {"status", "error", "continuation", "created"},  # see report_response
        ),
    ):
        checked_fields = set() if getter is None else set(getter.__reduce__()[1])
        assert checked_fields | other_fields | common_fields == set(kind.__struct_fields__), kind
