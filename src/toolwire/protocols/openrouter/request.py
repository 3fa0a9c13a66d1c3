"""Requests of OpenRouter: those of Chat Completions with the fields that OpenRouter adds."""

from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.errors import DecodeError
from toolwire.canonical.request import Request
from toolwire.canonical.tools import CacheMark
from toolwire.codec.encoding.computer import FUNCTION_ADAPTER
from toolwire.codec.encoding.computer_request import adapt_turns, use_target_tool
from toolwire.codec.encoding.fallbacks import report_continuation
from toolwire.codec.encoding.hosted_tools import substitute_functions
from toolwire.codec.encoding.hosts import encode_user
from toolwire.codec.encoding.plan import EncodingPlan, IdAndNameRules
from toolwire.codec.encoding.turns import LocatedPart, Turn, assemble
from toolwire.codec.interface import EncodedBody, Route, Target
from toolwire.codec.losses import LossReport
from toolwire.codec.wire.extras import restore_extras
from toolwire.codec.wire.reader import decode_members, escape_pointer
from toolwire.protocols.openai_chat import request as chat
from toolwire.protocols.openai_chat.parts.messages import report_message
from toolwire.protocols.openai_chat.settings import encode_output, encode_sampling
from toolwire.protocols.openai_chat.wire import FAMILY, SHARED_FAMILY, TextPart
from toolwire.protocols.openrouter.parts.content import represented_tokens
from toolwire.protocols.openrouter.parts.messages import (
    DialectPlan,
    decode_dialect,
    encode_dialect,
    encode_turn,
    is_reasoning_item,
)
from toolwire.protocols.openrouter.settings import (
    CACHE_FIELD,
    CACHE_TTLS,
    REASONING_FIELD,
    decode_cache,
    decode_thinking,
    encode_cache,
    encode_thinking,
)
from toolwire.protocols.openrouter.tools import (
    HOSTED_TOOLS,
    decode_choice,
    decode_plugins,
    decode_tool,
    encode_choice,
    encode_tools,
)

PROTOCOL = "openrouter"
PATH = "/api/v1/chat/completions"

ID_AND_NAME_RULES = IdAndNameRules(
    id_pattern=chat.ID_AND_NAME_RULES.id_pattern,
    id_limit=chat.ID_AND_NAME_RULES.id_limit,
    names=chat.ID_AND_NAME_RULES.names,
    freeform=False,
)
WIRE_NAMES = chat.WIRE_NAMES

FIRST_MODEL = "openai-chat:model:first"
SERVICE_TIERS = ("auto", "default", "fast", "flex", "priority", "scale", "ultrafast")
_SHARED_FIELDS = ("prompt_cache_key", "prompt_cache_options")
_CACHE_OPTIONS = ("mode", "ttl")
_CLAUDE = "claude"  # in the names of models that cache only by marks

_decode_names = msgspec.json.Decoder(list[str]).decode


# ---- decode


def decode_request(body: bytes, route: Route) -> Request:
    """Decode a request body."""
    try:
        request = chat.decode_request(body, route)
    except DecodeError as error:
        raise with_protocol_name(error) from None
    return replace(_decode_dialect_fields(request), origin=PROTOCOL)


def with_protocol_name(error: DecodeError) -> DecodeError:
    """Return an error of Chat's decoder with OpenRouter as its protocol."""
    return DecodeError(PROTOCOL, error.path, error.expected, error.got)


def _decode_dialect_fields(request: Request) -> Request:
    """Return the request with OpenRouter's additions decoded, which Chat's decoder leaves in the extras."""
    if request.tools is not None:
        request = replace(request, tools=tuple([decode_tool(tool) for tool in request.tools]))
    if request.plain:
        return request
    request = decode_cache(request)
    extras = dict((request.extras or {}).get(FAMILY, {}))
    request = replace(request, messages=tuple([decode_dialect(message) for message in request.messages]))
    for decode_field in (_decode_reasoning, _decode_models, _decode_plugins, _decode_tool_choice):
        request = decode_field(request, extras)
    families = {**(request.extras or {}), FAMILY: extras}
    return replace(request, extras={name: fields for name, fields in families.items() if fields} or None)


# Each of these decodes one field from `extras`, the request's extras of Chat's family, and adjusts them.


def _decode_reasoning(request: Request, extras: dict[str, Raw]) -> Request:
    """Return the request with `reasoning` decoded, unless Chat's `reasoning_effort` is set."""
    if REASONING_FIELD not in extras or request.thinking is not None:
        return request
    if (thinking := decode_thinking(extras[REASONING_FIELD])) is None:
        return request
    return replace(request, thinking=thinking, wire_form=request.wire_form + represented_tokens(REASONING_FIELD))


