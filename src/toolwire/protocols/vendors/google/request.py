"""What is the same in both of Google's protocols: the schemas that its models take, when calls are held to them, and
settings of a request that the one writes in capitals and the other in small letters."""

from typing import Any

import msgspec
from msgspec import Raw

from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool, NativeTool
from toolwire.codec.encoding.hosted_tools import parse_json
from toolwire.codec.encoding.tools import conversation_tools
from toolwire.codec.interface import SharedExtra
from toolwire.codec.schema.dialect import Dialect
from toolwire.codec.validation import word_set

_SHARED_KEYWORDS = word_set(
    "type format title description enum items minItems maxItems minimum maximum anyOf"
) | word_set("properties required additionalProperties propertyOrdering")

# The fields for JSON Schema ignore what is not in this list, and refuse anything beside a reference.
JSON_SCHEMA = Dialect(
    name="gemini",
    keywords=_SHARED_KEYWORDS | word_set("$id $defs $ref $anchor prefixItems oneOf"),
    references="definitions",
    enum_types=(str, int, float),
    forbids_required_cycles=True,
)

# The older fields are typed objects: an unknown keyword, a null or a number in an enum, an array without items, or a
# required name without its property fails the whole request.
OPENAPI = Dialect(
    name="gemini-openapi",
    keywords=_SHARED_KEYWORDS
    | word_set("nullable default example minLength maxLength pattern minProperties maxProperties"),
    references="inlined",
    formats=word_set("date-time enum float double int32 int64"),
    enum_types=(str,),
    requires_types=True,
    has_nullable_keyword=True,
)


def has_only_strict_tools(request: Request) -> bool:
    """Whether all functions are strict and may be chosen or not: that, and only that, is a mode of its own."""
    choice = request.tool_choice
    if choice is not None and choice.mode not in (None, "auto"):
        return False
    tools = [placed.tool for placed in conversation_tools(request) if not isinstance(placed.tool, NativeTool)]
    return bool(tools) and all(isinstance(tool, FunctionTool) and tool.strict for tool in tools)


# ---- what a request says in the words of either; the newer ones are the common words

RESOLUTIONS = ("low", "medium", "high", "ultra_high")
RESOLUTION_PREFIX = "MEDIA_RESOLUTION_"
_CATEGORY_PREFIX = "HARM_CATEGORY_"
_HARMS = word_set("hate_speech dangerous_content harassment sexually_explicit civic_integrity jailbreak") | word_set(
    "image_hate image_dangerous_content image_harassment image_sexually_explicit"
)
_THRESHOLDS = word_set("block_low_and_above block_medium_and_above block_only_high block_none off")
_METHODS = word_set("severity probability")

_encode_json = msgspec.json.Encoder().encode


def shared_gemini_extras(family: str) -> dict[str, dict[str, SharedExtra]]:
    places = [place + name for name in ("safetySettings", "safety_settings") for place in ("", "config/")]
    return {
        "Request": {
            "safety": SharedExtra(family, places[0], _to_interactions_safety, _to_gemini_safety, tuple(places[1:]))
        }
    }


def shared_interactions_extras(family: str) -> dict[str, dict[str, SharedExtra]]:
    return {"Request": {"safety": SharedExtra(family, "safety_settings", lambda value: value, lambda value: value)}}


def _to_interactions_safety(value: Raw) -> Raw | None:
    made = [_to_interactions_setting(one) for one in _list_of_objects(value)]
    return Raw(_encode_json(made)) if made and all(made) else None


def _to_interactions_setting(setting: dict[str, Any]) -> dict[str, Any] | None:
    match setting:
        case {"category": str(category), "threshold": str(threshold), **more} if not more.keys() - {"method"}:
            made = {"type": category.removeprefix(_CATEGORY_PREFIX).lower(), "threshold": threshold.lower()}
            made |= {"method": str(more["method"]).lower()} if "method" in more else {}
            return made if _is_shared_setting(made) else None
    return None


def _is_shared_setting(setting: dict[str, Any]) -> bool:
    """Whether both protocols have words for it."""
    known = setting["type"] in _HARMS and setting["threshold"] in _THRESHOLDS
    return known and setting.get("method", "severity") in _METHODS


def _to_gemini_safety(value: Raw) -> Raw | None:
    made: list[dict[str, Any]] = []
    for one in _list_of_objects(value):
        match one:
            case {"type": str(kind), "threshold": str(threshold), **more} if not more.keys() - {"method"}:
                if not _is_shared_setting(one):
                    return None
                method = {"method": str(more["method"]).upper()} if "method" in more else {}
                made.append({"category": _CATEGORY_PREFIX + kind.upper(), "threshold": threshold.upper(), **method})
            case _:
                return None
    return Raw(_encode_json(made)) if made else None


def _list_of_objects(value: Raw) -> list[dict[str, Any]]:
    """The elements, if it is a list of objects."""
    found = parse_json(value)
    return found if isinstance(found, list) and all(isinstance(one, dict) for one in found) else []
