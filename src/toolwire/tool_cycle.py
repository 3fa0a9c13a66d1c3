"""The tool-call cycle in the JSON of any protocol: declare tools, parse calls, format results, continue."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, Text, ToolCall, ToolResult
from toolwire.canonical.errors import DecodeError, Loss
from toolwire.canonical.request import Request
from toolwire.canonical.response import INCOMPLETE_STOPS, Response
from toolwire.canonical.tools import FreeformTool, FunctionTool, NativeTool, Tool, ToolGroup
from toolwire.codec.interface import ResponseContext, ResponseMapping, Route, Target
from toolwire.codec.losses import LossReport
from toolwire.codec.options import require, require_bool, require_text, require_texts
from toolwire.codec.sensitive_data import check_schemas
from toolwire.codec.validation import Finding
from toolwire.codec.wire.reader import validate_json
from toolwire.translation.body import Body, body_bytes, get_codec, text_recovery
from toolwire.translation.pipeline import adapt_response

_HISTORY_FIELDS = {"openai-responses": "input", "gemini-interactions": "input", "gemini": "contents"}
"""The field that holds the conversation, for protocols where it is not `messages`."""

_PROTOCOLS_WITHOUT_CALL_IDS = ("gemini", "ollama")
"""Protocols in which calls may lack ids; a result then refers to its call by name and order."""

_TOOL_STOP_REASONS = {
    "anthropic": ("tool_use",),
    "openai-chat": ("tool_calls", "function_call"),
    "openrouter": ("tool_calls", "function_call"),
}
"""Stop reasons that announce tool calls, for protocols that have such a stop reason."""

_PYTHON_TYPES = {
    "dict": "object",
    "list": "array",
    "tuple": "array",
    "float": "number",
    "int": "integer",
    "bool": "boolean",
    "str": "string",
}
"""JSON Schema's types, by the names that schemas written for Python use instead."""

_TOOL_TYPES = (FunctionTool, FreeformTool, ToolGroup, NativeTool)


class FormattedTools(list[Any]):
    """Tool declarations in a protocol's format, as a list for the request, with replaced names and losses."""

    def __init__(self, declarations: list[Any], names: dict[str, str], losses: list[Loss]) -> None:
        super().__init__(declarations)
        self.names = names
        """The tools' own names, by the names sent instead; pass `tools` to `parse_tool_calls` to get them back."""

        self.losses = losses
        """The losses, with JSON pointers into the tools."""


def format_tools(tools: Sequence[Any], protocol: str) -> FormattedTools:
    """Return the protocol's wire form of tools, given as canonical tools or as a Chat Completions list.

    The result is a list with the attributes `names` and `losses`. A name that the protocol does not allow, such as
    `uber.ride`, is replaced.
    """
    request, report = _decode_tools(tools), LossReport()
    request = replace(
        request, tools=tuple(_with_json_types(tool, i, report) for i, tool in enumerate(request.tools or ()))
    )
    encoded = get_codec(protocol).encode_request(request, Target())
    report.include(encoded.report)
    declarations = json.loads(encoded.to_bytes()).get("tools", [])
    losses = report.resolve(request, get_codec("openai-chat").wire_names)
    names = {sent: original.name for sent, original in encoded.mapping.tools.items() if sent != original.name}
    return FormattedTools(
        declarations if isinstance(declarations, list) else [],
        names,
        [_within_tools(loss, tools) for loss in losses if loss.path.startswith("/tools/")],
    )


def _with_json_types(tool: Tool, index: int, report: LossReport) -> Tool:
    """Return a function whose schema names JSON Schema's types in place of Python's, such as `dict`."""
    if not isinstance(tool, FunctionTool) or tool.parameters is None:
        return tool
    schema = msgspec.json.decode(tool.parameters)
    renamed, nodes = set[str](), [schema]
    while nodes:
        node = nodes.pop()
        nodes += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        name = node.get("type") if isinstance(node, dict) else None
        if isinstance(name, str) and name in _PYTHON_TYPES:
            renamed.add(name)
            node["type"] = _PYTHON_TYPES[name]
    if not renamed:
        return tool
    types = ", ".join(f"{name} is written as {_PYTHON_TYPES[name]}" for name in sorted(renamed))
    report.approximated(("tools", index), "parameters", f"Python's names of types: {types}", severity="info")
    return replace(tool, parameters=Raw(msgspec.json.encode(schema)))


def _within_tools(loss: Loss, tools: Sequence[Any]) -> Loss:
    """Return the loss with a path into the list of tools, instead of the request that declares them."""
    path = loss.path.removeprefix("/tools")
    index, _, rest = path[1:].partition("/")
    if index.isdigit() and int(index) < len(tools) and _is_bare_function(tools[int(index)]):
        path = f"/{index}/{rest.removeprefix('function/')}"
    return replace(loss, path=path)


