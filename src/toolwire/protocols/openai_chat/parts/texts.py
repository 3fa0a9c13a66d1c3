"""The texts of a message or a result, as one string or as parts."""

from typing import Any

from msgspec import UNSET

from toolwire.codec.losses import Trail
from toolwire.codec.plan import Plan
from toolwire.protocols.openai_chat.wire import TextPart


def plain_content(parts: list[Any], trail: Trail, plan: Plan, separator: str = "\n\n") -> Any:
    """Return the parts as a string where that says all of it, or where the host takes texts no other way."""
    if len(parts) == 1:
        return parts[0].text if _is_bare(parts[0]) else parts
    if not parts:
        return ""
    if not plan.target.host.string_content or not all(map(_is_bare, parts)):
        return parts
    plan.report.approximated(trail, "", "the host may take texts as one string only: joined")
    return separator.join([part.text for part in parts])


def _is_bare(part: Any) -> bool:
    return type(part) is TextPart and part.prompt_cache_breakpoint is UNSET
