"""Tools for targets with fewer features: legal names, flattened namespaces, freeform tools as functions.

`ToolNamePlan` decides once per request. Calls and choices in the history follow it, and its `ResponseMapping` maps the
calls of the response back to the client's tools.
"""

import hashlib
import re
from collections.abc import Iterator

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.content import ToolChange, ToolResult
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FreeformTool, FunctionTool, NativeTool, Tool, ToolChoice, ToolGroup, ToolRef
from toolwire.codec.interface import OriginalTool, ResponseMapping
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.wire.reader import decode_json

INPUT_PARAMETER = "input"
"""The single string parameter of a function that stands for a freeform tool."""

_ILLEGAL = re.compile(r"[^a-zA-Z0-9_-]")
_NAME_LEADS = ("", "_", "t_")


class NameRules(Struct, frozen=True):
    """A target's limits on tool names."""

    pattern: re.Pattern[str]
    limit: int


_TOOL_CHANGE_ROLES = ("system", "developer")
TARGET_HAS_TOOL_SEARCH = "replaced by the target's own tool search"


class LocatedTool(Struct, frozen=True, gc=False):
    """A tool outside of any group, and its source path."""

    tool: FunctionTool | FreeformTool | NativeTool
    path: SourcePath


class ToolNamePlan:
    """Aliases of tools, assigned on first use and stable for the request."""

    def __init__(self, rules: NameRules, *, freeform: bool) -> None:
        self.mapping = ResponseMapping()
        self.freeform = freeform
        self._rules = rules
        self._aliases: dict[tuple[str | None, str], str] = {}
        self._used_names = self.mapping.used_names

    @property
    def is_empty(self) -> bool:
        """Return whether no alias was assigned yet."""
        return not self._aliases

    def copy(self) -> "ToolNamePlan":
        """Return a copy whose later aliases do not affect this plan."""
        plan = ToolNamePlan(self._rules, freeform=self.freeform)
        plan.mapping = replace(self.mapping, tools=self.mapping.tools.copy(), used_names=self._used_names.copy())
        plan._aliases, plan._used_names = self._aliases.copy(), plan.mapping.used_names
        return plan

    def declare(self, tool: FunctionTool | FreeformTool, path: SourcePath, report: LossReport) -> str:
        """Return the target's name of a declared tool, and record how to map its calls back."""
        alias = self.alias(tool.name, tool.namespace)
        if alias == tool.name and type(tool) is FunctionTool and tool.namespace is None:
            return alias
        as_function = isinstance(tool, FreeformTool) and not self.freeform
        if as_function or alias != tool.name or tool.namespace is not None:
            self.mapping.tools[alias] = OriginalTool(tool.name, tool.namespace, as_function)
        if alias != tool.name:
            # Calls are mapped back, but a prompt that names the tool uses the other name.
            flat = f"{tool.namespace}__{tool.name}"
            report.approximated(path, "name", f"sent as {alias}", severity="info" if alias == flat else "warning")
        if as_function:
            reason = "the target has no freeform tools: declared as a function with one string parameter"
            report.approximated(path, "", reason)
        return alias

    def expect_nulls(self, tool: FunctionTool) -> None:
        """Record that the target sends null for absent optional properties of this tool."""
        self.mapping.tools[self.alias(tool.name, tool.namespace)] = OriginalTool(
            tool.name, tool.namespace, parameters=tool.parameters
        )

    def alias(self, name: str, namespace: str | None = None) -> str:
        """Return the unique name under which the target knows a tool; legal names stay unchanged."""
        key = (namespace, name)
        if (existing := self._aliases.get(key)) is not None:
            return existing
        flat = name if namespace is None else f"{namespace}__{name}"
        alias = flat
        if len(flat) > self._rules.limit or not self._rules.pattern.fullmatch(flat):
            readable = _ILLEGAL.sub("_", flat) or "tool"
            # Some targets reject a leading digit, or any lead but a letter.
            lead = next((lead for lead in _NAME_LEADS if self._rules.pattern.match(lead + readable)), "")
            alias = self._with_digest(lead + readable, key)
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
        """Make the target know a tool by the name of the function that replaces it; calls are mapped back."""
        key = (None, name)
        if name != function and key not in self._aliases and function not in self._used_names:
            self._aliases[key] = self._aliases[None, function] = function
            self._used_names.add(function)
            self.mapping.tools[function] = OriginalTool(name)

    def map_to_native_call(self, name: str, native: str) -> None:
        """Map calls of this function back to the vendor's own call type."""
        self.mapping.tools[self.alias(name)] = OriginalTool(name, native=native)

    def _with_digest(self, readable: str, key: tuple[str | None, str], tries: int = 0) -> str:
        """Return the name, shortened to the target's limit, with a digest that makes it unique."""
        text = f"{key[0] or ''}\0{key[1]}" + "\0" * tries
        digest = hashlib.blake2s(text.encode(errors="surrogatepass"), digest_size=4).hexdigest()
        return f"{readable[: self._rules.limit - 9]}_{digest}"