def _decode_tools(tools: Any) -> Request:
    """Return a request that declares tools, given as canonical tools or as a Chat Completions list."""
    is_list = isinstance(tools, Sequence) and not isinstance(tools, str | bytes)
    require("tools", tools, "a list of declarations", valid=is_list)
    if all(isinstance(tool, _TOOL_TYPES) for tool in tools):
        return Request(origin="", tools=tuple(tools))
    reader = get_codec("openai-chat")
    declarations = [{"type": "function", "function": tool} if _is_bare_function(tool) else tool for tool in tools]
    request = reader.decode_request(body_bytes({"messages": [], "tools": declarations}, reader.name), Route())
    return replace(request, origin="")  # tools that nobody sent over Chat are checked for Chat, too


def _is_bare_function(tool: Any) -> bool:
    """Return whether a tool is a function declaration without the wrapper of Chat Completions."""
    return not (isinstance(tool, Mapping) and "type" in tool) and not isinstance(tool, _TOOL_TYPES)


def parse_tool_calls(
    response: Body,
    protocol: str,
    *,
    strict: bool = False,
    tools: Sequence[Any] = (),
    tool_call_parser: str = "off",
    reasoning_parser: str = "off",
) -> list[dict[str, Any]]:
    """Return the tool calls that a response leaves to the client: id, name, arguments as text, shape, complete.

    Run only calls that are `complete`. No call is complete if the response failed or was cut off, for instance by a
    length limit or a filter: its arguments may be truncated even if they parse. With `strict`, the model must also have
    stopped to call tools (`stop_reason: tool_use`, `finish_reason: tool_calls`).

    With `tools`, in any form that `format_tools` takes, calls have the tools' own names, also where `format_tools`
    replaced them.

    With `tool_call_parser`, calls that the model wrote as text are returned as well, if `tools` declares them: `auto`
    knows all dialects; or the name of one.
    """
    require_bool("strict", strict)
    request = _decode_tools(tools) if tools else None
    encoded = None if request is None else get_codec(protocol).encode_request(request, Target())
    context = ResponseContext(
        request=request,
        mapping=ResponseMapping() if encoded is None else encoded.mapping,
        text_recovery=text_recovery(tool_call_parser, reasoning_parser, None),
    )
    decoded = adapt_response(_decode_response(response, protocol), get_codec(protocol), None, context)
    finished = _is_finished(decoded, protocol, strict=strict)
    return [
        {
            "id": call.id,
            "name": call.name,
            "arguments": call.arguments,
            "shape": call.shape,
            "complete": finished and call.complete,
        }
        | ({"namespace": call.namespace} if call.namespace is not None else {})
        for call in _client_calls(decoded)
    ]


def _is_finished(response: Response, protocol: str, *, strict: bool) -> bool:
    """Return whether the response ended normally; with `strict`, whether it ended to call tools."""
    stop = response.candidates[0].stop if response.candidates else None
    if response.error is not None or (stop is not None and stop.reason in INCOMPLETE_STOPS):
        return False
    if not strict:
        return True
    if stop is None or stop.reason != "tool_use":
        return False
    if stop.raw is None:  # the calls were recovered from text
        return True
    return protocol not in _TOOL_STOP_REASONS or stop.raw in _TOOL_STOP_REASONS[protocol]


def _decode_response(response: Body, protocol: str) -> Response:
    """Decode a response body of the protocol."""
    return get_codec(protocol).decode_response(body_bytes(response, protocol), ResponseContext())


def _client_calls(response: Response) -> list[ToolCall]:
    """Return the calls of the first candidate that the client must run."""
    messages = response.candidates[0].messages if response.candidates else ()
    calls = [part for message in messages for part in message.parts if isinstance(part, ToolCall)]
    return [call for call in calls if call.executor == "client"]


def format_tool_result(id: str, name: str, result: Any, protocol: str, *, is_error: bool = False) -> Any:
    """Return one tool result as a wire message of the protocol."""
    require_text("id", id)
    require_text("name", name)
    require_bool("is_error", is_error)
    call = ToolCall(id=id, name=name, arguments="")
    return _encode_results([(call, {"id": id, "output": result, "is_error": is_error})], protocol)[0]


def format_tool_results(
    calls: Sequence[Mapping[str, Any]], outputs: Sequence[Mapping[str, Any]], protocol: str
) -> list[Any]:
    """Return the wire messages that continue the conversation with the results of tool calls, in call order.

    `outputs` are `{id, output, is_error?}`; an output that is not a string becomes JSON text.
    """
    _check_entries("calls", calls, ("id",))
    tool_calls = [
        ToolCall(
            id=call["id"],
            name=call.get("name", ""),
            arguments=call.get("arguments", ""),
            shape=call.get("shape", "json"),
            namespace=call.get("namespace"),
        )
        for call in calls
    ]
    return _encode_results(_pair_outputs(tool_calls, outputs), protocol)


