"""Requests of OpenRouter: those of Chat Completions with the fields that OpenRouter adds."""

from operator import is_

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Media, Message, Part, Text, ToolResult
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.request import Request
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.interface import EncodedBody, Route, Target
from toolwire.codec.losses import LossReport
from toolwire.protocols.openai_chat import request as chat
from toolwire.protocols.openai_chat.parts.details import represented_tokens
from toolwire.protocols.openai_chat.settings import REASONING_FIELD, encode_reasoning_settings
from toolwire.protocols.openai_chat.wire import FAMILY
from toolwire.protocols.openrouter.errors import with_protocol_name
from toolwire.protocols.openrouter.settings import decode_cache, decode_thinking
from toolwire.protocols.openrouter.tools import OPENROUTER, decode_choice, decode_plugins, decode_tool

FIRST_MODEL = "openai-chat:model:first"
_decode_names = msgspec.json.Decoder(list[str]).decode


# ---- decode


def decode_request(body: bytes, route: Route) -> Request:
    """Decode a request body."""
    try:
        request = chat.decode_request(body, route)
    except DecodeError as error:
        raise with_protocol_name(error) from None
    return replace(_decode_added_fields(request), origin=OPENROUTER.protocol)


def _decode_added_fields(request: Request) -> Request:
    """Return the request with OpenRouter's additions decoded, which Chat's decoder leaves in the extras."""
    if request.tools is not None:
        request = replace(request, tools=tuple([decode_tool(tool) for tool in request.tools]))
    request = decode_cache(request)
    extras = dict((request.extras or {}).get(FAMILY, {}))
    request = replace(request, messages=tuple([_decode_marks(message) for message in request.messages]))
    for decode_field in (_decode_reasoning, _decode_models, _decode_plugins, _decode_tool_choice):
        request = decode_field(request, extras)
    families = {**(request.extras or {}), FAMILY: extras}
    return replace(request, extras={name: fields for name, fields in families.items() if fields} or None)


def _decode_marks(message: Message) -> Message:
    """Return a message with the cache marks of its texts and media decoded, including those in results."""
    parts = tuple([_decode_mark(part) for part in message.parts])
    return message if all(map(is_, parts, message.parts)) else replace(message, parts=parts)


def _decode_mark(part: Part) -> Part:
    """Return a text or media, or those in a result, with its cache mark decoded; other parts unchanged."""
    if isinstance(part, Text | Media):
        return decode_cache(part)
    if isinstance(part, ToolResult) and part.content:
        content = tuple([_decode_mark(inner) for inner in part.content])
        return part if all(map(is_, content, part.content)) else replace(part, content=content)
    return part


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
    if not target.host.reasoning.details:
        target = replace(target, host=OPENROUTER.host)
    if request.origin == OPENROUTER.protocol:
        request = _restore_settings(request, target)
    encoding = chat.encode_request(request, target, OPENROUTER)
    encoding.route = Route(path=OPENROUTER.path, headers=_application_headers(target))
    return encoding


def _application_headers(target: Target) -> tuple[tuple[str, str], ...]:
    """Return the headers that identify the application in OpenRouter's rankings.

    The title is also sent as `X-Title`, its former name, which older hosts read.
    """
    headers = () if target.site is None else (("HTTP-Referer", target.site),)
    if target.title is None:
        return headers
    return (*headers, ("X-Title", target.title), ("X-OpenRouter-Title", target.title))


def _restore_settings(request: Request, target: Target) -> Request:
    """Return an OpenRouter client's request with its settings only in the extras, from which they are written."""
    fields, thinking = dict((request.extras or {}).get(FAMILY, {})), request.thinking
    if represented_tokens(REASONING_FIELD)[0] in request.wire_form and REASONING_FIELD in fields:
        if thinking is not None and thinking != decode_thinking(fields[REASONING_FIELD]):
            plan = EncodingPlan(chat.ID_AND_NAME_RULES, LossReport(), target, same_protocol=True)
            fields[REASONING_FIELD] = Raw(msgspec.json.encode(encode_reasoning_settings(thinking, plan)))
        thinking = None
    model = None if FIRST_MODEL in request.wire_form else request.model
    return replace(request, model=model, thinking=thinking, extras={**(request.extras or {}), FAMILY: fields})
