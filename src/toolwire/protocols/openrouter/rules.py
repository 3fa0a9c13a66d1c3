"""What OpenRouter itself rejects. What the chosen upstream rejects is for that one's rules: here it is a warning."""

from msgspec.structs import replace

from toolwire.codec.validation import Finding, json_pointer, object_items, value_at
from toolwire.protocols.openai_chat import rules as chat

_CHAT = "openai-chat."


def check_request(
    body: object, *, model: str | None = None, version: str | None = None, compatible: bool = False
) -> list[Finding]:
    findings = [
        replace(finding, rule="openrouter." + finding.rule.removeprefix(_CHAT))
        for finding in chat.check_request(body, model=model, version=version, compatible=True)
    ]
    if not isinstance(body, dict):
        return findings
    efforts = (body.get("reasoning_effort"), value_at(body.get("reasoning"), "effort"))
    if None not in efforts and efforts[0] != efforts[1]:
        said = "reasoning_effort and reasoning.effort differ"
        findings.append(Finding("openrouter.effort-twice", "/reasoning_effort", said))
    if efforts[1] is not None and value_at(body.get("reasoning"), "max_tokens") is not None:
        said = "only one of reasoning.effort and reasoning.max_tokens can be specified"
        findings.append(Finding("openrouter.effort-and-budget", "/reasoning/max_tokens", said))
    for path, message in object_items(body.get("messages"), ("messages",)):
        if message.get("role") == "tool" and not isinstance(message.get("tool_call_id"), str):
            at = json_pointer((*path, "tool_call_id"))
            findings.append(Finding("openrouter.tool-message-nameless", at, "a tool message needs a tool_call_id"))
    return findings
