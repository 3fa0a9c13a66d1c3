"""What the Chat Completions API rejects, rule by rule, in its own words where they are known.

What some servers that are compatible with Chat refuse and others take, made to fit the one that is asked.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TypeGuard

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.codec.interface import Target
from toolwire.codec.losses import LossReport, WireNames, with_source_positions
from toolwire.codec.validation import (
    Finding,
    Findings,
    JsonObject,
    JsonPath,
    number_of,
    object_items,
    object_of,
    text_of,
    value_at,
    word_set,
)
from toolwire.protocols.openai_chat.fields import ERROR_WORDING, check_count, check_fields, check_message, check_tool
from toolwire.protocols.openai_chat.wire import FAMILY

_finding = ERROR_WORDING.finding

# What no server that imitates the protocol takes either.
_UNIVERSAL_RULES = word_set("body messages-empty calls-unanswered tool-message-orphan")

# Models that are known to refuse; an unknown name is never held against a body.
_REASONING_MODELS = re.compile(r"(o1|o3|o4-mini|gpt-5|gpt-6)(?!.*chat)(?![\d])")
_FIRST_REASONING_MODELS = re.compile(r"(o1|o3|o4|gpt-5)(-mini|-nano|-pro)?(-20\d\d.*)?$")
_MODELS_WITHOUT_STOP = re.compile(r"(o3|o3-pro|o4-mini|gpt-5|gpt-5-mini|gpt-5-nano)(-20\d\d.*)?$")
_MODELS_WITHOUT_TOOLS_AT_EFFORT = re.compile(r"gpt-(5\.[456]|6)")
_EFFORTS = {
    re.compile(r"(o1|o3|o3-mini|o4-mini)(-20\d\d.*)?$"): ("low", "medium", "high"),
    re.compile(r"(gpt-5|gpt-5-mini|gpt-5-nano)(-20\d\d.*)?$"): ("minimal", "low", "medium", "high"),
}
_MODELS_WITHOUT_EFFORT = re.compile(r"gpt-4|gpt-3")
_MODELS_WITHOUT_AUDIO_OR_SEARCH = re.compile(r"(gpt-4o|gpt-4\.1|gpt-5|o1|o3|o4)(?!.*(audio|search|realtime))")
_MODELS_WITHOUT_SYSTEM = re.compile(r"o1-(mini|preview)")


def check_request(
    body: object, *, model: str | None = None, version: str | None = None, compatible: bool = False
) -> list[Finding]:
    """`model` overrides the body's; to a `compatible` server most rules are only warnings."""
    if not isinstance(body, dict):
        return [_finding("body", (), "We could not parse the JSON body of your request: expected an object.")]
    name = model or text_of(body.get("model"))
    findings = [finding for rule in _RULES for finding in rule(body, name)]
    if not compatible:
        return findings
    return [
        finding
        if finding.rule.removeprefix("openai-chat.") in _UNIVERSAL_RULES
        else msgspec.structs.replace(finding, level="warning")
        for finding in findings
    ]


def _check_shapes(body: JsonObject, model: str) -> Findings:
    yield from check_fields(body)
    for path, message in object_items(body.get("messages"), ("messages",)):
        yield from check_message(path, message)
    for path, tool in object_items(body.get("tools"), ("tools",)):
        yield from check_tool(path, tool)


def _check_lists(body: JsonObject, model: str) -> Findings:
    for name in ("messages", "tools", "functions"):
        if body.get(name) == []:
            yield _finding(f"{name}-empty", (name,), f"[] is too short - '{name}'")
    for name in ("tools", "functions"):
        yield from check_count((name,), body.get(name), 128)
    seen: set[str] = set()
    for path, tool in object_items(body.get("tools"), ("tools",)):
        name = text_of(value_at(tool, text_of(tool.get("type")), "name"))
        if name and name in seen:
            yield _finding("tool-name-duplicate", path, f"Tool '{name}' is declared twice.", "warning")
        seen.add(name)


