"""OpenRouter's request body: Chat's, and what it adds, to a canonical request and back."""

from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.errors import DecodeError
from toolwire.canonical.request import Request
from toolwire.codec.fields import escape
from toolwire.codec.hosted import as_functions
from toolwire.codec.interface import Encoding, Route, Target
from toolwire.codec.kept import restore
from toolwire.codec.losses import Report
from toolwire.codec.plan import Plan, Rules
from toolwire.codec.screen_function import FUNCTION
from toolwire.codec.screens import on_screen, screened
from toolwire.codec.turns import Placed, Turn, assemble
from toolwire.protocols.openai import encode_user
from toolwire.protocols.openai_chat.parts.messages import report_message
from toolwire.protocols.openai_chat.request import body as chat
from toolwire.protocols.openai_chat.request.settings import encode_output, encode_sampling
from toolwire.protocols.openai_chat.wire import FAMILY, SHARED
from toolwire.protocols.openrouter.parts.details import told
from toolwire.protocols.openrouter.parts.messages import DialectPlan, encode_turn, is_item, lift, lower

from .settings import CACHE, REASONING, TTLS, encode_cache, encode_thinking, lift_cache, lift_thinking
from .tools import HOSTED, encode_choice, encode_tools, lift_choice, lift_plugins, lift_tool

PROTOCOL = "openrouter"
PATH = "/api/v1/chat/completions"

RULES = Rules(ids=chat.RULES.ids, id_limit=chat.RULES.id_limit, names=chat.RULES.names, freeform=False)
NAMES = chat.NAMES

FIRST_MODEL = "openai-chat:model:first"
TIERS = ("auto", "default", "fast", "flex", "priority", "scale", "ultrafast")
_SHARED_FIELDS = ("prompt_cache_key", "prompt_cache_options")
_CACHE_OPTIONS = ("mode", "ttl")

_members = msgspec.json.Decoder(dict[str, Raw]).decode
_names = msgspec.json.Decoder(list[str]).decode


# ---- decode


def decode_request(body: bytes, route: Route) -> Request:
    try:
        request = chat.decode_request(body, route)
    except DecodeError as error:
        raise renamed(error) from None
    return replace(_lift(request), origin=PROTOCOL)


def renamed(error: DecodeError) -> DecodeError:
    return DecodeError(PROTOCOL, error.path, error.expected, error.got)


def _lift(request: Request) -> Request:
    changed: dict[str, Any] = {}
    if request.tools is not None:
        changed["tools"] = tuple([lift_tool(tool) for tool in request.tools])
    if request.plain:
        return replace(request, **changed) if changed else request
    request = lift_cache(request)
    own = dict((request.extras or {}).get(FAMILY, {}))
    form = request.form
    changed["messages"] = tuple([lift(message) for message in request.messages])
    if REASONING in own and request.thinking is None and (thinking := lift_thinking(own[REASONING])) is not None:
        changed["thinking"] = thinking
        form += told(REASONING)
    if request.model is None and (models := _names_of(own.get("models"))):
        changed["model"] = models[0]
        form += (FIRST_MODEL, *told("models"))
        # The first is the model; those that stand in for it are still only OpenRouter's.
        own |= {f"models/{index}": Raw(msgspec.json.encode(name)) for index, name in enumerate(models) if index}
    if "plugins" in own:
        plugins, others = lift_plugins(own["plugins"])
        if plugins:
            changed["tools"] = (*(changed.get("tools") or ()), *plugins)
            form += told("plugins")
            own |= {f"plugins/{index}": Raw(b"{}") for index in others}
    choice = request.tool_choice
    if "tool_choice" in own and (choice is None or choice.mode is None):
        lifted = lift_choice(own["tool_choice"], parallel=None if choice is None else choice.parallel)
        if lifted is not None:
            changed["tool_choice"] = lifted
            del own["tool_choice"]
    extras = {**(request.extras or {}), FAMILY: own}
    return replace(request, **changed, extras={name: kept for name, kept in extras.items() if kept} or None, form=form)


def _names_of(raw: Raw | None) -> list[str]:
    try:
        return [] if raw is None else _names(raw)
    except msgspec.DecodeError:
        return []


# ---- encode


def encode_request(request: Request, target: Target) -> Encoding:
    encoding = _encode_own(request, target) if request.origin == PROTOCOL else _encode_other(request, target)
    encoding.route = Route(path=PATH, headers=_headers(target))
    return encoding


def _headers(target: Target) -> tuple[tuple[str, str], ...]:
    """Who asks, for the rankings of applications; the title also under its old name, which older hosts look for."""
    headers = () if target.site is None else (("HTTP-Referer", target.site),)
    if target.title is None:
        return headers
    return (*headers, ("X-Title", target.title), ("X-OpenRouter-Title", target.title))


