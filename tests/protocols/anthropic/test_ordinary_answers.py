"""What is written straight is what the long way would have written, with the same losses."""

import json
from typing import Any

import pytest

import toolwire
from tests.fixture_files import PROTOCOLS, fixtures
from tests.protocols.openai_chat.test_alike import ORDINARY, variants
from toolwire.canonical.errors import ToolwireError
from toolwire.protocols.anthropic.response import body as answers
from toolwire.protocols.openai_chat.response import body as chat_answers
from toolwire.protocols.openai_chat.response.alike import Alike


def told(body: Any, source: str) -> tuple[Any, ...] | str:
    try:
        made = toolwire.translate(body, source, "anthropic", "response")
        return made.to_bytes(), made.losses
    except ToolwireError as error:
        return str(error)


def long_way(body: Any, source: str) -> tuple[Any, ...] | str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers, "encode_ordinary", lambda id, response: None)
        patch.setattr(chat_answers, "_alike", Alike())
        return told(body, source)


@pytest.mark.parametrize("source", [name for name in PROTOCOLS if name != "anthropic"])
def test_fixtures(source: str) -> None:
    for name, body in fixtures(source, "responses"):
        assert told(body, source) == long_way(body, source), name


def test_one_thing_another_than_in_an_ordinary_answer() -> None:
    for variant in variants(ORDINARY):
        assert told(variant, "openai-chat") == long_way(variant, "openai-chat"), json.dumps(variant)


def test_an_ordinary_answer_takes_the_straight_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_encode_response", None)
    assert b'"name":"look"' in told(ORDINARY, "openai-chat")[0]
