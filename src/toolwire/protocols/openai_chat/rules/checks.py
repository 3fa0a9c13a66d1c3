"""What the Chat Completions API rejects, rule by rule, in its own words where they are known."""

import re

import msgspec

from toolwire.codec.check import Finding, Findings, Object, Path, dig, members, number_of, object_of, text_of, words

from .vocabulary import VOICE, check_count, check_fields, check_message, check_tool

_found = VOICE.found

# What no server that imitates the protocol takes either.
_EVERYWHERE = words("body messages-empty calls-unanswered tool-message-orphan")

# Models that are known to refuse; an unknown name is never held against a body.
_REASONING = re.compile(r"(o1|o3|o4-mini|gpt-5|gpt-6)(?!.*chat)(?![\d])")
_FIRST_REASONING = re.compile(r"(o1|o3|o4|gpt-5)(-mini|-nano|-pro)?(-20\d\d.*)?$")
_NO_STOP = re.compile(r"(o3|o3-pro|o4-mini|gpt-5|gpt-5-mini|gpt-5-nano)(-20\d\d.*)?$")
_NO_TOOLS_WITH_EFFORT = re.compile(r"gpt-(5\.[456]|6)")
_EFFORTS = {
    re.compile(r"(o1|o3|o3-mini|o4-mini)(-20\d\d.*)?$"): ("low", "medium", "high"),
    re.compile(r"(gpt-5|gpt-5-mini|gpt-5-nano)(-20\d\d.*)?$"): ("minimal", "low", "medium", "high"),
}
_NO_EFFORT = re.compile(r"gpt-4|gpt-3")
_NO_AUDIO_OR_SEARCH = re.compile(r"(gpt-4o|gpt-4\.1|gpt-5|o1|o3|o4)(?!.*(audio|search|realtime))")
_NO_SYSTEM = re.compile(r"o1-(mini|preview)")


def check_request(
    body: object, *, model: str | None = None, version: str | None = None, compatible: bool = False
) -> list[Finding]:
    """`model` overrides the body's; to a `compatible` server most rules are only warnings."""
    if not isinstance(body, dict):
        return [_found("body", (), "We could not parse the JSON body of your request: expected an object.")]
    name = model or text_of(body.get("model"))
    findings = [finding for rule in _RULES for finding in rule(body, name)]
    if not compatible:
        return findings
    return [
        finding
        if finding.rule.removeprefix("openai-chat.") in _EVERYWHERE
        else msgspec.structs.replace(finding, level="warning")
        for finding in findings
    ]


def _shapes(body: Object, model: str) -> Findings:
    yield from check_fields(body)
    for path, message in members(body.get("messages"), ("messages",)):
        yield from check_message(path, message)
    for path, tool in members(body.get("tools"), ("tools",)):
        yield from check_tool(path, tool)


def _lists(body: Object, model: str) -> Findings:
    for name in ("messages", "tools", "functions"):
        if body.get(name) == []:
            yield _found(f"{name}-empty", (name,), f"[] is too short - '{name}'")
    for name in ("tools", "functions"):
        yield from check_count((name,), body.get(name), 128)
    seen: set[str] = set()
    for path, tool in members(body.get("tools"), ("tools",)):
        name = text_of(dig(tool, text_of(tool.get("type")), "name"))
        if name and name in seen:
            yield _found("tool-name-duplicate", path, f"Tool '{name}' is declared twice.", "warning")
        seen.add(name)


def _pairing(body: Object, model: str) -> Findings:
    """All calls of an assistant message are answered by the tool messages directly after it, in any order."""
    open_at: Path = ()
    asked = False
    waiting: dict[str, None] = {}
    messages = members(body.get("messages"), ("messages",))
    for path, message in [*messages, ((), {})]:
        if message.get("role") == "tool":
            name = text_of(message.get("tool_call_id"))
            if not asked:
                said = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
                yield _found("tool-message-orphan", path, f"Invalid parameter: {said}")
            elif name not in waiting:
                said = f"'tool_call_id' of '{name}' not found in 'tool_calls' of previous message."
                yield _found("tool-message-orphan", (*path, "tool_call_id"), f"Invalid parameter: {said}")
            waiting.pop(name, None)
            continue
        if waiting:
            said = "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            said += "'tool_call_id'. The following tool_call_ids did not have response messages: "
            yield _found("calls-unanswered", open_at, said + ", ".join(waiting))
        calls = members(message.get("tool_calls"), ()) if message.get("role") == "assistant" else []
        waiting = {text_of(call.get("id")): None for _, call in calls}
        open_at, asked = path, bool(waiting)


