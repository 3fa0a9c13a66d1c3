"""What bounds a program. The sandbox itself has no bounds.

What a program is told of the tools: a typed function for each, in Python's own words.

1. Names are those of tools where these are names in Python, too, and hide nothing; else they are made so, each another.
2. Arguments are typed so that nothing valid is refused: what a schema says beyond that is checked when the tool is
   called. Results are typed as their schema says, if there is one.
3. Whatever a tool says of itself stays a comment: it can't become code. No schema costs more than the bounds below.

What the model is told of `run_code`: which Python it has, and the functions in it. The tests hold it to that.
"""

import builtins
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from toolwire.runtime.tool import Tool


class CodeLimits(Struct, frozen=True, kw_only=True):
    """Bytes of memory, seconds of computing, calls of tools and questions about them, characters of code and of what
    it prints. `at_once`: how many calls are carried out at the same time."""

    memory_bytes: int = 64 * 1024 * 1024
    seconds: float = 10.0
    calls: int = 200
    code_characters: int = 100_000
    output_characters: int = 20_000
    concurrency: int = 8


HELPER_STUBS = {
    "search_tools": "def search_tools(query: str, limit: int = 5) -> list[str]: ...",
    "describe_tool": "def describe_tool(name: str) -> str: ...",
}
"""What a program can ask about the tools themselves."""

STUB_IMPORTS = (
    "from collections.abc import Mapping, Sequence\nfrom typing import Any, Literal, NotRequired, TypedDict\n"
)
_PYTHON_NAMES = frozenset(dir(builtins)) | set(keyword.kwlist) | set(keyword.softkwlist) | HELPER_STUBS.keys()
_IMPORTED_NAMES = (
    "asyncio base64 binascii bisect collections copy csv dataclasses datetime decimal functools hashlib itertools "
    "json math os pathlib random re sys time tomllib typing unicodedata Any Literal Mapping NotRequired Sequence "
    "TypedDict"
)
_RESERVED_NAMES = _PYTHON_NAMES | set(_IMPORTED_NAMES.split())
_ILLEGAL_CHARACTER = re.compile(r"[^a-zA-Z0-9_]")
_SCALAR_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_MAX_DEPTH, _MAX_MEMBERS, _MAX_COMMENT_LENGTH, _MAX_DESCRIPTION_LENGTH = 5, 60, 1_000, 2_000


class Stub(msgspec.Struct, frozen=True):
    """One tool as a function: `code` declares it, `text` tells it. `whole`: it takes one value in place of named
    arguments, since some of these have no name in Python, or it takes text."""

    name: str
    tool: str
    declaration: str
    description: str
    takes_one_value: bool = False


def make_stubs(tools: Iterable[Tool]) -> dict[str, Stub]:
    """A function for each tool, by its name in Python."""
    made: dict[str, Stub] = {}
    for tool in tools:
        name = _python_name(tool.name, made)
        made[name] = _make_stub(name, tool)
    return made


def _python_name(name: str, used_names: Mapping[str, Any]) -> str:
    readable = _ILLEGAL_CHARACTER.sub("_", name)
    if not readable[:1].isalpha():
        readable = f"tool_{readable.strip('_')}".rstrip("_")
    candidate, number = readable, 1
    while candidate in _RESERVED_NAMES or candidate in used_names:
        number += 1
        candidate = f"{readable}_{number}"
    return candidate


def _make_stub(name: str, tool: Tool) -> Stub:
    classes: list[str] = []
    returned = "Any"
    if tool.output_schema is not None:
        returned = _ResultTypes(name, classes, tool.output_schema).annotation(tool.output_schema)
    properties = _as_properties(tool.parameters.get("properties"))
    plain = all(_is_python_name(one) for one in properties)
    if tool.grammar is not None:
        taken = "input: str, /"
    elif not plain or len(properties) > _MAX_MEMBERS:
        taken = "arguments: Mapping[str, Any], /"
    else:
        taken = _parameter_list(properties, tool.parameters)
    declared = f"async def {name}({taken}) -> {returned}: ..."
    code = "\n".join([*classes, declared])
    lines = [declared, *_describe_tool(tool, properties), *classes]
    return Stub(
        name, tool.name, code, "\n".join(lines), takes_one_value=tool.grammar is not None or taken.endswith(", /")
    )


