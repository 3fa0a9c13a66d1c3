"""What a docstring says of a function and of its parameters, in any of the three common styles.

A Python function as a tool: its signature is the schema, its docstring the description.

Types may be anything that msgspec or pydantic know. A parameter annotated with `Calling` is not the model's: it is
given the call itself.
"""

import asyncio
import contextlib
import inspect
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints, overload

import msgspec
from msgspec import Struct

from toolwire.canonical.errors import ToolwireError
from toolwire.canonical.tools import Grammar
from toolwire.runtime.calls.outputs import MAX_ITEMS, TRUNCATION_NOTE, collect_items
from toolwire.runtime.tool import Annotations, Arguments, Locus, RateLimit, Tool, ToolContext, ToolError

_SPHINX_PARAMETER = re.compile(r"^:param\s+(?:[\w\[\], |.]+\s+)?\*{0,2}(?P<name>\w+):\s*(?P<text>.*)$")
_GOOGLE_PARAMETER = re.compile(r"^\s+\*{0,2}(?P<name>\w+)\s*(?:\([^)]*\))?\s*:\s*(?P<text>.*)$")
_NUMPY_PARAMETER = re.compile(r"^(?P<name>\w+)\s*(?::.*)?$")
_SECTION_HEADING = re.compile(r"^(Args|Arguments|Parameters|Returns?|Yields?|Raises|Examples?|Notes?):?\s*$")
_PARAMETER_SECTIONS = ("Args", "Arguments", "Parameters")


class ParsedDocstring(Struct, frozen=True):
    summary: str
    parameters: dict[str, str]


def parse_docstring(text: str) -> ParsedDocstring:
    """The text before the first section, and one line or paragraph for each parameter."""
    lines = text.splitlines()
    summary: list[str] = []
    found: dict[str, list[str]] = {}
    section, numpy, current = "", False, None
    for place, line in enumerate(lines):
        head = _SECTION_HEADING.match(line)
        if head is not None:
            section, current = head[1], None
            numpy = place + 1 < len(lines) and set(lines[place + 1].strip()) == {"-"}
        elif (sphinx := _SPHINX_PARAMETER.match(line)) is not None:
            section, current = "sphinx", sphinx["name"]
            found[current] = [sphinx["text"]]
        elif line.startswith(":"):
            section, current = "sphinx", None
        elif not section:
            summary.append(line)
        elif (
            section in _PARAMETER_SECTIONS
            and (named := (_NUMPY_PARAMETER if numpy else _GOOGLE_PARAMETER).match(line))
            and not _is_continuation(line, current)
        ):
            current = named["name"]
            found[current] = [] if numpy else [named["text"]]
        elif current is not None and line.strip():
            found[current].append(line.strip())
    texts = {name: " ".join(part for part in parts if part).strip() for name, parts in found.items()}
    return ParsedDocstring("\n".join(summary).strip(), {name: said for name, said in texts.items() if said})


def _is_continuation(line: str, current: str | None) -> bool:
    """A line that is indented further than a name would be."""
    return current is not None and line.startswith(" " * 8)


F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS_ATTRIBUTE = "__toolwire_tool__"
_REF_TEMPLATE = "#/$defs/{name}"


class InvalidToolFunction(ToolwireError):
    """A function that can't be made a tool; the message says why."""


class ToolOptions(Struct, frozen=True, kw_only=True):
    """What `@tool` was told."""

    name: str | None = None
    description: str | None = None
    annotations: Annotations = Annotations()
    locus: Locus = "local"
    grammar: Grammar | None = None
    output_schema: Any = None
    timeout: float = 120.0
    rate: RateLimit | None = None
    output_limit: int = 40_000
    defer: bool = False


@overload
def tool(function: F) -> F: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
    destructive: bool = False,
    idempotent: bool = False,
    open_world: bool = False,
    locus: Locus = "local",
    grammar: Grammar | None = None,
    output_schema: Any = None,
    timeout: float = 120.0,
    rate: RateLimit | None = None,
    output_limit: int = 40_000,
    defer: bool = False,
) -> Callable[[F], F]: ...


def tool(function: Any = None, **options: Any) -> Any:
    """Mark a function as a tool. It stays the function that it is; an agent reads the mark.

    `output_schema` is a JSON Schema, or a type that gives one; with a `grammar` the function takes one text.
    """
    said = {key: options.pop(key) for key in Annotations.__struct_fields__ if key in options}
    made = ToolOptions(annotations=Annotations(**said), **options)

    def mark(marked: F) -> F:
        setattr(marked, _OPTIONS_ATTRIBUTE, made)
        as_tool(marked)  # what is wrong with it is said where it is written
        return marked

    return mark if function is None else mark(function)


def as_tool(function: Callable[..., Any]) -> Tool:
    """The tool that a function is, marked or not."""
    options = getattr(function, _OPTIONS_ATTRIBUTE, ToolOptions())
    name = options.name or getattr(function, "__name__", "")
    if not name or name == "<lambda>":
        raise InvalidToolFunction(f"{function!r} has no name: give it one with @tool(name=...)")
    reading = _Signature(function, name)
    about = parse_docstring(inspect.getdoc(function) or "")
    grammar, output = options.grammar, options.output_schema
    return Tool(
        name=name,
        description=options.description or about.summary,
        parameters=reading.schema(about.parameters),
        grammar=grammar,
        output_schema=output if output is None or isinstance(output, dict) else _schema_of(output, {}),
        annotations=options.annotations,
        locus=options.locus,
        timeout=options.timeout,
        rate=options.rate,
        output_limit=options.output_limit,
        defer=options.defer,
        run=_FunctionCall(function, reading),
        stoppable=_is_async_callable(_underlying_callable(function)),
    )


