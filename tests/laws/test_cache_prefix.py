"""The law of prompt caches: what was sent in one turn is a prefix of what is sent in the next.

Tools, system text and messages are compared item by item, as JSON and without cache marks. Each section is compared if
the client's own requests continue it.
"""

import json
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

import toolwire as tw
from tests.support.assertions import non_empty
from tests.support.bodies.agents import claude_code_request, codex_request
from tests.support.samples import corpus, recorded_bodies
from tests.support.samples.histories import earlier_requests
from toolwire.protocols import PROTOCOLS
from toolwire.translation.cache_share import estimate_cache_share, prompt_sections, without_marks
from toolwire.translation.incremental import messages_member

Body = dict[str, Any]
Turns = Sequence[Body]
_MARK = {"type": "ephemeral"}


@pytest.mark.parametrize("target", recorded_bodies.PROTOCOL_NAMES)
@pytest.mark.parametrize("source", recorded_bodies.PROTOCOL_NAMES)
def test_each_turn_continues_the_one_before(source: str, target: str) -> None:
    comparisons = sum(_compare_turns(turns, source, target) for turns in non_empty(_conversations(source)))
    assert comparisons


@pytest.mark.parametrize("host", ["generic", "mistral", "deepseek"])
@pytest.mark.parametrize("source", [name for name in recorded_bodies.PROTOCOL_NAMES if name != "openai-chat"])
def test_each_turn_for_a_host_continues_the_one_before(source: str, host: str) -> None:
    assert sum(_compare_turns(turns, source, "openai-chat", host=host) for turns in non_empty(_conversations(source)))


@pytest.mark.parametrize("model", ["gpt-6", "anthropic/claude-opus-5-5"])
@pytest.mark.parametrize("target", [name for name in recorded_bodies.PROTOCOL_NAMES if name != "anthropic"])
def test_moving_marks_change_nothing_else(target: str, model: str) -> None:
    for turns in non_empty(_conversations("anthropic")):
        marked = [_with_moving_mark({**body, "model": model}) for body in turns]
        _compare_turns([body for body in marked if body is not None], "anthropic", target)


@pytest.mark.parametrize("target", recorded_bodies.PROTOCOL_NAMES)
def test_agents_read_from_the_cache_what_they_would_read_at_their_own_provider(target: str) -> None:
    sessions = {"anthropic": claude_code_request("m"), "openai-responses": codex_request("m")}
    for source, turns in sessions.items():
        text = (turns[0].get("system") or turns[0]["input"][0]["content"])[-1]
        text["text"] *= 3000  # as long as the prompts of agents are
        direct, translated = (_shares(turns, source, protocol) for protocol in (source, target))
        for own_share, share in zip(direct, translated, strict=True):
            assert own_share > 0.5
            assert share >= own_share - 0.02


def test_deferred_tools_follow_the_tools_sent_before() -> None:
    first, loaded = _deferred_turns()
    for target in [name for name in recorded_bodies.PROTOCOL_NAMES if name != "anthropic"]:
        names = [
            [tool.get("name") or tool["function"]["name"] for tool in _sections(body, "anthropic", target)[0]]
            for body in (first, loaded)
        ]
        assert names == [["Bash", "ToolSearch"], ["Bash", "ToolSearch", "Zip", "Cron"]]


def _deferred_turns() -> Turns:
    """Return two requests of Claude Code, which sorts the tools that it loads by name."""
    schema = {"type": "object", "properties": {}}
    call = {"type": "tool_use", "id": "toolu_1", "name": "ToolSearch", "input": {}}
    references = [{"type": "tool_reference", "tool_name": name} for name in ("Zip", "Cron")]
    messages = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": references}]},
    ]
    tools = [{"name": name, "input_schema": schema} for name in ("Bash", "ToolSearch")]
    placeholder = {"name": "DeferredToolPlaceholder", "input_schema": schema, "defer_loading": True}
    deferred = [{"name": name, "input_schema": schema, "defer_loading": True} for name in ("Cron", "Zip")]
    first: Body = {"model": "m", "max_tokens": 99, "tools": [*tools, placeholder], "messages": messages[:1]}
    return first, first | {"tools": [tools[0], deferred[0], tools[1], placeholder, deferred[1]], "messages": messages}


