"""The `run_code` tool as the model sees it: its limits, typed Python stubs of the tools, and its description.

1. A tool whose name is a free Python name keeps it; any other name is changed to a unique Python name.
2. Argument types accept everything that the schema accepts; the rest is validated when the tool is called. Results are
   typed by the output schema, if there is one.
3. Descriptions of tools become comments and can't become code. The effort per schema is bounded.
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
    """The limits of one program."""

    memory_bytes: int = 64 * 1024 * 1024
    # Computing time.
    seconds: float = 10.0
    # Calls of tools and of helper functions.
    calls: int = 200
    code_characters: int = 100_000
    output_characters: int = 20_000
    # Calls of tools that run at the same time.
    concurrency: int = 8


HELPER_STUBS = {
    "search_tools": "def search_tools(query: str, limit: int = 5) -> list[str]: ...",
    "describe_tool": "def describe_tool(name: str) -> str: ...",
}
"""Functions with which a program can look up tools."""

BUILTIN_STUBS = (
    "from collections.abc import Callable, Iterable\n"
    "def map(function: Callable[..., Any], /, *iterables: Iterable[Any]) -> list[Any]: ...\n"
    "def filter(function: Callable[[Any], Any] | None, iterable: Iterable[Any], /) -> list[Any]: ..."
)
"""Functions that the interpreter has and its type checker does not know; they return lists."""

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
    """A tool as a Python function."""

    name: str
    tool: str
    # The function and its classes, for the type checker.
    declaration: str
    # The same with comments, for the model.
    description: str
    # Whether it takes one positional value: text, or arguments whose names are not valid in Python.
    takes_one_value: bool = False


def make_stubs(tools: Iterable[Tool]) -> dict[str, Stub]:
    """Return a stub, the tool as a Python function, for each tool by its Python name."""
    stubs: dict[str, Stub] = {}
    for tool in tools:
        name = _python_name(tool.name, stubs)
        stubs[name] = _make_stub(name, tool)
    return stubs


def _python_name(name: str, used_names: Mapping[str, Any]) -> str:
    """Turn a tool name into a Python name that is not in `used_names`."""
    readable = _ILLEGAL_CHARACTER.sub("_", name)
    if not readable[:1].isalpha():
        readable = f"tool_{readable.strip('_')}".rstrip("_")
    candidate, number = readable, 1
    while candidate in _RESERVED_NAMES or candidate in used_names:
        number += 1
        candidate = f"{readable}_{number}"
    return candidate


def _make_stub(name: str, tool: Tool) -> Stub:
    """Build the stub of a tool: the signature and comments that the model reads."""
    classes: list[str] = []
    return_type = "Any"
    if tool.output_schema is not None:
        return_type = _ResultTypes(name, classes, tool.output_schema).annotation(tool.output_schema)
    properties = _as_properties(tool.parameters.get("properties"))
    has_python_names = all(map(_is_python_name, properties))
    if tool.grammar is not None:
        parameters = "input: str, /"
    elif not has_python_names or len(properties) > _MAX_MEMBERS:
        parameters = "arguments: Mapping[str, Any], /"
    else:
        parameters = _parameter_list(properties, tool.parameters)
    signature = f"async def {name}({parameters}) -> {return_type}: ..."
    return Stub(
        name,
        tool.name,
        declaration="\n".join([*classes, signature]),
        description="\n".join([signature, *_describe_tool(tool, properties), *classes]),
        takes_one_value=tool.grammar is not None or parameters.endswith(", /"),
    )


def _parameter_list(properties: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Return the keyword parameters of a stub as Python source."""
    names = schema.get("required")
    required = set(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else set()
    parameters = [
        f"{name}: {_argument_type(inner)}" + ("" if name in required else " = ...")
        for name, inner in properties.items()
    ]
    if schema.get("additionalProperties") not in (None, False):
        parameters.append("**others: Any")
    return ", ".join(["*", *parameters] if properties else parameters)


def _argument_type(schema: Any, depth: int = 0) -> str:
    """Return the Python annotation of an argument, never narrower than its schema."""
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
        and all(name in _SCALAR_TYPES for name in kind)
    ):
        return " | ".join(_SCALAR_TYPES[name] for name in kind)
    return "Any"


