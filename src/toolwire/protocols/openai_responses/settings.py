"""Request settings of the Responses API: `reasoning`, `text`, sampling, stored state and `tool_choice`."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from toolwire.canonical.request import Continuation, Request
from toolwire.canonical.tools import NativeTool, OutputFormat, Sampling, Thinking, ToolChoice, ToolRef
from toolwire.codec.encoding.fallbacks import (
    NO_THINKING,
    fit_output_limit,
    fit_temperature,
    report_sampling,
    report_thinking_visibility,
    report_unsent_thinking,
)
from toolwire.codec.encoding.hosted_tools import chosen_native_tool, has_native
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.tools import report_validated_choice
from toolwire.codec.hosts.profile import EFFORTS
from toolwire.codec.losses import SourcePath
from toolwire.codec.wire.extras import (
    as_dict,
    collect_extras,
    encode_with_extras,
    merge_extras,
    none_to_unset,
    restore_extras,
    unset_to_none,
)
from toolwire.codec.wire.reader import decode_json
from toolwire.protocols.openai_responses.tools import HOSTED_TOOLS, combine_extras, unused_field_extras
from toolwire.protocols.openai_responses.wire import (
    FAMILY,
    ChoiceShape,
    ConversationShape,
    FormatShape,
    ReasoningShape,
    RequestShape,
    TextShape,
    ToolReferenceShape,
)
from toolwire.protocols.vendors.openai import (
    encode_output_schema,
    fit_effort,
)

MIN_TOKENS = 16
LOGPROBS = "message.output_text.logprobs"

_FORMAT_KINDS: dict[str, Literal["text", "json", "json_schema"]] = {
    "text": "text",
    "json_object": "json",
    "json_schema": "json_schema",
}
_FORMAT_TYPES = {"text": "text", "json": "json_object", "json_schema": "json_schema"}
SUMMARY_LENGTHS = ("concise", "detailed")
_REASONING_FORM = "openai-responses:reasoning"
_TEXT_FORM = "openai-responses:text"
_FORMAT_FORM = "openai-responses:format"
_CONVERSATION = "openai-responses:name:id=conversation"
_CONVERSATION_OBJECT = "openai-responses:conversation:object"


# ---- decode


def decode_thinking(shape: ReasoningShape | UnsetType) -> Thinking | None:
    """Decode the `reasoning` settings."""
    if shape is UNSET:
        return None
    extras_and_form = collect_extras(shape, FAMILY, _REASONING_FORM, prefix="reasoning/")
    length: Any = shape.summary if shape.summary in SUMMARY_LENGTHS else None
    if shape.summary not in (UNSET, "auto", *SUMMARY_LENGTHS):
        extras_and_form = merge_extras(extras_and_form, _value_extra("reasoning/summary", shape.summary))
    visibility: Any = "summary" if isinstance(shape.summary, str) else None
    return Thinking(effort=unset_to_none(shape.effort), visibility=visibility, summary=length, **extras_and_form)


def _value_extra(pointer: str, value: Any) -> dict[str, Any]:
    """Return an `extras` argument with one value that only this API has."""
    return {"extras": {FAMILY: {pointer: Raw(msgspec.json.encode(value))}}}


def decode_output(shape: TextShape | UnsetType) -> OutputFormat | None:
    """Decode the `text` settings: output format and verbosity."""
    if shape is UNSET:
        return None
    extras_and_form = collect_extras(shape, FAMILY, _TEXT_FORM, prefix="text/")
    output_format = shape.format
    if output_format is UNSET:
        return OutputFormat(verbosity=unset_to_none(shape.verbosity), **extras_and_form)
    extras_and_form = merge_extras(
        extras_and_form, collect_extras(output_format, FAMILY, _FORMAT_FORM, prefix="text/format/")
    )
    if isinstance(output_format.type, str) and output_format.type not in _FORMAT_KINDS:
        extras_and_form = merge_extras(extras_and_form, _value_extra("text/format/type", output_format.type))
    return OutputFormat(
        kind=_FORMAT_KINDS.get(unset_to_none(output_format.type) or ""),
        schema=unset_to_none(output_format.schema),
        name=unset_to_none(output_format.name),
        description=unset_to_none(output_format.description),
        strict=unset_to_none(output_format.strict),
        verbosity=unset_to_none(shape.verbosity),
        **extras_and_form,
    )


def decode_sampling(shape: RequestShape) -> Sampling | None:
    """Decode the sampling parameters; None if there are none."""
    sampling = Sampling(
        max_tokens=unset_to_none(shape.max_output_tokens),
        temperature=unset_to_none(shape.temperature),
        top_p=unset_to_none(shape.top_p),
        top_logprobs=unset_to_none(shape.top_logprobs),
        **_decode_logprobs(shape),
    )
    return None if sampling == Sampling() else sampling


def included_fields(shape: RequestShape) -> list[Any]:
    """Return the `include` list if it requests log probabilities, else an empty list."""
    raw = shape.include
    include = decode_json(raw) if raw is not UNSET and LOGPROBS.encode() in bytes(raw) else ()
    return include if isinstance(include, list) and LOGPROBS in include else []


def _decode_logprobs(shape: RequestShape) -> dict[str, Any]:
    """Return arguments of `Sampling` for a request of log probabilities; empty without one."""
    if not (include := included_fields(shape)):
        return {}
    return {"logprobs": True, "wire_form": (f"{FAMILY}:name:logprobs=include/{include.index(LOGPROBS)}",)}


def decode_continuation(shape: RequestShape) -> Continuation | None:
    """Decode the stored state: `previous_response_id` or `conversation`.

    If a request has both, which the provider rejects, the conversation becomes an extra.
    """
    kind: Any = None
    id = None
    extras_and_form: dict[str, Any] = {}
    if shape.previous_response_id is not UNSET:
        kind, id = "response", shape.previous_response_id
    elif isinstance(shape.conversation, str):
        kind, id, extras_and_form = "conversation", shape.conversation, {"wire_form": (_CONVERSATION,)}
    elif shape.conversation is not UNSET:
        conversation = shape.conversation
        extras_and_form = collect_extras(
            conversation, FAMILY, _CONVERSATION + "/id", _CONVERSATION_OBJECT, prefix="conversation/"
        )
        kind, id = "conversation", conversation.id
    continuation = Continuation(
        kind=kind,
        id=id,
        store=unset_to_none(shape.store),
        background=unset_to_none(shape.background),
        **extras_and_form,
    )
    return None if continuation == Continuation() else continuation


# ---- encode


def encode_thinking(thinking: Thinking | None, path: SourcePath, plan: EncodingPlan) -> Any:
    """Encode the `reasoning` settings; UNSET without any."""
    if thinking is None:
        return UNSET
    if plan.model_info.thinking == "never" and not plan.same_protocol:
        report_unsent_thinking(thinking, plan, NO_THINKING, path)
        return UNSET
    shape = ReasoningShape(effort=none_to_unset(thinking.effort))
    if thinking.visibility in ("summary", "full"):
        extras = (thinking.extras or {}).get(FAMILY, {})
        shape.summary = UNSET if "reasoning/summary" in extras else thinking.summary or "auto"
    if not plan.same_protocol:
        _encode_foreign_thinking(thinking, shape, path, plan)
    return shape if shape != ReasoningShape() or _REASONING_FORM in thinking.wire_form else UNSET


def _encode_foreign_thinking(thinking: Thinking, shape: ReasoningShape, path: SourcePath, plan: EncodingPlan) -> None:
    """Adjust the `reasoning` settings in `shape` for another protocol's request; report losses."""
    if thinking.effort is not None and thinking.effort not in EFFORTS:
        plan.report.approximated(path, "effort", f"{thinking.effort} sent as high")
        shape.effort = "high"
    if thinking.enabled is False:
        if thinking.effort not in (None, "none"):
            plan.report.dropped(path, "effort", "thinking is disabled", severity="info")
        shape.effort = "none"
    elif thinking.enabled and thinking.effort is None:
        plan.report.approximated(path, "enabled", "the target's models decide whether to think")
    if thinking.budget_tokens is not None:
        plan.report.dropped(path, "budget_tokens")
    shape.effort = none_to_unset(fit_effort(unset_to_none(shape.effort), thinking, plan, path))
    report_thinking_visibility(replace(thinking, summary=None), plan.report, path)


