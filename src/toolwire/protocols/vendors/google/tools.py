"""MCP servers as Google's protocols declare them, to canonical and back; only the newer one bounds their tools.

Google's own tools, which both of its protocols have: declared, called and answered in the words of either.

The older one (Gemini) has a member of a tool for each, and calls in parts; the newer one (Interactions) has types of
tools and of steps. Ids and signatures are the same provider's, so that they pass.
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
from toolwire.codec.wire.reader import escape_pointer

_TRANSPORTS = ("streamableHttpTransport", "streamable_http_transport")

# ---- decode


def decode_interactions_server(raw: Raw, path: str) -> McpServer | None:
    said = parse_json(raw)
    if not isinstance(said, dict):
        return None
    wanted = said.get("allowed_tools")
    only = wanted[0] if isinstance(wanted, list) and len(wanted) == 1 and isinstance(wanted[0], dict) else {}
    names = string_tuple(only.get("tools")) if only.get("mode") in (None, "auto") else None
    known = ["type", "name", "url", "headers", *(["allowed_tools/0/tools", "allowed_tools/0/mode"] if names else [])]
    return _build_server(
        said, said, path, known, names, unportable=TOOLS_RESTRICTED if wanted and names is None else None
    )


def decode_gemini_server(raw: Raw, path: str) -> McpServer | None:
    said = parse_json(raw)
    if not isinstance(said, dict):
        return None
    word = next((one for one in _TRANSPORTS if isinstance(said.get(one), dict)), None)
    if word is None:
        return None
    return _build_server(said, said[word], path, ["name", f"{word}/url", f"{word}/headers"])


def _build_server(
    declaration: Mapping[str, Any],
    transport: Mapping[str, Any],
    path: str,
    read_fields: list[str],
    allowed: tuple[str, ...] | None = None,
    *,
    unportable: str | None = None,
) -> McpServer | None:
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
        others=tuple(unread_settings(declaration, path, [f"{path}/{one}" for one in read_fields])),
        at="",
    )


# ---- encode


def encode_interactions_server(server: McpServer, path: SourcePath, plan: EncodingPlan) -> dict[str, Any]:
    wire = {"type": "mcp_server", "name": server.name, **_encode_http_transport(server, path, plan)}
    return wire if server.allowed is None else {**wire, "allowed_tools": [{"tools": server.allowed}]}


def encode_gemini_server(server: McpServer, path: SourcePath, plan: EncodingPlan) -> dict[str, Any]:
    return {"name": server.name, "streamableHttpTransport": _encode_http_transport(server, path, plan)}


def _encode_http_transport(server: McpServer, path: SourcePath, plan: EncodingPlan) -> dict[str, Any]:
    report_unportable_settings(server, plan)
    if server.description is not None:
        plan.report.dropped((*path, "server"), "description")
    headers = server_headers(server)
    return {"url": server.url, **({"headers": headers} if headers else {})}


GEMINI, INTERACTIONS = "gemini", "gemini-interactions"

CONFIG_PREFIX = "//"
"""Before a field of the older protocol's that stands in `toolConfig`, not in the tool."""


class GoogleTool(Struct, frozen=True):
    """`member` and `calls` are the older protocol's words for the tool and for its calls, `word` the newer one's;
    `fields` of a declaration are from the older to the newer one."""

    member: str
    name: str
    call_types: tuple[str, ...] = ()
    fields: Mapping[str, str] = {}


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
"""The members that hold several."""

STEPS_WITHOUT_CONTENT = ("file_search", "processing")
"""Whose steps say neither what was asked nor what was found."""

IMAGE_SEARCH = "image_search"
_CONSTRAINT_FIELDS = ("allowed_tools", "excludeDomains", "exclude_domains")
_ENVIRONMENT_PREFIX = "ENVIRONMENT_"
_UNDERSCORE = re.compile("_([a-z])")
_UPPERCASE = re.compile("[A-Z]")

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_encode_json = msgspec.json.Encoder().encode


def to_camel_case(name: str) -> str:
    return _UNDERSCORE.sub(lambda match: match[1].upper(), name)


def to_snake_case(name: str) -> str:
    return _UPPERCASE.sub(lambda match: "_" + match[0].lower(), name)


# ---- declarations


def to_interactions_tool(tool: NativeTool, path: SourcePath, report: LossReport) -> dict[str, Any] | None:
    """The older protocol's declaration as the newer one's; None if it has no such tool, or none that is so bound."""
    known = next((one for one in _TOOLS if one.member and one.member == to_camel_case(tool.name or "")), None)
    if known is None or _has_constraint(tool):
        return None
    wire: dict[str, Any] = {"type": known.name}
    for name, place, raw in _flatten_members(tool.body, known.fields, any_case=True):
        field = known.fields.get(name)
        if field is None or (field == _SEARCH_TYPES and bytes(raw) != b"{}"):
            _report_dropped(place, raw, path, report)
        elif field == _SEARCH_TYPES:
            wire.setdefault(field, []).append(to_snake_case(name.partition("/")[2]))
        else:
            wire[field] = _to_interactions_value(name, raw)
    return wire


