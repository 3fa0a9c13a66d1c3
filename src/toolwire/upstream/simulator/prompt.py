"""What a request asks: the user's last words, the results that just came, and the tools that may be called.

Only what a user said counts. System text, descriptions, results and the reminder blocks that agents slip into a user's
message are never read as a wish.

Which calls a text asks for, and with which arguments: said in it, found in it, or made from the schema.
"""

import json
import re
from typing import Any

import msgspec
from msgspec import Struct

from toolwire.canonical.content import Message, Text, ToolCall, ToolChange, ToolResult
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FreeformTool, FunctionTool, NativeTool, ToolChoice
from toolwire.codec.encoding.hosted_tools import TOOL_SEARCH
from toolwire.codec.encoding.tools import conversation_tools
from toolwire.upstream.simulator.schema_examples import (
    Schema,
    build_example,
    matches_schema,
    required_properties,
    resolve_schema,
    schema_properties,
    schema_type,
)

CallableTool = FunctionTool | FreeformTool

_REMINDER_BLOCK = re.compile(
    r"<(system[-_]reminder|reminder|environment_context|environment_details|user_instructions)\b[^>]*>.*?(?:</\1>|\Z)",
    re.DOTALL | re.IGNORECASE,
)


class Prompt(Struct, frozen=True, kw_only=True):
    """`text` is the user's last words; `fresh`: they were said after the last answer. `forced`: a call is demanded."""

    text: str
    is_new: bool
    results: tuple[ToolResult, ...]
    tools: tuple[CallableTool, ...]
    requires_call: bool
    allows_parallel_calls: bool


def read_prompt(request: Request) -> Prompt:
    last = max((at for at, one in enumerate(request.messages) if one.role == "assistant"), default=-1)
    text, place = last_user_text(request.messages)
    choice = request.tool_choice or ToolChoice()
    return Prompt(
        text=text,
        is_new=place > last,
        results=tuple(
            part
            for message in request.messages[last + 1 :]
            for part in message.parts
            if isinstance(part, ToolResult) and part.executor == "client"
        ),
        tools=_callable_tools(request, choice),
        requires_call=choice.mode in ("required", "named") or (choice.mode == "allowed" and choice.required),
        allows_parallel_calls=choice.parallel is not False,
    )


def last_user_text(messages: tuple[Message, ...]) -> tuple[str, int]:
    """What the user said last, and in which message; nothing at -1."""
    for place in range(len(messages) - 1, -1, -1):
        if text := user_text(messages[place]):
            return text, place
    return "", -1


def user_text(message: Message) -> str:
    """What a user says in a message, without reminders."""
    if message.role != "user":
        return ""
    texts = [part.text for part in message.parts if isinstance(part, Text)]
    return _REMINDER_BLOCK.sub("", "\n".join(texts)).strip() if texts else ""


def current_turn_start(messages: tuple[Message, ...]) -> int:
    """Where the model's present turn begins: right after the user spoke, results not counted."""
    return last_user_text(messages)[1] + 1


def call_names(messages: tuple[Message, ...]) -> dict[str, str]:
    """The name of each call by its id, which many results lack."""
    return {
        part.id: part.name
        for message in messages
        for part in message.parts
        if isinstance(part, ToolCall) and part.id is not None
    }


def _callable_tools(request: Request, choice: ToolChoice) -> tuple[CallableTool, ...]:
    if choice.mode == "none":
        return ()
    gone: set[tuple[str | None, str]] = set()
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, ToolChange):
                gone |= {(one.namespace, one.name) for one in part.remove}
                gone -= {(getattr(one, "namespace", None), one.name or "") for one in part.add}
    tools = [_as_client_tool(placed.tool) for placed in conversation_tools(request)]
    there = [one for one in tools if one is not None and (one.namespace, one.name) not in gone]
    if choice.mode in ("named", "allowed") or choice.names:
        wanted = {(name.namespace, name.name) for name in choice.names}
        loose = {name for namespace, name in wanted if namespace is None}
        there = [one for one in there if (one.namespace, one.name) in wanted or one.name in loose]
    return tuple(there)


def is_client_tool_search(tool: object) -> bool:
    """OpenAI's search for tools that the client runs."""
    return isinstance(tool, NativeTool) and tool.kind == TOOL_SEARCH and tool.executor == "client"


def _as_client_tool(tool: CallableTool | NativeTool) -> CallableTool | None:
    """A tool that the model calls itself, for the client to run. Anthropic's own ones are called like any other."""
    if isinstance(tool, NativeTool):
        if is_client_tool_search(tool):
            return FunctionTool(name=TOOL_SEARCH)
        named = tool.protocol == "anthropic" and tool.executor == "client" and tool.name is not None
        return FunctionTool(name=tool.name or "") if named else None
    return tool if tool.allowed_callers is None or "direct" in tool.allowed_callers else None


_AnyTool = FunctionTool | FreeformTool

