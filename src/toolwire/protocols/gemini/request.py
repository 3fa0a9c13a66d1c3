"""Decode and encode `generateContent` requests, model resource names and `countTokens` bodies.

The path holds the model and whether to stream. The client chooses the model name, and the gateway sends the path with
the owner's API key: a name must therefore fill its own segments and never select another path. google-genai rejects
`..`, `?` and `&` for the same reason.
"""

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.canonical.errors import DecodeError
from toolwire.canonical.request import Continuation, Request
from toolwire.codec.encoding.computer import decode_computer_use
from toolwire.codec.encoding.computer_request import use_target_tool
from toolwire.codec.encoding.fallbacks import report_message_fields
from toolwire.codec.encoding.hosted_tools import substitute_functions
from toolwire.codec.encoding.hosts import fit_fields
from toolwire.codec.encoding.plan import EncodingPlan, IdAndNameRules, resolve_target
from toolwire.codec.encoding.tools import NameRules
from toolwire.codec.encoding.turns import leading_system_count
from toolwire.codec.interface import EncodedBody, Route, Target
from toolwire.codec.losses import LossReport
from toolwire.codec.models.gemini import gemini_info
from toolwire.codec.token_count import TokenCountApi
from toolwire.codec.wire.extras import as_dict, merge_extras, restore_extras, unset_to_none
from toolwire.codec.wire.reader import Reader
from toolwire.protocols.gemini.field_case import WIRE_NAMES, FieldCase, restore_case
from toolwire.protocols.gemini.parts.messages import (
    NO_CONTENTS,
    decode_contents,
    decode_system,
    encode_contents,
    encode_system,
)
from toolwire.protocols.gemini.settings import (
    decode_output,
    decode_sampling,
    decode_thinking,
    encode_output,
    encode_sampling,
    encode_thinking,
)
from toolwire.protocols.gemini.tools import (
    COMPUTER_USE,
    HOSTED_TOOLS,
    NamePlan,
    decode_choice,
    decode_tools,
    encode_choice,
    encode_tool_config,
    encode_tools,
    with_computer,
)
from toolwire.protocols.gemini.wire import FAMILY, GenerationShape, RequestShape, SdkShape

_MAX_NAME_LENGTH = 512
_PLAIN_NAME = re.compile(r"(?:models/)?[A-Za-z0-9][A-Za-z0-9_.@-]*")
_RESOURCE_NAME = re.compile(
    r"(?:models|tunedModels)/[^/]+"
    r"|(?:projects/[^/]+/locations/[^/]+/)?publishers/[^/]+/models/[^/]+"
    r"|projects/[^/]+/locations/[^/]+/endpoints/[^/]+"
)
_RESERVED_CHARACTERS = re.compile(r"[^A-Za-z0-9_.~@-]+")
_PERCENT_ENCODED = re.compile(rb"%([0-9A-F]{2})")
_ILLEGAL_NAME = re.compile(r"[\s\x00-\x1f\x7f-\x9f?#\\\ud800-\udfff]|(?:^|/)\.{0,2}(?:/|$)")

_LEGAL_NAME = "a model name without white space, '?', '#' or '..'"


def is_legal_name(model: str) -> bool:
    """Check that a model name can stand in a path: no white space, `?`, `#`, or empty or dot segments."""
    is_plain = not model or _PLAIN_NAME.fullmatch(model) is not None
    return len(model) <= _MAX_NAME_LENGTH and (is_plain or _ILLEGAL_NAME.search(model) is None)


def resource_path(model: str) -> str:
    """Return the resource name for a path as google-genai builds it, with each segment percent-encoded.

    The vendor prefix `google/`, which routers add, is removed.
    """
    if _PLAIN_NAME.fullmatch(model):
        return model if model.startswith("models/") else f"models/{model}"
    segments = model.split("/") if _RESOURCE_NAME.fullmatch(model) else ["models", model.removeprefix("google/")]
    return "/".join(_RESERVED_CHARACTERS.sub(_percent_encode, segment) for segment in segments)


def resource_name(path: str) -> str:
    """Decode a path that `resource_path` encoded."""
    return _PERCENT_ENCODED.sub(lambda match: bytes.fromhex(match[1].decode()), path.encode()).decode()


def _percent_encode(match: re.Match[str]) -> str:
    """Percent-encode the characters of one match."""
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "replace"))


