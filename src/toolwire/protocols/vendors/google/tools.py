"""Hosted tools and MCP servers in Google's two protocols, and conversions between them.

`generateContent` declares a tool as a member of a bag and puts calls into parts; Interactions has tool types and step
types. Ids and signatures have the same issuer, so they pass unchanged. Only Interactions can restrict the tools of an
MCP server.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.request import Request
from toolwire.canonical.tools import McpServer, NativeTool
from toolwire.codec.encoding.hosted_tools import (
    TOOLS_RESTRICTED,
    parse_json,
    report_unportable_settings,
    server_headers,
    set_at_pointer,
    string_tuple,
    unread_settings,
)
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.losses import LossReport, SourcePath, element_pointers
from toolwire.codec.wire.reader import decode_members, escape_pointer

_TRANSPORTS = ("streamableHttpTransport", "streamable_http_transport")

# ---- MCP servers


def decode_interactions_server(raw: Raw, path: str) -> McpServer | None:
    """Decode an `mcp_server` tool; return None if it is not a plain HTTP server."""
    declaration = parse_json(raw)
    if not isinstance(declaration, dict):
        return None
    allowed_tools = declaration.get("allowed_tools")
    only = (
        allowed_tools[0]
        if isinstance(allowed_tools, list) and len(allowed_tools) == 1 and isinstance(allowed_tools[0], dict)
        else {}
    )
    names = string_tuple(only.get("tools")) if only.get("mode") in (None, "auto") else None
    read_fields = [
        "type",
        "name",
        "url",
        "headers",
        *(["allowed_tools/0/tools", "allowed_tools/0/mode"] if names else []),
    ]
    return _build_server(
        declaration,
        declaration,
        path,
        read_fields,
        names,
        unportable=TOOLS_RESTRICTED if allowed_tools and names is None else None,
    )


def decode_gemini_server(raw: Raw, path: str) -> McpServer | None:
    """Decode an element of `mcpServers`; return None if it is not a plain HTTP server."""
    declaration = parse_json(raw)
    if not isinstance(declaration, dict):
        return None
    transport = next((name for name in _TRANSPORTS if isinstance(declaration.get(name), dict)), None)
    if transport is None:
        return None
    return _build_server(
        declaration, declaration[transport], path, ["name", f"{transport}/url", f"{transport}/headers"]
    )


def _build_server(
    declaration: Mapping[str, Any],
    transport: Mapping[str, Any],
    path: str,
    read_fields: list[str],
    allowed: tuple[str, ...] | None = None,
    *,
    unportable: str | None = None,
) -> McpServer | None:
    """Build the canonical MCP server from its declaration and transport; None if they are not valid.

    `read_fields` are pointers to the fields that it represents. `unportable` is the reason why no other provider can
    use the server.
    """
    name, url, headers = declaration.get("name"), transport.get("url"), transport.get("headers")
    if not isinstance(name, str) or not isinstance(url, str):
        return None
    if headers is not None and not (isinstance(headers, dict) and string_tuple(list(headers.values())) is not None):
        return None
    return McpServer(
        name=name,
        url=url,
        headers=Raw(msgspec.json.encode(headers)) if headers else None,
        allowed=allowed,
        unportable=unportable,
        others=tuple(unread_settings(declaration, path, [f"{path}/{field}" for field in read_fields])),
        at="",
    )


def encode_interactions_server(server: McpServer, path: SourcePath, plan: EncodingPlan) -> dict[str, Any]:
    """Encode an MCP server as an `mcp_server` tool."""
    declaration = {"type": "mcp_server", "name": server.name, **_encode_http_transport(server, path, plan)}
    return declaration if server.allowed is None else {**declaration, "allowed_tools": [{"tools": server.allowed}]}


def encode_gemini_server(server: McpServer, path: SourcePath, plan: EncodingPlan) -> dict[str, Any]:
    """Encode an MCP server as an element of `mcpServers`."""
    return {"name": server.name, "streamableHttpTransport": _encode_http_transport(server, path, plan)}


def _encode_http_transport(server: McpServer, path: SourcePath, plan: EncodingPlan) -> dict[str, Any]:
    """Encode URL and headers of an MCP server."""
    report_unportable_settings(server, plan)
    if server.description is not None:
        plan.report.dropped((*path, "server"), "description")
    headers = server_headers(server)
    return {"url": server.url, **({"headers": headers} if headers else {})}


GEMINI, INTERACTIONS = "gemini", "gemini-interactions"

CONFIG_PREFIX = "//"
"""Prefix of `generateContent` pointers into `toolConfig` instead of the tool."""


class GoogleTool(Struct, frozen=True):
    """The names of one hosted tool in both protocols."""

    member: str  # member of a tool bag in `generateContent`; empty if it cannot be declared there
    name: str  # tool type in Interactions
    call_types: tuple[str, ...] = ()  # `toolType` values of its calls in `generateContent`
    fields: Mapping[str, str] = {}  # `generateContent` pointers to Interactions fields


_SEARCH_TYPES = "search_types"
_MAPS = "googleMaps"
_TOOLS = (
    GoogleTool(
        "googleSearch",
        "google_search",
        ("GOOGLE_SEARCH_WEB", "GOOGLE_SEARCH_IMAGE"),
        {"searchTypes/webSearch": _SEARCH_TYPES, "searchTypes/imageSearch": _SEARCH_TYPES},
    ),
    GoogleTool("googleSearchRetrieval", "google_search"),
    GoogleTool("urlContext", "url_context", ("URL_CONTEXT",)),
    GoogleTool("codeExecution", "code_execution"),
    GoogleTool(
        "fileSearch",
        "file_search",
        ("FILE_SEARCH",),
        {
            "fileSearchStoreNames": "file_search_store_names",
            "topK": "top_k",
            "metadataFilter": "metadata_filter",
        },
    ),
    GoogleTool(
        _MAPS,
        "google_maps",
        ("GOOGLE_MAPS",),
        {
            "enableWidget": "enable_widget",
            f"{CONFIG_PREFIX}retrievalConfig/latLng/latitude": "latitude",
            f"{CONFIG_PREFIX}retrievalConfig/latLng/longitude": "longitude",
        },
    ),
    GoogleTool(
        "computerUse",
        "computer_use",
        (),
        {
            "environment": "environment",
            "excludedPredefinedFunctions": "excluded_predefined_functions",
            "enablePromptInjectionDetection": "enable_prompt_injection_detection",
            "disabledSafetyPolicies": "disabled_safety_policies",
        },
    ),
    GoogleTool(
        "mcpServers",
        "mcp_server",
        (),
        {"name": "name", "streamableHttpTransport/url": "url", "streamableHttpTransport/headers": "headers"},
    ),
    GoogleTool("", "processing", ("MEDIA_PROCESSING",)),
)
LIST_MEMBERS = ("mcpServers",)
"""Members of a tool bag that hold a list."""

STEPS_WITHOUT_CONTENT = ("file_search", "processing")
"""Tools whose Interactions steps have neither arguments nor results."""

IMAGE_SEARCH = "image_search"
_CONSTRAINT_FIELDS = ("allowed_tools", "excludeDomains", "exclude_domains")
_ENVIRONMENT_PREFIX = "ENVIRONMENT_"
_UNDERSCORE = re.compile("_([a-z])")
_UPPERCASE = re.compile("[A-Z]")

_encode_json = msgspec.json.Encoder().encode


def to_camel_case(name: str) -> str:
    """Convert a snake_case name to camelCase."""
    return _UNDERSCORE.sub(lambda match: match[1].upper(), name)


def to_snake_case(name: str) -> str:
    """Convert a camelCase name to snake_case."""
    return _UPPERCASE.sub(lambda match: "_" + match[0].lower(), name)


# ---- hosted tools


def to_interactions_tool(tool: NativeTool, path: SourcePath, report: LossReport) -> dict[str, Any] | None:
    """Convert a `generateContent` tool to Interactions.

    Return None if there is no such tool, or if the tool has a constraint that would be lost.
    """
    google_tool = next(
        (candidate for candidate in _TOOLS if candidate.member and candidate.member == to_camel_case(tool.name or "")),
        None,
    )
    if google_tool is None or _has_constraint(tool):
        return None
    body: dict[str, Any] = {"type": google_tool.name}
    for name, source_pointer, raw in _flatten_members(tool.body, google_tool.fields, any_case=True):
        field = google_tool.fields.get(name)
        if field is None or (field == _SEARCH_TYPES and bytes(raw) != b"{}"):
            _report_dropped(source_pointer, raw, path, report)
        elif field == _SEARCH_TYPES:
            body.setdefault(field, []).append(to_snake_case(name.partition("/")[2]))
        else:
            body[field] = _to_interactions_value(name, raw)
    return body


def to_gemini_tool(
    tool: NativeTool, path: SourcePath, report: LossReport, config: dict[str, Any]
) -> tuple[str, dict[str, Any]] | None:
    """Convert an Interactions tool to `generateContent`; return its field in the tool object, and its value.

    Fields that belong in `toolConfig` are written to `config`. Return None if there is no such tool, or if the tool has
    a constraint that would be lost.
    """
    google_tool = next((candidate for candidate in _TOOLS if candidate.member and candidate.name == tool.kind), None)
    if google_tool is None or _has_constraint(tool):
        return None
    fields = {field: gemini_pointer for gemini_pointer, field in google_tool.fields.items()}
    body: dict[str, Any] = {}
    for name, source_pointer, raw in _flatten_members(tool.body, fields, any_case=False):
        pointer = fields.get(name)
        if name == "type":
            continue
        if pointer is None or (value := _to_gemini_value(name, raw)) is None:
            _report_dropped(source_pointer, raw, path, report)
        elif name == _SEARCH_TYPES:
            body["searchTypes"] = value
        elif pointer.startswith(CONFIG_PREFIX):
            set_at_pointer(config, pointer.removeprefix(CONFIG_PREFIX), value)
        else:
            set_at_pointer(body, pointer, value)
    return google_tool.member, body


def take_map_location(request: Request) -> tuple[Request, dict[str, Raw]]:
    """Remove the Google Maps coordinates from `retrievalConfig`, since Interactions has them on the tool.

    Return the request without them, and the coordinates as tool fields.
    """
    extras = (request.extras or {}).get(GEMINI, {})
    key = _retrieval_config_key(extras)
    if key is None or bytes(extras[key])[:1] != b"{" or not _has_maps(request):
        return request, {}
    members = decode_members(extras[key])
    location_key = next((name for name in members if to_camel_case(name) == "latLng"), None)
    if location_key is None or not _is_location(members[location_key]):
        return request, {}
    remaining = {name: raw for name, raw in extras.items() if name != key}
    remaining |= {f"{key}/{escape_pointer(name)}": raw for name, raw in members.items() if name != location_key}
    without_location = replace(request, extras={**(request.extras or {}), GEMINI: remaining})
    return without_location, decode_members(members[location_key])


def _retrieval_config_key(extras: Mapping[str, Raw]) -> str | None:
    """Return the pointer of `retrievalConfig` in the extras; None if it is absent.

    It may be camelCase or snake_case, at the root or in the SDK's `config`.
    """
    return next((name for name in extras if to_camel_case(name).endswith("toolConfig/retrievalConfig")), None)


def _is_location(raw: Raw) -> bool:
    """Check for an object of coordinates without other fields."""
    location = parse_json(raw)
    return isinstance(location, dict) and bool(location) and location.keys() <= {"latitude", "longitude"}


def _has_maps(request: Request) -> bool:
    """Check whether the request declares Google Maps."""
    return any(isinstance(tool, NativeTool) and to_camel_case(tool.name or "") == _MAPS for tool in request.tools or ())


def _has_constraint(tool: NativeTool) -> bool:
    """Check for a constraint that only one of the protocols has; the tool may not run without it."""
    body = parse_json(tool.body)
    return not isinstance(body, dict) or any(body.get(name) is not None for name in _CONSTRAINT_FIELDS)


def _report_dropped(pointer: str, raw: Raw, path: SourcePath, report: LossReport) -> None:
    """Report the loss of a tool setting that the target does not have."""
    for element_pointer in element_pointers(raw, pointer):
        report.dropped(path, "//" + element_pointer, "no equivalent in the target protocol")


def _flatten_members(body: Raw, fields: Mapping[str, str], *, any_case: bool) -> Iterator[tuple[str, str, Raw]]:
    """Yield each member with its camelCase pointer, its pointer in the source, and its value.

    With `any_case`, names may come in either spelling.
    """
    for name, raw in decode_members(body).items():
        member_name = to_camel_case(name) if any_case else name
        if bytes(raw) == b"null":
            continue
        if any(pointer.startswith(member_name + "/") for pointer in fields) and bytes(raw)[:1] == b"{":
            for inner_name, inner_pointer, value in _flatten_members(raw, {}, any_case=any_case):
                yield f"{member_name}/{inner_name}", f"{escape_pointer(name)}/{inner_pointer}", value
        else:
            yield member_name, escape_pointer(name), raw


def _to_interactions_value(name: str, raw: Raw) -> Any:
    """Return a field value with enum names in lower case, as Interactions writes them."""
    value = parse_json(raw)
    match name, value:
        case "environment", str() if _is_enum_name(value):
            return value.removeprefix(_ENVIRONMENT_PREFIX).lower()
        case "disabledSafetyPolicies", list() if all(_is_enum_name(item) for item in value):
            return [item.lower() for item in value]
        case _:
            return raw


def _is_enum_name(value: Any) -> bool:
    """Check for an enum value, which `generateContent` writes in capitals."""
    return isinstance(value, str) and value.replace("_", "").isalpha()


def _to_gemini_value(name: str, raw: Raw) -> Any:
    """Convert a field value to `generateContent`; return None if it has no counterpart."""
    value = parse_json(raw)
    match name, value:
        case "search_types", list() if all(item in ("web_search", IMAGE_SEARCH) for item in value):
            return {to_camel_case(item): {} for item in value}
        case "search_types", _:
            return None
        case "environment", str() if _is_enum_name(value):
            return _ENVIRONMENT_PREFIX + value.upper()
        case "disabled_safety_policies", list() if all(_is_enum_name(item) for item in value):
            return [item.upper() for item in value]
        case _:
            return raw


# ---- calls and results


def code_argument(arguments: Any, path: SourcePath, report: LossReport) -> str:
    """Return the code of a hosted call; report other arguments as losses, since both protocols run only Python."""
    members = arguments if isinstance(arguments, dict) else {}
    code, language = members.get("code"), members.get("language", "python")
    if members.keys() - {"code", "language"} or not isinstance(code, str) or str(language).lower() != "python":
        report.approximated(path, "", "only the code is sent, as Python")
    return code if isinstance(code, str) else ""


def step_name(call_type: str) -> str | None:
    """Return the Interactions tool name for a `toolType` of `generateContent`; None if there is none."""
    return next((tool.name for tool in _TOOLS if call_type in tool.call_types), None)


def call_type(step_name: str, *, image_search: bool = False) -> str | None:
    """Return the `toolType` of `generateContent` for an Interactions tool name; None if there is none."""
    if image_search and step_name == "google_search":
        return "GOOGLE_SEARCH_IMAGE"
    return next((tool.call_types[0] for tool in _TOOLS if tool.name == step_name and tool.call_types), None)


def as_list_result(response: Raw) -> Raw:
    """Convert the object of a `toolResponse` to the list that an Interactions result has."""
    match parse_json(response):
        case {"result": list() as elements, **other_fields} if not other_fields:
            return Raw(_encode_json(elements))
        case _:
            return Raw(b"[%b]" % bytes(response))


def as_object_result(result: Raw) -> Raw:
    """Convert the list of an Interactions hosted result to the object that a `toolResponse` has."""
    match parse_json(result):
        case [{**only}] if "url" not in only:
            return Raw(_encode_json(only))
        case dict():
            return result
        case _:
            return Raw(b'{"result":%b}' % bytes(result))