def conversation_tools(request: Request, loaded: list[LocatedTool] | None = None) -> list[LocatedTool]:
    """Return all tools of a conversation in order of first appearance, with groups flattened.

    These are the declared tools, and those loaded later: by results of the client's tool search, or in messages
    (`loaded`, if already computed). Tools that were removed later are included, since their calls may be in the
    history.
    """
    declared: list[LocatedTool] = []
    for index, tool in order_declarations(request):
        if type(tool) is ToolGroup:
            declared += flatten_tool(tool, ("tools", index))
        else:
            declared.append(LocatedTool(tool, ("tools", index)))
    declared += loaded_tools(request) if loaded is None else loaded
    tools = [located.tool for located in declared]
    names = [(tool.namespace, tool.name) for tool in tools if type(tool) is not NativeTool]
    return declared if len(set(names)) == len(names) else _drop_repeated(declared)


def _drop_repeated(tools: list[LocatedTool]) -> list[LocatedTool]:
    """Return the tools without later ones of the same name."""
    seen: set[tuple[str | None, str]] = set()
    unique: list[LocatedTool] = []
    for located in tools:
        tool = located.tool
        if type(tool) is not NativeTool:
            if (name := (tool.namespace, tool.name)) in seen:
                continue
            seen.add(name)
        unique.append(located)
    return unique


def order_declarations(request: Request) -> list[tuple[int, Tool]]:
    """Return the declared tools with their indexes; deferred ones are last if they are declared when they are loaded.

    So does Claude Code, in alphabetical order, beside a placeholder for the tools to come. Its own provider keeps
    deferred tools out of the cached prefix. At other targets they must follow the tools sent before, in the order in
    which the client's tool search found them.
    """
    declared = request.tools or ()
    tools = list(enumerate(declared))
    if NativeTool not in map(type, declared):
        return tools
    if not any(type(tool) is NativeTool and tool.executor == "nobody" for tool in declared):
        return tools
    positions: dict[str, int] = {}
    for message in request.messages:
        for part in message.parts:
            if type(part) is ToolResult:
                for item in part.content or ():
                    if type(item) is ToolRef:
                        positions.setdefault(item.name, len(positions) + 1)

    def loading_position(located: tuple[int, Tool]) -> int:
        """Return 0 for a tool that was declared from the start."""
        tool = located[1]
        return positions.get(tool.name, 0) if isinstance(tool, FunctionTool) and tool.defer else 0

    return sorted(tools, key=loading_position)


def loaded_tools(request: Request) -> list[LocatedTool]:
    """Return the tools that messages of the conversation loaded after its start."""
    tools: list[LocatedTool] = []
    for number, message in enumerate(request.messages):
        parts = message.parts
        # Tools change only in system messages, and in tool-search results, which end with the loaded tools.
        if not parts or (type(parts[-1]) is not ToolChange and message.role not in _TOOL_CHANGE_ROLES):
            continue
        for position, part in enumerate(parts):
            if isinstance(part, ToolChange):
                for index, added in enumerate(part.add):
                    if not isinstance(added, ToolRef):
                        tools += flatten_tool(added, ("messages", number, "parts", position, "add", index))
    return tools


def flatten_tool(tool: Tool, path: SourcePath) -> Iterator[LocatedTool]:
    """Yield a tool, or the members of a group with its namespace, each with its source path."""
    if type(tool) is ToolGroup:
        for index, member in enumerate(tool.tools):
            namespaced = replace(member, namespace=tool.name)
            yield LocatedTool(namespaced, (*path, "tools", index))
    else:
        yield LocatedTool(tool, path)


def is_tool_search(tool: Tool) -> bool:
    """Return whether a tool is a provider's own search for deferred tools."""
    return type(tool) is NativeTool and tool.kind.startswith("tool_search") and tool.executor == "server"


