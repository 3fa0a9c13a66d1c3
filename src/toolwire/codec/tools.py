"""Tools for targets that lack something: names made legal, namespaces flattened, free text wrapped in a function.

`ToolPlan` decides it all once for a request; calls and choices in the history follow the same plan, and `Undo` lets an
answer be raised again to the client's own tools.
"""

import hashlib
import re
from collections.abc import Iterator

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.content import ToolChange
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FreeformTool, FunctionTool, NativeTool, Tool, ToolChoice, ToolGroup, ToolRef

from .interface import ToolName, Undo
from .losses import Report, Trail

INPUT = "input"
"""The one string parameter of a function that stands for a free-text tool."""

_ILLEGAL = re.compile(r"[^a-zA-Z0-9_-]")


class NameRules(Struct, frozen=True):
    """What a target takes as a tool name."""

    pattern: re.Pattern[str]
    limit: int


_CHANGING = ("system", "developer")
OWN_SEARCH = "the target has a search of its own for tools that are loaded later"


class PlacedTool(Struct, frozen=True, gc=False):
    """A tool, no group any more, and the trail that leads to it."""

    tool: FunctionTool | FreeformTool | NativeTool
    trail: Trail


class ToolPlan:
    """Aliases for tools, made as they are first needed and the same for the whole request."""

    def __init__(self, rules: NameRules, *, freeform: bool) -> None:
        self.undo = Undo()
        self.freeform = freeform
        self._rules = rules
        self._aliases: dict[tuple[str | None, str], str] = {}
        self._taken = self.undo.taken

    @property
    def is_new(self) -> bool:
        return not self._aliases

    def copy(self) -> "ToolPlan":
        made = ToolPlan(self._rules, freeform=self.freeform)
        made.undo = replace(self.undo, names=self.undo.names.copy(), taken=self._taken.copy())
        made._aliases, made._taken = self._aliases.copy(), made.undo.taken
        return made

    def declare(self, tool: FunctionTool | FreeformTool, trail: Trail, report: Report) -> str:
        alias = self.alias(tool.name, tool.namespace)
        if alias == tool.name and type(tool) is FunctionTool and tool.namespace is None:
            return alias
        lowered = isinstance(tool, FreeformTool) and not self.freeform
        if lowered or alias != tool.name or tool.namespace is not None:
            self.undo.names[alias] = ToolName(tool.name, tool.namespace, lowered)
        if lowered:
            why = "the target has no free-text tools: declared as a function with one string"
            report.approximated(trail, "", why)
        return alias

    def completed(self, tool: FunctionTool) -> None:
        """The target was told to give null for what is absent: an answer is raised by leaving that out."""
        self.undo.names[self.alias(tool.name, tool.namespace)] = ToolName(
            tool.name, tool.namespace, parameters=tool.parameters
        )

    def alias(self, name: str, namespace: str | None = None) -> str:
        """The name that the target knows this tool by: injective, and unchanged if it is legal."""
        key = (namespace, name)
        if (known := self._aliases.get(key)) is not None:
            return known
        flat = name if namespace is None else f"{namespace}__{name}"
        alias = flat
        if len(flat) > self._rules.limit or not self._rules.pattern.fullmatch(flat):
            readable = _ILLEGAL.sub("_", flat) or "tool"
            first = "" if self._rules.pattern.match(readable) else "_"  # some take no digit there
            alias = self._suffixed(first + readable, key)
        tries = 0
        while alias in self._taken:
            alias = self._suffixed(alias, key, tries)
            tries += 1
        self._taken.add(alias)
        self._aliases[key] = alias
        if alias != name:
            self.undo.names.setdefault(alias, ToolName(name, namespace))
        return alias

    def stand_in(self, name: str, function: str) -> None:
        """Let a function stand for a tool of another name: calls in the history, and those in the answer, follow."""
        key = (None, name)
        if name != function and key not in self._aliases and function not in self._taken:
            self._aliases[key] = self._aliases[None, function] = function
            self._taken.add(function)
            self.undo.names[function] = ToolName(name)

    def stands_for(self, name: str, native: str) -> None:
        """Let calls of this function be told as the vendor's own kind of call that it was made from."""
        self.undo.names[self.alias(name)] = ToolName(name, native=native)

    def _suffixed(self, readable: str, key: tuple[str | None, str], tries: int = 0) -> str:
        text = f"{key[0] or ''}\0{key[1]}" + "\0" * tries
        digest = hashlib.blake2s(text.encode(errors="surrogatepass"), digest_size=4).hexdigest()
        return f"{readable[: self._rules.limit - 9]}_{digest}"


def tools_in_force(request: Request, loaded: list[PlacedTool] | None = None) -> list[PlacedTool]:
    """All tools of a conversation in order of first appearance, groups flattened: those declared at the start, and
    those that came later, if these are not known already. A removed one stays, since its calls may be in the history.
    """
    declared: list[PlacedTool] = []
    for index, tool in enumerate(request.tools or ()):
        if isinstance(tool, ToolGroup):
            declared += flattened(tool, ("tools", index))
        else:
            declared.append(PlacedTool(tool, ("tools", index)))
    declared += loaded_tools(request) if loaded is None else loaded
    seen: set[tuple[str | None, str]] = set()
    found: list[PlacedTool] = []
    for placed in declared:
        tool = placed.tool
        if not isinstance(tool, NativeTool):
            if (name := (tool.namespace, tool.name)) in seen:
                continue
            seen.add(name)
        found.append(placed)
    return found


