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
from toolwire.codec.interface import OriginalTool, ResponseMapping
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.wire.reader import decode_json

INPUT_PARAMETER = "input"
"""The one string parameter of a function that stands for a free-text tool."""

_ILLEGAL = re.compile(r"[^a-zA-Z0-9_-]")


class NameRules(Struct, frozen=True):
    """What a target takes as a tool name."""

    pattern: re.Pattern[str]
    limit: int


_TOOL_CHANGE_ROLES = ("system", "developer")
TARGET_HAS_TOOL_SEARCH = "the target has a search of its own for tools that are loaded later"


class LocatedTool(Struct, frozen=True, gc=False):
    """A tool, no group any more, and the trail that leads to it."""

    tool: FunctionTool | FreeformTool | NativeTool
    path: SourcePath


class ToolNamePlan:
    """Aliases for tools, made as they are first needed and the same for the whole request."""

    def __init__(self, rules: NameRules, *, freeform: bool) -> None:
        self.mapping = ResponseMapping()
        self.freeform = freeform
        self._rules = rules
        self._aliases: dict[tuple[str | None, str], str] = {}
        self._used_names = self.mapping.used_names

    @property
    def is_empty(self) -> bool:
        return not self._aliases

    def copy(self) -> "ToolNamePlan":
        made = ToolNamePlan(self._rules, freeform=self.freeform)
        made.mapping = replace(self.mapping, tools=self.mapping.tools.copy(), used_names=self._used_names.copy())
        made._aliases, made._used_names = self._aliases.copy(), made.mapping.used_names
        return made

    def declare(self, tool: FunctionTool | FreeformTool, path: SourcePath, report: LossReport) -> str:
        alias = self.alias(tool.name, tool.namespace)
        if alias == tool.name and type(tool) is FunctionTool and tool.namespace is None:
            return alias
        lowered = isinstance(tool, FreeformTool) and not self.freeform
        if lowered or alias != tool.name or tool.namespace is not None:
            self.mapping.tools[alias] = OriginalTool(tool.name, tool.namespace, lowered)
        if lowered:
            why = "the target has no free-text tools: declared as a function with one string"
            report.approximated(path, "", why)
        return alias

    def expect_nulls(self, tool: FunctionTool) -> None:
        """The target was told to give null for what is absent: an answer is raised by leaving that out."""
        self.mapping.tools[self.alias(tool.name, tool.namespace)] = OriginalTool(
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
            alias = self._with_digest(first + readable, key)
        tries = 0
        while alias in self._used_names:
            alias = self._with_digest(alias, key, tries)
            tries += 1
        self._used_names.add(alias)
        self._aliases[key] = alias
        if alias != name:
            self.mapping.tools.setdefault(alias, OriginalTool(name, namespace))
        return alias

    def substitute_function(self, name: str, function: str) -> None:
        """Let a function stand for a tool of another name: calls in the history, and those in the answer, follow."""
        key = (None, name)
        if name != function and key not in self._aliases and function not in self._used_names:
            self._aliases[key] = self._aliases[None, function] = function
            self._used_names.add(function)
            self.mapping.tools[function] = OriginalTool(name)

    def map_to_native_call(self, name: str, native: str) -> None:
        """Let calls of this function be told as the vendor's own kind of call that it was made from."""
        self.mapping.tools[self.alias(name)] = OriginalTool(name, native=native)

    def _with_digest(self, readable: str, key: tuple[str | None, str], tries: int = 0) -> str:
        text = f"{key[0] or ''}\0{key[1]}" + "\0" * tries
        digest = hashlib.blake2s(text.encode(errors="surrogatepass"), digest_size=4).hexdigest()
        return f"{readable[: self._rules.limit - 9]}_{digest}"


def conversation_tools(request: Request, loaded: list[LocatedTool] | None = None) -> list[LocatedTool]:
    """All tools of a conversation in order of first appearance, groups flattened: those declared at the start, and
    those that came later, if these are not known already. A removed one stays, since its calls may be in the history.
    """
    declared: list[LocatedTool] = []
    for index, tool in enumerate(request.tools or ()):
        if isinstance(tool, ToolGroup):
            declared += flatten_tool(tool, ("tools", index))
        else:
            declared.append(LocatedTool(tool, ("tools", index)))
    declared += loaded_tools(request) if loaded is None else loaded
    seen: set[tuple[str | None, str]] = set()
    found: list[LocatedTool] = []
    for placed in declared:
        tool = placed.tool
        if not isinstance(tool, NativeTool):
            if (name := (tool.namespace, tool.name)) in seen:
                continue
            seen.add(name)
        found.append(placed)
    return found


def loaded_tools(request: Request) -> list[LocatedTool]:
    """Those that a message brought."""
    found: list[LocatedTool] = []
    for number, message in enumerate(request.messages):
        parts = message.parts
        # Only a system, and a search whose result ends with what it loaded, change tools.
        if not parts or (type(parts[-1]) is not ToolChange and message.role not in _TOOL_CHANGE_ROLES):
            continue
        for position, part in enumerate(parts):
            if isinstance(part, ToolChange):
                for index, added in enumerate(part.add):
                    if not isinstance(added, ToolRef):
                        found += flatten_tool(added, ("messages", number, "parts", position, "add", index))
    return found


def flatten_tool(tool: Tool, path: SourcePath) -> Iterator[LocatedTool]:
    if isinstance(tool, ToolGroup):
        for index, member in enumerate(tool.tools):
            named = replace(member, namespace=tool.name)
            yield LocatedTool(named, (*path, "tools", index))
    else:
        yield LocatedTool(tool, path)


def is_tool_search(tool: Tool) -> bool:
    """Whether it is a provider's search for tools that are loaded later. Each vendor looks for them in its own way."""
    return isinstance(tool, NativeTool) and tool.kind.startswith("tool_search") and tool.executor == "server"


def report_excluded_tool(located_tool: LocatedTool, request: Request, report: LossReport, reason: str) -> None:
    """Report a tool that the choice excludes. A group of which none may be chosen loses its name as well."""
    report.dropped(located_tool.path, "", reason)
    group = request.tools[int(located_tool.path[1])] if request.tools and located_tool.path[0] == "tools" else None
    if isinstance(group, ToolGroup):
        chosen = {named.name for named in request.tool_choice.names} if request.tool_choice is not None else set()
        if chosen.isdisjoint(member.name for member in group.tools):
            report.dropped(located_tool.path[:2], "name", reason)


def is_allowed(located_tool: LocatedTool, request: Request, report: LossReport) -> bool:
    """Tell whether a tool is offered, at a target that can't choose among some: such a choice offers only those."""
    choice, tool = request.tool_choice, located_tool.tool
    if choice is None or choice.mode != "allowed" or isinstance(tool, NativeTool):
        return True
    if any(named.name == tool.name for named in choice.names):
        return True
    report_excluded_tool(located_tool, request, report, "not among the tools that may be chosen")
    return False


def report_tool_change(change: ToolChange, path: SourcePath, report: LossReport) -> None:
    """Report a change of tools, at a target where all are declared at the start and stay."""
    if change.add and all(isinstance(added, ToolRef) and added.kind == "server" for added in change.add):
        report.dropped(path, "", "the target has no tools of an MCP server")
    elif change.add:
        report.approximated(path, "", "tools that come later are declared from the start")
    if change.remove:
        report.dropped(path, "", "the target can't take tools away within a conversation")


def report_validated_choice(choice: ToolChoice | None, report: LossReport) -> None:
    """Report a choice that holds all calls to their schemas, at a target that does so tool by tool, or not at all."""
    if choice is not None and choice.validated:
        report.dropped(("tool_choice",), "validated", "the target can't hold all calls to their schemas")


def report_allowed_callers(tool: FunctionTool | FreeformTool, path: SourcePath, report: LossReport) -> None:
    """Report who may call a tool, at a target where only the model itself can."""
    if tool.allowed_callers is None:
        return
    if "direct" not in tool.allowed_callers:
        report.dropped(
            path,
            "allowed_callers",
            "only programs may call this tool, and the target has none",
            constraint=True,
        )
        return
    for index, caller in enumerate(tool.allowed_callers):
        if caller != "direct":
            report.dropped((*path, "allowed_callers", index), "", "the target's programs can't call tools")


def freeform_description(tool: FreeformTool) -> str:
    """The description of the function that stands for a free-text tool: the grammar, no longer enforced, is told."""
    about = tool.description or ""
    if tool.grammar is not None:
        about += f"\n\nThe input must match this {tool.grammar.syntax} grammar:\n{tool.grammar.definition}"
    return about.strip()


def freeform_schema() -> Raw:
    """The schema of the function that stands for a free-text tool."""
    properties = {INPUT_PARAMETER: {"type": "string", "description": "The whole input, as plain text."}}
    schema = {"type": "object", "properties": properties, "required": [INPUT_PARAMETER], "additionalProperties": False}
    return Raw(msgspec.json.encode(schema))


WRAPPED_INPUT_END = '"}'
"""How the arguments of a lowered call end, after the text."""


def wrap_freeform_input(text: str) -> str:
    return msgspec.json.encode({INPUT_PARAMETER: text}).decode()


def unwrap_freeform_input(arguments: str) -> str | None:
    """The free text in the arguments of a lowered call; None if the model wrote something else."""
    try:
        parsed = decode_json(arguments.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if isinstance(parsed, dict) and isinstance(text := parsed.get(INPUT_PARAMETER), str):
        return text
    return None
