"""Minimal valid bodies and streams of Gemini and Gemini Interactions."""

import json
from collections.abc import Sequence
from typing import Any

Body = dict[str, Any]

PARIS_ARGUMENTS: Body = {"city": "Paris"}
CITY_SCHEMA: Body = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
USER_CONTENT: Body = {"role": "user", "parts": [{"text": "Go on."}]}


def gemini_request(*contents: Body, **fields: Any) -> Body:
    return {"contents": list(contents or (USER_CONTENT,)), **fields}


def gemini_call(call_id: str | None = None, name: str = "get_weather", arguments: Any = None, **fields: Any) -> Body:
    issued = {} if call_id is None else {"id": call_id}
    return {
        "functionCall": {**issued, "name": name, "args": PARIS_ARGUMENTS if arguments is None else arguments},
        **fields,
    }


def gemini_result(call_id: str | None = None, output: Any = "18C", name: str = "get_weather") -> Body:
    issued = {} if call_id is None else {"id": call_id}
    return {"functionResponse": {**issued, "name": name, "response": {"output": output}}}


def gemini_turn(calls: Sequence[Body], results: Sequence[Body], **fields: Any) -> Body:
    model_turn, user_turn = {"role": "model", "parts": list(calls)}, {"role": "user", "parts": list(results)}
    return gemini_request(USER_CONTENT, model_turn, user_turn, **fields)


def gemini_tool(name: str = "get_weather", schema: Any = None, **fields: Any) -> Body:
    parameters = CITY_SCHEMA if schema is None else schema
    return {"name": name, "description": "Weather.", "parametersJsonSchema": parameters, **fields}


def gemini_response(*parts: Body, reason: str | None = "STOP", **fields: Any) -> Body:
    candidate: Body = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if reason is not None:
        candidate["finishReason"] = reason
    counted = {"promptTokenCount": 9, "candidatesTokenCount": 7, "totalTokenCount": 16}
    about = {"usageMetadata": counted, "modelVersion": "gemini-3-flash", "responseId": "r1"}
    return {"candidates": [candidate], **about, **fields}


def gemini_events(*chunks: Body) -> bytes:
    return b"".join(f"data: {json.dumps(chunk)}\r\n\r\n".encode() for chunk in chunks)


def gemini_stream(*parts: Body, reason: str = "STOP") -> bytes:
    """Return a stream with one chunk per part, then an empty text with the finish reason, as the server sends it."""
    chunks = [gemini_response(part, reason=None) for part in parts]
    return gemini_events(*chunks, gemini_response({"text": ""}, reason=reason))


def interactions_request(*steps: Body, **fields: Any) -> Body:
    return {"model": "gemini-3-flash", "input": list(steps or (interactions_input(),)), **fields}


def interactions_input(text: str = "Go on.") -> Body:
    return {"type": "user_input", "content": [{"type": "text", "text": text}]}


def interactions_text(text: str) -> Body:
    return {"type": "model_output", "content": [{"type": "text", "text": text}]}


def interactions_call(call_id: str, name: str = "get_weather", arguments: Any = None, **fields: Any) -> Body:
    call_arguments = PARIS_ARGUMENTS if arguments is None else arguments
    return {"type": "function_call", "id": call_id, "name": name, "arguments": call_arguments, **fields}


def interactions_result(call_id: str, result: Any = "18C", name: str = "get_weather", **fields: Any) -> Body:
    return {"type": "function_result", "call_id": call_id, "name": name, "result": result, **fields}


def interactions_turn(calls: Sequence[Body], results: Sequence[Body], **fields: Any) -> Body:
    return interactions_request(interactions_input(), *calls, *results, **fields)


def interactions_tool(name: str = "get_weather", schema: Any = None) -> Body:
    parameters = CITY_SCHEMA if schema is None else schema
    return {"type": "function", "name": name, "description": "Weather.", "parameters": parameters}


def interactions_response(*steps: Body, status: str | None = None, **fields: Any) -> Body:
    asks = any(step["type"] == "function_call" for step in steps)
    return {
        "id": "v1_1",
        "object": "interaction",
        "status": status or ("requires_action" if asks else "completed"),
        "model": "gemini-3-flash",
        "created": "2026-05-15T10:00:00Z",
        "updated": "2026-05-15T10:00:02Z",
        "steps": list(steps),
        "usage": {"total_tokens": 16, "total_input_tokens": 9, "total_output_tokens": 7},
        **fields,
    }


def interactions_events(*events: Body) -> bytes:
    return b"".join(f"event: {event['event_type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)


def interactions_stream(*steps: Body, status: str | None = None) -> bytes:
    interaction = interactions_response(*steps, status=status)
    start = {key: interaction[key] for key in ("id", "object", "model", "created")}
    end = {key: value for key, value in interaction.items() if key != "steps"}
    events: list[Body] = [
        {"event_type": "interaction.created", "interaction": {**start, "status": "in_progress"}},
    ]
    for index, step in enumerate(steps):
        events += _step_events(index, step)
    return interactions_events(*events, {"event_type": "interaction.completed", "interaction": end}) + (
        b"event: done\ndata: [DONE]\n\n"
    )


def _step_events(index: int, step: Body) -> list[Body]:
    started = {"event_type": "step.start", "index": index}
    if step["type"] == "function_call":
        start: Body = {**step, "arguments": {}}
        delta: Body = {"type": "arguments_delta", "arguments": json.dumps(step["arguments"])}
    elif step["type"] == "thought":
        start = {"type": "thought"}
        delta = {"type": "thought_summary", "content": step["summary"][0]}
    else:
        start, delta = {"type": "model_output"}, {"type": "text", "text": step["content"][0]["text"]}
    return [
        {**started, "step": start},
        {"event_type": "step.delta", "index": index, "delta": delta},
        {"event_type": "step.stop", "index": index},
    ]
