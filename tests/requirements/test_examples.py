"""Example messages of each protocol: unchanged within it, translated to every other protocol, and restored.

Each file of examples is a list. An example has the `text` as published, and the smallest legal `body` around it, of the
kind `wire`. `bare` is set where the example must also decode without that envelope: true for `text` itself, else the
corrected text.
"""

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
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
from tests.support.paths import ROOT
from tests.support.protocols import ALL_PROTOCOLS, CHAT, GEMINI, INTERACTIONS, OLLAMA, OPENROUTER, RESPONSES
from tests.support.sdk import gemini
from tests.support.sdk.validation import Call, fold_body, fold_stream, summary
from tests.support.translation import translate_stream_bytes, translated_body

EXAMPLES_FOLDER = ROOT / "tests" / "requirements" / "examples"


@dataclass(frozen=True)
class Example:
    """One published example of a protocol message."""

    id: str  # file name and position, such as `tool_call_cycle-3`
    protocol: str
    kind: str
    wire: Any
    text: str
    body: Any
    note: str
    bare: bool | str = False

    @property
    def fragment(self) -> Any:
        """The example without its envelope, corrected but not completed."""
        text = self.text if self.bare is True else self.bare
        assert isinstance(text, str)
        return text.encode() if self.wire == "stream" else json.loads(text)

    @property
    def wire_body(self) -> Any:
        """The complete body, as bytes for a stream."""
        return self.body.encode() if self.wire == "stream" else self.body


def load_examples(file: Path) -> list[Example]:
    return [
        Example(id=f"{file.stem}-{position}", **fields)
        for position, fields in enumerate(json.loads(file.read_text()), 1)
    ]


EXAMPLES = [example for file in sorted(EXAMPLES_FOLDER.glob("*.json")) for example in load_examples(file)]
WIRE_EXAMPLES = [example for example in EXAMPLES if example.protocol in ALL_PROTOCOLS]


def example_id(value: Any) -> str | None:
    return value.id if isinstance(value, Example) else None


def test_all_examples_but_the_types_of_the_contract_are_translated() -> None:
    assert [example.id for example in EXAMPLES if example not in WIRE_EXAMPLES] == ["adapter_contract-1"]
    assert all(example.wire in ("request", "response", "stream") for example in WIRE_EXAMPLES)
    assert {example.protocol for example in WIRE_EXAMPLES} == set(ALL_PROTOCOLS) - {INTERACTIONS, OPENROUTER}


def summarize(protocol: str, wire: str, body: Any) -> dict[str, Any]:
    """Extract the content that a translation must keep: calls, results, tools, and the text of a response."""
    match wire:
        case "stream":
            folded = fold_stream(protocol, body)
            return {"text": folded["text"], "calls": folded["calls"], "stop": folded["stop"]}
        case "response":
            folded = summary(protocol, body)
            return {"text": folded["text"], "calls": folded["calls"], "stop": folded["stop"]}
        case _:
            return {
                "calls": tool_calls_in(protocol, body),
                "results": [(call_id, parse_json_or_text(text)) for call_id, text in tool_results_in(protocol, body)],
                "tools": declared_schemas(protocol, body),
            }


def translate_example(example: Example, body: Any, source: str, target: str) -> Any:
    if example.wire == "stream":
        return translate_stream_bytes(body, source, target)
    return translated_body(body, source, target, example.wire)


def without_ids(content: dict[str, Any]) -> dict[str, Any]:
    """Remove the ids from a summary, after checking that results follow their calls in order."""
    call_ids = [call["id"] for call in content["calls"]]
    results = content.get("results", [])
    assert [call_id for call_id, _ in results] == call_ids[: len(results)]
    return {
        **content,
        "calls": [{**call, "id": None} for call in content["calls"]],
        "results": [text for _, text in results],
    }


@pytest.mark.parametrize("example", WIRE_EXAMPLES, ids=example_id)
def test_an_example_is_unchanged_within_its_protocol(example: Example) -> None:
    if example.wire == "stream":
        stream = toolwire.translate_stream([example.wire_body], source=example.protocol, target=example.protocol)
        translated = b"".join(stream)
        fold = gemini.fold_body if example.protocol == GEMINI else partial(fold_body, example.protocol)
        assert fold(translated) == fold(example.wire_body)
        assert list(stream.losses) == []
    else:
        same = toolwire.translate(example.body, source=example.protocol, target=example.protocol, kind=example.wire)
        assert same.value == example.body
        assert list(same.losses) == []


FREE_TEXT_PROTOCOLS = (CHAT, RESPONSES)
NOTE = "[image of the result of read_file, call rf_img_1: see the next user message]"


@pytest.mark.parametrize("example", WIRE_EXAMPLES, ids=example_id)
def test_an_example_survives_translation_and_back(example: Example) -> None:
    for target in ALL_PROTOCOLS:
        assert_survives(example, target)