def loaded_tools(request: Request) -> list[PlacedTool]:
    """Those that a message brought."""
    found: list[PlacedTool] = []
    for number, message in enumerate(request.messages):
        parts = message.parts
        # Only a system, and a search whose result ends with what it loaded, change tools.
        if not parts or (type(parts[-1]) is not ToolChange and message.role not in _CHANGING):
            continue
        for position, part in enumerate(parts):
            if isinstance(part, ToolChange):
                for index, added in enumerate(part.add):
                    if not isinstance(added, ToolRef):
                        found += flattened(added, ("messages", number, "parts", position, "add", index))
    return found


def flattened(tool: Tool, trail: Trail) -> Iterator[PlacedTool]:
    if isinstance(tool, ToolGroup):
        for index, member in enumerate(tool.tools):
            named = replace(member, namespace=tool.name)
            yield PlacedTool(named, (*trail, "tools", index))
    else:
        yield PlacedTool(tool, trail)


def finds_tools(tool: Tool) -> bool:
    """Whether it is a provider's search for tools that are loaded later. Each vendor looks for them in its own way."""
    return isinstance(tool, NativeTool) and tool.kind.startswith("tool_search") and tool.executor == "server"


def leave_out(placed: PlacedTool, request: Request, report: Report, why: str) -> None:
    """Report a tool that the choice excludes. A group of which none may be chosen loses its name as well."""
    report.dropped(placed.trail, "", why)
    group = request.tools[int(placed.trail[1])] if request.tools and placed.trail[0] == "tools" else None
    if isinstance(group, ToolGroup):
        chosen = {named.name for named in request.tool_choice.names} if request.tool_choice is not None else set()
        if chosen.isdisjoint(member.name for member in group.tools):
            report.dropped(placed.trail[:2], "name", why)


def is_allowed(placed: PlacedTool, request: Request, report: Report) -> bool:
    """Tell whether a tool is offered, at a target that can't choose among some: such a choice offers only those."""
    choice, tool = request.tool_choice, placed.tool
    if choice is None or choice.mode != "allowed" or isinstance(tool, NativeTool):
        return True
    if any(named.name == tool.name for named in choice.names):
        return True
    leave_out(placed, request, report, "not among the tools that may be chosen")
    return False


def report_change(change: ToolChange, trail: Trail, report: Report) -> None:
    """Report a change of tools, at a target where all are declared at the start and stay."""
    if change.add and all(isinstance(added, ToolRef) and added.kind == "server" for added in change.add):
        report.dropped(trail, "", "the target has no tools of an MCP server")
    elif change.add:
        report.approximated(trail, "", "tools that come later are declared from the start")
    if change.remove:
        report.dropped(trail, "", "the target can't take tools away within a conversation")


def report_validated(choice: ToolChoice | None, report: Report) -> None:
    """Report a choice that holds all calls to their schemas, at a target that does so tool by tool, or not at all."""
    if choice is not None and choice.validated:
        report.dropped(("tool_choice",), "validated", "the target can't hold all calls to their schemas")


def usable_callers(tool: FunctionTool | FreeformTool, trail: Trail, report: Report) -> None:
    """Report who may call a tool, at a target where only the model itself can."""
    if tool.allowed_callers is None:
        return
    if "direct" not in tool.allowed_callers:
        report.dropped(
            trail,
            "allowed_callers",
            "only programs may call this tool, and the target has none",
            guarded=True,
        )
        return
    for index, caller in enumerate(tool.allowed_callers):
        if caller != "direct":
            report.dropped((*trail, "allowed_callers", index), "", "the target's programs can't call tools")


def lowered_description(tool: FreeformTool) -> str:
    """The description of the function that stands for a free-text tool: the grammar, no longer enforced, is told."""
    about = tool.description or ""
    if tool.grammar is not None:
        about += f"\n\nThe input must match this {tool.grammar.syntax} grammar:\n{tool.grammar.definition}"
    return about.strip()


def lowered_schema() -> Raw:
    """The schema of the function that stands for a free-text tool."""
    properties = {INPUT: {"type": "string", "description": "The whole input, as plain text."}}
    schema = {"type": "object", "properties": properties, "required": [INPUT], "additionalProperties": False}
    return Raw(msgspec.json.encode(schema))


LOWERED_END = '"}'
"""How the arguments of a lowered call end, after the text."""


def lower_input(text: str) -> str:
    return msgspec.json.encode({INPUT: text}).decode()


def raise_input(arguments: str) -> str | None:
    """The free text in the arguments of a lowered call; None if the model wrote something else."""
    try:
        parsed = msgspec.json.decode(arguments.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if isinstance(parsed, dict) and isinstance(text := parsed.get(INPUT), str):
        return text
    return None
