"""Decode and encode the body of `POST /v1/chat/completions`."""

import re
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.errors import DecodeError
from toolwire.canonical.request import Continuation, Request
from toolwire.canonical.tools import Thinking
from toolwire.codec.encoding.computer import FUNCTION_ADAPTER
from toolwire.codec.encoding.computer_request import adapt_turns, use_target_tool
from toolwire.codec.encoding.hosted_tools import substitute_functions
from toolwire.codec.encoding.hosts import convert_system_messages, encode_user, fit_fields, host_rules, rename_tools
from toolwire.codec.encoding.plan import MOVING_MARKS, EncodingPlan, IdAndNameRules, resolve_target
from toolwire.codec.encoding.tools import NameRules
from toolwire.codec.encoding.turns import (
    assemble,
    leading_system_count,
    one_turn_per_message,
)
from toolwire.codec.hosts.openai import OPENAI
from toolwire.codec.interface import EncodedBody, Route, Target
from toolwire.codec.losses import LossReport
from toolwire.codec.wire.extras import merge_extras, restore_extras, unset_to_none
from toolwire.codec.wire.reader import Reader, decode_members, describe_json, escape_pointer
from toolwire.protocols.openai_chat.hosts import (
    DEFAULT_TOOLS,
    FIELD_LOCATIONS,
    JSON_FORMAT,
    acknowledge_results,
    add_user_message,
    encode_leading_system,
    fit_choice,
    fit_format,
    mark_prefix,
    require_json_word,
)
from toolwire.protocols.openai_chat.parts.cache_control import (
    CACHE_FIELD,
    add_cache_marks,
    encode_mark,
    has_cache_control,
)
from toolwire.protocols.openai_chat.parts.content import collect_chat_extras
from toolwire.protocols.openai_chat.parts.messages import (
    decode_message,
    encode_system,
    encode_turn,
    report_message,
    report_message_extras,
)
from toolwire.protocols.openai_chat.parts.signed_reasoning import is_reasoning_item
from toolwire.protocols.openai_chat.settings import (
    decode_output,
    decode_sampling,
    encode_output,
    encode_sampling,
    encode_thinking,
)
from toolwire.protocols.openai_chat.tools import (
    REPRESENTED_SEARCH,
    decode_choice,
    decode_search,
    decode_tools,
    encode_choice,
    encode_search,
    encode_tools,
)
from toolwire.protocols.openai_chat.variant import CHAT, ChatVariant
from toolwire.protocols.openai_chat.wire import FAMILY, SHARED_FAMILY, RequestShape
from toolwire.protocols.vendors.openai import (
    REPRESENTED_USER,
    add_cache_key,
    decode_end_user,
    remove_unsupported_sampling,
)