class _Parameter(Struct, frozen=True):
    name: str
    annotation: Any
    default: Any


class _Signature:
    """What a function takes: from the model, and from us."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        called = inspect.unwrap(function)
        hints = get_type_hints(called if inspect.isroutine(called) else type(called).__call__, include_extras=True)
        self.parameters: list[_Parameter] = []
        self.context_parameter: str | None = None
        for parameter in inspect.signature(function).parameters.values():
            kind = hints.get(parameter.name, Any)
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise InvalidToolFunction(f"{name}: {parameter} can't be given by name")
            if kind is ToolContext:
                self.context_parameter = parameter.name
            else:
                self.parameters.append(_Parameter(parameter.name, kind, parameter.default))

    def schema(self, descriptions: Mapping[str, str]) -> dict[str, Any]:
        definitions: dict[str, Any] = {}
        properties: dict[str, Any] = {}
        for one in self.parameters:
            found = dict(_schema_of(one.annotation, definitions))
            note = _annotated_description(one.annotation) or descriptions.get(one.name)
            if note is not None:
                found.setdefault("description", note)
            if one.default is not inspect.Parameter.empty:
                with contextlib.suppress(TypeError, ValueError):  # the function knows it; the model need not
                    found.setdefault("default", msgspec.to_builtins(one.default))
            properties[one.name] = found
        required = [one.name for one in self.parameters if one.default is inspect.Parameter.empty]
        made: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
        if required:
            made["required"] = required
        return made | ({"$defs": definitions} if definitions else {})

    def convert_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the types that the function asks for."""
        kinds = {one.name: one.annotation for one in self.parameters}
        return {name: _convert_value(value, kinds[name], name) for name, value in arguments.items() if name in kinds}


def _underlying_callable(function: Callable[..., Any]) -> Any:
    return function if inspect.isroutine(function) else type(function).__call__


def _is_async_callable(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


class _FunctionCall:
    """Calls the function: a coroutine function here, any other in a thread."""

    def __init__(self, function: Callable[..., Any], signature: _Signature) -> None:
        self._function = function
        self._signature = signature

    async def __call__(self, arguments: Arguments, context: ToolContext) -> Any:
        if isinstance(arguments, Mapping):
            given = self._signature.convert_arguments(arguments)
        else:
            given = {self._signature.parameters[0].name: arguments}
        if self._signature.context_parameter is not None:
            given[self._signature.context_parameter] = context
        if inspect.iscoroutinefunction(_underlying_callable(self._function)):
            return await self._function(**given)
        value = await asyncio.to_thread(partial(self._call, given))
        if inspect.isasyncgen(value):
            return await _collect_async(value)
        return await value if inspect.isawaitable(value) else value

    def _call(self, kwargs: dict[str, Any]) -> Any:
        """Call the function. A generator runs to its end here, in the same thread."""
        value = self._function(**kwargs)
        return collect_items(value) if inspect.isgenerator(value) else value


async def _collect_async(items: AsyncGenerator[Any, Any]) -> list[Any]:
    found = list[Any]()
    async with aclosing(items):
        async for one in items:
            if len(found) == MAX_ITEMS:
                return [*found, TRUNCATION_NOTE]
            found.append(one)
    return found


def _annotated_description(annotation: Any) -> str | None:
    """`Annotated[int, "how many"]`."""
    said = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return next((one for one in said if isinstance(one, str)), None)


def _schema_of(annotation: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if annotation is Any:
        return {}
    try:
        if _uses_pydantic(annotation):
            found: dict[str, Any] = _type_adapter(annotation).json_schema(ref_template="#/$defs/{model}")
            definitions.update(found.pop("$defs", {}))
            return found
        (schema,), parts = msgspec.json.schema_components([annotation], ref_template=_REF_TEMPLATE)
        definitions.update(parts)
    except TypeError as error:
        raise InvalidToolFunction(f"{annotation!r} can't be told in a schema: {error}") from None
    return schema


def _convert_value(value: Any, annotation: Any, name: str) -> Any:
    if annotation is Any:
        return value
    try:
        return (
            _type_adapter(annotation).validate_python(value)
            if _uses_pydantic(annotation)
            else msgspec.convert(value, annotation)
        )
    except ValueError as error:
        raise ToolError(f"/{name}: {error}", "schema") from None


def _uses_pydantic(annotation: Any) -> bool:
    """Whether pydantic is meant, anywhere in the type."""
    if hasattr(annotation, "model_json_schema") or hasattr(annotation, "__pydantic_fields__"):
        return True
    return any(_uses_pydantic(one) or type(one).__module__.startswith("pydantic") for one in get_args(annotation))


def _type_adapter(annotation: Any) -> Any:
    from pydantic import TypeAdapter  # noqa: PLC0415 - whoever uses its types has it

    return TypeAdapter(annotation)