class _ResultTypes:
    """Derives the types of results; objects become `TypedDict` classes."""

    def __init__(self, function: str, classes: list[str], root: Mapping[str, Any]) -> None:
        self._function = function
        self._classes = classes
        self._root = root

    def annotation(self, schema: Any, depth: int = 0) -> str:
        """Return the Python annotation for results of a schema."""
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
            return "Any"
        if isinstance(reference := schema.get("$ref"), str):
            return self.annotation(self._resolve_reference(reference), depth + 1)
        if (values := _literal_type(schema)) is not None:
            return values
        for union_keyword in ("anyOf", "oneOf"):
            if isinstance(options := schema.get(union_keyword), list) and 0 < len(options) <= 8:
                return self._union_type(options, depth)
        kind = schema.get("type")
        if isinstance(kind, list) and 0 < len(kind) <= 8:
            return self._union_type([{**schema, "type": name} for name in kind], depth)
        if kind == "array":
            return f"list[{self.annotation(schema.get('items'), depth + 1)}]"
        if kind == "object":
            return self._object_type(schema, depth)
        return _SCALAR_TYPES.get(kind, "Any") if isinstance(kind, str) else "Any"

    def _union_type(self, options: list[Any], depth: int) -> str:
        """Return the annotation `A | B` for several schemas."""
        types = dict.fromkeys(self.annotation(option, depth + 1) for option in options)
        return "Any" if "Any" in types else " | ".join(types)

    def _object_type(self, schema: Mapping[str, Any], depth: int) -> str:
        """Return the annotation of an object, and add a `TypedDict` class if its property names are Python names."""
        properties = _as_properties(schema.get("properties"))
        if not properties:
            return f"dict[str, {self.annotation(schema.get('additionalProperties'), depth + 1)}]"
        if (
            len(properties) > _MAX_MEMBERS
            or len(self._classes) >= _MAX_MEMBERS
            or not all(map(_is_python_name, properties))
        ):
            return "dict[str, Any]"
        required_names = schema.get("required")
        required = required_names if isinstance(required_names, list) else []
        lines = []
        for name, inner in properties.items():
            annotation = self.annotation(inner, depth + 1)
            lines.append(f"    {name}: {annotation if name in required else f'NotRequired[{annotation}]'}")
        name = f"Result_{self._function}" + (f"_{len(self._classes)}" if self._classes else "")
        self._classes.append("\n".join([f"class {name}(TypedDict):", *lines]))
        return name

    def _resolve_reference(self, reference: str) -> Any:
        """Return the schema that a local `$ref` points to."""
        schema: Any = self._root
        for step in reference.removeprefix("#/").split("/") if reference.startswith("#/") else [""]:
            schema = schema.get(step) if isinstance(schema, Mapping) else None
        return schema


def _literal_type(schema: Mapping[str, Any]) -> str | None:
    """Return a `Literal[...]` annotation for `const` or a short `enum`; None for other schemas."""
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
    """Return the `properties` of a schema; empty if they are not an object."""
    return dict(properties) if isinstance(properties, Mapping) else {}


def _is_python_name(name: str) -> bool:
    """Return True if a name can be a Python parameter or attribute."""
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("__")


def _describe_tool(tool: Tool, properties: Mapping[str, Any]) -> Iterator[str]:
    """Yield comment lines with the descriptions of a tool and its arguments."""
    if tool.name:
        yield from _comment_lines(f"{tool.name}: {tool.description[:_MAX_DESCRIPTION_LENGTH]}")
    for name, inner in list(properties.items())[:_MAX_MEMBERS]:
        fields = _as_properties(inner)
        notes = [fields["description"][:_MAX_COMMENT_LENGTH]] if isinstance(fields.get("description"), str) else []
        if isinstance(values := fields.get("enum"), list):
            notes.append(f"one of {msgspec.json.encode(values[:40]).decode()[:_MAX_COMMENT_LENGTH]}")
        if notes:
            yield from _comment_lines(f"  {name}: {'; '.join(notes)}")
    if tool.grammar is not None:
        yield from _comment_lines(
            f"  input: {tool.grammar.syntax}: {tool.grammar.definition[:_MAX_DESCRIPTION_LENGTH]}"
        )