_MAX_MENTIONS = 64
_MAX_SEARCHED_CHARS = 20_000
# Between a tool's name and the JSON object that is its arguments.
_BEFORE_OBJECT = re.compile(r"[`'\"*]*(?:\s+(?:with|using|tool|arguments|args|input|parameters))*[\s:=(]*(?=\{)")
_REQUEST_VERB = re.compile(
    r"(?:\b(?:use|using|call|run|invoke|execute|try|with|via)\s+(?:the\s+)?(?:tool\s+)?|[`*])[`'\"]?$", re.IGNORECASE
)
_NEGATION = re.compile(r"(?:\bnot|n't|\bnever|\bwithout)\s+(?:\w+\s+){0,3}[`'\"]?$", re.IGNORECASE)
_UNAMBIGUOUS_NAME = re.compile(r"[_.\d-]|[a-z][A-Z]")
_CODE_FENCE = re.compile(r"```[^\n]*\n(.*?)\n?```", re.DOTALL)
_KEY_VALUE = re.compile(
    r"(?<![\w-])([A-Za-z_][\w-]*)\s*[:=]\s*"
    r"(\"(?:[^\"\\]|\\.)*\"|'[^'\n]*'|\[[^\]\n]*\]|[A-Z][\w'-]*(?: [A-Z][\w'-]*)+|[^\s,;)}\]]*[^\s,;)}\].!?])"
)
_QUOTATION = re.compile(r"\"([^\"\n]+)\"|(?<!\w)'([^'\n]+)'(?!\w)|`([^`\n]+)`|“([^”\n]+)”")
_NUMBER = re.compile(r"(?<![\w.-])-?\d+(?:\.\d+)?(?![\w])")
_CAPITALIZED_WORDS = r"[A-Z][\w'-]*(?:\s+[A-Z][\w'-]*)*"
_PROPER_NAME = re.compile(rf"\b(?:in|for|of|at|to|about|from|named|called|and)\s+({_CAPITALIZED_WORDS})")
_LOOKUP_VERBS = ("get", "fetch", "find", "lookup", "check", "query")
_FREE_TEXT_PROPERTIES = ("query", "question", "prompt", "text", "message", "content", "description", "task", "input")


class RequestedCall(Struct, frozen=True):
    """A call that a text asks for."""

    tool: _AnyTool
    arguments: str


def find_requested_calls(text: str, tools: tuple[_AnyTool, ...]) -> list[RequestedCall]:
    """The calls a text asks for. Names followed by JSON objects are exactly those calls; else each tool that is named
    is called, or the one whose subject is asked for."""
    if not text or not tools:
        return []
    named = _find_mentions(text, tools)
    exact = [RequestedCall(tool, said) for tool, start, end in named if (said := _json_object_after(text, tool, end))]
    if exact:
        return exact
    asked = [(tool, start, end) for tool, start, end in named if _is_requested(text, tool, start, end)]
    firsts = {(tool.namespace, tool.name): (tool, end) for tool, _, end in reversed(asked)}
    ordered = sorted(firsts.values(), key=lambda found: found[1])
    if ordered:
        edges = [*(end for _, end in ordered[1:]), len(text)]
        return [
            call
            for (tool, end), edge in zip(ordered, edges, strict=True)
            for call in _build_calls(tool, text, end, edge)
        ]
    words = set(re.findall(r"\w+", text.lower()))
    about = next((tool for tool in tools if _mentions_subject(words, tool)), None)
    return [] if about is None else _build_calls(about, text, 0, len(text))


def build_required_call(text: str, tool: _AnyTool) -> RequestedCall:
    """A call that must be made, whatever the text says."""
    return _build_calls(tool, text, 0, len(text))[0]


def example_prompt(tool: _AnyTool) -> str:
    """How a user would ask for this tool."""
    return (
        f"{tool.name} {_dump_json(build_example(_tool_schema(tool)))}"
        if isinstance(tool, FunctionTool)
        else f"use {tool.name}"
    )


# ---- which tools


def _find_mentions(text: str, tools: tuple[_AnyTool, ...]) -> list[tuple[_AnyTool, int, int]]:
    by_name: dict[str, _AnyTool] = {}
    for tool in tools:
        by_name.setdefault(tool.name, tool)
        if tool.namespace is not None:
            for joint in (".", "__", "/"):
                by_name[f"{tool.namespace}{joint}{tool.name}"] = tool
    names = "|".join(re.escape(name) for name in sorted(by_name, key=len, reverse=True))
    found = re.finditer(rf"(?<![\w-])(?:{names})(?![\w-])", text)
    return [(by_name[one[0]], one.start(), one.end()) for one, _ in zip(found, range(_MAX_MENTIONS), strict=False)]


def _json_object_after(text: str, tool: _AnyTool, end: int) -> str:
    """The JSON object right after a name, as it is written."""
    if isinstance(tool, FreeformTool) or (before := _BEFORE_OBJECT.match(text, end)) is None:
        return ""
    try:
        value, edge = json.JSONDecoder().raw_decode(text, before.end())
    except (ValueError, RecursionError):
        return ""
    return text[before.end() : edge] if isinstance(value, dict) else ""


