"""Types of tools, toolsets and tool results.

Python functions, built-in tools, MCP tools and sub-agents all become a `Tool`. The runtime validates, authorizes,
limits and records their calls in the same way.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, Self, TypeAlias, runtime_checkable

import msgspec
from msgspec import Raw, Struct, field

from toolwire.canonical.content import Citation, Part, ScreenObservation
from toolwire.canonical.response import Usage
from toolwire.canonical.tools import FreeformTool, FunctionTool, Grammar, NativeTool
from toolwire.codec.options import OptionsMeta, require_integer, require_positive
from toolwire.runtime.calls.approval import Approver
from toolwire.runtime.model import Model
from toolwire.runtime.run.budget import ParentRun

Locus = Literal["local", "mcp", "provider", "sandbox", "human"]
"""The place of execution of a call."""

Arguments: TypeAlias = Any
"""Validated arguments of a call: an object, or the text input of a grammar tool."""


class Annotations(Struct, frozen=True, kw_only=True):
    """Behavior hints of a tool, as in MCP. The policy trusts them for local tools only."""

    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False


class RateLimit(Struct, frozen=True, metaclass=OptionsMeta):
    """A maximum number of calls per time window."""

    calls: int
    seconds: float = 60.0

    def __post_init__(self) -> None:
        """Raise `TypeError` or `ValueError` for a limit that is no number, or not positive."""
        require_integer("calls", self.calls, 1)
        require_positive("seconds", self.seconds)


class ToolOutput(Struct, frozen=True, kw_only=True):
    """The result of a tool call."""

    content: tuple[Part, ...] = ()
    """Parts for the model."""
    is_error: bool = False
    structured: Any = None
    """The result as JSON data, for programs and output schemas."""
    error_kind: str = ""
    """One-word error class for the record, such as `timeout`, if `is_error`."""
    screen: ScreenObservation | None = None
    """Screen state that accompanies the screenshot of a computer tool."""
    sources: tuple[Citation, ...] = ()
    """Web pages that the result comes from."""
    usage: Usage | None = None
    """Tokens used by models inside the tool; they count toward the run."""


class AliasedValue(str):
    """An argument value with a second spelling that policy rules may match, such as a workspace-relative path."""

    __slots__ = ("alias",)
    alias: str

    def __new__(cls, value: str, alias: str) -> Self:
        """Create the string `value` with a second spelling `alias`."""
        aliased = super().__new__(cls, value)
        aliased.alias = alias
        return aliased


class ToolError(Exception):
    """A tool failure whose message is shown to the model.

    `kind` is the one-word error class that the call record stores.
    """

    def __init__(self, message: str, kind: str = "tool") -> None:
        super().__init__(message)
        self.kind = kind


class CallDeferred(Exception):
    """A nested call waits for a later approval, so the run pauses and resumes the calling tool afterward.

    Raised only inside tools that are `resumable`.
    """


class ToolCaller(Protocol):
    """Calls another tool of the same run.

    `id` identifies the nested call when the run is resumed. Without it, nested calls are numbered in order.
    """

    def __call__(self, name: str, arguments: Arguments, id: str | None = None, /) -> Awaitable[ToolOutput]:
        """Call the named tool; `id` makes the call recognizable when the run resumes."""
        ...


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from toolwire.runtime.native_forms import NativeForm

    DepsT = TypeVar("DepsT", default=None)
else:
    from typing import TypeVar

    DepsT = TypeVar("DepsT")


class ToolContext(Struct, Generic[DepsT], frozen=True, kw_only=True):
    """The context of the call that a tool is executing; `ToolContext[Deps]` for an agent with dependencies."""

    run: str
    """Id of the run."""
    id: str
    """Id of the call."""
    tool: str
    """Name of the tool."""
    idempotency_key: str
    """Unique per call; the same for every attempt."""
    approver: Approver
    """Answers the tool's questions to the user."""
    deps: DepsT = None  # type: ignore[assignment] # the default of the type
    """The run's dependencies, as passed to `run`."""
    attempt: int = 1
    remaining_tokens: int | None = None
    """Tokens that the run may still use; None if it has no limit."""
    report_progress: Callable[[str], None] = lambda _: None
    """Emits a progress event for this call."""
    report_log: Callable[[str, str], None] = lambda _level, _text: None
    """Emits a log event for this call, with a level such as `info` or `warning`."""
    model: Model | None = None
    """The run's model."""
    call: ToolCaller | None = None
    """Calls another tool of the run, under the same policy."""
    parent_run: ParentRun | None = None
    """The run that makes the call, for sub-agents."""


ToolFunction: TypeAlias = Callable[[Arguments, ToolContext[Any]], Awaitable[Any]]
"""Returns text, JSON data, a part, several parts, or a `ToolOutput`."""


