"""Which calls a text asks for, and with which arguments: said in it, found in it, or made from the schema."""

import json
import re
from typing import Any

import msgspec
from msgspec import Struct

from toolwire.canonical.tools import FreeformTool, FunctionTool

from .instances import Schema, fits, instance, properties_of, required_of, resolved, type_of

Callable = FunctionTool | FreeformTool

_MENTIONS = 64
_SEARCHED = 20_000
# Between a tool's name and the JSON object that is its arguments.
_BEFORE_OBJECT = re.compile(r"[`'\"*]*(?:\s+(?:with|using|tool|arguments|args|input|parameters))*[\s:=(]*(?=\{)")
_ASKING = re.compile(
    r"(?:\b(?:use|using|call|run|invoke|execute|try|with|via)\s+(?:the\s+)?(?:tool\s+)?|[`*])[`'\"]?$", re.IGNORECASE
)
_REFUSING = re.compile(r"(?:\bnot|n't|\bnever|\bwithout)\s+(?:\w+\s+){0,3}[`'\"]?$", re.IGNORECASE)
_DISTINCTIVE = re.compile(r"[_.\d-]|[a-z][A-Z]")
_FENCED = re.compile(r"```[^\n]*\n(.*?)\n?```", re.DOTALL)
_PAIR = re.compile(
    r"(?<![\w-])([A-Za-z_][\w-]*)\s*[:=]\s*"
    r"(\"(?:[^\"\\]|\\.)*\"|'[^'\n]*'|\[[^\]\n]*\]|[A-Z][\w'-]*(?: [A-Z][\w'-]*)+|[^\s,;)}\]]*[^\s,;)}\].!?])"
)
_QUOTED = re.compile(r"\"([^\"\n]+)\"|(?<!\w)'([^'\n]+)'(?!\w)|`([^`\n]+)`|“([^”\n]+)”")
_NUMBER = re.compile(r"(?<![\w.-])-?\d+(?:\.\d+)?(?![\w])")
_CAPITALISED = r"[A-Z][\w'-]*(?:\s+[A-Z][\w'-]*)*"
_NAMED = re.compile(rf"\b(?:in|for|of|at|to|about|from|named|called|and)\s+({_CAPITALISED})")
_LOOKUPS = ("get", "fetch", "find", "lookup", "check", "query")
_WHOLE_TEXT = ("query", "question", "prompt", "text", "message", "content", "description", "task", "input")


class Wanted(Struct, frozen=True):
    """A call that a text asks for."""

    tool: Callable
    arguments: str


def wanted_calls(text: str, tools: tuple[Callable, ...]) -> list[Wanted]:
    """The calls a text asks for. Names followed by JSON objects are exactly those calls; else each tool that is named
    is called, or the one whose subject is asked for."""
    if not text or not tools:
        return []
    named = _mentions(text, tools)
    exact = [Wanted(tool, said) for tool, start, end in named if (said := _object_after(text, tool, end))]
    if exact:
        return exact
    asked = [(tool, start, end) for tool, start, end in named if _is_asked(text, tool, start, end)]
    firsts = {(tool.namespace, tool.name): (tool, end) for tool, _, end in reversed(asked)}
    ordered = sorted(firsts.values(), key=lambda found: found[1])
    if ordered:
        edges = [*(end for _, end in ordered[1:]), len(text)]
        return [call for (tool, end), edge in zip(ordered, edges, strict=True) for call in _made(tool, text, end, edge)]
    words = set(re.findall(r"\w+", text.lower()))
    about = next((tool for tool in tools if _is_about(words, tool)), None)
    return [] if about is None else _made(about, text, 0, len(text))


def forced_call(text: str, tool: Callable) -> Wanted:
    """A call that must be made, whatever the text says."""
    return _made(tool, text, 0, len(text))[0]


def example_of(tool: Callable) -> str:
    """How a user would ask for this tool."""
    return f"{tool.name} {_dumped(instance(_schema(tool)))}" if isinstance(tool, FunctionTool) else f"use {tool.name}"


# ---- which tools


def _mentions(text: str, tools: tuple[Callable, ...]) -> list[tuple[Callable, int, int]]:
    by_name: dict[str, Callable] = {}
    for tool in tools:
        by_name.setdefault(tool.name, tool)
        if tool.namespace is not None:
            for joint in (".", "__", "/"):
                by_name[f"{tool.namespace}{joint}{tool.name}"] = tool
    names = "|".join(re.escape(name) for name in sorted(by_name, key=len, reverse=True))
    found = re.finditer(rf"(?<![\w-])(?:{names})(?![\w-])", text)
    return [(by_name[one[0]], one.start(), one.end()) for one, _ in zip(found, range(_MENTIONS), strict=False)]


def _object_after(text: str, tool: Callable, end: int) -> str:
    """The JSON object right after a name, as it is written."""
    if isinstance(tool, FreeformTool) or (before := _BEFORE_OBJECT.match(text, end)) is None:
        return ""
    try:
        value, edge = json.JSONDecoder().raw_decode(text, before.end())
    except (ValueError, RecursionError):
        return ""
    return text[before.end() : edge] if isinstance(value, dict) else ""