def _is_requested(text: str, tool: _AnyTool, start: int, end: int) -> bool:
    """A name that is also a word needs a verb before it; no name is asked for after a "not"."""
    before = text[max(0, start - 40) : start]
    if _NEGATION.search(before):
        return False
    called = text[end : end + 1] == "(" or bool(re.match(r"\s+tool\b", text[end : end + 10]))
    return called or _UNAMBIGUOUS_NAME.search(tool.name) is not None or _REQUEST_VERB.search(before) is not None


def _mentions_subject(words: set[str], tool: _AnyTool) -> bool:
    """Whether the subject of a tool that looks something up is among the words: the weather, for `get_weather`."""
    first, *subject = re.sub(r"([a-z])([A-Z])", r"\1_\2", tool.name).lower().replace("-", "_").split("_")
    return first in _LOOKUP_VERBS and bool(subject) and words.issuperset(subject)


# ---- which arguments


def _build_calls(tool: _AnyTool, text: str, start: int, end: int) -> list[RequestedCall]:
    """The calls of one tool: one, or one for each thing named where the tool takes exactly one text."""
    here = text[start:end]
    if isinstance(tool, FreeformTool):
        return [RequestedCall(tool, _freeform_input(here) or text or tool.name)]
    schema = _tool_schema(tool)
    required = required_properties(schema)
    if len(required) == 1 and not _KEY_VALUE.search(here):
        name = required[0]
        inner = resolve_schema(schema_properties(schema).get(name), schema)
        things = _find_names(here) if schema_type(inner) in ("string", "") and "enum" not in inner else []
        things = [thing for thing in things if matches_schema(thing, inner)]
        if len(things) > 1:
            return [RequestedCall(tool, _dump_json({name: thing})) for thing in things]
    return [RequestedCall(tool, _dump_json(fill_object(schema, here if here.strip() else text)))]


def _freeform_input(text: str) -> str:
    fenced = _CODE_FENCE.search(text)
    if fenced is not None:
        return fenced[1]
    quoted = _QUOTATION.search(text)
    return next(filter(None, quoted.groups())) if quoted is not None else text.lstrip(" \t:,.").strip()


def _tool_schema(tool: FunctionTool) -> Schema:
    schema = None if tool.parameters is None else msgspec.json.decode(tool.parameters)
    return resolve_schema(schema, schema)


def _dump_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _find_names(text: str) -> list[str]:
    """What a text names: in quotes, or else with capitals after a preposition."""
    quoted = [next(filter(None, one.groups())) for one in _QUOTATION.finditer(text)]
    return list(dict.fromkeys(quoted or [one[1] for one in _PROPER_NAME.finditer(text)]))


def fill_object(schema: Schema, text: str) -> dict[str, Any]:
    """An object of this schema with what the text says of it: by name, or for required properties by kind."""
    text = text[:_MAX_SEARCHED_CHARS]
    said = {key.lower().replace("-", "_"): value for key, value in _KEY_VALUE.findall(text)}
    things = _find_names(text)
    numbers = _NUMBER.findall(text)
    known = schema_properties(schema)
    required = required_properties(schema)
    found: dict[str, Any] = {}
    for name in [*known, *(one for one in required if one not in known)]:
        inner = resolve_schema(known.get(name), schema)
        value = _coerce(said[name.lower()], inner) if name.lower() in said else None
        if value is None:
            value = _mentioned_choice(inner, text)
        if value is None and name in required:
            value = _next_value(name, inner, things, numbers, text)
        if value is not None:
            found[name] = value
        elif name in required:
            found[name] = build_example(known.get(name, {}), schema)
    return found


def _mentioned_choice(schema: Schema, text: str) -> Any:
    """A choice that the text names as a word of its own."""
    choices = schema.get("enum") if isinstance(schema.get("enum"), list) else None
    for choice in choices or ():
        named = isinstance(choice, str) and choice and rf"(?<!\w){re.escape(choice)}(?!\w)"
        if named and re.search(named, text, re.IGNORECASE):
            return choice
    return None


def _next_value(name: str, schema: Schema, names: list[str], numbers: list[str], text: str) -> Any:
    """The next thing or number that the text has for a property which it does not name."""
    kind = schema_type(schema)
    if "enum" in schema or "const" in schema:
        return None
    if kind in ("integer", "number"):
        return _take_value(numbers, schema)
    if kind not in ("string", "") or schema.keys() & {"format", "pattern"}:
        return None
    value = _take_value(names, schema)
    if value is None and name.lower() in _FREE_TEXT_PROPERTIES and matches_schema(text, schema):
        return text
    return value


def _take_value(candidates: list[str], schema: Schema) -> Any:
    for place, text in enumerate(candidates):
        if (value := _coerce(text, schema)) is not None:
            del candidates[place]
            return value
    return None


def _coerce(text: str, schema: Schema) -> Any:
    """What is written, as the kind of value that the schema wants; None if it is none."""
    bare = text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
    value: Any = bare
    if schema_type(schema) not in ("string", ""):
        try:
            value = json.loads(bare)
        except ValueError:
            value = {"yes": True, "no": False, "on": True, "off": False}.get(bare.lower(), bare)
    return value if matches_schema(value, schema) else None
