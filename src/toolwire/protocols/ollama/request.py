"""Decode and encode requests of Ollama's chat API."""

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.errors import DecodeError
from toolwire.canonical.request import Request
from toolwire.codec.encoding.computer import FUNCTION_ADAPTER
from toolwire.codec.encoding.computer_request import adapt_turns, use_target_tool
from toolwire.codec.encoding.fallbacks import report_continuation
from toolwire.codec.encoding.hosted_tools import substitute_functions
from toolwire.codec.encoding.plan import EncodingPlan, IdAndNameRules
from toolwire.codec.encoding.tools import NameRules
from toolwire.codec.encoding.turns import (
    assemble,
    ends_with_assistant_text,
    one_turn_per_message,
    system_turns,
)
from toolwire.codec.interface import EncodedBody, Route, Target
from toolwire.codec.losses import LossReport
from toolwire.codec.wire.extras import collect_extras, merge_extras, restore_extras, unset_to_none
from toolwire.codec.wire.reader import Reader, describe_json
from toolwire.protocols.ollama.parts.messages import ConversationEncoder, decode_message, report_message
from toolwire.protocols.ollama.settings import (
    decode_options,
    decode_output,
    decode_sampling,
    decode_thinking,
    encode_output,
    encode_sampling,
    encode_thinking,
)
from toolwire.protocols.ollama.tools import decode_tools, encode_tools, report_choice
from toolwire.protocols.ollama.wire import CONSTRAINT_FAMILY, FAMILY, RequestShape

# The server takes any text as an id or a name.
ID_AND_NAME_RULES = IdAndNameRules(
    id_pattern=re.compile(r".+", re.DOTALL),
    id_limit=1024,
    names=NameRules(re.compile(r".+", re.DOTALL), 1024),
    freeform=False,
)
WIRE_NAMES = {
    "Request.sampling": "",
    "Request.thinking": "",
    "Request.output": "",
    "Sampling.max_tokens": "/options/num_predict",
    "Sampling.temperature": "/options/temperature",
    "Sampling.top_p": "/options/top_p",
    "Sampling.top_k": "/options/top_k",
    "Sampling.seed": "/options/seed",
    "Sampling.stop": "/options/stop",
    "Sampling.frequency_penalty": "/options/frequency_penalty",
    "Sampling.presence_penalty": "/options/presence_penalty",
    "Thinking.enabled": "/think",
    "Thinking.effort": "/think",
    "OutputFormat.kind": "/format",
    "OutputFormat.schema": "/format",
    "OutputFormat.held": "/format",
    "FunctionTool.name": "/function/name",
    "FunctionTool.description": "/function/description",
    "FunctionTool.parameters": "/function/parameters",
    "Message.parts": "",
    "Text.text": "",
    "Media.source": "",
    "Media.media_type": "",
    "Reasoning.content": "",
    "ToolCall.name": "/function/name",
    "ToolCall.arguments": "/function/arguments",
    "ToolResult.call_id": "/tool_call_id",
    "ToolResult.name": "/tool_name",
    "ToolResult.status": "/content",
    "Response.candidates": "",
    "Response.created": "/created_at",
    "Response.usage": "",
    "Candidate.messages": "/message",
    "Candidate.stop": "",
    "Stop.reason": "/done_reason",
    "Stop.raw": "/done_reason",
    "Usage.input_tokens": "/prompt_eval_count",
    "Usage.output_tokens": "/eval_count",
    "ApiError.message": "/error",
    "ApiError.raw": "/error",
}

NO_MESSAGES = "ollama:absent:messages"
NO_STREAM = "ollama:absent:stream"
_NULL_STREAM = "ollama:null:stream"

_request_reader = Reader[RequestShape](RequestShape, FAMILY)


# ---- decode


def decode_request(body: bytes, route: Route) -> Request:
    """Decode a request body."""
    return _decode_request(_request_reader.read(body), route)


