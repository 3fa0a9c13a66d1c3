"""What a program is told of the tools: a typed function for each, in Python's own words.

1. Names are those of tools where these are names in Python, too, and hide nothing; else they are made so, each another.
2. Arguments are typed so that nothing valid is refused: what a schema says beyond that is checked when the tool is
   called. Results are typed as their schema says, if there is one.
3. Whatever a tool says of itself stays a comment: it can't become code. No schema costs more than the bounds below.
"""

import builtins
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from toolwire.runtime.toolset import Tool

HELPERS = {
    "search_tools": "def search_tools(query: str, limit: int = 5) -> list[str]: ...",
    "describe_tool": "def describe_tool(name: str) -> str: ...",
}
"""What a program can ask about the tools themselves."""

HEAD = "from collections.abc import Mapping, Sequence\nfrom typing import Any, Literal, NotRequired, TypedDict\n"
_TAKEN = frozenset(dir(builtins)) | set(keyword.kwlist) | set(keyword.softkwlist) | HELPERS.keys()
_MODULES = (
    "asyncio base64 binascii bisect collections copy csv dataclasses datetime decimal functools hashlib itertools "
    "json math os pathlib random re sys time tomllib typing unicodedata Any Literal Mapping NotRequired Sequence "
    "TypedDict"
)
_RESERVED = _TAKEN | set(_MODULES.split())
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_]")
_SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_DEPTH, _MEMBERS, _TOLD, _ABOUT = 5, 60, 1_000, 2_000


class Stub(msgspec.Struct, frozen=True):
    """One tool as a function: `code` declares it, `text` tells it. `whole`: it takes one value in place of named
    arguments, since some of these have no name in Python, or it takes text."""

    name: str
    tool: str
    code: str
    text: str
    whole: bool = False


def stubs_of(tools: Iterable[Tool]) -> dict[str, Stub]:
    """A function for each tool, by its name in Python."""
    made: dict[str, Stub] = {}
    for tool in tools:
        name = _named(tool.name, made)
        made[name] = _stub(name, tool)
    return made


def _named(name: str, taken: Mapping[str, Any]) -> str:
    readable = _ILLEGAL.sub("_", name)
    if not readable[:1].isalpha():
        readable = f"tool_{readable.strip('_')}".rstrip("_")
    candidate, number = readable, 1
    while candidate in _RESERVED or candidate in taken:
        number += 1
        candidate = f"{readable}_{number}"
    return candidate


def _stub(name: str, tool: Tool) -> Stub:
    classes: list[str] = []
    returned = "Any"
    if tool.output_schema is not None:
        returned = _Results(name, classes, tool.output_schema).annotation(tool.output_schema)
    properties = _members(tool.parameters.get("properties"))
    plain = all(_is_plain(one) for one in properties)
    if tool.grammar is not None:
        taken = "input: str, /"
    elif not plain or len(properties) > _MEMBERS:
        taken = "arguments: Mapping[str, Any], /"
    else:
        taken = _taken(properties, tool.parameters)
    declared = f"async def {name}({taken}) -> {returned}: ..."
    code = "\n".join([*classes, declared])
    lines = [declared, *_told(tool, properties), *classes]
    return Stub(name, tool.name, code, "\n".join(lines), whole=tool.grammar is not None or taken.endswith(", /"))


