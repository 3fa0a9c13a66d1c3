"""A Python function as a tool: its signature is the schema, its docstring the description.

Types may be anything that msgspec or pydantic know. A parameter annotated with `Calling` is not the model's: it is
given the call itself.
"""

import asyncio
import contextlib
import inspect
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints, overload

import msgspec
from msgspec import Struct

from toolwire.canonical.errors import ToolwireError
from toolwire.canonical.tools import Grammar

from .docstrings import described
from .outputs import CUT_OFF, MOST_ITEMS, collect
from .toolset import Annotations, Arguments, Calling, Locus, Rate, Tool, ToolFault

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "__toolwire_tool__"
_TEMPLATE = "#/$defs/{name}"


class NotATool(ToolwireError):
    """A function that can't be made a tool; the message says why."""


class Options(Struct, frozen=True, kw_only=True):
    """What `@tool` was told."""

    name: str | None = None
    description: str | None = None
    annotations: Annotations = Annotations()
    locus: Locus = "local"
    grammar: Grammar | None = None
    output_schema: Any = None
    timeout: float = 120.0
    rate: Rate | None = None
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
    rate: Rate | None = None,
    output_limit: int = 40_000,
    defer: bool = False,
) -> Callable[[F], F]: ...
def tool(function: Any = None, **options: Any) -> Any:
    """Mark a function as a tool. It stays the function that it is; an agent reads the mark.

    `output_schema` is a JSON Schema, or a type that gives one; with a `grammar` the function takes one text.
    """
    said = {key: options.pop(key) for key in Annotations.__struct_fields__ if key in options}
    made = Options(annotations=Annotations(**said), **options)

    def mark(marked: F) -> F:
        setattr(marked, _MARK, made)
        as_tool(marked)  # what is wrong with it is said where it is written
        return marked

    return mark if function is None else mark(function)


def as_tool(function: Callable[..., Any]) -> Tool:
    """The tool that a function is, marked or not."""
    options = getattr(function, _MARK, Options())
    name = options.name or getattr(function, "__name__", "")
    if not name or name == "<lambda>":
        raise NotATool(f"{function!r} has no name: give it one with @tool(name=...)")
    reading = _Signature(function, name)
    about = described(inspect.getdoc(function) or "")
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
        run=_FunctionRun(function, reading),
        stoppable=_is_asynchronous(_called(function)),
    )


class _Parameter(Struct, frozen=True):
    name: str
    kind: Any
    default: Any


class _Signature:
    """What a function takes: from the model, and from us."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        called = inspect.unwrap(function)
        hints = get_type_hints(called if inspect.isroutine(called) else type(called).__call__, include_extras=True)
        self.parameters: list[_Parameter] = []
        self.calling: str | None = None
        for parameter in inspect.signature(function).parameters.values():
            kind = hints.get(parameter.name, Any)
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise NotATool(f"{name}: {parameter} can't be given by name")
            if kind is Calling:
                self.calling = parameter.name
            else:
                self.parameters.append(_Parameter(parameter.name, kind, parameter.default))

    def schema(self, descriptions: Mapping[str, str]) -> dict[str, Any]:
        definitions: dict[str, Any] = {}
        properties: dict[str, Any] = {}
        for one in self.parameters:
            found = dict(_schema_of(one.kind, definitions))
            note = _note(one.kind) or descriptions.get(one.name)
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

    def given(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the types that the function asks for."""
        kinds = {one.name: one.kind for one in self.parameters}
        return {name: _converted(value, kinds[name], name) for name, value in arguments.items() if name in kinds}


def _called(function: Callable[..., Any]) -> Any:
    return function if inspect.isroutine(function) else type(function).__call__


def _is_asynchronous(called: Any) -> bool:
    return inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called)


class _FunctionRun:
    """Calls the function: a coroutine function here, any other in a thread."""

    def __init__(self, function: Callable[..., Any], signature: _Signature) -> None:
        self._function = function
        self._signature = signature

    async def __call__(self, arguments: Arguments, calling: Calling) -> Any:
        if isinstance(arguments, Mapping):
            given = self._signature.given(arguments)
        else:
            given = {self._signature.parameters[0].name: arguments}
        if self._signature.calling is not None:
            given[self._signature.calling] = calling
        if inspect.iscoroutinefunction(_called(self._function)):
            return await self._function(**given)
        value = await asyncio.to_thread(partial(self._call, given))
        if inspect.isasyncgen(value):
            return await _collect(value)
        return await value if inspect.isawaitable(value) else value

    def _call(self, given: dict[str, Any]) -> Any:
        """Call the function. A generator runs to its end here, in the same thread."""
        value = self._function(**given)
        return collect(value) if inspect.isgenerator(value) else value


async def _collect(items: AsyncGenerator[Any, Any]) -> list[Any]:
    found = list[Any]()
    async with aclosing(items):
        async for one in items:
            if len(found) == MOST_ITEMS:
                return [*found, CUT_OFF]
            found.append(one)
    return found


def _note(kind: Any) -> str | None:
    """`Annotated[int, "how many"]`."""
    said = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
    return next((one for one in said if isinstance(one, str)), None)


def _schema_of(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if kind is Any:
        return {}
    try:
        if _is_pydantic(kind):
            found: dict[str, Any] = _adapter(kind).json_schema(ref_template="#/$defs/{model}")
            definitions.update(found.pop("$defs", {}))
            return found
        (schema,), parts = msgspec.json.schema_components([kind], ref_template=_TEMPLATE)
        definitions.update(parts)
    except TypeError as error:
        raise NotATool(f"{kind!r} can't be told in a schema: {error}") from None
    return schema


def _converted(value: Any, kind: Any, name: str) -> Any:
    if kind is Any:
        return value
    try:
        return _adapter(kind).validate_python(value) if _is_pydantic(kind) else msgspec.convert(value, kind)
    except ValueError as error:
        raise ToolFault(f"/{name}: {error}", "schema") from None


def _is_pydantic(kind: Any) -> bool:
    """Whether pydantic is meant, anywhere in the type."""
    if hasattr(kind, "model_json_schema") or hasattr(kind, "__pydantic_fields__"):
        return True
    return any(_is_pydantic(one) or type(one).__module__.startswith("pydantic") for one in get_args(kind))


def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter  # noqa: PLC0415 - whoever uses its types has it

    return TypeAdapter(kind)
