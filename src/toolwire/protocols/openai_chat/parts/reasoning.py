"""Reasoning as compatible servers write it, in fields that the official protocol lacks, to canonical and back."""

import re
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.canonical.content import Media, Part, Reasoning, ReasoningText
from toolwire.codec.plan import Plan
from toolwire.codec.turns import Placed
from toolwire.protocols.openai_chat.wire import MessageShape

REASONING = "openai-chat:reasoning:"
DETAILS = "openai-chat:reasoning:details"

_WANTS_REASONING = re.compile(r"deepseek|kimi|moonshot|mimo|glm-|qwen|qwq|minimax", re.IGNORECASE)

_decode_details = msgspec.json.Decoder(list[dict[str, Any]]).decode


# ---- decode


def decode_reasoning(shape: MessageShape, parts: list[Part], extras: dict[str, Raw]) -> None:
    """One part, whichever field has it. What else says the same stays as it is, beside it."""
    for name in ("reasoning_content", "reasoning"):
        text = getattr(shape, name)
        if isinstance(text, str):
            if parts:
                extras[name] = Raw(msgspec.json.encode(text))
                continue
            content = (ReasoningText(kind="full", text=text, at=""),) if text else ()
            parts.append(Reasoning(content=content, at=f"/{name}", form=(REASONING + name,)))
    if not parts and shape.unknown is not UNSET and (details := shape.unknown.get("reasoning_details")) is not None:
        texts = details_text(details)
        if texts:
            told = tuple(ReasoningText(kind="full", text=text, at="") for text in texts)
            parts.append(Reasoning(content=told, at="/reasoning_details/0", form=(DETAILS,)))


def details_text(raw: Raw) -> list[str]:
    """What can be read in OpenRouter's `reasoning_details`."""
    try:
        details = _decode_details(raw)
    except msgspec.DecodeError:
        return []
    texts = [one.get("text") or one.get("summary") for one in details]
    return [text for text in texts if isinstance(text, str) and text]


# ---- encode


def wants_reasoning(plan: Plan) -> bool:
    """Whether the model refuses its own calls without the reasoning that led to them."""
    target = plan.target
    return target.model is not None and target.host.reasoning_content and _wants_reasoning(target.model)


@lru_cache(maxsize=256)
def _wants_reasoning(model: str) -> bool:
    return _WANTS_REASONING.search(model) is not None


def encode_reasoning(part: Reasoning, placed: Placed, plan: Plan, body: dict[str, Any]) -> None:
    texts = [block.text for block in part.content if isinstance(block, ReasoningText)]
    if plan.home:
        if DETAILS not in part.form:
            name = next((token.removeprefix(REASONING) for token in part.form if token.startswith(REASONING)), None)
            body[name or "reasoning_content"] = "".join(texts)
        return
    if not plan.answering and not wants_reasoning(plan):
        plan.report.dropped(placed.trail, "", "the target has no place for reasoning")
        return
    report_reasoning(part, placed, plan)
    if texts:
        before = [body["reasoning_content"]] if "reasoning_content" in body else []
        body["reasoning_content"] = "\n\n".join([*before, *texts])


def report_reasoning(part: Reasoning, placed: Placed, plan: Plan) -> None:
    """What of a reasoning that is shown can't be shown."""
    for index, block in enumerate(part.content):
        if isinstance(block, Media):
            plan.report.dropped((*placed.trail, "content", index), "", "the target shows text only")
    if part.seal is not None:
        plan.report.dropped((*placed.trail, "seal"), "", "the target has no place for another issuer's proof")
    if part.id is not None:
        plan.report.dropped(placed.trail, "id")