def _is_asked(text: str, tool: Callable, start: int, end: int) -> bool:
    """A name that is also a word needs a verb before it; no name is asked for after a "not"."""
    before = text[max(0, start - 40) : start]
    if _REFUSING.search(before):
        return False
    called = text[end : end + 1] == "(" or bool(re.match(r"\s+tool\b", text[end : end + 10]))
    return called or _DISTINCTIVE.search(tool.name) is not None or _ASKING.search(before) is not None


def _is_about(words: set[str], tool: Callable) -> bool:
    """Whether the subject of a tool that looks something up is among the words: the weather, for `get_weather`."""
    first, *subject = re.sub(r"([a-z])([A-Z])", r"\1_\2", tool.name).lower().replace("-", "_").split("_")
    return first in _LOOKUPS and bool(subject) and words.issuperset(subject)


# ---- which arguments


def _made(tool: Callable, text: str, start: int, edge: int) -> list[Wanted]:
    """The calls of one tool: one, or one for each thing named where the tool takes exactly one text."""
    here = text[start:edge]
    if isinstance(tool, FreeformTool):
        return [Wanted(tool, _raw_text(here) or text or tool.name)]
    schema = _schema(tool)
    required = required_of(schema)
    if len(required) == 1 and not _PAIR.search(here):
        name = required[0]
        inner = resolved(properties_of(schema).get(name), schema)
        things = _things(here) if type_of(inner) in ("string", "") and "enum" not in inner else []
        things = [thing for thing in things if fits(thing, inner)]
        if len(things) > 1:
            return [Wanted(tool, _dumped({name: thing})) for thing in things]
    return [Wanted(tool, _dumped(filled(schema, here if here.strip() else text)))]


def _raw_text(text: str) -> str:
    fenced = _FENCED.search(text)
    if fenced is not None:
        return fenced[1]
    quoted = _QUOTED.search(text)
    return next(filter(None, quoted.groups())) if quoted is not None else text.lstrip(" \t:,.").strip()


def _schema(tool: FunctionTool) -> Schema:
    schema = None if tool.parameters is None else msgspec.json.decode(tool.parameters)
    return resolved(schema, schema)


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _things(text: str) -> list[str]:
    """What a text names: in quotes, or else with capitals after a preposition."""
    quoted = [next(filter(None, one.groups())) for one in _QUOTED.finditer(text)]
    return list(dict.fromkeys(quoted or [one[1] for one in _NAMED.finditer(text)]))


def filled(schema: Schema, text: str) -> dict[str, Any]:
    """An object of this schema with what the text says of it: by name, or for required properties by kind."""
    text = text[:_SEARCHED]
    said = {key.lower().replace("-", "_"): value for key, value in _PAIR.findall(text)}
    things = _things(text)
    numbers = _NUMBER.findall(text)
    known = properties_of(schema)
    required = required_of(schema)
    found: dict[str, Any] = {}
    for name in [*known, *(one for one in required if one not in known)]:
        inner = resolved(known.get(name), schema)
        value = _coerced(said[name.lower()], inner) if name.lower() in said else None
        if value is None:
            value = _named_choice(inner, text)
        if value is None and name in required:
            value = _next_of_kind(name, inner, things, numbers, text)
        if value is not None:
            found[name] = value
        elif name in required:
            found[name] = instance(known.get(name, {}), schema)
    return found


def _named_choice(inner: Schema, text: str) -> Any:
    """A choice that the text names as a word of its own."""
    choices = inner.get("enum") if isinstance(inner.get("enum"), list) else None
    for choice in choices or ():
        named = isinstance(choice, str) and choice and rf"(?<!\w){re.escape(choice)}(?!\w)"
        if named and re.search(named, text, re.IGNORECASE):
            return choice
    return None


def _next_of_kind(name: str, inner: Schema, things: list[str], numbers: list[str], text: str) -> Any:
    """The next thing or number that the text has for a property which it does not name."""
    kind = type_of(inner)
    if "enum" in inner or "const" in inner:
        return None
    if kind in ("integer", "number"):
        return _taken(numbers, inner)
    if kind not in ("string", "") or inner.keys() & {"format", "pattern"}:
        return None
    value = _taken(things, inner)
    if value is None and name.lower() in _WHOLE_TEXT and fits(text, inner):
        return text
    return value


def _taken(waiting: list[str], inner: Schema) -> Any:
    for place, text in enumerate(waiting):
        if (value := _coerced(text, inner)) is not None:
            del waiting[place]
            return value
    return None


def _coerced(text: str, inner: Schema) -> Any:
    """What is written, as the kind of value that the schema wants; None if it is none."""
    bare = text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
    value: Any = bare
    if type_of(inner) not in ("string", ""):
        try:
            value = json.loads(bare)
        except ValueError:
            value = {"yes": True, "no": False, "on": True, "off": False}.get(bare.lower(), bare)
    return value if fits(value, inner) else None