def encode_output(output: OutputFormat | None, path: SourcePath, plan: EncodingPlan) -> Any:
    """Encode the `text` settings; UNSET without any."""
    if output is None:
        return UNSET
    shape = TextShape(verbosity=none_to_unset(output.verbosity))
    if output.kind is not None or (plan.same_protocol and _FORMAT_FORM in output.wire_form):
        kind = UNSET if output.kind is None else _FORMAT_TYPES[output.kind]
        schema, strict = output.schema, output.strict
        if not plan.same_protocol:
            schema, strict = encode_output_schema(output, plan.report, path)
        shape.format = FormatShape(type=kind, schema=none_to_unset(schema), strict=none_to_unset(strict))
        shape.format.name, shape.format.description = none_to_unset(output.name), none_to_unset(output.description)
        if not plan.same_protocol and output.kind == "json_schema" and output.name is None:
            shape.format.name = "answer"
            plan.report.added(path, "schema", "/text/format/name", "the target requires a schema name")
    return shape if shape != TextShape() or _TEXT_FORM in output.wire_form else UNSET


def encode_sampling(request: Request, body: dict[str, Any], plan: EncodingPlan) -> None:
    """Write the sampling parameters into `body`; report as losses those that the target lacks."""
    sampling = request.sampling
    if sampling is None:
        return
    if sampling.max_tokens is not None:
        reason = f"the minimum of the target is {MIN_TOKENS}"
        body["max_output_tokens"] = fit_output_limit(sampling.max_tokens, plan, MIN_TOKENS, reason)
    for name in ("temperature", "top_p", "top_logprobs"):
        if (value := getattr(sampling, name)) is not None:
            body[name] = value
    if sampling.temperature is not None:
        body["temperature"] = fit_temperature(sampling.temperature, plan)
    if sampling.logprobs and not plan.same_protocol:
        body["include"] = [*body.get("include", ()), LOGPROBS]
    report_sampling(sampling, plan.report, "top_k", "stop", "n", "seed", "frequency_penalty", "presence_penalty")


