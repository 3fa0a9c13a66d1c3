"""Decode and encode reasoning.

Reasoning has no official field; compatible servers send it in `reasoning_content`, `reasoning` or the content.
"""

from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw

from toolwire.canonical.content import Part, Reasoning, ReasoningText
from toolwire.codec.encoding.fallbacks import report_reasoning
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.hosts.profile import HostProfile, ReplayRule, rule_for
from toolwire.codec.losses import SourcePath
from toolwire.protocols.openai_chat.parts.content import THINKING_FORM
from toolwire.protocols.openai_chat.parts.details import DETAILS_FORM, REASONING_FORM
from toolwire.protocols.openai_chat.wire import MessageShape

REASONING_FIELDS = ("reasoning_content", "reasoning")

# ---- decode


def decode_reasoning(shape: MessageShape, parts: list[Part], extras: dict[str, Raw]) -> None:
    """Append the reasoning of a message to `parts`; further fields that repeat it go to `extras`."""
    for name in REASONING_FIELDS:
        text = getattr(shape, name)
        if isinstance(text, str):
            if parts:
                extras[name] = Raw(msgspec.json.encode(text))
                continue
            parts.append(reasoning_part(name, text))


def reasoning_part(name: str, text: str) -> Reasoning:
    """Return the reasoning of a message that has it as the text of the field `name`."""
    content = (ReasoningText(kind="full", text=text, at=""),) if text else ()
    return Reasoning(content=content, at=f"/{name}", wire_form=(REASONING_FORM + name,))


def replay_rule(plan: EncodingPlan) -> ReplayRule | None:
    """Return the host's rule about sending reasoning back to this model; None if it has no field for it."""
    host = plan.target.host
    return None if host.reasoning.replay_field is None else _replay_rule(host, plan.target.model)


_OPTIONAL_REPLAY = ReplayRule(turns="none")


@lru_cache(maxsize=256)
def _replay_rule(host: HostProfile, model: str | None) -> ReplayRule | None:
    """Return the rule of a host that has a field for reasoning; memoized."""
    rules = host.reasoning.replay
    return rule_for(rules, model) if rules and model is not None else None if rules else _OPTIONAL_REPLAY


def requires_reasoning(plan: EncodingPlan) -> bool:
    """Tell whether the target model rejects its own tool calls unless the reasoning before them is resent."""
    rule = replay_rule(plan)
    return rule is not None and rule.turns != "none"


def is_content_reasoning(part: Reasoning, plan: EncodingPlan) -> bool:
    """Tell whether reasoning is part of the content: as the source had it, or where Mistral accepts it."""
    if THINKING_FORM in part.wire_form:
        return True
    is_request = not plan.same_protocol and not plan.for_client
    return is_request and plan.target.host.reasoning.replay_field == "content" and replay_rule(plan) is not None


def encode_reasoning(part: Reasoning, located_part: LocatedPart, plan: EncodingPlan, body: dict[str, Any]) -> None:
    """Write reasoning into `body`, the fields of an assistant message."""
    texts = [block.text for block in part.content if isinstance(block, ReasoningText)]
    if plan.same_protocol:
        if DETAILS_FORM not in part.wire_form:
            _encode_same_protocol_reasoning(part, located_part, plan, body, "".join(texts))
        return
    host = plan.target.host
    if not plan.for_client and replay_rule(plan) is None:
        plan.report.dropped(located_part.path, "", host.lacks("field for reasoning"))
        return
    report_reasoning(part, located_part, plan)
    if texts:
        field = "reasoning_content" if plan.for_client else host.reasoning.replay_field or "reasoning_content"
        earlier = [body[field]] if field in body else []
        body[field] = "\n\n".join([*earlier, *texts])


def _encode_same_protocol_reasoning(
    part: Reasoning, located_part: LocatedPart, plan: EncodingPlan, body: dict[str, Any], text: str
) -> None:
    """Write a Chat client's reasoning into `body` as received, unless the host rejects or renames the field."""
    tokens = [token.removeprefix(REASONING_FORM) for token in part.wire_form if token.startswith(REASONING_FORM)]
    name = tokens[0] if tokens else "reasoning_content"
    host = plan.target.host
    if plan.adapts and requires_reasoning(plan) and name != host.reasoning.replay_field:
        plan.report.approximated(located_part.path, "", f"{host.name} reads {host.reasoning.replay_field}, not {name}")
        name = host.reasoning.replay_field or name
    if plan.adapts and host.messages.members and name not in host.messages.members:
        plan.report.dropped(located_part.path, "", host.rejects(name))
        return
    body[name] = text


def add_required_reasoning(body: dict[str, Any], path: SourcePath, plan: EncodingPlan) -> None:
    """Add the host's placeholder to an assistant message that must carry reasoning, but has none."""
    rule, field = replay_rule(plan), plan.target.host.reasoning.replay_field
    if rule is None or field is None or rule.placeholder is None or rule.turns == "none":
        return
    if rule.turns == "calls" and not body.get("tool_calls"):
        return
    if body.get(field) or (rule.placeholder == "" and field in body):
        return
    body[field] = rule.placeholder
    reason = f"{plan.target.host.name} requires {field}; set to {rule.placeholder!r}"
    if plan.target.host.pass_through:
        reason = f"the model requires {field}; set to {rule.placeholder!r}"
    plan.report.added(path, "", f"/messages/{plan.output_index}/{field}", reason, severity="info")
