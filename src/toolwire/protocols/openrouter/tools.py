"""OpenRouter as a variant of Chat, and its tools: functions, and server tools such as `openrouter:web_search`."""

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.tools import FunctionTool, NativeTool, Tool, ToolChoice, ToolRef
from toolwire.codec.encoding.hosted_tools import HostedToolNames, decode_hosted_tool
from toolwire.codec.hosts.openrouter import EXTENDED
from toolwire.codec.models.info import UNKNOWN_MODEL
from toolwire.codec.wire.reader import decode_elements, decode_json
from toolwire.protocols.openai_chat.parts.details import SERVER_TOOL_PREFIX, represented_tokens
from toolwire.protocols.openai_chat.tools import SEARCH_FORM
from toolwire.protocols.openai_chat.variant import ChatVariant
from toolwire.protocols.openai_chat.wire import FAMILY
from toolwire.protocols.openrouter.settings import decode_cache

_SEARCH_OPTIONS = {
    "max_uses": "max_uses",
    "allowed_domains": "allowed_domains",
    "blocked_domains": "excluded_domains",
    "context_size": "search_context_size",
    "location": "user_location",
}
_FETCH_OPTIONS = {
    "max_uses": "max_uses",
    "allowed_domains": "allowed_domains",
    "blocked_domains": "blocked_domains",
    "max_content_tokens": "max_content_tokens",
}


def _nest_options(options: dict[str, str]) -> dict[str, str]:
    """Return the option pointers with `parameters/` before each name."""
    return {field: f"parameters/{name}" for field, name in options.items()}


HOSTED_TOOLS = HostedToolNames(
    family=FAMILY,
    names={"web_search": (SERVER_TOOL_PREFIX + "web_search",), "web_fetch": (SERVER_TOOL_PREFIX + "web_fetch",)},
    option_pointers={"web_search": _nest_options(_SEARCH_OPTIONS), "web_fetch": _nest_options(_FETCH_OPTIONS)},
)
_SHORT_NAMES = HostedToolNames(
    family=FAMILY,
    names={"web_search": ("web_search", "web_search_preview", "web_search_2025_08_26")},
    option_pointers={"web_search": _SEARCH_OPTIONS},
)
_PLUGIN_NAMES = HostedToolNames(
    family=FAMILY,
    names={"web_search": ("web",), "web_fetch": ("web-fetch",)},
    option_pointers={
        "web_search": {
            "max_uses": "max_uses",
            "allowed_domains": "include_domains",
            "blocked_domains": "exclude_domains",
            "location": "user_location",
        },
        "web_fetch": _FETCH_OPTIONS,
    },
)


OPENROUTER = ChatVariant(
    protocol="openrouter",
    path="/api/v1/chat/completions",
    host=EXTENDED,
    hosted_tools=HOSTED_TOOLS,
    server_tools=SERVER_TOOL_PREFIX,
    service_tiers=("auto", "default", "fast", "flex", "priority", "scale", "ultrafast"),
    describe_model=lambda _: UNKNOWN_MODEL,  # OpenRouter adapts requests to its models
)

# ---- decode


def decode_tool(tool: Tool) -> Tool:
    """Return a tool from Chat's decoder with the fields that OpenRouter adds to Chat decoded."""
    match tool:
        case NativeTool() if tool.kind.startswith(SERVER_TOOL_PREFIX):
            hosted = decode_hosted_tool(tool.kind, tool.body, HOSTED_TOOLS)
            return replace(tool, kind=tool.kind.removeprefix(SERVER_TOOL_PREFIX), hosted=hosted)
        case NativeTool() if tool.hosted is None:
            return replace(tool, hosted=decode_hosted_tool(tool.kind, tool.body, _SHORT_NAMES))
        case FunctionTool():
            return decode_cache(tool)
        case _:
            return tool


def decode_plugins(raw: Raw) -> tuple[list[NativeTool], list[int]]:
    """Decode enabled plugins that are hosted tools.

    Return the tools, and the indices of all other plugins.
    """
    try:
        plugins = decode_elements(raw)
    except msgspec.DecodeError:
        return [], []
    tools: list[NativeTool] = []
    others: list[int] = []
    for index, plugin in enumerate(plugins):
        body = decode_json(plugin)
        plugin_id = body.get("id") if isinstance(body, dict) and body.get("enabled") is not False else None
        if not isinstance(plugin_id, str) or (hosted := decode_hosted_tool(plugin_id, plugin, _PLUGIN_NAMES)) is None:
            others.append(index)
            continue
        hosted = replace(hosted, others=tuple(name for name in hosted.others if name not in ("id", "enabled")))
        pointer = f"/plugins/{index}"
        tool = NativeTool(
            protocol=FAMILY, kind=hosted.kind, body=plugin, hosted=hosted, at=pointer, wire_form=(SEARCH_FORM,)
        )
        tools.append(tool)
    return tools, others


def decode_choice(raw: Raw, *, parallel: bool | None) -> ToolChoice | None:
    """Decode a tool choice that forces a server tool by its type; None for any other choice."""
    match decode_json(raw):
        case {"type": str(kind), **others} if not others:
            type_extra = {FAMILY: {"type": Raw(msgspec.json.encode(kind))}}
            reference = ToolRef(
                name=kind.removeprefix(SERVER_TOOL_PREFIX),
                kind="native",
                extras=type_extra,
                wire_form=represented_tokens("type"),
                at="",
            )
            return ToolChoice(mode="named", names=(reference,), parallel=parallel, at="/tool_choice")
        case _:
            return None
