"""A tool as the runtime knows it: what the model is told of it, what bounds it, and how it is run.

Where a tool comes from makes no difference after this: a Python function, a built-in, an MCP server or another agent is
validated, authorised, bounded and journalled alike.

Who may call a tool: the model itself, or a program that it wrote. It is no guard: what is called is validated and
decided on, whoever calls.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, Self, TypeAlias, runtime_checkable

import msgspec
from msgspec import Raw, Struct, field

from toolwire.canonical.content import Part, ScreenObservation
from toolwire.canonical.response import Usage
from toolwire.canonical.tools import FreeformTool, FunctionTool, Grammar, NativeTool
from toolwire.runtime.calls.approval import Approver

Locus = Literal["local", "mcp", "provider", "sandbox", "human"]
"""Where a call is carried out."""

Arguments: TypeAlias = Any
"""What a call was given, validated: an object, or the text of a grammar tool."""


class Annotations(Struct, frozen=True, kw_only=True):
    """What a tool says of itself; nothing said is False. Policy believes it of local tools only."""

    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False


class RateLimit(Struct, frozen=True):
    """At most so many calls in so many seconds."""

    calls: int
    seconds: float = 60.0


class ToolOutput(Struct, frozen=True, kw_only=True):
    """What a call gave: parts for the model, `structured` for who checks or computes with it. `kind`: what went wrong,
    in one word of ours, if `is_error`. `screen` is what it says of a screen besides its picture. `usage` are the tokens
    that models used for it, which the run counts as its own."""

    content: tuple[Part, ...] = ()
    is_error: bool = False
    structured: Any = None
    error_kind: str = ""
    screen: ScreenObservation | None = None
    usage: Usage | None = None


class AliasedValue(str):
    """A value that is also written in another way, such as a path from the workspace on: a rule may use either."""

    __slots__ = ("alias",)
    alias: str

    def __new__(cls, value: str, alias: str) -> Self:
        made = super().__new__(cls, value)
        made.alias = alias
        return made


class ToolError(Exception):
    """The tool can't do what it was asked: the message is for the model. `kind` is the class of error in the record."""

    def __init__(self, message: str, kind: str = "tool") -> None:
        super().__init__(message)
        self.kind = kind


class CallDeferred(Exception):
    """A person will decide later on what a tool calls: the run waits, and takes the tool up again with it. It is raised
    only where that can be done."""


class ToolCaller(Protocol):
    """Runs another tool of the same run. `id` tells this call from the others of its caller, also when the run is taken
    up again; without it they are counted."""

    def __call__(self, name: str, arguments: Arguments, id: str | None = None, /) -> Awaitable[ToolOutput]: ...


class ToolContext(Struct, frozen=True, kw_only=True):
    """What a tool may know of the call that it carries out. `key` is the same for every try of one call, and for no
    other call; `progress` tells who watches how far it is; `call` runs another tool of the same run, under the same
    rules, and `person` is whom to ask. `tokens` is how many the run may still use, None if it has no cap."""

    run: str
    id: str
    tool: str
    idempotency_key: str
    approver: Approver
    attempt: int = 1
    remaining_tokens: int | None = None
    report_progress: Callable[[str], None] = lambda _: None
    call: ToolCaller | None = None


ToolFunction: TypeAlias = Callable[[Arguments, ToolContext], Awaitable[Any]]
"""Gives text, JSON data, a part, several parts, or an `Output`."""


