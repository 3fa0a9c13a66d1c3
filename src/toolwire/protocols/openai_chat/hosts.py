"""Fit requests to the profile of a Chat host. Every step is reported as a loss.

Requests of other protocols are fitted to any host. Requests of Chat clients pass unchanged, unless the profile of a
known host says that it rejects them.
"""

from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool, Thinking, ToolChoice
from toolwire.codec.encoding.hosts import (
    SYSTEM_ROLES,
    FieldLocations,
    choice_rule,
    nearest_effort,
    report_fitted_effort,
)
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.turns import EMPTY_TEXT, LocatedPart, Turn, leading_system_count
from toolwire.codec.hosts.openai import OPENAI
from toolwire.codec.hosts.profile import matches_model, rule_for
from toolwire.codec.losses import SourcePath
from toolwire.codec.schema.moonshot import fit_moonshot_schema, keyword_dialect
from toolwire.codec.schema.rewriter import fit_and_report
from toolwire.codec.wire.reader import decode_members
from toolwire.protocols.openai_chat.parts.messages import encode_system, encode_turn
from toolwire.protocols.openai_chat.wire import TextPart

DEFAULT_THINKING = OPENAI.thinking
DEFAULT_TOOLS = OPENAI.tools

_ACKNOWLEDGEMENT = "OK."
_NO_PARAMETERS = Raw(b'{"type":"object","properties":{}}')
FIELD_LOCATIONS: FieldLocations = {
    "metadata": ((), "labels"),
    "service_tier": ((), "tier"),
    "store": (("continuation",), "store"),
    "user": ((), "end_user"),
    "verbosity": (("output",), "verbosity"),
    "response_format": (("output",), ""),
    "reasoning_effort": (("thinking",), "effort"),
    "parallel_tool_calls": (("tool_choice",), "parallel"),
    "tool_choice": (("tool_choice",), ""),
    "seed": (("sampling",), "seed"),
    "n": (("sampling",), "n"),
    "stop": (("sampling",), "stop"),
    "temperature": (("sampling",), "temperature"),
    "top_p": (("sampling",), "top_p"),
    "top_k": (("sampling",), "top_k"),
    "frequency_penalty": (("sampling",), "frequency_penalty"),
    "presence_penalty": (("sampling",), "presence_penalty"),
    "logprobs": (("sampling",), "logprobs"),
    "top_logprobs": (("sampling",), "top_logprobs"),
    "stream_options/include_usage": ((), "include_usage"),
}
"""Canonical location of each member of the body."""


def encode_leading_system(request: Request, plan: EncodingPlan) -> tuple[list[Any], int]:
    """Encode all leading system text as one message.

    Return it in a list, and the number of request messages that it replaces.
    """
    if not request.system and not (request.messages and request.messages[0].role in SYSTEM_ROLES):
        return [], 0
    if not (count := leading_system_count(request.messages)):
        return encode_system(request, plan), 0
    located_parts = [LocatedPart(part, ("system", index)) for index, part in enumerate(request.system or ())]
    for message_index, message in enumerate(request.messages[:count]):
        located_parts += [
            LocatedPart(part, ("messages", message_index, "parts", index)) for index, part in enumerate(message.parts)
        ]
        if message.role == "developer":
            reason = f"{plan.target.host.rejects('the developer role')}; sent as system"
            plan.report.approximated(("messages", message_index), "role", reason)
        elif plan.same_protocol and message_index:
            reason = f"{plan.target.host.rejects('several system messages')}; joined with the first"
            plan.report.approximated(("messages", message_index), "", reason)
    path: SourcePath = ("system",) if request.system else ("messages", 0)
    return (encode_turn(Turn("system", located_parts, None, path), plan) if located_parts else []), count


def acknowledge_results(messages: list[Any], plan: EncodingPlan) -> list[Any]:
    """Insert a short assistant message wherever user text directly follows tool results.

    Some hosts reject user text there. Return the new list; each inserted message is reported.
    """
    result: list[Any] = []
    for message in messages:
        if result and result[-1]["role"] == "tool" and message["role"] == "user":
            reason = plan.target.host.rejects("user text directly after tool results")
            plan.report.added((), "", f"/messages/{len(result)}", reason)
            result.append({"role": "assistant", "content": _ACKNOWLEDGEMENT})
        result.append(message)
    return result