ID_AND_NAME_RULES = IdAndNameRules(
    id_pattern=re.compile(r"[\x20-\x7e]+"),
    id_limit=40,
    names=NameRules(re.compile(r"[a-zA-Z0-9_-]+"), 64),
    freeform=True,
)
WIRE_NAMES = {
    "Request.sampling": "",
    "Request.thinking": "",
    "Request.output": "",
    "Request.continuation": "",
    "Request.end_user": "/user",
    "Request.tier": "/service_tier",
    "Request.labels": "/metadata",
    "Request.include_usage": "/stream_options/include_usage",
    "Sampling.max_tokens": "/max_completion_tokens",
    "Thinking.effort": "/reasoning_effort",
    "OutputFormat.kind": "/response_format/type",
    "OutputFormat.schema": "/response_format/json_schema/schema",
    "OutputFormat.name": "/response_format/json_schema/name",
    "OutputFormat.description": "/response_format/json_schema/description",
    "OutputFormat.strict": "/response_format/json_schema/strict",
    "ToolChoice.mode": "",
    "ToolChoice.names": "",
    "ToolChoice.required": "/allowed_tools/mode",
    "ToolChoice.parallel": "//parallel_tool_calls",
    "FunctionTool.name": "/function/name",
    "FunctionTool.description": "/function/description",
    "FunctionTool.parameters": "/function/parameters",
    "FunctionTool.strict": "/function/strict",
    "FreeformTool.name": "/custom/name",
    "FreeformTool.description": "/custom/description",
    "FreeformTool.grammar": "/custom/format/grammar",
    "Message.parts": "/content",
    "Text.text": "",
    "Text.cache": "/prompt_cache_breakpoint",
    "Media.cache": "/prompt_cache_breakpoint",
    "Media.source": "/image_url",
    "Media.media_type": "/image_url/url",
    "Media.detail": "/image_url/detail",
    "Media.name": "/file/filename",
    "Refusal.text": "",
    "Reasoning.content": "/thinking",
    "ToolCall.name": "/function/name",
    "ToolCall.arguments": "/function/arguments",
    "ToolResult.call_id": "/tool_call_id",
    "ToolResult.status": "/content",
    "Citation.url": "/url_citation/url",
    "Citation.title": "/url_citation/title",
    "Citation.quote": "/url_citation/content",
    "Citation.start": "/url_citation/start_index",
    "Citation.end": "/url_citation/end_index",
    "Response.candidates": "/choices",
    "Candidate.messages": "/message",
    "Candidate.stop": "",
    "Stop.reason": "/finish_reason",
    "Stop.raw": "/finish_reason",
    "Usage.input_tokens": "/prompt_tokens",
    "Usage.output_tokens": "/completion_tokens",
    "Usage.cache_read": "/prompt_tokens_details/cached_tokens",
    "Usage.cache_write": "/prompt_tokens_details/cache_write_tokens",
    "Usage.reasoning": "/completion_tokens_details/reasoning_tokens",
    "Usage.total": "/total_tokens",
    "ApiError.message": "/error/message",
    "ApiError.raw": "/error/type",
    "ApiError.code": "/error/code",
    "ApiError.param": "/error/param",
}

OBFUSCATION = "stream_options/include_obfuscation"
VENDOR_FIELDS = frozenset(
    {
        "moderation",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        OBFUSCATION,
    }
)
NO_MESSAGES = "openai-chat:absent:messages"
EMPTY_OPTIONS = "openai-chat:stream_options:empty"

_RAW_FIELDS = ("tool_choice", "function_call", "metadata")
_raw_fields = attrgetter(*_RAW_FIELDS)
_NO_RAW_FIELDS = (UNSET,) * len(_RAW_FIELDS)

_CACHE_OPTIONS = {"mode", "ttl"}
_MODALITIES = ("text", "audio")

_decode_names = msgspec.json.Decoder(list[str]).decode
_request_reader = Reader[RequestShape](RequestShape, FAMILY)


# ---- decode


def decode_request(body: bytes, route: Route) -> Request:
    """Decode a request body."""
    shape = _request_reader.read(body)
    if shape.unknown is not UNSET and "messages" in shape.unknown:
        raise DecodeError(FAMILY, "/messages", "an array", describe_json(shape.unknown["messages"]))
    tools = decode_tools(shape)
    search = None if shape.web_search_options is UNSET else decode_search(shape.web_search_options, tools)
    choice, choice_extras = decode_choice(shape)
    output, sampling = decode_output(shape), decode_sampling(shape)
    effort = unset_to_none(shape.reasoning_effort)
    extras = _decode_extras(shape, choice_extras)
    if search is not None:
        tools, extras["wire_form"] = (*(tools or ()), search), (*extras["wire_form"], REPRESENTED_SEARCH)
    store, user = unset_to_none(shape.store), decode_end_user(unset_to_none(shape.user), extras)
    messages = tuple(
        [decode_message(message, f"/messages/{index}") for index, message in enumerate(shape.messages or ())]
    )
    return Request(
        origin=FAMILY,
        model=route.model if shape.model is UNSET else shape.model,
        messages=messages,
        tools=tools,
        tool_choice=choice,
        sampling=sampling,
        thinking=None if effort is None else Thinking(effort=effort),
        output=output,
        continuation=None if store is None else Continuation(store=store),
        stream=unset_to_none(shape.stream),
        include_usage=_decode_include_usage(shape),
        end_user=user,
        tier=unset_to_none(shape.service_tier),
        labels=_decode_labels(shape),
        **extras,
    )


