"""Chat's request body, to a canonical request and back."""

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.content import Message, ToolResult
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.node import Node
from toolwire.canonical.request import Continuation, Request
from toolwire.canonical.tools import Thinking, ToolChoice
from toolwire.codec.fields import Reader, escape, told
from toolwire.codec.hosted import as_functions
from toolwire.codec.interface import Encoding, Route, Target
from toolwire.codec.kept import joined, known, restore
from toolwire.codec.losses import Report
from toolwire.codec.plan import Plan, Rules
from toolwire.codec.screen_function import FUNCTION
from toolwire.codec.screens import on_screen, screened
from toolwire.codec.tools import NameRules
from toolwire.codec.turns import Placed, Turn, as_written, assemble
from toolwire.protocols.openai import IDENTIFIED, encode_user, identified
from toolwire.protocols.openai_chat.parts.content import kept
from toolwire.protocols.openai_chat.parts.messages import decode_message, encode_turn, report_message
from toolwire.protocols.openai_chat.wire import FAMILY, SHARED, RequestShape

from .lowering import acknowledge_results, drop_refused, encode_leading_system, remind_users
from .search import HOSTED, TOLD, decode_search, encode_search
from .settings import decode_output, decode_sampling, encode_output, encode_sampling, encode_thinking
from .tools import decode_choice, decode_tools, encode_choice, encode_tools

