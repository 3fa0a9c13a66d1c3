"""Chat Completions requests as a host checks them."""

import re

import msgspec

from toolwire.codec.hosts.profile import HostProfile, matches_model, rule_for
from toolwire.codec.models.gpt import refuses_max_tokens
from toolwire.codec.validation import (
    JsonObject,
    list_of,
    number_of,
    object_items,
    object_of,
    text_of,
    value_at,
)
from toolwire.protocols.openai_chat.fields import REQUEST_FIELDS
from toolwire.upstream.simulator.hosts.refusals import Violations, model_of, violation
from toolwire.upstream.simulator.hosts.schemas import check_name, check_schema
from toolwire.upstream.simulator.hosts.settings import (
    check_choice,
    check_effort,
    check_fields,
    check_stream_thinking,
    check_tool_count,
    check_user,
    is_thinking,
)

_LIMIT_FIELDS = ("max_tokens", "max_completion_tokens")
_MEDIA = {"image_url": "image", "input_audio": "audio", "file": "document"}
_CACHE_MARKS = ("prompt_cache_breakpoint", "cache_control")
_REASONING_MEMBERS = ("reasoning_content", "reasoning", "reasoning_details", "reasoning_text")


def check_chat(body: JsonObject, profile: HostProfile) -> Violations:
    """Check a Chat request; the host reports the first violation."""
    effort = body.get("reasoning_effort") or value_at(body, "reasoning", "effort")
    thinking = is_thinking(body, profile, effort)
    tools = body.get("tools")
    yield from check_fields(body, profile, REQUEST_FIELDS)
    yield from check_user("user", body.get("user"), profile)
    yield from _check_roles(body, profile)
    yield from _check_contents(body, profile)
    yield from _check_pairing(body)
    yield from _check_tools(tools, profile)
    yield from _check_calls(body, profile)
    yield from _check_choice(body, profile, thinking=thinking)
    yield from check_effort(body, profile, effort, "reasoning_effort")
    yield from check_stream_thinking(body, profile, thinking=thinking)
    yield from _check_limits(body, profile)
    yield from _check_output(body, profile)
    yield from _check_replay(body, profile, thinking=thinking)


def _check_roles(body: JsonObject, profile: HostProfile) -> Violations:
    """Check roles, their order, and the members of messages."""
    rules, previous = profile.messages, ""
    messages = object_items(body.get("messages"), ())
    roles = [text_of(message.get("role")) for _, message in messages]
    for index, (role, (_, message)) in enumerate(zip(roles, messages, strict=True)):
        path = f"messages[{index}].role"
        if role not in rules.roles:
            listed = ", ".join(f"'{known}'" for known in rules.roles)
            yield violation("messages.roles", path, index=index, role=role, roles=listed)
        if role in ("system", "developer") and index and not rules.late_system:
            several = set(roles[:index]) <= {"system", "developer"}
            fact = "messages.several_system" if several else "messages.late_system"
            yield violation(fact, path, index=index, role=role, previous=previous)
        if (previous, role) == ("tool", "user") and not rules.user_after_tool:
            yield violation("messages.user_after_tool", path, index=index, role=role, previous=previous)
        yield from _check_members(message, role, index, profile)
        previous = role
    if rules.user_required and "user" not in roles:
        yield violation("messages.user_required", "messages")
    if previous == "assistant" and not rules.final_assistant and messages[-1][1].get("prefix") is not True:
        yield violation("messages.final_assistant", "messages")


def _check_members(message: JsonObject, role: str, index: int, profile: HostProfile) -> Violations:
    """Check the names of the members of a message."""
    rules = profile.messages
    refused = {
        name
        for name, accepted in (("name", rules.names), ("refusal", rules.refusals))
        if not accepted and message.get(name) is not None
    }
    if rules.members:
        refused |= message.keys() - set(rules.members)
    elif profile.fields.unknown == "refused" and profile.reasoning.replay_field is None:
        refused |= set(_REASONING_MEMBERS)
    for name in sorted(refused & message.keys()):
        where = f'messages","{index}","{role}","{name}'
        fact = "messages.members" if "messages.members" in profile.errors.templates else "fields.unknown"
        yield violation(fact, f"messages[{index}].{name}", index=index, role=role, name=name, value="", path=where)


