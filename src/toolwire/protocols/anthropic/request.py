"""Anthropic's request body, to a canonical request and back."""

import re
from typing import Any

from msgspec import UNSET, Raw

from toolwire.canonical.content import Message, Role, SettingChange, Text
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.request import Request
from toolwire.canonical.tools import OutputFormat, Sampling, Thinking
from toolwire.codec.fields import Reader, emit, given, joined, known, rest, restore
from toolwire.codec.interface import Encoding, Route, Target
from toolwire.codec.losses import Report, Trail
from toolwire.codec.plan import Plan, Rules
from toolwire.codec.tools import NameRules
from toolwire.codec.turns import Placed, Turn, as_written, assemble, leading_system

from .parts import STRING, decode_blocks, encode_parts
from .tools import decode_cache, decode_choice, decode_tools, encode_cache, encode_choice, encode_tools
from .wire import (
    FAMILY,
    FormatShape,
    MessageShape,
    MetadataShape,
    RequestShape,
    SettingsShape,
    TextBlock,
    ThinkingShape,
)

DEFAULT_MAX_TOKENS = 8192
SAMPLING_VERSION = "2023-06-01"
EFFORTS = ("low", "medium", "high", "xhigh", "max")
RULES = Rules(
    ids=re.compile(r"[a-zA-Z0-9_-]+"),
    id_limit=64,
    names=NameRules(re.compile(r"[a-zA-Z0-9_-]+"), 64),
    freeform=False,
)
NAMES = {
    "Request.system": "/system",
    "Request.sampling": "",
    "Request.thinking": "",
    "Request.output": "",
    "Request.continuation": "",
    "Request.end_user": "/metadata/user_id",
    "Request.tier": "/service_tier",
    "Request.cache": "/cache_control",
    "Sampling.stop": "/stop_sequences",
    "Thinking.enabled": "/thinking/type",
    "Thinking.budget_tokens": "/thinking/budget_tokens",
    "Thinking.visibility": "/thinking/display",
    "Thinking.effort": "/output_config/effort",
    "OutputFormat.kind": "/output_config/format",
    "OutputFormat.schema": "/output_config/format/schema",
    "ToolChoice.parallel": "/disable_parallel_tool_use",
    "ToolChoice.names": "/name",
    "ToolChoice.mode": "/type",
    "FunctionTool.parameters": "/input_schema",
    "FunctionTool.defer": "/defer_loading",
    "FunctionTool.cache": "/cache_control",
    "Message.parts": "/content",
    "Text.annotations": "/citations",
    "Text.cache": "/cache_control",
    "Media.cache": "/cache_control",
    "Media.name": "/title",
    "Media.media_type": "/source/media_type",
    "Nested.parts": "/content",
    "Citation.quote": "/cited_text",
    "Reasoning.content": "/thinking",
    "Reasoning.seal": "/signature",
    "ToolCall.arguments": "/input",
    "ToolCall.namespace": "/server_name",
    "ToolCall.toolset": "/toolset_name",
    "ToolCall.cache": "/cache_control",
    "Caller.kind": "/type",
    "Caller.id": "/tool_id",
    "ToolResult.call_id": "/tool_use_id",
    "ToolResult.status": "/is_error",
    "ToolResult.toolset": "/toolset_name",
    "ToolResult.cache": "/cache_control",
    "ToolRef.name": "/tool_name",
    "ToolRef.cache": "/cache_control",
    "Response.candidates": "",
    "Candidate.messages": "",
    "Candidate.stop": "",
    "Stop.reason": "/stop_reason",
    "Stop.raw": "/stop_reason",
    "Stop.sequence": "/stop_sequence",
    "Usage.cache_read": "/cache_read_input_tokens",
    "Usage.cache_write": "/cache_creation_input_tokens",
    "Usage.reasoning": "/output_tokens_details/thinking_tokens",
}

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_VISIBILITY = {"omitted": "omitted", "summarized": "summary"}
_DISPLAY = {"omitted": "omitted", "summary": "summarized", "full": "summarized"}

_reader = Reader[RequestShape](RequestShape, FAMILY)


# ---- decode


