"""Incremental translation of resent conversations, which must agree with the complete translation."""

import json
from contextlib import suppress

from tests.fuzz.engine import Target
from tests.laws.test_incremental_translation import Translator
from tests.support.samples.fixture_files import fixtures
from toolwire.canonical.errors import ToolwireError
from toolwire.protocols import PROTOCOLS
from toolwire.translation.incremental import messages_member

_TARGETS = ("openai-chat", "anthropic", "gemini", "ollama")


def _seeds(protocol: str) -> list[bytes]:
    """Return requests with a list of messages."""
    member = messages_member(PROTOCOLS[protocol])
    bodies = [body for _, body in fixtures(protocol, "requests")]
    return [json.dumps(body, separators=(",", ":")).encode() for body in bodies if isinstance(body.get(member), list)]


def _check_conversation(protocol: str, data: bytes) -> None:
    """Check a conversation that grows by one message at a time; the translator compares with the complete one."""
    member = messages_member(PROTOCOLS[protocol])
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(body, dict) or not isinstance(body.get(member), list):
        return
    history = body[member][:12]
    for target in _TARGETS:
        translator = Translator(protocol, target)
        for count in range(1, len(history) + 1):
            grown = json.dumps({**body, member: history[:count]}, separators=(",", ":"))
            with suppress(ToolwireError, UnicodeEncodeError):
                translator.translate(grown.encode())


def _target(protocol: str) -> Target:
    """Return the target for conversations of one protocol."""
    return Target(
        f"conversations-{protocol}", lambda: _seeds(protocol), lambda data: _check_conversation(protocol, data)
    )


TARGETS = [_target(protocol) for protocol in ("anthropic", "openai-chat", "openai-responses", "gemini")]