def report_excluded_tool(located_tool: LocatedTool, request: Request, report: LossReport, reason: str) -> None:
    """Report a tool that the tool choice excludes; if it excludes a whole group, the group's name is reported too."""
    report.dropped(located_tool.path, "", reason, severity="info")  # the choice itself is reported as well
    group = request.tools[int(located_tool.path[1])] if request.tools and located_tool.path[0] == "tools" else None
    if isinstance(group, ToolGroup):
        chosen = (
            {reference.name for reference in request.tool_choice.names} if request.tool_choice is not None else set()
        )
        if chosen.isdisjoint(member.name for member in group.tools):
            report.dropped(located_tool.path[:2], "name", reason, severity="info")


def is_allowed(located_tool: LocatedTool, request: Request, report: LossReport) -> bool:
    """Return whether the tool choice allows a tool; one that it excludes is reported as dropped.

    For targets that can't restrict the choice, where excluded tools are not declared.
    """
    choice, tool = request.tool_choice, located_tool.tool
    if choice is None or choice.mode != "allowed" or isinstance(tool, NativeTool):
        return True
    if any(reference.name == tool.name for reference in choice.names):
        return True
    report_excluded_tool(located_tool, request, report, "excluded by the tool choice")
    return False


def report_group_descriptions(request: Request, report: LossReport) -> None:
    """Report the descriptions of tool groups, for targets without groups."""
    for index, tool in enumerate(request.tools or ()):
        if type(tool) is ToolGroup and tool.description is not None:
            report.dropped(("tools", index), "description", "the target has no tool groups")


def report_tool_change(change: ToolChange, path: SourcePath, report: LossReport) -> None:
    """Report tools added or removed mid-conversation, at a target that declares all tools at the start."""
    if change.add and all(isinstance(added, ToolRef) and added.kind == "server" for added in change.add):
        report.dropped(path, "", "the target has no MCP servers")
    elif change.add:
        report.approximated(path, "", "tools that are loaded later are declared from the start", severity="info")
    if change.remove:
        report.dropped(path, "", "the target cannot remove tools within a conversation")


def report_validated_choice(choice: ToolChoice | None, report: LossReport) -> None:
    """Report the tool choice `validated`, at targets that can't enforce the schemas of all calls."""
    if choice is not None and choice.validated:
        report.dropped(("tool_choice",), "validated", "the target cannot validate all calls against their schemas")


def report_allowed_callers(tool: FunctionTool | FreeformTool, path: SourcePath, report: LossReport) -> None:
    """Report that programs may or must call a tool, at targets where only the model calls tools."""
    if tool.allowed_callers is None:
        return
    if "direct" not in tool.allowed_callers:
        report.dropped(
            path,
            "allowed_callers",
            "only programs may call this tool, which the target does not support",
            constraint=True,
        )
        return
    for index, caller in enumerate(tool.allowed_callers):
        if caller != "direct":
            report.dropped((*path, "allowed_callers", index), "", "the target has no programs that call tools")


def freeform_description(tool: FreeformTool) -> str:
    """Return the description of a function that stands for a freeform tool, with its grammar."""
    description = tool.description or ""
    if tool.grammar is not None:
        description += f"\n\nThe input must match this {tool.grammar.syntax} grammar:\n{tool.grammar.definition}"
    return description.strip()


def freeform_schema() -> Raw:
    """Return the schema of a function that stands for a freeform tool."""
    properties = {INPUT_PARAMETER: {"type": "string", "description": "The whole input, as plain text."}}
    schema = {"type": "object", "properties": properties, "required": [INPUT_PARAMETER], "additionalProperties": False}
    return Raw(msgspec.json.encode(schema))


WRAPPED_INPUT_END = '"}'
"""The end of the arguments of a wrapped freeform call, after the text."""


def wrap_freeform_input(text: str) -> str:
    """Return the input of a freeform tool as the JSON arguments of the function that stands for it."""
    return msgspec.json.encode({INPUT_PARAMETER: text}).decode()


def unwrap_freeform_input(arguments: str) -> str | None:
    """Return the freeform input in the JSON arguments of a function call; None if they have another shape."""
    try:
        parsed = decode_json(arguments.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if isinstance(parsed, dict) and isinstance(text := parsed.get(INPUT_PARAMETER), str):
        return text
    return None
