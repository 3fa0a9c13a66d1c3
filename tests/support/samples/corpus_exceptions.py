"""Where recorded truth and today's SDK types differ: the providers took or gave it, the types would not.

Every rule says what was recorded and fills in, or takes out, just that, so that the rest of the body is still
checked. The laws don't need this file: what toolwire itself writes must satisfy the types as they are.
"""

import copy
import itertools
import json
from collections.abc import Callable
from typing import Any

Node = dict[str, Any]


def with_current_fields(protocol: str, body: Any) -> Any:
    """A copy of a recorded body in which the known differences are levelled."""
    levelled = copy.deepcopy(body)
    _apply_rules(levelled, RULES[protocol])
    return levelled


def stream_with_current_fields(protocol: str, wire: str) -> bytes:
    """The same for every event of a recorded stream."""
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
            # The first months of the protocol had no sequence numbers.
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
    """Answers from before web fetch count searches only."""
    if "web_search_requests" in node:
        node.setdefault("web_fetch_requests", 0)


def _remove_abort_reason(node: Node) -> None:
    """`abort_reason` was in the first code execution results and is echoed by clients; the types never had it."""
    if node.get("type") == "code_execution_result":
        node.pop("abort_reason", None)


def _add_strict(node: Node) -> None:
    """The type requires `strict` on a function tool; clients leave it to the server's default."""
    if node.get("type") == "function" and "parameters" in node:
        node.setdefault("strict", None)


def _add_image_detail(node: Node) -> None:
    """The type requires `detail` on an input image; the server takes `auto` for granted."""
    if node.get("type") == "input_image":
        node.setdefault("detail", "auto")


def _add_message_identity(node: Node) -> None:
    """Clients echo an assistant message by its parts alone; the type wants id, status and annotations."""
    content = node.get("content")
    if node.get("role") == "assistant" and isinstance(content, list):
        node.setdefault("type", "message")
        node.setdefault("id", "msg_left_out")
        node.setdefault("status", "completed")
        for part in content:
            if part.get("type") == "output_text":
                part.setdefault("annotations", [])


def _add_hosted_call_outcome(node: Node) -> None:
    """A stored image or code call is echoed without what it gave."""
    if node.get("type") == "image_generation_call":
        node.setdefault("result", None)
        node.setdefault("status", "completed")
    if node.get("type") == "code_interpreter_call":
        node.setdefault("outputs", None)


def _remove_call_status(node: Node) -> None:
    """The server takes a null status, and one on a custom call, which the input type doesn't have."""
    if node.get("type") == "function_call" and node.get("status", "") is None:
        del node["status"]
    if node.get("type") == "custom_tool_call":
        node.pop("status", None)


def _add_cache_write_tokens(node: Node) -> None:
    """`cache_write_tokens` came in 2026; the type requires it."""
    details = node.get("input_tokens_details")
    if isinstance(details, dict):
        details.setdefault("cache_write_tokens", 0)


def _add_tool_settings(node: Node) -> None:
    """Some recorded responses lack the echo of the tool settings."""
    if node.get("object") == "response":
        node.setdefault("tools", [])
        node.setdefault("tool_choice", "auto")
        node.setdefault("parallel_tool_calls", True)


def _add_logprobs(node: Node) -> None:
    """`logprobs` joined the text events later, as a required list."""
    if node.get("type") in ("response.output_text.delta", "response.output_text.done"):
        node.setdefault("logprobs", [])


def _normalize_web_search(node: Node) -> None:
    """`action` is unknown while the search is in progress, and sources can be vendor feeds (`api`), not only urls."""
    if node.get("type") == "web_search_call":
        action = node.setdefault("action", {"type": "search", "query": ""})
        if "sources" in action:
            action["sources"] = [source for source in action["sources"] or () if source["type"] == "url"]


def _wrap_single_tool(node: Node) -> None:
    """The API takes one tool in place of the list."""
    if isinstance(node.get("tools"), dict):
        node["tools"] = [node["tools"]]


def _name_enumerations(node: Node) -> None:
    """An older client wrote the numbers of enumerations, and asked for them; the API takes both."""
    for name in [name for name in ENUMERATIONS if isinstance(node.get(name), int)]:
        node[name] = ENUMERATIONS[name]


def _add_system_fingerprint(node: Node) -> None:
    """OpenRouter's type requires it; most of its providers have none."""
    if node.get("object") == "chat.completion":
        node.setdefault("system_fingerprint", None)


def _add_arguments(node: Node) -> None:
    """One of OpenRouter's providers leaves out arguments where there are none."""
    if "id" in node and "name" in (node.get("function") or {}):
        node["function"].setdefault("arguments", "")


def _add_cost_parts(node: Node) -> None:
    """Only the whole cost was told at first; the type wants its parts, too."""
    if isinstance(costs := node.get("cost_details"), dict):
        costs.setdefault("upstream_inference_prompt_cost", 0)
        costs.setdefault("upstream_inference_completions_cost", 0)


def _remove_image_cache_control(node: Node) -> None:
    """A cache mark on an image is passed on, though only text has one in the types."""
    if node.get("type") == "image_url":
        node.pop("cache_control", None)


# Any word will do: which number means which is the API's business.
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

# Recordings that differ as a whole: the start of their id, and why.
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
