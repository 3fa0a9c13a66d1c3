"""Every JSON example and stream snippet of the seeds: unchanged at home, arriving abroad, and back again.

A fixture holds the example as the seed has it (`text`, at `line`), and the smallest legal body that holds it
(`body`, to be read as `wire`). `bare` is there where the example must also be read as it stands, without the
envelope: true if that is `text` itself, else the corrected text. `part` names a protocol that a later part of
the project brings.
"""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

import toolwire
from tests.manifest import ROOT
from tests.sdk import Call, fold_body, fold_stream, summary
from tests.wire import (
    CHAT,
    PROTOCOLS,
    RESPONSES,
    calls,
    items,
    results,
    streamed,
    streamed_calls,
    tools,
    translated,
)

SEEDS = ROOT / ".." / "shared" / "seeds"
FIXTURES = ROOT / "tests" / "fixtures" / "seeds"
TOTALS = {"000": 52, "001": 10, "002": 24, "003": 9, "004": 11}
BY_PROTOCOL = {
    "anthropic": 32,
    "openai-chat": 23,
    "openai-responses": 22,
    "gemini": 25,
    "ollama": 3,
    "none": 1,
}
LATER = {"gemini", "ollama"}
FRAGMENTS = {"message": 22, "items": 6, "tools": 3, "request": 4, "stream": 3, "event": 4}


@dataclass(frozen=True)
class Example:
    seed: str
    line: int
    protocol: str
    kind: str
    wire: Any
    text: str
    body: Any
    note: str
    bare: bool | str = False
    part: str | None = None

    @property
    def fragment(self) -> Any:
        """The example as it stands, corrected but not completed."""
        text = self.text if self.bare is True else self.bare
        assert isinstance(text, str)
        return text.encode() if self.wire == "stream" else json.loads(text)


def load(seed: str) -> list[Example]:
    return [Example(seed=seed, **fields) for fields in json.loads((FIXTURES / f"{seed}.json").read_text())]


EXAMPLES = [example for seed in TOTALS for example in load(seed)]
OURS = [example for example in EXAMPLES if example.protocol in PROTOCOLS]


def where(value: Any) -> str | None:
    return f"{value.seed}:{value.line}" if isinstance(value, Example) else None


def extract(text: str) -> list[tuple[int, str]]:
    """Line and text of each fenced block, and of each unfenced object or list that starts at the margin."""
    lines = text.split("\n")
    found: list[tuple[int, str]] = []
    ends = {"{": "}", "[": "]"}
    at = 0
    while at < len(lines):
        if lines[at].startswith("```"):
            end = next(n for n in range(at + 1, len(lines)) if lines[n].startswith("```"))
            found.append((at + 2, "\n".join(lines[at + 1 : end])))
        elif lines[at] in ends:
            end = next(n for n in range(at, len(lines)) if lines[n] == ends[lines[at]])
            found.append((at + 1, "\n".join(lines[at : end + 1])))
        else:
            end = at
        at = end + 1
    return found


def test_no_example_is_skipped() -> None:
    assert Counter(example.seed for example in EXAMPLES) == TOTALS
    assert Counter(example.protocol for example in EXAMPLES) == BY_PROTOCOL
    assert {path.stem for path in FIXTURES.iterdir()} == TOTALS.keys()
    if SEEDS.is_dir():
        for path in SEEDS.glob("*.txt"):
            recorded = [(example.line, example.text) for example in load(path.name[:3])]
            assert recorded == extract(path.read_text()), path.name
        assert len(list(SEEDS.glob("*.txt"))) == len(TOTALS)


def test_every_example_is_translated_or_waits_for_its_protocol() -> None:
    assert {example.part for example in EXAMPLES} == {None, *LATER}
    others = [example for example in EXAMPLES if example.protocol not in PROTOCOLS]
    assert all(example.part == example.protocol for example in others if example.kind != "types")
    assert [where(example) for example in others if example.kind == "types"] == ["003:17"]
    assert len(OURS) == 77
    assert all(example.wire in ("request", "response", "stream") for example in OURS)


def said(protocol: str, wire: str, body: Any) -> dict[str, Any]:
    """What must arrive of a body: calls, results and tools, and the text of an answer."""
    match wire:
        case "stream":
            found = fold_stream(protocol, body)
            return {"text": found["text"], "calls": found["calls"], "stop": found["stop"]}
        case "response":
            found = summary(protocol, body)
            return {"text": found["text"], "calls": found["calls"], "stop": found["stop"]}
        case _:
            return {
                "calls": calls(protocol, body),
                "results": results(protocol, body),
                "tools": tools(protocol, body),
            }


