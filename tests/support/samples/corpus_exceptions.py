"""Differences between recorded traffic and the current SDK types.

Providers accepted or sent these bodies, but the types reject them. Every rule states what was recorded and adds or
removes only that, so that the rest of the body is still checked. The laws do not use this module: output of toolwire
must satisfy the types as they are.
"""

import copy
import itertools
import json
from collections.abc import Callable
from typing import Any

Node = dict[str, Any]


def with_current_fields(protocol: str, body: Any) -> Any:
    """Return a copy of a recorded body without the known differences."""
    levelled = copy.deepcopy(body)
    _apply_rules(levelled, RULES[protocol])
    return levelled


def stream_with_current_fields(protocol: str, wire: str) -> bytes:
    """Apply the same rules to every event of a recorded stream."""
    if not RULES[protocol]:
        return wire.encode()
    lines = []
    numbers = itertools.count()
    for line in wire.splitlines():
        if not line.startswith("data:") or line.endswith("[DONE]"):
            lines.append(line)
            continue
        event = with_current_fields(protocol, json.loads(line[5:]))
        if protocol == "openai-responses":
            # Early versions of the protocol had no sequence numbers.
            event.setdefault("sequence_number", next(numbers))
        lines.append(f"data: {json.dumps(event)}")
    return "\n".join([*lines, "", ""]).encode()


def _apply_rules(value: Any, rules: tuple[Callable[[Node], None], ...]) -> None:
    if isinstance(value, dict):
        for rule in rules:
            rule(value)
        for child in value.values():
            _apply_rules(child, rules)
    elif isinstance(value, list):
        for child in value:
            _apply_rules(child, rules)


def _add_web_fetch_count(node: Node) -> None:
    """Add the count of web fetches, which older responses lack."""
    if "web_search_requests" in node:
        node.setdefault("web_fetch_requests", 0)


def _remove_abort_reason(node: Node) -> None:
    """Remove `abort_reason` from early code execution results; the types never had it."""
    if node.get("type") == "code_execution_result":
        node.pop("abort_reason", None)


def _add_strict(node: Node) -> None:
    """Add `strict`, which the type requires and clients leave to the server's default."""
    if node.get("type") == "function" and "parameters" in node:
        node.setdefault("strict", None)


def _add_image_detail(node: Node) -> None:
    """Add `detail`, which the type requires; the server assumes `auto`."""
    if node.get("type") == "input_image":
        node.setdefault("detail", "auto")


def _add_message_identity(node: Node) -> None:
    """Add id, status and annotations to assistant messages that clients echo without them."""
    content = node.get("content")
    if node.get("role") == "assistant" and isinstance(content, list):
        node.setdefault("type", "message")
        node.setdefault("id", "msg_left_out")
        node.setdefault("status", "completed")
        for part in content:
            if part.get("type") == "output_text":
                part.setdefault("annotations", [])


def _add_hosted_call_outcome(node: Node) -> None:
    """Add the outcome of a stored image or code call that clients echo without it."""
    if node.get("type") == "image_generation_call":
        node.setdefault("result", None)
        node.setdefault("status", "completed")
    if node.get("type") == "code_interpreter_call":
        node.setdefault("outputs", None)


def _remove_call_status(node: Node) -> None:
    """Remove a null status, and the status of a custom call, which the input type lacks."""
    if node.get("type") == "function_call" and node.get("status", "") is None:
        del node["status"]
    if node.get("type") == "custom_tool_call":
        node.pop("status", None)


def _add_cache_write_tokens(node: Node) -> None:
    """Add `cache_write_tokens`, which the type requires since 2026."""
    details = node.get("input_tokens_details")
    if isinstance(details, dict):
        details.setdefault("cache_write_tokens", 0)


def _add_tool_settings(node: Node) -> None:
    """Add the echoed tool settings that some recorded responses lack."""
    if node.get("object") == "response":
        node.setdefault("tools", [])
        node.setdefault("tool_choice", "auto")
        node.setdefault("parallel_tool_calls", True)


def _add_logprobs(node: Node) -> None:
    """Add `logprobs`, which text events require in later versions."""
    if node.get("type") in ("response.output_text.delta", "response.output_text.done"):
        node.setdefault("logprobs", [])