def to_gemini_tool(
    tool: NativeTool, path: SourcePath, report: LossReport, config: dict[str, Any]
) -> tuple[str, dict[str, Any]] | None:
    """The newer protocol's declaration as the older one's: the member, and what is in it. Some of it is `config`."""
    known = next((one for one in _TOOLS if one.member and one.name == tool.kind), None)
    if known is None or _has_constraint(tool):
        return None
    fields = {theirs: ours for ours, theirs in known.fields.items()}
    wire: dict[str, Any] = {}
    for name, place, raw in _flatten_members(tool.body, fields, any_case=False):
        pointer = fields.get(name)
        if name == "type":
            continue
        if pointer is None or (value := _to_gemini_value(name, raw)) is None:
            _report_dropped(place, raw, path, report)
        elif name == _SEARCH_TYPES:
            wire["searchTypes"] = value
        elif pointer.startswith(CONFIG_PREFIX):
            set_at_pointer(config, pointer.removeprefix(CONFIG_PREFIX), value)
        else:
            set_at_pointer(wire, pointer, value)
    return known.member, wire


def take_map_location(request: Request) -> tuple[Request, dict[str, Raw]]:
    """Where the older protocol's maps are to look, as the newer one's tool has it, and the request without that."""
    own = (request.extras or {}).get(GEMINI, {})
    key = next((name for name in own if to_camel_case(name).endswith("toolConfig/retrievalConfig")), None)
    maps = [
        tool for tool in request.tools or () if isinstance(tool, NativeTool) and to_camel_case(tool.name or "") == _MAPS
    ]
    members = {} if key is None or not maps or bytes(own[key])[:1] != b"{" else _decode_members(own[key])
    name = next((one for one in members if to_camel_case(one) == "latLng"), None)
    place = None if name is None else parse_json(members[name])
    if name is None or not isinstance(place, dict) or not place or place.keys() - {"latitude", "longitude"}:
        return request, {}
    left = {one: raw for one, raw in own.items() if one != key}
    left |= {f"{key}/{escape_pointer(one)}": raw for one, raw in members.items() if one != name}
    return replace(request, extras={**(request.extras or {}), GEMINI: left}), _decode_members(members[name])


def _has_constraint(tool: NativeTool) -> bool:
    """Whether it is bound by what only one of the protocols can keep: without that it may not run."""
    body = parse_json(tool.body)
    return not isinstance(body, dict) or any(body.get(name) is not None for name in _CONSTRAINT_FIELDS)


def _report_dropped(pointer: str, raw: Raw, path: SourcePath, report: LossReport) -> None:
    for each in element_pointers(raw, pointer):
        report.dropped(path, "//" + each, "no equivalent in the target protocol")


def _flatten_members(body: Raw, fields: Mapping[str, str], *, any_case: bool) -> Iterator[tuple[str, str, Raw]]:
    """Each member as its pointer, the pointer as it was spelt, and its value. `spelt`: in either of two ways."""
    for name, raw in _decode_members(body).items():
        usual = to_camel_case(name) if any_case else name
        if bytes(raw) == b"null":
            continue
        if any(pointer.startswith(usual + "/") for pointer in fields) and bytes(raw)[:1] == b"{":
            for below, place, value in _flatten_members(raw, {}, any_case=any_case):
                yield f"{usual}/{below}", f"{escape_pointer(name)}/{place}", value
        else:
            yield usual, escape_pointer(name), raw


def _to_interactions_value(name: str, raw: Raw) -> Any:
    value = parse_json(raw)
    match name, value:
        case "environment", str() if _is_enum_name(value):
            return value.removeprefix(_ENVIRONMENT_PREFIX).lower()
        case "disabledSafetyPolicies", list() if all(_is_enum_name(word) for word in value):
            return [word.lower() for word in value]
        case _:
            return raw


def _is_enum_name(value: Any) -> bool:
    """Whether it is one of a list of words, which the one protocol writes in capitals."""
    return isinstance(value, str) and value.replace("_", "").isalpha()


def _to_gemini_value(name: str, raw: Raw) -> Any:
    value = parse_json(raw)
    match name, value:
        case "search_types", list() if all(word in ("web_search", IMAGE_SEARCH) for word in value):
            return {to_camel_case(word): {} for word in value}
        case "search_types", _:
            return None
        case "environment", str() if _is_enum_name(value):
            return _ENVIRONMENT_PREFIX + value.upper()
        case "disabled_safety_policies", list() if all(_is_enum_name(word) for word in value):
            return [word.upper() for word in value]
        case _:
            return raw


# ---- calls and results


def code_argument(arguments: Any, path: SourcePath, report: LossReport) -> str:
    """The code that a tool was asked to run, which is Python in both; what else is said there is a loss."""
    members = arguments if isinstance(arguments, dict) else {}
    code, language = members.get("code"), members.get("language", "python")
    if members.keys() - {"code", "language"} or not isinstance(code, str) or str(language).lower() != "python":
        report.approximated(path, "", "only the code is sent, as Python")
    return code if isinstance(code, str) else ""


def step_name(call_type: str) -> str | None:
    """The newer protocol's word for the tool whose calls have this type."""
    return next((one.name for one in _TOOLS if call_type in one.call_types), None)


def call_type(step_name: str, *, image_search: bool = False) -> str | None:
    """The type of the calls that the newer protocol tells in steps of this word."""
    if image_search and step_name == "google_search":
        return "GOOGLE_SEARCH_IMAGE"
    return next((one.call_types[0] for one in _TOOLS if one.name == step_name and one.call_types), None)


def as_list_result(response: Raw) -> Raw:
    """What a tool found, as the newer protocol lists it."""
    match parse_json(response):
        case {"result": list() as found, **more} if not more:
            return Raw(_encode_json(found))
        case _:
            return Raw(b"[%b]" % bytes(response))


def as_object_result(result: Raw) -> Raw:
    """What a tool found, as the object that the older protocol has for it."""
    match parse_json(result):
        case [{**only}] if "url" not in only:
            return Raw(_encode_json(only))
        case dict():
            return result
        case _:
            return Raw(b'{"result":%b}' % bytes(result))
