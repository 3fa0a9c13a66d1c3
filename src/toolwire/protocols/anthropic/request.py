"""Decode and encode the body of `POST /v1/messages` and of `/v1/messages/count_tokens`."""

import re
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from toolwire.canonical.request import Request
from toolwire.codec.encoding.computer import FUNCTION_ADAPTER, decode_computer_use
from toolwire.codec.encoding.computer_request import adapt_turns, use_target_tool
from toolwire.codec.encoding.fallbacks import report_continuation, report_message_fields
from toolwire.codec.encoding.hosted_tools import accepts_native, substitute_functions
from toolwire.codec.encoding.hosts import rename_tools, with_host_names
from toolwire.codec.encoding.plan import EncodingPlan, IdAndNameRules, resolve_target
from toolwire.codec.encoding.tools import NameRules
from toolwire.codec.encoding.turns import (
    EMPTY_TEXT,
    Turn,
    assemble,
    ends_with_assistant_text,
    leading_system_count,
    one_turn_per_message,
)
from toolwire.codec.interface import EncodedBody, Route, Target
from toolwire.codec.losses import LossReport, with_source_positions
from toolwire.codec.models.claude import claude_info, refuses_prefill
from toolwire.codec.token_count import TokenCountApi, select_fields
from toolwire.codec.wire.extras import (
    collect_extras,
    merge_extras,
    none_to_unset,
    restore_extras,
    unset_to_none,
)
from toolwire.codec.wire.reader import Reader
from toolwire.protocols.anthropic.computer import COMPUTER_USE
from toolwire.protocols.anthropic.hosts import fit_body, fit_messages
from toolwire.protocols.anthropic.parts.messages import (
    append_continue_prompt,
    decode_messages,
    decode_system,
    encode_system,
    encode_turn,
    trim_prefill,
)
from toolwire.protocols.anthropic.settings import (
    add_cache_marks,
    decode_sampling,
    decode_settings,
    encode_max_tokens,
    encode_sampling,
    encode_settings,
    encode_tier,
)
from toolwire.protocols.anthropic.tools import (
    HOSTED_TOOLS,
    REPRESENTED_SERVERS,
    attach_servers,
    beta_headers,
    decode_cache,
    decode_choice,
    decode_tools,
    encode_cache,
    encode_choice,
    encode_tools,
    has_servers,
)
from toolwire.protocols.anthropic.wire import FAMILY, MetadataShape, RequestShape