def encode_continuation(request: Request, body: dict[str, Any], plan: EncodingPlan) -> None:
    """Write references to stored state into `body`; report those of another provider as losses."""
    continuation = request.continuation
    if continuation is None:
        return
    if continuation.store is not None:
        body["store"] = continuation.store
    if continuation.background is not None:
        body["background"] = continuation.background
    if continuation.id is None:
        return
    if not plan.same_protocol:
        plan.report.dropped(("continuation",), "id", "stored by another provider")
    elif continuation.kind == "conversation":
        is_object = _CONVERSATION_OBJECT in continuation.wire_form
        body["conversation"] = ConversationShape(id=continuation.id) if is_object else continuation.id
    else:
        body["previous_response_id"] = continuation.id


_NO_CHOICE_NAME = "openai-responses:absent:name"
_NO_CHOICE_MODE = "openai-responses:absent:mode"
_NO_CHOICE_TOOLS = "openai-responses:absent:tools"
CHOICE_MODES: dict[str, Literal["auto", "none", "required"]] = {"auto": "auto", "none": "none", "required": "required"}

# ---- tool choice: decode


def decode_choice(choice: str | ChoiceShape | UnsetType, *, parallel: bool | None) -> ToolChoice | None:
    """Decode `tool_choice` and `parallel_tool_calls`."""
    if choice is UNSET or (isinstance(choice, str) and choice not in CHOICE_MODES):
        return None if parallel is None else ToolChoice(parallel=parallel, at="/parallel_tool_calls")
    if isinstance(choice, str):
        return ToolChoice(mode=CHOICE_MODES[choice], parallel=parallel)
    if choice.type != "allowed_tools":
        reference = replace(_decode_reference(choice), at="")
        return ToolChoice(
            mode="named", names=(reference,), parallel=parallel, **unused_field_extras(choice, ("mode", "tools"))
        )
    extras_and_form = combine_extras(
        collect_extras(choice, FAMILY), unused_field_extras(choice, ("name", "server_label"))
    )
    form: tuple[str, ...] = (_NO_CHOICE_TOOLS,) if choice.tools is UNSET else ()
    if choice.mode not in ("auto", "required"):
        form = (*form, _NO_CHOICE_MODE)
        extras_and_form = combine_extras(extras_and_form, unused_field_extras(choice, ("mode",)))
    tools = choice.tools or []
    return ToolChoice(
        mode="allowed",
        names=tuple(replace(_decode_reference(shape), at=f"/tools/{index}") for index, shape in enumerate(tools)),
        required=choice.mode == "required",
        natives=True,
        parallel=parallel,
        **combine_extras(extras_and_form, {"wire_form": form}),
    )