def _comment_lines(text: str) -> Iterator[str]:
    """Yield a text as Python comment lines, without control characters."""
    for line in text.splitlines():
        if line.strip():
            yield "# " + "".join(letter if letter.isprintable() else " " for letter in line)


_MAX_LISTED_CHARACTERS = 8_000

SUPPORTED_SYNTAX = (
    "async def, await, asyncio.gather, asyncio.run; def, lambda, closures, decorators of functions; simple classes and "
    "@dataclass; comprehensions; match; try; with; f-strings; type hints"
)
UNSUPPORTED_SYNTAX = (
    "inheritance (so no own exceptions, Enum, NamedTuple or TypedDict), generators (yield), del, @property, "
    "@classmethod and @staticmethod, async with, async for, except*, type aliases, asyncio.create_task, getattr, "
    "setattr, hasattr, callable, globals(), methods of types (use `lambda s: s.upper()` for `str.upper`), "
    "str.translate"
)
AVAILABLE_MODULES = (
    "asyncio base64 binascii bisect collections copy csv dataclasses datetime decimal functools hashlib itertools json "
    "math random re time typing unicodedata"
)

_SUBSET_HINT = (
    f"The sandbox runs a subset of Python. Not supported: {UNSUPPORTED_SYNTAX}. "
    f"Modules: {', '.join(AVAILABLE_MODULES.split())}."
)
_SUBSET_ERROR = re.compile(
    r"NotImplementedError: The monty|ModuleNotFoundError:|\[unresolved-import\]|AttributeError: type object '"
    r"|\[unresolved-reference\] Name `(?:" + "|".join(dir(builtins)) + ")`"
)


def subset_hint(error: str) -> str:
    """Return what the sandbox lacks, for an error about something that only full Python has; otherwise nothing."""
    return _SUBSET_HINT if _SUBSET_ERROR.search(error) else ""


_DESCRIPTION = """\
Runs Python code that calls tools as functions. Use it when a task needs several calls, or to filter or summarize \
results: you only get what the code prints and the value of its last line.

Each tool is an async function with named arguments: `rows = await list_orders(customer="7")`. Run independent calls \
together: `a, b = await asyncio.gather(f(x=1), f(x=2))` after `import asyncio`. A call that fails raises RuntimeError.
The code is type-checked before it runs. No state is kept between runs. Await at the top level.

It is a sandbox with a subset of Python. Supported: {works}. Modules: {modules}. map and filter return lists.
Not supported: {lacks}. No files, no network, no environment, no other modules; sleeping takes no time.
Limits: {seconds:g} seconds of computing, {memory} MB, {calls} calls, {output:,} characters of output."""

_SEARCH_HINT = """

`search_tools("what it should do")` returns matching functions, and `describe_tool(name)` returns one of them in \
full: print them in a first run."""


def code_tool_description(stubs: Mapping[str, Stub], limits: CodeLimits) -> str:
    """Return the description of `run_code`, with all stubs if they are short enough."""
    text = _DESCRIPTION.format(
        works=SUPPORTED_SYNTAX,
        lacks=UNSUPPORTED_SYNTAX,
        modules=", ".join(AVAILABLE_MODULES.split()),
        seconds=limits.seconds,
        memory=limits.memory_bytes // (1024 * 1024),
        calls=limits.calls,
        output=limits.output_characters,
    )
    descriptions = [stub.description for stub in stubs.values()]
    if sum(map(len, descriptions)) <= _MAX_LISTED_CHARACTERS:
        return "\n".join([f"{text}\n\nThe functions:\n\n{STUB_IMPORTS}", *descriptions])
    return f"{text}{_SEARCH_HINT} There are {len(stubs):,} functions.\n\n" + "\n".join(HELPER_STUBS.values())