def decode_request(body: bytes, route: Route) -> Request:
    shape, plain = _reader.read_noting(body)
    thinking, output = _decode_settings(shape)
    system = shape.system
    return Request(
        origin=FAMILY,
        model=route.model if shape.model is UNSET else shape.model,
        messages=() if shape.messages is UNSET else _decode_messages(shape.messages),
        system=None if system is UNSET else _decode_system(system),
        tools=None if shape.tools is UNSET else decode_tools(shape.tools),
        tool_choice=None if shape.tool_choice is UNSET else decode_choice(shape.tool_choice),
        sampling=_decode_sampling(shape),
        thinking=thinking,
        output=output,
        stream=known(shape.stream),
        end_user=None if shape.metadata is UNSET else known(shape.metadata.user_id),
        tier=known(shape.service_tier),
        cache=decode_cache(shape.cache_control),
        plain=plain,
        **_decode_rest(shape),
    )


def _decode_rest(shape: RequestShape) -> dict[str, Any]:
    form = ("anthropic:system:string",) if isinstance(shape.system, str) else ()
    if shape.messages is UNSET:
        form = (*form, "anthropic:absent:messages")
    if shape.metadata is UNSET:
        return rest(shape, FAMILY, *form)
    empty = () if shape.metadata.user_id is not UNSET else ("anthropic:metadata:empty",)
    return joined(rest(shape, FAMILY, *form), rest(shape.metadata, FAMILY, *empty, under="metadata/"))


def _decode_system(system: str | list[TextBlock]) -> tuple[Text, ...]:
    if isinstance(system, str):
        return (Text(text=system, at="/system"),)
    return tuple(part for part in decode_blocks(system) if isinstance(part, Text))


def _decode_messages(messages: list[MessageShape]) -> tuple[Message, ...]:
    return tuple([_decode_message(message, index) for index, message in enumerate(messages)])


def _decode_message(shape: MessageShape, index: int) -> Message:
    role = _ROLES.get(shape.role)
    if role is None:
        raise DecodeError(FAMILY, f"/messages/{index}/role", "user, assistant or system", repr(shape.role))
    if isinstance(shape.content, str):
        parts: tuple[Any, ...] = (Text(text=shape.content, at="/content"),)
        form: tuple[str, ...] = (STRING,)
    else:
        parts = () if shape.content is UNSET else decode_blocks(shape.content)
        form = ("anthropic:content:absent",) if shape.content is UNSET else ()
    if shape.unknown is UNSET and shape.nulls is UNSET and shape.clear_at is UNSET and shape.output_config is UNSET:
        return Message(role=role, parts=parts, form=form)
    if shape.output_config is not UNSET:
        parts = (*parts, _decode_setting(shape.output_config))
    clear_at = known(shape.clear_at)
    return Message(role=role, parts=parts, clear_at=clear_at, **rest(shape, FAMILY, *form))


def _decode_setting(shape: SettingsShape) -> SettingChange:
    thinking = None if shape.effort is UNSET else Thinking(effort=shape.effort, at="")
    return SettingChange(thinking=thinking, at="/output_config", **rest(shape, FAMILY))


def _decode_sampling(shape: RequestShape) -> Sampling | None:
    stop = shape.stop_sequences
    sampling = Sampling(
        max_tokens=known(shape.max_tokens),
        temperature=known(shape.temperature),
        top_p=known(shape.top_p),
        top_k=known(shape.top_k),
        stop=None if stop is UNSET else tuple(stop),
    )
    return None if sampling == Sampling() else sampling


def _decode_settings(shape: RequestShape) -> tuple[Thinking | None, OutputFormat | None]:
    settings = shape.output_config
    effort = None if settings is UNSET else known(settings.effort)
    thinking = None
    if shape.thinking is not UNSET:
        thinking = _decode_thinking(shape.thinking, effort)
    elif effort is not None:
        thinking = Thinking(effort=effort)
    if settings is UNSET:
        return thinking, None
    kept = rest(settings, FAMILY, under="output_config/")
    if settings.format is UNSET:
        form = (*kept.get("form", ()), "anthropic:output_config")
        return thinking, OutputFormat(**(kept | {"form": form}))
    if settings.format.type != "json_schema":
        raise DecodeError(FAMILY, "/output_config/format/type", "json_schema", repr(settings.format.type))
    both = joined(kept, rest(settings.format, FAMILY, under="output_config/format/"))
    return thinking, OutputFormat(kind="json_schema", schema=settings.format.schema, **both)


def _decode_thinking(shape: ThinkingShape, effort: str | None) -> Thinking:
    kept = rest(shape, FAMILY, f"anthropic:thinking:{shape.type}", under="thinking/")
    visibility = None if shape.display is UNSET else _VISIBILITY.get(shape.display)
    if shape.display is not UNSET and visibility is None:
        kept = joined(kept, {"extras": {FAMILY: {"thinking/display": Raw(f'"{shape.display}"'.encode())}}})
    return Thinking(
        enabled=shape.type != "disabled",
        effort=effort,
        budget_tokens=known(shape.budget_tokens),
        visibility=visibility,  # type: ignore[arg-type]
        **kept,
    )