# ---- conversations


@cache
def _conversations(protocol: str) -> tuple[Turns, ...]:
    """Return the requests of each conversation: recorded ones, and every fixture cut where a model turn begins."""
    return (*_recorded_conversations(protocol), *_cut_fixtures(protocol))


def _recorded_conversations(protocol: str) -> Iterator[Turns]:
    conversations: dict[str, list[corpus.Recording]] = {}
    for compatible in (False, True):
        for recording in corpus.recordings(protocol, compatible=compatible, kind="generate"):
            if recording.conversation is not None and isinstance(recording.request, dict):
                conversations.setdefault(recording.conversation, []).append(recording)
    for recordings in conversations.values():
        ordered = sorted(recordings, key=lambda recording: recording.turn or 0)
        if len(ordered) > 1:
            yield [recording.request for recording in ordered]


def _cut_fixtures(protocol: str) -> Iterator[Turns]:
    member = messages_member(PROTOCOLS[protocol])
    for body in recorded_bodies.fixture_requests(protocol).values():
        history = body.get(member)
        if not isinstance(history, list):
            continue
        cuts = [{**body, member: history[:length]} for length in (*earlier_requests(history), len(history))]
        accepted = [cut for cut in cuts if not any(finding.level == "error" for finding in tw.check(cut, protocol))]
        if len(accepted) > 1:
            yield accepted


def _with_moving_mark(body: Body) -> Body | None:
    """Return an Anthropic request with a mark on the last block of its last message only, as agents set it."""
    messages = [
        {**message, "content": [{"type": "text", "text": message["content"]}]}
        if isinstance(message.get("content"), str)
        else message
        for message in without_marks(body["messages"])
    ]
    last = messages[-1]
    if last["role"] != "user" or not last["content"]:
        return None
    *others, block = last["content"]
    return {**body, "messages": [*messages[:-1], {**last, "content": [*others, {**block, "cache_control": _MARK}]}]}


# ---- comparison


def _compare_turns(turns: Turns, source: str, target: str, **options: Any) -> int:
    """Compare each turn with the one before, and return the number of comparisons."""
    comparisons = 0
    for earlier, later in pairwise(turns):
        try:
            if options.get("host") == "deepseek" and _output_format(earlier, source) != _output_format(later, source):
                continue  # it has no schemas, so the format is a part of its prompt
            sent = [_sections(body, source, target, **options) for body in (earlier, later)]
        except tw.LossyTranslationError:
            continue
        received = [prompt_sections(without_marks(body), PROTOCOLS[source]) for body in (earlier, later)]
        continues = [_is_prefix(*sections) for sections in zip(*received, strict=True)]
        if not continues[1] or not continues[2]:
            continue  # protocols have system text, and tools that are loaded later, in either place
        for name, has_continued, *sections in zip(("tools", "system", "messages"), continues, *sent, strict=True):
            if has_continued:
                comparisons += 1
                assert _is_prefix(*sections), (name, *sections)
    return comparisons


def _output_format(body: Body, source: str) -> object:
    """Return the format that a request asks for."""
    address = recorded_bodies.address_options(source, "request")
    return tw.translate(body, source, "openai-chat", **address).value.get("response_format")


def _sections(body: Body, source: str, target: str, **options: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """Translate a request, and return its tools, system text and messages without cache marks."""
    address = recorded_bodies.address_options(source, "request")
    translated = tw.translate(body, source, target, cache="auto", **address, **options).value
    if options.get("host") == "mistral" and translated["messages"]:
        # Mistral accepts a final assistant message only with this member, which is not part of the prompt.
        translated["messages"][-1].pop("prefix", None)
    return prompt_sections(without_marks(translated), PROTOCOLS[target])


def _is_prefix(earlier: list[Any], later: list[Any]) -> bool:
    return [json.dumps(item) for item in later[: len(earlier)]] == [json.dumps(item) for item in earlier]


def _shares(turns: Turns, source: str, target: str) -> list[float]:
    bodies = [tw.translate(body, source, target, cache="auto").to_bytes() for body in turns]
    codec = PROTOCOLS[target]
    return [estimate_cache_share(later, [earlier], codec).share for earlier, later in pairwise(bodies)]
