"""Responses requests as a host checks them."""

import re

from toolwire.codec.hosts.profile import HostProfile, matches_model
from toolwire.codec.validation import JsonObject, list_of, object_items, object_of, text_of, value_at
from toolwire.protocols.openai_responses.fields import REQUEST_FIELDS
from toolwire.upstream.simulator.hosts.refusals import Violations, model_of, violation
from toolwire.upstream.simulator.hosts.schemas import check_name, check_schema
from toolwire.upstream.simulator.hosts.settings import (
    check_choice,
    check_effort,
    check_fields,
    check_tool_count,
    check_user,
    is_thinking,
)

_ITEMS = ("message", "function_call", "function_call_output", "reasoning", "item_reference")
_CUSTOM_ITEMS = ("custom_tool_call", "custom_tool_call_output")
_CHOICES = {"auto": "auto", "none": "none", "required": "required"}


def check_responses(body: JsonObject, profile: HostProfile) -> Violations:
    """Check a Responses request; the host reports the first violation."""
    effort = value_at(body, "reasoning", "effort")
    thinking = is_thinking(body, profile, effort)
    yield from check_fields(body, profile, REQUEST_FIELDS)
    yield from check_user("user", body.get("user"), profile)
    yield from _check_items(body, profile)
    yield from _check_tools(body, profile)
    choice = body.get("tool_choice")
    mode = _CHOICES.get(text_of(choice))
    if isinstance(choice, dict):
        mode = "allowed" if choice.get("type") == "allowed_tools" else "named"
    yield from check_choice(body, profile, mode, thinking=thinking)
    yield from check_effort(body, profile, effort, "reasoning.effort")
    yield from _check_format(body, profile)


def _check_items(body: JsonObject, profile: HostProfile) -> Violations:
    """Check the items of the input."""
    has_content = bool(body.get("instructions"))
    awaited: dict[str, str] = {}
    for (index,), item in object_items(body.get("input"), ()):
        kind, path, id = text_of(item.get("type")) or "message", f"input[{index}]", text_of(item.get("call_id"))
        if kind == "message":
            yield from _check_message(item, str(index), body, profile, has_content=has_content)
            has_content = True
        else:
            yield from _check_item(item, kind, path, profile)
        if kind.endswith("_call") and id:
            awaited[id] = path
        if kind.endswith("_output"):
            awaited.pop(id, None)
    for id, path in awaited.items():
        yield violation("messages.results", path, index="", id=id)


def _check_message(
    item: JsonObject, index: str, body: JsonObject, profile: HostProfile, *, has_content: bool
) -> Violations:
    """Check one message; `has_content` if something precedes it."""
    rules, role, path = profile.messages, text_of(item.get("role")), f"input[{index}]"
    if role not in rules.roles:
        yield violation("messages.roles", path, index=index, role=role, roles=rules.roles)
    if role in ("system", "developer") and has_content and not rules.late_system:
        yield violation("messages.late_system", path, index=index, role=role)
    yield from _check_content(item.get("content"), path, body, profile)


def _check_item(item: JsonObject, kind: str, path: str, profile: HostProfile) -> Violations:
    """Check a call, a result, reasoning or another item."""
    if kind == "reasoning" and not profile.reasoning.signatures and not isinstance(item.get("content"), list):
        yield violation("reasoning.signatures", path, name="content")
    if kind not in _ITEMS and not (profile.tools.freeform if kind in _CUSTOM_ITEMS else profile.tools.hosted):
        yield violation("tools.freeform", path, index=path, type=kind)
    if kind.endswith("_call_output") and not profile.reasoning.signatures:
        yield from _check_output(item.get("output"), path, profile)
    id = text_of(item.get("call_id"))
    if id and re.fullmatch(r"[\x20-\x7e]{1,64}", id) is None:
        yield violation("tools.id_pattern", f"{path}.call_id", pattern="", id=id, length=len(id), limit=64)


def _check_content(content: object, path: str, body: JsonObject, profile: HostProfile) -> Violations:
    """Check the parts of a message."""
    for _, part in object_items(content, ()):
        if part.get("type") == "input_image" and not (
            "image" in profile.content.media and matches_model(profile.content.image_models, model_of(body))
        ):
            yield violation("content.image_models", path, index=path, type="input_image")


def _check_output(output: object, path: str, profile: HostProfile) -> Violations:
    """Check the parts of a result, for hosts that accept only text there."""
    templates = profile.errors.templates
    for part in list_of(output):
        kind = text_of(object_of(part).get("type"))
        if kind != "input_text" and "content.media" in templates:
            yield violation("content.media", path, index=path, type=kind, role="tool")


def _check_tools(body: JsonObject, profile: HostProfile) -> Violations:
    """Check the declared tools."""
    rules, tools = profile.tools, object_items(body.get("tools"), ())
    yield from check_tool_count(len(tools), profile)
    for (index,), tool in tools:
        kind, name = text_of(tool.get("type")), text_of(tool.get("name"))
        if kind == "custom" and not rules.freeform:
            yield violation("tools.freeform", f"tools[{index}].type", index=index, type=kind)
        if kind not in ("function", "custom") and not rules.hosted:
            yield violation("tools.hosted", f"tools[{index}].type", index=index, type=kind)
        if kind == "function":
            yield from check_name(name, f"tools[{index}].name", profile)
            yield from check_schema(tool.get("parameters"), name, profile)


def _check_format(body: JsonObject, profile: HostProfile) -> Violations:
    """Check the format of the text."""
    text = object_of(body.get("text"))
    if text and "format" not in text and profile.output.format_required:
        yield violation("output.format_required", "text.format")
