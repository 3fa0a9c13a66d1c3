"""Google's own tools, which both of its protocols have: declared, called and answered in the words of either.

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
from toolwire.canonical.tools import NativeTool
from toolwire.codec.fields import escape
from toolwire.codec.hosted import json_of, put
from toolwire.codec.losses import Report, Trail, elements

OLDER, NEWER = "gemini", "gemini-interactions"

CONFIG = "//"
"""Before a field of the older protocol's that stands in `toolConfig`, not in the tool."""


class GoogleTool(Struct, frozen=True):
    """`member` and `calls` are the older protocol's words for the tool and for its calls, `word` the newer one's;
    `fields` of a declaration are from the older to the newer one."""

    member: str
    word: str
    calls: tuple[str, ...] = ()
    fields: Mapping[str, str] = {}


_SEARCHES = "search_types"
_MAPS = "googleMaps"
_TOOLS = (
    GoogleTool(
        "googleSearch",
        "google_search",
        ("GOOGLE_SEARCH_WEB", "GOOGLE_SEARCH_IMAGE"),
        {"searchTypes/webSearch": _SEARCHES, "searchTypes/imageSearch": _SEARCHES},
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
            f"{CONFIG}retrievalConfig/latLng/latitude": "latitude",
            f"{CONFIG}retrievalConfig/latLng/longitude": "longitude",
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
LISTED = ("mcpServers",)
"""The members that hold several."""

SILENT = ("file_search", "processing")
"""Whose steps say neither what was asked nor what was found."""

IMAGES = "image_search"
_GUARDS = ("allowed_tools", "excludeDomains", "exclude_domains")
_ENVIRONMENT = "ENVIRONMENT_"
_UNDERSCORE = re.compile("_([a-z])")
_UPPER = re.compile("[A-Z]")

_members = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


def camel(name: str) -> str:
    return _UNDERSCORE.sub(lambda match: match[1].upper(), name)


def snake(name: str) -> str:
    return _UPPER.sub(lambda match: "_" + match[0].lower(), name)


# ---- declarations


def newer(tool: NativeTool, trail: Trail, report: Report) -> dict[str, Any] | None:
    """The older protocol's declaration as the newer one's; None if it has no such tool, or none that is so bound."""
    known = next((one for one in _TOOLS if one.member and one.member == camel(tool.name or "")), None)
    if known is None or _is_guarded(tool):
        return None
    wire: dict[str, Any] = {"type": known.word}
    for name, place, raw in _opened(tool.body, known.fields, spelt=True):
        field = known.fields.get(name)
        if field is None or (field == _SEARCHES and bytes(raw) != b"{}"):
            _drop(place, raw, trail, report)
        elif field == _SEARCHES:
            wire.setdefault(field, []).append(snake(name.partition("/")[2]))
        else:
            wire[field] = _newer_value(name, raw)
    return wire


def older(tool: NativeTool, trail: Trail, report: Report, config: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """The newer protocol's declaration as the older one's: the member, and what is in it. Some of it is `config`."""
    known = next((one for one in _TOOLS if one.member and one.word == tool.kind), None)
    if known is None or _is_guarded(tool):
        return None
    fields = {theirs: ours for ours, theirs in known.fields.items()}
    wire: dict[str, Any] = {}
    for name, place, raw in _opened(tool.body, fields, spelt=False):
        pointer = fields.get(name)
        if name == "type":
            continue
        if pointer is None or (value := _older_value(name, raw)) is None:
            _drop(place, raw, trail, report)
        elif name == _SEARCHES:
            wire["searchTypes"] = value
        elif pointer.startswith(CONFIG):
            put(config, pointer.removeprefix(CONFIG), value)
        else:
            put(wire, pointer, value)
    return known.member, wire


def located(request: Request) -> tuple[Request, dict[str, Raw]]:
    """Where the older protocol's maps are to look, as the newer one's tool has it, and the request without that."""
    own = (request.extras or {}).get(OLDER, {})
    key = next((name for name in own if camel(name).endswith("toolConfig/retrievalConfig")), None)
    maps = [tool for tool in request.tools or () if isinstance(tool, NativeTool) and camel(tool.name or "") == _MAPS]
    members = {} if key is None or not maps or bytes(own[key])[:1] != b"{" else _members(own[key])
    name = next((one for one in members if camel(one) == "latLng"), None)
    place = None if name is None else json_of(members[name])
    if name is None or not isinstance(place, dict) or not place or place.keys() - {"latitude", "longitude"}:
        return request, {}
    left = {one: raw for one, raw in own.items() if one != key}
    left |= {f"{key}/{escape(one)}": raw for one, raw in members.items() if one != name}
    return replace(request, extras={**(request.extras or {}), OLDER: left}), _members(members[name])


def _is_guarded(tool: NativeTool) -> bool:
    """Whether it is bound by what only one of the protocols can keep: without that it may not run."""
    body = json_of(tool.body)
    return not isinstance(body, dict) or any(body.get(name) is not None for name in _GUARDS)


def _drop(place: str, raw: Raw, trail: Trail, report: Report) -> None:
    for each in elements(raw, place):
        report.dropped(trail, "//" + each, "Google's other protocol has no such setting")


def _opened(body: Raw, fields: Mapping[str, str], *, spelt: bool) -> Iterator[tuple[str, str, Raw]]:
    """Each member as its pointer, the pointer as it was spelt, and its value. `spelt`: in either of two ways."""
    for name, raw in _members(body).items():
        usual = camel(name) if spelt else name
        if bytes(raw) == b"null":
            continue
        if any(pointer.startswith(usual + "/") for pointer in fields) and bytes(raw)[:1] == b"{":
            for below, place, value in _opened(raw, {}, spelt=spelt):
                yield f"{usual}/{below}", f"{escape(name)}/{place}", value
        else:
            yield usual, escape(name), raw


def _newer_value(name: str, raw: Raw) -> Any:
    value = json_of(raw)
    match name, value:
        case "environment", str() if _is_word(value):
            return value.removeprefix(_ENVIRONMENT).lower()
        case "disabledSafetyPolicies", list() if all(_is_word(word) for word in value):
            return [word.lower() for word in value]
        case _:
            return raw


def _is_word(value: Any) -> bool:
    """Whether it is one of a list of words, which the one protocol writes in capitals."""
    return isinstance(value, str) and value.replace("_", "").isalpha()


def _older_value(name: str, raw: Raw) -> Any:
    value = json_of(raw)
    match name, value:
        case "search_types", list() if all(word in ("web_search", IMAGES) for word in value):
            return {camel(word): {} for word in value}
        case "search_types", _:
            return None
        case "environment", str() if _is_word(value):
            return _ENVIRONMENT + value.upper()
        case "disabled_safety_policies", list() if all(_is_word(word) for word in value):
            return [word.upper() for word in value]
        case _:
            return raw


# ---- calls and results


def code_of(said: Any, trail: Trail, report: Report) -> str:
    """The code that a tool was asked to run, which is Python in both; what else is said there is a loss."""
    members = said if isinstance(said, dict) else {}
    code, language = members.get("code"), members.get("language", "python")
    if members.keys() - {"code", "language"} or not isinstance(code, str) or str(language).lower() != "python":
        report.approximated(trail, "", "only its code is told, as Python")
    return code if isinstance(code, str) else ""


def step_of(call: str) -> str | None:
    """The newer protocol's word for the tool whose calls have this type."""
    return next((one.word for one in _TOOLS if call in one.calls), None)


def type_of(step: str, *, images: bool = False) -> str | None:
    """The type of the calls that the newer protocol tells in steps of this word."""
    if images and step == "google_search":
        return "GOOGLE_SEARCH_IMAGE"
    return next((one.calls[0] for one in _TOOLS if one.word == step and one.calls), None)


def listed(response: Raw) -> Raw:
    """What a tool found, as the newer protocol lists it."""
    match json_of(response):
        case {"result": list() as found, **more} if not more:
            return Raw(_encode(found))
        case _:
            return Raw(b"[%b]" % bytes(response))


def as_object(result: Raw) -> Raw:
    """What a tool found, as the object that the older protocol has for it."""
    match json_of(result):
        case [{**only}] if "url" not in only:
            return Raw(_encode(only))
        case dict():
            return result
        case _:
            return Raw(b'{"result":%b}' % bytes(result))
