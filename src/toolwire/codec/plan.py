"""What an encoder decided for a whole request or response before it writes the parts."""

import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from toolwire.canonical.content import Reasoning, ToolCall, ToolResult
from toolwire.canonical.request import Request

from .ids import ESCAPED, legal_id, made_id
from .interface import Target
from .losses import Report, Trail
from .tools import NameRules, PlacedTool, ToolPlan, loaded_tools, tools_in_force
from .turns import Placed

if TYPE_CHECKING:
    from .screens import ScreenPlan


class Rules(Struct, frozen=True):
    """A protocol's own limits on ids and names, and whether it has free-text tools."""

    ids: re.Pattern[str]
    id_limit: int
    names: NameRules
    freeform: bool


class Plan:
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

    marks = 0
    served = ""
    request: Request | None = None
    screen: "ScreenPlan | None" = None
    place = ""
    count = 0
    _offered: list[PlacedTool] | None = None
    _loaded: list[PlacedTool] | None = None

    def __init__(
        self,
        rules: Rules,
        report: Report,
        target: Target,
        *,
        home: bool,
        answering: bool = False,
    ) -> None:
        self.home = home
        self.answering = answering
        self.uses: dict[str, int] = {}
        self.steps: dict[str | None, str] = {}
        self.hosted: set[str] = set()
        self.servers: list[Any] = []
        self.searches = home
        self.report = report
        self.target = target
        self.tools = ToolPlan(rules.names, freeform=rules.freeform)
        self._rules = rules
        self._ids: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self.legal: set[str | None] = set()

    def loaded(self, request: Request) -> list[PlacedTool]:
        """The tools that a message of the conversation brought, found once."""
        if self._loaded is None:
            self._loaded = loaded_tools(request)
        return self._loaded

    def offered(self, request: Request) -> list[PlacedTool]:
        """All tools of the conversation, found once."""
        if self._offered is None:
            self._offered = tools_in_force(request, self.loaded(request))
        return self._offered

    def is_legal(self, id: str | None) -> bool:
        """Whether an id may pass as it is. Each stands on a call and on its result."""
        if id in self.legal:
            return True
        if not id or len(id) > self._rules.id_limit or id.startswith(ESCAPED) or not self._rules.ids.fullmatch(id):
            return False
        self.legal.add(id)
        return True

    def call_id(self, id: str) -> str:
        if self.home or self.target.issued_ids:
            return id
        if (known := self._ids.get(id)) is None:
            known = self._ids[id] = legal_id(id, self._rules.ids, self._rules.id_limit)
        return known

    def id_of(self, placed: Placed) -> str:
        """The id of a call, made from its place if it has none."""
        call = placed.part
        if not isinstance(call, ToolCall):
            raise TypeError(f"{type(call).__name__} is no call")
        if call.id or (self.home and call.id is not None):
            return self.call_id(call.id)
        return made_id(call.name, call.arguments, *(step for step in placed.trail if isinstance(step, int)))

    def unproved(self, part: Reasoning, trail: Trail) -> None:
        """Another issuer's proof that was not carried: there was no key for it."""
        if part.seal is not None:
            self.report.dropped((*trail, "seal"), "", "there is no key to seal another issuer's proof with")

    def name(self, name: str, namespace: str | None = None) -> str:
        if namespace is not None:
            return name if self.home else self.tools.alias(name, namespace)
        if (known := self._names.get(name)) is None:
            # In an answer the names are the client's own.
            known = name if self.home or self.answering else self.tools.alias(name)
            self._names[name] = known
        return known

    def report_name(self, part: ToolResult, trail: Trail) -> None:
        """For targets whose results have no names: nothing is lost where the call that it answers says the name."""
        if part.name is not None and part.name not in self._names:
            self.report.dropped(trail, "name", "results have no names here")
        if part.namespace is not None:
            self.report.dropped(trail, "namespace", "results have no names here")
