"""Gemini's request body, to a canonical request and back. The model and whether to stream are in the address."""

import re
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from toolwire.canonical.content import Message, ToolCall
from toolwire.canonical.request import Continuation, Request
from toolwire.codec.computer import with_screens
from toolwire.codec.fields import BAD_JSON, Reader
from toolwire.codec.hosted import as_functions
from toolwire.codec.interface import Encoding, Route, Target
from toolwire.codec.kept import as_object, joined, known, restore, watching_extras
from toolwire.codec.losses import Report
from toolwire.codec.plan import Plan, Rules
from toolwire.codec.screens import on_screen
from toolwire.codec.tools import NameRules
from toolwire.codec.turns import leading_system
from toolwire.protocols.gemini.parts.messages import (
    NO_CONTENTS,
    decode_contents,
    decode_system,
    encode_contents,
    encode_system,
)
from toolwire.protocols.gemini.parts.ordinary import decode_ordinary
from toolwire.protocols.gemini.parts.spelling import NAMES, Spelling, spell
from toolwire.protocols.gemini.wire import FAMILY, GenerationShape, OrdinaryRequest, RequestShape, SdkShape

from .choice import decode_choice, encode_choice, tool_config
from .computer import SCREEN, computing
from .resources import is_legal_name, resource_path
from .settings import (
    decode_output,
    decode_sampling,
    decode_thinking,
    encode_output,
    encode_sampling,
    encode_thinking,
)
from .tools import HOSTED, NamePlan, decode_tools, encode_tools

__all__ = ["NAMES", "RULES", "decode_request", "encode_request"]

RULES = Rules(
    ids=re.compile(r"[\x20-\x7e]+"),
    id_limit=512,
    names=NameRules(re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]*"), 64),
    freeform=False,
)
_SDK = "gemini:sdk"
_OWN_MODEL = "gemini:body:model"
_HAD = "gemini:had:"
_TIERS = {name: name for name in ("flex", "priority", "standard")} | dict.fromkeys(
    ("default", "standard_only"), "standard"
)

_ordinary = msgspec.json.Decoder(OrdinaryRequest).decode
_read_request = Reader[RequestShape](RequestShape, FAMILY).read
_read_sdk = Reader[SdkShape](SdkShape, FAMILY).read


# ---- decode


def decode_request(body: bytes, route: Route) -> Request:
    with watching_extras() as extras:
        request = with_screens(computing(_decode_request(body, route)), SCREEN)
    return request if extras else replace(request, plain=True)


def _read_ordinary(body: bytes) -> tuple[RequestShape, tuple[Message, ...]] | None:
    """A request whose contents are all ordinary, and those: one typed pass."""
    try:
        shape = _ordinary(body)
    except BAD_JSON:
        return None
    messages = decode_ordinary(shape.contents)
    return None if messages is None else (shape, messages)


def _read_whole(body: bytes) -> RequestShape | SdkShape:
    shape = _read_request(body)
    if shape.unknown is not UNSET and bytes(shape.unknown.get("config", b""))[:1] == b"{":
        return _read_sdk(body)
    return shape


def _decode_request(body: bytes, route: Route) -> Request:
    ordinary = _read_ordinary(body)
    shape: RequestShape | SdkShape = _read_whole(body) if ordinary is None else ordinary[0]
    spelling = Spelling()
    spelling.read(shape)
    outer: Any = shape
    generation: Any = getattr(shape, "generation_config", UNSET)
    place, settings = "", "generationConfig/"
    if isinstance(shape, SdkShape):
        outer = generation = shape.config
        place = settings = "config/"
        spelling.read(outer, "config")
    elif generation is not UNSET:
        spelling.read(generation, "generationConfig")
    messages, form = decode_contents(shape.contents) if ordinary is None else (ordinary[1], ())
    system, more = decode_system(outer.system_instruction, spelling, place + "systemInstruction")
    tools, bags = decode_tools(outer.tools, spelling.source(place + "tools"))
    choice, config = _decode_config(outer.tool_config, spelling, place + "toolConfig")
    fields, rests = _decode_settings(generation, spelling, settings)
    form += bags + ((_SDK,) if isinstance(shape, SdkShape) else ())
    if shape.model is not UNSET:
        form += (_OWN_MODEL,)
    if generation is not UNSET and not fields and not isinstance(shape, SdkShape):
        form += (_HAD + "generationConfig",)
    objects = [(shape, "")] if outer is shape else [(shape, ""), (outer, "config")]
    if generation is not UNSET and generation is not outer:
        objects.append((generation, "generationConfig"))
    if tools == () and not bags:
        form += (_HAD + "tools",)
    kept = joined(spelling.kept("", *objects, form=form + spelling.named_at("Request", place)), more, config, *rests)
    return Request(
        origin=FAMILY,
        model=known(shape.model) if route.model is None else route.model,
        stream=route.stream,
        messages=messages,
        system=system,
        tools=tools,
        tool_choice=choice,
        continuation=_decode_continuation(outer, spelling, place),
        tier=known(outer.service_tier),
        labels=known(outer.labels),
        **fields,
        **kept,
    )


def _decode_config(config: Any, spelling: Spelling, place: str) -> tuple[Any, dict[str, Any]]:
    if config is UNSET:
        return None, {}
    spelling.read(config, place)
    choice = decode_choice(config, spelling, place)
    return choice, spelling.kept("", (config, place), form=() if choice else (_HAD + "toolConfig",))


