"""What a request asks: the user's last words, the results that just came, and the tools that may be called.

Only what a user said counts. System text, descriptions, results and the reminder blocks that agents slip into a user's
message are never read as a wish.
"""

import re

from msgspec import Struct

from toolwire.canonical.content import Message, Text, ToolCall, ToolChange, ToolResult
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FreeformTool, FunctionTool, NativeTool, ToolChoice
from toolwire.codec.hosted import SEARCH
from toolwire.codec.tools import tools_in_force

Callable = FunctionTool | FreeformTool

_REMINDER = re.compile(
    r"<(system[-_]reminder|reminder|environment_context|environment_details|user_instructions)\b[^>]*>.*?(?:</\1>|\Z)",
    re.DOTALL | re.IGNORECASE,
)


class Asked(Struct, frozen=True, kw_only=True):
    """`text` is the user's last words; `fresh`: they were said after the last answer. `forced`: a call is demanded."""

    text: str
    fresh: bool
    results: tuple[ToolResult, ...]
    tools: tuple[Callable, ...]
    forced: bool
    parallel: bool


def read(request: Request) -> Asked:
    last = max((at for at, one in enumerate(request.messages) if one.role == "assistant"), default=-1)
    text, place = last_words(request.messages)
    choice = request.tool_choice or ToolChoice()
    return Asked(
        text=text,
        fresh=place > last,
        results=tuple(
            part
            for message in request.messages[last + 1 :]
            for part in message.parts
            if isinstance(part, ToolResult) and part.executor == "client"
        ),
        tools=_callable(request, choice),
        forced=choice.mode in ("required", "named") or (choice.mode == "allowed" and choice.required),
        parallel=choice.parallel is not False,
    )


def last_words(messages: tuple[Message, ...]) -> tuple[str, int]:
    """What the user said last, and in which message; nothing at -1."""
    for place in range(len(messages) - 1, -1, -1):
        if text := said(messages[place]):
            return text, place
    return "", -1


def said(message: Message) -> str:
    """What a user says in a message, without reminders."""
    if message.role != "user":
        return ""
    texts = [part.text for part in message.parts if isinstance(part, Text)]
    return _REMINDER.sub("", "\n".join(texts)).strip() if texts else ""


def current_turn(messages: tuple[Message, ...]) -> int:
    """Where the model's present turn begins: right after the user spoke, results not counted."""
    return last_words(messages)[1] + 1


def names_of_calls(messages: tuple[Message, ...]) -> dict[str, str]:
    """The name of each call by its id, which many results lack."""
    return {
        part.id: part.name
        for message in messages
        for part in message.parts
        if isinstance(part, ToolCall) and part.id is not None
    }


def _callable(request: Request, choice: ToolChoice) -> tuple[Callable, ...]:
    if choice.mode == "none":
        return ()
    gone: set[tuple[str | None, str]] = set()
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, ToolChange):
                gone |= {(one.namespace, one.name) for one in part.remove}
                gone -= {(getattr(one, "namespace", None), one.name or "") for one in part.add}
    tools = [_direct(placed.tool) for placed in tools_in_force(request)]
    there = [one for one in tools if one is not None and (one.namespace, one.name) not in gone]
    if choice.mode in ("named", "allowed") or choice.names:
        wanted = {(name.namespace, name.name) for name in choice.names}
        loose = {name for namespace, name in wanted if namespace is None}
        there = [one for one in there if (one.namespace, one.name) in wanted or one.name in loose]
    return tuple(there)


def is_client_search(tool: object) -> bool:
    """OpenAI's search for tools that the client runs."""
    return isinstance(tool, NativeTool) and tool.kind == SEARCH and tool.executor == "client"


def _direct(tool: Callable | NativeTool) -> Callable | None:
    """A tool that the model calls itself, for the client to run. Anthropic's own ones are called like any other."""
    if isinstance(tool, NativeTool):
        if is_client_search(tool):
            return FunctionTool(name=SEARCH)
        named = tool.protocol == "anthropic" and tool.executor == "client" and tool.name is not None
        return FunctionTool(name=tool.name or "") if named else None
    return tool if tool.allowed_callers is None or "direct" in tool.allowed_callers else None