RULES = Rules(
    ids=re.compile(r"[\x20-\x7e]+"),
    id_limit=40,
    names=NameRules(re.compile(r"[a-zA-Z0-9_-]+"), 64),
    freeform=True,
)
_FUNCTIONS_ONLY = replace(RULES, freeform=False)
NAMES = {
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

TIERS = ("auto", "default", "flex", "scale", "priority", "fast")
OBFUSCATION = "stream_options/include_obfuscation"
SHARED_FIELDS = frozenset(
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

_RAW = ("tool_choice", "function_call", "metadata")

_CACHE_OPTIONS = {"mode", "ttl"}
_MODALITIES = ("text", "audio")

_members = msgspec.json.Decoder(dict[str, Raw]).decode
_names = msgspec.json.Decoder(list[str]).decode
_reader = Reader[RequestShape](RequestShape, FAMILY)


# ---- decode


def decode_request(body: bytes, route: Route) -> Request:
    shape, plain = _reader.read_noting(body)
    if shape.unknown is not UNSET and "messages" in shape.unknown:
        raise DecodeError(FAMILY, "/messages", "an array", told(shape.unknown["messages"]))
    tools, plain_tools = decode_tools(shape)
    search = None if shape.web_search_options is UNSET else decode_search(shape.web_search_options, tools)
    choice, left = decode_choice(shape)
    output, sampling = decode_output(shape), decode_sampling(shape)
    effort = known(shape.reasoning_effort)
    options = shape.stream_options
    found = _decode_rest(shape, left)
    if search is not None:
        tools, found["form"] = (*(tools or ()), search), (*found["form"], TOLD)
    store, user = known(shape.store), identified(known(shape.user), found)
    messages = tuple([decode_message(one, f"/messages/{index}") for index, one in enumerate(shape.messages or ())])
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
        stream=known(shape.stream),
        include_usage=None if options is UNSET or options is None else known(options.include_usage),
        end_user=user,
        tier=known(shape.service_tier),
        labels=None if shape.metadata is UNSET or bytes(shape.metadata) == b"null" else shape.metadata,
        plain=plain
        and plain_tools
        and not found["extras"]
        and _is_plain(messages, choice, output, sampling, *(tools or ())),
        **found,
    )


def _is_plain(messages: tuple[Message, ...], choice: ToolChoice | None, *settings: Node | None) -> bool:
    """Whether nothing was kept where a plain typed decode can still keep something: words that we don't know."""
    names = () if choice is None else choice.names
    if any(node is not None and node.extras for node in (choice, *names, *settings)):
        return False
    for message in messages:
        for part in message.parts:
            if part.extras or message.extras or ((mark := getattr(part, "cache", None)) is not None and mark.extras):
                return False
            if type(part) is ToolResult and part.content and any(inner.extras for inner in part.content):
                return False
    return True


def _decode_rest(shape: RequestShape, left: dict[str, Raw]) -> dict[str, Any]:
    """What has no canonical home; the fields that Responses calls by the same name are kept for both."""
    nulls = tuple(
        f"{FAMILY}:null:{name}"
        for name in _RAW
        if getattr(shape, name) is not UNSET and bytes(getattr(shape, name)) == b"null"
    )
    if shape.messages is UNSET and (shape.nulls is UNSET or "messages" not in shape.nulls):
        nulls = (*nulls, NO_MESSAGES)
    if shape.functions == []:
        left = {**left, "functions": Raw(b"[]")}
    rests = [kept(shape, *nulls), {"extras": {FAMILY: left}} if left else {}]
    options = shape.stream_options
    if options is not UNSET and options is not None:
        form = (EMPTY_OPTIONS,) if options.include_usage is UNSET else ()
        rests.append(kept(options, *form, under="stream_options/"))
    found = joined(*rests)
    own = (found["extras"] or {}).get(FAMILY, {})
    both = {name: own.pop(name) for name in list(own) if name in SHARED_FIELDS}
    extras = {FAMILY: own, SHARED: both}
    return {"extras": {name: fields for name, fields in extras.items() if fields} or None, "form": found["form"]}


# ---- encode


def encode_request(request: Request, target: Target) -> Encoding:
    home = request.origin == FAMILY
    model = request.model if target.model is None else target.model
    rules = RULES if home or target.host.freeform else _FUNCTIONS_ONLY
    plan = Plan(rules, Report(), replace(target, model=model), home=home)
    request = on_screen(as_functions(request, plan, HOSTED), plan, FUNCTION)
    tools, functions = encode_tools(request, plan)
    messages = _encode_messages(request, plan)
    body: dict[str, Any] = {} if model is None else {"model": model}
    if messages or not {NO_MESSAGES, f"{FAMILY}:null:messages"} & set(request.form):
        body["messages"] = messages
    if tools is not None:
        body["tools"] = tools
    if functions is not None:
        body["functions"] = functions
    body.update(encode_search(request, plan))
    body.update(encode_choice(request, plan, any_tools=bool(tools)))
    encode_sampling(request, body, plan)
    encode_thinking(request, body, plan)
    encode_output(request, body, plan)
    _encode_stream(request, body, plan)
    _encode_rest(request, body, plan)
    for node in (request, request.sampling, request.output):
        restore(body, node, FAMILY)
    restore(body, request, SHARED)
    if not home and "stream_options" in body and not body.get("stream"):
        del body["stream_options"]  # refused where nothing is streamed
        plan.report.dropped((), f"//{OBFUSCATION}", "nothing is streamed")
    if not home and "prompt_cache_options" in body:
        body["prompt_cache_options"] = _cache_options(body["prompt_cache_options"], plan)
    if not home and "modalities" in body:
        body["modalities"] = _modalities(body["modalities"], plan)
    if not home and target.host.refused:
        drop_refused(body, plan)
    if not plan.home and not request.plain:
        plan.report.unclaimed(request, (FAMILY, SHARED))
    return Encoding(body, plan.report, plan.tools.undo, Route(path="/v1/chat/completions"))


def _encode_messages(request: Request, plan: Plan) -> list[Any]:
    host, skip = plan.target.host, 0
    if plan.home or host.late_system:
        messages = _encode_system(request, plan)
    else:
        messages, skip = encode_leading_system(request, plan)
        request = remind_users(request, skip, plan)
    turns = as_written(request.messages) if plan.home else screened(assemble(request, plan.report, skip=skip), plan)
    for turn in turns:
        plan.count = len(messages)
        made = encode_turn(turn, plan)
        messages += made if plan.home or host.user_after_tool else acknowledge_results(made, plan)
    return messages


def _cache_options(options: Raw, plan: Plan) -> Any:
    """Responses has options here that this protocol lacks."""
    try:
        members = _members(options)
    except msgspec.DecodeError:
        return options
    for name in [name for name in members if name not in _CACHE_OPTIONS]:
        plan.report.dropped((), f"//prompt_cache_options/{escape(name)}")
    return {name: value for name, value in members.items() if name in _CACHE_OPTIONS}


def _modalities(asked: Raw, plan: Plan) -> Any:
    """OpenRouter has those of other vendors' models, too."""
    try:
        named = _names(asked)
    except msgspec.DecodeError:
        return asked
    for index, name in enumerate(named):
        if name not in _MODALITIES:
            plan.report.dropped((), f"//modalities/{index}", f"the target answers with no {name}")
    return [name for name in named if name in _MODALITIES]


def _encode_system(request: Request, plan: Plan) -> list[Any]:
    """What other protocols keep apart from the messages leads them here."""
    if not request.system:
        return []
    places = [Placed(part, ("system", index)) for index, part in enumerate(request.system)]
    return encode_turn(Turn("system", places, None, ("system",)), plan)


def _encode_stream(request: Request, body: dict[str, Any], plan: Plan) -> None:
    stream = request.stream if plan.target.stream is None else plan.target.stream
    if stream is not None:
        body["stream"] = stream
    if plan.home:
        if request.include_usage is not None:
            body["stream_options"] = {"include_usage": request.include_usage}
        elif EMPTY_OPTIONS in request.form:
            body["stream_options"] = {}
    elif stream and plan.target.host.stream_usage:
        body["stream_options"] = {"include_usage": True}


def _encode_rest(request: Request, body: dict[str, Any], plan: Plan) -> None:
    if request.end_user is not None and IDENTIFIED[0] not in request.form:
        user, host = request.end_user, plan.target.host
        body["user"] = user if plan.home or "user" in host.refused else encode_user(user, plan.report, host.user)
    if request.labels is not None:
        body["metadata"] = request.labels
    if request.tier is not None:
        _encode_tier(request.tier, body, plan)
    state = request.continuation
    if state is not None and state.store is not None:
        body["store"] = state.store
    if plan.home:
        return
    if state is not None and state.id is not None:
        plan.report.dropped(("continuation",), "id", "the target holds no conversation")
    if state is not None and state.background:
        plan.report.dropped(("continuation",), "background")
    if request.cache is not None:
        plan.report.dropped(("cache",), "", "the target has no mark for the whole request")
    for index, message in enumerate(request.messages):
        if message.id is not None or message.phase is not None or message.clear_at is not None or message.status:
            report_message(message, ("messages", index), plan)


def _encode_tier(tier: str, body: dict[str, Any], plan: Plan) -> None:
    if plan.home or tier in TIERS:
        body["service_tier"] = tier
    elif tier == "standard_only":
        plan.report.approximated((), "tier", "standard_only is told as default")
        body["service_tier"] = "default"
    else:
        plan.report.dropped((), "tier", f"the target has no tier {tier}")