def add_user_message(messages: list[Any], plan: EncodingPlan) -> None:
    """Insert a user message after the leading system messages if there is none, where the host requires one."""
    roles = [message["role"] for message in messages]
    if "user" in roles:
        return
    index = next((index for index, role in enumerate(roles) if role not in SYSTEM_ROLES), len(roles))
    messages.insert(index, {"role": "user", "content": EMPTY_TEXT})
    reason = plan.target.host.rejects("conversations without a user message")
    plan.report.added((), "", f"/messages/{index}", reason)


def mark_prefix(messages: list[Any], plan: EncodingPlan) -> None:
    """Mark a final assistant message as the beginning of the response, where the host requires that."""
    if messages and messages[-1]["role"] == "assistant" and not messages[-1].get("tool_calls"):
        messages[-1]["prefix"] = True
        reason = plan.target.host.rejects("a final assistant message without this mark")
        plan.report.added((), "", f"/messages/{len(messages) - 1}/prefix", reason)


# ---- tools


def fit_allowed_choice(choice: ToolChoice, plan: EncodingPlan) -> ToolChoice:
    """Return the choice without `allowed_tools`, for targets that lack it; tools it excludes are not sent."""
    if choice.mode != "allowed":
        return choice
    plan.report.approximated(
        ("tool_choice",), "names", "the target cannot limit the choice to some tools; only the allowed tools sent"
    )
    return replace(choice, mode="required" if choice.required else "auto", names=())


def fit_function(tool: FunctionTool, path: SourcePath, plan: EncodingPlan) -> FunctionTool:
    """Return a function with schema and `strict` as the host accepts them."""
    host, facts = plan.target.host, plan.target.host.tools
    if facts is DEFAULT_TOOLS:
        return tool
    schema, strict = tool.parameters, tool.strict
    if not facts.bare_functions:
        schema = _NO_PARAMETERS if schema is None else with_root_type(schema)
        if plan.same_protocol and schema is not tool.parameters:
            plan.report.approximated(path, "parameters", host.rejects("functions without parameters"))
    if schema is not None and facts.schema == "moonshot":
        schema = fit_moonshot_schema(schema, plan.report, path, "parameters")
    elif schema is not None and facts.refused_keywords:
        schema = fit_and_report(schema, keyword_dialect(facts.refused_keywords), plan.report, path, "parameters")
    if strict and facts.strict in ("refused", "uniform"):
        plan.report.dropped(
            path, "strict", host.rejects("strict tools" if facts.strict == "refused" else "mixed strict")
        )
        strict = None
    elif strict is False and facts.strict != "accepted":
        strict = None
    if schema is tool.parameters and strict is tool.strict:
        return tool
    return replace(tool, parameters=schema, strict=strict)


def with_root_type(schema: Raw) -> Raw:
    """Return a parameter schema with `type: object` at its root, which some hosts require."""
    try:
        members = decode_members(schema)
    except msgspec.DecodeError:
        return schema
    return schema if "type" in members else Raw(msgspec.json.encode({"type": "object", **members}))


def limit_tools(tools: list[Any], plan: EncodingPlan) -> list[Any]:
    """Return as many tools as the host accepts; the others are reported."""
    limit = plan.target.host.tools.max_count
    if limit is None or len(tools) <= limit:
        return tools
    for index in range(limit, len(tools)):
        plan.report.dropped(("tools", index), "", plan.target.host.rejects(f"more than {limit} tools"))
    return tools[:limit]


# ---- settings


def fit_limit(name: str, limit: int, plan: EncodingPlan) -> tuple[str, int]:
    """Return the name and the value of the output limit as host and model accept them."""
    host = plan.target.host
    cap = rule_for(host.output.caps, plan.target.model or "")
    if cap is not None and limit > cap.tokens:
        reason = f"{host.rejects(f'more than {cap.tokens} tokens')} for {plan.target.model}"
        plan.report.approximated(("sampling",), "max_tokens", reason)
        limit = cap.tokens
    if name not in host.output.limit_fields:
        reason = f"{host.rejects(name)}; sent as {host.output.limit_field}"
        plan.report.approximated(("sampling",), "max_tokens", reason)
        name = host.output.limit_field
    return name, limit


