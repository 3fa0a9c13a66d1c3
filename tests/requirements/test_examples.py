"""Every JSON example and stream snippet of the seeds: unchanged at home, arriving abroad, and back again.

A fixture holds the example as the seed has it (`text`, at `line`), and the smallest legal body that holds it
(`body`, to be read as `wire`). `bare` is there where the example must also be read as it stands, without the
envelope: true if that is `text` itself, else the corrected text.
"""

import json
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

import toolwire
from tests.support.bodies.minimal import PNG_BASE64
from tests.support.bodies.readers import (
    declared_schemas,
    parse_json_or_text,
    responses_items,
    tool_calls_in,
    tool_calls_in_stream,
    tool_results_in,
)
from tests.support.paths import ROOT, SHARED, skip_without
from tests.support.protocols import ALL_PROTOCOLS, CHAT, GEMINI, INTERACTIONS, OLLAMA, OPENROUTER, RESPONSES
from tests.support.sdk import gemini
from tests.support.sdk.validation import Call, fold_body, fold_stream, summary
from tests.support.translation import translate_stream_bytes, translated_body

DOCUMENTS = SHARED / "seeds"
FIXTURES = ROOT / "tests" / "requirements" / "examples"
TOTALS = {"000": 52, "001": 10, "002": 24, "003": 9, "004": 11}
BY_PROTOCOL = {
    "anthropic": 32,
    "openai-chat": 23,
    "openai-responses": 22,
    "gemini": 25,
    "ollama": 3,
    "none": 1,
}
FRAGMENTS = {"message": 28, "items": 6, "tools": 4, "request": 8, "response": 5, "stream": 4, "event": 4}


@dataclass(frozen=True)
class Example:
    document: str
    line: int
    protocol: str
    kind: str
    wire: Any
    text: str
    body: Any
    note: str
    bare: bool | str = False

    @property
    def fragment(self) -> Any:
        """The example as it stands, corrected but not completed."""
        text = self.text if self.bare is True else self.bare
        assert isinstance(text, str)
        return text.encode() if self.wire == "stream" else json.loads(text)


def load(document: str) -> list[Example]:
    return [Example(document=document, **fields) for fields in json.loads((FIXTURES / f"{document}.json").read_text())]


EXAMPLES = [example for seed in TOTALS for example in load(seed)]
OURS = [example for example in EXAMPLES if example.protocol in ALL_PROTOCOLS]


def where(value: Any) -> str | None:
    return f"{value.document}:{value.line}" if isinstance(value, Example) else None


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
    assert Counter(example.document for example in EXAMPLES) == TOTALS
    assert Counter(example.protocol for example in EXAMPLES) == BY_PROTOCOL
    assert {path.stem for path in FIXTURES.iterdir()} == TOTALS.keys()


@skip_without("seeds")
def test_the_examples_are_those_of_the_seeds() -> None:
    for path in DOCUMENTS.glob("*.txt"):
        recorded = [(example.line, example.text) for example in load(path.name[:3])]
        assert recorded == extract(path.read_text()), path.name
    assert len(list(DOCUMENTS.glob("*.txt"))) == len(TOTALS)


def test_every_example_is_translated() -> None:
    """All but one: the types of seed 003, whose contract is tested as such."""
    assert [where(example) for example in EXAMPLES if example not in OURS] == ["003:17"]
    assert len(OURS) == 105
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
                "calls": tool_calls_in(protocol, body),
                "results": [(answered, parse_json_or_text(text)) for answered, text in tool_results_in(protocol, body)],
                "tools": declared_schemas(protocol, body),
            }


def crossed(example: Example, body: Any, source: str, target: str) -> Any:
    if example.wire == "stream":
        return translate_stream_bytes(body, source, target)
    return translated_body(body, source, target, example.wire)


def unnamed(said: dict[str, Any]) -> dict[str, Any]:
    """The same without ids, after a look that each result is paired with its call, in order."""
    asked = [call["id"] for call in said["calls"]]
    told = said.get("results", [])
    assert [answered for answered, _ in told] == asked[: len(told)]
    return {
        **said,
        "calls": [{**call, "id": None} for call in said["calls"]],
        "results": [text for _, text in told],
    }


def given(example: Example) -> Any:
    return example.body.encode() if example.wire == "stream" else example.body


@pytest.mark.parametrize("example", OURS, ids=where)
def test_at_home_an_example_is_unchanged(example: Example) -> None:
    if example.wire == "stream":
        stream = toolwire.translate_stream([given(example)], source=example.protocol, target=example.protocol)
        made = b"".join(stream)
        fold = gemini.fold_body if example.protocol == GEMINI else partial(fold_body, example.protocol)
        assert fold(made) == fold(given(example))
        assert list(stream.losses) == []
    else:
        same = toolwire.translate(example.body, source=example.protocol, target=example.protocol, kind=example.wire)
        assert same.value == example.body
        assert list(same.losses) == []


