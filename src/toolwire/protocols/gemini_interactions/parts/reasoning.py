"""Thought steps, to canonical reasoning and back."""

from typing import Any

from msgspec import UNSET

from toolwire.canonical.content import Media, Reasoning, ReasoningText, Seal
from toolwire.codec.kept import emit, rest
from toolwire.codec.turns import Placed
from toolwire.protocols.gemini_interactions.wire import FAMILY, ISSUER, TextContent, Thought

from .content import decode_block, encode_media
from .plan import StepPlan

_NO_SUMMARY = "gemini-interactions:absent:summary"


# ---- decode


def decode_thought(shape: Thought) -> Reasoning | None:
    """None if the summary has something that is neither text nor media."""
    content = [_decode_summary(block, index) for index, block in enumerate(shape.summary or ())]
    known_ones = tuple([one for one in content if one is not None])
    if len(known_ones) < len(content):
        return None
    form = (_NO_SUMMARY,) if shape.summary is UNSET else ()
    return Reasoning(
        content=known_ones,
        hidden=None if content else "omitted",
        seal=None if shape.signature is UNSET else decode_signature(shape.signature),
        at="",
        **rest(shape, FAMILY, *form),
    )


def _decode_summary(block: Any, index: int) -> ReasoningText | Media | None:
    place = f"/summary/{index}"
    if type(block) is TextContent and block.annotations is UNSET:
        return ReasoningText(kind="summary", text=block.text, at=place, **rest(block, FAMILY))
    part = decode_block(block)
    return part if isinstance(part, Media) else None


def decode_signature(signature: str) -> Seal:
    return Seal(issuer=ISSUER, data=signature, kind="signature", at="/signature")


# ---- encode


def encode_thought(part: Reasoning, placed: Placed, plan: StepPlan) -> Any:
    """Thoughts go back only to the one who thought them. A client may read them all."""
    seal = part.seal
    own = seal is not None and seal.issuer == ISSUER
    if not plan.home and not own and not plan.answering and not plan.google:
        plan.report.dropped(placed.trail, "", "reasoning that this provider did not seal can't be sent to it")
        return None
    summary = []
    for index, block in enumerate(part.content):
        trail = (*placed.trail, "content", index)
        if isinstance(block, ReasoningText):
            summary.append(emit(TextContent(text=block.text), block, FAMILY))
        elif (media := encode_media(block, trail, plan)) is not None:
            summary.append(media)
    shape = Thought(summary=summary)
    if not summary and (_NO_SUMMARY in part.form or not plan.home):
        shape.summary = UNSET
    if seal is not None and own:
        shape.signature = seal.data
    elif not plan.home:
        plan.unproved(part, placed.trail)
    if not plan.home:
        if part.id is not None:
            plan.report.dropped(placed.trail, "id")
        if shape == Thought():
            return None
    return emit(shape, part, FAMILY)
