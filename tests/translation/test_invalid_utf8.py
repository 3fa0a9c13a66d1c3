"""Invalid UTF-8 is refused wherever it stands in a request, also in values that are forwarded without being read."""

import json
import re

import pytest

import toolwire as tw
from tests.support.assertions import non_empty
from toolwire.protocols import PROTOCOLS

STRING = re.compile(rb'"(?:[^"\\]|\\.)+"')

SCHEMA = {"type": "object", "properties": {"täxt": {"type": "string", "description": "what to write", "x-unit": "m"}}}
BODY = {
    "model": "claude-opus-5-5",
    "max_tokens": 64,
    "system": "Answer in one line.",
    "tools": [{"name": "note", "description": "Writes a note: 笔记.", "input_schema": SCHEMA}],
    "messages": [
        {"role": "user", "content": "Note it."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "note", "input": {"täxt": "wörd"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "done"}]},
    ],
}
UNKNOWN = {"a field of tomorrow": [{"its key": "its value"}]}


def request_body(protocol: str) -> bytes:
    translated = tw.translate(BODY, "anthropic", protocol).value
    return json.dumps(translated | UNKNOWN, ensure_ascii=False).encode()


@pytest.mark.parametrize("target", ["anthropic", "openai-chat"])
@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_request_with_invalid_utf8_is_refused(protocol: str, target: str) -> None:
    body = request_body(protocol)
    assert tw.translate(body, protocol, target).to_bytes()
    for match in non_empty(list(STRING.finditer(body))):
        middle = (match.start() + match.end()) // 2
        for invalid in (b"\xff", b"\xe4\xb8", b"\xed\xa0\x80", b"\xc0\xaf"):
            at = next(at for at in range(match.start() + 1, middle + 1) if body[at] & 0xC0 != 0x80)
            with pytest.raises(tw.DecodeError, match="can't decode byte"):
                tw.translate(body[:at] + invalid + body[at:], protocol, target)