# ---- encode


def encode_request(request: Request, target: Target) -> Encoding:
    plan = Plan(RULES, Report(), target, home=request.origin == FAMILY)
    lifted = 0 if plan.home else leading_system(request.messages)
    tools = encode_tools(request, plan)
    turns = as_written(request.messages) if plan.home else assemble(request, plan.report, skip=lifted)
    shape: dict[str, Any] = {"model": request.model if target.model is None else target.model}
    shape["max_tokens"] = _encode_max_tokens(request, plan)
    if (system := _encode_system(request, lifted, plan)) is not None:
        shape["system"] = system
    if turns or "anthropic:absent:messages" not in request.form:
        shape["messages"] = messages = [message for turn in turns for message in encode_turn(turn, plan)]
        if not plan.home and messages and messages[-1]["role"] == "assistant":
            _trim_prefill(messages[-1]["content"], turns[-1].trail, plan)
    if tools is not None:
        shape["tools"] = tools
    shape["tool_choice"] = encode_choice(request, plan, any_tools=bool(tools))
    _encode_sampling(request, shape, plan)
    _encode_settings(request, shape, plan)
    if (stream := request.stream if target.stream is None else target.stream) is not None:
        shape["stream"] = stream
    if request.end_user is not None or "anthropic:metadata:empty" in request.form:
        shape["metadata"] = MetadataShape(user_id=given(request.end_user))
    shape["service_tier"] = _encode_tier(request, plan)
    shape["cache_control"] = encode_cache(request.cache, (), plan)
    if not plan.home:
        _report_rest(request, plan)
    body = {name: value for name, value in shape.items() if value is not UNSET and value is not None}
    for node in (request, request.thinking, request.output):
        restore(body, node, FAMILY)
    if not request.plain:
        plan.report.unclaimed(request, (FAMILY,))
    return Encoding(body, plan.report, plan.tools.undo, Route(path="/v1/messages"))


def _encode_max_tokens(request: Request, plan: Plan) -> int | None:
    if request.sampling is not None and request.sampling.max_tokens is not None:
        return request.sampling.max_tokens
    if plan.home:
        return None
    plan.report.invented((), "", "/max_tokens", f"the target requires a limit: {DEFAULT_MAX_TOKENS} was chosen")
    return DEFAULT_MAX_TOKENS


def _encode_system(request: Request, lifted: int, plan: Plan) -> Any:
    """`system`, and for another protocol's request also the system messages that lead it."""
    system = request.system
    if plan.home and system is not None and "anthropic:system:string" in request.form and len(system) == 1:
        return system[0].text
    places = [Placed(part, ("system", index)) for index, part in enumerate(system or ())]
    for number, message in enumerate(request.messages[:lifted]):
        places.extend(Placed(part, ("messages", number, "parts", i)) for i, part in enumerate(message.parts))
    return encode_parts(places, plan) if places or system is not None else None


def encode_turn(turn: Turn, plan: Plan) -> list[Any]:
    """The messages of one turn."""
    message = turn.message
    if plan.home and message is not None:
        return [_encode_message(message, turn, plan)]
    if message is not None:
        for field in ("name", "id", "phase"):
            if getattr(message, field) is not None:
                plan.report.dropped(turn.trail, field)
    if turn.role in ("system", "developer"):
        return _encode_reminder(turn, plan)
    blocks = encode_parts(turn.parts, plan)
    return [{"role": turn.role, "content": blocks}] if blocks else []


def _trim_prefill(blocks: list[Any], trail: Trail, plan: Plan) -> None:
    """The provider refuses a last assistant text that ends in white space."""
    last = blocks[-1]
    if isinstance(last, TextBlock) and last.text != (trimmed := last.text.rstrip()):
        plan.report.approximated(trail, "", "white space at the end of the last text was cut off")
        last.text = trimmed


def _encode_message(message: Message, turn: Turn, plan: Plan) -> Any:
    shape = MessageShape(role=message.role, clear_at=given(message.clear_at))
    only = message.parts[0] if len(message.parts) == 1 else None
    if STRING in message.form and isinstance(only, Text) and not only.cache and not only.extras:
        shape.content = only.text
    elif not (message.parts == () and "anthropic:content:absent" in message.form):
        shape.content = encode_parts(turn.parts, plan)
    for part in message.parts:
        if isinstance(part, SettingChange):
            effort = UNSET if part.thinking is None else given(part.thinking.effort)
            shape.output_config = emit(SettingsShape(effort=effort), part, FAMILY)
            if STRING in message.form and isinstance(first := message.parts[0], Text):
                shape.content = first.text
            elif "anthropic:content:absent" in message.form:
                shape.content = UNSET
    return emit(shape, message, FAMILY)


