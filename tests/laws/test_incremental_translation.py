"""The law of incremental translation: a conversation translated piece by piece equals its complete translation.

Every request of a conversation is decoded and encoded both ways; bytes, losses, tool names and routes are compared.
"""

import json
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.assertions import non_empty
from tests.support.samples import recorded_bodies
from toolwire.canonical.errors import Loss, ToolwireError
from toolwire.canonical.request import Request
from toolwire.codec.encoding.fallbacks import apply_setting_changes
from toolwire.codec.interface import EncodedBody, Route, Target
from toolwire.protocols import PROTOCOLS
from toolwire.translation.body import get_host_profile
from toolwire.translation.encoding_snapshot import EncodingSnapshot
from toolwire.translation.incremental import RequestSnapshot, find_messages, messages_member
from toolwire.translation.stages.family import isolate_foreign_extras

Body = dict[str, Any]


class Translator:
    """Translates the requests of a conversation incrementally where possible, and compares with the definition."""

    def __init__(self, source: str, target: str, host: str = "openai", model: str | None = None) -> None:
        self.outcomes: Counter[str] = Counter()
        self._client, self._upstream = PROTOCOLS[source], PROTOCOLS[target]
        self._route = Route(**recorded_bodies.address_options(source, "request"))
        self._target = Target(model=model, stream=False, host=get_host_profile(host))
        self._received: RequestSnapshot | None = None
        self._sent: EncodingSnapshot | None = None

    def translate(self, body: bytes) -> None:
        client, upstream = self._client, self._upstream
        request = self._decode(body)
        prepared = apply_setting_changes(isolate_foreign_extras(request, client, upstream), client, upstream)
        expected = upstream.encode_request(prepared, self._target)
        continued = self._sent and self._sent.continue_with(prepared, upstream, self._target)
        self.outcomes["encoded"] += continued is not None
        self._sent = continued or EncodingSnapshot.from_encoding(expected, prepared, client, upstream, self._target)
        encoded = self._sent.encoding
        assert encoded.to_bytes() == expected.to_bytes()
        assert self._losses(encoded, prepared) == self._losses(expected, prepared)
        assert encoded.mapping == expected.mapping
        assert encoded.route == expected.route

    def _decode(self, body: bytes) -> Request:
        expected = self._client.decode_request(body, self._route)
        continued = self._received and self._received.continue_with(self._client, body, self._route)
        self.outcomes["decoded"] += continued is not None
        start = find_messages(body, self._client)
        self._received = continued
        if continued is None and start is not None:
            self._received = RequestSnapshot(body, start, self._route, expected)
        request = expected if self._received is None else self._received.request
        # `plain` says only that nothing need be searched for extras.
        assert request == expected
        return request

    def _losses(self, encoding: EncodedBody, request: Request) -> list[Loss]:
        """Return the losses, in an order that does not depend on how often an encoder goes through the messages."""
        return sorted(encoding.report.resolve(request, self._client.wire_names), key=repr)


@pytest.mark.parametrize("target", recorded_bodies.PROTOCOL_NAMES)
@pytest.mark.parametrize("source", recorded_bodies.PROTOCOL_NAMES)
def test_recorded_conversations_cut_at_each_message(source: str, target: str) -> None:
    outcomes = _translate_growing(source, target)
    assert outcomes["decoded"]
    assert outcomes["encoded"] or source == target


@pytest.mark.parametrize("host", ["generic", "mistral"])
@pytest.mark.parametrize("source", [name for name in recorded_bodies.PROTOCOL_NAMES if name != "openai-chat"])
def test_recorded_conversations_cut_at_each_message_for_a_host(source: str, host: str) -> None:
    assert _translate_growing(source, "openai-chat", host)["encoded"]


def _translate_growing(source: str, target: str, host: str = "openai") -> Counter[str]:
    outcomes: Counter[str] = Counter()
    member = messages_member(PROTOCOLS[source])
    for body in non_empty(recorded_bodies.sample_for_target(_conversations(source), target).values()):
        translator = Translator(source, target, host)
        for count in range(1, len(body[member]) + 1):
            try:
                translator.translate(_serialize({**body, member: body[member][:count]}))
            except ToolwireError:
                continue  # a request that neither way translates
        outcomes += translator.outcomes
    return outcomes


@cache
def _conversations(protocol: str) -> dict[str, Body]:
    """Return the recorded requests with a list of messages, by name."""
    member = messages_member(PROTOCOLS[protocol])
    return {
        name: body for name, body in recorded_bodies.requests(protocol).items() if isinstance(body.get(member), list)
    }


def _serialize(body: Body, separators: tuple[str, str] = (",", ":")) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=separators).encode(errors="surrogatepass")


# ---- random edits

_Edit = Callable[[Body, list[Any], int], list[Any]]
"""Changes a body, and returns its new history; the number selects a message."""


