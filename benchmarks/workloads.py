"""Bodies and streams for the benchmark: generated, and the same in every run."""

import json
import re
from typing import Any

import toolwire

TURNS = 100
TOOLS = 30
EVENTS = 300


def anthropic_request(turns: int = TURNS, *, arguments: int = 0) -> bytes:
    """Return an agent session: each turn has a remark, a call with a list of edits, and its result.

    100 turns and 30 tools are about 310 KB, mostly arguments and schemas, as in real sessions. `arguments` adds this
    many characters to each call.
    """
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Find out why the tests fail, and mend it."}]
    for turn in range(turns):
        call = f"toolu_01{turn:022d}"
        edits = [_edit(turn, number) for number in range(10)]
        call_input = {"file_path": f"/src/module_{turn}.py", "edits": edits, "note": "x" * arguments}
        output = "".join(f'{line:4d}: assert total({line}) == "{line * turn}"\n' for line in range(38))
        messages += [
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": f'Step {turn}: I look at "module_{turn}.py" next.\n'},
                    {"type": "tool_use", "id": call, "name": "tool_3", "input": call_input},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": output}]},
        ]
    body = {
        "model": "claude-opus-5-5",
        "max_tokens": 32_000,
        "system": [{"type": "text", "text": "You are a careful engineer. " * 60}],
        "tools": [_tool(number) for number in range(TOOLS)],
        "messages": messages,
    }
    return json.dumps(body, separators=(",", ":")).encode()


def long_texts_request(turns: int = TURNS) -> bytes:
    """Return the hard case: long strings and few objects, which orjson mostly copies."""
    body = json.loads(anthropic_request(turns))
    for message in body["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "tool_use":
                block["input"] = {"command": "grep -n 'def ' src/a.py\n" * 17, "timeout": 120_000}
    return json.dumps(body, separators=(",", ":")).encode()


def small_request() -> bytes:
    """Return the first turn of a chat: five tools and a question, about 2 KB."""
    string = {"type": "string", "description": "What to look for, in the words of the user."}
    schema = {
        "type": "object",
        "properties": {"query": string, "limit": {"type": "integer", "minimum": 1}},
        "required": ["query"],
    }
    tools = [
        {"name": f"search_{name}", "description": "Searches, and gives the best matches first.", "input_schema": schema}
        for name in ("files", "mail", "calendar", "web", "people")
    ]
    question = {"role": "user", "content": "Who wrote the report on the outage of last Tuesday, and where is it?"}
    body = {"model": "claude-opus-5-5", "max_tokens": 1024, "tools": tools, "messages": [question]}
    return json.dumps(body, separators=(",", ":")).encode()


def translated_request(protocol: str) -> bytes:
    """Return the same session in another protocol."""
    request = anthropic_request()
    return request if protocol == "anthropic" else toolwire.translate(request, "anthropic", protocol).to_bytes()


def translated_stream(protocol: str) -> bytes:
    """Return the same response as a stream of another protocol.

    Gemini sends a call in one event, so the text is longer instead.
    """
    stream = anthropic_stream(2 * EVENTS if protocol == "gemini" else EVENTS)
    if protocol == "anthropic":
        return stream
    return b"".join(toolwire.translate_stream([stream], "anthropic", protocol))


def _edit(turn: int, number: int) -> dict[str, Any]:
    location = {"start": turn * 10 + number, "end": turn * 10 + number + 2, "column": number}
    return {"range": location, "old": f"value_{number} = {number}", "new": f"value_{number} = {turn}", "all": False}


def _tool(number: int) -> dict[str, Any]:
    location = {"type": "object", "properties": {"start": {"type": "integer"}, "end": {"type": "integer"}}}
    properties: dict[str, Any] = {
        f"parameter_{index}": {
            "type": ["string", "null"],
            "enum": ["one", "two", None],
            "description": "What it is for.",
        }
        for index in range(8)
    }
    properties["edits"] = {
        "type": "array",
        "items": {"type": "object", "properties": {"range": location}},
        "minItems": 1,
    }
    schema = {"type": "object", "properties": properties, "required": ["parameter_0"], "additionalProperties": False}
    return {"name": f"tool_{number}", "description": "Does one thing, and does it well. " * 4, "input_schema": schema}


def anthropic_stream(events: int = EVENTS) -> bytes:
    """Return a streamed response: text in small deltas, then a call whose input has as many, and 8 other events."""
    half = (events - 8) // 2
    frames: list[dict[str, Any]] = [
        {
            "type": "message_start",
            "message": {
                "id": "msg_01",
                "type": "message",
                "role": "assistant",
                "model": "claude-opus-5-5",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {"input_tokens": 2000, "output_tokens": 1},
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": f" word{number}"}}
            for number in range(half)
        ),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "toolu_01", "name": "run", "input": {}},
        },
        *(_input_delta(fragment) for fragment in _fragments(half)),
        {"type": "content_block_stop", "index": 1},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {"output_tokens": 300},
        },
        {"type": "message_stop"},
    ]
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (frame["type"].encode(), json.dumps(frame, separators=(",", ":")).encode())
        for frame in frames
    )