__all__ = ["ID_AND_NAME_RULES", "WIRE_NAMES", "decode_request", "encode_request"]

ID_AND_NAME_RULES = IdAndNameRules(
    id_pattern=re.compile(r"[\x20-\x7e]+"),
    id_limit=512,
    names=NameRules(re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]*"), 64),
    freeform=False,
)
_SDK_FORM = "gemini:sdk"
_BODY_MODEL = "gemini:body:model"
_FIELD_FORM = "gemini:had:"
_SERVICE_TIERS = {name: name for name in ("flex", "priority", "standard")} | dict.fromkeys(
    ("default", "standard_only"), "standard"
)

_read_request = Reader[RequestShape](RequestShape, FAMILY).read
_read_sdk = Reader[SdkShape](SdkShape, FAMILY).read

# ---- decode


def decode_request(body: bytes, route: Route) -> Request:
    """Decode a request body; the route gives the model and whether to stream."""
    return decode_computer_use(with_computer(_decode_request(body, route)), COMPUTER_USE)


def _read_shape(body: bytes) -> RequestShape | SdkShape:
    """Read any request, also one with the `config` object of the SDKs."""
    shape = _read_request(body)
    if shape.unknown is not UNSET and bytes(shape.unknown.get("config", b""))[:1] == b"{":
        return _read_sdk(body)
    return shape


def _decode_request(body: bytes, route: Route) -> Request:
    """Build the canonical request."""
    shape = _read_shape(body)
    field_case = FieldCase()
    field_case.normalize(shape)
    # The SDKs write all settings into one `config` object.
    outer: Any = shape
    generation: Any = getattr(shape, "generation_config", UNSET)
    location, settings_location = "", "generationConfig/"
    objects: list[tuple[Any, str]] = [(shape, "")]
    if isinstance(shape, SdkShape):
        outer = generation = shape.config
        location = settings_location = "config/"
        field_case.normalize(outer, "config")
        objects.append((outer, "config"))
    elif generation is not UNSET:
        field_case.normalize(generation, "generationConfig")
        objects.append((generation, "generationConfig"))
    messages, form = decode_contents(shape.contents)
    system, system_extras = decode_system(outer.system_instruction, field_case, location + "systemInstruction")
    tools, bag_form = decode_tools(outer.tools, field_case.source_pointer(location + "tools"))
    choice, config_extras = _decode_config(outer.tool_config, field_case, location + "toolConfig")
    fields, setting_extras = _decode_settings(generation, field_case, settings_location)
    form += bag_form + _form_tokens(shape, has_settings=bool(fields))
    if tools == () and not bag_form:
        form += (_FIELD_FORM + "tools",)
    extras = merge_extras(
        field_case.extras_and_form("", *objects, wire_form=form + field_case.request_name_tokens("Request", location)),
        system_extras,
        config_extras,
        *setting_extras,
    )
    return Request(
        origin=FAMILY,
        model=_decode_model(shape.model) if route.model is None else route.model,
        stream=route.stream,
        messages=messages,
        system=system,
        tools=tools,
        tool_choice=choice,
        continuation=_decode_continuation(outer, field_case, location),
        tier=unset_to_none(outer.service_tier),
        labels=unset_to_none(outer.labels),
        **fields,
        **extras,
    )


def _decode_model(model: str | UnsetType) -> str | None:
    """Return the model of the body, which must be fit for the path that the request is sent to."""
    if model is UNSET:
        return None
    if not is_legal_name(model):
        raise DecodeError(FAMILY, "/model", _LEGAL_NAME, repr(model[:100]))
    return model


def _form_tokens(shape: RequestShape | SdkShape, *, has_settings: bool) -> tuple[str, ...]:
    """Return wire-form tokens that record the SDK's layout, a model in the body and an empty `generationConfig`."""
    form: tuple[str, ...] = (_SDK_FORM,) if isinstance(shape, SdkShape) else ()
    if shape.model is not UNSET:
        form += (_BODY_MODEL,)
    if isinstance(shape, RequestShape) and shape.generation_config is not UNSET and not has_settings:
        form += (_FIELD_FORM + "generationConfig",)
    return form


