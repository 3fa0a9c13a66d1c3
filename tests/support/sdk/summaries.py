"""Summaries of responses in one shape for every protocol, read from plain bodies without toolwire's code."""

import json
from collections.abc import Iterable
from typing import Any, TypedDict


class Call(TypedDict):
    id: str | None  # imitating servers leave it out
    name: str
    arguments: Any  # the parsed object of a function call; the raw text of a custom call or of broken JSON


class Summary(TypedDict):
    text: str
    refusal: str
    reasoning: str
    calls: list[Call]
    stop: str | None
    usage: dict[str, int]
    other_choices: list["Summary"]


# One vocabulary for the stop reasons of all vendors.
ANTHROPIC_STOPS = {
    "end_turn": "end_turn",
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "tool_use": "tool_use",
    "pause_turn": "paused",
    "refusal": "refusal",
    "model_context_window_exceeded": "context_window",
    "compaction": "compaction",
}
CHAT_STOPS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "filtered",
    "error": "error",  # compatible servers only
}
RESPONSES_INCOMPLETE = {
    "max_output_tokens": "max_tokens",
    "content_filter": "filtered",
    "max_messages": "max_messages",
    "steered": "steered",
}


def summary(protocol: str, body: dict[str, Any]) -> Summary:
    return _READERS[protocol](body)


def usage_of(protocol: str, usage: dict[str, Any] | None) -> dict[str, int]:
    """Return token counts: input includes cache reads and writes, output includes reasoning, missing counts are 0."""
    if not usage:
        return {}
    if protocol == "anthropic":
        cache_read = usage.get("cache_read_input_tokens") or 0
        cache_written = usage.get("cache_creation_input_tokens") or 0
        details = usage.get("output_tokens_details") or {}
        return {
            "input": usage["input_tokens"] + cache_read + cache_written,
            "output": usage["output_tokens"],
            "cache_read": cache_read,
            "cache_write": cache_written,
            "reasoning": details.get("thinking_tokens") or 0,
        }
    prompt, completion = ("prompt", "completion") if protocol == "openai-chat" else ("input", "output")
    input_details = usage.get(f"{prompt}_tokens_details") or {}
    output_details = usage.get(f"{completion}_tokens_details") or {}
    return {
        "input": usage[f"{prompt}_tokens"],
        "output": usage[f"{completion}_tokens"],
        "cache_read": input_details.get("cached_tokens") or 0,
        "cache_write": input_details.get("cache_write_tokens") or 0,
        "reasoning": output_details.get("reasoning_tokens") or 0,
    }


def _arguments(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _join(parts: Iterable[dict[str, Any]], type_: str, field: str) -> str:
    return "".join(part.get(field) or "" for part in parts if part.get("type") == type_)


def _anthropic(body: dict[str, Any]) -> Summary:
    blocks = body["content"]
    return {
        "text": _join(blocks, "text", "text"),
        "refusal": "",
        "reasoning": _join(blocks, "thinking", "thinking"),
        "calls": [
            {"id": block["id"], "name": block["name"], "arguments": block["input"]}
            for block in blocks
            if block["type"] == "tool_use"
        ],
        "stop": ANTHROPIC_STOPS.get(body["stop_reason"], body["stop_reason"]),
        "usage": usage_of("anthropic", body["usage"]),
        "other_choices": [],
    }


def _chat(body: dict[str, Any]) -> Summary:
    usage = usage_of("openai-chat", body.get("usage"))
    choices = [_chat_choice(choice, usage) for choice in sorted(body["choices"], key=lambda c: c["index"])]
    return {**choices[0], "other_choices": choices[1:]}


def _chat_choice(choice: dict[str, Any], usage: dict[str, int]) -> Summary:
    message = choice["message"]
    calls = [_chat_call(call) for call in message.get("tool_calls") or ()]
    if legacy := message.get("function_call"):
        calls.append({"id": "", "name": legacy["name"], "arguments": _arguments(legacy["arguments"])})
    refusal = message.get("refusal") or ""
    stop = CHAT_STOPS.get(choice["finish_reason"], choice["finish_reason"])
    if stop == "end_turn" and (calls or refusal):
        stop = "tool_use" if calls else "refusal"  # a forced call ends with `stop` too
    content = message.get("content") or ""
    reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
    if isinstance(content, list):  # Mistral
        thinking = [part for chunk in content for part in chunk.get("thinking") or ()]
        content, reasoning = _join(content, "text", "text"), _join(thinking, "text", "text")
    return {
        "text": content,
        "refusal": refusal,
        "reasoning": reasoning,
        "calls": calls,
        "stop": stop,
        "usage": usage,
        "other_choices": [],
    }


def _chat_call(call: dict[str, Any]) -> Call:
    if "custom" in call:
        return {"id": call.get("id"), "name": call["custom"]["name"], "arguments": call["custom"]["input"]}
    function = call["function"]
    return {"id": call.get("id"), "name": function["name"], "arguments": _arguments(function["arguments"])}


def _responses(body: dict[str, Any]) -> Summary:
    items = body["output"]
    parts = [part for item in items if item["type"] == "message" for part in item["content"]]
    thoughts = [item for item in items if item["type"] == "reasoning"]
    reasoning_parts = [part for item in thoughts for part in (*item["summary"], *(item.get("content") or ()))]
    refusal = _join(parts, "refusal", "refusal")
    return {
        "text": _join(parts, "output_text", "text"),
        "refusal": refusal,
        "reasoning": "".join(part["text"] for part in reasoning_parts),
        "calls": [_responses_call(item) for item in items if item["type"] in ("function_call", "custom_tool_call")],
        "stop": _responses_stop(body, items, refusal),
        "usage": usage_of("openai-responses", body.get("usage")),
        "other_choices": [],
    }


def _responses_call(item: dict[str, Any]) -> Call:
    arguments = item["input"] if item["type"] == "custom_tool_call" else _arguments(item["arguments"])
    return {"id": item["call_id"], "name": item["name"], "arguments": arguments}


def _responses_stop(body: dict[str, Any], items: list[dict[str, Any]], refusal: str) -> str | None:
    match body["status"]:
        case "completed":
            if any(_awaits_client(item, items) for item in items):
                return "tool_use"
            return "refusal" if refusal else "end_turn"
        case "incomplete":
            reason: str = body["incomplete_details"]["reason"]
            return RESPONSES_INCOMPLETE.get(reason, reason)
        case "failed":
            return "error"
        case status:
            return str(status)


def _awaits_client(item: dict[str, Any], items: list[dict[str, Any]]) -> bool:
    match item["type"]:
        case "function_call" | "custom_tool_call" | "computer_call" | "local_shell_call" | "apply_patch_call":
            return True
        case "mcp_approval_request":
            return True
        case "tool_search_call":
            return item.get("execution") == "client"
        case "shell_call":
            # A hosted shell returns results of its calls in the same output.
            answered = {output.get("call_id") for output in items if output["type"] == "shell_call_output"}
            return item["call_id"] not in answered
        case _:
            return False


_READERS = {"anthropic": _anthropic, "openai-chat": _chat, "openai-responses": _responses}
