"""`decode(encode(c))` differs from `c` only where the losses say so.

Both sides are canonical, so that nothing of a wire is looked at: each setting, each declared tool and each part of the
conversation that was there before is there after, or its place in the source is named. Turns are regrouped and ids and
names escaped for another protocol, so that parts are found again by what they say.
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
# How Google's protocols say strict, for all functions at once.
VALIDATED = re.compile(rb'"mode":"VALIDATED"|"tool_choice":"validated"|"mode":"validated"')
DECLARED = ("description", "parameters", "strict", "defer", "asynchronous", "output_schema")
EVERY = 3
"""Of the recorded bodies each third: the fixtures hold what is rare."""


@pytest.mark.parametrize(("source", "target"), recorded_bodies.PAIRS)
def test_a_request_differs_only_where_losses_say_so(source: str, target: str) -> None:
    wrong = []
    for name, body in _some(recorded_bodies.fixture_requests(source), recorded_bodies.requests(source)):
        options = recorded_bodies.address_options(source, "request")
        before = PROTOCOLS[source].decode_request(json.dumps(body).encode(), Route(**options))
        try:
            encoded = tw.translate(body, source, target, **options)
        except tw.LossyTranslationError:
            continue
        after = PROTOCOLS[target].decode_request(encoded.to_bytes(), encoded.route)
        said = Said(source, before, encoded.losses)
        for trail, field in (*_settings(before, after), *_tools(before, after)):
            if field == "enabled" and said.tells(trail, "budget_tokens"):
                continue  # how much to think, and so whether, is told by the budget
            if not said.tells(trail, field) and not (field == "strict" and VALIDATED.search(encoded.to_bytes())):
                wrong.append(f"{name}: {'.'.join(map(str, trail))} {field}")
        parts = [part for message in after.messages for part in message.parts] + list(after.system or ())
        wrong += [
            f"{name}: {'.'.join(map(str, trail))}"
            for trail in _lost(_parts(before), parts, target)
            if not said.tells(trail)
        ]
    assert wrong == []


@pytest.mark.parametrize(("source", "target"), recorded_bodies.PAIRS)
def test_a_response_differs_only_where_losses_say_so(source: str, target: str) -> None:
    wrong = []
    for name, body in _some(recorded_bodies.fixture_responses(source), recorded_bodies.responses(source)):
        before = PROTOCOLS[source].decode_response(json.dumps(body).encode(), ResponseContext())
        try:
            encoded = tw.translate(body, source, target, "response")
        except tw.LossyTranslationError:
            continue
        after = PROTOCOLS[target].decode_response(encoded.to_bytes(), ResponseContext())
        said = Said(source, before, encoded.losses)
        placed: list[tuple[SourcePath, Part]] = [
            (("candidates", number, "messages", index, "parts", place), part)
            for number, candidate in enumerate(before.candidates)
            for index, message in enumerate(candidate.messages)
            for place, part in enumerate(message.parts)
        ]
        parts = [part for candidate in after.candidates for message in candidate.messages for part in message.parts]
        wrong += [
            f"{name}: {'.'.join(map(str, trail))}" for trail in _lost(placed, parts, target) if not said.tells(trail)
        ]
    assert wrong == []


class Said:
    """What the losses of a translation name, by places in the source."""

    def __init__(self, source: str, root: Node, losses: list[tw.Loss]) -> None:
        self._names = PROTOCOLS[source].wire_names
        self._root = root
        self._paths = {loss.path for loss in losses}

    def tells(self, trail: SourcePath, field: str = "") -> bool:
        """Whether this place, something in it or an object that holds it is named."""
        return any(
            path == lost or lost.startswith(path + "/") or (lost and path.startswith(lost + "/"))
            for path in source_pointers(self._root, trail, field, self._names)
            for lost in self._paths
        )


def _some(fixtures: dict[str, Any], everything: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from fixtures.items()
    recorded = [name for name in everything if name not in fixtures]
    for name in recorded[::EVERY]:
        yield name, everything[name]


def _settings(before: Request, after: Request) -> Iterator[tuple[SourcePath, str]]:
    for group, fields in SETTINGS.items():
        said: Any = getattr(before, group) if group else before
        heard: Any = getattr(after, group) if group else after
        for field in fields if said is not None else ():
            told = _plain(getattr(said, field))
            if told is None or USUAL.get(field) == told or told == _plain(getattr(heard, field, None)):
                continue
            if field == "mode" and said.names:
                if heard is None or [one.name for one in said.names] != [one.name for one in heard.names]:
                    yield (group,), "names"
            elif field == "visibility" and None not in (heard, told) and heard.visibility in SHOWN and told in SHOWN:
                continue  # that it is shown: how much of it there is, is the provider's to say
            elif field not in ("enabled", "effort") or _thinks(said, field) != _thinks(heard, field):
                yield (group,) if group else (), field


SHOWN = ("full", "summary")
# What holds anyway where nothing is said.
USUAL = {
    "kind": "text",
    "n": 1,
    "mode": "auto",
    "parallel": True,
    "stream": False,
    "background": False,
    "store": False,
    "visibility": "omitted",
}


def _thinks(thinking: Thinking | None, field: str) -> Any:
    """Whether to think, or how hard: an effort or a budget asks for it, too, and the effort `none` is not to."""
    if thinking is None:
        return None
    effort = None if thinking.effort == "none" else thinking.effort
    if field == "effort":
        return effort
    if thinking.enabled is False or thinking.effort == "none":
        return False
    return any((thinking.enabled, effort, thinking.budget_tokens, thinking.visibility)) or None


def _tools(before: Request, after: Request) -> Iterator[tuple[SourcePath, str]]:
    declared = {tool.name: tool for tool in after.tools or () if isinstance(tool, FunctionTool)}
    for index, tool in enumerate(before.tools or ()):
        if isinstance(tool, FunctionTool):
            heard = declared.get(tool.name)
            if heard is None:
                yield ("tools", index), "name"
                continue
            for field in DECLARED:
                told = _plain(getattr(tool, field))
                if told not in (None, False, "") and told != _plain(getattr(heard, field)):
                    yield ("tools", index), field


def _plain(value: Any) -> Any:
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


def _lost(before: list[tuple[SourcePath, Part]], after: list[Part], target: str) -> Iterator[SourcePath]:
    thoughts = "\n".join(block.text for part in after if isinstance(part, Reasoning) for block in _thought(part))
    for trail, part in before:
        if isinstance(part, ToolCall) and part.screen is not None:
            calls = [one for one in after if isinstance(one, ToolCall)]
            arrived = _done(part) <= set().union(*(_done(_read_again(call, target)) for call in calls))
        elif isinstance(part, ToolResult) and part.screen is not None:
            arrived = _seen(part) <= set().union(*(_seen(one) for one in after if isinstance(one, ToolResult)))
        elif isinstance(part, Reasoning):
            arrived = all(block.text in thoughts for block in _thought(part))
        else:
            arrived = any(_arrived(part, other) for other in after)
        if not arrived and _says_something(part):
            yield trail


def _read_again(call: ToolCall, target: str) -> ToolCall:
    """With what it does to a screen. Google's grid is only read into pixels where a screenshot tells the size of the
    display: what is done is the same on one of any size."""
    form = PROTOCOLS[target].computer_use
    if call.screen is not None or form is None:
        return call
    return msgspec.structs.replace(call, screen=form.decode_call(call, SIZE))


def _done(call: ToolCall) -> set[tuple[str, str]]:
    """What a call does to a screen, in whichever form: several calls may do what one did, and points are rounded."""
    actions = call.screen.actions if call.screen is not None else ()
    said: Any = _arguments(call)
    told = json.loads(msgspec.json.encode(actions)) or (said.get("actions", []) if isinstance(said, dict) else [])
    # A key that is held is pressed and released: some forms say no more.
    held = [key for one in told if one.get("hold") for key in one["keys"]]
    pressed = {(kind, key) for key in held for kind in ("key_down", "key_up")}
    others = [one for one in told if not one.get("hold")]
    return pressed | {(one["kind"], str(next((one[name] for name in SAID if name in one), ""))) for one in others}


SAID = ("text", "url", "keys", "key")
SIZE = (1000, 1000)


def _seen(result: ToolResult) -> set[str]:
    return {str(_source(part)) for part in result.content or () if isinstance(part, Media)}


def _says_something(part: Part) -> bool:
    match part:
        case Text(text=text) | Refusal(text=text):
            return bool(text.strip())
        case ToolCall(executor="client") | ToolResult(executor="client") | Media():
            return True
        case Reasoning():
            return bool(_thought(part))
        case _:
            return False


def _arrived(part: Part, other: Part) -> bool:
    match part, other:
        case Text() | Refusal(), Text() | Refusal():
            return part.text.strip() in other.text
        case ToolCall(), ToolCall():
            told: Any = {"input": part.arguments} if part.shape == "freeform" != other.shape else _arguments(part)
            same: bool = told == _arguments(other)
            return same and other.name.endswith(part.name)
        case ToolResult(), ToolResult():
            return part.status == other.status and _text(part) in _text(other)
        case Media(source=PlainText() as document), Text():
            return document.text.strip() in other.text  # a document of text alone
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


def _thought(part: Reasoning) -> list[ReasoningText]:
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
