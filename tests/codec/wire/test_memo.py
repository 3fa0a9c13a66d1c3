"""Tools that come again: the same is decoded and written as at first, and no more is kept than may be."""

import json
from typing import Any

import toolwire as tw
from toolwire.codec.interface import Route, Target
from toolwire.codec.wire.memo import LIMIT_BYTES, LIMIT_ENTRY_BYTES, BoundedMemo
from toolwire.protocols import PROTOCOLS


def asked(*names: str, **more: Any) -> bytes:
    tools = [{"name": name, "input_schema": {"type": "object"}} | more for name in names]
    return json.dumps({"model": "m", "max_tokens": 9, "messages": [], "tools": tools}).encode()


def test_what_was_kept_is_found_until_there_is_too_much() -> None:
    seen: BoundedMemo[bytes, int] = BoundedMemo()
    for number in range(LIMIT_BYTES // LIMIT_ENTRY_BYTES):
        seen.put(b"%d" % number, number, LIMIT_ENTRY_BYTES)
    assert seen.get(b"0") == 0
    seen.put(b"more", -1, 1)
    assert (seen.get(b"0"), seen.get(b"more")) == (None, -1)
    seen.put(b"huge", -2, LIMIT_ENTRY_BYTES + 1)
    assert seen.get(b"huge") is None


def test_a_tool_that_comes_again_is_the_same_value_and_holds_no_request() -> None:
    decode = PROTOCOLS["anthropic"].decode_request
    first, again = (decode(asked("one", "two") + b" " * size, Route()) for size in (0, 9))
    assert first.tools is not None
    assert again.tools is not None
    assert first.tools[0] is again.tools[0]
    assert first == again


def test_a_tool_with_a_field_that_nobody_knows_is_reported_each_time() -> None:
    for _ in range(3):
        (loss,) = tw.translate(asked("one", colour="red"), "anthropic", "openai-chat").losses
        assert loss.path == "/tools/0/colour"


def test_tools_that_were_written_before_are_written_the_same() -> None:
    codec, chat = PROTOCOLS["anthropic"], PROTOCOLS["openai-chat"]
    body = asked("fine", "not legal in Chat", strict=True)
    encodings = [chat.encode_request(codec.decode_request(body, Route()), Target(model="m")) for _ in range(3)]
    assert len({one.to_bytes() for one in encodings}) == 1
    assert encodings[0].mapping == encodings[1].mapping == encodings[2].mapping
    assert [known.name for known in encodings[2].mapping.tools.values()].count("not legal in Chat") == 1


def test_what_one_request_names_is_nothing_to_the_next() -> None:
    codec, chat = PROTOCOLS["anthropic"], PROTOCOLS["openai-chat"]
    call = {"type": "tool_use", "id": "c", "name": "gone from the list", "input": {}}
    with_call = json.loads(asked("kept")) | {"messages": [{"role": "assistant", "content": [call]}]}
    chat.encode_request(codec.decode_request(asked("kept"), Route()), Target(model="m"))
    other = chat.encode_request(codec.decode_request(json.dumps(with_call).encode(), Route()), Target(model="m"))
    assert [known.name for known in other.mapping.tools.values()] == ["gone from the list"]
    again = chat.encode_request(codec.decode_request(asked("kept"), Route()), Target(model="m"))
    assert again.mapping.tools == {}
