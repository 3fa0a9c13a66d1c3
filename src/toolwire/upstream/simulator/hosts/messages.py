"""Messages requests (Anthropic's form) as a host checks them."""

from toolwire.codec.encoding.hosted_tools import accepts_native
from toolwire.codec.hosts.profile import HostProfile, matches_model
from toolwire.codec.validation import JsonObject, object_items, object_of, text_of, value_at
from toolwire.protocols.anthropic.fields import REQUEST_FIELDS
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

_MODES = {"auto": "auto", "any": "required", "tool": "named", "none": "none"}
_CLIENT_RUN = ("bash", "browser", "computer", "memory", "str_replace", "text_editor")
_MEDIA = {"image": "image", "document": "document"}


def check_messages(body: JsonObject, profile: HostProfile) -> Violations:
    """Check a Messages request; the host reports the first violation."""
    effort = value_at(body, "output_config", "effort")
    thinking = is_thinking(body, profile, effort)
    yield from check_fields(body, profile, REQUEST_FIELDS)
    yield from check_user("metadata.user_id", value_at(body, "metadata", "user_id"), profile)
    yield from _check_roles(body, profile)
    yield from _check_blocks(body, profile)
    yield from _check_tools(body, profile)
    mode = _MODES.get(text_of(value_at(body, "tool_choice", "type")))
    yield from check_choice(body, profile, mode, thinking=thinking)
    yield from check_effort(body, profile, effort, "output_config.effort")


def _check_roles(body: JsonObject, profile: HostProfile) -> Violations:
    """Check the roles of messages, and their order."""
    messages = object_items(body.get("messages"), ())
    for (index,), message in messages:
        role, path = text_of(message.get("role")), f"messages.{index}.role"
        if role == "system" and not profile.messages.late_system:
            yield violation("messages.late_system", path, index=index, role=role)
        elif role not in ("system", "user", "assistant"):
            yield violation("messages.roles", path, index=index, role=role, roles="'user', 'assistant'")
    roles = [message.get("role") for _, message in messages]
    if profile.messages.user_required and "user" not in roles:
        yield violation("messages.user_required", "messages")


def _check_blocks(body: JsonObject, profile: HostProfile) -> Violations:
    """Check the blocks of every message: media, cache marks, ids of calls and their results."""
    awaited: set[str] = set()
    for (index,), message in object_items(body.get("messages"), ()):
        answered: set[str] = set()
        called: set[str] = set()
        for (number,), block in object_items(message.get("content"), ()):
            path, kind = f"messages.{index}.content.{number}", text_of(block.get("type"))
            yield from _check_block(block, path, body, profile)
            if kind == "tool_use":
                called.add(text_of(block.get("id")))
            if kind == "tool_result":
                answered.add(text_of(block.get("tool_use_id")))
                for (inner,), part in object_items(block.get("content"), ()):
                    yield from _check_block(part, f"{path}.content.{inner}", body, profile)
        if message.get("role") != "system":
            for id in awaited ^ answered:
                yield violation("messages.results", f"messages.{index}", index=index, id=id)
            awaited = called


def _check_block(block: JsonObject, path: str, body: JsonObject, profile: HostProfile) -> Violations:
    """Check one block."""
    rules, kind = profile.content, text_of(block.get("type"))
    if kind in _MEDIA:
        if _MEDIA[kind] not in rules.media:
            yield violation("content.media", path, index=path, type=kind, role="user")
        elif kind == "image" and not matches_model(rules.image_models, model_of(body)):
            yield violation("content.image_models", path, index=path, type=kind)
    if kind == "text" and not text_of(block.get("text")).strip():
        yield violation("content.null", path, index=path)


def _check_tools(body: JsonObject, profile: HostProfile) -> Violations:
    """Check the declared tools."""
    rules, tools = profile.tools, object_items(body.get("tools"), ())
    yield from check_tool_count(len(tools), profile)
    for (index,), tool in tools:
        kind, name = text_of(tool.get("type")), text_of(tool.get("name"))
        if kind == "custom" and not rules.typed:
            yield violation("tools.typed", f"tools.{index}.type", index=index, type=kind)
        if kind not in ("", "custom"):
            executor = "client" if kind.startswith(_CLIENT_RUN) else "server"
            if not accepts_native(executor, profile):
                yield violation("tools.hosted", f"tools.{index}.type", index=index, type=kind)
            continue
        if tool.get("defer_loading") and not rules.deferred:
            path = f"tools.{index}.custom.defer_loading"
            yield violation("fields.unknown", path, name=path)
        yield from check_name(name, f"tools.{index}.name", profile)
        if "input_schema" in tool:
            yield from check_schema(object_of(tool["input_schema"]), name, profile)
