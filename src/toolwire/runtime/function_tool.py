"""Tools from Python functions: the signature becomes the schema, the docstring the description.

Parameter types may be any that msgspec or pydantic support. A parameter annotated with `ToolContext` is hidden from the
model and receives the context of the call.
"""

import contextlib
import inspect
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from itertools import pairwise
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_overloads, get_type_hints, overload

import msgspec
from msgspec import Struct

from toolwire.canonical.errors import ToolwireError
from toolwire.canonical.tools import Grammar
from toolwire.codec.options import require, require_bool, require_choice, require_integer, require_positive
from toolwire.codec.suggestions import suggest
from toolwire.runtime.calls.outputs import MAX_ITEMS, TRUNCATION_NOTE, collect_items
from toolwire.runtime.process_call import call_in_process, find_obstacle
from toolwire.runtime.run.context import RunContext
from toolwire.runtime.thread_call import call_in_thread
from toolwire.runtime.tool import Annotations, Arguments, Locus, RateLimit, Tool, ToolContext, ToolError
from toolwire.runtime.type_schema import UnsupportedType, convert_value, schema_of

_SPHINX_PARAMETER = re.compile(r"^:param\s+(?:[\w\[\], |.]+\s+)?\*{0,2}(?P<name>\w+):\s*(?P<text>.*)$")
_GOOGLE_PARAMETER = re.compile(r"^\s+\*{0,2}(?P<name>\w+)\s*(?:\([^)]*\))?\s*:\s*(?P<text>.*)$")
_NUMPY_PARAMETER = re.compile(r"^(?P<name>\w+)\s*(?::.*)?$")
_SECTION_HEADING = re.compile(r"^(Args|Arguments|Parameters|Returns?|Yields?|Raises|Examples?|Notes?):?\s*$")
_PARAMETER_SECTIONS = ("Args", "Arguments", "Parameters")


class ParsedDocstring(Struct, frozen=True):
    """A function's docstring, split into summary and parameter descriptions."""

    summary: str
    parameters: dict[str, str]


def parse_docstring(text: str) -> ParsedDocstring:
    """Parse a docstring in Google, NumPy or Sphinx style.

    The summary is the text before the first section.
    """
    parser = _DocstringParser()
    lines = text.splitlines()
    for line, next_line in pairwise([*lines, ""]):
        parser.feed(line, next_line)
    return parser.result()


class _DocstringParser:
    """Collects the summary and the parameter descriptions of a docstring, line by line."""

    def __init__(self) -> None:
        self._summary: list[str] = []
        self._descriptions: dict[str, list[str]] = {}
        self._section = ""
        self._is_numpy = False
        self._parameter: str | None = None

    def feed(self, line: str, next_line: str) -> None:
        """Take one line. `next_line` shows whether a heading is underlined, as in NumPy style."""
        if (heading := _SECTION_HEADING.match(line)) is not None:
            self._section, self._parameter = heading[1], None
            self._is_numpy = set(next_line.strip()) == {"-"}
        elif (sphinx := _SPHINX_PARAMETER.match(line)) is not None:
            self._section = "sphinx"
            self._start_parameter(sphinx["name"], sphinx["text"])
        elif line.startswith(":"):
            self._section, self._parameter = "sphinx", None
        elif not self._section:
            self._summary.append(line)
        elif (match := self._match_parameter(line)) is not None:
            self._start_parameter(match["name"], "" if self._is_numpy else match["text"])
        elif self._parameter is not None and line.strip():
            self._descriptions[self._parameter].append(line.strip())

    def result(self) -> ParsedDocstring:
        """Return what was collected, without parameters that have no description."""
        texts = {name: " ".join(filter(None, parts)).strip() for name, parts in self._descriptions.items()}
        return ParsedDocstring("\n".join(self._summary).strip(), {name: text for name, text in texts.items() if text})

    def _match_parameter(self, line: str) -> re.Match[str] | None:
        """Match a line that starts a parameter in a Google or NumPy section; None for other lines."""
        if self._section not in _PARAMETER_SECTIONS:
            return None
        # A deeper indent than a parameter name has continues the previous description.
        if self._parameter is not None and line.startswith(" " * 8):
            return None
        return (_NUMPY_PARAMETER if self._is_numpy else _GOOGLE_PARAMETER).match(line)

    def _start_parameter(self, name: str, text: str) -> None:
        """Begin the description of a parameter with its first line."""
        self._parameter = name
        self._descriptions[name] = [text]


