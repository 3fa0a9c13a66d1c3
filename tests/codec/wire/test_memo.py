"""Repeated tools are decoded and encoded as at first, and the cache stays within its limits."""

import json
from typing import Any

import toolwire as tw
from toolwire.codec.interface import Route, Target
from toolwire.codec.wire.extras import LIMIT_BYTES, LIMIT_ENTRY_BYTES, BoundedMemo
from toolwire.protocols import PROTOCOLS


def tools_body(*names: str, **more: Any) -> bytes:
    tools = [{"name": name, "input_schema": {"type": "object"}} | more for name in names]
    return json.dumps({"model": "m", "max_tokens": 9, "messages": [], "tools": tools}).encode()


def test_memo_is_cleared_when_full() -> None:
    memo: BoundedMemo[bytes, int] = BoundedMemo()
    for number in range(LIMIT_BYTES // LIMIT_ENTRY_BYTES):
        memo.put(b"%d" % number, number, LIMIT_ENTRY_BYTES)
    assert memo.get(b"0") == 0
    memo.put(b"more", -1, 1)
    assert (memo.get(b"0"), memo.get(b"more")) == (None, -1)
    memo.put(b"huge", -2, LIMIT_ENTRY_BYTES + 1)
    assert memo.get(b"huge") is None


def test_repeated_tool_is_decoded_to_the_same_value() -> None:
    decode = PROTOCOLS["anthropic"].decode_request
    first, again = (decode(tools_body("one", "two") + b" " * size, Route()) for size in (0, 9))
    assert first.tools is not None
    assert again.tools is not None
    assert first.tools[0] is again.tools[0]
    assert first == again


def test_unknown_tool_field_is_reported_every_time() -> None:
    for _ in range(3):
        (loss,) = tw.translate(tools_body("one", colour="red"), "anthropic", "openai-chat").losses
        assert loss.path == "/tools/0/colour"


def test_cached_tools_are_encoded_identically() -> None:
    codec, chat = PROTOCOLS["anthropic"], PROTOCOLS["openai-chat"]
    body = tools_body("fine", "not legal in Chat", strict=True)
    encodings = [chat.encode_request(codec.decode_request(body, Route()), Target(model="m")) for _ in range(3)]
    assert len({encoded.to_bytes() for encoded in encodings}) == 1
    assert encodings[0].mapping == encodings[1].mapping == encodings[2].mapping
    assert [tool.name for tool in encodings[2].mapping.tools.values()].count("not legal in Chat") == 1


def test_cached_tools_do_not_leak_names_between_requests() -> None:
    codec, chat = PROTOCOLS["anthropic"], PROTOCOLS["openai-chat"]
    call = {"type": "tool_use", "id": "c", "name": "gone from the list", "input": {}}
    with_call = json.loads(tools_body("kept")) | {"messages": [{"role": "assistant", "content": [call]}]}
    chat.encode_request(codec.decode_request(tools_body("kept"), Route()), Target(model="m"))
    other = chat.encode_request(codec.decode_request(json.dumps(with_call).encode(), Route()), Target(model="m"))
    assert [tool.name for tool in other.mapping.tools.values()] == ["gone from the list"]
    again = chat.encode_request(codec.decode_request(tools_body("kept"), Route()), Target(model="m"))
    assert again.mapping.tools == {}
