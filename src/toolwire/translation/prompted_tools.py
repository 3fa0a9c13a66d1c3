"""Tools for models without tool calling: declarations, calls and results are written as text, in a dialect.

A dialect is the form in which a model writes calls. The request is encoded as for a model with tool calling, and then
rewritten. So names, schemas and tool types are adapted as usual, and the name mapping of that encoding leads from the
recovered calls back to the client's tools.
"""

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Data, Message, Part, Role, Text, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FreeformTool, FunctionTool, NativeTool, ToolChoice
from toolwire.codec.interface import Codec, EncodedBody, Target
from toolwire.translation.stages.tool_call_parsers.dialect import Dialect
from toolwire.translation.stages.tool_call_parsers.registry import DIALECTS, hinted_dialect
from toolwire.translation.stages.tool_call_parsers.rendering import WrittenCall, WrittenResult
from toolwire.translation.stages.tool_call_parsers.tools import FREEFORM_PARAMETERS

DEFAULT_DIALECT = "hermes"
"""The dialect for models whose own is not known: the most common one, with marks that no server strips."""
_EXAMPLE = WrittenCall("NAME", '{"KEY": "VALUE"}')
_NO_PARAMETERS = Raw(b'{"type":"object","properties":{}}')


def choose_dialect(parser: str, model: str | None) -> Dialect:
    """Return the dialect to prompt for: the one that `parser` names, or that the model is known to write.

    A call in a dialect without marks counts only as the complete answer. So such a dialect is used only if `parser`
    names it.
    """
    if parser in DIALECTS:
        return DIALECTS[parser]
    hinted = hinted_dialect(model)
    return DIALECTS[DEFAULT_DIALECT] if hinted is None or hinted.bare else hinted


def uses_tools(request: Request) -> bool:
    """Return whether a request declares tools, or has calls or results in its conversation."""
    return bool(request.tools) or any(
        type(part) is ToolCall or type(part) is ToolResult for message in request.messages for part in message.parts
    )


def prompting_codec(codec: Codec, dialect: Dialect) -> Codec:
    """Return the codec with tools written as text in its requests."""

    def encode_request(request: Request, target: Target) -> EncodedBody:
        """Encode a request with its tools as text."""
        return prompt_tools(codec.encode_request(request, target), codec, target, dialect)

    return replace(codec, encode_request=encode_request)


def prompt_tools(encoding: EncodedBody, codec: Codec, target: Target, dialect: Dialect) -> EncodedBody:
    """Return an encoded request with its tools, calls and results written as text; its report lists the changes."""
    request = codec.decode_request(encoding.to_bytes(), encoding.route)
    if not uses_tools(request):
        return encoding
    report = encoding.report
    messages = tuple(_Conversation(dialect, codec).rewrite(request.messages))
    if messages != request.messages:
        report.approximated((), "messages", f"calls and results are written as text ({dialect.name})")
    tools, natives = _split_tools(request)
    prompted = replace(request, messages=messages, tools=natives or None, tool_choice=None)
    if tools:
        report.approximated((), "tools", f"declared in the system text ({dialect.name}): the model has no tool calling")
        prompted = _add_system_text(prompted, _declare_tools(tools, request.tool_choice, dialect), codec)
    if request.tool_choice is not None:
        report.approximated((), "tool_choice", "stated in the system text")
    encoded = codec.encode_request(prompted, target)
    return replace(encoding, body=encoded.body)


def _split_tools(request: Request) -> tuple[list[FunctionTool], tuple[NativeTool, ...]]:
    """Return the functions of a request, and the tools that the provider runs; freeform tools become functions."""
    functions: list[FunctionTool] = []
    natives: list[NativeTool] = []
    for tool in request.tools or ():
        match tool:
            case FunctionTool():
                functions.append(tool)
            case FreeformTool():
                functions.append(FunctionTool(tool.name, tool.description, FREEFORM_PARAMETERS))
            case NativeTool():
                natives.append(tool)
            case _:  # a group; protocols with models that lack tool calling have none
                functions += [member for member in tool.tools if isinstance(member, FunctionTool)]
    return functions, tuple(natives)


def _declare_tools(tools: list[FunctionTool], choice: ToolChoice | None, dialect: Dialect) -> str:
    """Return the system text that declares tools, as the chat templates of Hermes, Qwen and GLM do."""
    signatures = [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description or "",
                "parameters": tool.parameters or _NO_PARAMETERS,
            },
        }
        for tool in tools
    ]
    lines = [
        "# Tools",
        "",
        "You may call one or more functions to assist with the user query.",
        "",
        "You are provided with function signatures within <tools></tools> XML tags:",
        "<tools>",
        *[msgspec.json.encode(signature).decode() for signature in signatures],
        "</tools>",
        "",
        "To call a function, write exactly this form, with its name and arguments for NAME, KEY and VALUE:",
        dialect.render_calls([_EXAMPLE]),
        "",
        "Write nothing after your calls. The results follow in the next message.",
        *_state_choice(choice),
    ]
    return "\n".join(lines)