def _encode_reminder(turn: Turn, plan: Plan) -> list[Any]:
    """System text within a conversation: not every model takes the role there, so it is told in a user turn."""
    blocks = encode_parts(turn.parts, plan)
    if not blocks:
        return []
    plan.report.approximated(turn.trail, "role", "system text within the conversation is told as a reminder")
    for block in blocks:
        if isinstance(block, TextBlock):
            block.text = f"<system-reminder>\n{block.text}\n</system-reminder>"
    return [{"role": "user", "content": blocks}]


def _encode_sampling(request: Request, shape: dict[str, Any], plan: Plan) -> None:
    sampling = request.sampling
    if sampling is None:
        return
    if sampling.stop is not None:
        shape["stop_sequences"] = list(sampling.stop)
    for name in ("temperature", "top_p", "top_k"):
        if (value := getattr(sampling, name)) is not None:
            if plan.home or plan.target.version == SAMPLING_VERSION:
                shape[name] = value
            else:
                plan.report.dropped(("sampling",), name, "the provider's current version takes no sampling parameters")
    for name in ("n", "seed", "frequency_penalty", "presence_penalty", "logprobs", "top_logprobs"):
        if (value := getattr(sampling, name)) is not None and not (name == "n" and value == 1):
            plan.report.dropped(("sampling",), name)


def _encode_settings(request: Request, shape: dict[str, Any], plan: Plan) -> None:
    thinking, output = request.thinking, request.output
    settings = SettingsShape()
    if thinking is not None:
        shape["thinking"], settings.effort = _encode_thinking(thinking, plan)
    if output is not None and output.kind == "json_schema" and output.schema is not None:
        settings.format = FormatShape(type="json_schema", schema=output.schema)
    if not plan.home and output is not None:
        _report_output(output, plan)
    if settings != SettingsShape() or (output is not None and "anthropic:output_config" in output.form):
        shape["output_config"] = settings


def _encode_thinking(thinking: Thinking, plan: Plan) -> tuple[Any, Any]:
    effort: Any = given(thinking.effort)
    enabled = thinking.enabled
    if not plan.home and effort is not UNSET and effort not in EFFORTS:
        if effort == "none":
            enabled, effort = False, UNSET
        else:
            nearest = "low" if effort == "minimal" else "high"
            plan.report.approximated(("thinking",), "effort", f"{effort} is told as {nearest}")
            effort = nearest
    if enabled is None:
        if thinking.visibility is not None:
            enabled = True
        else:
            return UNSET, effort
    kind = "disabled" if not enabled else "enabled" if thinking.budget_tokens is not None else "adaptive"
    for token in thinking.form:
        if token.startswith("anthropic:thinking:") and plan.home:
            kind = token.removeprefix("anthropic:thinking:")
    budget = given(thinking.budget_tokens)
    display = UNSET if thinking.visibility is None else _DISPLAY[thinking.visibility]
    return ThinkingShape(type=kind, budget_tokens=budget, display=display), effort


def _report_output(output: OutputFormat, plan: Plan) -> None:
    if output.kind == "json":
        plan.report.dropped(("output",), "kind", "the target has no free JSON mode")
    for name in ("name", "description", "verbosity"):
        if getattr(output, name) is not None:
            plan.report.dropped(("output",), name)
    if output.strict is False:
        plan.report.approximated(("output",), "strict", "the target is always strict")


def _encode_tier(request: Request, plan: Plan) -> Any:
    if request.tier is None:
        return UNSET
    if plan.home or request.tier == "auto":
        return request.tier
    if request.tier == "default":
        plan.report.approximated((), "tier", "default is told as standard_only")
        return "standard_only"
    plan.report.dropped((), "tier", f"the target has no tier {request.tier}")
    return UNSET


def _report_rest(request: Request, plan: Plan) -> None:
    """What a request of another protocol can say and this one can't."""
    if request.labels is not None:
        plan.report.dropped((), "labels")
    state = request.continuation
    if state is not None:
        if state.id is not None:
            plan.report.dropped(("continuation",), "id", "the target holds no conversation of another provider's")
        if state.store:
            plan.report.dropped(("continuation",), "store", "the target stores nothing")
        if state.background:
            plan.report.dropped(("continuation",), "background")