def crossed(example: Example, body: Any, source: str, target: str) -> Any:
    if example.wire == "stream":
        return streamed(body, source, target)
    return translated(body, source, target, example.wire)


def given(example: Example) -> Any:
    return example.body.encode() if example.wire == "stream" else example.body


@pytest.mark.parametrize("example", OURS, ids=where)
def test_at_home_an_example_is_unchanged(example: Example) -> None:
    if example.wire == "stream":
        stream = toolwire.translate_stream([given(example)], source=example.protocol, target=example.protocol)
        made = b"".join(stream)
        assert fold_body(example.protocol, made) == fold_body(example.protocol, given(example))
        assert list(stream.losses) == []
    else:
        same = toolwire.translate(example.body, source=example.protocol, target=example.protocol, kind=example.wire)
        assert same.value == example.body
        assert list(same.losses) == []


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("example", OURS, ids=where)
def test_abroad_an_example_arrives_and_comes_back(example: Example, target: str) -> None:
    expected = said(example.protocol, example.wire, given(example))
    made = crossed(example, given(example), example.protocol, target)
    arrived = said(target, example.wire, made)
    if example.kind == "tool" and target == "anthropic" and example.body["tools"][0].get("type") == "custom":
        # A tool that takes raw text is lowered to one that takes a single string.
        (schema,) = arrived["tools"].values()
        assert schema["required"] == ["input"]
        assert list(arrived["tools"]) == list(expected["tools"])
        return
    assert arrived == expected
    back = crossed(example, made, target, example.protocol)
    assert said(example.protocol, example.wire, back) == expected


ANSWERS = [example for example in OURS if example.wire == "response"]


@pytest.mark.parametrize("example", ANSWERS, ids=where)
def test_the_calls_of_an_answer_are_parsed(example: Example) -> None:
    found: list[Call] = [
        {"id": call["id"], "name": call["name"], "arguments": json.loads(call["arguments"])}
        for call in toolwire.parse_tool_calls(example.body, example.protocol)
    ]
    assert found == calls(example.protocol, example.body)


def test_parsed_calls_have_the_form_of_the_seed() -> None:
    (example,) = [example for example in EXAMPLES if example.kind == "parsed_calls"]
    parsed_calls = toolwire.parse_tool_calls(example.body, CHAT)
    expected = json.loads(example.text)
    assert [{key: call[key] for key in ("id", "name", "arguments")} for call in parsed_calls] == expected


BARE = [example for example in OURS if example.bare]
BARE_BODIES = [example for example in BARE if example.wire != "stream"]
BARE_STREAMS = [example for example in BARE if example.wire == "stream"]


@pytest.mark.parametrize("example", BARE_BODIES, ids=where)
def test_a_fragment_is_read_without_its_envelope(example: Example) -> None:
    made = translated(example.fragment, example.protocol, example.protocol, example.wire)
    if isinstance(example.fragment, list):
        assert items(made) == example.fragment
    else:
        assert made == example.fragment


CROSSING = [example for example in BARE_BODIES if example.kind != "tools"]


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("example", CROSSING, ids=where)
def test_a_fragment_without_its_envelope_arrives(example: Example, target: str) -> None:
    made = translated(example.fragment, example.protocol, target, example.wire)
    assert calls(target, made) == calls(example.protocol, example.body)
    if example.wire == "request":
        assert results(target, made) == results(example.protocol, example.body)


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("example", BARE_STREAMS, ids=where)
def test_a_snippet_of_a_stream_is_read_as_it_stands(example: Example, target: str) -> None:
    expected = fold_stream(example.protocol, given(example))
    made = streamed(example.fragment, example.protocol, target)
    arrived = streamed_calls(target, made)
    assert [(call["name"], call["arguments"]) for call in arrived] == [
        (call["name"], call["arguments"]) for call in expected["calls"]
    ]
    if example.protocol != CHAT:  # its snippet has no id: one is made
        assert [call["id"] for call in arrived] == [call["id"] for call in expected["calls"]]
    assert all(call["id"] for call in arrived)
    assert expected["text"] in made.decode()


def test_the_fragments_are_counted() -> None:
    assert Counter(example.kind for example in BARE) == FRAGMENTS
    assert {example.protocol for example in BARE} == set(PROTOCOLS)
    assert [example for example in BARE if example.kind == "items" and example.protocol != RESPONSES] == []
