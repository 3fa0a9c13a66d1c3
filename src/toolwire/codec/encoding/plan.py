"""Decisions that hold for an entire request or response while its parts are encoded."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.content import Message, Reasoning, Text, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.canonical.tools import CacheMark, FunctionTool, Tool
from toolwire.codec.encoding.tools import LocatedTool, NameRules, ToolNamePlan, conversation_tools, loaded_tools
from toolwire.codec.encoding.turns import ESCAPED_PREFIX, LocatedPart, derive_call_id, legal_id, original_id
from toolwire.codec.hosts.profile import HostProfile
from toolwire.codec.interface import Target
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.memo import TOOLS_MEMO, BoundedMemo
from toolwire.codec.models.info import UNKNOWN_MODEL, ModelInfo

if TYPE_CHECKING:
    from toolwire.codec.encoding.computer_request import ComputerUsePlan


class IdAndNameRules(Struct, frozen=True):
    """A protocol's limits on ids and names, and whether it has freeform tools."""

    id_pattern: re.Pattern[str]
    id_limit: int
    names: NameRules
    freeform: bool


MOVING_MARKS = frozenset({"anthropic"})
"""Protocols whose clients mark the last message for the cache, and so move the mark with every turn."""

FORM_REASON = "the message is sent as a string, which cannot hold a mark"
"""As a list, the message would become a string once the mark moves, and the cached prefix would no longer match."""


def resolve_target(target: Target, request: Request, describe_model: Callable[[str], ModelInfo]) -> Target:
    """Return the target with its model, and with the facts that the model's name tells unless others are given."""
    model = request.model if target.model is None else target.model
    return replace(target, model=model, model_info=target.model_info or describe_model(model or ""))


class EncodingPlan:
    """The state of one encoding: the target, the loss report, tool names, ids and counters."""

    cache_marks = 0  # written so far
    last_mark: CacheMark | None = None  # of a message, sent as the mark of the request
    messages: tuple[Message, ...] = ()  # of the request or candidate, by their index in source paths
    has_moving_marks = False  # marks in messages move with every turn, and must not change the form of a message
    last_hosted_call_id = ""  # for hosted results that name no call
    request: Request | None = None  # set once its tools are encoded
    computer_use: "ComputerUsePlan | None" = None  # converts computer calls, if there are any
    output_pointer = ""  # current position in the output, for added values
    output_index = 0  # current message in the output, for added values
    _offered_tools: list[LocatedTool] | None = None
    _loaded_tools: list[LocatedTool] | None = None

    def __init__(
        self,
        rules: IdAndNameRules,
        report: LossReport,
        target: Target,
        *,
        same_protocol: bool,
        for_client: bool = False,
    ) -> None:
        self.same_protocol = same_protocol  # the source has this protocol: repair, rename and omit nothing
        self.for_client = for_client  # a response for a client, rather than a request for a provider
        # the rules of the host apply: the client does not know it, or it is known to reject what its client sends
        self.adapts = not same_protocol or not target.host.pass_through
        self.hosted_uses: dict[str, int] = {}  # number of hosted calls, by kind
        self.hosted_call_kinds: dict[str | None, str] = {}  # the vendor's call types, by call id
        self.hosted_kinds: set[str] = set()  # kinds of the declared hosted tools
        self.mcp_servers: list[Any] = []  # declared MCP servers
        self.can_search_tools = same_protocol  # deferred tools can be found
        self.report = report
        self.target = target
        self.tools = ToolNamePlan(rules.names, freeform=rules.freeform)
        self._rules = rules
        self._ids: dict[str, str] = {}
        self._tool_names: dict[str, str] = {}
        self.legal_ids: set[str | None] = set()  # ids known to pass unchanged

    @property
    def model_info(self) -> ModelInfo:
        """Return the facts about the target's model."""
        return self.target.model_info or UNKNOWN_MODEL

    def loaded_tools(self, request: Request) -> list[LocatedTool]:
        """Return the tools that messages of the conversation loaded after its start, computed once."""
        if self._loaded_tools is None:
            self._loaded_tools = loaded_tools(request)
        return self._loaded_tools

    def offered_tools(self, request: Request) -> list[LocatedTool]:
        """Return all tools of the conversation, declared or loaded later, computed once."""
        if self._offered_tools is None:
            self._offered_tools = conversation_tools(request, self.loaded_tools(request))
        return self._offered_tools

    def is_legal_id(self, id: str | None) -> bool:
        """Return whether the target accepts a call id unchanged."""
        if id in self.legal_ids:
            return True
        if (
            not id
            or len(id) > self._rules.id_limit
            or id.startswith(ESCAPED_PREFIX)
            or not self._rules.id_pattern.fullmatch(id)
        ):
            return False
        self.legal_ids.add(id)
        return True

    def accepts_cache_mark(self, path: SourcePath) -> bool:
        """Return whether the target accepts the mark of the value at `path`; otherwise it is reported as dropped."""
        host = self.target.host
        if not self.adapts or host.accepts_cache_marks(self.target.model):
            return True
        reason = "the model may not support cache marks" if host.content.cache_marks else host.rejects("cache marks")
        self.report.dropped((*path, "cache"), "", reason)
        return False

    def call_id(self, id: str) -> str:
        """Return the id under which the target knows a call: the same if it is legal, else an escaped one."""
        if self.target.issued_ids or (self.same_protocol and (not self.adapts or self.is_legal_id(id))):
            return id
        if (legal := self._ids.get(id)) is None:
            legal = self._ids[id] = legal_id(id, self._rules.id_pattern, self._rules.id_limit)
            if legal != id and legal != original_id(id):
                self.report.id_rewritten(id, legal)
        return legal

    def id_of(self, located_part: LocatedPart) -> str:
        """Return the target's id of a call, derived from its content and position if it has none."""
        call = located_part.part
        if not isinstance(call, ToolCall):
            raise TypeError(f"{type(call).__name__} is not a tool call")
        if call.id or (self.same_protocol and call.id is not None):
            return self.call_id(call.id)
        return derive_call_id(call.name, call.arguments, *(step for step in located_part.path if isinstance(step, int)))

    def report_unsealed_signature(self, part: Reasoning, path: SourcePath) -> None:
        """Report another vendor's reasoning signature as lost, as no envelope is there to carry it."""
        if part.signature is not None:
            self.report.dropped(
                (*path, "signature"), "", "no envelope key is configured to preserve another issuer's signature"
            )

    def report_empty_arguments(self, call: ToolCall, path: SourcePath) -> None:
        """Report the arguments of a call that are null rather than absent, and become an empty object."""
        if call.arguments.strip() and not self.same_protocol:
            self.report.approximated(path, "arguments", "null sent as an empty object", severity="info")

    def tool_name(self, name: str, namespace: str | None = None) -> str:
        """Return the name under which the target knows a tool."""
        if namespace is not None:
            return name if self.same_protocol else self.tools.alias(name, namespace)
        if (alias := self._tool_names.get(name)) is None:
            # In a response, names are the client's own.
            alias = name if self.same_protocol or self.for_client else self.tools.alias(name)
            self._tool_names[name] = alias
            if alias != name and not self._is_declared(name):
                reason = f"calls of the undeclared tool {name} are sent as {alias}"
                self.report.approximated((), "", reason, severity="warning")
        return alias

    def _is_declared(self, name: str) -> bool:
        """Return whether the request declares a tool with this name."""
        tools = () if self.request is None else conversation_tools(self.request)
        return any(getattr(located.tool, "name", None) == name for located in tools)

    def report_result_name(self, part: ToolResult, path: SourcePath) -> None:
        """Report the name of a result that its call does not repeat, at targets without such names."""
        if part.name is not None and part.name not in self._tool_names:
            self.report.dropped(path, "name", "the target has no names on results")
        if part.namespace is not None:
            self.report.dropped(path, "namespace", "the target has no names on results")


