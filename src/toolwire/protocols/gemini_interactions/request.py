"""Decode and encode requests of the Interactions API."""

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.content import Text, ToolChange
from toolwire.canonical.request import Request
from toolwire.codec.encoding.computer import decode_computer_use
from toolwire.codec.encoding.computer_request import adapt_turns, use_target_tool
from toolwire.codec.encoding.fallbacks import report_message_fields
from toolwire.codec.encoding.hosted_tools import substitute_functions
from toolwire.codec.encoding.plan import IdAndNameRules, resolve_target
from toolwire.codec.encoding.tools import NameRules, report_tool_change
from toolwire.codec.encoding.turns import assemble, leading_system_count, one_turn_per_message
from toolwire.codec.interface import EncodedBody, Route, Target
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.models.gemini import gemini_info
from toolwire.codec.wire.extras import (
    collect_extras,
    merge_extras,
    none_to_unset,
    restore_extras,
    unset_to_none,
)
from toolwire.codec.wire.reader import Reader
from toolwire.protocols.gemini_interactions.parts.content import StepPlan
from toolwire.protocols.gemini_interactions.parts.messages import decode_input, encode_input
from toolwire.protocols.gemini_interactions.settings import (
    decode_continuation,
    decode_output,
    decode_sampling,
    decode_thinking,
    encode_continuation,
    encode_labels,
    encode_mime,
    encode_output,
    encode_sampling,
    encode_thinking,
    encode_tier,
)
from toolwire.protocols.gemini_interactions.tools import (
    CHOICE_MODES,
    COMPUTER_USE,
    HOSTED_TOOLS,
    decode_choice,
    decode_tools,
    encode_choice,
    encode_tools,
    with_computer,
)
from toolwire.protocols.gemini_interactions.wire import FAMILY, RequestShape
from toolwire.protocols.vendors.google.tools import GEMINI, take_map_location

GOOGLE_PROTOCOLS = ("gemini",)
ID_AND_NAME_RULES = IdAndNameRules(
    id_pattern=re.compile(r".+", re.DOTALL),
    id_limit=1024,
    names=NameRules(re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]*"), 64),
    freeform=False,
)
WIRE_NAMES = {
    "McpServer.allowed": "/allowed_tools/0/tools",
    "Request.messages": "/input",
    "Request.system": "/system_instruction",
    "Request.tool_choice": "/generation_config/tool_choice",
    "Request.sampling": "/generation_config",
    "Request.thinking": "/generation_config",
    "Request.output": "",
    "Request.continuation": "",
    "Request.tier": "/service_tier",
    "Sampling.max_tokens": "/max_output_tokens",
    "Sampling.stop": "/stop_sequences",
    "Thinking.effort": "/thinking_level",
    "Thinking.visibility": "/thinking_summaries",
    "OutputFormat.kind": "/mime_type",
    "OutputFormat.held": "/schema",
    "Continuation.id": "/previous_interaction_id",
    "ToolChoice.mode": "",
    "ToolChoice.names": "/allowed_tools/tools",
    "ToolChoice.required": "/allowed_tools/mode",
    "ToolChoice.validated": "",
    "Message.parts": "/content",
    "Media.source": "/data",
    "Media.media_type": "/mime_type",
    "Media.detail": "/resolution",
    "Citation.start": "/start_index",
    "Citation.end": "/end_index",
    "ReasoningText.text": "/text",
    "Reasoning.content": "/summary",
    "Reasoning.signature": "/signature",
    "ToolCall.namespace": "/server_name",
    "ToolCall.signature": "/signature",
    "ToolResult.signature": "/signature",
    "ToolResult.content": "/result",
    "ToolResult.status": "/is_error",
    "ToolResult.namespace": "/server_name",
    "Response.candidates": "",
    "Response.error": "/errors/0",
    "Candidate.messages": "/steps",
    "Candidate.stop": "",
    "Stop.reason": "/status",
    "Stop.raw": "/status",
    "Usage.input_tokens": "/total_input_tokens",
    "Usage.output_tokens": "/total_output_tokens",
    "Usage.cache_read": "/total_cached_tokens",
    "Usage.reasoning": "/total_thought_tokens",
    "Usage.tool_use": "/total_tool_use_tokens",
    "Usage.total": "/total_tokens",
    "ApiError.message": "/error/message",
    "ApiError.raw": "/error/status",
    "ApiError.code": "/error/code",
}