def _decode_models(request: Request, extras: dict[str, Raw]) -> Request:
    """Return the request with the first of `models` as its model; the fallbacks stay extras."""
    if request.model is not None or not (models := _model_names(extras.get("models"))):
        return request
    extras |= {f"models/{index}": Raw(msgspec.json.encode(name)) for index, name in enumerate(models) if index}
    wire_form = (*request.wire_form, FIRST_MODEL, *represented_tokens("models"))
    return replace(request, model=models[0], wire_form=wire_form)


def _decode_plugins(request: Request, extras: dict[str, Raw]) -> Request:
    """Return the request with plugins that are hosted tools decoded; other plugins stay extras."""
    plugins, others = decode_plugins(extras["plugins"]) if "plugins" in extras else ([], [])
    if not plugins:
        return request
    extras |= {f"plugins/{index}": Raw(b"{}") for index in others}
    wire_form = request.wire_form + represented_tokens("plugins")
    return replace(request, tools=(*(request.tools or ()), *plugins), wire_form=wire_form)


def _decode_tool_choice(request: Request, extras: dict[str, Raw]) -> Request:
    """Return the request with a tool choice that forces a server tool, which Chat cannot express, decoded."""
    choice = request.tool_choice
    if "tool_choice" not in extras or (choice is not None and choice.mode is not None):
        return request
    forced = decode_choice(extras["tool_choice"], parallel=None if choice is None else choice.parallel)
    if forced is None:
        return request
    del extras["tool_choice"]
    return replace(request, tool_choice=forced)


def _model_names(raw: Raw | None) -> list[str]:
    """Return the names in `models`; an empty list if it is not a list of strings."""
    try:
        return [] if raw is None else _decode_names(raw)
    except msgspec.DecodeError:
        return []


# ---- encode


def encode_request(request: Request, target: Target) -> EncodedBody:
    """Encode a request body and report losses."""
    encoding = (
        _encode_same_protocol(request, target) if request.origin == PROTOCOL else _encode_foreign(request, target)
    )
    encoding.route = Route(path=PATH, headers=_application_headers(target))
    return encoding


def _application_headers(target: Target) -> tuple[tuple[str, str], ...]:
    """Return the headers that identify the application in OpenRouter's rankings.

    The title is also sent as `X-Title`, its former name, which older hosts read.
    """
    headers = () if target.site is None else (("HTTP-Referer", target.site),)
    if target.title is None:
        return headers
    return (*headers, ("X-Title", target.title), ("X-OpenRouter-Title", target.title))


def _encode_same_protocol(request: Request, target: Target) -> EncodedBody:
    """Encode a request that came from an OpenRouter client, through Chat's encoder."""
    if request.plain:
        return chat.encode_request(replace(request, origin=FAMILY), target)
    messages = tuple([encode_dialect(message) for message in request.messages])
    fields = dict((request.extras or {}).get(FAMILY, {}))
    thinking = request.thinking
    if represented_tokens(REASONING_FIELD)[0] in request.wire_form and REASONING_FIELD in fields:
        if thinking is not None and thinking != decode_thinking(fields[REASONING_FIELD]):
            plan = EncodingPlan(ID_AND_NAME_RULES, LossReport(), target, same_protocol=True)
            fields[REASONING_FIELD] = Raw(msgspec.json.encode(encode_thinking(thinking, plan)))
        thinking = None
    extras = {**(request.extras or {}), FAMILY: fields}
    model = None if FIRST_MODEL in request.wire_form else request.model
    chat_request = replace(request, origin=FAMILY, model=model, messages=messages, thinking=thinking, extras=extras)
    return chat.encode_request(chat_request, target)


def _encode_foreign(request: Request, target: Target) -> EncodedBody:
    """Encode a request that came from another protocol."""
    model = request.model if target.model is None else target.model
    plan = DialectPlan(ID_AND_NAME_RULES, target, model, request)
    request = use_target_tool(substitute_functions(request, plan, HOSTED_TOOLS), plan, FUNCTION_ADAPTER)
    tools = encode_tools(request, plan)
    body: dict[str, Any] = {} if model is None else {"model": model}
    body["messages"] = _encode_messages(request, plan)
    if tools:
        body["tools"] = tools
    body.update(encode_choice(request, plan, has_tools=bool(tools)))
    _encode_settings(request, body, plan)
    _encode_other_fields(request, body, plan)
    for node in (request, request.sampling):
        restore_extras(body, node, FAMILY)
    if target.adds_cache_marks and _CLAUDE in (model or ""):
        _add_cache_marks(body, plan)
    if not plan.same_protocol and not request.plain:
        _encode_shared(request, body, plan)
        plan.report.report_foreign_extras(request, (FAMILY, SHARED_FAMILY))
    return EncodedBody(body, plan.report, plan.tools.mapping)