def _normalize_web_search(node: Node) -> None:
    """Add the `action` of a search in progress, and replace vendor feeds (`api`) among the sources."""
    if node.get("type") == "web_search_call":
        action = node.setdefault("action", {"type": "search", "query": ""})
        if "sources" in action:
            action["sources"] = [source for source in action["sources"] or () if source["type"] == "url"]


def _wrap_single_tool(node: Node) -> None:
    """Wrap a single tool, which the API accepts in place of a list."""
    if isinstance(node.get("tools"), dict):
        node["tools"] = [node["tools"]]


def _name_enumerations(node: Node) -> None:
    """Replace numbers of enumerations, which an older client sent, by names."""
    for name in [name for name in ENUMERATIONS if isinstance(node.get(name), int)]:
        node[name] = ENUMERATIONS[name]


def _add_system_fingerprint(node: Node) -> None:
    """Add the fingerprint that OpenRouter's type requires; most of its providers send none."""
    if node.get("object") == "chat.completion":
        node.setdefault("system_fingerprint", None)


def _add_arguments(node: Node) -> None:
    """Add empty arguments, which one of OpenRouter's providers omits."""
    if "id" in node and "name" in (node.get("function") or {}):
        node["function"].setdefault("arguments", "")


def _add_cost_parts(node: Node) -> None:
    """Add the parts of the cost, which early responses reported only as a total."""
    if isinstance(costs := node.get("cost_details"), dict):
        costs.setdefault("upstream_inference_prompt_cost", 0)
        costs.setdefault("upstream_inference_completions_cost", 0)


def _remove_image_cache_control(node: Node) -> None:
    """Remove cache marks on images; the types allow them on text only."""
    if node.get("type") == "image_url":
        node.pop("cache_control", None)


# Any name will do: the mapping of numbers to names does not matter here.
ENUMERATIONS = {
    "type": "STRING",
    "mode": "ANY",
    "category": "HARM_CATEGORY_HARASSMENT",
    "probability": "NEGLIGIBLE",
    "severity": "HARM_SEVERITY_NEGLIGIBLE",
    "finishReason": "STOP",
    "modality": "TEXT",
    "trafficType": "ON_DEMAND",
    "threshold": "BLOCK_NONE",
}

RULES: dict[str, tuple[Callable[[Node], None], ...]] = {
    "anthropic": (_add_web_fetch_count, _remove_abort_reason),
    "openai-chat": (),
    "openai-responses": (
        _add_strict,
        _add_image_detail,
        _add_message_identity,
        _add_hosted_call_outcome,
        _remove_call_status,
        _add_cache_write_tokens,
        _add_tool_settings,
        _add_logprobs,
        _normalize_web_search,
    ),
    "gemini": (_wrap_single_tool, _name_enumerations),
    "gemini-interactions": (),
    "ollama": (),
    "openrouter": (_add_system_fingerprint, _add_arguments, _add_cost_parts, _remove_image_cache_control),
}

# Recordings that differ as a whole: prefix of the id, and reason.
EXCEPTIONS = {
    "llm/test_tools_streaming/test_tools_streaming_variant_a#0": "a provider that never says why it ended",
    "llm/test_tools_streaming/test_tools_streaming_variant_b#0": "a provider that never says why it ended",
    "pai/models/test_openrouter/test_openrouter_stream_error#0": "an error in the middle of the stream",
    "lc/partners/openai/TestChatOpenAICodexStandard.test_stop_sequence#1": "a 401 of the sign-in proxy, not the API",
    "lc/partners/openai/test_apply_patch#1": "apply_patch_call_operation_diff events, which the types don't have",
    "pai/models/test_openai_responses/test_background_mode_streaming_starting_after_vcr#1": "resumed half-way",
    "pai/models/test_openai_responses/test_openai_previous_response_id": 'written by hand: status "complete"',
    "pai/models/test_openai_responses/test_openai_responses_verbosity": 'written by hand: status "complete"',
    "pai/models/test_openai_responses/test_openai_responses_model_mcp_list_tools_stream_backfills": (
        "tool listings in the final output that were never streamed"
    ),
}


def exception_for(identity: str) -> bool:
    return any(identity.startswith(prefix) for prefix in EXCEPTIONS)
