"""Validate OpenRouter requests, and list the extras that it shares with Chat.

Rules that OpenRouter enforces itself.

Rules of the chosen upstream only give warnings here.
"""

from msgspec.structs import replace

from toolwire.codec.validation import Finding, json_pointer, object_items, value_at, word_set
from toolwire.protocols.openai_chat import rules as chat
from toolwire.protocols.openai_chat.fields import SHARED_FIELDS as CHAT

_RESPONSE_FIELDS = CHAT["Response"] | word_set("alignment openrouter_metadata provider safeguard_results service_tier")
_CHOICE_FIELDS = word_set("logprobs native_finish_reason")
_MESSAGE_FIELDS = word_set("images reasoning reasoning_details")
SHARED_FIELDS = {
    "Request": word_set("cache_control debug deferred_tools image_config logit_bias min_p modalities models plugins")
    | word_set("prediction preset provider reasoning repetition_penalty route session_id stop_server_tools_when top_a")
    | word_set("trace transforms usage"),
    "Message": _MESSAGE_FIELDS,
    "MessageEnd": _MESSAGE_FIELDS,
    "Reasoning": word_set("type text signature summary data id format index"),
    "Text": word_set("cache_control"),
    "FunctionTool": word_set("cache_control defer_loading"),
    "Sampling": CHAT["Sampling"],
    "Response": _RESPONSE_FIELDS,
    "ResponseStart": _RESPONSE_FIELDS,
    "ResponseEnd": _RESPONSE_FIELDS,
    "Candidate": _CHOICE_FIELDS,
    "CandidateEnd": _CHOICE_FIELDS,
    "PartDelta": _CHOICE_FIELDS,
    "Notice": _CHOICE_FIELDS | {f"delta/{name}" for name in _MESSAGE_FIELDS},
    "Usage": CHAT["Usage"]
    | word_set("cost cost_details is_byok server_tool_use_details prompt_tokens_details/video_tokens")
    | word_set("server_tool_use_details/web_search_requests server_tool_use_details/tool_calls_requested")
    | word_set("server_tool_use_details/tool_calls_executed"),
}

_CHAT = "openai-chat."


def check_request(
    body: object, *, model: str | None = None, version: str | None = None, compatible: bool = False
) -> list[Finding]:
    """Check a request against Chat's rules, as warnings, and OpenRouter's own."""
    findings = [
        replace(finding, rule="openrouter." + finding.rule.removeprefix(_CHAT))
        for finding in chat.check_request(body, model=model, version=version, compatible=True)
    ]
    if not isinstance(body, dict):
        return findings
    efforts = (body.get("reasoning_effort"), value_at(body.get("reasoning"), "effort"))
    if None not in efforts and efforts[0] != efforts[1]:
        message = "reasoning_effort and reasoning.effort differ"
        findings.append(Finding("openrouter.effort-twice", "/reasoning_effort", message))
    if efforts[1] is not None and value_at(body.get("reasoning"), "max_tokens") is not None:
        message = "only one of reasoning.effort and reasoning.max_tokens can be specified"
        findings.append(Finding("openrouter.effort-and-budget", "/reasoning/max_tokens", message))
    for path, chat_message in object_items(body.get("messages"), ("messages",)):
        if chat_message.get("role") == "tool" and not isinstance(chat_message.get("tool_call_id"), str):
            pointer = json_pointer((*path, "tool_call_id"))
            findings.append(Finding("openrouter.tool-message-nameless", pointer, "a tool message needs a tool_call_id"))
    return findings