def _taken(properties: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    said = schema.get("required")
    required = set(said) if isinstance(said, list) and all(isinstance(one, str) for one in said) else set()
    listed = [
        f"{name}: {_argument(inner)}" + ("" if name in required else " = ...") for name, inner in properties.items()
    ]
    if schema.get("additionalProperties") not in (None, False):
        listed.append("**others: Any")
    return ", ".join(["*", *listed] if properties else listed)


def _argument(schema: Any, depth: int = 0) -> str:
    """What may be given: never narrower than the schema."""
    if not isinstance(schema, Mapping) or depth > _DEPTH:
        return "Any"
    kind = schema.get("type")
    if isinstance(kind, str) and kind in _SIMPLE:
        return _SIMPLE[kind]
    if kind == "array":
        return f"Sequence[{_argument(schema.get('items'), depth + 1)}]"
    if kind == "object":
        return "Mapping[str, Any]"
    if isinstance(kind, list) and kind and len(kind) <= len(_SIMPLE) and all(one in _SIMPLE for one in kind):
        return " | ".join(_SIMPLE[one] for one in kind)
    return "Any"


class _Results:
    """Annotations of what a tool gives; objects become classes of their own."""

    def __init__(self, function: str, classes: list[str], root: Mapping[str, Any]) -> None:
        self._function = function
        self._classes = classes
        self._root = root

    def annotation(self, schema: Any, depth: int = 0) -> str:
        if not isinstance(schema, Mapping) or depth > _DEPTH:
            return "Any"
        if isinstance(reference := schema.get("$ref"), str):
            return self.annotation(self._resolved(reference), depth + 1)
        if (values := _literals(schema)) is not None:
            return values
        for word in ("anyOf", "oneOf"):
            if isinstance(options := schema.get(word), list) and 0 < len(options) <= 8:
                return self._union(options, depth)
        kind = schema.get("type")
        if isinstance(kind, list) and 0 < len(kind) <= 8:
            return self._union([{**schema, "type": one} for one in kind], depth)
        if kind == "array":
            return f"list[{self.annotation(schema.get('items'), depth + 1)}]"
        if kind == "object":
            return self._object(schema, depth)
        return _SIMPLE.get(kind, "Any") if isinstance(kind, str) else "Any"

    def _union(self, options: list[Any], depth: int) -> str:
        found = dict.fromkeys(self.annotation(one, depth + 1) for one in options)
        return "Any" if "Any" in found else " | ".join(found)

    def _object(self, schema: Mapping[str, Any], depth: int) -> str:
        properties = _members(schema.get("properties"))
        if not properties:
            return f"dict[str, {self.annotation(schema.get('additionalProperties'), depth + 1)}]"
        if len(properties) > _MEMBERS or len(self._classes) >= _MEMBERS or not all(map(_is_plain, properties)):
            return "dict[str, Any]"
        said = schema.get("required")
        required = said if isinstance(said, list) else []
        lines = []
        for name, inner in properties.items():
            annotation = self.annotation(inner, depth + 1)
            lines.append(f"    {name}: {annotation if name in required else f'NotRequired[{annotation}]'}")
        name = f"Result_{self._function}" + (f"_{len(self._classes)}" if self._classes else "")
        self._classes.append("\n".join([f"class {name}(TypedDict):", *lines]))
        return name

    def _resolved(self, reference: str) -> Any:
        found: Any = self._root
        for step in reference.removeprefix("#/").split("/") if reference.startswith("#/") else [""]:
            found = found.get(step) if isinstance(found, Mapping) else None
        return found


def _literals(schema: Mapping[str, Any]) -> str | None:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list) or not 0 < len(values) <= 40:
        return None
    if not all(value is None or isinstance(value, str | int) for value in values):
        return None
    return f"Literal[{', '.join(map(ascii, values))}]" if sum(len(str(value)) for value in values) < _TOLD else None


def _members(properties: Any) -> dict[str, Any]:
    return dict(properties) if isinstance(properties, Mapping) else {}


def _is_plain(name: str) -> bool:
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("__")


def _told(tool: Tool, properties: Mapping[str, Any]) -> Iterator[str]:
    if tool.name:
        yield from _commented(f"{tool.name}: {tool.description[:_ABOUT]}")
    for name, inner in list(properties.items())[:_MEMBERS]:
        said = _members(inner)
        about = [said["description"][:_TOLD]] if isinstance(said.get("description"), str) else []
        if isinstance(values := said.get("enum"), list):
            about.append(f"one of {msgspec.json.encode(values[:40]).decode()[:_TOLD]}")
        if about:
            yield from _commented(f"  {name}: {'; '.join(about)}")
    if tool.grammar is not None:
        yield from _commented(f"  input: {tool.grammar.syntax}: {tool.grammar.definition[:_ABOUT]}")


def _commented(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.strip():
            yield "# " + "".join(letter if letter.isprintable() else " " for letter in line)