def _decode_reference(shape: ToolReferenceShape) -> ToolRef:
    """Decode a tool named in `tool_choice`."""
    match shape.type:
        case "function" | "custom" if shape.name is not UNSET:
            extras_and_form = combine_extras(
                collect_extras(shape, FAMILY), unused_field_extras(shape, ("server_label",))
            )
            return ToolRef(
                name=shape.name, kind="function" if shape.type == "function" else "freeform", **extras_and_form
            )
        case "mcp":
            form = (_NO_CHOICE_NAME,) if shape.name is UNSET else ()
            server = unset_to_none(shape.server_label)
            return ToolRef(name=shape.name or "", server=server, kind="server", **collect_extras(shape, FAMILY, *form))
        case kind:
            extras_and_form = combine_extras(
                collect_extras(shape, FAMILY), unused_field_extras(shape, ("name", "server_label"))
            )
            return ToolRef(name=kind, kind="native", **extras_and_form)


# ---- tool choice: encode


def encode_choice(request: Request, plan: EncodingPlan, *, has_tools: bool) -> Any:
    """Encode `tool_choice`; UNSET without a choice or without tools, when the provider rejects the field."""
    choice = request.tool_choice
    report_validated_choice(choice, plan.report)
    if choice is None or choice.mode is None:
        return UNSET
    if not plan.same_protocol and not has_tools:
        plan.report.dropped(("tool_choice",), "", "no tools are declared", severity="info")
        return UNSET
    if not plan.same_protocol:
        tool = chosen_native_tool(request)
        if tool is not None and has_native(tool, HOSTED_TOOLS):
            return _encode_forced_tool(tool)
    match choice.mode:
        case "named":
            reference = choice.names[0]
            shape = _encode_reference(reference, plan)
            if shape is None:
                return "auto"
            return restore_extras(restore_extras(as_dict(shape), reference, FAMILY), choice, FAMILY)
        case "allowed":
            return _encode_allowed(choice, plan)
        case _:
            return choice.mode


def _encode_allowed(choice: ToolChoice, plan: EncodingPlan) -> Any:
    """Encode a choice among some of the tools (`allowed_tools`)."""
    shapes = [_encode_reference(reference, plan) for reference in choice.names]
    tools: list[Any] = [
        encode_with_extras(shape, reference, FAMILY)
        for shape, reference in zip(shapes, choice.names, strict=True)
        if shape is not None
    ]
    allowed = ChoiceShape(type="allowed_tools", mode="required" if choice.required else "auto", tools=tools)
    if _NO_CHOICE_MODE in choice.wire_form:
        allowed.mode = UNSET
    if _NO_CHOICE_TOOLS in choice.wire_form and not tools:
        allowed.tools = UNSET
    return encode_with_extras(allowed, choice, FAMILY)


def _encode_forced_tool(tool: NativeTool) -> dict[str, Any]:
    """Encode a choice that forces a hosted tool.

    `web_search` cannot be named directly: it is sent as the only allowed tool.
    """
    if tool.hosted is not None and tool.hosted.kind == "code_execution":
        return {"type": "code_interpreter"}
    return {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]}


def encode_parallel(request: Request, plan: EncodingPlan, *, has_tools: bool) -> Any:
    """Return `parallel_tool_calls`; UNSET if the request does not set it or has no tools."""
    choice = request.tool_choice
    if choice is None or choice.parallel is None:
        return UNSET
    if not plan.same_protocol and not has_tools:
        plan.report.dropped(("tool_choice",), "parallel", "no tools are declared", severity="info")
        return UNSET
    return choice.parallel


def _encode_reference(reference: ToolRef, plan: EncodingPlan) -> ToolReferenceShape | None:
    """Encode a tool named in `tool_choice`; report it and return None if the target lacks the tool."""
    if not plan.same_protocol and reference.kind in ("native", "server"):
        plan.report.approximated(
            ("tool_choice",), "names", "the target does not have this tool; any tool may be chosen"
        )
        return None
    match reference.kind:
        case "function" | "freeform":
            if not plan.tools.freeform:
                return ToolReferenceShape(type="function", name=plan.tools.alias(reference.name, reference.namespace))
            name = reference.name if plan.same_protocol else plan.tools.alias(reference.name)
            return ToolReferenceShape(type="custom" if reference.kind == "freeform" else "function", name=name)
        case "server":
            member = UNSET if _NO_CHOICE_NAME in reference.wire_form else reference.name
            return ToolReferenceShape(type="mcp", server_label=none_to_unset(reference.server), name=member)
        case "native":
            return ToolReferenceShape(type=reference.name)