class Tool(Struct, frozen=True, kw_only=True):
    """`parameters` is a JSON Schema; with a `grammar` the input is text instead. Times are in seconds, `output_limit`
    is in characters. `source` says who offers it.

    `stoppable`: a call that is cancelled has ended; a thread or another machine may work on.
    `resumable`: a call that was interrupted is run again, since it remembers itself what was done.
    `touches` names what a call changes: calls of a batch that touch the same wait for each other, None is everything.
    `amounts_to` are the calls that one call stands for (the commands of a shell line), which all must be allowed; None:
    nobody can tell; what only `looks` needs no rule. `always_ask` says why a person is to be asked even though a rule
    allows it, and `in_person` that no flag or earlier answer stands for one. `preview` is what that person is shown.
    `native` is how the model is told of it, where that is no function."""

    name: str
    run: ToolFunction
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    grammar: Grammar | None = None
    output_schema: dict[str, Any] | None = None
    annotations: Annotations = Annotations()
    locus: Locus = "local"
    source: str = "python"
    timeout: float = 120.0
    rate: RateLimit | None = None
    output_limit: int = 40_000
    retries: int = 2
    stoppable: bool = True
    resumable: bool = False
    defer: bool = False
    allowed_callers: tuple[str, ...] | None = None
    resources: Callable[[Arguments], frozenset[str] | None] = lambda _: frozenset()
    subcalls: Callable[[Arguments], Sequence[Arguments] | None] | None = None
    is_read_only: Callable[[Arguments], bool] = lambda _: False
    approval_reason: Callable[[Arguments], str | None] = lambda _: None
    requires_human: Callable[[Arguments], bool] = lambda _: False
    preview: Callable[[Arguments], str | None] = lambda _: None
    native: NativeTool | None = None

    @property
    def definition_digest(self) -> str:
        """The definition that a person was shown, or could have been: a tool that is redefined has another one."""
        shown = [self.name, self.source, self.description, self.parameters, self.output_schema, self.annotations]
        return hashlib.sha256(msgspec.json.encode([*shown, self.grammar], order="deterministic")).hexdigest()

    def declaration(self) -> FunctionTool | FreeformTool | NativeTool:
        """What the model is told."""
        if self.native is not None:
            return self.native
        if self.grammar is not None:
            return FreeformTool(name=self.name, description=self.description or None, grammar=self.grammar)
        return FunctionTool(
            name=self.name,
            description=self.description or None,
            parameters=Raw(msgspec.json.encode(self.parameters)),
            output_schema=None if self.output_schema is None else Raw(msgspec.json.encode(self.output_schema)),
        )


@runtime_checkable
class Toolset(Protocol):
    """Tools that come and go together: a server's, a browser's. `tools` is asked before every turn."""

    name: str

    async def open(self) -> None: ...
    async def tools(self) -> Sequence[Tool]: ...
    async def close(self) -> None: ...


@runtime_checkable
class SupportsWarnings(Protocol):
    """A toolset that has something to say which stops nothing: `warned` is that, since the last time."""

    def take_warnings(self) -> list[str]: ...


@runtime_checkable
class SupportsRunEnd(Protocol):
    """A toolset that keeps something for each run."""

    async def end_run(self, run: str) -> None: ...


@runtime_checkable
class SupportsStaticTools(Protocol):
    """A toolset whose tools are known before it is opened: to play them again, nothing needs to be there."""

    def static_tools(self) -> Sequence[Tool]: ...


class SupportsAsTool(Protocol):
    """Something that can be a tool, such as another agent."""

    def as_tool(self) -> Tool: ...


ToolSource: TypeAlias = Tool | Toolset | NativeTool | SupportsAsTool | Callable[..., Any]
"""What an agent can be given as a tool: a function becomes one."""


class ToolCatalog(Struct, frozen=True):
    """The tools of one turn, by name, and what the provider runs itself."""

    tools: Mapping[str, Tool]
    native_tools: tuple[NativeTool, ...] = ()


DIRECT_CALLER = "direct"


def takes_direct_calls(tool: Tool) -> bool:
    return tool.allowed_callers is None or DIRECT_CALLER in tool.allowed_callers


def takes_program_calls(tool: Tool) -> bool:
    """Each vendor has its own word for its programs: all but the model itself are meant."""
    return tool.allowed_callers is None or any(caller != DIRECT_CALLER for caller in tool.allowed_callers)