def _decode_include_usage(shape: RequestShape) -> bool | None:
    """Return `stream_options.include_usage`, None if it is absent."""
    options = shape.stream_options
    return None if options is UNSET or options is None else unset_to_none(options.include_usage)


def _decode_labels(shape: RequestShape) -> Raw | None:
    """Return `metadata`, None if it is null or absent."""
    return None if shape.metadata is UNSET or bytes(shape.metadata) == b"null" else shape.metadata


def _decode_extras(shape: RequestShape, choice_extras: dict[str, Raw]) -> dict[str, Any]:
    """Return the `extras` and `wire_form` arguments of the request.

    Fields that OpenAI's Responses API shares go to a family of extras that both protocols have.
    """
    if shape.functions == []:
        choice_extras = {**choice_extras, "functions": Raw(b"[]")}
    collected = [
        collect_chat_extras(shape, *_null_forms(shape)),
        {"extras": {FAMILY: choice_extras}} if choice_extras else {},
    ]
    options = shape.stream_options
    if options is not UNSET and options is not None:
        wire_form = (EMPTY_OPTIONS,) if options.include_usage is UNSET else ()
        collected.append(collect_chat_extras(options, *wire_form, prefix="stream_options/"))
    merged = merge_extras(*collected)
    chat_fields = (merged["extras"] or {}).get(FAMILY, {})
    vendor_fields = {name: chat_fields.pop(name) for name in list(chat_fields) if name in VENDOR_FIELDS}
    extras = {FAMILY: chat_fields, SHARED_FAMILY: vendor_fields}
    return {
        "extras": {family: fields for family, fields in extras.items() if fields} or None,
        "wire_form": merged["wire_form"],
    }


def _null_forms(shape: RequestShape) -> tuple[str, ...]:
    """Return the wire-form tokens that record null values of raw fields, and absent messages."""
    nulls: tuple[str, ...] = ()
    if _raw_fields(shape) != _NO_RAW_FIELDS:
        nulls = tuple(
            f"{FAMILY}:null:{name}"
            for name in _RAW_FIELDS
            if getattr(shape, name) is not UNSET and bytes(getattr(shape, name)) == b"null"
        )
    if shape.messages is UNSET and (shape.nulls is UNSET or "messages" not in shape.nulls):
        return (*nulls, NO_MESSAGES)
    return nulls


# ---- encode


def encode_request(request: Request, target: Target, variant: ChatVariant = CHAT) -> EncodedBody:
    """Encode a request for a Chat server, in a variant of the protocol."""
    same_protocol = request.origin == variant.protocol
    target = resolve_target(target, request, variant.describe_model)
    model = target.model
    rules = ID_AND_NAME_RULES if target.host.tools is DEFAULT_TOOLS else host_rules(target.host)
    plan = EncodingPlan(rules, LossReport(), target, same_protocol=same_protocol)
    plan.has_moving_marks = request.origin in MOVING_MARKS
    request = rename_tools(substitute_functions(request, plan, variant.hosted_tools), plan)
    request = use_target_tool(request, plan, FUNCTION_ADAPTER)
    plan.messages = request.messages
    tools, functions = encode_tools(request, plan, variant)
    messages = _encode_messages(request, plan)
    body: dict[str, Any] = {} if model is None else {"model": model}
    if messages or not {NO_MESSAGES, f"{FAMILY}:null:messages"} & set(request.wire_form):
        body["messages"] = messages
    if tools is not None:
        body["tools"] = tools
    if functions is not None:
        body["functions"] = functions
    body.update(encode_search(request, plan))
    body.update(encode_choice(request, plan, variant, has_tools=bool(tools)))
    encode_sampling(request, body, plan)
    encode_thinking(request, body, plan)
    remove_unsupported_sampling(body, body.get("reasoning_effort"), plan)
    encode_output(request, body, plan)
    _encode_stream(request, body, plan)
    _encode_other_fields(request, body, plan, variant)
    for node in (request, request.sampling, request.output):
        restore_extras(body, node, FAMILY)
    restore_extras(body, request, SHARED_FAMILY)
    if "user" in body and REPRESENTED_USER[0] in request.wire_form:
        body.pop("safety_identifier", None)  # sent as `user`
    if not plan.same_protocol:
        add_cache_key(body, target, plan.report)
        if has_cache_control(plan) and target.adds_cache_marks:
            add_cache_marks(body, plan)
        _remove_unsupported(body, plan, variant)
        plan.report.report_foreign_extras(request, (FAMILY, SHARED_FAMILY))
    if plan.adapts:
        _fit_body(request, body, plan)
    return EncodedBody(body, plan.report, plan.tools.mapping, Route(path=variant.path))


