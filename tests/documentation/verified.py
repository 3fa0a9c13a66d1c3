"""How agents and protocols were verified, on their pages: `python -m tests.documentation.verified`.

Versions and results come from the pages and fixtures that the tests write.
"""

import re
from pathlib import Path

from tests.documentation.page_lists import DOCS
from tests.support.paths import ROOT

HEADING = "## Verified with"
# The name of each agent in the results, by its guide.
_AGENTS = ("claude", "codex", "gemini", "opencode", "qwen")
# The package of the vendor's SDK, and the agents that speak the protocol by default.
_PROTOCOLS: dict[str, tuple[str, tuple[str, ...]]] = {
    "anthropic": ("anthropic", ("claude", "opencode", "qwen")),
    "openai-chat": ("openai", ("opencode", "qwen")),
    "openai-responses": ("openai", ("codex", "opencode")),
    "gemini": ("google-genai", ("gemini", "opencode", "qwen")),
    "gemini-interactions": ("google-genai", ()),
    "ollama": ("ollama", ()),
    "openrouter": ("openrouter", ()),
}
_COMPLIANCE = {"openai-responses": "open-responses", "openai-chat": "openai-chat", "anthropic": "anthropic"}
_KINDS = "requests, responses, streams, broken streams and errors"


def _read(*parts: str) -> str:
    return ROOT.joinpath(*parts).read_text(encoding="utf-8")


def _agent_versions() -> tuple[dict[str, str], str]:
    """Return the versions of the agents in the results, and the day of these."""
    text = " ".join(_read("docs", "reference", "agents.md").split())
    match = re.search(r"strict as its provider: (.+?), on (\d{4}-\d\d-\d\d)\.", text)
    assert match is not None
    names = (entry.rpartition(" ") for entry in match[1].split(", "))
    return {name: version for name, _, version in names}, match[2]


def _agent_cells(name: str) -> tuple[int, int]:
    """Return the cells of the results of an agent, and those that are done."""
    rows = re.findall(rf"^\| {name}(?: [^|]*)?\|(.+)\|$", _read("docs", "reference", "agents.md"), re.MULTILINE)
    cells = [cell.strip() for row in rows for cell in row.split("|")]
    return len(cells), sum(cell.startswith("done") for cell in cells)


def _sdk_version(package: str) -> str:
    """Return the version of an SDK that the tests run with: the lower bound of the requirement."""
    match = re.search(rf'"{re.escape(package)}>=([\d.]+),', _read("pyproject.toml"))
    assert match is not None, package
    return match[1]


def agent_section(name: str) -> str:
    """Render the section of an agent's guide."""
    versions, day = _agent_versions()
    total, done = _agent_cells(name)
    how = "the agent does a task on every upstream, `make test-agents`"
    result = f"{done} of {total} [done](../reference/agents.md)"
    return _section([f"| {versions[name]}, from npm | {day} | {how} | {result} |"])


def protocol_section(protocol: str) -> str:
    """Render the section of a protocol's page."""
    versions, day = _agent_versions()
    package, agents = _PROTOCOLS[protocol]
    how = "its types check what toolwire writes, and its client uses the gateway on every upstream, `make test`"
    rows = [f"| {package} {_sdk_version(package)} (Python SDK) | each change | {how} | passes |"]
    for agent in agents:
        total, done = _agent_cells(agent)
        title = f"{agent} {versions[agent]} (agent)"
        rows.append(f"| {title} | {day} | `make test-agents` | {done} of {total} [done](../reference/agents.md) |")
    if protocol in _COMPLIANCE:
        text = _read("docs", "reference", "compliance.md")
        suite = re.search(r"Results of (llm-comply [\d.]+)", text)
        row = re.search(rf"^\| {_COMPLIANCE[protocol]} \| (.+) \|$", text, re.MULTILINE)
        assert suite is not None
        assert row is not None
        counts = [tuple(map(int, cell.split("/"))) for cell in row[1].split(" | ") if "/" in cell]
        passed, total = (sum(count[index] for count in counts) for index in (0, 1))
        how = "the suite sends requests on every upstream, `make test-comply`"
        rows.append(f"| {suite[1]} | see its page | {how} | {passed} of {total} [passed](../reference/compliance.md) |")
    rows.append(f"| fixtures | each change | {_KINDS}, `make test` | [counted](../reference/evidence.md) |")
    return _section(rows)


def _section(rows: list[str]) -> str:
    return "\n".join([HEADING, "", "| version | date | how | result |", "|---|---|---|---|", *rows]) + "\n"


def sections() -> dict[Path, str]:
    """Return the section of each page."""
    agents = {DOCS / "guides" / f"{name}.md": agent_section(name) for name in _AGENTS}
    return agents | {DOCS / "protocols" / f"{name}.md": protocol_section(name) for name in _PROTOCOLS}


def with_section(text: str, section: str) -> str:
    """Return a page with its section replaced, or added at the end."""
    before, found, after = text.partition(f"{HEADING}\n")
    if not found:
        return f"{text.rstrip()}\n\n{section}"
    rest = re.search(r"^## ", after, re.MULTILINE)
    return before + section + ("" if rest is None else "\n" + after[rest.start() :])


if __name__ == "__main__":
    for page, section in sections().items():
        page.write_text(with_section(page.read_text(encoding="utf-8"), section), encoding="utf-8")
