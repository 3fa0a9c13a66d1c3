"""The tools that a response may call, under the names that the upstream knows."""

from collections.abc import Iterator, Mapping

from msgspec import Raw

from toolwire.canonical.tools import FreeformTool, FunctionTool, NativeTool, Tool, ToolGroup
from toolwire.codec.interface import ResponseContext

_FREEFORM = Raw(b'{"type":"object","properties":{"input":{"type":"string"}}}')
_NO_TOOLS: Mapping[str, Raw | None] = {}


def declared_tools(context: ResponseContext) -> Mapping[str, Raw | None]:
    """Return the parameter schemas of the tools that the request declares, by the upstream's names for them."""
    request = context.request
    if request is None or not request.tools:
        return _NO_TOOLS
    if request.tool_choice is not None and request.tool_choice.mode == "none":
        return _NO_TOOLS
    schemas = {key: schema for tool in request.tools for key, schema in _schemas(tool)}
    aliases = context.mapping.tools
    tools = {name: schema for (name, namespace), schema in schemas.items() if namespace is None and name not in aliases}
    for alias, original in aliases.items():
        tools[alias] = _FREEFORM if original.freeform else schemas.get((original.name, original.namespace))
    used_names = context.mapping.used_names
    return {name: schema for name, schema in tools.items() if name in used_names} if used_names else tools


def _schemas(tool: Tool) -> Iterator[tuple[tuple[str, str | None], Raw | None]]:
    """Yield the name, namespace and schema of each tool in a declaration."""
    match tool:
        case FunctionTool():
            yield (tool.name, tool.namespace), tool.parameters
        case FreeformTool():
            yield (tool.name, tool.namespace), _FREEFORM
        case ToolGroup():
            for member in tool.tools:
                parameters = member.parameters if isinstance(member, FunctionTool) else _FREEFORM
                yield (member.name, tool.name), parameters
        case NativeTool():
            if tool.name is not None and tool.executor == "client":
                yield (tool.name, None), None


def recovers_bare_calls(context: ResponseContext) -> bool:
    """Return whether JSON without marks may be a call: not if the client asked for JSON."""
    request = context.request
    return request is None or request.output is None or request.output.kind not in ("json", "json_schema")