def _choice(body: Object, model: str) -> Findings:
    for name, needed in (("tool_choice", "tools"), ("parallel_tool_calls", "tools"), ("function_call", "functions")):
        if body.get(name) is not None and not body.get(needed):
            said = f"Invalid value for '{name}': '{name}' is only allowed when '{needed}' are specified."
            yield _found("choice-without-tools", (name,), said)
    choice = body.get("tool_choice")
    if isinstance(choice, str) and choice not in ("none", "auto", "required"):
        said = f"Invalid value: '{choice}'. Supported values are: 'none', 'auto', and 'required'."
        yield _found("choice-value", ("tool_choice",), said)
    kind = text_of(dig(choice, "type"))
    if isinstance(choice, dict) and kind not in ("function", "custom", "allowed_tools"):
        said = f"Invalid value: '{kind}'. Supported values are: 'function', 'allowed_tools', and 'custom'."
        yield _found("choice-value", ("tool_choice", "type"), said)
    chosen = [("tool_choice", object_of(choice))]
    chosen += [("tool_choice", part) for _, part in members(dig(choice, "allowed_tools", "tools"), ())]
    declared = {text_of(dig(tool, text_of(tool.get("type")), "name")) for _, tool in members(body.get("tools"), ())}
    for place, part in chosen:
        name = text_of(dig(part, text_of(part.get("type")), "name"))
        if name and body.get("tools") and name not in declared:
            said = f"Invalid value for 'tool_choice': no tool named '{name}' was specified in the 'tools' parameter."
            yield _found("choice-unknown", (place,), said)


def _stream(body: Object, model: str) -> Findings:
    if body.get("stream_options") and body.get("stream") is not True:
        said = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        yield _found("stream-options", ("stream_options",), said)
    if body.get("top_logprobs") and body.get("logprobs") is not True:
        said = "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled."
        yield _found("top-logprobs", ("top_logprobs",), said)


def _json_mode(body: Object, model: str) -> Findings:
    if dig(body, "response_format", "type") != "json_object":
        return
    for _, message in members(body.get("messages"), ()):
        parts = [text_of(part.get("text")) for _, part in members(message.get("content"), ())]
        if any("json" in text.lower() for text in [text_of(message.get("content")), *parts]):
            return
    said = "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'."
    yield _found("json-mode", ("messages",), said)


def _model_settings(body: Object, model: str) -> Findings:
    refused = "Unsupported parameter: '{at}' is not supported with this model."
    if body.get("max_tokens") is not None and _REASONING.match(model):
        yield _found("max-tokens-model", ("max_tokens",), f"{refused} Use 'max_completion_tokens' instead.")
    for name in ("temperature", "top_p"):
        value = number_of(body.get(name))
        if value not in (None, 1) and _FIRST_REASONING.match(model):
            said = f"Unsupported value: '{name}' does not support that value with this model. "
            yield _found("sampling-model", (name,), f"{said}Only the default (1) value is supported.")
    if body.get("stop") is not None and _NO_STOP.match(model):
        yield _found("stop-model", ("stop",), refused)
    if body.get("web_search_options") is not None and _NO_AUDIO_OR_SEARCH.match(model):
        said = "Web search options not supported with this model."
        yield _found("web-search-model", ("web_search_options",), said)


def _model_effort(body: Object, model: str) -> Findings:
    effort, at = body.get("reasoning_effort"), ("reasoning_effort",)
    if effort is not None and _NO_EFFORT.match(model):
        yield _found("effort-model", at, "Unrecognized request argument supplied: reasoning_effort")
    for models, known in _EFFORTS.items():
        if effort is not None and effort not in known and models.match(model):
            said = f"Unsupported value: 'reasoning_effort' does not support '{text_of(effort)}' with this model. "
            yield _found("effort-model", at, f"{said}Supported values are: {VOICE.listed(known)}.")
    if body.get("tools") and effort != "none" and _NO_TOOLS_WITH_EFFORT.match(model):
        said = f"Function tools with reasoning_effort are not supported for {model} in /v1/chat/completions. "
        said += "To use function tools, use /v1/responses or set reasoning_effort to 'none'."
        # Those of these models that reason unasked refuse the absent field too; which ones is not known.
        yield _found("effort-with-tools", at, said, "warning" if effort is None else "error")


def _model_messages(body: Object, model: str) -> Findings:
    for path, message in members(body.get("messages"), ("messages",)):
        role = message.get("role")
        if role in ("system", "developer") and _NO_SYSTEM.match(model):
            said = f"Unsupported value: '{{at}}' does not support '{role}' with this model."
            yield _found("role-model", (*path, "role"), said)
        audio = [part for _, part in members(message.get("content"), ()) if part.get("type") == "input_audio"]
        if audio and _NO_AUDIO_OR_SEARCH.match(model):
            said = "Invalid '{at}'. Content blocks are expected to be either text or image_url type."
            yield _found("audio-model", path, said)


_RULES = (_shapes, _lists, _pairing, _choice, _stream, _json_mode, _model_settings, _model_effort, _model_messages)
