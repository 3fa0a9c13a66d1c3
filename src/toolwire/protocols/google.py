"""What is the same in both of Google's protocols: the schemas that its models take, when calls are held to them, and
settings of a request that the one writes in capitals and the other in small letters."""

from typing import Any

import msgspec
from msgspec import Raw

from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool, NativeTool
from toolwire.codec.check import words
from toolwire.codec.hosted import json_of
from toolwire.codec.interface import Alike
from toolwire.codec.schema.dialect import Dialect
from toolwire.codec.tools import tools_in_force

_BOTH = words("type format title description enum items minItems maxItems minimum maximum anyOf") | words(
    "properties required additionalProperties propertyOrdering"
)

# The fields for JSON Schema ignore what is not in this list, and refuse anything beside a reference.
JSON_SCHEMA = Dialect(
    name="gemini",
    keeps=_BOTH | words("$id $defs $ref $anchor prefixItems oneOf"),
    references="definitions",
    enumerable=(str, int, float),
    unrolled=True,
)

# The older fields are typed objects: an unknown keyword, a null or a number in an enum, an array without items, or a
# required name without its property fails the whole request.
OPENAPI = Dialect(
    name="gemini-openapi",
    keeps=_BOTH | words("nullable default example minLength maxLength pattern minProperties maxProperties"),
    references="inlined",
    formats=words("date-time enum float double int32 int64"),
    enumerable=(str,),
    typed=True,
    nullable=True,
)


def is_validated(request: Request) -> bool:
    """Whether all functions are strict and may be chosen or not: that, and only that, is a mode of its own."""
    choice = request.tool_choice
    if choice is not None and choice.mode not in (None, "auto"):
        return False
    tools = [placed.tool for placed in tools_in_force(request) if not isinstance(placed.tool, NativeTool)]
    return bool(tools) and all(isinstance(tool, FunctionTool) and tool.strict for tool in tools)


# ---- what a request says in the words of either; the newer ones are the common words

RESOLUTIONS = ("low", "medium", "high", "ultra_high")
LEVEL = "MEDIA_RESOLUTION_"
_CATEGORY = "HARM_CATEGORY_"
_HARMS = words("hate_speech dangerous_content harassment sexually_explicit civic_integrity jailbreak") | words(
    "image_hate image_dangerous_content image_harassment image_sexually_explicit"
)
_THRESHOLDS = words("block_low_and_above block_medium_and_above block_only_high block_none off")
_METHODS = words("severity probability")

_encode = msgspec.json.Encoder().encode


def older_request(family: str) -> dict[str, dict[str, Alike]]:
    places = [place + name for name in ("safetySettings", "safety_settings") for place in ("", "config/")]
    return {"Request": {"safety": Alike(family, places[0], _newer_safety, _older_safety, tuple(places[1:]))}}


def newer_request(family: str) -> dict[str, dict[str, Alike]]:
    return {"Request": {"safety": Alike(family, "safety_settings", lambda value: value, lambda value: value)}}


def _newer_safety(value: Raw) -> Raw | None:
    made = [_newer_setting(one) for one in _objects(value)]
    return Raw(_encode(made)) if made and all(made) else None


def _newer_setting(one: dict[str, Any]) -> dict[str, Any] | None:
    match one:
        case {"category": str(category), "threshold": str(threshold), **more} if not more.keys() - {"method"}:
            made = {"type": category.removeprefix(_CATEGORY).lower(), "threshold": threshold.lower()}
            made |= {"method": str(more["method"]).lower()} if "method" in more else {}
            return made if _is_setting(made) else None
    return None


def _is_setting(made: dict[str, Any]) -> bool:
    """Whether both protocols have words for it."""
    known = made["type"] in _HARMS and made["threshold"] in _THRESHOLDS
    return known and made.get("method", "severity") in _METHODS


def _older_safety(value: Raw) -> Raw | None:
    made: list[dict[str, Any]] = []
    for one in _objects(value):
        match one:
            case {"type": str(kind), "threshold": str(threshold), **more} if not more.keys() - {"method"}:
                if not _is_setting(one):
                    return None
                method = {"method": str(more["method"]).upper()} if "method" in more else {}
                made.append({"category": _CATEGORY + kind.upper(), "threshold": threshold.upper(), **method})
            case _:
                return None
    return Raw(_encode(made)) if made else None


def _objects(value: Raw) -> list[dict[str, Any]]:
    """The elements, if it is a list of objects."""
    found = json_of(value)
    return found if isinstance(found, list) and all(isinstance(one, dict) for one in found) else []
