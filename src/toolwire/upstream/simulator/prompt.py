"""The prompt as the simulated model reads it: the user's text, new tool results, callable tools and requested calls.

Only user text counts. System text, tool descriptions, results and the reminder blocks that agents add to user
messages never request a call. The arguments of a call are given in the text, found in it, or generated from the
schema.
"""

import json
import re
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.content import Message, Text, ToolCall, ToolChange, ToolResult
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FreeformTool, FunctionTool, HostedTool, NativeTool, ToolChoice
from toolwire.codec.encoding.client_tools import TOOL_SEARCH, function_form
from toolwire.codec.encoding.tools import conversation_tools
from toolwire.upstream.simulator.hosted_tools import hosted_tools_of
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
    """The parts of a request that determine the reply."""

    # The last text of the user.
    text: str
    # Whether the user wrote it after the last assistant message.
    is_new: bool
    # Tool results since the last assistant message.
    results: tuple[ToolResult, ...]
    tools: tuple[CallableTool, ...]
    # Tools that the provider runs, by name.
    hosted: dict[str, HostedTool]
    # Whether `tool_choice` requires a call.
    requires_call: bool
    allows_parallel_calls: bool


def read_prompt(request: Request) -> Prompt:
    """Extract the prompt from a request."""
    last_reply = max(
        (index for index, message in enumerate(request.messages) if message.role == "assistant"), default=-1
    )
    text, index = last_user_text(request.messages)
    choice = request.tool_choice or ToolChoice()
    return Prompt(
        text=text,
        is_new=index > last_reply,
        results=tuple(
            part
            for message in request.messages[last_reply + 1 :]
            for part in message.parts
            if isinstance(part, ToolResult) and part.executor == "client"
        ),
        tools=_callable_tools(request, choice),
        hosted={} if choice.mode == "none" else hosted_tools_of(request),
        requires_call=choice.mode in ("required", "named") or (choice.mode == "allowed" and choice.required),
        allows_parallel_calls=choice.parallel is not False,
    )


def last_user_text(messages: tuple[Message, ...]) -> tuple[str, int]:
    """Return the last text of the user and the index of its message; "" and -1 if there is none."""
    for index in range(len(messages) - 1, -1, -1):
        if text := user_text(messages[index]):
            return text, index
    return "", -1


def user_text(message: Message) -> str:
    """Return the text of a user message without reminder blocks; "" for other messages."""
    if message.role != "user":
        return ""
    texts = [part.text for part in message.parts if isinstance(part, Text)]
    return _REMINDER_BLOCK.sub("", "\n".join(texts)).strip() if texts else ""


def current_turn_start(messages: tuple[Message, ...]) -> int:
    """Return the index where the current assistant turn begins: after the last user text."""
    return last_user_text(messages)[1] + 1


def call_names(messages: tuple[Message, ...]) -> dict[str, str]:
    """Return the name of each call by its id. Many tool results have no name."""
    return {
        part.id: part.name
        for message in messages
        for part in message.parts
        if isinstance(part, ToolCall) and part.id is not None
    }


def _callable_tools(request: Request, choice: ToolChoice) -> tuple[CallableTool, ...]:
    """Return the tools that the model may call, after removals and `tool_choice`."""
    if choice.mode == "none":
        return ()
    removed = _removed_tools(request.messages)
    declared = [_as_client_tool(located.tool) for located in conversation_tools(request)]
    tools = [tool for tool in declared if tool is not None and (tool.namespace, tool.name) not in removed]
    if choice.mode in ("named", "allowed") or choice.names:
        chosen = {(name.namespace, name.name) for name in choice.names}
        unqualified = {name for namespace, name in chosen if namespace is None}
        tools = [tool for tool in tools if (tool.namespace, tool.name) in chosen or tool.name in unqualified]
    return tuple(tools)


def _removed_tools(messages: tuple[Message, ...]) -> set[tuple[str | None, str]]:
    """Return (namespace, name) of each tool that the conversation removed and did not add again."""
    removed: set[tuple[str | None, str]] = set()
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolChange):
                removed |= {(tool.namespace, tool.name) for tool in part.remove}
                removed -= {(getattr(tool, "namespace", None), tool.name or "") for tool in part.add}
    return removed


def is_client_tool_search(tool: object) -> bool:
    """Return whether a tool is OpenAI's `tool_search`, executed by the client."""
    return isinstance(tool, NativeTool) and tool.kind == TOOL_SEARCH and tool.executor == "client"


def _as_client_tool(tool: CallableTool | NativeTool) -> CallableTool | None:
    """Return the tool in the form of a function if the client runs it; None for tools that the provider runs."""
    if isinstance(tool, NativeTool):
        if is_client_tool_search(tool):
            return FunctionTool(name=TOOL_SEARCH)
        if tool.protocol == "openai-responses" and tool.executor == "client":
            return _with_diff(function_form(tool)) if tool.kind == "apply_patch" else function_form(tool)
        is_anthropic_client_tool = tool.protocol == "anthropic" and tool.executor == "client" and tool.name is not None
        return FunctionTool(name=tool.name or "") if is_anthropic_client_tool else None
    return tool if tool.allowed_callers is None or "direct" in tool.allowed_callers else None


