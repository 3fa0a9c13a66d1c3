"""Reasoning items, to canonical reasoning and back."""

from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from toolwire.canonical.content import Media, Message, Reasoning, ReasoningText, Seal
from toolwire.codec.kept import emit, given, known, rest
from toolwire.codec.turns import Placed
from toolwire.protocols.openai_responses.wire import FAMILY, ISSUER, ReasoningItem, ThoughtShape

from .content import beside
from .plan import ItemPlan

_NO_SUMMARY = "openai-responses:absent:summary"
_EMPTY_CONTENT = "openai-responses:empty:content"
_NO_TYPE = "openai-responses:absent:type"


# ---- decode


def decode_reasoning(shape: ReasoningItem) -> Message:
    form: list[str] = []
    if shape.summary is UNSET:
        form.append(_NO_SUMMARY)
    if shape.content is not UNSET and not shape.content:
        form.append(_EMPTY_CONTENT)
    content = [
        *(_decode_thought(one, "summary", index) for index, one in enumerate(shape.summary or ())),
        *(_decode_thought(one, "content", index) for index, one in enumerate(shape.content or ())),
    ]
    sealed = shape.encrypted_content
    reasoning = Reasoning(
        content=tuple(content),
        hidden=None if content else "omitted",
        seal=None if sealed is UNSET else Seal(issuer=ISSUER, data=sealed, kind="encrypted", at="/encrypted_content"),
        at="",
        **rest(shape, FAMILY, *form),
    )
    return Message(role="assistant", parts=(reasoning,), id=known(shape.id), status=known(shape.status))


def _decode_thought(shape: ThoughtShape, field: str, index: int) -> ReasoningText:
    kept = rest(shape, FAMILY)
    if shape.type != ("summary_text" if field == "summary" else "reasoning_text"):
        kept = beside(rest(shape, FAMILY, _NO_TYPE), type=shape.type)
    kind: Any = "summary" if field == "summary" else "full"
    return ReasoningText(kind=kind, text=shape.text, at=f"/{field}/{index}", **kept)


# ---- encode


def encode_reasoning(part: Reasoning, placed: Placed, plan: ItemPlan, message: Message) -> Any:
    ours = part.seal is not None and part.seal.issuer == ISSUER
    texts = [block for block in part.content if isinstance(block, ReasoningText)]
    if not plan.home:
        if not plan.answering and not ours:
            plan.report.dropped(placed.trail, "", "reasoning that this provider did not seal can't be sent to it")
            return None
        if not ours:
            plan.unproved(part, placed.trail)
            if part.id is not None:
                plan.report.dropped(placed.trail, "id", "what another provider calls it has no place")
            if not texts:
                return None
        message = plan.envelope("rs")
        if part.id is not None and ours and plan.answering and plan.held is None:
            message = replace(message, id=part.id)  # what is encrypted is only good under its own name
        texts = [ReasoningText(kind="summary", text=block.text) for block in texts]
    for index, block in enumerate(part.content):
        if isinstance(block, Media):
            plan.report.dropped((*placed.trail, "content", index), "")
    shape = ReasoningItem(id=given(message.id if message.id is not None else part.id), status=given(message.status))
    full = [_encode_thought(block) for block in texts if block.kind == "full"]
    summary = [_encode_thought(block) for block in texts if block.kind == "summary"]
    shape.summary = UNSET if _NO_SUMMARY in part.form and not summary else summary
    shape.content = full if full or _EMPTY_CONTENT in part.form else UNSET
    shape.encrypted_content = part.seal.data if ours and part.seal is not None else UNSET
    return emit(shape, part, FAMILY)


def _encode_thought(block: ReasoningText) -> Any:
    kind = "summary_text" if block.kind == "summary" else "reasoning_text"
    return emit(ThoughtShape(text=block.text, type=UNSET if _NO_TYPE in block.form else kind), block, FAMILY)