def _check_pairing(body: JsonObject, model: str) -> Findings:
    """All calls of an assistant message are answered by the tool messages directly after it, in any order."""
    open_at: JsonPath = ()
    asked = False
    waiting: dict[str, None] = {}
    messages = object_items(body.get("messages"), ("messages",))
    for path, message in [*messages, ((), {})]:
        if message.get("role") == "tool":
            name = text_of(message.get("tool_call_id"))
            if not asked:
                said = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
                yield _finding("tool-message-orphan", path, f"Invalid parameter: {said}")
            elif name not in waiting:
                said = f"'tool_call_id' of '{name}' not found in 'tool_calls' of previous message."
                yield _finding("tool-message-orphan", (*path, "tool_call_id"), f"Invalid parameter: {said}")
            waiting.pop(name, None)
            continue
        if waiting:
            said = "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            said += "'tool_call_id'. The following tool_call_ids did not have response messages: "
            yield _finding("calls-unanswered", open_at, said + ", ".join(waiting))
        calls = object_items(message.get("tool_calls"), ()) if message.get("role") == "assistant" else []
        waiting = {text_of(call.get("id")): None for _, call in calls}
        open_at, asked = path, bool(waiting)


def _check_choice(body: JsonObject, model: str) -> Findings:
    for name, needed in (("tool_choice", "tools"), ("parallel_tool_calls", "tools"), ("function_call", "functions")):
        if body.get(name) is not None and not body.get(needed):
            said = f"Invalid value for '{name}': '{name}' is only allowed when '{needed}' are specified."
            yield _finding("choice-without-tools", (name,), said)
    choice = body.get("tool_choice")
    if isinstance(choice, str) and choice not in ("none", "auto", "required"):
        said = f"Invalid value: '{choice}'. Supported values are: 'none', 'auto', and 'required'."
        yield _finding("choice-value", ("tool_choice",), said)
    kind = text_of(value_at(choice, "type"))
    if isinstance(choice, dict) and kind not in ("function", "custom", "allowed_tools"):
        said = f"Invalid value: '{kind}'. Supported values are: 'function', 'allowed_tools', and 'custom'."
        yield _finding("choice-value", ("tool_choice", "type"), said)
    chosen = [("tool_choice", object_of(choice))]
    chosen += [("tool_choice", part) for _, part in object_items(value_at(choice, "allowed_tools", "tools"), ())]
    declared = {
        text_of(value_at(tool, text_of(tool.get("type")), "name")) for _, tool in object_items(body.get("tools"), ())
    }
    for place, part in chosen:
        name = text_of(value_at(part, text_of(part.get("type")), "name"))
        if name and body.get("tools") and name not in declared:
            said = f"Invalid value for 'tool_choice': no tool named '{name}' was specified in the 'tools' parameter."
            yield _finding("choice-unknown", (place,), said)


def _check_stream(body: JsonObject, model: str) -> Findings:
    if body.get("stream_options") and body.get("stream") is not True:
        said = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        yield _finding("stream-options", ("stream_options",), said)
    if body.get("top_logprobs") and body.get("logprobs") is not True:
        said = "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled."
        yield _finding("top-logprobs", ("top_logprobs",), said)


def _check_json_mode(body: JsonObject, model: str) -> Findings:
    if value_at(body, "response_format", "type") != "json_object":
        return
    for _, message in object_items(body.get("messages"), ()):
        parts = [text_of(part.get("text")) for _, part in object_items(message.get("content"), ())]
        if any("json" in text.lower() for text in [text_of(message.get("content")), *parts]):
            return
    said = "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'."
    yield _finding("json-mode", ("messages",), said)


