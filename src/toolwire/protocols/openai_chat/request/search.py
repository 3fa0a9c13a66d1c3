"""Chat's one hosted tool, web search, which is no tool here but a field of the request, and of some models only."""

import re
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.request import Request
from toolwire.canonical.tools import NativeTool, Tool
from toolwire.codec.hosted import Spelling, choosable, decode_hosted, encode_hosted, is_native
from toolwire.codec.plan import Plan
from toolwire.protocols.openai_chat.wire import FAMILY

FIELD = "web_search_options"
ELSEWHERE = "openai-chat:elsewhere"
"""A tool that is declared outside `tools`: at home what was kept of the request tells it."""
NO_TOOLS = "openai-chat:tools:empty"
TOLD = f"{FAMILY}:told:{FIELD}"

HOSTED = Spelling(
    family=FAMILY,
    words={"web_search": (FIELD,)},
    options={"web_search": {"context_size": "search_context_size", "location": "user_location"}},
)

# `web_search_options` is refused by all other models.
_SEARCHES = re.compile(r"search")
_members = msgspec.json.Decoder(dict[str, Raw]).decode


# ---- decode


def decode_search(raw: Raw, tools: tuple[Tool, ...] | None) -> NativeTool | None:
    """The search that the field asks for; None if it is no object."""
    if (hosted := decode_hosted(FIELD, raw, HOSTED)) is None:
        return None
    if hosted.location is not None:
        hosted = replace(hosted, location=_flat(hosted.location))
    form = (ELSEWHERE, NO_TOOLS) if tools == () else (ELSEWHERE,)
    return NativeTool(protocol=FAMILY, kind="web_search", body=raw, hosted=hosted, at=f"/{FIELD}", form=form)


def _flat(location: Raw) -> Raw:
    """Others have no object within this one."""
    members: dict[str, Any] = dict(_members(location))
    inner = members.pop("approximate", None)
    if inner is None or bytes(inner)[:1] != b"{":
        return location
    return Raw(msgspec.json.encode({**members, **_members(inner)}))


# ---- encode


def is_search(tool: NativeTool, plan: Plan) -> bool:
    """Whether it is the search of the model that is asked."""
    return _has_search(plan) and is_native(tool, HOSTED)


def _has_search(plan: Plan) -> bool:
    return plan.target.host.web_search and _SEARCHES.search(plan.target.model or "") is not None


def encode_search(request: Request, plan: Plan) -> dict[str, Any]:
    """The field, where another protocol's request has a search and the model one, too."""
    if plan.home or not _has_search(plan):
        return {}
    for placed in choosable(request, plan):
        if isinstance(placed.tool, NativeTool) and is_search(placed.tool, plan):
            options = encode_hosted(placed.tool, placed.trail, HOSTED, plan)
            if "user_location" in options:
                place = dict(_members(options["user_location"]))
                kind = place.pop("type", "approximate")
                options["user_location"] = {"type": kind, "approximate": place}
            return {FIELD: options}
    return {}
