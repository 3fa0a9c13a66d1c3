"""`decode(encode(c))` differs from `c` only where losses are reported.

Both sides are canonical. Each setting, declared tool and part of the conversation exists afterwards, or a loss names
its position. Turns are regrouped, and ids and names escaped, so parts are matched by their content.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import Raw

import toolwire as tw
from tests.support.samples import recorded_bodies
from toolwire.canonical.content import (
    Inline,
    Media,
    Part,
    PlainText,
    Reasoning,
    ReasoningText,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Url,
)
from toolwire.canonical.node import Node
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool, Thinking
from toolwire.codec.interface import ResponseContext, Route
from toolwire.codec.losses import SourcePath, source_pointers
from toolwire.protocols import PROTOCOLS

SETTINGS = {
    "": ("stream", "end_user", "tier", "labels"),
    "sampling": ("max_tokens", "temperature", "top_p", "top_k", "stop", "n", "seed", "top_logprobs"),
    "thinking": ("enabled", "effort", "budget_tokens", "visibility"),
    "output": ("kind", "schema", "name", "description", "verbosity"),
    "tool_choice": ("mode", "parallel"),
    "continuation": ("id", "store", "background"),
}
# The strict mode of Google's protocols, which applies to all functions.
VALIDATED = re.compile(rb'"mode":"VALIDATED"|"tool_choice":"validated"|"mode":"validated"')
TOOL_FIELDS = ("description", "parameters", "strict", "defer", "asynchronous", "output_schema")
STRIDE = 3
"""Every third recorded body is tested, besides all fixtures."""


@pytest.mark.parametrize(("source", "target"), recorded_bodies.PAIRS)
def test_requests_differ_only_where_losses_are_reported(source: str, target: str) -> None:
    wrong = []
    for name, body in _sample(recorded_bodies.fixture_requests(source), recorded_bodies.requests(source)):
        options = recorded_bodies.address_options(source, "request")
        before = PROTOCOLS[source].decode_request(json.dumps(body).encode(), Route(**options))
        try:
            encoded = tw.translate(body, source, target, **options)
        except tw.LossyTranslationError:
            continue
        after = PROTOCOLS[target].decode_request(encoded.to_bytes(), encoded.route)
        reported = ReportedLosses(source, before, encoded.losses)
        for trail, field in (*_changed_settings(before, after), *_changed_tools(before, after)):
            if field == "enabled" and reported.cover(trail, "budget_tokens"):
                continue  # the loss of the budget covers it
            if not reported.cover(trail, field) and not (field == "strict" and VALIDATED.search(encoded.to_bytes())):
                wrong.append(f"{name}: {'.'.join(map(str, trail))} {field}")
        parts = [part for message in after.messages for part in message.parts] + list(after.system or ())
        wrong += [
            f"{name}: {'.'.join(map(str, trail))}"
            for trail in _missing_parts(_parts(before), parts, target)
            if not reported.cover(trail)
        ]
    assert wrong == []


@pytest.mark.parametrize(("source", "target"), recorded_bodies.PAIRS)
def test_responses_differ_only_where_losses_are_reported(source: str, target: str) -> None:
    wrong = []
    for name, body in _sample(recorded_bodies.fixture_responses(source), recorded_bodies.responses(source)):
        before = PROTOCOLS[source].decode_response(json.dumps(body).encode(), ResponseContext())
        try:
            encoded = tw.translate(body, source, target, "response")
        except tw.LossyTranslationError:
            continue
        after = PROTOCOLS[target].decode_response(encoded.to_bytes(), ResponseContext())
        reported = ReportedLosses(source, before, encoded.losses)
        source_parts: list[tuple[SourcePath, Part]] = [
            (("candidates", number, "messages", index, "parts", part_index), part)
            for number, candidate in enumerate(before.candidates)
            for index, message in enumerate(candidate.messages)
            for part_index, part in enumerate(message.parts)
        ]
        parts = [part for candidate in after.candidates for message in candidate.messages for part in message.parts]
        wrong += [
            f"{name}: {'.'.join(map(str, trail))}"
            for trail in _missing_parts(source_parts, parts, target)
            if not reported.cover(trail)
        ]
    assert wrong == []


class ReportedLosses:
    """The positions in the source that the losses of a translation name."""

    def __init__(self, source: str, root: Node, losses: list[tw.Loss]) -> None:
        self._names = PROTOCOLS[source].wire_names
        self._root = root
        self._paths = {loss.path for loss in losses}

    def cover(self, trail: SourcePath, field: str = "") -> bool:
        """Whether a loss names this position, a part of it, or an object that contains it."""
        return any(
            path == lost or lost.startswith(path + "/") or (lost and path.startswith(lost + "/"))
            for path in source_pointers(self._root, trail, field, self._names)
            for lost in self._paths
        )


def _sample(fixtures: dict[str, Any], everything: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield all fixtures and every third recorded body."""
    yield from fixtures.items()
    recorded = [name for name in everything if name not in fixtures]
    for name in recorded[::STRIDE]:
        yield name, everything[name]