def _check_model_settings(body: JsonObject, model: str) -> Findings:
    refused = "Unsupported parameter: '{at}' is not supported with this model."
    if body.get("max_tokens") is not None and _REASONING_MODELS.match(model):
        yield _finding("max-tokens-model", ("max_tokens",), f"{refused} Use 'max_completion_tokens' instead.")
    for name in ("temperature", "top_p"):
        value = number_of(body.get(name))
        if value not in (None, 1) and _FIRST_REASONING_MODELS.match(model):
            said = f"Unsupported value: '{name}' does not support that value with this model. "
            yield _finding("sampling-model", (name,), f"{said}Only the default (1) value is supported.")
    if body.get("stop") is not None and _MODELS_WITHOUT_STOP.match(model):
        yield _finding("stop-model", ("stop",), refused)
    if body.get("web_search_options") is not None and _MODELS_WITHOUT_AUDIO_OR_SEARCH.match(model):
        said = "Web search options not supported with this model."
        yield _finding("web-search-model", ("web_search_options",), said)


def _check_model_effort(body: JsonObject, model: str) -> Findings:
    effort, at = body.get("reasoning_effort"), ("reasoning_effort",)
    if effort is not None and _MODELS_WITHOUT_EFFORT.match(model):
        yield _finding("effort-model", at, "Unrecognized request argument supplied: reasoning_effort")
    for models, known in _EFFORTS.items():
        if effort is not None and effort not in known and models.match(model):
            said = f"Unsupported value: 'reasoning_effort' does not support '{text_of(effort)}' with this model. "
            yield _finding("effort-model", at, f"{said}Supported values are: {ERROR_WORDING.join_choices(known)}.")
    if body.get("tools") and effort != "none" and _MODELS_WITHOUT_TOOLS_AT_EFFORT.match(model):
        said = f"Function tools with reasoning_effort are not supported for {model} in /v1/chat/completions. "
        said += "To use function tools, use /v1/responses or set reasoning_effort to 'none'."
        # Those of these models that reason unasked refuse the absent field too; which ones is not known.
        yield _finding("effort-with-tools", at, said, "warning" if effort is None else "error")


def _check_model_messages(body: JsonObject, model: str) -> Findings:
    for path, message in object_items(body.get("messages"), ("messages",)):
        role = message.get("role")
        if role in ("system", "developer") and _MODELS_WITHOUT_SYSTEM.match(model):
            said = f"Unsupported value: '{{at}}' does not support '{role}' with this model."
            yield _finding("role-model", (*path, "role"), said)
        audio = [part for _, part in object_items(message.get("content"), ()) if part.get("type") == "input_audio"]
        if audio and _MODELS_WITHOUT_AUDIO_OR_SEARCH.match(model):
            said = "Invalid '{at}'. Content blocks are expected to be either text or image_url type."
            yield _finding("audio-model", path, said)


_RULES = (
    _check_shapes,
    _check_lists,
    _check_pairing,
    _check_choice,
    _check_stream,
    _check_json_mode,
    _check_model_settings,
    _check_model_effort,
    _check_model_messages,
)

_DEEPSEEK = re.compile(r"deepseek", re.IGNORECASE)
_DATABRICKS = re.compile(r"databricks-", re.IGNORECASE)

_NULL_CONTENT = (f"{FAMILY}:null:content",)
_DISABLED = Raw(b'{"type":"disabled"}')
_ENABLED = re.compile(rb'"type"\s*:\s*"(?!disabled)')


def repair_request(request: Request, target: Target, names: WireNames, report: LossReport) -> Request:
    """The same request where nothing is wrong with it, or where nothing is known of the model."""
    model = target.model or request.model or ""
    if _matches(_DEEPSEEK, model):
        request = _disable_thinking_for_forced_call(request, report)
    if _matches(_DATABRICKS, model):
        request = _split_parallel_calls(request, names, report)
    return request


@lru_cache(maxsize=512)
def _matches(pattern: re.Pattern[str], model: str) -> bool:
    return pattern.search(model) is not None


