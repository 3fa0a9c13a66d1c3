"""The settings of an agent, and the agent as its runs use it."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, field

from toolwire.canonical.content import Message
from toolwire.journal.redaction import Redactor
from toolwire.journal.runs import RunStepLog
from toolwire.runtime.calls.approval import Approver
from toolwire.runtime.model import Model
from toolwire.runtime.policy import Policy
from toolwire.runtime.run.budget import ParentRun
from toolwire.runtime.run.context import Instructions, ToolPreparation
from toolwire.runtime.run.hooks import Hooks
from toolwire.runtime.run.limits import RunLimits
from toolwire.runtime.run.model_settings import ModelSettings
from toolwire.runtime.run.output import OutputType
from toolwire.runtime.search.deferred_tools import DeferredTools
from toolwire.runtime.tool import Tool
from toolwire.runtime.toolbox import Toolbox


class RunSettings(Struct, frozen=True, kw_only=True):
    """Settings of an agent, shared by its runs."""

    instructions: Instructions = ""
    prepare_tools: ToolPreparation | None = None
    """Selects the tools of each turn."""
    hooks: tuple[Hooks, ...] = ()
    """Functions that run before and after model requests and tool calls."""
    policy: Policy = Policy()
    limits: RunLimits = RunLimits()
    repair: bool = False
    """Repair almost valid arguments."""
    model: ModelSettings = field(default_factory=ModelSettings)
    """Settings of the model requests."""
    output: OutputType | None = None
    """The type of the answer; None for text."""
    output_retries: int = 2
    """Corrections of an answer that does not match the output type, before the run stops."""
    redactor: Redactor = field(default_factory=lambda: Redactor(()))
    deferred_tools: DeferredTools = field(default_factory=DeferredTools)
    """Selects the tools that the model must search for."""
    code: bool = False
    """Let the model write programs that call tools."""


class RunAgent(Struct, frozen=True, kw_only=True):
    """An agent as a run uses it."""

    name: str
    model: Model
    toolbox: Toolbox
    settings: RunSettings
    approver: Approver | None = None
    """None to use that of the agent that the run began with."""
    handoff_tools: Callable[[], Sequence[Tool]] = tuple
    """Returns the tools through which the agent moves the conversation to others."""


class RunMetadata(Struct, frozen=True, kw_only=True):
    """The data stored when a run starts, needed to resume it."""

    agent: str
    model: str
    messages: tuple[Message, ...]
    facts: dict[str, str] = field(default_factory=dict)  # labels chosen by the program that started the run
    settings: ModelSettings = field(default_factory=ModelSettings)  # of this run
    session: str | None = None  # the session that the run belongs to; `messages` is then only the prompt


class RunOptions(Struct, frozen=True, kw_only=True):
    """The options of one run, in addition to the settings of its agent."""

    facts: dict[str, str] = field(default_factory=dict)
    settings: ModelSettings = field(default_factory=ModelSettings)
    deps: Any = None
    parent: ParentRun | None = None  # of a sub-agent
    approver: Approver | None = None  # if the agent has none
    session: str | None = None
    lease: RunStepLog | None = None  # of a run that a worker took