def _grow(_: Body, history: list[Any], number: int) -> list[Any]:
    """Add two messages, as an agent does after a tool call."""
    return history + _later_messages(history, number)


def _later_messages(history: list[Any], number: int) -> list[Any]:
    """Return two of the history's own messages, with other ids of calls."""
    start = number % max(1, len(history) - 1)
    return [_with_other_ids(message, str(number)) for message in history[start : start + 2]]


def _with_other_ids(value: Any, suffix: str) -> Any:
    if isinstance(value, list):
        return [_with_other_ids(element, suffix) for element in value]
    if not isinstance(value, dict):
        return value
    names = ("id", "call_id", "tool_call_id", "tool_use_id")
    return {
        name: member + suffix if name in names and isinstance(member, str) else _with_other_ids(member, suffix)
        for name, member in value.items()
    }


def _mark_last(_: Body, history: list[Any], __: int) -> list[Any]:
    """Move a cache mark to the last message, as Claude Code does."""
    for message in history:
        content = message.get("content") if isinstance(message, dict) else None
        blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
        for block in blocks:
            block.pop("cache_control", None)
        if blocks and message is history[-1]:
            blocks[-1]["cache_control"] = {"type": "ephemeral"}
    return history


def _change_text(_: Body, history: list[Any], number: int) -> list[Any]:
    """Change one message somewhere: a word, or if it has none, a field."""
    position = number % len(history)
    changed = json.loads(
        _serialize(history[position]).decode(errors="surrogatepass").replace(" ", " changed ", 1 + number % 2)
    )
    if changed == history[position] and isinstance(changed, dict):
        changed["note"] = number
    return [*history[:position], changed, *history[position + 1 :]]


def _delete(_: Body, history: list[Any], number: int) -> list[Any]:
    """Delete one message somewhere."""
    return [message for index, message in enumerate(history) if index != number % len(history)] or history


def _truncate(_: Body, history: list[Any], number: int) -> list[Any]:
    """Go back to an earlier message."""
    return history[: 1 + number % len(history)]


def _compact(_: Body, history: list[Any], number: int) -> list[Any]:
    """Keep the first message and the last ones."""
    return history[:1] + history[1 + number % len(history) :]


def _change_tools(body: Body, history: list[Any], number: int) -> list[Any]:
    """Remove a tool."""
    if isinstance(body.get("tools"), list) and body["tools"]:
        body["tools"] = [tool for index, tool in enumerate(body["tools"]) if index != number % len(body["tools"])]
    return history


def _change_setting(body: Body, history: list[Any], number: int) -> list[Any]:
    """Change the model, the system text or a setting, or reorder members."""
    name = ("model", "system", "instructions", "temperature", "stream")[number % 5]
    if name in body:
        body[name] = {"temperature": number % 2, "stream": bool(number % 2)}.get(name, f"other {number}")
    return history


def _think(body: Body, history: list[Any], number: int) -> list[Any]:
    """Ask for thinking, which some targets allow only after thinking in the history."""
    body.update(
        ({"reasoning_effort": "high"}, {"reasoning": {"effort": "high"}}, {"think": True})[
            number % 3
        ]  # of three vendors
    )
    return history


def _interject(_: Body, history: list[Any], number: int) -> list[Any]:
    """Insert a message with another role."""
    position = number % (len(history) + 1)
    return [
        *history[:position],
        {"role": ("system", "developer", "user")[number % 3], "content": "x"},
        *history[position:],
    ]


_EDITS: tuple[_Edit, ...] = (
    *(_grow, _grow, _grow, _mark_last, _change_text, _delete, _truncate),
    *(_compact, _change_tools, _change_setting, _think, _interject),
)


@pytest.mark.parametrize("source", recorded_bodies.PROTOCOL_NAMES)
@given(data=st.data())
@settings(max_examples=recorded_bodies.example_count(150))
def test_recorded_conversations_with_random_edits(source: str, data: st.DataObject) -> None:
    target = data.draw(st.sampled_from([name for name in recorded_bodies.PROTOCOL_NAMES if name != source]))
    name = data.draw(st.sampled_from(sorted(_conversations(source))))
    member = messages_member(PROTOCOLS[source])
    body: Body = json.loads(json.dumps(_conversations(source)[name]))
    separators = data.draw(st.sampled_from([(",", ":"), (", ", ": "), (",\n ", " : ")]))
    model = data.draw(st.sampled_from([None, "claude-sonnet-4-5", "gemini-3-pro", "deepseek-reasoner"]))
    translator = Translator(source, target, data.draw(st.sampled_from(["openai", "generic", "mistral"])), model)
    edits = data.draw(st.lists(st.tuples(st.sampled_from(_EDITS), st.integers(0, 30)), min_size=1, max_size=12))
    for edit, number in edits:
        if history := body[member]:
            body[member] = edit(body, history, number)
        try:
            translator.translate(_serialize(body, separators))
        except (ToolwireError, UnicodeError):
            continue