def _decode_settings(generation: Any, spelling: Spelling, place: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if generation is UNSET:
        return {}, []
    fields: dict[str, Any] = {}
    sampling, odd = decode_sampling(generation, spelling, place)
    output, rest = decode_output(generation, spelling, place)
    rests = [odd, rest]
    if sampling is not None:
        fields["sampling"] = sampling
    if output is not None:
        fields["output"] = output
    if generation.thinking_config is not UNSET:
        fields["thinking"], more = decode_thinking(generation.thinking_config, spelling, place)
        rests.append(more)
    return fields, rests


def _decode_continuation(outer: Any, spelling: Spelling, place: str) -> Continuation | None:
    if outer.cached_content is UNSET and outer.store is UNSET:
        return None
    kind: Any = None if outer.cached_content is UNSET else "cache"
    form = spelling.named_at("Continuation", place)
    return Continuation(kind=kind, id=known(outer.cached_content), store=known(outer.store), form=form)


# ---- encode


def encode_request(request: Request, target: Target) -> Encoding:
    home = request.origin == FAMILY
    model = request.model if target.model is None else target.model
    plan = Plan(RULES, Report(), replace(target, model=model), home=home)
    plan.tools = NamePlan(RULES.names, freeform=False)
    request = on_screen(as_functions(request, plan, HOSTED), plan, SCREEN)
    # One content at least is wanted, so that system text alone is told in a user turn.
    lifted = 0 if home else min(leading_system(request.messages), max(len(request.messages) - 1, 0))
    tools, config = encode_tools(request, plan)
    any_functions = isinstance(tools, list) and any("functionDeclarations" in bag for bag in tools)
    calling = encode_choice(request, plan, any_functions=any_functions)
    outer: dict[str, Any] = {}
    if (system := encode_system(request, lifted, plan)) is not None:
        outer["systemInstruction"] = system
    if tools is not None:
        outer["tools"] = tools
    if (told := tool_config(calling, config)) is not None:
        outer["toolConfig"] = told
    _encode_outer(request, outer, plan)
    body: dict[str, Any] = {}
    contents = encode_contents(request, lifted, plan)
    if contents or NO_CONTENTS not in request.form:
        body["contents"] = contents
    generation = _encode_generation(request, plan)
    if _SDK in request.form:
        body["config"] = {**outer, **as_object(generation)}
    else:
        body.update(outer)
        if generation != GenerationShape():
            body["generationConfig"] = generation
    if _OWN_MODEL in request.form and model is not None:
        body["model"] = model
    if home:
        holder = body["config"] if _SDK in request.form else body
        for token in request.form:
            if token.startswith(_HAD):
                holder.setdefault(token.removeprefix(_HAD), [] if token.endswith("tools") else {})
        spell(body, request)
    else:
        _report_rest(request, plan)
    restore(body, request, FAMILY)
    if not plan.home and not request.plain:
        plan.report.unclaimed(request, (FAMILY,))
    if model is not None and not is_legal_name(model):
        why = "the name can't stand in a path: use the model's name without white space, '?', '#' or '..'"
        plan.report.dropped((), "model", why, guarded=True)
    return Encoding(body, plan.report, plan.tools.undo, _route(request, model, target))


def _route(request: Request, model: str | None, target: Target) -> Route:
    stream = request.stream if target.stream is None else target.stream
    method = ":streamGenerateContent?alt=sse" if stream else ":generateContent"
    path = None if model is None else f"/v1beta/{resource_path(model)}{method}"
    return Route(path=path, model=model, stream=stream)


def _encode_generation(request: Request, plan: Plan) -> GenerationShape:
    fields: dict[str, Any] = {}
    encode_sampling(request, fields, plan)
    encode_output(request, fields, plan)
    encode_thinking(request, fields, plan)
    return GenerationShape(**fields)


def _encode_outer(request: Request, outer: dict[str, Any], plan: Plan) -> None:
    state = request.continuation
    if state is not None:
        if state.id is not None and (plan.home or state.kind == "cache"):
            outer["cachedContent"] = state.id
        if state.store is not None:
            outer["store"] = state.store
    if request.labels is not None:
        outer["labels"] = request.labels
    if request.tier is None:
        return
    if plan.home:
        outer["serviceTier"] = request.tier
    elif request.tier in _TIERS:
        outer["serviceTier"] = _TIERS[request.tier]
        if _TIERS[request.tier] != request.tier:
            plan.report.approximated((), "tier", f"{request.tier} is told as {_TIERS[request.tier]}")
    else:
        plan.report.dropped((), "tier", f"the target has no tier {request.tier}")


def _report_rest(request: Request, plan: Plan) -> None:
    """What a request of another protocol can say and this one can't."""
    for index, message in enumerate(request.messages):
        if message.id is None and message.name is None and message.status is None and message.phase is None:
            if message.clear_at is not None:
                plan.report.dropped(("messages", index), "clear_at")
            continue
        for field in ("name", "id", "status", "phase", "clear_at"):
            if getattr(message, field) is not None and not (field == "id" and is_call_id(message)):
                plan.report.dropped(("messages", index), field)
    state = request.continuation
    if state is not None:
        if state.id is not None and state.kind != "cache":
            plan.report.dropped(("continuation",), "id", "the target holds no conversation of another provider's")
        if state.background:
            plan.report.dropped(("continuation",), "background")
    if request.end_user is not None:
        plan.report.dropped((), "end_user", "the target does not ask who its user is")
    if request.cache is not None:
        plan.report.dropped(("cache",), "", "the target finds out by itself what to keep")


def is_call_id(message: Message) -> bool:
    """Whether the message's id is that of a call in it, and so arrives."""
    return any(isinstance(part, ToolCall) and part.id == message.id for part in message.parts)
