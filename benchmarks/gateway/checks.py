"""Complete checks of samples: responses as clients parse them, and requests as the upstream received them.

Load generator and upstream check every exchange by its markers; these checks compare all of its content.
"""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.gateway.agents import NONCE, Agent, Call, Turn, chat_answer, chat_messages, to_json
from benchmarks.gateway.traffic import Traffic

Summary = tuple[str, list[tuple[str, str, Any]], str]
"""A response in any protocol: its text, its calls (id, name, input), and the reason of its end."""

_REASONS = {"tool_use": "tool_calls", "end_turn": "stop"}


class Difference(Exception):
    """A response or request differs from what was drawn."""


def check_samples(path: Path, traffic: Traffic) -> int:
    """Return the number of sampled responses, all of which are correct."""
    data, position, count = path.read_bytes(), 0, 0
    while position < len(data):
        number, nonce, length = struct.unpack_from("<I8sI", data, position)
        position += 16
        body = data[position : position + length]
        position += length
        agent, index = traffic.expected[number]
        expected, received = _expected(agent.turns[index], nonce.decode()), _summarize(body)
        if received != expected:
            raise Difference(f"a response differs: {_first_difference(repr(received), repr(expected))}")
        count += 1
    return count


def _expected(turn: Turn, nonce: str) -> Summary:
    def fill(value: Any) -> Any:
        return json.loads(to_json(value).replace(NONCE, nonce))

    calls = [(fill(call.id), call.name, fill(call.input)) for call in turn.calls]
    return fill(turn.text), calls, "tool_calls" if calls else "stop"


def _summarize(body: bytes) -> Summary:
    if body.startswith((b"event:", b"data:", b":")):
        events = list(_events(body))
        return _summarize_anthropic(events) if b"message_stop" in body else _summarize_chat(events)
    value = json.loads(body)
    if "choices" not in value:
        text = "".join(block["text"] for block in value["content"] if block["type"] == "text")
        uses = [block for block in value["content"] if block["type"] == "tool_use"]
        return text, [(use["id"], use["name"], use["input"]) for use in uses], _REASONS[value["stop_reason"]]
    (choice,) = value["choices"]
    message = choice["message"]
    calls = [(call["id"], call["function"]) for call in message.get("tool_calls") or ()]
    parsed = [(id, function["name"], json.loads(function["arguments"])) for id, function in calls]
    return message["content"] or "", parsed, choice["finish_reason"]


def _events(body: bytes) -> Iterator[Any]:
    return (json.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: {"))


def _summarize_anthropic(events: list[Any]) -> Summary:
    text, reason = "", ""
    calls: list[list[str]] = []
    for event in events:
        match event["type"]:
            case "content_block_start" if event["content_block"]["type"] == "tool_use":
                calls.append([event["content_block"]["id"], event["content_block"]["name"], ""])
            case "content_block_delta" if event["delta"]["type"] == "text_delta":
                text += event["delta"]["text"]
            case "content_block_delta" if event["delta"]["type"] == "input_json_delta":
                calls[-1][2] += event["delta"]["partial_json"]
            case "message_delta":
                reason = _REASONS[event["delta"]["stop_reason"]]
            case _:
                pass
    return text, [(id, name, json.loads(arguments)) for id, name, arguments in calls], reason


def _summarize_chat(events: list[Any]) -> Summary:
    text, reason = "", ""
    calls: list[list[str]] = []
    for choice in (choice for event in events for choice in event["choices"]):
        delta = choice["delta"]
        text += delta.get("content") or ""
        for fragment in delta.get("tool_calls") or ():
            if fragment.get("id"):
                calls.append([fragment["id"], fragment["function"]["name"], ""])
            calls[fragment["index"]][2] += fragment["function"].get("arguments") or ""
        reason = choice.get("finish_reason") or reason
    return text, [(id, name, json.loads(arguments)) for id, name, arguments in calls], reason


# ---- requests


def check_request(body: bytes, traffic: Traffic) -> None:
    """Compare a Chat request with the conversation that it was made from."""
    start = body.rfind(b"~u")
    nonce, number = body[start + 2 : start + 10].decode(), int(body[start + 10 : start + 16], 16)
    agent, index = traffic.expected[number]
    request = json.loads(body)
    functions = [tool["function"] for tool in request["tools"]]
    _require(
        [(function["name"], function["description"]) for function in functions],
        [(tool["name"], tool["description"]) for tool in agent.tools],
    )
    system, *messages = request["messages"]
    if system["role"] != "system" or _text(agent.system) not in _text(system["content"]):
        raise Difference("a request lost its system message")
    expected = json.loads(to_json(_expected_messages(agent, index)).replace(NONCE, nonce))
    _require(_summarize_messages(messages), _summarize_messages(expected))


def _expected_messages(agent: Agent, index: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    calls: list[Call] = []
    for turn in agent.turns[: index + 1]:
        messages += [*chat_messages(turn, calls), chat_answer(turn)]
        calls = turn.calls
    return messages[:-1]


def _summarize_messages(messages: list[dict[str, Any]]) -> list[Any]:
    """Return messages with numbered call ids: a gateway may shorten ids that the target rejects, but each one alike."""
    numbers: dict[str | None, int] = {None: 0}
    summaries = []
    for message in messages:
        calls = [
            (
                numbers.setdefault(call["id"], len(numbers)),
                call["function"]["name"],
                json.loads(call["function"]["arguments"]),
            )
            for call in message.get("tool_calls") or ()
        ]
        result_of = numbers.get(message.get("tool_call_id"))
        summaries.append((message["role"], result_of, _text(message["content"]), calls))
    return summaries


def _text(content: Any) -> str:
    """Return a text without white space: texts of several blocks are joined in more than one way.

    Chat has no field for failed results, so the gateway writes it before the text.
    """
    text = content if isinstance(content, str) else "".join(part["text"] for part in content or ())
    return "".join(text.removeprefix("[tool error]").split())


def _require(received: list[Any], expected: list[Any]) -> None:
    if received != expected:
        raise Difference(f"a request differs: {_first_difference(repr(received), repr(expected))}")


def _first_difference(received: str, expected: str) -> str:
    pairs = zip(received, expected, strict=False)
    common = next(
        (index for index, (left, right) in enumerate(pairs) if left != right), min(len(received), len(expected))
    )
    start = max(0, common - 60)
    return f"received ...{received[start : common + 60]}, expected ...{expected[start : common + 60]}"