def _with_diff(tool: FunctionTool | None) -> FunctionTool | None:
    """Require the diff of a patch, which only deletions lack."""
    if tool is None or tool.parameters is None:
        return tool
    schema = msgspec.json.decode(tool.parameters, type=dict[str, Any])
    schema["required"] = [*schema["required"], "diff"]
    return replace(tool, parameters=msgspec.Raw(msgspec.json.encode(schema)))


_AnyTool = FunctionTool | FreeformTool

_MAX_MENTIONS = 64
_MAX_SEARCHED_CHARS = 20_000
# The text between a tool's name and the JSON object of its arguments.
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
    """A call that a text requests."""

    tool: _AnyTool
    arguments: str


def find_requested_calls(text: str, tools: tuple[_AnyTool, ...]) -> list[RequestedCall]:
    """Return the calls that a text requests.

    A tool name followed by a JSON object is exactly that call. Otherwise each tool that the text names is called, or
    else the one whose subject the text mentions.
    """
    if not text or not tools:
        return []
    if exact := find_exact_calls(text, tools):
        return exact
    mentions = _find_mentions(text, tools)
    requested = [mention for mention in mentions if _is_requested(text, *mention)]
    first_mentions = {(tool.namespace, tool.name): (tool, end) for tool, _, end in reversed(requested)}
    ordered = sorted(first_mentions.values(), key=lambda mention: mention[1])
    if ordered:
        edges = [*(end for _, end in ordered[1:]), len(text)]
        return [
            call
            for (tool, end), edge in zip(ordered, edges, strict=True)
            for call in _build_calls(tool, text, end, edge)
        ]
    words = set(re.findall(r"\w+", text.lower()))
    lookup_tool = next((tool for tool in tools if _mentions_subject(words, tool)), None)
    return [] if lookup_tool is None else _build_calls(lookup_tool, text, 0, len(text))


def find_exact_calls(text: str, tools: tuple[_AnyTool, ...]) -> list[RequestedCall]:
    """Return the calls that a text requests by a tool name and the JSON object that follows it."""
    if text.startswith('"') and text.endswith('"'):
        text = text[1:-1].replace('\\"', '"')  # opencode quotes arguments of its command line that contain a space
    return [
        RequestedCall(tool, arguments)
        for tool, _, end in _find_mentions(text, tools)
        if (arguments := _json_object_after(text, tool, end))
    ]


def build_required_call(text: str, tool: _AnyTool) -> RequestedCall:
    """Return a call of the tool, whatever the text requests."""
    return _build_calls(tool, text, 0, len(text))[0]


def example_prompt(tool: _AnyTool) -> str:
    """Return a text with which a user would request this tool."""
    return (
        f"{tool.name} {_dump_json(build_example(_tool_schema(tool)))}"
        if isinstance(tool, FunctionTool)
        else f"use {tool.name}"
    )


# ---- tools that a text names


def _find_mentions(text: str, tools: tuple[_AnyTool, ...]) -> list[tuple[_AnyTool, int, int]]:
    """Return each tool that the text names, with the start and end offset of its name."""
    by_name: dict[str, _AnyTool] = {}
    for tool in tools:
        by_name.setdefault(tool.name, tool)
        if tool.namespace is not None:
            for separator in (".", "__", "/"):
                by_name[f"{tool.namespace}{separator}{tool.name}"] = tool
    names = "|".join(re.escape(name) for name in sorted(by_name, key=len, reverse=True))
    matches = re.finditer(rf"(?<![\w-])(?:{names})(?![\w-])", text)
    return [
        (by_name[match[0]], match.start(), match.end()) for match, _ in zip(matches, range(_MAX_MENTIONS), strict=False)
    ]


def _json_object_after(text: str, tool: _AnyTool, end: int) -> str:
    """Return the JSON object that follows a name, as written; "" if there is none."""
    if isinstance(tool, FreeformTool) or (before := _BEFORE_OBJECT.match(text, end)) is None:
        return ""
    try:
        value, edge = json.JSONDecoder().raw_decode(text, before.end())
    except (ValueError, RecursionError):
        return ""
    return text[before.end() : edge] if isinstance(value, dict) else ""


def _is_requested(text: str, tool: _AnyTool, start: int, end: int) -> bool:
    """Return whether a mention of the tool at `start` to `end` requests a call of it.

    A tool name that is a common word needs a verb before it. Negated mentions never request a call.
    """
    before = text[max(0, start - 40) : start]
    if _NEGATION.search(before):
        return False
    is_call_syntax = text[end : end + 1] == "(" or bool(re.match(r"\s+tool\b", text[end : end + 10]))
    return is_call_syntax or _UNAMBIGUOUS_NAME.search(tool.name) is not None or _REQUEST_VERB.search(before) is not None