def fit_thinking(thinking: Thinking | None, body: dict[str, Any], plan: EncodingPlan) -> None:
    """Write the thinking settings as host and model accept them; `body` may hold OpenAI's `reasoning_effort`."""
    host, model = plan.target.host, plan.target.model or ""
    facts = host.thinking
    if isinstance(body.get("reasoning_effort"), str):
        rule = rule_for(facts.efforts, model)
        _fit_effort(thinking, body, () if rule is None else rule.words, plan)
    elif thinking is not None and thinking.enabled and not plan.same_protocol:
        _switch_thinking(body, plan, on=True)
    if body.get("enable_thinking") is False:
        return
    if thinking is not None and thinking.budget_tokens is not None and facts.budget_field is not None:
        body[facts.budget_field] = thinking.budget_tokens
        plan.report.retract_approximated(("thinking",), "budget_tokens")
        if facts.switch is not None and matches_model(facts.switch.models, model):
            body[facts.switch.field] = True  # a budget counts only beside it
    stream = plan.target.stream or (plan.target.stream is None and plan.request is not None and plan.request.stream)
    if not stream and matches_model(facts.stream_only, model):
        body["enable_thinking"] = False
        plan.report.added((), "", "/enable_thinking", host.rejects(f"thinking of {model} unless it is streamed"))


def _fit_effort(thinking: Thinking | None, body: dict[str, Any], words: tuple[str, ...], plan: EncodingPlan) -> None:
    """Replace `reasoning_effort` by the nearest word of host and model, by a switch, or by nothing."""
    host, effort = plan.target.host, body["reasoning_effort"]
    if effort in words or (plan.same_protocol and not host.thinking.efforts):
        return
    if effort == "none" or not words:
        del body["reasoning_effort"]
        if _switch_thinking(body, plan, on=effort != "none"):
            if effort != "none":
                reason = f"{host.lacks('levels of effort')}; thinking enabled"
                report_fitted_effort(thinking, plan, reason, is_sent=True)
            return
        if not words or plan.same_protocol:
            reason = f"{host.rejects('an effort')} for {plan.target.model}"
            report_fitted_effort(thinking, plan, reason, is_sent=False)
            return
    nearest = nearest_effort(effort, words)
    body["reasoning_effort"] = nearest
    reason = f"{host.rejects(f'the effort {effort}')}; sent as {nearest}"
    report_fitted_effort(thinking, plan, reason, is_sent=True)


def _switch_thinking(body: dict[str, Any], plan: EncodingPlan, *, on: bool) -> bool:
    """Turn thinking on or off by the host's switch; return False if the model has none."""
    facts, model = plan.target.host.thinking, plan.target.model or ""
    switch = facts.switch
    if switch is None or not matches_model(switch.models, model):
        return False
    if not on and not matches_model(switch.can_disable, model):
        return False
    if not on or not matches_model(facts.default_on, model):
        state = "enabled" if on else "disabled"
        body[switch.field] = {"type": state} if switch.field == "thinking" else on
    return True


def fit_choice(body: dict[str, Any], plan: EncodingPlan) -> None:
    """Replace a tool choice that host and model reject, also because the model thinks."""
    rule, host = choice_rule(plan), plan.target.host
    mode = _choice_mode(body["tool_choice"])
    if mode not in rule.modes and mode == "none":
        for name in ("tools", "tool_choice", "parallel_tool_calls"):
            body.pop(name, None)
        plan.report.approximated(("tool_choice",), "", f"{host.lacks('choice `none`')}; tools withheld")
        return
    if mode not in rule.modes:
        lower = "required" if mode == "named" and "required" in rule.modes else "auto"
        plan.report.approximated(("tool_choice",), "", f"{host.rejects(f'the choice {mode}')}; sent as {lower}")
        body["tool_choice"] = mode = lower
    if rule.thinking_modes is None or mode in rule.thinking_modes or not _is_thinking(body, plan):
        return
    reason = host.rejects(f"the choice {mode} while the model thinks")
    if _switch_thinking(body, plan, on=False):
        if host.thinking.switch is not None:
            plan.report.added((), "", f"/{host.thinking.switch.field}", f"{reason}; thinking disabled")
        if body.pop("reasoning_effort", None) is not None:
            plan.report.dropped(("thinking",), "effort", f"{reason}; thinking disabled")
        body.pop(host.thinking.budget_field or "", None)
    else:
        plan.report.approximated(("tool_choice",), "", f"{reason}; sent as auto")
        body["tool_choice"] = "auto"