def _add_cache_marks(body: dict[str, Any], plan: DialectPlan) -> None:
    """Mark the end of the system text and of the conversation, unless the client set marks."""
    if plan.cache_marks or CACHE_FIELD in body:
        return
    reason = "Claude models cache only up to marks, which the source does not need"
    first, mark = body["messages"][0] if body["messages"] else {}, encode_cache(CacheMark())
    if first.get("role") in ("system", "developer"):
        content = first["content"]
        parts = [TextPart(text=content)] if isinstance(content, str) else content
        if parts and isinstance(last := parts[-1], TextPart):
            first["content"] = [*parts[:-1], {"type": "text", "text": last.text, CACHE_FIELD: mark}]
            plan.report.added((), "", f"/messages/0/content/{len(parts) - 1}/{CACHE_FIELD}", reason, severity="info")
    body[CACHE_FIELD] = mark
    plan.report.added((), "", f"/{CACHE_FIELD}", reason, severity="info")


def _encode_messages(request: Request, plan: DialectPlan) -> list[Any]:
    """Encode system text and turns as messages."""
    messages: list[Any] = []
    if request.system:
        located_parts = [LocatedPart(part, ("system", index)) for index, part in enumerate(request.system)]
        messages += encode_turn(Turn("system", located_parts, None, ("system",)), plan)
    for turn in adapt_turns(assemble(request, plan.report, supports_prefill=True), plan):
        plan.output_index = len(messages)
        messages += encode_turn(turn, plan)
    for index, message in enumerate(request.messages):
        if message.id is not None or message.phase is not None or message.clear_at is not None or message.status:
            reported = replace(message, id=None) if is_reasoning_item(message) else message
            report_message(reported, ("messages", index), plan)
    return messages


def _encode_settings(request: Request, body: dict[str, Any], plan: EncodingPlan) -> None:
    """Write sampling, reasoning, output format and `stream` into `body`."""
    sampling = request.sampling
    if sampling is not None:
        encode_sampling(replace(request, sampling=replace(sampling, top_k=None)), body, plan)
        if sampling.top_k is not None:
            body["top_k"] = sampling.top_k
    if request.thinking is not None and (reasoning := encode_thinking(request.thinking, plan)):
        if REASONING_FIELD in (request.extras or {}).get(FAMILY, {}):
            body["reasoning_effort"] = reasoning["effort"]  # Chat's field, beside the extra `reasoning`
        else:
            body[REASONING_FIELD] = reasoning
    encode_output(request, body, plan)
    stream = request.stream if plan.target.stream is None else plan.target.stream
    if stream is not None:
        body["stream"] = stream  # OpenRouter always sends usage


def _encode_other_fields(request: Request, body: dict[str, Any], plan: DialectPlan) -> None:
    """Write end user, labels, service tier and cache mark into `body`; report stored state as a loss."""
    report = plan.report
    if request.end_user is not None:
        body["user"] = encode_user(request.end_user, report)
    if request.labels is not None:
        body["metadata"] = request.labels
    if request.tier in SERVICE_TIERS:
        body["service_tier"] = request.tier
    elif request.tier == "standard_only":
        report.approximated((), "tier", "standard_only sent as default")
        body["service_tier"] = "default"
    elif request.tier is not None:
        report.dropped((), "tier", f"the target has no service tier {request.tier}")
    if (mark := request.cache or plan.last_mark) is not None:
        if mark.ttl not in CACHE_TTLS:
            report.approximated(("cache",), "ttl", f"{mark.ttl} sent as 1h")
            mark = replace(mark, ttl="1h")
        body[CACHE_FIELD] = encode_cache(mark)
    report_continuation(request, report, "the target does not store conversations")


def _encode_shared(request: Request, body: dict[str, Any], plan: EncodingPlan) -> None:
    """Write into `body` those fields that both OpenAI protocols have and OpenRouter accepts, for caching."""
    for name, value in (request.extras or {}).get(SHARED_FAMILY, {}).items():
        if name not in _SHARED_FIELDS:
            if f"{SHARED_FAMILY}:canonical:{name}" not in request.wire_form:
                plan.report.dropped((), f"//{name}")
            continue
        if name != "prompt_cache_options" or (members := _explicit_cache_options(value)) is None:
            body[name] = value
            continue
        if not members:
            plan.report.dropped((), f"//{name}", "the target supports only options of explicit caching")
            continue
        for option_name in [option_name for option_name in members if option_name not in _CACHE_OPTIONS]:
            plan.report.dropped((), f"//{name}/{escape_pointer(option_name)}")
        body[name] = {option: members[option] for option in _CACHE_OPTIONS if option in members}


def _explicit_cache_options(options: Raw) -> dict[str, Raw] | None:
    """Return the options of explicit caching.

    Return an empty dict if another mode is requested, None if `options` is not an object.
    """
    try:
        members = decode_members(options)
    except msgspec.DecodeError:
        return None
    return members if members.get("mode") == Raw(b'"explicit"') else {}
