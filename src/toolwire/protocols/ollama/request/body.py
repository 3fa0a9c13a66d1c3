"""Ollama's request body, to a canonical request and back."""

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.errors import DecodeError
from toolwire.canonical.request import Request
from toolwire.codec.fields import Reader, told
from toolwire.codec.hosted import as_functions
from toolwire.codec.interface import Encoding, Route, Target
from toolwire.codec.kept import joined, known, rest, restore, watching_extras
from toolwire.codec.losses import Report
from toolwire.codec.plan import Plan, Rules
from toolwire.codec.screen_function import FUNCTION
from toolwire.codec.screens import on_screen, screened
from toolwire.codec.tools import NameRules
from toolwire.codec.turns import Placed, Turn, as_written, assemble, is_begun
from toolwire.protocols.ollama.parts.messages import Conversation, decode_message, report_message
from toolwire.protocols.ollama.wire import FAMILY, GUARDED, RequestShape

from .settings import (
    decode_options,
    decode_output,
    decode_sampling,
    decode_thinking,
    encode_output,
    encode_sampling,
    encode_thinking,
)
from .tools import decode_tools, encode_tools, report_choice

# The server takes any text as an id or a name.
RULES = Rules(
    ids=re.compile(r".+", re.DOTALL),
    id_limit=1024,
    names=NameRules(re.compile(r".+", re.DOTALL), 1024),
    freeform=False,
)
NAMES = {
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

_reader = Reader[RequestShape](RequestShape, FAMILY)


# ---- decode


def decode_request(body: bytes, route: Route) -> Request:
    with watching_extras() as extras:
        request = _decode_request(_reader.read(body), route)
    return request if extras else replace(request, plain=True)


def _decode_request(shape: RequestShape, route: Route) -> Request:
    output, format_kept = decode_output(shape)
    form: tuple[str, ...] = ()
    if shape.messages is UNSET:
        form = (NO_MESSAGES,)
    if shape.stream is UNSET:
        form = (*form, NO_STREAM)
    if shape.unknown is not UNSET and (stream := shape.unknown.get("stream")) is not None:
        raise DecodeError(FAMILY, "/stream", "true or false", told(stream))
    messages = tuple([decode_message(one, f"/messages/{index}") for index, one in enumerate(shape.messages or ())])
    return Request(
        origin=FAMILY,
        model=route.model if shape.model is UNSET else shape.model,
        messages=messages,
        tools=decode_tools(shape),
        sampling=decode_sampling(shape),
        thinking=decode_thinking(shape),
        output=output,
        # Unless it is told not to, the server streams.
        stream=True if shape.stream is UNSET or shape.stream is None else shape.stream,
        continued=is_begun(messages),
        **joined(rest(shape, FAMILY, *form), decode_options(shape), format_kept, _decode_order(shape)),
    )


def _decode_order(shape: RequestShape) -> dict[str, Any]:
    """Without messages it is no question, but the order to load or unload a model: no other provider takes that."""
    if shape.messages:
        return {}
    order = Raw(b"[]") if shape.messages == [] else Raw(msgspec.json.encode(known(shape.model)))
    return {"extras": {GUARDED: {"messages" if shape.messages == [] else "model": order}}}


# ---- encode


def encode_request(request: Request, target: Target) -> Encoding:
    home = request.origin == FAMILY
    model = request.model if target.model is None else target.model
    plan = Plan(RULES, Report(), replace(target, model=model), home=home)
    request = on_screen(as_functions(request, plan), plan, FUNCTION)
    tools = encode_tools(request, plan)
    turns = as_written(request.messages)
    if not home:
        turns = _system(request) + screened(assemble(request, plan.report, continues=True), plan)
    conversation = Conversation(plan)
    messages = [message for turn in turns for message in conversation.encode(turn)]
    body: dict[str, Any] = {} if model is None else {"model": model}
    if messages or not {NO_MESSAGES, f"{FAMILY}:null:messages"} & set(request.form):
        body["messages"] = messages
    if tools is not None:
        body["tools"] = tools
    report_choice(request, plan, any_tools=bool(tools))
    encode_thinking(request, body, plan)
    encode_output(request, body, plan)
    encode_sampling(request, body, plan)
    _encode_stream(request, body, plan)
    if not home:
        _report_rest(request, plan)
    for node in (request, request.sampling):
        restore(body, node, FAMILY)
    if not plan.home and not request.plain:
        plan.report.unclaimed(request, (FAMILY, GUARDED))
    return Encoding(body, plan.report, plan.tools.undo, Route(path="/api/chat"))


def _system(request: Request) -> list[Turn]:
    """What other protocols keep apart from the messages leads them here."""
    if not request.system:
        return []
    places = [Placed(part, ("system", index)) for index, part in enumerate(request.system)]
    return [Turn("system", places, None, ("system",))]


def _encode_stream(request: Request, body: dict[str, Any], plan: Plan) -> None:
    stream = request.stream if plan.target.stream is None else plan.target.stream
    if stream and plan.home and {NO_STREAM, _NULL_STREAM} & set(request.form):
        return
    body["stream"] = bool(stream)


def _report_rest(request: Request, plan: Plan) -> None:
    """What a request of another protocol can say and this one can't."""
    for field in ("end_user", "tier", "labels"):
        if getattr(request, field) is not None:
            plan.report.dropped((), field)
    if request.cache is not None:
        plan.report.dropped(("cache",), "", "the target has no cache marks")
    state = request.continuation
    if state is not None:
        if state.id is not None:
            plan.report.dropped(("continuation",), "id", "the target holds no conversation")
        if state.store:
            plan.report.dropped(("continuation",), "store", "the target stores nothing")
        if state.background:
            plan.report.dropped(("continuation",), "background")
    for index, message in enumerate(request.messages):
        report_message(message, ("messages", index), plan)