class Tool(Struct, frozen=True, kw_only=True):
    """A tool that the model can call: its declaration, its limits and the function that runs it."""

    name: str
    run: ToolFunction
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    """JSON Schema of the arguments; unused with a `grammar`."""
    grammar: Grammar | None = None
    """Grammar of a free-form text input, instead of JSON arguments."""
    validates_input: bool = False
    """The tool checks its free-form input itself, so the grammar is only declared to the model."""
    output_schema: dict[str, Any] | None = None
    annotations: Annotations = Annotations()
    locus: Locus = "local"
    source: str = "python"
    """Origin of the tool, such as the name of an MCP server."""
    timeout: float = 120.0
    """Seconds per attempt."""
    rate: RateLimit | None = None
    output_limit: int = 40_000
    """Maximum characters of text in the result."""
    retries: int = 2
    stoppable: bool = True
    """Cancelling a call ends it. False for threads and remote servers, which may keep working."""
    resumable: bool = False
    """An interrupted call is run again, because the tool itself records its progress."""
    handoff: str = ""
    """Name of the agent that the conversation moves to after a call."""
    defer: bool = False
    """Declared to the model only after a tool search finds it."""
    allowed_callers: tuple[str, ...] | None = None
    """Callers that may use the tool: `direct` for the model, other names for its programs; None for all."""
    resources: Callable[[Arguments], frozenset[str] | None] = lambda _: frozenset()
    """Resources that a call changes. Calls that share one run one after the other; None means all resources."""
    subcalls: Callable[[Arguments], Sequence[Arguments] | None] | None = None
    """The calls that a call consists of, such as the commands of a shell line; None if it can't be analyzed."""
    subcall_arguments: tuple[str, ...] = ()
    """Arguments of subcalls that `parameters` does not list; rules may match them, too."""
    is_read_only: Callable[[Arguments], bool] = lambda _: False
    """Subcalls for which this is True need no `allow` rule."""
    approval_reason: Callable[[Arguments], str | None] = lambda _: None
    """Reason to ask for approval even if a rule allows the call, or None."""
    requires_human: Callable[[Arguments], bool] = lambda _: False
    """Neither `--yes` nor an earlier approval may approve the call."""
    preview: Callable[[Arguments], str | None] = lambda _: None
    """Description of the call's effect for the approval prompt."""
    native: NativeTool | None = None
    """Declaration as a provider's built-in tool, instead of a function."""
    native_forms: "tuple[NativeForm, ...]" = ()
    """Vendors' own tools that models which know them get instead."""

    @property
    def definition_digest(self) -> str:
        """Digest of the definition, so that approvals do not carry over to a redefined tool."""
        definition = [self.name, self.source, self.description, self.parameters, self.output_schema, self.annotations]
        return hashlib.sha256(msgspec.json.encode([*definition, self.grammar], order="deterministic")).hexdigest()

    def declaration(self) -> FunctionTool | FreeformTool | NativeTool:
        """Return the tool as declared to the model."""
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
    """Tools with a common lifetime, such as those of an MCP server or a browser."""

    name: str

    async def open(self) -> None:
        """Connect to or start whatever provides the tools."""
        ...

    async def tools(self) -> Sequence[Tool]:
        """List the current tools. Called before every turn."""
        ...

    async def close(self) -> None:
        """Release what `open` acquired."""
        ...


@runtime_checkable
class SupportsWarnings(Protocol):
    """A toolset that reports problems which do not stop the run."""

    def take_warnings(self) -> list[str]:
        """Return the warnings since the last call and clear them."""
        ...


@runtime_checkable
class SupportsChangeNotice(Protocol):
    """A toolset that reports changes of its tools."""

    on_change: Callable[[], None]
    """Called when the tools have changed."""


@runtime_checkable
class SupportsRunEnd(Protocol):
    """A toolset that holds state for each run."""

    async def end_run(self, run: str) -> None:
        """Release the state of this run."""
        ...


@runtime_checkable
class SupportsStaticTools(Protocol):
    """A toolset whose tools are known before it is opened, so that replays need not open it."""

    def static_tools(self) -> Sequence[Tool]:
        """List the tools without opening the toolset."""
        ...


@runtime_checkable
class SupportsAsTool(Protocol):
    """An object that converts to a tool, such as an agent."""

    def as_tool(self) -> Tool:
        """Convert to a tool."""
        ...


@runtime_checkable
class SupportsProviderTool(Protocol):
    """A hosted tool, such as `WebSearch()`."""

    def provider_tool(self) -> Tool:
        """Return the tool as the provider runs it."""
        ...


ToolSource: TypeAlias = Tool | Toolset | NativeTool | SupportsAsTool | SupportsProviderTool | Callable[..., Any]
"""Anything that an agent accepts in `tools`; a function is converted to a tool."""


class ToolCatalog(Struct, frozen=True):
    """The tools of one turn."""

    tools: Mapping[str, Tool]
    """Tools that the runtime executes, by name."""
    native_tools: tuple[NativeTool, ...] = ()
    """Tools that the provider executes."""


DIRECT_CALLER = "direct"


def takes_direct_calls(tool: Tool) -> bool:
    """Return True if the model may call the tool directly."""
    return tool.allowed_callers is None or DIRECT_CALLER in tool.allowed_callers


def takes_program_calls(tool: Tool) -> bool:
    """Return True if programs may call the tool: any allowed caller other than `direct`, whatever the vendor's name."""
    return tool.allowed_callers is None or any(caller != DIRECT_CALLER for caller in tool.allowed_callers)