def _fragments(count: int) -> list[str]:
    text = json.dumps({"command": "x" * (count * 8 - 15)})
    return [text[start : start + 8] for start in range(0, count * 8, 8)]


def _input_delta(fragment: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": fragment}}


def frames_of(stream: bytes) -> list[bytes]:
    """Return the JSON of each event."""
    return [line[6:] for line in stream.split(b"\n") if line.startswith(b"data: {")]


PROSE = """I looked at how the cache is filled, and the failure has a simple cause. When two requests for the same key
arrive at once, both miss, both compute the value, and the slower one overwrites the newer entry. The tests pass on a
quiet machine, since the first request has usually finished by then; under load they overlap for about 40 ms.

There are two ways to mend it. The first is a lock for each key: simple, but it needs a bound, or the table of locks
grows for ever. The second is to keep the pending computation itself in the table, so that a second caller waits for the
result of the first. I prefer the second: the entry is removed when the computation ends, even if it fails, so that the
next caller tries again. A caller that leaves does not cancel the others, and nothing changes for a single caller. In
the benchmark the difference is below 1 %. Shall I write it, with a test that lets both requests start before either may
finish? It would take two events, one for each of them, and a third one that lets the computation go on; then both
callers must get the same object, and the table of pending computations must be empty again."""
CODE = f"""{PROSE}

```python
async def fetch(self, key: str) -> Entry:
    pending = self._pending.get(key)
    if pending is None:
        pending = self._pending[key] = asyncio.ensure_future(self._load(key))
        pending.add_done_callback(lambda done: self._pending.pop(key))
    return await asyncio.shield(pending)
```
"""
"""The same with code, whose brackets may begin marks."""


def text_frames(protocol: str, text: str) -> list[bytes]:
    """Return the frames of a streamed answer with this text, a token in each."""
    tokens = re.findall(r" ?\w+|\s+|[^\w\s]", text)
    frames = []
    for number, token in enumerate(tokens):
        if protocol == "ollama":
            created = f"2026-01-01T00:00:{number // 50:02}.{number * 19_999_937 % 1_000_000_000:09}Z"
            message = {"role": "assistant", "content": token}
            frame = {"model": "qwen3:8b", "created_at": created, "message": message, "done": False}
            frames.append(json.dumps(frame, separators=(",", ":")).encode() + b"\n")
        else:
            delta = {"role": "assistant", "content": token} if not number else {"content": token}
            frames.append(_chat_frame({"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}))
    if protocol == "ollama":
        end = {
            "model": "qwen3:8b",
            "created_at": "2026-01-01T00:01:00Z",
            "message": {"role": "assistant", "content": ""},
        }
        counts = {"done_reason": "stop", "done": True, "prompt_eval_count": 26, "eval_count": len(tokens)}
        return [*frames, json.dumps(end | counts, separators=(",", ":")).encode() + b"\n"]
    return [*frames, _chat_frame({"index": 0, "delta": {}, "finish_reason": "stop"}), b"data: [DONE]\n\n"]


def _chat_frame(choice: dict[str, Any]) -> bytes:
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(chunk, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"