def _choice_mode(choice: Any) -> str:
    """Return the mode of an encoded tool choice."""
    if isinstance(choice, str):
        return "required" if choice == "any" else choice
    return "allowed" if isinstance(choice, dict) and "allowed_tools" in choice else "named"


def _is_thinking(body: dict[str, Any], plan: EncodingPlan) -> bool:
    """Tell whether the model thinks with these settings."""
    if body.get("enable_thinking") is False or body.get("thinking") == {"type": "disabled"}:
        return False
    if body.get("reasoning_effort") == "none":
        return False
    is_default = matches_model(plan.target.host.thinking.default_on, plan.target.model or "")
    return is_default or any(name in body for name in ("reasoning_effort", "thinking", "enable_thinking"))


def is_separable(request: Request) -> bool:
    """Return whether messages can be encoded without those before them.

    With a response format they can't: instructions for it may be added to the leading system message.
    """
    return request.output is None or request.output.kind in (None, "text")


def fit_format(request: Request, body: dict[str, Any], plan: EncodingPlan) -> None:
    """Replace a response format that host or model reject by another one, and by instructions in the system text."""
    host, output = plan.target.host, request.output
    rule = rule_for(host.output.formats, plan.target.model or "")
    if output is None or output.kind in (None, "text") or rule is None:
        return
    if plan.same_protocol and "response_format" in host.fields.ignored:
        return
    kind = "json_object" if output.kind == "json" else "json_schema"
    if "tools" in body and not rule.with_tools:
        del body["response_format"]
        reason = f"{host.rejects('a response format beside tools')}; sent as instructions"
    elif kind in rule.types:
        if kind == "json_object" and host.output.json_in_prompt_required:
            require_json_word(body, plan)
        return
    elif kind == "json_schema" and "json_object" in rule.types:
        body["response_format"] = {"type": "json_object"}
        reason = f"{host.rejects('the format json_schema')}; sent as json_object with instructions"
    elif kind == "json_object" and "json_schema" in rule.types:
        schema = {"name": "response", "schema": {"type": "object"}}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
        reason = f"{host.rejects('the format json_object')}; sent as json_schema of an object"
        plan.report.approximated(("output",), "kind", reason)
        return
    else:
        del body["response_format"]
        reason = f"{host.rejects(f'the format {kind}')}; sent as instructions"
    plan.report.approximated(("output",), "kind", reason)
    schema_text = "" if output.schema is None else f" It must match this JSON schema:\n{bytes(output.schema).decode()}"
    _add_instructions(body, _JSON_INSTRUCTIONS + schema_text)


def require_json_word(body: dict[str, Any], plan: EncodingPlan) -> None:
    """Add instructions if the messages don't mention JSON, which OpenAI and others require for `json_object`."""
    if not _mentions_json(body):
        reason = plan.target.host.rejects("JSON output unless the prompt mentions JSON")
        plan.report.added((), "", "/messages/0", reason)
        _add_instructions(body, _JSON_INSTRUCTIONS)


JSON_FORMAT = {"type": "json_object"}
_JSON_INSTRUCTIONS = "Respond with JSON only, without any other text."


def _mentions_json(body: dict[str, Any]) -> bool:
    """Tell whether the messages contain the word JSON."""
    return b"json" in msgspec.json.encode(body["messages"]).lower()


def _add_instructions(body: dict[str, Any], text: str) -> None:
    """Add text to the leading system message, or as one."""
    first = body["messages"][0] if body["messages"] else None
    if first is not None and first["role"] == "system" and first.get("content"):
        content = first["content"]
        first["content"] = f"{content}\n\n{text}" if isinstance(content, str) else [*content, TextPart(text=text)]
    else:
        body["messages"].insert(0, {"role": "system", "content": text})
