"""Anthropic's request body, to a canonical request and back."""

import re
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from toolwire.canonical.request import Request
from toolwire.codec.computer import with_screens
from toolwire.codec.fields import Reader
from toolwire.codec.hosted import as_functions
from toolwire.codec.interface import Encoding, Route, Target
from toolwire.codec.kept import given, joined, known, rest, restore, watching_extras
from toolwire.codec.losses import Report
from toolwire.codec.plan import Plan, Rules
from toolwire.codec.screens import on_screen, screened
from toolwire.codec.tools import NameRules
from toolwire.codec.turns import Turn, as_written, assemble, is_begun, leading_system
from toolwire.protocols.anthropic.parts.messages import (
    ask_to_go_on,
    decode_messages,
    decode_system,
    encode_system,
    encode_turn,
    is_call_id,
    trim_prefill,
)
from toolwire.protocols.anthropic.rules.vocabulary import refuses_prefill
from toolwire.protocols.anthropic.wire import (
    FAMILY,
    MetadataShape,
    RequestShape,
)

from .computer import SCREEN, betas
from .connectors import TOLD, connected, is_told
from .settings import (
    decode_sampling,
    decode_settings,
    encode_max_tokens,
    encode_sampling,
    encode_settings,
    encode_tier,
)
from .tools import HOSTED, decode_cache, decode_choice, decode_tools, encode_cache, encode_choice, encode_tools

NOTHING_SAID = "(nothing)"
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


_reader = Reader[RequestShape](RequestShape, FAMILY)


# ---- decode


def decode_request(body: bytes, route: Route) -> Request:
    with watching_extras() as extras:
        request = with_screens(_decode_request(_reader.read(body), route), SCREEN)
    return request if extras else replace(request, plain=True)


def _decode_request(shape: RequestShape, route: Route) -> Request:
    thinking, output = decode_settings(shape)
    system = shape.system
    tools = None if shape.tools is UNSET else connected(decode_tools(shape.tools), shape.mcp_servers)
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
        stream=known(shape.stream),
        end_user=None if shape.metadata is UNSET else known(shape.metadata.user_id),
        tier=known(shape.service_tier),
        cache=decode_cache(shape.cache_control),
        continued=is_begun(messages),
        **_decode_rest(shape, *((TOLD,) if is_told(tools) else ())),
    )


def _decode_rest(shape: RequestShape, *form: str) -> dict[str, Any]:
    if isinstance(shape.system, str):
        form = (*form, "anthropic:system:string")
    if shape.messages is UNSET:
        form = (*form, "anthropic:absent:messages")
    if shape.metadata is UNSET:
        return rest(shape, FAMILY, *form)
    empty = () if shape.metadata.user_id is not UNSET else ("anthropic:metadata:empty",)
    return joined(rest(shape, FAMILY, *form), rest(shape.metadata, FAMILY, *empty, under="metadata/"))


# ---- encode


def encode_request(request: Request, target: Target) -> Encoding:
    plan = Plan(RULES, Report(), target, home=request.origin == FAMILY)
    request = on_screen(as_functions(request, plan, HOSTED), plan, SCREEN)
    # One message at least is wanted, so that system text alone is told in a user turn.
    lifted = 0 if plan.home else min(leading_system(request.messages), max(len(request.messages) - 1, 0))
    tools = encode_tools(request, plan)
    model = request.model if target.model is None else target.model
    continues = not refuses_prefill(model or "")
    turns = as_written(request.messages)
    if not plan.home:
        turns = screened(assemble(request, plan.report, skip=lifted, continues=continues), plan)
    shape: dict[str, Any] = {"model": model}
    shape["max_tokens"] = encode_max_tokens(request, plan)
    if (system := encode_system(request, lifted, plan)) is not None:
        shape["system"] = system
    if turns or "anthropic:absent:messages" not in request.form:
        shape["messages"] = messages = _encode_turns(turns, plan)
        if not plan.home and turns and turns[-1].role == "assistant" and turns[-1].parts and messages:
            trim_prefill(messages[-1]["content"], turns[-1].parts[-1].trail, plan)
        if not plan.home and not continues:
            ask_to_go_on(messages, plan.report)
    if tools is not None:
        shape["tools"] = tools
    if plan.servers:
        shape["mcp_servers"] = plan.servers
    shape["tool_choice"] = encode_choice(request, plan, any_tools=bool(tools))
    encode_sampling(request, shape, plan)
    encode_settings(request, shape, plan)
    if (stream := request.stream if target.stream is None else target.stream) is not None:
        shape["stream"] = stream
    if request.end_user is not None or "anthropic:metadata:empty" in request.form:
        shape["metadata"] = MetadataShape(user_id=given(request.end_user))
    shape["service_tier"] = encode_tier(request, plan)
    shape["cache_control"] = encode_cache(request.cache, (), plan)
    if not plan.home:
        _report_rest(request, plan)
    body = {name: value for name, value in shape.items() if value is not UNSET and value is not None}
    for node in (request, request.thinking, request.output):
        restore(body, node, FAMILY)
    if not plan.home and not request.plain:
        plan.report.unclaimed(request, (FAMILY,))
    headers = betas(connects=bool(plan.servers), tools=() if plan.home else request.tools)
    return Encoding(body, plan.report, plan.tools.undo, Route(path="/v1/messages", headers=headers))


def _encode_turns(turns: list[Turn], plan: Plan) -> list[Any]:
    messages: list[Any] = []
    for number, turn in enumerate(turns):
        made = encode_turn(turn, plan)
        if not made and number == 0 and turn.role == "user" and not plan.home:
            made = [{"role": "user", "content": NOTHING_SAID}]
            plan.report.invented((), "", "/messages/0", "the target wants a user to begin")
        messages += made
    return messages


def _report_rest(request: Request, plan: Plan) -> None:
    """What a request of another protocol can say and this one can't."""
    for index, message in enumerate(request.messages):
        for field in ("name", "id", "status", "phase", "clear_at"):
            if getattr(message, field) is not None and not (field == "id" and is_call_id(message)):
                plan.report.dropped(("messages", index), field)
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