def _changed_settings(before: Request, after: Request) -> Iterator[tuple[SourcePath, str]]:
    """Yield the group and field of each setting that differs."""
    for group, fields in SETTINGS.items():
        source: Any = getattr(before, group) if group else before
        target: Any = getattr(after, group) if group else after
        for field in fields if source is not None else ():
            value = _decode_raw(getattr(source, field))
            if value is None or DEFAULTS.get(field) == value or value == _decode_raw(getattr(target, field, None)):
                continue
            if field == "mode" and source.names:
                if target is None or [name.name for name in source.names] != [name.name for name in target.names]:
                    yield (group,), "names"
            elif (
                field == "visibility"
                and None not in (target, value)
                and target.visibility in VISIBLE
                and value in VISIBLE
            ):
                continue  # the provider decides how much thinking is visible
            elif field not in ("enabled", "effort") or _thinking_value(source, field) != _thinking_value(target, field):
                yield (group,) if group else (), field


VISIBLE = ("full", "summary")
# Values that apply when a field is absent.
DEFAULTS = {
    "kind": "text",
    "n": 1,
    "mode": "auto",
    "parallel": True,
    "stream": False,
    "background": False,
    "store": False,
    "visibility": "omitted",
}


def _thinking_value(thinking: Thinking | None, field: str) -> Any:
    """Normalize thinking: an effort or a budget enables it, and the effort `none` disables it."""
    if thinking is None:
        return None
    effort = None if thinking.effort == "none" else thinking.effort
    if field == "effort":
        return effort
    if thinking.enabled is False or thinking.effort == "none":
        return False
    return any((thinking.enabled, effort, thinking.budget_tokens, thinking.visibility)) or None


def _changed_tools(before: Request, after: Request) -> Iterator[tuple[SourcePath, str]]:
    """Yield the position and field of each declared function that differs."""
    declared = {tool.name: tool for tool in after.tools or () if isinstance(tool, FunctionTool)}
    for index, tool in enumerate(before.tools or ()):
        if isinstance(tool, FunctionTool):
            arrived = declared.get(tool.name)
            if arrived is None:
                yield ("tools", index), "name"
                continue
            for field in TOOL_FIELDS:
                value = _decode_raw(getattr(tool, field))
                if value not in (None, False, "") and value != _decode_raw(getattr(arrived, field)):
                    yield ("tools", index), field


def _decode_raw(value: Any) -> Any:
    return json.loads(bytes(value)) if isinstance(value, Raw) else value


def _parts(request: Request) -> list[tuple[SourcePath, Part]]:
    system: list[tuple[SourcePath, Part]] = [
        (("system", index), part) for index, part in enumerate(request.system or ())
    ]
    return system + [
        (("messages", number, "parts", index), part)
        for number, message in enumerate(request.messages)
        for index, part in enumerate(message.parts)
    ]