def _disable_thinking_for_forced_call(request: Request, report: LossReport) -> Request:
    """DeepSeek thinks unless told not to, and refuses a forced call while it does."""
    choice = request.tool_choice
    if choice is None or not (choice.mode in ("required", "named") or (choice.mode == "allowed" and choice.required)):
        return request
    own = (request.extras or {}).get(FAMILY, {})
    said = own.get("thinking")
    if said is not None and not _ENABLED.search(bytes(said)):
        return request
    why = "the model takes no forced call while it thinks"
    if said is not None:
        report.approximated((), "//thinking", f"{why}: disabled")
    else:
        report.added(("tool_choice",), "mode", "/thinking", why)
    if (thinking := request.thinking) is not None:
        for name in ("enabled", "effort", "budget_tokens", "visibility"):
            if getattr(thinking, name) is not None:
                report.approximated(("thinking",), name, f"{why}: disabled")
    extras = {**(request.extras or {}), FAMILY: {**own, "thinking": _DISABLED}}
    return replace(request, thinking=None, extras=extras)


def _split_parallel_calls(request: Request, names: WireNames, report: LossReport) -> Request:
    """Databricks wants each result right after a message that makes only its call."""
    rest = list(with_source_positions(request, names, "messages").messages)
    out: list[Message] = []
    divided = False
    while rest:
        start = len(request.messages) - len(rest)
        asked = _take_leading(rest, "assistant")
        calls = {part.id for message in asked for part in message.parts if _is_call(part)}
        if len(calls) < 2:
            out += asked or [rest.pop(0)]
            continue
        divided = True
        answers, others = _group_results(_take_leading(rest, "user"), calls, names)
        for number, message in enumerate(asked, start):
            report.approximated(("messages", number), "", "one call a turn, as the provider wants it")
            for piece in _split_after_calls(with_source_positions(message, names)):
                out.append(piece)
                out += [answers.pop(part.id) for part in piece.parts if _is_call(part) and part.id in answers]
        out += others
    return replace(request, messages=tuple(out)) if divided else request


def _take_leading(messages: list[Message], role: str) -> list[Message]:
    """Take those of one role from the front."""
    count = next((place for place, message in enumerate(messages) if message.role != role), len(messages))
    taken = messages[:count]
    del messages[:count]
    return taken


def _group_results(
    replies: list[Message], calls: set[str | None], names: WireNames
) -> tuple[dict[str | None, Message], list[Message]]:
    """Each result in a message of its own, by its call, and what else was said."""
    found: dict[str | None, Message] = {}
    others: list[Message] = []
    for message in replies:
        if len(message.parts) == 1 and _is_new_result(message.parts[0], calls, found):
            found[_call_id(message.parts[0])] = message
            continue
        left: list[Part] = []
        for part in with_source_positions(message, names).parts:
            if _is_new_result(part, calls, found):
                found[_call_id(part)] = replace(message, parts=(part,), extras=None, wire_form=())
            else:
                left.append(part)
        if left or not message.parts:
            others.append(replace(message, parts=tuple(left)))
    return found, others


def _is_new_result(part: Part, calls: set[str | None], results: Mapping[str | None, Message]) -> bool:
    return isinstance(part, ToolResult) and part.call_id in calls and part.call_id not in results


def _call_id(part: Part) -> str | None:
    return part.call_id if isinstance(part, ToolResult) else None


def _split_after_calls(message: Message) -> Iterator[Message]:
    """The message, cut after each call but the last."""
    parts: list[Part] = []
    left = sum(map(_is_call, message.parts))
    whole = message
    for part in message.parts:
        parts.append(part)
        if _is_call(part):
            left -= 1
            if left > 0:
                yield replace(whole, parts=tuple(parts))
                whole, parts = replace(message, extras=None, wire_form=_NULL_CONTENT), []
    yield replace(whole, parts=tuple(parts))


def _is_call(part: Part) -> TypeGuard[ToolCall]:
    return isinstance(part, ToolCall) and part.executor == "client"
