"""Thinking that is not shown: Claude Code reads a signature only from a delta, never from the start of a block."""

import json
from typing import Any

from toolwire.canonical.content import Message, Reasoning, Signature, Text
from toolwire.canonical.fold import unfold
from toolwire.canonical.response import Candidate, Response, Stop
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS

SEAL = Signature(issuer="anthropic", data="EqQBsigned", kind="signature")


def frames(*parts: Any) -> list[dict[str, Any]]:
    answer = Message(role="assistant", parts=parts)
    response = Response(origin="", candidates=(Candidate(messages=(answer,), stop=Stop(reason="end_turn")),))
    encoder = PROTOCOLS["anthropic"].stream_encoder(ResponseContext())
    data = encoder.encode(list(unfold(response))) + encoder.close()
    return [json.loads(line.removeprefix("data: ")) for line in data.decode().splitlines() if line.startswith("data:")]


def test_the_signature_of_omitted_thinking_comes_in_a_delta() -> None:
    found = frames(Reasoning(hidden="omitted", signature=SEAL), Text(text="Hi"))
    assert found[1]["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}
    assert found[2]["delta"] == {"type": "signature_delta", "signature": "EqQBsigned"}
    assert found[3] == {"type": "content_block_stop", "index": 0}
    assert found[4]["content_block"] == {"type": "text", "text": ""}


def test_redacted_thinking_is_whole_at_its_start() -> None:
    found = frames(
        Reasoning(hidden="redacted", signature=Signature(issuer="anthropic", data="x", kind="encrypted", at="/data"))
    )
    assert found[1]["content_block"] == {"type": "redacted_thinking", "data": "x"}
    assert found[2] == {"type": "content_block_stop", "index": 0}