def _check_contents(body: JsonObject, profile: HostProfile) -> Violations:
    """Check the content of every message."""
    rules = profile.content
    for (index,), message in object_items(body.get("messages"), ()):
        role, content, path = text_of(message.get("role")), message.get("content"), f"messages[{index}].content"
        calls = list_of(message.get("tool_calls"))
        if content is None or content == []:
            if not calls:
                fact = "content.empty_assistant" if role == "assistant" else "messages.content"
                yield violation(fact, path, index=index)
            elif not rules.null_with_calls:
                yield violation("content.null_with_calls", path, index=index)
        elif content == "" and role == "assistant" and not calls and not rules.empty_assistant:
            yield violation("content.empty_assistant", path, index=index)
        parts = object_items(content, ())
        media = [part for _, part in parts if part.get("type") in _MEDIA]
        if isinstance(content, list) and role in rules.string_roles and not (media and role == "user"):
            yield violation("content.string_roles", path, index=index)
        for _, part in parts:
            yield from _check_part(part, role, str(index), body, profile)


def _check_part(part: JsonObject, role: str, index: str, body: JsonObject, profile: HostProfile) -> Violations:
    """Check one part of a content list."""
    rules, kind = profile.content, text_of(part.get("type"))
    medium, path = _MEDIA.get(kind), f"messages[{index}].content"
    has_media = role == "user" or (role == "tool" and profile.tools.result_media)
    if medium is not None and (not has_media or medium not in rules.media):
        yield violation("content.media", path, index=index, type=kind, role=role)
    if medium == "image":
        if not matches_model(rules.image_models, model_of(body)):
            yield violation("content.image_models", path, index=index, type=kind)
        url = part.get("image_url")
        address = text_of(object_of(url).get("url")) or text_of(url)
        if not rules.image_urls and not address.startswith("data:"):
            yield violation("content.image_urls", path, index=index)
    if not rules.cache_marks:
        for name in part.keys() & set(_CACHE_MARKS):
            yield violation("content.cache_marks", f"{path}.{name}")


def _check_pairing(body: JsonObject) -> Violations:
    """Check that the results of each turn's calls follow it directly."""
    awaited: list[str] = []
    for (index,), message in object_items(body.get("messages"), ()):
        if message.get("role") == "tool":
            id = text_of(message.get("tool_call_id"))
            if id not in awaited:
                yield violation("messages.results", f"messages[{index}].tool_call_id", index=index, id=id)
            else:
                awaited.remove(id)
            continue
        if awaited:
            yield violation("messages.results", f"messages[{index}]", index=index, id=awaited[0])
        awaited = [text_of(call.get("id")) for _, call in object_items(message.get("tool_calls"), ())]
    if awaited:
        yield violation("messages.results", "messages", index="", id=awaited[0])


def _check_tools(value: object, profile: HostProfile) -> Violations:
    """Check the declared tools."""
    rules, tools = profile.tools, list_of(value)
    if value == [] and not rules.empty_list:
        yield violation("tools.empty_list", "tools")
    yield from check_tool_count(len(tools), profile)
    strictness = set()
    for (index,), tool in object_items(tools, ()):
        kind = text_of(tool.get("type"))
        if kind != "function" and not (rules.freeform if kind == "custom" else rules.hosted):
            fact = "tools.freeform" if kind == "custom" else "tools.hosted"
            yield violation(fact, f"tools[{index}].type", index=index, type=kind)
        declared = object_of(tool.get(kind))
        name, path = text_of(declared.get("name")), f"tools[{index}].{kind}.name"
        if kind in ("function", "custom"):
            yield from check_name(name, path, profile)
        if kind == "function":
            strictness.add(declared.get("strict") is True)
            if "strict" in declared and rules.strict == "refused":
                yield violation("tools.strict", f"tools[{index}].function.strict", index=index)
            yield from check_schema(declared.get("parameters"), name, profile)
    if rules.strict == "uniform" and len(strictness) > 1:
        yield violation("tools.strict", "tools", index=0)


def _check_calls(body: JsonObject, profile: HostProfile) -> Violations:
    """Check ids and arguments of the calls in the history."""
    pattern, limit = profile.tools.id_pattern, profile.tools.id_limit
    for (index,), message in object_items(body.get("messages"), ()):
        ids = [(f"messages[{index}].tool_call_id", message.get("tool_call_id"))]
        for (number,), call in object_items(message.get("tool_calls"), ()):
            ids.append((f"messages[{index}].tool_calls[{number}].id", call.get("id")))
            if call.get("type", "function") == "function" and not _is_json(value_at(call, "function", "arguments")):
                yield violation("tools.arguments", index=index, id=call.get("id"))
        for path, id in ids:
            size = len(text_of(id))
            if id is not None and (size > limit or re.fullmatch(pattern, text_of(id)) is None):
                yield violation("tools.id_pattern", path, path=path, id=id, pattern=pattern, length=size, limit=limit)


