"""What an encoder decided for a whole request or response before it writes the parts."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from toolwire.canonical.content import Reasoning, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool, Tool
from toolwire.codec.encoding.ids import ESCAPED_PREFIX, derive_call_id, legal_id
from toolwire.codec.encoding.tools import LocatedTool, NameRules, ToolNamePlan, conversation_tools, loaded_tools
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.interface import Target
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.wire.memo import BoundedMemo

if TYPE_CHECKING:
    from toolwire.codec.encoding.computer_request import ComputerUsePlan


class IdAndNameRules(Struct, frozen=True):
    """A protocol's own limits on ids and names, and whether it has free-text tools."""

    id_pattern: re.Pattern[str]
    id_limit: int
    names: NameRules
    freeform: bool


class EncodingPlan:
    """`home`: what is encoded came from this protocol, so nothing is repaired, renamed or left out.

    `place` is where in the output the encoder writes, or `count` which message, for what it invents there; `marks`
    counts cache marks.
    `served` is the id of the last call of a hosted tool, for a result that names none; `uses` counts them by kind.
    `steps` are the vendor's words for such calls, by their ids.
    `legal` are ids that may pass as they are.
    `hosted` are the kinds of hosted tools that are declared, `servers` those of MCP; `searches`: tools that are
    loaded later can be found.
    `request` is the one that is encoded, once its tools are.
    `screen` tells what drives a screen in the target's form, if anything does.
    `answering`: it is an answer, for a client to read; else a request, for a provider to take.
    """

    cache_marks = 0
    last_hosted_call_id = ""
    request: Request | None = None
    computer_use: "ComputerUsePlan | None" = None
    output_pointer = ""
    output_index = 0
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
        self.same_protocol = same_protocol
        self.for_client = for_client
        self.hosted_uses: dict[str, int] = {}
        self.hosted_call_kinds: dict[str | None, str] = {}
        self.hosted_kinds: set[str] = set()
        self.mcp_servers: list[Any] = []
        self.can_search_tools = same_protocol
        self.report = report
        self.target = target
        self.tools = ToolNamePlan(rules.names, freeform=rules.freeform)
        self._rules = rules
        self._ids: dict[str, str] = {}
        self._tool_names: dict[str, str] = {}
        self.legal_ids: set[str | None] = set()

    def loaded_tools(self, request: Request) -> list[LocatedTool]:
        """The tools that a message of the conversation brought, found once."""
        if self._loaded_tools is None:
            self._loaded_tools = loaded_tools(request)
        return self._loaded_tools

    def offered_tools(self, request: Request) -> list[LocatedTool]:
        """All tools of the conversation, found once."""
        if self._offered_tools is None:
            self._offered_tools = conversation_tools(request, self.loaded_tools(request))
        return self._offered_tools

    def is_legal_id(self, id: str | None) -> bool:
        """Whether an id may pass as it is. Each stands on a call and on its result."""
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

    def call_id(self, id: str) -> str:
        if self.same_protocol or self.target.issued_ids:
            return id
        if (known := self._ids.get(id)) is None:
            known = self._ids[id] = legal_id(id, self._rules.id_pattern, self._rules.id_limit)
        return known

    def id_of(self, located_part: LocatedPart) -> str:
        """The id of a call, made from its place if it has none."""
        call = located_part.part
        if not isinstance(call, ToolCall):
            raise TypeError(f"{type(call).__name__} is no call")
        if call.id or (self.same_protocol and call.id is not None):
            return self.call_id(call.id)
        return derive_call_id(call.name, call.arguments, *(step for step in located_part.path if isinstance(step, int)))

    def report_unsealed_signature(self, part: Reasoning, path: SourcePath) -> None:
        """Another issuer's proof that was not carried: there was no key for it."""
        if part.signature is not None:
            self.report.dropped((*path, "signature"), "", "there is no key to seal another issuer's proof with")

    def tool_name(self, name: str, namespace: str | None = None) -> str:
        if namespace is not None:
            return name if self.same_protocol else self.tools.alias(name, namespace)
        if (known := self._tool_names.get(name)) is None:
            # In an answer the names are the client's own.
            known = name if self.same_protocol or self.for_client else self.tools.alias(name)
            self._tool_names[name] = known
        return known

    def report_result_name(self, part: ToolResult, path: SourcePath) -> None:
        """For targets whose results have no names: nothing is lost where the call that it answers says the name."""
        if part.name is not None and part.name not in self._tool_names:
            self.report.dropped(path, "name", "results have no names here")
        if part.namespace is not None:
            self.report.dropped(path, "namespace", "results have no names here")


class _EncodedTools(Struct):
    """Tools as they were written, and what was planned for them. While it has the tools, no others have their ids."""

    tools: tuple[Tool, ...]
    body: Raw
    name_plan: ToolNamePlan


class EncodedToolsMemo:
    """The declarations of a target, by the tools that they declare."""

    def __init__(self) -> None:
        self._memo: BoundedMemo[tuple[int | str, ...], _EncodedTools] = BoundedMemo()

    def encode(self, request: Request, plan: EncodingPlan, encode: Callable[[], Any]) -> Any:
        """What `write` gives, if it was not written before. What has anything to be reported is written each time."""
        tools = request.tools
        if not tools or plan.report or not plan.tools.is_empty or plan.loaded_tools(request):
            return encode()
        key: tuple[int | str, ...] = (plan.target.host.name, *map(id, tools))
        if (known := self._memo.get(key)) is not None:
            plan.tools = known.name_plan.copy()
            return known.body
        body = encode()
        if not plan.report and all(type(tool) is FunctionTool for tool in tools):
            raw = Raw(msgspec.json.encode(body))
            self._memo.put(key, _EncodedTools(tools, raw, plan.tools.copy()), 2 * len(bytes(raw)))
        return body