def _check_entries(option: str, entries: Any, fields: Sequence[str]) -> None:
    """Raise `TypeError` unless an option is a list of objects, and `ValueError` if one lacks a field."""
    form = f"{{{', '.join(map(repr, fields))}}}"
    is_list = isinstance(entries, Sequence) and not isinstance(entries, str | bytes)
    require(option, entries, f"a list of {form}", valid=is_list)
    for index, entry in enumerate(entries):
        require(f"{option}[{index}]", entry, f"an object {form}", valid=isinstance(entry, Mapping))
        for field in fields:
            if field not in entry:
                found = ", ".join(map(repr, entry)) or "no fields"
                raise ValueError(f"{option}[{index}] lacks {field!r}; it has {found}")


def _pair_outputs(
    calls: Sequence[ToolCall], outputs: Sequence[Mapping[str, Any]]
) -> list[tuple[ToolCall, Mapping[str, Any]]]:
    """Pair each call with its output; every call needs exactly one."""
    _check_entries("outputs", outputs, ("id", "output"))
    by_id = {output["id"]: output for output in outputs}
    missing = [call.id for call in calls if call.id not in by_id]
    if missing:
        raise ValueError(f"missing output for call {missing[0]!r}")
    unknown = set(by_id) - {call.id for call in calls}
    if unknown:
        raise ValueError(f"output for unknown call {min(map(str, unknown))!r}")
    return [(call, by_id[call.id]) for call in calls]


def _encode_results(pairs: list[tuple[ToolCall, Mapping[str, Any]]], protocol: str) -> list[Any]:
    """Return the wire messages that carry the results: those after the calls in an encoded conversation."""
    call_message = Message(role="assistant", parts=tuple(call for call, _ in pairs))
    codec = get_codec(protocol)
    before = _encode_messages(Request(origin="", messages=(call_message,)), codec.name)
    after = _encode_messages(Request(origin="", messages=(call_message, _result_message(pairs))), codec.name)
    return after[len(before) :]


def _encode_messages(request: Request, protocol: str) -> list[Any]:
    """Return the list of wire messages of an encoded request."""
    body = json.loads(get_codec(protocol).encode_request(request, Target(issued_ids=True)).to_bytes())
    for name in ("messages", "input", "contents"):
        if isinstance(messages := body.get(name), list):
            return messages
    return []


def _result_message(pairs: list[tuple[ToolCall, Mapping[str, Any]]]) -> Message:
    """Return one user message with all results."""
    return Message(role="user", parts=tuple(_tool_result(call, output) for call, output in pairs))


def _tool_result(call: ToolCall, output: Mapping[str, Any]) -> ToolResult:
    """Build a tool result from an output mapping."""
    value = output["output"]
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise TypeError(f"the output of call {call.id!r} is invalid: use a text or JSON data ({error})") from None
    content: tuple[Part, ...] = (Text(text=text),)
    status: Literal["ok", "error"] = "error" if output.get("is_error") else "ok"
    native = "custom" if call.shape == "freeform" else call.native
    return ToolResult(
        call_id=call.id, name=call.name, content=content, status=status, native=native, caller=call.caller
    )


def continue_request(
    request: Body, response: Body, outputs: Sequence[Mapping[str, Any]], protocol: str
) -> dict[str, Any]:
    """Return the next request body: the previous one, the complete response, then the tool results.

    Reasoning and signatures of the response are included.
    """
    codec = get_codec(protocol)
    previous = codec.decode_request(body_bytes(request, protocol), Route())
    decoded = _decode_response(response, protocol)
    identified = adapt_response(decoded, codec, None, ResponseContext())
    pairs = _pair_outputs(_client_calls(identified), outputs)
    candidates = (decoded if protocol in _PROTOCOLS_WITHOUT_CALL_IDS else identified).candidates
    turn = candidates[0].messages if candidates else ()
    messages = (
        *previous.messages,
        *(replace(message, at=None) for message in turn),
        *_result_messages(pairs, protocol),
    )
    value = json.loads(codec.encode_request(replace(previous, messages=messages), Target()).to_bytes())
    return dict(value)


def _result_messages(pairs: list[tuple[ToolCall, Mapping[str, Any]]], protocol: str) -> tuple[Message, ...]:
    """Return the results as messages, decoded from the protocol's own encoding of them."""
    if not pairs:
        return ()
    wire = _encode_results(pairs, protocol)
    name = _HISTORY_FIELDS.get(protocol, "messages")
    return get_codec(protocol).decode_request(body_bytes({name: wire}, protocol), Route()).messages


def check(
    body: Body, protocol: str, *, model: str | None = None, version: str | None = None, compatible: bool = False
) -> list[Finding]:
    """Return the findings that make the provider reject a request, or an empty list.

    `version` selects the API version; `compatible` relaxes the check for servers that imitate the provider.
    """
    require_bool("compatible", compatible)
    require_texts(model=model, version=version)
    data = body_bytes(body, protocol)
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError):
        validate_json(data, protocol)
        raise DecodeError(protocol, "", "JSON", "invalid JSON") from None
    findings = get_codec(protocol).check_request(parsed, model=model, version=version, compatible=compatible)
    return [*findings, *check_schemas(parsed, protocol)]
