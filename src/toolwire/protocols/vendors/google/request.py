"""Schema dialects, strict mode and safety settings shared by Google's two protocols.

`generateContent` writes enum values in capitals, Interactions in lower case.
"""

from typing import Any

import msgspec
from msgspec import Raw

from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool, NativeTool
from toolwire.codec.encoding.hosted_tools import parse_json
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.interface import SharedExtra
from toolwire.codec.schema.dialect import Dialect
from toolwire.codec.validation import word_set

_SHARED_KEYWORDS = word_set(
    "type format title description enum items minItems maxItems minimum maximum anyOf"
) | word_set("properties required additionalProperties propertyOrdering")

# The JSON Schema fields ignore other keywords, and reject siblings of a reference.
JSON_SCHEMA = Dialect(
    name="gemini",
    keywords=_SHARED_KEYWORDS | word_set("$id $defs $ref $anchor prefixItems oneOf"),
    references="definitions",
    enum_types=(str, int, float),
    forbids_required_cycles=True,
)

# The OpenAPI fields are typed objects. An unknown keyword, a null or number in an enum, an array without items, or a
# required name without its property fails the request.
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


def has_only_strict_tools(request: Request, plan: EncodingPlan) -> bool:
    """Check whether all functions are strict and none is forced, so that mode `VALIDATED` applies."""
    choice = request.tool_choice
    if choice is not None and choice.mode not in (None, "auto"):
        return False
    tools = [located.tool for located in plan.offered_tools(request) if type(located.tool) is not NativeTool]
    return bool(tools) and all(type(tool) is FunctionTool and tool.strict for tool in tools)


# ---- safety settings; the lowercase values of Interactions are the shared form

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
    """Return the extras of `generateContent` that Interactions also has, with their conversion."""
    pointers = [prefix + name for name in ("safetySettings", "safety_settings") for prefix in ("", "config/")]
    return {
        "Request": {
            "safety": SharedExtra(family, pointers[0], _to_interactions_safety, _to_gemini_safety, tuple(pointers[1:]))
        }
    }


def shared_interactions_extras(family: str) -> dict[str, dict[str, SharedExtra]]:
    """Return the extras of Interactions that `generateContent` also has, with their conversion."""
    return {"Request": {"safety": SharedExtra(family, "safety_settings", lambda value: value, lambda value: value)}}


def _to_interactions_safety(value: Raw) -> Raw | None:
    """Convert safety settings of `generateContent` to Interactions; None if one has no counterpart."""
    settings = [_to_interactions_setting(setting) for setting in _list_of_objects(value)]
    return Raw(_encode_json(settings)) if settings and all(settings) else None


def _to_interactions_setting(setting: dict[str, Any]) -> dict[str, Any] | None:
    """Convert one safety setting of `generateContent` to Interactions; None without a counterpart."""
    match setting:
        case {"category": str(category), "threshold": str(threshold), **other_fields} if not other_fields.keys() - {
            "method"
        }:
            converted = {"type": category.removeprefix(_CATEGORY_PREFIX).lower(), "threshold": threshold.lower()}
            converted |= {"method": str(other_fields["method"]).lower()} if "method" in other_fields else {}
            return converted if _is_shared_setting(converted) else None
    return None


def _is_shared_setting(setting: dict[str, Any]) -> bool:
    """Check whether both protocols have this category, threshold and method."""
    is_known = setting["type"] in _HARMS and setting["threshold"] in _THRESHOLDS
    method = setting.get("method", "severity")
    return is_known and isinstance(method, str) and method in _METHODS


def _to_gemini_safety(value: Raw) -> Raw | None:
    """Convert safety settings of Interactions to `generateContent`; None if one has no counterpart."""
    settings: list[dict[str, Any]] = []
    for setting in _list_of_objects(value):
        match setting:
            case {"type": str(kind), "threshold": str(threshold), **other_fields} if not other_fields.keys() - {
                "method"
            }:
                if not _is_shared_setting(setting):
                    return None
                method = {"method": str(other_fields["method"]).upper()} if "method" in other_fields else {}
                settings.append({"category": _CATEGORY_PREFIX + kind.upper(), "threshold": threshold.upper(), **method})
            case _:
                return None
    return Raw(_encode_json(settings)) if settings else None


def _list_of_objects(value: Raw) -> list[dict[str, Any]]:
    """Return the elements of a JSON list of objects, or an empty list."""
    elements = parse_json(value)
    return elements if isinstance(elements, list) and all(isinstance(element, dict) for element in elements) else []
