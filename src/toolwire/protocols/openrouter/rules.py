"""Rules that OpenRouter enforces itself.

Rules of the chosen upstream only give warnings here.
"""

from msgspec.structs import replace

from toolwire.codec.validation import Finding, json_pointer, object_items, value_at
from toolwire.protocols.openai_chat import rules as chat

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
