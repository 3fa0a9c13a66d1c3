"""Repeated tools are decoded and encoded as at first, and the cache stays within its limits."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import toolwire as tw
from toolwire.canonical.tools import FunctionTool
from toolwire.codec.interface import Route, Target
from toolwire.codec.memo import LIMIT_BYTES, BoundedMemo
from toolwire.protocols import PROTOCOLS


def tools_body(*names: str, **more: Any) -> bytes:
    tools = [{"name": name, "input_schema": {"type": "object"}} | more for name in names]
    return json.dumps({"model": "m", "max_tokens": 9, "messages": [], "tools": tools}).encode()


def test_memo_drops_the_values_used_longest_ago() -> None:
    memo: BoundedMemo[str, int] = BoundedMemo(80)
    for number, name in enumerate("abcdefgh"):
        memo.put(name, number, 10)
    memo.touch("a")
    memo.touch("unknown")
    memo.put("i", 8, 10)  # an eighth becomes free as well
    assert [name for name in "abcdefghi" if memo.get(name) is not None] == list("adefghi")
    memo.put("j", 9, 5)
    memo.put("k", 10, 5)
    assert [name for name in "abcdefghijk" if memo.get(name) is not None] == list("adefghijk")
    memo.put("large", 11, 11)
    assert memo.get("large") is None


def test_memo_counts_a_replaced_value_once() -> None:
    memo: BoundedMemo[str, int] = BoundedMemo(80)
    memo.put("first", 0, 10)
    for number in range(100):
        memo.put("second", number, 10)
    assert (memo.get("first"), memo.get("second")) == (0, 99)
    memo.put("first", 1, 11)
    assert memo.get("first") is None


def test_memo_counts_no_removed_values() -> None:
    memo: BoundedMemo[str, int] = BoundedMemo(20, max_entry=10)
    for number in range(100):
        memo.put("removed", number, 10)
        memo.remove("removed")
        memo.remove("unknown")
    memo.put("first", 1, 10)
    memo.put("second", 2, 10)
    assert (memo.get("removed"), memo.get("first"), memo.get("second")) == (None, 1, 2)


def test_threads_share_a_memo_within_its_limit() -> None:
    memo: BoundedMemo[int, bytes] = BoundedMemo(1000, max_entry=100)

    def use(thread: int) -> None:
        for number in range(3000):
            key = (thread + number) % 40
            memo.put(key, b"", number % 100)
            memo.touch((key * 7) % 40)
            memo.remove(number % 13)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(use, range(4)))
    for key in range(40):
        memo.remove(key)
    for key in range(10):
        memo.put(key, b"kept", 100)
    assert [memo.get(key) for key in range(10)] == [b"kept"] * 10


@pytest.mark.parametrize("protocol", ["anthropic", "openai-chat", "openai-responses"])
def test_tools_that_differ_only_in_the_middle_are_not_confused(protocol: str) -> None:
    decode = PROTOCOLS[protocol].decode_request
    padding = " filler" * 100
    for digit in "1221":
        tools = tools_body("search", "fetch", description=f"{padding}{digit}{padding}")
        body = json.loads(tw.translate(tools, "anthropic", protocol).to_bytes())
        for declared in (body["tools"], body["tools"][:1]):  # a list, and a tool, that the memo may know
            decoded = decode(json.dumps(body | {"tools": declared}).encode(), Route()).tools or ()
            descriptions = [tool.description for tool in decoded if isinstance(tool, FunctionTool)]
            assert descriptions == [f"{padding}{digit}{padding}"] * len(declared)


@pytest.mark.parametrize("protocol", ["anthropic", "openai-chat", "openai-responses"])
def test_tools_of_many_agents_are_decoded_once(protocol: str) -> None:
    decode = PROTOCOLS[protocol].decode_request
    bodies = [
        tw.translate(tools_body("search", description=f"Agent {number}. " * 500), "anthropic", protocol).to_bytes()
        for number in range(400)
    ]
    assert sum(map(len, bodies)) > LIMIT_BYTES
    first = [decode(body, Route()).tools for body in bodies]
    again = [decode(body, Route()).tools for body in bodies]
    assert all(known is tools for known, tools in zip(again, first, strict=True))


def test_list_of_known_tools_keeps_its_order() -> None:
    decode = PROTOCOLS["anthropic"].decode_request
    for names in (("one", "two"), ("two", "one"), ("one",), ("one", "two")):
        tools = decode(tools_body(*names), Route()).tools
        assert [tool.name for tool in tools or () if isinstance(tool, FunctionTool)] == list(names)


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