F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS_ATTRIBUTE = "__toolwire_tool__"


class InvalidToolFunction(ToolwireError):
    """A function can't be converted to a tool."""


class ToolOptions(Struct, frozen=True, kw_only=True):
    """The options passed to `@tool`."""

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
    process: bool = False
    retries: int = 2
    resumable: bool = False
    preview: Callable[[Any], str | None] = lambda _: None
    approval_reason: Callable[[Any], str | None] = lambda _: None
    requires_human: Callable[[Any], bool] = lambda _: False
    resources: Callable[[Any], frozenset[str] | None] = lambda _: frozenset()

    def __post_init__(self) -> None:
        """Raise `TypeError` or `ValueError` for an option that would fail at the first call."""
        require("name", self.name, "a string", valid=self.name is None or isinstance(self.name, str))
        require("description", self.description, "a string", valid=isinstance(self.description, str | None))
        for switch in (*Annotations.__struct_fields__, "defer", "process", "resumable"):
            require_bool(switch, getattr(self.annotations if hasattr(self.annotations, switch) else self, switch))
        require_choice("locus", self.locus, get_args(Locus))
        require("grammar", self.grammar, "a Grammar", valid=isinstance(self.grammar, Grammar | None))
        require_positive("timeout", self.timeout)
        require("rate", self.rate, "tw.RateLimit(calls=5)", valid=isinstance(self.rate, RateLimit | None))
        require_integer("output_limit", self.output_limit, 1)
        require_integer("retries", self.retries, 0)
        for function in ("preview", "approval_reason", "requires_human", "resources"):
            value = getattr(self, function)
            require(function, value, "a function of the call's arguments", valid=callable(value))


_APPROVAL_HINT = "all calls need approval, except those that a rule of the agent's policy or `read_only` allows"


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
    process: bool = False,
    retries: int = 2,
    resumable: bool = False,
    preview: Callable[[Any], str | None] = ...,
    approval_reason: Callable[[Any], str | None] = ...,
    requires_human: Callable[[Any], bool] = ...,
    resources: Callable[[Any], frozenset[str] | None] = ...,
) -> Callable[[F], F]: ...


def tool(function: Any = None, **options: Any) -> Any:
    """Set tool options on a function. The function itself stays callable as before.

    `output_schema` is a JSON Schema or a type. With a `grammar`, the function takes one text parameter.
    With `process`, each call runs in a process of its own, which is killed at the timeout. `preview`,
    `approval_reason`, `requires_human` and `resources` are functions of the call's arguments; see `Tool`.
    """
    if function is not None and not callable(function):
        raise InvalidToolFunction(f"@tool takes options by name, not {function!r}: write @tw.tool(name={function!r})")
    known = (*Annotations.__struct_fields__, *ToolOptions.__struct_fields__)
    for name in options:
        if name not in known or name == "annotations":
            options_of_tool = ", ".join(option for option in known if option != "annotations")
            hint = suggest(name, known, f"its options are {options_of_tool}")
            raise TypeError(f"unknown option {name!r} of @tool; {_APPROVAL_HINT if 'approval' in name else hint}")
    hints = {key: options.pop(key) for key in Annotations.__struct_fields__ if key in options}
    tool_options = ToolOptions(annotations=Annotations(**hints), **options)

    def decorate(decorated: F) -> F:
        """Set the options on the function, and check that it converts to a tool."""
        setattr(decorated, _OPTIONS_ATTRIBUTE, tool_options)
        as_tool(decorated)  # raise for an invalid function where it is defined, not where it is used
        return decorated

    return decorate if function is None else decorate(function)


