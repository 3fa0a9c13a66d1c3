"""Thought steps, to canonical reasoning and back."""

from base64 import b64decode, b64encode
from typing import Any

from msgspec import UNSET

from toolwire.canonical.content import Media, Reasoning, ReasoningText, Seal
from toolwire.codec.carries import Carried, is_carry
from toolwire.codec.kept import emit, rest
from toolwire.codec.losses import Trail
from toolwire.codec.turns import Placed
from toolwire.protocols.gemini_interactions.wire import FAMILY, ISSUER, TextContent, Thought

from .content import decode_block, encode_media
from .plan import StepPlan

_NO_SUMMARY = "gemini-interactions:absent:summary"
_CARRY = "gemini-interactions:carry"
_CARRY_START = "dHcxL"
"""How a carry starts in base64, which a signature must be."""


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
    if signature.startswith(_CARRY_START):
        try:
            carry = b64decode(signature, validate=True).decode()
        except ValueError:
            carry = ""
        if is_carry(carry) and b64encode(carry.encode()).decode() == signature:
            return Seal(issuer=ISSUER, data=carry, kind="signature", at="/signature", form=(_CARRY,))
    return Seal(issuer=ISSUER, data=signature, kind="signature", at="/signature")


# ---- encode


def encode_signature(seal: Seal) -> str:
    return b64encode(seal.data.encode()).decode() if _CARRY in seal.form else seal.data


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
        shape.signature = encode_signature(seal)
    elif carry := sealed_carry(part, placed.trail, plan):
        shape.signature = carry
    if not plan.home:
        if part.id is not None:
            plan.report.dropped(placed.trail, "id")
        if shape == Thought():
            return None
    return emit(shape, part, FAMILY)


def sealed_carry(part: Reasoning, trail: Trail, plan: StepPlan) -> str:
    """What proves another issuer's reasoning, in the field that clients echo; "" where nothing can."""
    if part.seal is None or part.seal.issuer == ISSUER:
        return ""
    if plan.carrier is None or not plan.answering:
        plan.report.dropped((*trail, "seal"), "", "there is no key to seal another issuer's proof with")
        return ""
    return b64encode(plan.carrier.seal(Carried(reasoning=part)).encode()).decode()
