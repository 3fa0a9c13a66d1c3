"""The tools that a response may call, under the names that the upstream knows."""

from collections.abc import Iterator, Mapping

from msgspec import Raw

from toolwire.canonical.tools import FreeformTool, FunctionTool, NativeTool, Tool, ToolGroup
from toolwire.codec.interface import ResponseContext

FREEFORM_PARAMETERS = Raw(b'{"type":"object","properties":{"input":{"type":"string"}}}')
"""The parameters of a freeform tool that is declared as a function."""


class DeclaredTools(Mapping[str, "Raw | None"]):
    """The parameter schemas of the tools that a request declares, by the upstream's names; read on first use."""

    def __init__(self, context: ResponseContext) -> None:
        self._context = context
        self._schemas: Mapping[str, Raw | None] | None = None

    def __bool__(self) -> bool:
        request = self._context.request
        if request is None or not _declared_tools(self._context):
            return False
        return request.tool_choice is None or request.tool_choice.mode != "none"

    def __getitem__(self, name: str) -> Raw | None:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def _read(self) -> Mapping[str, Raw | None]:
        """Return the schemas, read on first use."""
        if self._schemas is None:
            self._schemas = _read_schemas(self._context) if self else {}
        return self._schemas


def _declared_tools(context: ResponseContext) -> tuple[Tool, ...]:
    """Return the tools that the client declared, and those that the gateway added."""
    tools = () if context.request is None else context.request.tools or ()
    return tools if context.text_recovery is None else (*tools, *context.text_recovery.added_tools)


def _read_schemas(context: ResponseContext) -> dict[str, Raw | None]:
    """Return the parameter schemas of the declared tools, by the upstream's names for them."""
    schemas = {key: schema for tool in _declared_tools(context) for key, schema in _schemas(tool)}
    aliases, used_names = context.mapping.tools, context.mapping.used_names
    known = {name: schema for (name, namespace), schema in schemas.items() if namespace is None and name not in aliases}
    for alias, original in aliases.items():
        known[alias] = FREEFORM_PARAMETERS if original.freeform else schemas.get((original.name, original.namespace))
    return {name: schema for name, schema in known.items() if name in used_names} if used_names else known


def _schemas(tool: Tool) -> Iterator[tuple[tuple[str, str | None], Raw | None]]:
    """Yield the name, namespace and schema of each tool in a declaration."""
    match tool:
        case FunctionTool():
            yield (tool.name, tool.namespace), tool.parameters
        case FreeformTool():
            yield (tool.name, tool.namespace), FREEFORM_PARAMETERS
        case ToolGroup():
            for member in tool.tools:
                parameters = member.parameters if isinstance(member, FunctionTool) else FREEFORM_PARAMETERS
                yield (member.name, tool.name), parameters
        case NativeTool():
            if tool.name is not None and tool.executor == "client":
                yield (tool.name, None), None


def recovers_bare_calls(context: ResponseContext) -> bool:
    """Return whether JSON without marks may be a call: not if the client asked for JSON."""
    request = context.request
    return request is None or request.output is None or request.output.kind not in ("json", "json_schema")