def assert_survives(example: Example, target: str) -> None:
    expected = summarize(example.protocol, example.wire, example.wire_body)
    translated = translate_example(example, example.wire_body, example.protocol, target)
    arrived = summarize(target, example.wire, translated)
    if example.protocol == OLLAMA and example.wire != "stream":
        expected, arrived = without_ids(expected), without_ids(arrived)
        assert arrived == expected
        assert (
            without_ids(summarize(OLLAMA, example.wire, translate_example(example, translated, target, OLLAMA)))
            == expected
        )
        return
    custom = example.kind == "tool" and example.body["tools"][0].get("type") == "custom"
    if custom and target not in FREE_TEXT_PROTOCOLS:
        # A custom tool becomes a function with a single string.
        (schema,) = arrived["tools"].values()
        assert schema["required"] == ["input"]
        assert list(arrived["tools"]) == list(expected["tools"])
        return
    if example.id == "tool_call_matrix-8" and target == CHAT:
        # Tool messages of Chat hold no media: a note refers to the image.
        ((_, text),) = expected["results"]
        assert arrived["results"] == [("rf_img_1", text + NOTE)]
        assert translated["messages"][-1]["content"][-1]["image_url"]["url"].endswith(PNG_BASE64)
        return
    assert arrived == expected
    restored = translate_example(example, translated, target, example.protocol)
    assert summarize(example.protocol, example.wire, restored) == expected


RESPONSE_EXAMPLES = [example for example in WIRE_EXAMPLES if example.wire == "response"]


@pytest.mark.parametrize("example", RESPONSE_EXAMPLES, ids=example_id)
def test_the_calls_of_a_response_are_parsed(example: Example) -> None:
    calls: list[Call] = [
        {"id": call["id"], "name": call["name"], "arguments": json.loads(call["arguments"])}
        for call in toolwire.parse_tool_calls(example.body, example.protocol)
    ]
    assert all(call["id"] for call in calls)
    expected = tool_calls_in(example.protocol, example.body)
    if example.protocol == OLLAMA:  # Ollama issues no ids: toolwire generates them
        calls = [{**call, "id": None} for call in calls]
    assert calls == expected


def test_parsed_calls_have_the_published_form() -> None:
    (example,) = [example for example in EXAMPLES if example.kind == "parsed_calls"]
    parsed_calls = toolwire.parse_tool_calls(example.body, CHAT)
    expected = json.loads(example.text)
    assert [{key: call[key] for key in ("id", "name", "arguments")} for call in parsed_calls] == expected


BARE = [example for example in WIRE_EXAMPLES if example.bare]
BARE_BODIES = [example for example in BARE if example.wire != "stream"]
BARE_STREAMS = [example for example in BARE if example.wire == "stream"]


@pytest.mark.parametrize("example", BARE_BODIES, ids=example_id)
def test_a_fragment_decodes_without_its_envelope(example: Example) -> None:
    translated = translated_body(example.fragment, example.protocol, example.protocol, example.wire)
    if isinstance(example.fragment, list):
        assert responses_items(translated) == example.fragment
    else:
        assert translated == example.fragment


TRANSLATED_FRAGMENTS = [example for example in BARE_BODIES if example.kind != "tools"]


@pytest.mark.parametrize("example", TRANSLATED_FRAGMENTS, ids=example_id)
def test_a_fragment_without_its_envelope_is_translated(example: Example) -> None:
    for target in ALL_PROTOCOLS:
        assert_fragment_is_translated(example, target)


def assert_fragment_is_translated(example: Example, target: str) -> None:
    translated = translated_body(example.fragment, example.protocol, target, example.wire)
    calls, expected = tool_calls_in(target, translated), tool_calls_in(example.protocol, example.body)
    if example.protocol == OLLAMA:
        calls = [{**call, "id": None} for call in calls]
    assert calls == expected
    if example.wire == "request":
        assert tool_results_in(target, translated) == tool_results_in(example.protocol, example.body)


def test_tools_in_the_config_of_the_sdk_equal_those_on_the_wire() -> None:
    """Gemini's SDKs take `config`; on the wire its fields stand at the top level."""
    (example,) = [example for example in BARE_BODIES if example.kind == "tools" and example.protocol == GEMINI]
    assert "config" in example.fragment
    for target in ALL_PROTOCOLS:
        if target != GEMINI:
            translated = translated_body(example.fragment, GEMINI, target)
            assert declared_schemas(target, translated) == declared_schemas(GEMINI, example.body)


@pytest.mark.parametrize("target", ALL_PROTOCOLS)
@pytest.mark.parametrize("example", BARE_STREAMS, ids=example_id)
def test_a_stream_snippet_decodes_without_its_envelope(example: Example, target: str) -> None:
    expected = fold_stream(example.protocol, example.wire_body)
    translated = translate_stream_bytes(example.fragment, example.protocol, target)
    if example.protocol == target:  # frames are passed on unchanged
        assert translated.startswith(example.fragment)
        return
    arrived = tool_calls_in_stream(target, translated)
    assert [(call["name"], call["arguments"]) for call in arrived] == [
        (call["name"], call["arguments"]) for call in expected["calls"]
    ]
    if example.protocol != CHAT:  # the Chat snippet has no id: toolwire generates one
        assert [call["id"] for call in arrived] == [call["id"] for call in expected["calls"]]
    assert all(call["id"] for call in arrived) or target in (GEMINI, OLLAMA)
    assert expected["text"] in translated.decode()


def test_fragments_cover_every_kind_and_protocol() -> None:
    kinds = {"message", "items", "tools", "request", "response", "stream", "event"}
    assert {example.kind for example in BARE} == kinds
    assert {example.protocol for example in BARE} == set(ALL_PROTOCOLS) - {INTERACTIONS, OPENROUTER}
    assert {example.protocol for example in BARE if example.kind == "items"} == {RESPONSES}