def _is_json(arguments: object) -> bool:
    """Return whether the arguments of a call are a JSON object."""
    try:
        return isinstance(msgspec.json.decode(text_of(arguments)), dict)
    except msgspec.DecodeError:
        return False


def _choice_mode(choice: object) -> str | None:
    """Return the mode of a tool choice."""
    if isinstance(choice, dict):
        return "allowed" if choice.get("type") == "allowed_tools" else "named"
    return choice if isinstance(choice, str) else None


def _check_choice(body: JsonObject, profile: HostProfile, *, thinking: bool) -> Violations:
    """Check tool choice and web search."""
    mode = _choice_mode(body.get("tool_choice"))
    if mode is not None and not body.get("tools"):
        yield violation("choice.tools", "tool_choice")
    if profile.fields.known and "tool_choice" not in profile.fields.known:
        mode = None  # the host does not read it
    yield from check_choice(body, profile, mode, thinking=thinking)
    if "web_search_options" in body and not profile.tools.web_search:
        yield violation("tools.web_search", "web_search_options")


def _check_limits(body: JsonObject, profile: HostProfile) -> Violations:
    """Check the output limit and stop sequences."""
    output, model = profile.output, model_of(body)
    for name in _LIMIT_FIELDS:
        value = number_of(body.get(name))
        if value is None:
            continue
        if name not in output.limit_fields and profile.fields.unknown != "ignored":
            yield violation("output.limit_field", name, name=name, expected=output.limit_field)
        if name == "max_tokens" and profile.name in ("openai", "azure") and refuses_max_tokens(model):
            yield violation("output.limit_field", name, name=name, expected="max_completion_tokens")
        cap = rule_for(output.caps, model)
        if cap is not None and value > cap.tokens:
            yield violation("output.caps", name, value=body[name], limit=cap.tokens)
    stop = list_of(body.get("stop"))
    if output.stop_limit is not None and len(stop) > output.stop_limit:
        yield violation("output.stop_limit", "stop", limit=output.stop_limit)


def _check_output(body: JsonObject, profile: HostProfile) -> Violations:
    """Check the response format and stream options."""
    output = profile.output
    kind = text_of(value_at(body, "response_format", "type"))
    rule = rule_for(output.formats, model_of(body))
    if kind:
        if rule is None or kind not in rule.types:
            yield violation("output.formats", "response_format", type=kind)
        elif not rule.with_tools and body.get("tools") and kind != "text":
            yield violation("output.with_tools", "response_format", type=kind)
        if kind == "json_object" and output.json_in_prompt_required and "json" not in str(body.get("messages")).lower():
            yield violation("output.json_in_prompt_required", "messages")
    options = object_of(body.get("stream_options"))
    if options and body.get("stream") is not True:
        yield violation("output.stream_options", "stream_options")
    if "include_usage" in options and not output.stream_usage and profile.fields.unknown != "ignored":
        path = 'stream_options","include_usage'
        yield violation("fields.unknown", path=path, name="stream_options.include_usage", value=True)


def _check_replay(body: JsonObject, profile: HostProfile, *, thinking: bool) -> Violations:
    """Check that the reasoning of earlier turns comes back, or the signature of their first calls, where it must."""
    name, signature = profile.reasoning.replay_field, profile.reasoning.call_signature
    rule = rule_for(profile.reasoning.replay, model_of(body))
    if rule is None or rule.turns == "none" or (name is None and signature is None) or not thinking:
        return
    for (index,), message in object_items(body.get("messages"), ()):
        calls = list_of(message.get("tool_calls"))
        if message.get("role") != "assistant" or (rule.turns == "calls" and not calls):
            continue
        if signature is not None:
            value = value_at(calls[0] if calls else None, *signature.split("/"))
        else:
            value = message.get(name or "")
        if not isinstance(value, str) or (not value and rule.placeholder != ""):
            yield violation("reasoning.replay", f"messages[{index}]", index=index)
