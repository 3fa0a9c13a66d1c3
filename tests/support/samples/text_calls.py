"""Answers in which models wrote calls as text: a selection in the repository, and the full set where it is present."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Raw

from tests.support.paths import ROOT
from tests.support.samples.corpus import CORPUS
from toolwire.translation.stages.tool_call_parsers.parser import Segment, TextCallParser, find_open_reasoning

FIXTURES = ROOT / "tests" / "fixtures" / "text_calls"
FULL_SET = CORPUS / "text_calls"

# Two tests of one engine that contradict another test of the same engine, or the rule that a list of Python calls
# counts only if nothing else is said.
CONTRADICTORY = frozenset({"kimi_k2-fb4752bad3", "pythonic-bf51e26ebf"})
# Reasoning that the prompt opened and that never ends: only a setting can tell it from an answer.
ENDLESS_REASONING = frozenset({"none-6b7be10053"})
# A draft in reasoning that the prompt opened: in a stream, only a setting can tell it from a call.
DRAFT_IN_OPEN_REASONING = frozenset({"hermes-8925fa42f3"})


@dataclass(frozen=True, slots=True)
class TextCase:
    """One answer, and what must come out of it."""

    id: str
    dialect: str
    kind: str  # call, call_open_think, negative, plain, truncated, reasoning or loose
    tools: dict[str, Raw | None]
    text: str
    finished: bool
    calls: list[dict[str, Any]]
    content: str | None
    reasoning: str | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came out of an answer, with white space squeezed."""

    calls: list[dict[str, Any]]
    content: str
    reasoning: str


def squeeze(text: str | None) -> str:
    return " ".join((text or "").split())


def outcome(segments: list[Segment]) -> Outcome:
    texts = {
        kind: squeeze("".join([segment.text for segment in segments if segment.kind == kind]))
        for kind in ("text", "reasoning")
    }
    calls = [
        {"name": segment.name, "arguments": json.loads(segment.text)} for segment in segments if segment.kind == "call"
    ]
    return Outcome(calls, texts["text"], texts["reasoning"])


def parse_text(
    text: str,
    tools: Mapping[str, Raw | None],
    *,
    calls: str = "auto",
    reasoning: str = "auto",
    model: str | None = None,
    bare: bool = True,
    finished: bool = True,
) -> list[Segment]:
    """Return the segments of a complete answer; reasoning that the prompt opened is recognized by its end."""
    closer = find_open_reasoning(text, reasoning)
    parser = TextCallParser(tools, calls=calls, reasoning=reasoning, model=model, bare=bare, reasoning_closer=closer)
    return merge_segments([*parser.feed(text), *parser.finish(finished=finished)])


def merge_segments(segments: list[Segment]) -> list[Segment]:
    """Return segments with consecutive pieces of text or of reasoning joined."""
    merged: list[Segment] = []
    for segment in segments:
        if merged and segment.kind == merged[-1].kind != "call":
            merged[-1] = Segment(segment.kind, merged[-1].text + segment.text)
        else:
            merged.append(segment)
    return merged


def parse_whole(case: TextCase) -> list[Segment]:
    return parse_text(case.text, case.tools, finished=case.finished)


def parse_pieces(
    pieces: list[str], tools: dict[str, Raw | None], *, finished: bool = True, reasoning_closer: str = ""
) -> list[Segment]:
    parser = TextCallParser(tools, reasoning_closer=reasoning_closer)
    segments = [segment for piece in pieces for segment in parser.feed(piece)]
    return merge_segments([*segments, *parser.finish(finished=finished)])


def fixture_cases() -> tuple[TextCase, ...]:
    return _read(FIXTURES)


def all_cases() -> tuple[TextCase, ...]:
    return _read(FULL_SET) if FULL_SET.exists() else _read(FIXTURES)


@cache
def _read(folder: Path) -> tuple[TextCase, ...]:
    named = json.loads((folder / "tools.json").read_text()) if (folder / "tools.json").exists() else {}
    lines = [line for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]
    return tuple([_case(json.loads(line), named) for line in lines])


def _case(row: dict[str, Any], named: dict[str, Any]) -> TextCase:
    declarations = named[row["tools"]] if isinstance(row["tools"], str) else row["tools"]
    functions = [declaration["function"] for declaration in declarations]
    return TextCase(
        id=row["id"],
        dialect=row["dialect"],
        kind=row["kind"],
        tools={function["name"]: Raw(json.dumps(function.get("parameters") or {}).encode()) for function in functions},
        text=row["text"],
        finished=row.get("finish") != "length",
        calls=row["calls"],
        content=row["content"],
        reasoning=row["reasoning"],
    )