def _remove_unsupported(body: dict[str, Any], plan: EncodingPlan, variant: ChatVariant) -> None:
    """Remove from `body`, and report, fields and options that the target may reject."""
    if "stream_options" in body and not body.get("stream"):
        del body["stream_options"]  # rejected unless `stream` is true
        plan.report.dropped((), f"//{OBFUSCATION}", "the request is not streamed")
    if "prompt_cache_options" in body:
        body["prompt_cache_options"] = _encode_cache_options(body["prompt_cache_options"], plan)
        if body["prompt_cache_options"] is None:
            del body["prompt_cache_options"]
    if "modalities" in body and variant is CHAT:
        body["modalities"] = _encode_modalities(body["modalities"], plan)


def _fit_body(request: Request, body: dict[str, Any], plan: EncodingPlan) -> None:
    """Fit choice, format and other members of `body` to what the host accepts."""
    host = plan.target.host
    if "tool_choice" in body and host.choice is not OPENAI.choice:
        fit_choice(body, plan)
    if "response_format" in body and host.output.formats is not OPENAI.output.formats:
        fit_format(request, body, plan)
    if body.get("response_format") == JSON_FORMAT and not plan.same_protocol:
        require_json_word(body, plan)
    if host.fields is not OPENAI.fields:
        fit_fields(request, body, plan, FIELD_LOCATIONS)


def _encode_messages(request: Request, plan: EncodingPlan) -> list[Any]:
    """Encode system text and messages, adapted to what the host accepts."""
    host, skip = plan.target.host, 0
    if not plan.adapts or host.messages.late_system:
        messages = encode_system(request, plan)
    else:
        messages, skip = [], 1
        if not plan.same_protocol or leading_system_count(request.messages) > 1:
            messages, skip = encode_leading_system(request, plan)
        request = convert_system_messages(request, skip, plan)
        skip = skip if messages else 0
    turns = (
        one_turn_per_message(request.messages)[skip:]
        if plan.same_protocol
        else adapt_turns(assemble(request, plan.report, skip=skip, supports_prefill=host.messages.prefill), plan)
    )
    for turn in turns:
        plan.output_index = len(messages)
        messages += encode_turn(turn, plan)
        if not plan.same_protocol:
            report_message_extras(turn, plan)
    if plan.adapts and not host.messages.user_after_tool:
        messages = acknowledge_results(messages, plan)
    if plan.adapts and host.messages.user_required:
        add_user_message(messages, plan)
    if plan.adapts and not host.messages.final_assistant:
        mark_prefix(messages, plan)
    return messages


def _encode_cache_options(options: Raw, plan: EncodingPlan) -> Any:
    """Encode `prompt_cache_options` without options that only the Responses API has.

    Servers with `cache_control` support those of explicit caching only: return None for others.
    """
    try:
        members = decode_members(options)
    except msgspec.DecodeError:
        return options
    if has_cache_control(plan) and members.get("mode") != Raw(b'"explicit"'):
        reason = "the target supports only options of explicit caching"
        plan.report.dropped((), "//prompt_cache_options", reason)
        return None
    for name in [name for name in members if name not in _CACHE_OPTIONS]:
        plan.report.dropped((), f"//prompt_cache_options/{escape_pointer(name)}")
    return {name: value for name, value in members.items() if name in _CACHE_OPTIONS}