def _decode_config(config: Any, field_case: FieldCase, location: str) -> tuple[Any, dict[str, Any]]:
    """Decode `toolConfig`; return the tool choice and the request's `extras` and `wire_form` arguments."""
    if config is UNSET:
        return None, {}
    field_case.normalize(config, location)
    choice = decode_choice(config, field_case, location)
    return choice, field_case.extras_and_form(
        "", (config, location), wire_form=() if choice else (_FIELD_FORM + "toolConfig",)
    )


def _decode_settings(
    generation: Any, field_case: FieldCase, location: str
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Decode `generationConfig`; return canonical request fields and `extras` arguments to merge."""
    if generation is UNSET:
        return {}, []
    fields: dict[str, Any] = {}
    sampling, sampling_extras = decode_sampling(generation, field_case, location)
    output, output_extras = decode_output(generation, field_case, location)
    extras = [sampling_extras, output_extras]
    if sampling is not None:
        fields["sampling"] = sampling
    if output is not None:
        fields["output"] = output
    if generation.thinking_config is not UNSET:
        fields["thinking"], thinking_extras = decode_thinking(generation.thinking_config, field_case, location)
        extras.append(thinking_extras)
    return fields, extras


def _decode_continuation(shape: Any, field_case: FieldCase, location: str) -> Continuation | None:
    """Decode `cachedContent` and `store`."""
    if shape.cached_content is UNSET and shape.store is UNSET:
        return None
    kind: Any = None if shape.cached_content is UNSET else "cache"
    form = field_case.request_name_tokens("Continuation", location)
    return Continuation(
        kind=kind, id=unset_to_none(shape.cached_content), store=unset_to_none(shape.store), wire_form=form
    )


# ---- encode


def encode_request(request: Request, target: Target) -> EncodedBody:
    """Encode a request with its URL path; report as losses what Gemini cannot express."""
    same_protocol = request.origin == FAMILY
    target = resolve_target(target, request, gemini_info)
    model = target.model
    plan = EncodingPlan(ID_AND_NAME_RULES, LossReport(), target, same_protocol=same_protocol)
    plan.tools = NamePlan(ID_AND_NAME_RULES.names, freeform=False)
    request = use_target_tool(substitute_functions(request, plan, HOSTED_TOOLS), plan, COMPUTER_USE)
    # Gemini requires one content, so a request of system text alone sends it as a user turn.
    lifted_count = 0
    if not same_protocol:
        lifted_count = min(leading_system_count(request.messages), max(len(request.messages) - 1, 0))
    fields = _encode_fields(request, lifted_count, plan)
    body: dict[str, Any] = {}
    contents = encode_contents(request, lifted_count, plan)
    if contents or NO_CONTENTS not in request.wire_form:
        body["contents"] = contents
    generation = _encode_generation(request, plan)
    if _SDK_FORM in request.wire_form:
        body["config"] = {**fields, **as_dict(generation)}
    else:
        body.update(fields)
        if generation != GenerationShape():
            body["generationConfig"] = generation
    if _BODY_MODEL in request.wire_form and model is not None:
        body["model"] = model
    if same_protocol:
        _restore_empty_fields(request, body)
        restore_case(body, request)
    else:
        _report_unsupported(request, plan)
    restore_extras(body, request, FAMILY)
    if not same_protocol:
        plan.report.report_foreign_extras(request, (FAMILY,))
    if not target.host.pass_through:
        fit_fields(request, body, plan, {})
    if model is not None and not is_legal_name(model):
        plan.report.dropped((), "model", f"invalid model name: expected {_LEGAL_NAME}", constraint=True)
    return EncodedBody(body, plan.report, plan.tools.mapping, _route(request, model, target))


def _encode_fields(request: Request, lifted_count: int, plan: EncodingPlan) -> dict[str, Any]:
    """Encode the request fields other than contents and `generationConfig`."""
    fields: dict[str, Any] = {}
    tools, tool_config = encode_tools(request, plan)
    has_functions = isinstance(tools, list) and any("functionDeclarations" in bag for bag in tools)
    calling_config = encode_choice(request, plan, has_functions=has_functions)
    if (system := encode_system(request, lifted_count, plan)) is not None:
        fields["systemInstruction"] = system
    if tools is not None:
        fields["tools"] = tools
    if (config := encode_tool_config(calling_config, tool_config)) is not None:
        fields["toolConfig"] = config
    _encode_top_level(request, fields, plan)
    return fields


def _restore_empty_fields(request: Request, body: dict[str, Any]) -> None:
    """Add to `body` the fields that the Gemini client sent without a value."""
    holder = body["config"] if _SDK_FORM in request.wire_form else body
    for token in request.wire_form:
        if token.startswith(_FIELD_FORM):
            holder.setdefault(token.removeprefix(_FIELD_FORM), [] if token.endswith("tools") else {})


def _route(request: Request, model: str | None, target: Target) -> Route:
    """Return the route with the URL path for the model and method."""
    stream = request.stream if target.stream is None else target.stream
    method = ":streamGenerateContent?alt=sse" if stream else ":generateContent"
    path = None if model is None else f"/v1beta/{resource_path(model)}{method}"
    return Route(path=path, model=model, stream=stream)


def _encode_generation(request: Request, plan: EncodingPlan) -> GenerationShape:
    """Encode sampling, output format and thinking as `generationConfig`."""
    fields: dict[str, Any] = {}
    encode_sampling(request, fields, plan)
    encode_output(request, fields, plan)
    encode_thinking(request, fields, plan)
    return GenerationShape(**fields)


def _encode_top_level(request: Request, body: dict[str, Any], plan: EncodingPlan) -> None:
    """Encode stored state, labels and service tier."""
    continuation = request.continuation
    if continuation is not None:
        if continuation.id is not None and (plan.same_protocol or continuation.kind == "cache"):
            body["cachedContent"] = continuation.id
        if continuation.store is not None:
            body["store"] = continuation.store
    if request.labels is not None:
        body["labels"] = request.labels
    if request.tier is None:
        return
    if plan.same_protocol:
        body["serviceTier"] = request.tier
    elif request.tier in _SERVICE_TIERS:
        body["serviceTier"] = _SERVICE_TIERS[request.tier]
        if _SERVICE_TIERS[request.tier] != request.tier:
            plan.report.approximated((), "tier", f"{request.tier} sent as {_SERVICE_TIERS[request.tier]}")
    else:
        plan.report.dropped((), "tier", f"the target has no service tier {request.tier}")


def _report_unsupported(request: Request, plan: EncodingPlan) -> None:
    """Report as losses the fields of another protocol's request that Gemini does not have."""
    for index, message in enumerate(request.messages):
        report_message_fields(message, ("messages", index), plan.report, "name", "id", "status", "phase", "clear_at")
    state = request.continuation
    if state is not None:
        if state.id is not None and state.kind != "cache":
            plan.report.dropped(("continuation",), "id", "stored by another provider")
        if state.background:
            plan.report.dropped(("continuation",), "background")
    if request.end_user is not None:
        plan.report.dropped((), "end_user", "the target has no end-user id")
    if request.cache is not None:
        plan.report.dropped(("cache",), "", "the target caches automatically")


class CountRequest(Struct):
    """A `countTokens` body; clients of Vertex AI send the request fields unwrapped instead."""

    generateContentRequest: Raw | UnsetType = UNSET  # noqa: N815 - its name on the wire


class CountResponse(Struct):
    """A `countTokens` response."""

    totalTokens: int = 0  # noqa: N815 - its name on the wire


def _wrap_request(body: bytes, path: str) -> bytes:
    """Wrap a request body for `countTokens`, which has settings only inside `generateContentRequest`.

    The wrapped request must repeat the model of the path.
    """
    resource, colon, _ = path.rpartition(":")
    model = resource_name("/".join(resource.split("/")[-2:])) if colon else ""
    fields = msgspec.json.decode(body, type=dict[str, Raw])
    return msgspec.json.encode({"generateContentRequest": {"model": model, **fields}})


def _unwrap_request(body: bytes) -> bytes:
    """Return the request inside a `countTokens` body, or the body itself."""
    try:
        wrapped = msgspec.json.decode(body, type=CountRequest).generateContentRequest
    except msgspec.DecodeError:
        return body
    return body if wrapped is UNSET else bytes(wrapped)


TOKEN_COUNT_API = TokenCountApi(
    count_path=lambda path: f"{path.partition('?')[0].rpartition(':')[0]}:countTokens",
    wrap_request=_wrap_request,
    unwrap_request=_unwrap_request,
    encode_count=CountResponse,
    decode_count=lambda body: msgspec.json.decode(body, type=CountResponse).totalTokens,
)
