"""Thinking without text: Claude Code reads a signature only from a delta, never from the start of a block."""

import json
from typing import Any

from toolwire.canonical.content import Message, Reasoning, Signature, Text
from toolwire.canonical.fold import unfold
from toolwire.canonical.response import Candidate, Response, Stop
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS

SIGNATURE = Signature(issuer="anthropic", data="EqQBsigned", kind="signature")


def frames(*parts: Any) -> list[dict[str, Any]]:
    message = Message(role="assistant", parts=parts)
    response = Response(origin="", candidates=(Candidate(messages=(message,), stop=Stop(reason="end_turn")),))
    encoder = PROTOCOLS["anthropic"].stream_encoder(ResponseContext())
    data = encoder.encode(list(unfold(response))) + encoder.close()
    return [json.loads(line.removeprefix("data: ")) for line in data.decode().splitlines() if line.startswith("data:")]


def test_signature_of_omitted_thinking_is_sent_as_delta() -> None:
    sent = frames(Reasoning(hidden="omitted", signature=SIGNATURE), Text(text="Hi"))
    assert sent[1]["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}
    assert sent[2]["delta"] == {"type": "signature_delta", "signature": "EqQBsigned"}
    assert sent[3] == {"type": "content_block_stop", "index": 0}
    assert sent[4]["content_block"] == {"type": "text", "text": ""}


def test_redacted_thinking_is_complete_at_block_start() -> None:
    sent = frames(
        Reasoning(hidden="redacted", signature=Signature(issuer="anthropic", data="x", kind="encrypted", at="/data"))
    )
    assert sent[1]["content_block"] == {"type": "redacted_thinking", "data": "x"}
    assert sent[2] == {"type": "content_block_stop", "index": 0}
