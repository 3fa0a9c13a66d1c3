"""Calls and results of server-side tools in the format of each provider, in bodies and streams."""

import json
from typing import Any

import toolwire as tw
from tests.support.protocols import ANTHROPIC, RESPONSES

GEMINI, INTERACTIONS, OLLAMA, ROUTER = "gemini", "gemini-interactions", "ollama", "openrouter"

HOSTED_CALLS: dict[str, dict[str, list[dict[str, Any]]]] = {
    ANTHROPIC: {
        "web_search": [
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "Oslo"}},
            {
                "type": "web_search_tool_result",
                "tool_use_id": "srvtoolu_1",
                "content": [
                    {"type": "web_search_result", "url": "https://a.test", "title": "A", "encrypted_content": "E"}
                ],
            },
        ],
        "web_fetch": [
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_fetch", "input": {"url": "https://a.test"}},
            {
                "type": "web_fetch_tool_result",
                "tool_use_id": "srvtoolu_1",
                "content": {"type": "web_fetch_result", "url": "https://a.test"},
            },
        ],
        "code_execution": [
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {"code": "print(1)"}},
            {
                "type": "code_execution_tool_result",
                "tool_use_id": "srvtoolu_1",
                "content": {"type": "code_execution_result", "stdout": "1\n", "stderr": "", "return_code": 0},
            },
        ],
    },
    RESPONSES: {
        "web_search": [
            {
                "type": "web_search_call",
                "id": "ws_1",
                "status": "completed",
                "action": {
                    "type": "search",
                    "query": "Oslo",
                    "queries": ["Oslo"],
                    "sources": [{"type": "url", "url": "https://a.test"}],
                },
            }
        ],
        "web_fetch": [
            {
                "type": "web_search_call",
                "id": "ws_1",
                "status": "completed",
                "action": {"type": "open_page", "url": "https://a.test"},
            }
        ],
        "code_execution": [
            {
                "type": "code_interpreter_call",
                "id": "ci_1",
                "status": "completed",
                "container_id": "c",
                "code": "print(1)",
                "outputs": [{"type": "logs", "logs": "1\n"}],
            }
        ],
    },
    GEMINI: {
        "web_search": [
            {"toolCall": {"id": "a", "toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["Oslo"]}}},
            {"toolResponse": {"id": "a", "toolType": "GOOGLE_SEARCH_WEB", "response": {"search_suggestions": "<p>"}}},
        ],
        "web_fetch": [
            {"toolCall": {"id": "a", "toolType": "URL_CONTEXT", "args": {"urls": ["https://a.test"]}}},
            {"toolResponse": {"id": "a", "toolType": "URL_CONTEXT", "response": {}}},
        ],
        "code_execution": [
            {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}},
        ],
    },
    INTERACTIONS: {
        "web_search": [
            {"type": "google_search_call", "id": "a", "arguments": {"queries": ["Oslo"]}},
            {"type": "google_search_result", "call_id": "a", "result": [{"search_suggestions": "<p>"}]},
        ],
        "web_fetch": [
            {"type": "url_context_call", "id": "a", "arguments": {"urls": ["https://a.test"]}},
            {"type": "url_context_result", "call_id": "a", "result": [{"url": "https://a.test", "status": "success"}]},
        ],
        "code_execution": [
            {"type": "code_execution_call", "id": "a", "arguments": {"language": "python", "code": "print(1)"}},
            {"type": "code_execution_result", "call_id": "a", "result": "1\n"},
        ],
    },
}
HOSTED_ARGUMENTS = {
    "web_search": {"query": "Oslo"},
    "web_fetch": {"url": "https://a.test"},
    "code_execution": {"code": "print(1)"},
}
HOSTED_CASES = [(source, kind) for source, kinds in HOSTED_CALLS.items() for kind in kinds]


def response_with_blocks(protocol: str, blocks: list[Any]) -> dict[str, Any]:
    match protocol:
        case "anthropic":
            about = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
            usage = {"input_tokens": 1, "output_tokens": 1}
            return {**about, "content": blocks, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}
        case "openai-responses":
            return {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "output": blocks}
        case "gemini":
            return {"candidates": [{"content": {"role": "model", "parts": blocks}, "finishReason": "STOP", "index": 0}]}
        case _:
            return {"id": "i", "status": "completed", "steps": blocks}


def translate_hosted_stream(source: str, blocks: list[Any], target: str) -> bytes:
    """Encode a response as a stream of its protocol and translate it."""
    events: list[dict[str, Any]]
    match source:
        case "gemini":
            events = [response_with_blocks(source, [block]) for block in blocks]
            for event in events[:-1]:
                del event["candidates"][0]["finishReason"]
        case "openai-responses":
            events = [
                {"type": "response.created", "response": {**response_with_blocks(source, []), "status": "in_progress"}}
            ]
            for index, item in enumerate(blocks):
                started = {**item, "status": "in_progress"}
                events.append({"type": "response.output_item.added", "output_index": index, "item": started})
                events.append({"type": "response.output_item.done", "output_index": index, "item": item})
            events.append({"type": "response.completed", "response": response_with_blocks(source, blocks)})
        case "gemini-interactions":
            head = {"id": "i", "status": "in_progress", "object": "interaction", "model": "m"}
            events = [{"event_type": "interaction.created", "interaction": head}]
            for index, step in enumerate(blocks):
                hollow = {**step, **({"arguments": {}} if "arguments" in step else {"result": step["result"][:0]})}
                delta = {name: value for name, value in step.items() if name not in ("id", "call_id")}
                events.append({"event_type": "step.start", "index": index, "step": hollow})
                events.append({"event_type": "step.delta", "index": index, "delta": delta})
                events.append({"event_type": "step.stop", "index": index})
            events.append({"event_type": "interaction.completed", "interaction": {**head, "status": "completed"}})
        case _:
            events = [{"type": "message_start", "message": {**response_with_blocks(source, []), "stop_reason": None}}]
            for index, block in enumerate(blocks):
                hollow = {**block, "input": {}} if "input" in block else block
                events.append({"type": "content_block_start", "index": index, "content_block": hollow})
                if "input" in block:
                    delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
                    events.append({"type": "content_block_delta", "index": index, "delta": delta})
                events.append({"type": "content_block_stop", "index": index})
            delta = {"stop_reason": "end_turn", "stop_sequence": None}
            events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 1}})
            events.append({"type": "message_stop"})
    wire = [
        f"event: {event.get('type', event.get('event_type', ''))}\ndata: {json.dumps(event)}\n\n".encode()
        for event in events
    ]
    if source == GEMINI:
        wire = [b"data: " + json.dumps(event).encode() + b"\r\n\r\n" for event in events]
    return b"".join(tw.translate_stream(wire, source, target))