def _state_choice(choice: ToolChoice | None) -> Iterator[str]:
    """Yield the sentences that state a tool choice."""
    if choice is None:
        return
    names = ", ".join([name.name for name in choice.names])
    match choice.mode:
        case "none":
            yield "Do not call any function now."
        case "required":
            yield "You must call at least one function now."
        case "named":
            yield f"You must call this function now: {names}."
        case "allowed":
            yield f"You may only call these functions now: {names}."
            if choice.required:
                yield "You must call at least one of them."
        case "auto" | None:
            pass
    if choice.parallel is False:
        yield "Call at most one function at a time."


def _add_system_text(request: Request, text: str, codec: Codec) -> Request:
    """Return a request with text at the end of its system text, wherever the protocol keeps that."""
    first = next(iter(request.messages), None)
    if first is not None and first.role in ("system", "developer"):
        return replace(request, messages=(_append_text(first, text), *request.messages[1:]))
    if request.system:
        *others, last = request.system
        return replace(request, system=(*others, replace(last, text=f"{last.text}\n\n{text}")))
    if codec.system_member is None:
        return replace(request, messages=(_text_message("system", text, codec), *request.messages))
    return replace(request, system=(Text(text=text),))


def _text_message(role: Role, text: str, codec: Codec) -> Message:
    """Return a message of one text; its content is a string on the wire, which all servers accept."""
    return Message(role=role, parts=(Text(text=text),), wire_form=(f"{codec.families[0]}:string",))


def _append_text(message: Message, text: str) -> Message:
    """Return a message with text added to its last part, so that plain text stays one string on the wire."""
    *others, last = message.parts or (Text(text=""),)
    if type(last) is Text:
        return replace(message, parts=(*others, replace(last, text=f"{last.text}\n\n{text}".lstrip())))
    return replace(message, parts=(*message.parts, Text(text=text)))


class _Conversation:
    """The state of rewriting a conversation: its calls are numbered, so that results can refer to them."""

    def __init__(self, dialect: Dialect, codec: Codec) -> None:
        self._dialect = dialect
        self._codec = codec
        self._calls: list[ToolCall] = []
        self._answered = 0

    def rewrite(self, messages: Iterable[Message]) -> Iterator[Message]:
        """Yield the messages with calls and results as text.

        Consecutive results, and plain text of the user after them, become one message: many chat templates require
        user and assistant turns to alternate.
        """
        results: list[ToolResult] = []
        for received in messages:
            message = received
            found = [part for part in message.parts if type(part) is ToolResult]
            results += found
            if found:
                message = replace(
                    message, parts=tuple([part for part in message.parts if type(part) is not ToolResult])
                )
                if not message.parts:
                    continue
            if results:
                written, results = self._write_results(results), []
                if message.role == "user" and len(message.parts) == 1 and type(text := message.parts[0]) is Text:
                    yield _append_text(written, text.text)
                    continue
                yield written
            yield self._write_calls(message)
        if results:
            yield self._write_results(results)

    def _write_calls(self, message: Message) -> Message:
        """Return a message with its calls written as text, after its other text."""
        calls = [part for part in message.parts if type(part) is ToolCall]
        if not calls:
            return message
        texts = [part.text for part in message.parts if type(part) is Text and part.text]
        others: list[Part] = [part for part in message.parts if type(part) not in (Text, ToolCall)]
        start = len(self._calls)
        self._calls += calls
        written = [
            WrittenCall(call.name, call.arguments.strip() or "{}", number)
            for number, call in enumerate(calls, start=start)
        ]
        text = "\n".join([*texts, self._dialect.render_calls(written)])
        turn = _text_message(message.role, text, self._codec)
        return replace(message, parts=(*others, *turn.parts), wire_form=turn.wire_form)

    def _write_results(self, results: list[ToolResult]) -> Message:
        """Return a user message with results as text, followed by their media."""
        written: list[WrittenResult] = []
        media: list[Part] = []
        for result in results:
            number = self._find_call(result)
            known = self._calls[number].name if number < len(self._calls) else ""
            texts: list[str] = []
            for part in result.content or ():
                match part:
                    case Text():
                        texts.append(part.text)
                    case Data():
                        texts.append(bytes(part.json).decode())
                    case _:
                        media.append(part)
            written.append(WrittenResult(result.name or known, "\n".join(texts), number))
        turn = _text_message("user", self._dialect.render_results(written), self._codec)
        return replace(turn, parts=(*turn.parts, *media)) if media else turn

    def _find_call(self, result: ToolResult) -> int:
        """Return the number of the call that a result answers: by its id, or else the next one without a result."""
        number = self._answered
        for index in range(len(self._calls) - 1, -1, -1):
            if result.call_id is not None and self._calls[index].id == result.call_id:
                number = index
                break
        self._answered = number + 1
        return number
