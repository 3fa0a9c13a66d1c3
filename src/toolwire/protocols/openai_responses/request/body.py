"""The Responses API's request body, to a canonical request and back."""

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import Message, Text
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool, Tool
from toolwire.codec.computer import with_screens
from toolwire.codec.fields import BAD_JSON, Reader, escape
from toolwire.codec.hosted import as_functions
from toolwire.codec.interface import Encoding, Route, Target
from toolwire.codec.kept import given, known, rest, restore
from toolwire.codec.losses import Report, has_extras
from toolwire.codec.plan import Rules
from toolwire.codec.screens import on_screen, screened
from toolwire.codec.tools import NameRules
from toolwire.codec.turns import Turn, as_written, assemble, leading_system
from toolwire.protocols.openai import IDENTIFIED, encode_user, identified
from toolwire.protocols.openai_responses.parts.computer import SCREEN
from toolwire.protocols.openai_responses.parts.messages import ItemReader, encode_items
from toolwire.protocols.openai_responses.parts.ordinary import decode_ordinary, encode_at_home, encode_elsewhere
from toolwire.protocols.openai_responses.parts.plan import ItemPlan
from toolwire.protocols.openai_responses.wire import (
    ECHO,
    FAMILY,
    GUARDED,
    SHARED,
    OrdinaryRequest,
    ReasoningItem,
    RequestShape,
)

from .choice import CHOICES, decode_choice, encode_choice, encode_parallel
from .settings import (
    LOGPROBS,
    decode_continuation,
    decode_output,
    decode_sampling,
    decode_thinking,
    encode_continuation,
    encode_output,
    encode_sampling,
    encode_thinking,
    included,
)
from .tools import HOSTED, decode_tools, encode_tools

FAMILIES = (FAMILY, SHARED, GUARDED, ECHO)
RULES = Rules(
    ids=re.compile(r".+", re.DOTALL),
    id_limit=64,
    names=NameRules(re.compile(r"[a-zA-Z0-9_-]+"), 64),
    freeform=True,
)
NAMES = {
    "Request.messages": "/input",
    "Request.system": "/instructions",
    "Request.sampling": "",
    "Request.thinking": "",
    "Request.output": "",
    "Request.continuation": "",
    "Request.end_user": "/user",
    "Request.tier": "/service_tier",
    "Request.labels": "/metadata",
    "Sampling.max_tokens": "/max_output_tokens",
    "Thinking.effort": "/reasoning/effort",
    "Thinking.visibility": "/reasoning/summary",
    "Thinking.summary": "/reasoning/summary",
    "OutputFormat.kind": "/text/format/type",
    "OutputFormat.schema": "/text/format/schema",
    "OutputFormat.name": "/text/format/name",
    "OutputFormat.description": "/text/format/description",
    "OutputFormat.strict": "/text/format/strict",
    "OutputFormat.verbosity": "/text/verbosity",
    "Continuation.id": "/previous_response_id",
    "ToolChoice.mode": "",
    "ToolChoice.names": "",
    "ToolChoice.required": "/mode",
    "ToolChoice.parallel": "//parallel_tool_calls",
    "McpServer.name": "/server_label",
    "McpServer.url": "/server_url",
    "McpServer.description": "/server_description",
    "McpServer.allowed": "/allowed_tools",
    "FunctionTool.defer": "/defer_loading",
    "FunctionTool.asynchronous": "/async",
    "FreeformTool.defer": "/defer_loading",
    "FreeformTool.asynchronous": "/async",
    "FreeformTool.grammar": "/format",
    "Message.parts": "/content",
    "Text.cache": "/prompt_cache_breakpoint",
    "Media.cache": "/prompt_cache_breakpoint",
    "Media.source": "/image_url",
    "Media.media_type": "/image_url",
    "Media.name": "/filename",
    "Citation.start": "/start_index",
    "Citation.end": "/end_index",
    "Refusal.text": "/refusal",
    "Computer.width": "/display_width",
    "Computer.height": "/display_height",
    "ToolCall.id": "/call_id",
    "ToolCall.asynchronous": "/async",
    "ToolResult.content": "/output",
    "ToolResult.status": "/output",
    "Caller.kind": "/type",
    "Caller.id": "/caller_id",
    "ToolChange.add": "/tools",
    "SettingChange.thinking": "",
    "SettingChange.output": "",
    "Response.candidates": "",
    "Response.created": "/created_at",
    "Response.continuation": "/conversation",
    "Candidate.messages": "/output",
    "Candidate.stop": "",
    "Stop.reason": "/status",
    "Stop.raw": "/status",
    "Usage.cache_read": "/input_tokens_details/cached_tokens",
    "Usage.cache_write": "/input_tokens_details/cache_write_tokens",
    "Usage.reasoning": "/output_tokens_details/reasoning_tokens",
    "Usage.total": "/total_tokens",
    "Usage.searches": "//tool_usage/web_search/num_requests",
    "ApiError.message": "/error/message",
    "ApiError.raw": "/error/type",
    "ApiError.code": "/error/code",
    "ApiError.param": "/error/param",
}