# `help` and editors show the overload with all options.
vars(tool)["__signature__"] = inspect.signature(get_overloads(tool)[-1])


def is_tool_function(value: object) -> bool:
    """Return True for a function that `@tool` marks."""
    return isinstance(getattr(value, _OPTIONS_ATTRIBUTE, None), ToolOptions)


def as_tool(function: Callable[..., Any]) -> Tool:
    """Convert a function to a tool, with the options of `@tool` if it has any."""
    options = getattr(function, _OPTIONS_ATTRIBUTE, ToolOptions())
    value: Any = function
    if not callable(value) or isinstance(value, type):
        raise InvalidToolFunction(f"{function!r} is no tool: use a function, an instance of a tool class, or an agent")
    name = options.name or getattr(_inner_function(function), "__name__", "")
    if not name or name == "<lambda>":
        raise InvalidToolFunction(f"{function!r} has no name: write tw.tool(name=...)(function)")
    signature = _Signature(function, name)
    if options.process and (_is_async_callable(function) or signature.context_parameter is not None):
        raise InvalidToolFunction(
            f"{name}: a function with process=True can't be a coroutine function or take a ToolContext"
        )
    if options.process and (obstacle := find_obstacle(_inner_function(function))) is not None:
        raise InvalidToolFunction(f"{name}: {obstacle}")
    docstring = parse_docstring(inspect.getdoc(_inner_function(function)) or "")
    output_schema = options.output_schema
    if output_schema is not None and not isinstance(output_schema, dict):
        try:
            output_schema = schema_of(output_schema, {})
        except UnsupportedType as error:
            raise UnsupportedType(f"{name}: output_schema: {error}") from None
    return Tool(
        name=name,
        description=options.description or docstring.summary,
        parameters=signature.schema(docstring.parameters),
        grammar=options.grammar,
        output_schema=output_schema,
        annotations=options.annotations,
        locus=options.locus,
        timeout=options.timeout,
        rate=options.rate,
        output_limit=options.output_limit,
        retries=options.retries,
        resumable=options.resumable,
        preview=options.preview,
        approval_reason=options.approval_reason,
        requires_human=options.requires_human,
        resources=options.resources,
        defer=options.defer,
        run=_FunctionCall(function, signature, in_process=options.process),
        stoppable=options.process or _is_async_callable(_underlying_callable(function)),
    )


class _Parameter(Struct, frozen=True):
    name: str
    annotation: Any
    default: Any


class _Signature:
    """The parameters of a function, split into model arguments and the `ToolContext` parameter."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.name = name
        try:
            hints = get_type_hints(_underlying_callable(inspect.unwrap(function)), include_extras=True)
        except NameError as error:
            raise InvalidToolFunction(f"{name}: an annotation refers to a missing import: {error}") from None
        self.parameters: list[_Parameter] = []
        self.context_parameter: str | None = None
        for parameter in inspect.signature(function).parameters.values():
            annotation = hints.get(parameter.name, Any)
            if isinstance(function, partial) and parameter.name in function.keywords:
                continue
            if annotation is RunContext or get_origin(annotation) is RunContext:
                raise InvalidToolFunction(
                    f"{name}: annotate {parameter.name} with tw.ToolContext: tools get no RunContext"
                )
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise InvalidToolFunction(f"{name}: parameter {parameter} can't be passed by name")
            if annotation is ToolContext or get_origin(annotation) is ToolContext:
                self.context_parameter = parameter.name
            else:
                self.parameters.append(_Parameter(parameter.name, annotation, parameter.default))

    def schema(self, descriptions: Mapping[str, str]) -> dict[str, Any]:
        """Build the JSON Schema of the model arguments."""
        definitions: dict[str, Any] = {}
        properties: dict[str, Any] = {}
        for parameter in self.parameters:
            try:
                property_schema = dict(schema_of(parameter.annotation, definitions))
            except UnsupportedType as error:
                raise UnsupportedType(f"{self.name}: parameter {parameter.name}: {error}") from None
            description = _annotated_description(parameter.annotation) or descriptions.get(parameter.name)
            if description is not None:
                property_schema.setdefault("description", description)
            if parameter.default is not inspect.Parameter.empty:
                # A default that is not JSON is left out: the function applies it anyway.
                with contextlib.suppress(TypeError, ValueError):
                    property_schema.setdefault("default", msgspec.to_builtins(parameter.default))
            properties[parameter.name] = property_schema
        required = [parameter.name for parameter in self.parameters if parameter.default is inspect.Parameter.empty]
        schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
        if required:
            schema["required"] = required
        return schema | ({"$defs": definitions} if definitions else {})

    def convert_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Convert JSON arguments to the annotated types of the parameters."""
        annotations = {parameter.name: parameter.annotation for parameter in self.parameters}
        return {
            name: _convert_argument(value, annotations[name], name)
            for name, value in arguments.items()
            if name in annotations
        }