def _decode_request(shape: RequestShape, route: Route) -> Request:
    """Build the canonical request from its wire object."""
    output, format_extras = decode_output(shape)
    form: tuple[str, ...] = ()
    if shape.messages is UNSET:
        form = (NO_MESSAGES,)
    if shape.stream is UNSET:
        form = (*form, NO_STREAM)
    if shape.unknown is not UNSET and (stream := shape.unknown.get("stream")) is not None:
        raise DecodeError(FAMILY, "/stream", "true or false", describe_json(stream))
    messages = tuple(
        [decode_message(message, f"/messages/{index}") for index, message in enumerate(shape.messages or ())]
    )
    return Request(
        origin=FAMILY,
        model=route.model if shape.model is UNSET else shape.model,
        messages=messages,
        tools=decode_tools(shape),
        sampling=decode_sampling(shape),
        thinking=decode_thinking(shape),
        output=output,
        # The server streams by default.
        stream=True if shape.stream is UNSET or shape.stream is None else shape.stream,
        continued=ends_with_assistant_text(messages),
        **merge_extras(
            collect_extras(shape, FAMILY, *form), decode_options(shape), format_extras, _decode_load_request(shape)
        ),
    )


def _decode_load_request(shape: RequestShape) -> dict[str, Any]:
    """Return a constraint that marks a request without messages, which loads or unloads a model.

    No other provider has such a request, so it may not be translated. Other requests get no arguments.
    """
    if shape.messages:
        return {}
    marker = Raw(b"[]") if shape.messages == [] else Raw(msgspec.json.encode(unset_to_none(shape.model)))
    return {"extras": {CONSTRAINT_FAMILY: {"messages" if shape.messages == [] else "model": marker}}}


# ---- encode


def encode_request(request: Request, target: Target) -> EncodedBody:
    """Encode a request; report as losses what Ollama cannot express."""
    same_protocol = request.origin == FAMILY
    model = request.model if target.model is None else target.model
    plan = EncodingPlan(ID_AND_NAME_RULES, LossReport(), replace(target, model=model), same_protocol=same_protocol)
    request = use_target_tool(substitute_functions(request, plan), plan, FUNCTION_ADAPTER)
    tools = encode_tools(request, plan)
    turns = one_turn_per_message(request.messages)
    if not same_protocol:
        turns = system_turns(request) + adapt_turns(assemble(request, plan.report, supports_prefill=True), plan)
    encoder = ConversationEncoder(plan)
    messages = [message for turn in turns for message in encoder.encode(turn)]
    body: dict[str, Any] = {} if model is None else {"model": model}
    if messages or not {NO_MESSAGES, f"{FAMILY}:null:messages"} & set(request.wire_form):
        body["messages"] = messages
    if tools is not None:
        body["tools"] = tools
    report_choice(request, plan, has_tools=bool(tools))
    encode_thinking(request, body, plan)
    encode_output(request, body, plan)
    encode_sampling(request, body, plan)
    _encode_stream(request, body, plan)
    if not same_protocol:
        _report_unsupported(request, plan)
    for node in (request, request.sampling):
        restore_extras(body, node, FAMILY)
    if not plan.same_protocol:
        plan.report.report_foreign_extras(request, (FAMILY, CONSTRAINT_FAMILY))
    return EncodedBody(body, plan.report, plan.tools.mapping, Route(path="/api/chat"))


def _encode_stream(request: Request, body: dict[str, Any], plan: EncodingPlan) -> None:
    """Write `stream` into `body`; Ollama takes an absent field as true."""
    stream = request.stream if plan.target.stream is None else plan.target.stream
    if stream and plan.same_protocol and {NO_STREAM, _NULL_STREAM} & set(request.wire_form):
        return
    body["stream"] = bool(stream)


def _report_unsupported(request: Request, plan: EncodingPlan) -> None:
    """Report as losses the fields of another protocol's request that Ollama does not have."""
    plan.report.dropped_fields((), request, "end_user", "tier", "labels")
    if request.cache is not None:
        plan.report.dropped(("cache",), "", "the target has no cache marks")
    report_continuation(request, plan.report, "the target does not store conversations")
    for index, message in enumerate(request.messages):
        report_message(message, ("messages", index), plan)