_AGENT_NAME = "gemini-interactions:name:model=agent"
_SYSTEM_STRING = "gemini-interactions:system:string"
_CONFIG_FORM = "gemini-interactions:generation_config"
_NO_INPUT = "gemini-interactions:absent:input"

_request_reader = Reader[RequestShape](RequestShape, FAMILY)


# ---- decode


def decode_request(body: bytes, route: Route) -> Request:
    """Decode a request body."""
    return decode_computer_use(with_computer(_decode_request(_request_reader.read(body), route)), COMPUTER_USE)


def _decode_request(shape: RequestShape, route: Route) -> Request:
    """Build the canonical request from its wire object."""
    config, system = shape.generation_config, shape.system_instruction
    output, format_extras = decode_output(shape)
    model = unset_to_none(shape.model) if shape.model is not UNSET else unset_to_none(shape.agent)
    return Request(
        origin=FAMILY,
        model=route.model if model is None else model,
        messages=() if shape.input is UNSET or bytes(shape.input) == b"null" else decode_input(shape.input),
        system=None if system is UNSET else (Text(text=system, at="/system_instruction"),),
        tools=None if shape.tools is UNSET else decode_tools(shape.tools),
        tool_choice=None if config is UNSET else decode_choice(config.tool_choice),
        sampling=decode_sampling(config),
        thinking=decode_thinking(config),
        output=output,
        continuation=decode_continuation(shape),
        stream=unset_to_none(shape.stream),
        tier=unset_to_none(shape.service_tier),
        labels=None if shape.labels is UNSET or bytes(shape.labels) == b"null" else shape.labels,
        **_decode_extras(
            shape, format_extras, has_mime=output is not None and output.at == "" and output.kind == "json"
        ),
    )


def _decode_extras(shape: RequestShape, formats: dict[str, Raw], *, has_mime: bool) -> dict[str, Any]:
    """Return the `extras` and `wire_form` arguments of a request.

    `formats` are output formats that become extras; `has_mime`: an output format holds the MIME type.
    """
    form = [] if shape.system_instruction is UNSET else [_SYSTEM_STRING]
    extras = dict(formats)
    for name in ("input", "labels", "response_format"):
        if (value := getattr(shape, name)) is not UNSET and bytes(value) == b"null":
            form.append(f"{FAMILY}:null:{name}")
            extras.pop(name, None)
    if shape.input is UNSET:
        form.append(_NO_INPUT)
    if shape.agent is not UNSET:
        if shape.model is UNSET:
            form.append(_AGENT_NAME)
        else:
            extras["agent"] = Raw(msgspec.json.encode(shape.agent))
    if shape.response_mime_type is not UNSET and not has_mime:
        extras["response_mime_type"] = Raw(msgspec.json.encode(shape.response_mime_type))
    extras_and_form = collect_extras(shape, FAMILY, *form)
    if (config := shape.generation_config) is not UNSET:
        extras_and_form = merge_extras(
            extras_and_form, collect_extras(config, FAMILY, _CONFIG_FORM, prefix="generation_config/")
        )
        if isinstance(config.tool_choice, str) and config.tool_choice not in CHOICE_MODES:
            extras["generation_config/tool_choice"] = Raw(msgspec.json.encode(config.tool_choice))
    return merge_extras(extras_and_form, {"extras": {FAMILY: extras}}) if extras else extras_and_form


# ---- encode


