"""Validate Chat requests as the provider would judge them, and adapt them to compatible servers.

`check_request` runs every rule and uses OpenAI's own error messages where they are known. `repair_request` changes
what some compatible servers reject although others accept it.
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
from toolwire.codec.models import gpt
from toolwire.codec.validation import (
    Finding,
    Findings,
    JsonObject,
    JsonPath,
    list_of,
    number_of,
    object_items,
    object_of,
    text_of,
    value_at,
    word_set,
)
from toolwire.protocols.openai_chat.fields import ERROR_WORDING, check_fields, check_message, check_tool
from toolwire.protocols.openai_chat.settings import MAX_TOKENS_ALIAS
from toolwire.protocols.openai_chat.wire import FAMILY
from toolwire.protocols.vendors.openai import check_count

_finding = ERROR_WORDING.finding

# Rules that compatible servers enforce, too.
_UNIVERSAL_RULES = word_set("body messages-empty calls-unanswered tool-message-orphan")


def check_request(
    body: object, *, model: str | None = None, version: str | None = None, compatible: bool = False
) -> list[Finding]:
    """Check a request body against every rule.

    `model` overrides the body's model. For a `compatible` server, most findings are only warnings.
    """
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
    """Check each field, message and tool by itself."""
    yield from check_fields(body)
    for path, message in object_items(body.get("messages"), ("messages",)):
        yield from check_message(path, message)
    for path, tool in object_items(body.get("tools"), ("tools",)):
        yield from check_tool(path, tool)


def _check_lists(body: JsonObject, model: str) -> Findings:
    """Check the length of lists and the uniqueness of tool names."""
    for name in ("messages", "tools", "functions"):
        if body.get(name) == []:
            yield _finding(f"{name}-empty", (name,), f"[] is too short - '{name}'")
    for name in ("tools", "functions"):
        yield from check_count(ERROR_WORDING, (name,), len(list_of(body.get(name))), 128)
    seen: set[str] = set()
    for path, tool in object_items(body.get("tools"), ("tools",)):
        name = text_of(value_at(tool, text_of(tool.get("type")), "name"))
        if name and name in seen:
            yield _finding("tool-name-duplicate", path, f"Tool '{name}' is declared twice.", "warning")
        seen.add(name)


def _check_pairing(body: JsonObject, model: str) -> Findings:
    """Check that tool messages answer all calls of the assistant message directly before them, in any order."""
    call_path: JsonPath = ()
    has_calls = False
    pending_ids: dict[str, None] = {}
    messages = object_items(body.get("messages"), ("messages",))
    for path, message in [*messages, ((), {})]:
        if message.get("role") == "tool":
            name = text_of(message.get("tool_call_id"))
            if not has_calls:
                text = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
                yield _finding("tool-message-orphan", path, f"Invalid parameter: {text}")
            elif name not in pending_ids:
                text = f"'tool_call_id' of '{name}' not found in 'tool_calls' of previous message."
                yield _finding("tool-message-orphan", (*path, "tool_call_id"), f"Invalid parameter: {text}")
            pending_ids.pop(name, None)
            continue
        if pending_ids:
            text = "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            text += "'tool_call_id'. The following tool_call_ids did not have response messages: "
            yield _finding("calls-unanswered", call_path, text + ", ".join(pending_ids))
        calls = object_items(message.get("tool_calls"), ()) if message.get("role") == "assistant" else []
        pending_ids = {text_of(call.get("id")): None for _, call in calls}
        call_path, has_calls = path, bool(pending_ids)


def _check_choice(body: JsonObject, model: str) -> Findings:
    """Check `tool_choice`, `parallel_tool_calls` and `function_call` against the declared tools."""
    for name, required in (("tool_choice", "tools"), ("parallel_tool_calls", "tools"), ("function_call", "functions")):
        if body.get(name) is not None and not body.get(required):
            message = f"Invalid value for '{name}': '{name}' is only allowed when '{required}' are specified."
            yield _finding("choice-without-tools", (name,), message)
    choice = body.get("tool_choice")
    if isinstance(choice, str) and choice not in ("none", "auto", "required"):
        message = f"Invalid value: '{choice}'. Supported values are: 'none', 'auto', and 'required'."
        yield _finding("choice-value", ("tool_choice",), message)
    kind = text_of(value_at(choice, "type"))
    if isinstance(choice, dict) and kind not in ("function", "custom", "allowed_tools"):
        message = f"Invalid value: '{kind}'. Supported values are: 'function', 'allowed_tools', and 'custom'."
        yield _finding("choice-value", ("tool_choice", "type"), message)
    references = [("tool_choice", object_of(choice))]
    references += [("tool_choice", part) for _, part in object_items(value_at(choice, "allowed_tools", "tools"), ())]
    declared = {
        text_of(value_at(tool, text_of(tool.get("type")), "name")) for _, tool in object_items(body.get("tools"), ())
    }
    for path, part in references:
        name = text_of(value_at(part, text_of(part.get("type")), "name"))
        if name and body.get("tools") and name not in declared:
            message = f"Invalid value for 'tool_choice': no tool named '{name}' was specified in the 'tools' parameter."
            yield _finding("choice-unknown", (path,), message)


def _check_stream(body: JsonObject, model: str) -> Findings:
    """Check for parameters, such as `stream_options`, that another parameter must enable."""
    if body.get("stream_options") and body.get("stream") is not True:
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        yield _finding("stream-options", ("stream_options",), message)
    if body.get("top_logprobs") and body.get("logprobs") is not True:
        message = "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled."
        yield _finding("top-logprobs", ("top_logprobs",), message)


def _check_json_mode(body: JsonObject, model: str) -> Findings:
    """Check that JSON mode comes with the word `json` in a message."""
    if value_at(body, "response_format", "type") != "json_object":
        return
    for _, message in object_items(body.get("messages"), ()):
        parts = [text_of(part.get("text")) for _, part in object_items(message.get("content"), ())]
        if any("json" in text.lower() for text in [text_of(message.get("content")), *parts]):
            return
    reason = "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'."
    yield _finding("json-mode", ("messages",), reason)


def _check_model_settings(body: JsonObject, model: str) -> Findings:
    """Check sampling and limits against the model."""
    unsupported = "Unsupported parameter: '{at}' is not supported with this model."
    if body.get("max_tokens") is not None and gpt.refuses_max_tokens(model):
        yield _finding("max-tokens-model", ("max_tokens",), f"{unsupported} Use 'max_completion_tokens' instead.")
    rejects_sampling = gpt.refuses_sampling(gpt.gpt_info(model), model, body.get("reasoning_effort"))
    for name in ("temperature", "top_p"):
        if rejects_sampling and number_of(body.get(name)) not in (None, 1):
            message = f"Unsupported value: '{name}' does not support that value with this model. "
            yield _finding("sampling-model", (name,), f"{message}Only the default (1) value is supported.")
    if body.get("stop") is not None and gpt.refuses_stop(model):
        yield _finding("stop-model", ("stop",), unsupported)
    if body.get("web_search_options") is not None and gpt.refuses_audio_and_search(model):
        message = "Web search options not supported with this model."
        yield _finding("web-search-model", ("web_search_options",), message)


def _check_model_effort(body: JsonObject, model: str) -> Findings:
    """Check `reasoning_effort` against the model and the tools."""
    effort, at = body.get("reasoning_effort"), ("reasoning_effort",)
    supported = gpt.gpt_info(model).efforts
    if effort is not None and supported == ():
        yield _finding("effort-model", at, "Unrecognized request argument supplied: reasoning_effort")
    elif effort is not None and supported is not None and effort not in supported:
        message = f"Unsupported value: 'reasoning_effort' does not support '{text_of(effort)}' with this model. "
        yield _finding("effort-model", at, f"{message}Supported values are: {ERROR_WORDING.join_choices(supported)}.")
    if body.get("tools") and effort != "none" and gpt.refuses_tools_at_effort(model):
        message = f"Function tools with reasoning_effort are not supported for {model} in /v1/chat/completions. "
        message += "To use function tools, use /v1/responses or set reasoning_effort to 'none'."
        # Models that reason by default also reject the absent field; which ones do is unknown.
        yield _finding("effort-with-tools", at, message, "warning" if effort is None else "error")


def _check_model_messages(body: JsonObject, model: str) -> Findings:
    """Check roles and content types against the model."""
    for path, message in object_items(body.get("messages"), ("messages",)):
        role = message.get("role")
        if role in ("system", "developer") and gpt.refuses_system_messages(model):
            text = f"Unsupported value: '{{at}}' does not support '{role}' with this model."
            yield _finding("role-model", (*path, "role"), text)
        audio = [part for _, part in object_items(message.get("content"), ()) if part.get("type") == "input_audio"]
        if audio and gpt.refuses_audio_and_search(model):
            text = "Invalid '{at}'. Content blocks are expected to be either text or image_url type."
            yield _finding("audio-model", path, text)


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

_MODEL_LIMIT_HOSTS = ("openai", "azure")
_NULL_CONTENT = (f"{FAMILY}:null:content",)
_DISABLED = Raw(b'{"type":"disabled"}')
_ENABLED = re.compile(rb'"type"\s*:\s*"(?!disabled)')


def repair_request(request: Request, target: Target, names: WireNames, report: LossReport) -> Request:
    """Adapt a request to a model known to need it; return it unchanged otherwise."""
    model = target.model or request.model or ""
    if _matches(_DEEPSEEK, model):
        request = _disable_thinking_for_forced_call(request, report)
    if target.host.name in _MODEL_LIMIT_HOSTS and gpt.refuses_max_tokens(model):
        request = _rename_output_limit(request, report)
    if _matches(_DATABRICKS, model):
        request = _split_parallel_calls(request, names, report)
    return request


@lru_cache(maxsize=512)
def _matches(pattern: re.Pattern[str], model: str) -> bool:
    """Tell whether the pattern occurs in a model name; memoized."""
    return pattern.search(model) is not None


def _rename_output_limit(request: Request, report: LossReport) -> Request:
    """Return the request with `max_tokens` as `max_completion_tokens`, the only name that reasoning models accept."""
    sampling = request.sampling
    if sampling is None or MAX_TOKENS_ALIAS not in sampling.wire_form:
        return request
    report.approximated(("sampling",), "max_tokens", "the model rejects max_tokens; sent as max_completion_tokens")
    wire_form = tuple(form for form in sampling.wire_form if form != MAX_TOKENS_ALIAS)
    return replace(request, sampling=replace(sampling, wire_form=wire_form))


def _disable_thinking_for_forced_call(request: Request, report: LossReport) -> Request:
    """Disable thinking for DeepSeek, which thinks by default and rejects a forced call meanwhile."""
    choice = request.tool_choice
    if choice is None or not (choice.mode in ("required", "named") or (choice.mode == "allowed" and choice.required)):
        return request
    chat_extras = (request.extras or {}).get(FAMILY, {})
    thinking_field = chat_extras.get("thinking")
    if thinking_field is not None and not _ENABLED.search(bytes(thinking_field)):
        return request
    reason = "the model rejects a forced tool call while thinking"
    if thinking_field is not None:
        report.approximated((), "//thinking", f"{reason}; thinking disabled")
    else:
        report.added(("tool_choice",), "mode", "/thinking", reason)
    if (thinking := request.thinking) is not None:
        for name in ("enabled", "effort", "budget_tokens", "visibility"):
            if getattr(thinking, name) is not None:
                report.approximated(("thinking",), name, f"{reason}; thinking disabled")
    extras = {**(request.extras or {}), FAMILY: {**chat_extras, "thinking": _DISABLED}}
    return replace(request, thinking=None, extras=extras)


def _split_parallel_calls(request: Request, names: WireNames, report: LossReport) -> Request:
    """Split parallel calls for Databricks, which requires one call per message and its result after it."""
    remaining = list(with_source_positions(request, names, "messages").messages)
    messages: list[Message] = []
    is_split = False
    while remaining:
        first_index = len(request.messages) - len(remaining)
        call_messages = _take_leading(remaining, "assistant")
        call_ids = {part.id for message in call_messages for part in message.parts if _is_call(part)}
        if len(call_ids) < 2:
            messages += call_messages or [remaining.pop(0)]
            continue
        is_split = True
        results, other_messages = _group_results(_take_leading(remaining, "user"), call_ids, names)
        for index, message in enumerate(call_messages, first_index):
            report.approximated(
                ("messages", index), "", "the provider requires one call per message; parallel calls split"
            )
            for fragment in _split_after_calls(with_source_positions(message, names)):
                messages.append(fragment)
                messages += [results.pop(part.id) for part in fragment.parts if _is_call(part) and part.id in results]
        messages += other_messages
    return replace(request, messages=tuple(messages)) if is_split else request


def _take_leading(messages: list[Message], role: str) -> list[Message]:
    """Remove the leading messages of one role from the list and return them."""
    count = next((index for index, message in enumerate(messages) if message.role != role), len(messages))
    taken = messages[:count]
    del messages[:count]
    return taken


def _group_results(
    replies: list[Message], call_ids: set[str | None], names: WireNames
) -> tuple[dict[str | None, Message], list[Message]]:
    """Split replies into tool results and other content.

    Return the result of each call as a separate message, by call id, and messages with everything else.
    """
    results: dict[str | None, Message] = {}
    other_messages: list[Message] = []
    for message in replies:
        if len(message.parts) == 1 and _is_new_result(message.parts[0], call_ids, results):
            results[_call_id(message.parts[0])] = message
            continue
        other_parts: list[Part] = []
        for part in with_source_positions(message, names).parts:
            if _is_new_result(part, call_ids, results):
                results[_call_id(part)] = replace(message, parts=(part,), extras=None, wire_form=())
            else:
                other_parts.append(part)
        if other_parts or not message.parts:
            other_messages.append(replace(message, parts=tuple(other_parts)))
    return results, other_messages


def _is_new_result(part: Part, call_ids: set[str | None], results: Mapping[str | None, Message]) -> bool:
    """Tell whether the part is the first result of one of the calls."""
    return isinstance(part, ToolResult) and part.call_id in call_ids and part.call_id not in results


def _call_id(part: Part) -> str | None:
    """Return the call id of a result."""
    return part.call_id if isinstance(part, ToolResult) else None


def _split_after_calls(message: Message) -> Iterator[Message]:
    """Split a message after each call except the last."""
    parts: list[Part] = []
    remaining_calls = sum(map(_is_call, message.parts))
    template = message
    for part in message.parts:
        parts.append(part)
        if _is_call(part):
            remaining_calls -= 1
            if remaining_calls > 0:
                yield replace(template, parts=tuple(parts))
                template, parts = replace(message, extras=None, wire_form=_NULL_CONTENT), []
    yield replace(template, parts=tuple(parts))


def _is_call(part: Part) -> TypeGuard[ToolCall]:
    """Tell whether the part is a call that the client runs."""
    return isinstance(part, ToolCall) and part.executor == "client"