def _mentions_subject(words: set[str], tool: _AnyTool) -> bool:
    """Return whether the words contain the subject of a lookup tool: "weather" for `get_weather`."""
    first, *subject = re.sub(r"([a-z])([A-Z])", r"\1_\2", tool.name).lower().replace("-", "_").split("_")
    return first in _LOOKUP_VERBS and bool(subject) and words.issuperset(subject)


# ---- arguments


def _build_calls(tool: _AnyTool, text: str, start: int, end: int) -> list[RequestedCall]:
    """Return the calls of one tool: one, or one per name in the text if the tool takes a single string."""
    segment = text[start:end]
    if isinstance(tool, FreeformTool):
        return [RequestedCall(tool, _freeform_input(segment) or text or tool.name)]
    schema = _tool_schema(tool)
    required = required_properties(schema)
    if len(required) == 1 and not _KEY_VALUE.search(segment):
        name = required[0]
        inner = resolve_schema(schema_properties(schema).get(name), schema)
        values = _find_names(segment) if schema_type(inner) in ("string", "") and "enum" not in inner else []
        values = [value for value in values if matches_schema(value, inner)]
        if len(values) > 1:
            return [RequestedCall(tool, _dump_json({name: value})) for value in values]
    return [RequestedCall(tool, _dump_json(fill_object(schema, segment if segment.strip() else text)))]


def _freeform_input(text: str) -> str:
    """Return the input of a freeform tool: a code fence, a quotation, or the text itself."""
    fenced = _CODE_FENCE.search(text)
    if fenced is not None:
        return fenced[1]
    quoted = _QUOTATION.search(text)
    return next(filter(None, quoted.groups())) if quoted is not None else text.lstrip(" \t:,.").strip()


def _tool_schema(tool: FunctionTool) -> Schema:
    """Return the parameter schema of a tool, with references at its top level resolved."""
    schema = None if tool.parameters is None else msgspec.json.decode(tool.parameters)
    return resolve_schema(schema, schema)


def _dump_json(value: Any) -> str:
    """Encode a value as JSON text, with non-ASCII characters as they are."""
    return json.dumps(value, ensure_ascii=False)


def _find_names(text: str) -> list[str]:
    """Return the quotations in a text, or else its capitalized names after a preposition."""
    quoted = [next(filter(None, match.groups())) for match in _QUOTATION.finditer(text)]
    return list(dict.fromkeys(quoted or [match[1] for match in _PROPER_NAME.finditer(text)]))


def fill_object(schema: Schema, text: str) -> dict[str, Any]:
    """Build an object of the schema with values from the text: by name, or for required properties by type."""
    text = text[:_MAX_SEARCHED_CHARS]
    named_values = {key.lower().replace("-", "_"): value for key, value in _KEY_VALUE.findall(text)}
    names = _find_names(text)
    numbers = _NUMBER.findall(text)
    properties = schema_properties(schema)
    required = required_properties(schema)
    filled: dict[str, Any] = {}
    for name in [*properties, *(extra for extra in required if extra not in properties)]:
        inner = resolve_schema(properties.get(name), schema)
        value = _coerce(named_values[name.lower()], inner) if name.lower() in named_values else None
        if value is None:
            value = _mentioned_choice(inner, text)
        if value is None and name in required:
            value = _next_value(name, inner, names, numbers, text)
        if value is not None:
            filled[name] = value
        elif name in required:
            filled[name] = build_example(properties.get(name, {}), schema)
    return filled


def _mentioned_choice(schema: Schema, text: str) -> Any:
    """Return the value of an `enum` that the text mentions as a word; None if there is none."""
    choices = schema.get("enum") if isinstance(schema.get("enum"), list) else None
    for choice in choices or ():
        pattern = isinstance(choice, str) and choice and rf"(?<!\w){re.escape(choice)}(?!\w)"
        if pattern and re.search(pattern, text, re.IGNORECASE):
            return choice
    return None


def _next_value(name: str, schema: Schema, names: list[str], numbers: list[str], text: str) -> Any:
    """Take the next name or number of the text as the value of a required property that it does not name."""
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
    """Remove and return the first candidate that fits the schema; None if none fits."""
    for index, text in enumerate(candidates):
        if (value := _coerce(text, schema)) is not None:
            del candidates[index]
            return value
    return None


def _coerce(text: str, schema: Schema) -> Any:
    """Parse a text as a value of the schema; None if it does not fit."""
    bare = text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
    value: Any = bare
    if schema_type(schema) not in ("string", ""):
        try:
            value = json.loads(bare)
        except ValueError:
            value = {"yes": True, "no": False, "on": True, "off": False}.get(bare.lower(), bare)
    return value if matches_schema(value, schema) else None
