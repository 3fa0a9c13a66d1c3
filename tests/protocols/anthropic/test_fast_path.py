"""What is written straight is what the long way would have written, with the same losses."""

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
from toolwire.protocols.anthropic import response as answers
from toolwire.protocols.openai_chat import response as chat_answers
from toolwire.protocols.openai_chat.fast_path import ResponseTemplateCache


def told(body: Any, source: str) -> tuple[Any, ...] | str:
    try:
        made = toolwire.translate(body, source, "anthropic", "response")
        return made.to_bytes(), made.losses
    except ToolwireError as error:
        return str(error)


def long_way(body: Any, source: str) -> tuple[Any, ...] | str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers, "encode_fast", lambda id, response: None)
        patch.setattr(chat_answers, "_templates", ResponseTemplateCache())
        return told(body, source)


@pytest.mark.parametrize("source", [name for name in PROTOCOLS if name != "anthropic"])
def test_fixtures(source: str) -> None:
    for name, body in non_empty(fixtures(source, "responses")):
        assert told(body, source) == long_way(body, source), name


def test_one_thing_another_than_in_an_ordinary_answer() -> None:
    for variant in non_empty(body_variants(PLAIN_COMPLETION)):
        assert told(variant, "openai-chat") == long_way(variant, "openai-chat"), json.dumps(variant)


def test_an_ordinary_answer_takes_the_straight_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_encode_response", None)
    assert b'"name":"look"' in told(PLAIN_COMPLETION, "openai-chat")[0]


def test_every_field_of_an_answer_is_looked_at() -> None:
    """A field that the model gets, and nobody here asks about, would be lost without a word."""
    everywhere = {"wire_form", "at"}
    for kind, get, more in (
        (Text, fast_path._text_fields, {"text", "id"}),  # no target of an answer has an id of a text
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
        asked = set() if get is None else set(get.__reduce__()[1])
        assert asked | more | everywhere == set(kind.__struct_fields__), kind