class _EncodedTools(Struct):
    """Encoded tool declarations. Holding the tools keeps their `id()` values unique."""

    tools: tuple[Tool, ...]
    body: Raw
    name_plan: ToolNamePlan


class EncodedToolsMemo:
    """A cache of encoded tool declarations, by the tools that they declare."""

    def encode(self, request: Request, plan: EncodingPlan, encode: Callable[[], Any]) -> Any:
        """Return the encoded tools of a request, from the cache if possible.

        Tools whose encoding reports losses are not cached, as these must be reported every time; nor are those of a
        request whose tool choice may exclude some.
        """
        tools, choice = request.tools, request.tool_choice
        is_restricted = choice is not None and bool(choice.names)
        if not tools or is_restricted or plan.report or not plan.tools.is_empty or plan.loaded_tools(request):
            return encode()
        key: tuple[int | HostProfile, ...] = (plan.target.host, *map(id, tools))
        cached: _EncodedTools | None = TOOLS_MEMO.get((self, key))
        if cached is not None:
            TOOLS_MEMO.touch((self, key))
            plan.tools = cached.name_plan.copy()
            return cached.body
        body = encode()
        if plan.report or {FunctionTool} != set(map(type, tools)):
            return body
        raw = Raw(msgspec.json.encode(body))
        TOOLS_MEMO.put((self, key), _EncodedTools(tools, raw, plan.tools.copy()), len(bytes(raw)))
        return raw


LIMIT_SYSTEM_BYTES = 16 * 1024 * 1024
"""The limit of a memo for system text. That of an agent takes about 40 KB."""


class _EncodedSystem(Struct):
    """Encoded system text, with its losses."""

    system: tuple[Text, ...]
    target: Target
    messages: list[Any]
    report: LossReport


class EncodedSystemMemo:
    """A cache of encoded system text and its losses: an agent sends the same text with every request."""

    def __init__(self) -> None:
        self._memo: BoundedMemo[tuple[Any, ...], _EncodedSystem] = BoundedMemo(LIMIT_SYSTEM_BYTES)

    def encode(
        self, request: Request, plan: EncodingPlan, encode: Callable[[Request, EncodingPlan], list[Any]]
    ) -> list[Any]:
        """Return the messages that hold the system text of a request, from the cache if possible.

        Text with marks that the target accepts is not cached, since these are counted.
        """
        system, target = request.system or (), plan.target
        # Comparing long texts takes far less time than hashing them.
        key = (target.host, target.model, request.origin, *[(len(part.text), part.text[-16:]) for part in system])
        if (known := self._memo.get(key)) is None or known.system != system or known.target != target:
            marks, report, plan.report = plan.cache_marks, plan.report, LossReport()
            messages = encode(request, plan)
            known, plan.report = _EncodedSystem(system, target, messages, plan.report), report
            if plan.cache_marks == marks:
                self._memo.put(key, known, 1000 + sum([2 * len(part.text) for part in system]))
        else:
            self._memo.touch(key)
        if known.report:
            plan.report.share(known.report)
        return [message.copy() for message in known.messages]