_SHARED = ("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "moderation", "safety_identifier")
_OBFUSCATION = "stream_options/include_obfuscation"
_INCLUDED = FAMILY + ":included"
_LOGPROBS = Raw(msgspec.json.encode(LOGPROBS))
_INPUT_STRING = "openai-responses:input:string"
_SAME_ROLES = ("openai-chat", "openrouter")
_INPUT_ABSENT = "openai-responses:input:absent"
_LISTED = "openai-responses:instructions:list"
TIERS = ("auto", "default", "flex", "scale", "priority", "fast", "ultrafast")

_ordinary = msgspec.json.Decoder(OrdinaryRequest).decode
_read_request = Reader[RequestShape](RequestShape, FAMILY).read


# ---- decode


def decode_request(body: bytes, route: Route) -> Request:
    if (ordinary := _decode_ordinary(body, route)) is not None:
        return ordinary
    # Documentation often shows the items alone.
    shape = _read_request(b'{"input":%b}' % body if body.lstrip()[:1] == b"[" else body)
    tools = None if shape.tools is UNSET else decode_tools(shape.tools)
    reader = ItemReader(tools)
    messages = _decode_input(shape, reader)
    request = _decode_around(shape, tools, route)
    plain = not has_extras(request) and not any(map(has_extras, reader.odd))
    return with_screens(replace(request, messages=messages, plain=plain), SCREEN)


def _decode_ordinary(body: bytes, route: Route) -> Request | None:
    """A request whose items and tools are all ordinary: one typed pass."""
    try:
        shape = _ordinary(body)
    except BAD_JSON:
        return None
    messages = [decode_ordinary(item) for item in shape.input]
    tools = None if shape.tools is UNSET else decode_tools(shape.tools)
    if None in messages or not {FunctionTool}.issuperset(map(type, tools or ())):
        return None
    request = _decode_around(shape, tools, route)
    return replace(request, messages=tuple(messages), plain=not has_extras(request))


def _decode_around(shape: RequestShape, tools: tuple[Tool, ...] | None, route: Route) -> Request:
    """All but the messages."""
    instructions, kept = shape.instructions, dict(_decode_rest(shape))
    return Request(
        origin=FAMILY,
        model=known(shape.model) if shape.model is not UNSET else route.model,
        system=(Text(text=instructions, at="/instructions"),) if isinstance(instructions, str) else None,
        tools=tools,
        tool_choice=decode_choice(shape.tool_choice, parallel=known(shape.parallel_tool_calls)),
        sampling=decode_sampling(shape),
        thinking=decode_thinking(shape.reasoning),
        output=decode_output(shape.text),
        continuation=decode_continuation(shape),
        stream=known(shape.stream),
        end_user=identified(known(shape.user), kept),
        tier=known(shape.service_tier),
        labels=None if _is_null(shape.metadata) else known(shape.metadata),
        **kept,
    )


def _decode_input(shape: RequestShape, reader: ItemReader) -> tuple[Message, ...]:
    messages: tuple[Message, ...] = ()
    if isinstance(shape.instructions, list):
        # Items before all others: the echo of a stored prompt has this form.
        led = reader.read_all(shape.instructions, "/instructions")
        messages = tuple(
            replace(one, at=f"/instructions/{index}", form=(*one.form, _LISTED)) for index, one in enumerate(led)
        )
    if isinstance(shape.input, str):
        said = Text(text=shape.input, at="/input")
        return (*messages, Message(role="user", parts=(said,), at="", form=(_INPUT_STRING,)))
    if shape.input is UNSET:
        return messages
    items = reader.read_all(shape.input, "/input")
    if not messages:
        return items
    return (*messages, *(replace(one, at=f"/input/{index}") for index, one in enumerate(items)))


def _decode_rest(shape: RequestShape) -> dict[str, Any]:
    form = [_INPUT_ABSENT] if shape.input is UNSET else []
    if isinstance(shape.instructions, list):
        form.append(_LISTED)
    if _is_null(shape.metadata):
        form.append(f"{FAMILY}:null:metadata")
    kept = rest(shape, FAMILY, *form)
    extras: dict[str, Raw] = dict(kept.get("extras", {}).get(FAMILY, {}))
    if isinstance(shape.tool_choice, str) and shape.tool_choice not in CHOICES:
        extras["tool_choice"] = Raw(msgspec.json.encode(shape.tool_choice))
    if shape.conversation is not UNSET and shape.previous_response_id is not UNSET:
        extras["conversation"] = Raw(msgspec.json.encode(shape.conversation))
    if not extras:
        return kept
    shared = {name: extras.pop(name) for name in _SHARED if name in extras}
    if "prompt_cache_options" in shared:
        shared["prompt_cache_options"] = _split_cache_options(shared["prompt_cache_options"], extras)
    shared |= _split_stream_options(extras)
    families = {FAMILY: extras} if extras else {}
    if words := included(shape):
        # At home the list is written back; elsewhere the rest of it is lost.
        others = {f"include/{place}": Raw(msgspec.json.encode(word)) for place, word in enumerate(words)}
        families[_INCLUDED] = {place: word for place, word in others.items() if word != _LOGPROBS}
        kept = {**kept, "form": (*kept.get("form", ()), f"{FAMILY}:told:include")}
    return {**kept, "extras": {**families, SHARED: shared} if shared else families}


def _split_cache_options(raw: Raw, extras: dict[str, Raw]) -> Raw:
    """What both of OpenAI's protocols know of the options; the rest becomes this one's own."""
    if bytes(raw)[:1] != b"{":
        return raw
    options = msgspec.json.decode(raw, type=dict[str, Raw])
    own = {name: value for name, value in options.items() if name not in ("mode", "ttl")}
    extras.update((f"prompt_cache_options/{escape(name)}", value) for name, value in own.items())
    both = {name: value for name, value in options.items() if name not in own}
    return Raw(msgspec.json.encode(both)) if own else raw


def _split_stream_options(extras: dict[str, Raw]) -> dict[str, Raw]:
    """What both of OpenAI's protocols know of the stream's options, taken out of what is this one's own."""
    raw = extras.get("stream_options", Raw(b""))
    if bytes(raw)[:1] != b"{" or "include_obfuscation" not in (
        options := msgspec.json.decode(raw, type=dict[str, Raw])
    ):
        return {}
    del extras["stream_options"]
    extras.update((f"stream_options/{escape(name)}", value) for name, value in options.items())
    return {_OBFUSCATION: extras.pop(_OBFUSCATION)}


def _is_null(raw: Raw | UnsetType) -> bool:
    return raw is not UNSET and bytes(raw) == b"null"


# ---- encode


def encode_request(request: Request, target: Target) -> Encoding:
    plan = ItemPlan(RULES, Report(), target, home=request.origin == FAMILY)
    request = on_screen(as_functions(request, plan, HOSTED), plan, SCREEN)
    body: dict[str, Any] = {}
    if (model := target.model or request.model) is not None:
        body["model"] = model
    tools = encode_tools(request, plan)
    _encode_system(request, body, plan)
    _encode_input(request, body, plan)
    if tools is not None:
        body["tools"] = tools
    any_tools = bool(tools)
    body["tool_choice"] = encode_choice(request, plan, any_tools=any_tools)
    body["parallel_tool_calls"] = encode_parallel(request, plan, any_tools=any_tools)
    encode_sampling(request, body, plan)
    body["reasoning"] = encode_thinking(request.thinking, ("thinking",), plan)
    body["text"] = encode_output(request.output, ("output",), plan)
    encode_continuation(request, body, plan)
    body["stream"] = given(request.stream if target.stream is None else target.stream)
    if request.end_user is not None and IDENTIFIED[0] not in request.form:
        body["user"] = request.end_user if plan.home else encode_user(request.end_user, plan.report)
    body["service_tier"] = _encode_tier(request, plan)
    body["metadata"] = given(request.labels)
    if request.cache is not None:
        plan.report.dropped((), "cache", "the target chooses itself what to keep")
    body = {name: value for name, value in body.items() if value is not UNSET}
    if not plan.home and "store" not in body and any(isinstance(item, ReasoningItem) for item in body["input"]):
        body["store"] = False
        plan.report.invented((), "", "/store", "reasoning is sent sealed: the provider must not look for it by name")
    restore(body, request, SHARED)
    for node in (request, request.thinking, request.output, request.continuation):
        restore(body, node, FAMILY)
    if not plan.home and not request.plain:
        plan.report.unclaimed(request, FAMILIES)
    return Encoding(body, plan.report, plan.tools.undo, Route(path="/v1/responses"))


def _encode_system(request: Request, body: dict[str, Any], plan: ItemPlan) -> None:
    system = request.system
    if system is None:
        return
    if plan.home:
        body["instructions"] = "\n\n".join(text.text for text in system)
        return
    for index, text in enumerate(system):
        if text.cache is not None:
            plan.report.dropped(("system", index), "cache", "the target marks no instructions")
        for number in range(len(text.annotations or ())):
            plan.report.dropped(("system", index, "annotations", number), "")
        if index:
            plan.report.approximated(("system", index), "", "told in one text with what stands before it")
    if system:
        body["instructions"] = "\n\n".join(text.text for text in system)


def _encode_input(request: Request, body: dict[str, Any], plan: ItemPlan) -> None:
    messages = request.messages
    if plan.home:
        led = [message for message in messages if _LISTED in message.form]
        if _LISTED in request.form:
            body["instructions"] = [item for turn in as_written(tuple(led)) for item in encode_turn(turn, plan)]
        rest_of_it = [turn for turn in as_written(messages) if turn.message is None or _LISTED not in turn.message.form]
        if len(rest_of_it) == 1 and (text := _bare_string(rest_of_it[0].message)) is not None:
            body["input"] = text
        elif rest_of_it or _INPUT_ABSENT not in request.form:
            body["input"] = [item for turn in rest_of_it for item in encode_turn(turn, plan)]
        return
    for index, message in enumerate(messages):
        if message.name is not None or message.id is not None or message.clear_at is not None:
            for field in ("name", "id", "clear_at"):
                if getattr(message, field) is not None:
                    plan.report.dropped(("messages", index), field)
    turns = screened(assemble(request, plan.report), plan)
    leading = leading_system(messages)
    if request.origin not in _SAME_ROLES:
        turns = turns[:leading] + [_as_developer(turn) for turn in turns[leading:]]
    body["input"] = [item for turn in turns for item in encode_turn(turn, plan)]


def settings_of(request: Request) -> Request:
    """The request without what is said in it."""
    return replace(request, messages=tuple([message for message in request.messages if _LISTED in message.form]))


def _bare_string(message: Message | None) -> str | None:
    """The text of a message that came as the whole input, and still is no more than that."""
    if message is None or _INPUT_STRING not in message.form or len(message.parts) != 1:
        return None
    only = message.parts[0]
    return only.text if isinstance(only, Text) and not only.extras and only.cache is None else None


def _as_developer(turn: Turn) -> Turn:
    """System text within a conversation is a developer's, unless OpenAI's own roles were used."""
    return Turn("developer", turn.placed, turn.message, turn.trail) if turn.role == "system" else turn


def encode_turn(turn: Turn, plan: ItemPlan) -> list[Any]:
    """The items of one turn."""
    message = turn.message
    if message is None:
        return encode_items(turn.parts, plan, Message(role=turn.role, parts=()))
    if plan.home:
        ordinary = encode_at_home(message, plan)
        return encode_items(turn.parts, plan, message) if ordinary is None else [ordinary]
    if turn.placed is None and (plain := encode_elsewhere(message.parts, turn.role, plan)) is not None:
        return plain
    return encode_items(turn.parts, plan, Message(role=turn.role, parts=(), phase=message.phase))


def _encode_tier(request: Request, plan: ItemPlan) -> Any:
    tier = request.tier
    if tier is None or plan.home or tier in TIERS:
        return given(tier)
    if tier == "standard_only":
        plan.report.approximated((), "tier", "standard_only is told as default")
        return "default"
    plan.report.dropped((), "tier", f"the target has no tier {tier}")
    return UNSET