WITH_FREE_TEXT = (CHAT, RESPONSES)
NOTE = "[image of the result of read_file, call rf_img_1: see the next user message]"


@pytest.mark.parametrize("target", ALL_PROTOCOLS)
@pytest.mark.parametrize("example", OURS, ids=where)
def test_abroad_an_example_arrives_and_comes_back(example: Example, target: str) -> None:
    expected = said(example.protocol, example.wire, given(example))
    made = crossed(example, given(example), example.protocol, target)
    arrived = said(target, example.wire, made)
    if example.protocol == OLLAMA and example.wire != "stream":
        expected, arrived = unnamed(expected), unnamed(arrived)
        assert arrived == expected
        assert unnamed(said(OLLAMA, example.wire, crossed(example, made, target, OLLAMA))) == expected
        return
    custom = example.kind == "tool" and example.body["tools"][0].get("type") == "custom"
    if custom and target not in WITH_FREE_TEXT:
        # A tool that takes raw text is lowered to one that takes a single string.
        (schema,) = arrived["tools"].values()
        assert schema["required"] == ["input"]
        assert list(arrived["tools"]) == list(expected["tools"])
        return
    if where(example) == "000:233" and target == CHAT:
        # Its tool messages hold no media: a note says where the image is.
        ((_, text),) = expected["results"]
        assert arrived["results"] == [("rf_img_1", text + NOTE)]
        assert made["messages"][-1]["content"][-1]["image_url"]["url"].endswith(PNG_BASE64)
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
    assert all(call["id"] for call in found)
    named = tool_calls_in(example.protocol, example.body)
    if example.protocol == OLLAMA:  # it issues no ids: some are made
        found = [{**call, "id": None} for call in found]
    assert found == named


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
    made = translated_body(example.fragment, example.protocol, example.protocol, example.wire)
    if isinstance(example.fragment, list):
        assert responses_items(made) == example.fragment
    else:
        assert made == example.fragment


CROSSING = [example for example in BARE_BODIES if example.kind != "tools"]


@pytest.mark.parametrize("target", ALL_PROTOCOLS)
@pytest.mark.parametrize("example", CROSSING, ids=where)
def test_a_fragment_without_its_envelope_arrives(example: Example, target: str) -> None:
    made = translated_body(example.fragment, example.protocol, target, example.wire)
    asked, expected = tool_calls_in(target, made), tool_calls_in(example.protocol, example.body)
    if example.protocol == OLLAMA:
        asked = [{**call, "id": None} for call in asked]
    assert asked == expected
    if example.wire == "request":
        assert tool_results_in(target, made) == tool_results_in(example.protocol, example.body)


def test_tools_in_the_form_of_the_sdk_are_those_of_the_wire() -> None:
    """Gemini's SDKs have them under `config`: read as they stand, and written as the wire wants them for others."""
    (example,) = [one for one in BARE_BODIES if one.kind == "tools" and one.protocol == GEMINI]
    assert "config" in example.fragment
    for target in ALL_PROTOCOLS:
        if target != GEMINI:
            made = translated_body(example.fragment, GEMINI, target)
            assert declared_schemas(target, made) == declared_schemas(GEMINI, example.body)


@pytest.mark.parametrize("target", ALL_PROTOCOLS)
@pytest.mark.parametrize("example", BARE_STREAMS, ids=where)
def test_a_snippet_of_a_stream_is_read_as_it_stands(example: Example, target: str) -> None:
    expected = fold_stream(example.protocol, given(example))
    made = translate_stream_bytes(example.fragment, example.protocol, target)
    if example.protocol == target:  # its frames are passed on as they came
        assert made.startswith(example.fragment)
        return
    arrived = tool_calls_in_stream(target, made)
    assert [(call["name"], call["arguments"]) for call in arrived] == [
        (call["name"], call["arguments"]) for call in expected["calls"]
    ]
    if example.protocol != CHAT:  # its snippet has no id: one is made
        assert [call["id"] for call in arrived] == [call["id"] for call in expected["calls"]]
    assert all(call["id"] for call in arrived) or target in (GEMINI, OLLAMA)
    assert expected["text"] in made.decode()


def test_the_fragments_are_counted() -> None:
    assert Counter(example.kind for example in BARE) == FRAGMENTS
    assert {example.protocol for example in BARE} == set(ALL_PROTOCOLS) - {INTERACTIONS, OPENROUTER}
    assert [example for example in BARE if example.kind == "items" and example.protocol != RESPONSES] == []