def _inner_function(function: Callable[..., Any]) -> Any:
    """Return the function inside a `functools.partial`; anything else unchanged."""
    while isinstance(function, partial):
        function = function.func
    return function


def _underlying_callable(function: Callable[..., Any]) -> Any:
    """Return the function itself, or the `__call__` method of a callable object."""
    function = _inner_function(function)
    return function if inspect.isroutine(function) else type(function).__call__


def _is_async_callable(function: Any) -> bool:
    """Return True for a coroutine function or an async generator function."""
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


class _FunctionCall:
    """Runs a function as a tool: coroutine functions on the event loop, others in a thread or a process."""

    def __init__(self, function: Callable[..., Any], signature: _Signature, *, in_process: bool = False) -> None:
        self._in_process = in_process
        self._function = function
        self._signature = signature
        self._is_coroutine_function = inspect.iscoroutinefunction(_underlying_callable(function))

    async def __call__(self, arguments: Arguments, context: ToolContext) -> Any:
        """Run the function with converted arguments, and return its value."""
        if isinstance(arguments, Mapping):
            kwargs = self._signature.convert_arguments(arguments)
        else:
            kwargs = {self._signature.parameters[0].name: arguments}
        if self._signature.context_parameter is not None:
            kwargs[self._signature.context_parameter] = context
        if self._is_coroutine_function:
            return await self._function(**kwargs)
        if self._in_process:
            return await call_in_process(self._function, kwargs)
        value = await call_in_thread(partial(self._call, kwargs))
        if inspect.isasyncgen(value):
            return await _collect_async(value)
        return await value if inspect.isawaitable(value) else value

    def _call(self, kwargs: dict[str, Any]) -> Any:
        """Call the function, and exhaust a returned generator in the same thread."""
        value = self._function(**kwargs)
        return collect_items(value) if inspect.isgenerator(value) else value


async def _collect_async(items: AsyncGenerator[Any, Any]) -> list[Any]:
    """Collect the items of an async generator, up to `MAX_ITEMS`."""
    collected = list[Any]()
    async with aclosing(items):
        async for item in items:
            if len(collected) == MAX_ITEMS:
                return [*collected, TRUNCATION_NOTE]
            collected.append(item)
    return collected


def _annotated_description(annotation: Any) -> str | None:
    """Return the description in an annotation such as `Annotated[int, "page number"]`; None without one."""
    metadata = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return next((value for value in metadata if isinstance(value, str)), None)


def _convert_argument(value: Any, annotation: Any, name: str) -> Any:
    """Convert one argument to its annotated type."""
    try:
        return convert_value(value, annotation)
    except ValueError as error:
        raise ToolError(f"/{name}: {error}", "schema") from None
