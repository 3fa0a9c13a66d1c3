"""Computer-use conversations in the format of each vendor, with screenshots of a known size."""

import base64
import json
import struct
import zlib
from typing import Any

from tests.support.protocols import ANTHROPIC, CHAT, GEMINI, INTERACTIONS, RESPONSES

WIDTH, HEIGHT = 1280, 800


def white_png(width: int = WIDTH, height: int = HEIGHT) -> str:
    """Return a white PNG of this size as base64."""
    row = b"\0" + b"\xff" * ((width + 7) // 8)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    parts = [chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(row * height)), chunk(b"IEND", b"")]
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(parts)).decode()


SCREENSHOT_BASE64 = white_png()
IMAGE_BLOCK = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": SCREENSHOT_BASE64}}
INLINE_DATA_PART = {"inlineData": {"mimeType": "image/png", "data": SCREENSHOT_BASE64}}
INTERACTIONS_IMAGE = {"type": "image", "data": SCREENSHOT_BASE64, "mime_type": "image/png"}
COMPUTER_SCREENSHOT = {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{SCREENSHOT_BASE64}"}
COMPUTER_TOOL = {
    "type": "computer_20251124",
    "name": "computer",
    "display_width_px": WIDTH,
    "display_height_px": HEIGHT,
}
SAFETY_DECISION = {"decision": "require_confirmation", "explanation": "It buys something."}
PENDING_SAFETY_CHECK = {"id": "sc_1", "code": "irreversible", "message": "It buys something."}

COMPUTER_PROTOCOLS = (ANTHROPIC, RESPONSES, GEMINI, INTERACTIONS)


def computer_request(protocol: str, *history: Any, tool: Any = None) -> dict[str, Any]:
    """Return a first computer-use request, followed by the given history. It includes a screenshot."""
    match protocol:
        case "anthropic":
            first = {"role": "user", "content": [{"type": "text", "text": "Go"}, IMAGE_BLOCK]}
            body: dict[str, Any] = {"model": "claude-opus-4-8", "max_tokens": 99, "messages": [first, *history]}
            return body | {"tools": [tool or COMPUTER_TOOL]}
        case "openai-responses":
            url = COMPUTER_SCREENSHOT["image_url"]
            content = [{"type": "input_text", "text": "Go"}, {"type": "input_image", "image_url": url}]
            first = {"role": "user", "content": content}
            return {"model": "gpt-5.5", "input": [first, *history], "tools": [tool or {"type": "computer"}]}
        case "gemini":
            first = {"role": "user", "parts": [{"text": "Go"}, INLINE_DATA_PART]}
            declared_tool = tool or {"computerUse": {"environment": "ENVIRONMENT_BROWSER"}}
            return {"contents": [first, *history], "tools": [declared_tool]}
        case _:
            first = {"type": "user_input", "content": [{"type": "text", "text": "Go"}, INTERACTIONS_IMAGE]}
            declared_tool = tool or {"type": "computer_use", "environment": "browser"}
            return {"model": "gemini-3.8-flash", "input": [first, *history], "tools": [declared_tool]}


def computer_response(protocol: str, *calls: Any) -> dict[str, Any]:
    """Return a response with these calls, output items or parts."""
    match protocol:
        case "anthropic":
            usage = {"input_tokens": 9, "output_tokens": 7}
            head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
            return head | {"content": list(calls), "stop_reason": "tool_use", "stop_sequence": None, "usage": usage}
        case "openai-responses":
            head = {"id": "resp_1", "object": "response", "status": "completed", "model": "m"}
            return head | {"created_at": 1, "output": list(calls)}
        case "gemini":
            content = {"role": "model", "parts": list(calls)}
            return {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "responseId": "r"}
        case "openai-chat":
            message = {"role": "assistant", "content": None, "tool_calls": list(calls)}
            choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
            return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        case _:
            head = {"id": "v1_1", "object": "interaction", "status": "requires_action", "model": "m"}
            return head | {"created": "2026-05-15T10:00:00Z", "steps": list(calls)}


def tool_use(id: str, name: str, toolset: str | None = None, **members: Any) -> dict[str, Any]:
    if toolset is None:
        return {"type": "tool_use", "id": id, "name": "computer", "input": {"action": name, **members}}
    return {"type": "tool_use", "id": id, "name": name, "input": members, "toolset_name": toolset}


def computer_call(id: str, *actions: Any, pending: Any = ()) -> dict[str, Any]:
    item = {"type": "computer_call", "id": f"cu_{id}", "call_id": id, "status": "completed"}
    return item | {"pending_safety_checks": list(pending), "actions": list(actions)}


def function_call(id: str, name: str, **args: Any) -> dict[str, Any]:
    return {"functionCall": {"id": id, "name": name, "args": args}}


def interactions_step(id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "function_call", "id": id, "name": name, "arguments": arguments}


def chat_computer_call(id: str, *actions: Any) -> dict[str, Any]:
    function = {"name": "computer", "arguments": json.dumps({"actions": actions}, separators=(",", ":"))}
    return {"id": id, "type": "function", "function": function}


CLICK: dict[str, Any] = {"type": "click", "button": "left", "x": 640, "y": 400}
TYPE_TEXT: dict[str, Any] = {"type": "type", "text": "Oslo"}
PRESS_ENTER: dict[str, Any] = {"type": "keypress", "keys": ["ENTER"]}

# The same actions in each format: a click in the middle, then text and the Enter key.
COMPUTER_CALLS: dict[str, list[Any]] = {
    ANTHROPIC: [
        tool_use("a1", "left_click", "computer", coordinate=[640, 400]),
        tool_use("a2", "type", "computer", text="Oslo"),
        tool_use("a3", "key", "computer", text="Return"),
    ],
    RESPONSES: [computer_call("call_1", CLICK, TYPE_TEXT, PRESS_ENTER)],
    GEMINI: [function_call("f1", "click", x=500, y=500), function_call("f2", "type", text="Oslo", press_enter=True)],
    INTERACTIONS: [
        interactions_step("s1", "click", x=500, y=500),
        interactions_step("s2", "type", text="Oslo", press_enter=True),
    ],
    CHAT: [
        chat_computer_call(
            "call_1",
            {"kind": "click", "x": 640, "y": 400},
            {"kind": "type", "text": "Oslo"},
            {"kind": "keys", "keys": ["Enter"]},
        )
    ],
}


def computer_calls_in(protocol: str, body: dict[str, Any]) -> list[Any]:
    """Return the raw computer calls of a response."""
    match protocol:
        case "anthropic":
            return [block for block in body["content"] if block["type"] == "tool_use"]
        case "openai-responses":
            return [item for item in body["output"] if item["type"].endswith("_call")]
        case "gemini":
            return [part for part in body["candidates"][0]["content"]["parts"] if "functionCall" in part]
        case _:
            return [step for step in body["steps"] if step["type"] == "function_call"]


def response_parts(protocol: str, body: dict[str, Any]) -> list[Any]:
    """Return all parts of a response that a client sends back, including thinking."""
    match protocol:
        case "anthropic":
            return list(body["content"])
        case "openai-responses":
            return list(body["output"])
        case "gemini":
            return list(body["candidates"][0]["content"]["parts"])
        case _:
            return list(body["steps"])


def computer_turn(protocol: str, calls: list[Any], parts: list[Any] | None = None, **more: Any) -> list[Any]:
    """Return the turn that a client appends: the response parts, or only the calls, and a screenshot for each."""
    parts = calls if parts is None else parts
    match protocol:
        case "anthropic":
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": call["id"],
                    "content": [IMAGE_BLOCK],
                    **({"toolset_name": call["toolset_name"]} if "toolset_name" in call else {}),
                }
                for call in calls
            ]
            return [{"role": "assistant", "content": parts}, {"role": "user", "content": results}]
        case "openai-responses":
            outputs = [
                {"type": "computer_call_output", "call_id": call["call_id"], "output": COMPUTER_SCREENSHOT}
                for call in calls
            ]
            return [*parts, *(output | more for output in outputs)]
        case "gemini":
            head = [call["functionCall"] for call in calls]
            responses = [
                {
                    "functionResponse": _id_and_name(call)
                    | {"response": {"url": "http://a/"} | more, "parts": [INLINE_DATA_PART]}
                }
                for call in head
            ]
            return [{"role": "model", "parts": parts}, {"role": "user", "parts": responses}]
        case _:
            result = json.dumps({"url": "http://a/"} | more)
            results = [
                {
                    "type": "function_result",
                    "call_id": call["id"],
                    "name": call["name"],
                    "result": [{"type": "text", "text": result}, INTERACTIONS_IMAGE],
                }
                for call in calls
            ]
            return [*parts, *results]


def _id_and_name(call: dict[str, Any]) -> dict[str, Any]:
    return {name: call[name] for name in ("id", "name") if name in call}
