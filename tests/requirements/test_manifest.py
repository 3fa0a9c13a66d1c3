"""Every line of the seed documents that asks for something is in the manifest, and what it names exists."""

import re
from collections import Counter

import pytest

from tests.requirements.manifest import REQUIREMENTS, Requirement
from tests.support.assertions import non_empty
from tests.support.collection import is_collected
from tests.support.paths import SHARED, skip_without

DOCUMENTS = SHARED / "seeds"
COUNTS = {
    "failure modes": 15,
    "protocol invariants": 7,
    "the runtime's responsibilities": 12,
    "where execution happens": 6,
    "tool search": 4,
    "programmatic tool calling": 4,
    "computer use": 5,
    "strict schemas": 6,
    "parallel calls": 2,
    "streamed calls": 1,
    "failure encoding": 3,
    "untrusted input": 5,
    "SDK-managed loops": 8,
    "MCP release track": 6,
    "verification": 17,
    "do and don't": 30,
    "adapter contract": 6,
    "function tables": 12,
}
# What stands before the first and after the last line of a section.
BOUNDS = {
    "protocol invariants": ("Invariant What to check Failure if broken", "Model-Visible State"),
    "the runtime's responsibilities": (
        "The runtime is the orchestrator. It owns:",
        "The model owns only planning",
    ),
    "where execution happens": ("Execution locus Who runs the tool What the app still owns", "Tool Search And"),
    "tool search": ("Pattern Flow Failure mode", "Deferred loading changes"),
    "programmatic tool calling": ("Variant What changes What must remain explicit", "For Anthropic's programmatic"),
    "computer use": ("Element Protocol meaning Runtime duty", "Browser-control harnesses"),
    "strict schemas": ("Strict Schemas And Runtime Validation", "Parallel Tool Calls"),
    "parallel calls": ("Parallel Tool Calls", "Streaming Tool Calls"),
    "streamed calls": ("Streaming Tool Calls", "Failure Encoding"),
    "failure encoding": ("Failure layer Examples Handling", "Tool Results Are Untrusted Input"),
    "untrusted input": ("Tool Results Are Untrusted Input", "The Runtime's Responsibilities"),
    "SDK-managed loops": ("Current SDKs and providers automate more loop mechanics:", "MCP Release-Track Note"),
    "MCP release track": ("Version-gate these RC/draft points:", "Do not silently apply"),
    "verification": ("After applying this skill, verify:", "Do NOT Use When"),
}
PATTERNS = {
    "strict schemas": r"\s*•",
    "parallel calls": r"Protocols allow|If a batched",
    "untrusted input": r"\s*•",
    "do and don't": r"- (Do|Don't): ",
    "adapter contract": r"- `(parseModelToolCalls|buildToolResultMessages)\(|- Parsing |  - (Chat: accept|\w+: scan) ",
    "function tables": r"\| (OpenAI|Anthropic|Ollama|OpenRouter) \|",
}
SECTIONS = list(COUNTS)


def section(name: str) -> list[Requirement]:
    return [line for line in REQUIREMENTS if line.section == name]


def expected(name: str, document: list[str]) -> list[tuple[int, str]]:
    """Number and text of the lines that a section of a seed has."""
    if name == "failure modes":
        for number, line in enumerate(document, 1):
            if found := re.search(r'failure_modes\\?":\[\\?"(.*?)"\],"evidence_priority', line):
                return [(number, mode) for mode in found[1].split('","')]
        return []
    first, last = 0, len(document)
    if name in BOUNDS:
        before, after = BOUNDS[name]
        first = document.index(before) + 1
        last = next(at for at, line in enumerate(document) if at > first and line.startswith(after))
    wanted = re.compile(PATTERNS.get(name, r"\S|\s*•"))
    rows = [(at + 1, line) for at, line in enumerate(document[first:last], first) if wanted.match(line)]
    return [(number, re.sub(r"^\s*[•-]\s+", "", line)) for number, line in rows]


def test_the_manifest_has_every_line() -> None:
    assert Counter(line.section for line in REQUIREMENTS) == COUNTS
    assert len({(line.document, line.line, line.text) for line in REQUIREMENTS}) == len(REQUIREMENTS) == 149


@skip_without("seeds")
@pytest.mark.parametrize("name", SECTIONS)
def test_the_lines_are_those_of_the_seed(name: str) -> None:
    lines = section(name)
    assert len(lines) == COUNTS[name]
    assert len({line.document for line in lines}) == 1
    (path,) = DOCUMENTS.glob(f"{lines[0].document}_*.txt")
    assert [(line.line, line.text) for line in lines] == expected(name, path.read_text().split("\n"))


@pytest.mark.parametrize("name", SECTIONS)
def test_every_line_has_a_test_that_exists_or_a_part_that_brings_it(name: str) -> None:
    for line in non_empty(section(name)):
        assert line.tests, f"{line.document}:{line.line} has no place"
        for place in line.tests:
            assert is_collected(place), f"{line.document}:{line.line}: {place} is no test"


def test_only_what_pytest_collects_is_a_test() -> None:
    assert is_collected("tests/requirements/test_manifest.py::test_only_what_pytest_collects_is_a_test")
    assert is_collected("tests/runtime/tools/browser/chromium/test_actions.py::test_wait_is_limited")
    assert not is_collected("tests/requirements/test_manifest.py::section")
    assert not is_collected("tests/requirements/test_manifest.py::test_that_nobody_wrote")
    assert not is_collected("tests/support/collection.py::exists")
    assert not is_collected("tests/no_such_file.py::test_a")