def _missing_parts(before: list[tuple[SourcePath, Part]], after: list[Part], target: str) -> Iterator[SourcePath]:
    """Yield the position of each source part that has no equivalent in the target."""
    thoughts = "\n".join(
        block.text for part in after if isinstance(part, Reasoning) for block in _reasoning_texts(part)
    )
    for trail, part in before:
        if isinstance(part, ToolCall) and part.screen is not None:
            calls = [candidate for candidate in after if isinstance(candidate, ToolCall)]
            is_present = _actions_of(part) <= set().union(*(_actions_of(_with_actions(call, target)) for call in calls))
        elif isinstance(part, ToolResult) and part.screen is not None:
            is_present = _media_of(part) <= set().union(
                *(_media_of(candidate) for candidate in after if isinstance(candidate, ToolResult))
            )
        elif isinstance(part, Reasoning):
            is_present = all(block.text in thoughts for block in _reasoning_texts(part))
        else:
            is_present = any(_is_equivalent(part, candidate) for candidate in after)
        if not is_present and _has_content(part):
            yield trail


def _with_actions(call: ToolCall, target: str) -> ToolCall:
    """Decode the screen actions of a call.

    Google's coordinates need the size of the display, which only a screenshot tells. Any size works for a comparison.
    """
    form = PROTOCOLS[target].computer_use
    if call.screen is not None or form is None:
        return call
    return msgspec.structs.replace(call, screen=form.decode_call(call, DISPLAY_SIZE))


def _actions_of(call: ToolCall) -> set[tuple[str, str]]:
    """Return the screen actions of a call, whatever their grouping; coordinates are ignored because of rounding."""
    actions = call.screen.actions if call.screen is not None else ()
    arguments: Any = _arguments(call)
    decoded = json.loads(msgspec.json.encode(actions)) or (
        arguments.get("actions", []) if isinstance(arguments, dict) else []
    )
    # Some protocols can only press and release a key that another one holds.
    held_keys = [key for action in decoded if action.get("hold") for key in action["keys"]]
    pressed = {(kind, key) for key in held_keys for kind in ("key_down", "key_up")}
    remaining = [action for action in decoded if not action.get("hold")]
    return pressed | {
        (action["kind"], str(next((action[name] for name in ACTION_FIELDS if name in action), "")))
        for action in remaining
    }


ACTION_FIELDS = ("text", "url", "keys", "key")
DISPLAY_SIZE = (1000, 1000)


def _media_of(result: ToolResult) -> set[str]:
    return {str(_source(part)) for part in result.content or () if isinstance(part, Media)}


def _has_content(part: Part) -> bool:
    match part:
        case Text(text=text) | Refusal(text=text):
            return bool(text.strip())
        case ToolCall(executor="client") | ToolResult(executor="client") | Media():
            return True
        case Reasoning():
            return bool(_reasoning_texts(part))
        case _:
            return False


def _is_equivalent(part: Part, other: Part) -> bool:
    match part, other:
        case Text() | Refusal(), Text() | Refusal():
            return part.text.strip() in other.text
        case ToolCall(), ToolCall():
            arguments: Any = {"input": part.arguments} if part.shape == "freeform" != other.shape else _arguments(part)
            same: bool = arguments == _arguments(other)
            return same and other.name.endswith(part.name)
        case ToolResult(), ToolResult():
            return part.status == other.status and _text(part) in _text(other)
        case Media(source=PlainText() as document), Text():
            return document.text.strip() in other.text  # a text document
        case Media(), Media():
            return bool(_source(part) == _source(other))
        case _:
            return False


def _arguments(call: ToolCall) -> Any:
    try:
        return json.loads(call.arguments or "{}")
    except ValueError:
        return call.arguments


def _text(result: ToolResult) -> str:
    return "\n".join(part.text for part in result.content or () if isinstance(part, Text))


def _reasoning_texts(part: Reasoning) -> list[ReasoningText]:
    return [block for block in part.content if isinstance(block, ReasoningText)]


def _source(media: Media) -> Any:
    match media.source:
        case Inline(data=data):
            return data
        case Url(url=url):
            return url.partition(";base64,")[2] or url
        case PlainText(text=text):
            return text
        case other:
            return getattr(other, "id", other)
