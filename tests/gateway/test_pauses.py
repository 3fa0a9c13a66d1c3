"""A provider that pauses is asked to go on by the gateway, where the client's protocol has no word for it."""

import json
from typing import Any

import pytest

from tests.gateway.running import PROTOCOL_NAMES, in_front_of, question, run, running
from tests.gateway.test_exchange import Script
from tests.gateway.test_faults import STREAM, events_of, piece, whole
from tests.upstream.sockets import upstream
from toolwire.canonical.content import Text
from toolwire.canonical.fold import Folder
from toolwire.codec.interface import Context
from toolwire.protocols import PROTOCOLS

SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "weather"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [
        {
            "type": "web_search_result",
            "url": "https://a.example",
            "title": "A",
            "encrypted_content": "Zm9v",
            "page_age": None,
        }
    ],
}


def message(stop: str, *content: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": list(content),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }


FIRST = message("pause_turn", {"type": "text", "text": "Let me look. "}, SEARCH, FOUND)
LAST = message("end_turn", {"type": "text", "text": "It is sunny."})


def frames(body: dict[str, Any]) -> bytes:
    """The same answer as a stream."""
    out: list[tuple[str, dict[str, Any]]] = [
        ("message_start", {"message": {**body, "content": [], "stop_reason": None}})
    ]
    for index, block in enumerate(body["content"]):
        opened = {**block, "text": ""} if block["type"] == "text" else block
        if block["type"] == "server_tool_use":
            opened = {**block, "input": {}}
        out.append(("content_block_start", {"index": index, "content_block": opened}))
        if block["type"] == "text":
            delta = {"type": "text_delta", "text": block["text"]}
            out.append(("content_block_delta", {"index": index, "delta": delta}))
        if block["type"] == "server_tool_use":
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            out.append(("content_block_delta", {"index": index, "delta": delta}))
        out.append(("content_block_stop", {"index": index}))
    ended = {"stop_reason": body["stop_reason"], "stop_sequence": None}
    out += [("message_delta", {"delta": ended, "usage": body["usage"]}), ("message_stop", {})]
    wire = b"".join(b"event: %b\ndata: %b\n\n" % (k.encode(), json.dumps({"type": k, **v}).encode()) for k, v in out)
    return STREAM + piece(wire) + b"0\r\n\r\n"


def text_of(protocol: str, wire: bytes, *, stream: bool) -> tuple[str, str, int | None]:
    if stream:
        folder = Folder()
        for event in events_of(protocol, wire):
            folder.add(event)
        response = folder.response()
    else:
        response = PROTOCOLS[protocol].decode_response(wire, Context())
    (candidate,) = response.candidates
    texts = [part.text for said in candidate.messages for part in said.parts if isinstance(part, Text)]
    assert candidate.stop is not None
    assert response.usage is not None
    return "".join(texts), candidate.stop.reason, response.usage.output_tokens


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("protocol", [name for name in PROTOCOL_NAMES if name != "anthropic"])
def test_an_answer_of_two_legs_is_one_answer(protocol: str, stream: bool) -> None:
    async def work() -> None:
        legs = [FIRST, LAST]
        script = Script(*(frames(one) if stream else whole("200 OK", json.dumps(one).encode()) for one in legs))
        async with upstream(script) as origin, running(in_front_of(origin, "anthropic")) as gateway:
            answer = await gateway.ask(protocol, stream=stream)
            text, stop, spent = text_of(protocol, await answer.read(100_000), stream=stream)
            assert text == "Let me look. It is sunny."
            assert stop == "end_turn"
            assert spent == 10
            first, second = script.bodies
            assert second["messages"][:-1] == first["messages"]
            assert second["messages"][-1]["role"] == "assistant"
            assert second["messages"][-1]["content"][1:] == [SEARCH, FOUND]
            assert {k: v for k, v in second.items() if k != "messages"} == {
                k: v for k, v in first.items() if k != "messages"
            }

    run(work())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_provider_that_only_pauses_is_not_asked_for_ever(stream: bool) -> None:
    async def work() -> None:
        script = Script(frames(FIRST) if stream else whole("200 OK", json.dumps(FIRST).encode()))
        more = "[limits]\npauses = 2"
        async with upstream(script) as origin, running(in_front_of(origin, "anthropic", more)) as gateway:
            answer = await gateway.ask("openai-chat", stream=stream)
            text, stop, _ = text_of("openai-chat", await answer.read(100_000), stream=stream)
            assert text == "Let me look. " * 3
            assert stop == "end_turn"
            assert len(script.asked) == 3

    run(work())


def test_a_client_that_knows_pauses_is_told() -> None:
    async def work() -> None:
        script = Script(whole("200 OK", json.dumps(FIRST).encode()), whole("200 OK", json.dumps(LAST).encode()))
        async with upstream(script) as origin, running(in_front_of(origin, "anthropic")) as gateway:
            path, body = question("anthropic")
            answer = await gateway.post(path, body)
            assert json.loads(await answer.read(100_000))["stop_reason"] == "pause_turn"
            assert len(script.asked) == 1

    run(work())