ID_AND_NAME_RULES = IdAndNameRules(
    id_pattern=re.compile(r"[a-zA-Z0-9_-]+"),
    id_limit=64,
    names=NameRules(re.compile(r"[a-zA-Z0-9_-]+"), 64),
    freeform=False,
)
WIRE_NAMES = {
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
    "OutputFormat.held": "/output_config/format/schema",
    "ToolChoice.parallel": "/disable_parallel_tool_use",
    "ToolChoice.names": "/name",
    "ToolChoice.mode": "/type",
    "FunctionTool.parameters": "/input_schema",
    "FunctionTool.defer": "/defer_loading",
    "FunctionTool.cache": "/cache_control",
    "McpServer.authorization": "/authorization_token",
    "Message.parts": "/content",
    "Text.annotations": "/citations",
    "Text.cache": "/cache_control",
    "Media.cache": "/cache_control",
    "Media.name": "/title",
    "Media.media_type": "/source/media_type",
    "Nested.parts": "/content",
    "Citation.quote": "/cited_text",
    "Reasoning.content": "/thinking",
    "Reasoning.signature": "/signature",
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
    "Computer.width": "/display_width_px",
    "Computer.height": "/display_height_px",
    "ToolRef.name": "/tool_name",
    "ToolRef.cache": "/cache_control",
    "ApiError.raw": "/error/type",
    "ApiError.message": "/error/message",
    "ApiError.code": "/error/details/error_code",
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

_BILLING_PREFIX = "x-anthropic-billing-header:"
_request_reader = Reader[RequestShape](RequestShape, FAMILY)

# ---- decode


def decode_request(body: bytes, route: Route) -> Request:
    """Decode a request body."""
    return decode_computer_use(_decode_request(_request_reader.read(body), route), COMPUTER_USE)


def _decode_request(shape: RequestShape, route: Route) -> Request:
    """Build the canonical request from its wire object."""
    thinking, output = decode_settings(shape)
    system = shape.system
    tools = None if shape.tools is UNSET else attach_servers(decode_tools(shape.tools), shape.mcp_servers)
    messages = () if shape.messages is UNSET else decode_messages(shape.messages)
    return Request(
        origin=FAMILY,
        model=route.model if shape.model is UNSET else shape.model,
        messages=messages,
        system=None if system is UNSET else decode_system(system),
        tools=tools,
        tool_choice=None if shape.tool_choice is UNSET else decode_choice(shape.tool_choice),
        sampling=decode_sampling(shape),
        thinking=thinking,
        output=output,
        stream=None if shape.stream is UNSET else shape.stream,
        end_user=None if shape.metadata is UNSET else unset_to_none(shape.metadata.user_id),
        tier=None if shape.service_tier is UNSET else shape.service_tier,
        cache=decode_cache(shape.cache_control),
        continued=ends_with_assistant_text(messages),
        **_decode_extras(shape, *((REPRESENTED_SERVERS,) if has_servers(tools) else ())),
    )


def _decode_extras(shape: RequestShape, *wire_form: str) -> dict[str, Any]:
    """Return the `extras` and `wire_form` arguments for fields that the canonical request lacks."""
    if isinstance(shape.system, str):
        wire_form = (*wire_form, "anthropic:system:string")
    if shape.messages is UNSET:
        wire_form = (*wire_form, "anthropic:absent:messages")
    if shape.metadata is UNSET:
        return collect_extras(shape, FAMILY, *wire_form)
    metadata_form = () if shape.metadata.user_id is not UNSET else ("anthropic:metadata:empty",)
    return merge_extras(
        collect_extras(shape, FAMILY, *wire_form),
        collect_extras(shape.metadata, FAMILY, *metadata_form, prefix="metadata/"),
    )


# ---- billing header


def remove_billing_header(request: Request, report: LossReport) -> Request:
    """Return the request without the line that Claude Code writes before its system prompt, for Anthropic's billing.

    It means nothing to other vendors. Some versions write a new `cch` into it with every request. As the first words of
    the prompt it then keeps every cache of prompt prefixes from matching.
    """
    if not request.system or not request.system[0].text.startswith(_BILLING_PREFIX):
        return request
    first, *others = with_source_positions(request, WIRE_NAMES, "system").system or ()
    reason = "billing information for Anthropic, which may keep the prompt caches of other vendors from matching"
    if rest := first.text.partition("\n")[2].lstrip("\n"):
        report.approximated(("system", 0), "", f"sent without {reason}", severity="info")
        others.insert(0, replace(first, text=rest))
    else:
        report.dropped(("system", 0), "", reason, severity="info")
    return replace(request, system=tuple(others) or None)


# ---- encode


def encode_request(request: Request, target: Target) -> EncodedBody:
    """Encode a request for Anthropic."""
    target = resolve_target(target, request, claude_info)
    rules = with_host_names(ID_AND_NAME_RULES, target.host)
    plan = EncodingPlan(rules, LossReport(), target, same_protocol=request.origin == FAMILY)
    computer_use = COMPUTER_USE if accepts_native("client", target.host) else FUNCTION_ADAPTER
    request = rename_tools(substitute_functions(request, plan, HOSTED_TOOLS), plan)
    request = use_target_tool(request, plan, computer_use)
    adapts = not target.host.pass_through
    if adapts:
        plan.target = target = replace(target, model=target.model or request.model)
        request = fit_messages(request, plan)
    fields = _encode_fields(request, plan)
    body = {name: value for name, value in fields.items() if value is not UNSET and value is not None}
    for node in (request, request.thinking, request.output):
        restore_extras(body, node, FAMILY)
    if not plan.same_protocol:
        plan.report.report_foreign_extras(request, (FAMILY,))
    if adapts:
        fit_body(request, body, plan)
    headers = beta_headers(has_connectors=bool(plan.mcp_servers), tools=() if plan.same_protocol else request.tools)
    return EncodedBody(body, plan.report, plan.tools.mapping, Route(path="/v1/messages", headers=headers))


def _encode_fields(request: Request, plan: EncodingPlan) -> dict[str, Any]:
    """Encode the fields of the body; fields whose value is None or UNSET are later left out."""
    target, model = plan.target, plan.target.model
    # Anthropic requires a message: system text alone is sent as a user message.
    lifted = 0 if plan.same_protocol else min(leading_system_count(request.messages), max(len(request.messages) - 1, 0))
    tools = encode_tools(request, plan)
    supports_prefill = not refuses_prefill(model or "")
    turns = one_turn_per_message(request.messages)
    if not plan.same_protocol:
        turns = adapt_turns(assemble(request, plan.report, skip=lifted, supports_prefill=supports_prefill), plan)
    shape: dict[str, Any] = {"model": model, "max_tokens": encode_max_tokens(request, plan)}
    shape["system"] = encode_system(request, lifted, plan)
    if turns or "anthropic:absent:messages" not in request.wire_form:
        shape["messages"] = _encode_messages(turns, plan, supports_prefill=supports_prefill)
    shape["tools"] = tools
    shape["mcp_servers"] = plan.mcp_servers or UNSET
    shape["tool_choice"] = encode_choice(request, plan, has_tools=bool(tools))
    encode_sampling(request, shape, plan)
    encode_settings(request, shape, plan)
    shape["stream"] = request.stream if target.stream is None else target.stream
    if request.end_user is not None or "anthropic:metadata:empty" in request.wire_form:
        shape["metadata"] = MetadataShape(user_id=none_to_unset(request.end_user))
    shape["service_tier"] = encode_tier(request, plan)
    shape["cache_control"] = encode_cache(request.cache, (), plan)
    if not plan.same_protocol:
        if target.adds_cache_marks and not plan.cache_marks:
            add_cache_marks(shape, plan)
        _report_unsupported(request, plan)
    return shape


def _encode_messages(turns: list[Turn], plan: EncodingPlan, *, supports_prefill: bool) -> list[Any]:
    """Encode the turns; from other protocols, also make the last message valid for the model (prefill)."""
    messages = _encode_turns(turns, plan)
    if plan.same_protocol:
        return messages
    if turns and turns[-1].role == "assistant" and turns[-1].parts and messages:
        trim_prefill(messages[-1]["content"], turns[-1].parts[-1].path, plan)
    if not supports_prefill:
        append_continue_prompt(messages, plan.report)
    return messages


def _encode_turns(turns: list[Turn], plan: EncodingPlan) -> list[Any]:
    """Encode the turns as messages; placeholder text stands for a first user turn without content, or for no turn."""
    if plan.same_protocol:
        return [message for turn in turns for message in encode_turn(turn, plan)]
    messages = [] if turns else [_add_placeholder(plan)]
    for index, turn in enumerate(turns):
        encoded = encode_turn(turn, plan)
        if not encoded and index == 0 and turn.role == "user":
            encoded = [_add_placeholder(plan)]
        messages += encoded
    return messages


def _add_placeholder(plan: EncodingPlan) -> dict[str, Any]:
    """Return the user message that stands for missing content, and report it."""
    plan.report.added((), "", "/messages/0", "the target requires a user turn first")
    return {"role": "user", "content": EMPTY_TEXT}


def _report_unsupported(request: Request, plan: EncodingPlan) -> None:
    """Report as losses the fields of another protocol's request that Anthropic lacks."""
    for index, message in enumerate(request.messages):
        report_message_fields(message, ("messages", index), plan.report, "name", "id", "status", "phase", "clear_at")
    if request.labels is not None:
        plan.report.dropped((), "labels")
    report_continuation(request, plan.report)


_COUNTED_FIELDS = frozenset(
    (
        *("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control", "speed"),
        *("mcp_servers", "context_management"),
    )
)


class CountResponse(Struct):
    """The response body of `/v1/messages/count_tokens`."""

    input_tokens: int


TOKEN_COUNT_API = TokenCountApi(
    count_path=lambda path: f"{path}/count_tokens",
    wrap_request=lambda body, _: select_fields(body, _COUNTED_FIELDS),
    unwrap_request=lambda body: body,
    encode_count=CountResponse,
    decode_count=lambda body: msgspec.json.decode(body, type=CountResponse).input_tokens,
)