def _encode_own(request: Request, target: Target) -> Encoding:
    if request.plain:
        return chat.encode_request(replace(request, origin=FAMILY), target)
    messages = tuple([lower(message) for message in request.messages])
    own = dict((request.extras or {}).get(FAMILY, {}))
    thinking = request.thinking
    if told(REASONING)[0] in request.form and REASONING in own:
        if thinking is not None and thinking != lift_thinking(own[REASONING]):
            plan = Plan(RULES, Report(), target, home=True)
            own[REASONING] = Raw(msgspec.json.encode(encode_thinking(thinking, plan)))
        thinking = None
    extras = {**(request.extras or {}), FAMILY: own}
    model = None if FIRST_MODEL in request.form else request.model
    lowered = replace(request, origin=FAMILY, model=model, messages=messages, thinking=thinking, extras=extras)
    return chat.encode_request(lowered, target)


def _encode_other(request: Request, target: Target) -> Encoding:
    model = request.model if target.model is None else target.model
    plan = DialectPlan(RULES, target, model, request.messages)
    request = on_screen(as_functions(request, plan, HOSTED), plan, FUNCTION)
    tools = encode_tools(request, plan)
    body: dict[str, Any] = {} if model is None else {"model": model}
    body["messages"] = _encode_messages(request, plan)
    if tools:
        body["tools"] = tools
    body.update(encode_choice(request, plan, any_tools=bool(tools)))
    _encode_settings(request, body, plan)
    _encode_rest(request, body, plan)
    for node in (request, request.sampling):
        restore(body, node, FAMILY)
    if not plan.home and not request.plain:
        _encode_shared(request, body, plan)
        plan.report.unclaimed(request, (FAMILY, SHARED))
    return Encoding(body, plan.report, plan.tools.undo)


def _encode_messages(request: Request, plan: DialectPlan) -> list[Any]:
    messages: list[Any] = []
    if request.system:
        places = [Placed(part, ("system", index)) for index, part in enumerate(request.system)]
        messages += encode_turn(Turn("system", places, None, ("system",)), plan)
    for turn in screened(assemble(request, plan.report, continues=True), plan):
        plan.count = len(messages)
        messages += encode_turn(turn, plan)
    for index, message in enumerate(request.messages):
        if message.id is not None or message.phase is not None or message.clear_at is not None or message.status:
            named = replace(message, id=None) if is_item(message) else message
            report_message(named, ("messages", index), plan)
    return messages


def _encode_settings(request: Request, body: dict[str, Any], plan: Plan) -> None:
    sampling = request.sampling
    if sampling is not None:
        encode_sampling(replace(request, sampling=replace(sampling, top_k=None)), body, plan)
        if sampling.top_k is not None:
            body["top_k"] = sampling.top_k
    if request.thinking is not None and (reasoning := encode_thinking(request.thinking, plan)):
        if REASONING in (request.extras or {}).get(FAMILY, {}):
            body["reasoning_effort"] = reasoning["effort"]  # Chat's own word for it, and this protocol's beside it
        else:
            body[REASONING] = reasoning
    encode_output(request, body, plan)
    stream = request.stream if plan.target.stream is None else plan.target.stream
    if stream is not None:
        body["stream"] = stream  # usage is always sent


def _encode_rest(request: Request, body: dict[str, Any], plan: Plan) -> None:
    report = plan.report
    if request.end_user is not None:
        body["user"] = encode_user(request.end_user, report)
    if request.labels is not None:
        body["metadata"] = request.labels
    if request.tier in TIERS:
        body["service_tier"] = request.tier
    elif request.tier == "standard_only":
        report.approximated((), "tier", "standard_only is told as default")
        body["service_tier"] = "default"
    elif request.tier is not None:
        report.dropped((), "tier", f"the target has no tier {request.tier}")
    if request.cache is not None:
        mark = request.cache
        if mark.ttl not in TTLS:
            report.approximated(("cache",), "ttl", f"{mark.ttl} is told as 1h")
            mark = replace(mark, ttl="1h")
        body[CACHE] = encode_cache(mark)
    state = request.continuation
    if state is None:
        return
    if state.id is not None:
        report.dropped(("continuation",), "id", "the target holds no conversation")
    if state.store:
        report.dropped(("continuation",), "store", "the target stores nothing")
    if state.background:
        report.dropped(("continuation",), "background")


def _encode_shared(request: Request, body: dict[str, Any], plan: Plan) -> None:
    """The fields that OpenAI's two protocols share: it takes those that cache."""
    for name, value in (request.extras or {}).get(SHARED, {}).items():
        if name not in _SHARED_FIELDS:
            if f"{SHARED}:told:{name}" not in request.form:
                plan.report.dropped((), f"//{name}")
            continue
        if name != "prompt_cache_options" or (members := _explicit(value)) is None:
            body[name] = value
            continue
        if not members:
            plan.report.dropped((), f"//{name}", "the target has options of explicit caching only")
            continue
        for other in [other for other in members if other not in _CACHE_OPTIONS]:
            plan.report.dropped((), f"//{name}/{escape(other)}")
        body[name] = {option: members[option] for option in _CACHE_OPTIONS if option in members}


def _explicit(options: Raw) -> dict[str, Raw] | None:
    """The options of explicit caching; none if another is asked for, None if this is no object."""
    try:
        members = _members(options)
    except msgspec.DecodeError:
        return None
    return members if members.get("mode") == Raw(b'"explicit"') else {}