def encode_request(request: Request, target: Target) -> EncodedBody:
    """Encode a request; report as losses what the Interactions API cannot express."""
    plan = StepPlan(
        ID_AND_NAME_RULES,
        LossReport(),
        resolve_target(target, request, gemini_info),
        same_protocol=request.origin == FAMILY,
        from_gemini=request.origin in GOOGLE_PROTOCOLS,
    )
    request = use_target_tool(substitute_functions(request, plan, HOSTED_TOOLS), plan, COMPUTER_USE)
    if request.origin == GEMINI:
        request, plan.map_location = take_map_location(request)
    body: dict[str, Any] = {}
    if (model := plan.target.model) is not None:
        body["agent" if _AGENT_NAME in request.wire_form and target.model is None else "model"] = model
    tools = encode_tools(request, plan)
    _encode_conversation(request, body, plan)
    if tools is not None:
        body["tools"] = tools
    config = _encode_generation(request, plan, has_tools=bool(tools))
    if config or _CONFIG_FORM in request.wire_form:
        body["generation_config"] = config
    body["response_format"] = encode_output(request, plan)
    encode_mime(request, body)
    body["stream"] = none_to_unset(request.stream if target.stream is None else target.stream)
    encode_continuation(request, body, plan)
    body["service_tier"] = encode_tier(request, plan)
    body["labels"] = encode_labels(request, plan)
    body = {name: value for name, value in body.items() if value is not UNSET}
    restore_extras(body, request, FAMILY)
    if not plan.same_protocol:
        _report_unsupported(request, plan)
    if not plan.same_protocol:
        plan.report.report_foreign_extras(request, (FAMILY,))
    return EncodedBody(body, plan.report, plan.tools.mapping, Route(path="/v1beta/interactions"))


def _encode_generation(request: Request, plan: StepPlan, *, has_tools: bool) -> dict[str, Any]:
    """Encode sampling, thinking and the tool choice as `generation_config`."""
    config: dict[str, Any] = {}
    encode_sampling(request, config, plan)
    encode_thinking(request.thinking, config, plan)
    if (choice := encode_choice(request, plan, has_tools=has_tools)) is not UNSET:
        config["tool_choice"] = choice
    return config


def _encode_conversation(request: Request, body: dict[str, Any], plan: StepPlan) -> None:
    """Write the system instruction and the input into `body`."""
    lifted_count = 0
    if not plan.same_protocol:
        # The API requires one step, so a request of system text alone sends it as input.
        lifted_count = min(leading_system_count(request.messages), max(len(request.messages) - 1, 0))
    if (system := _encode_system(request, lifted_count, plan)) is not None:
        body["system_instruction"] = system
    turns = one_turn_per_message(request.messages)
    if not plan.same_protocol:
        turns = adapt_turns(assemble(request, plan.report, skip=lifted_count), plan)
    has_input = not (_NO_INPUT in request.wire_form or f"{FAMILY}:null:input" in request.wire_form)
    if turns or not plan.same_protocol or has_input:
        body["input"] = encode_input(turns, plan)


def _encode_system(request: Request, lifted_count: int, plan: StepPlan) -> str | None:
    """Join the system texts; for other protocols they include the first `lifted_count` messages."""
    if plan.same_protocol:
        return None if request.system is None else "\n\n".join(text.text for text in request.system)
    texts = _system_texts(request, lifted_count, plan)
    for position, (text, path) in enumerate(texts):
        if position:
            plan.report.approximated(path, "", "joined with the preceding text", severity="info")
        if text.cache is not None:
            plan.report.dropped((*path, "cache"), "", "the target caches automatically")
        for index in range(len(text.annotations or ())):
            plan.report.dropped((*path, "annotations", index), "")
    return "\n\n".join(text.text for text, _ in texts) or None


def _system_texts(request: Request, lifted_count: int, plan: StepPlan) -> list[tuple[Any, SourcePath]]:
    """Return the system texts with their paths; tool changes among them are reported as losses."""
    texts: list[tuple[Any, SourcePath]] = [(text, ("system", index)) for index, text in enumerate(request.system or ())]
    for number, message in enumerate(request.messages[:lifted_count]):
        for index, part in enumerate(message.parts):
            path = ("messages", number, "parts", index)
            if isinstance(part, ToolChange):
                report_tool_change(part, path, plan.report)
            else:
                texts.append((part, path))
    return texts


def _report_unsupported(request: Request, plan: StepPlan) -> None:
    """Report as losses the fields of another protocol's request that the Interactions API does not have."""
    for index, message in enumerate(request.messages):
        report_message_fields(message, ("messages", index), plan.report, "name", "id", "status", "phase", "clear_at")
    if request.end_user is not None:
        plan.report.dropped((), "end_user")
    if request.cache is not None:
        plan.report.dropped(("cache",), "", "the target caches automatically")