def _encode_modalities(modalities: Raw, plan: EncodingPlan) -> Any:
    """Encode `modalities` without values that only OpenRouter has."""
    try:
        names = _decode_names(modalities)
    except msgspec.DecodeError:
        return modalities
    for index, name in enumerate(names):
        if name not in _MODALITIES:
            plan.report.dropped((), f"//modalities/{index}", f"the target has no {name} output")
    return [name for name in names if name in _MODALITIES]


def _encode_stream(request: Request, body: dict[str, Any], plan: EncodingPlan) -> None:
    """Write `stream` and `stream_options` into `body`."""
    stream = request.stream if plan.target.stream is None else plan.target.stream
    if stream is not None:
        body["stream"] = stream
    if plan.same_protocol:
        if request.include_usage is not None:
            body["stream_options"] = {"include_usage": request.include_usage}
        elif EMPTY_OPTIONS in request.wire_form:
            body["stream_options"] = {}
    elif stream and plan.target.host.output.stream_usage:
        body["stream_options"] = {"include_usage": True}


def _encode_other_fields(request: Request, body: dict[str, Any], plan: EncodingPlan, variant: ChatVariant) -> None:
    """Write user, metadata, tier and store into `body`; report as losses fields without equivalent."""
    fields = plan.target.host.fields
    if request.end_user is not None and not _is_identifier_sent(request, plan):
        body["user"] = encode_user(request.end_user, plan.report, fields.user_pattern if plan.adapts else None)
    if request.labels is not None:
        body["metadata"] = request.labels
    if request.tier is not None:
        _encode_tier(request.tier, body, plan, variant)
    store = None if request.continuation is None else request.continuation.store
    if store is not None and (store or plan.same_protocol or "store" not in fields.ignored):
        body["store"] = store
    if not plan.same_protocol:
        if (mark := request.cache or plan.last_mark) is not None and has_cache_control(plan):
            body[CACHE_FIELD] = encode_mark(mark, (), plan)
        _report_unsupported(request, plan)


def _is_identifier_sent(request: Request, plan: EncodingPlan) -> bool:
    """Tell whether the end user is sent as `safety_identifier`, which the client used and the host accepts."""
    if REPRESENTED_USER[0] not in request.wire_form:
        return False
    fields = plan.target.host.fields
    return not plan.adapts or "safety_identifier" not in (*fields.refused, *fields.ignored)


def _report_unsupported(request: Request, plan: EncodingPlan) -> None:
    """Report as losses the fields of another protocol's request that Chat lacks."""
    continuation = request.continuation
    if continuation is not None and continuation.id is not None:
        plan.report.dropped(("continuation",), "id", "the target does not store conversations")
    if continuation is not None and continuation.background:
        plan.report.dropped(("continuation",), "background")
    if request.cache is not None and not has_cache_control(plan):
        plan.report.dropped(("cache",), "", "the target has no cache marks on requests")
    for index, message in enumerate(request.messages):
        if message.id is not None or message.phase is not None or message.clear_at is not None or message.status:
            is_encoded = plan.target.host.reasoning.details and is_reasoning_item(message)
            report_message(replace(message, id=None) if is_encoded else message, ("messages", index), plan)


def _encode_tier(tier: str, body: dict[str, Any], plan: EncodingPlan, variant: ChatVariant) -> None:
    """Write `service_tier` into `body`."""
    if plan.same_protocol or tier in variant.service_tiers:
        body["service_tier"] = tier
    elif tier == "standard_only":
        plan.report.approximated((), "tier", "standard_only sent as default")
        body["service_tier"] = "default"
    else:
        plan.report.dropped((), "tier", f"the target has no service tier {tier}")