def _parameter_list(properties: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    said = schema.get("required")
    required = set(said) if isinstance(said, list) and all(isinstance(one, str) for one in said) else set()
    listed = [
        f"{name}: {_argument_type(inner)}" + ("" if name in required else " = ...")
        for name, inner in properties.items()
    ]
    if schema.get("additionalProperties") not in (None, False):
        listed.append("**others: Any")
    return ", ".join(["*", *listed] if properties else listed)


def _argument_type(schema: Any, depth: int = 0) -> str:
    """What may be given: never narrower than the schema."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return "Any"
    kind = schema.get("type")
    if isinstance(kind, str) and kind in _SCALAR_TYPES:
        return _SCALAR_TYPES[kind]
    if kind == "array":
        return f"Sequence[{_argument_type(schema.get('items'), depth + 1)}]"
    if kind == "object":
        return "Mapping[str, Any]"
    if (
        isinstance(kind, list)
        and kind
        and len(kind) <= len(_SCALAR_TYPES)
        and all(one in _SCALAR_TYPES for one in kind)
    ):
        return " | ".join(_SCALAR_TYPES[one] for one in kind)
    return "Any"


class _ResultTypes:
    """Annotations of what a tool gives; objects become classes of their own."""

    def __init__(self, function: str, classes: list[str], root: Mapping[str, Any]) -> None:
        self._function = function
        self._classes = classes
        self._root = root

    def annotation(self, schema: Any, depth: int = 0) -> str:
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
            return "Any"
        if isinstance(reference := schema.get("$ref"), str):
            return self.annotation(self._resolve_reference(reference), depth + 1)
        if (values := _literal_type(schema)) is not None:
            return values
        for word in ("anyOf", "oneOf"):
            if isinstance(options := schema.get(word), list) and 0 < len(options) <= 8:
                return self._union_type(options, depth)
        kind = schema.get("type")
        if isinstance(kind, list) and 0 < len(kind) <= 8:
            return self._union_type([{**schema, "type": one} for one in kind], depth)
        if kind == "array":
            return f"list[{self.annotation(schema.get('items'), depth + 1)}]"
        if kind == "object":
            return self._object_type(schema, depth)
        return _SCALAR_TYPES.get(kind, "Any") if isinstance(kind, str) else "Any"

    def _union_type(self, options: list[Any], depth: int) -> str:
        found = dict.fromkeys(self.annotation(one, depth + 1) for one in options)
        return "Any" if "Any" in found else " | ".join(found)

    def _object_type(self, schema: Mapping[str, Any], depth: int) -> str:
        properties = _as_properties(schema.get("properties"))
        if not properties:
            return f"dict[str, {self.annotation(schema.get('additionalProperties'), depth + 1)}]"
        if (
            len(properties) > _MAX_MEMBERS
            or len(self._classes) >= _MAX_MEMBERS
            or not all(map(_is_python_name, properties))
        ):
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

    def _resolve_reference(self, reference: str) -> Any:
        found: Any = self._root
        for step in reference.removeprefix("#/").split("/") if reference.startswith("#/") else [""]:
            found = found.get(step) if isinstance(found, Mapping) else None
        return found


def _literal_type(schema: Mapping[str, Any]) -> str | None:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list) or not 0 < len(values) <= 40:
        return None
    if not all(value is None or isinstance(value, str | int) for value in values):
        return None
    return (
        f"Literal[{', '.join(map(ascii, values))}]"
        if sum(len(str(value)) for value in values) < _MAX_COMMENT_LENGTH
        else None
    )


def _as_properties(properties: Any) -> dict[str, Any]:
    return dict(properties) if isinstance(properties, Mapping) else {}


def _is_python_name(name: str) -> bool:
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("__")


def _describe_tool(tool: Tool, properties: Mapping[str, Any]) -> Iterator[str]:
    if tool.name:
        yield from _comment_lines(f"{tool.name}: {tool.description[:_MAX_DESCRIPTION_LENGTH]}")
    for name, inner in list(properties.items())[:_MAX_MEMBERS]:
        said = _as_properties(inner)
        about = [said["description"][:_MAX_COMMENT_LENGTH]] if isinstance(said.get("description"), str) else []
        if isinstance(values := said.get("enum"), list):
            about.append(f"one of {msgspec.json.encode(values[:40]).decode()[:_MAX_COMMENT_LENGTH]}")
        if about:
            yield from _comment_lines(f"  {name}: {'; '.join(about)}")
    if tool.grammar is not None:
        yield from _comment_lines(
            f"  input: {tool.grammar.syntax}: {tool.grammar.definition[:_MAX_DESCRIPTION_LENGTH]}"
        )


def _comment_lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.strip():
            yield "# " + "".join(letter if letter.isprintable() else " " for letter in line)


_MAX_LISTED_CHARACTERS = 8_000

SUPPORTED_SYNTAX = (
    "async def, await, asyncio.gather, asyncio.run; def, lambda, closures, decorators of functions; simple classes and "
    "@dataclass; comprehensions; match; try; with; f-strings; type hints"
)
UNSUPPORTED_SYNTAX = (
    "inheritance (so no own exceptions, no Enum), generators (yield), del, @property, @classmethod and @staticmethod, "
    "async with, async for, asyncio.create_task, globals()"
)
AVAILABLE_MODULES = (
    "asyncio base64 binascii bisect collections copy csv dataclasses datetime decimal functools hashlib itertools json "
    "math random re time typing unicodedata"
)

_DESCRIPTION = """\
Runs Python that calls tools as functions. Use it where a task needs several calls, or results are to be filtered or \
summed up: only what the code prints, and the value of its last line, comes back to you.

Each tool is an async function with named arguments: `rows = await list_orders(customer="7")`. Independent calls go \
together: `a, b = await asyncio.gather(f(x=1), f(x=2))` after `import asyncio`. A call that fails raises RuntimeError.
The code is type-checked before it runs, and nothing is kept from one run to the next. Await at the top level.

It is a sandbox with a part of Python. There are: {works}. Modules: {modules}.
There are not: {lacks}. No files, no network, no environment, no other modules; sleeping takes no time.
Limits: {seconds:g} seconds of computing, {memory} MB, {calls} calls, {output:,} characters of output."""

_SEARCH_HINT = """

`search_tools("what it should do")` gives the functions that fit, `describe_tool(name)` one of them with all that is \
known of it: print them in a first run."""


def code_tool_description(stubs: Mapping[str, Stub], limits: CodeLimits) -> str:
    text = _DESCRIPTION.format(
        works=SUPPORTED_SYNTAX,
        lacks=UNSUPPORTED_SYNTAX,
        modules=", ".join(AVAILABLE_MODULES.split()),
        seconds=limits.seconds,
        memory=limits.memory_bytes // (1024 * 1024),
        calls=limits.calls,
        output=limits.output_characters,
    )
    told = [stub.description for stub in stubs.values()]
    if sum(map(len, told)) <= _MAX_LISTED_CHARACTERS:
        return "\n".join([f"{text}\n\nThe functions:\n\n{STUB_IMPORTS}", *told])
    return f"{text}{_SEARCH_HINT} There are {len(stubs):,} functions.\n\n" + "\n".join(HELPER_STUBS.values())
