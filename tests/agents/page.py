"""The documentation page with the table of agents and upstreams."""

from pathlib import Path

from tests.agents.execution import Cell

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "agents.md"

_INTRODUCTION = """# Agents on every upstream

`make test-agents` writes this page. It installs these agents from npm and runs each without a terminal, through the
gateway, on a simulated model that is as strict as its provider: {versions}.

Each agent performs the same task: write a file with difficult content, run a command, read the file back, make three
parallel calls (in Codex's code mode, in one program), and report data that only the results contain. A run is done if:

* the agent exits successfully, the file has exactly the expected bytes, and the answer contains the results;
* the upstream rejected nothing, and got its calls back unchanged with their results;
* the upstream got back all signatures of its thinking and no others, or the thinking itself if it is unsigned. The
  number in a cell counts these.

An upstream thinks if the agent requests it. Google's models always think, and models with unsigned thinking do unless
the agent disables it.

Parentheses show the requested model, if the agent's behavior depends on it, and the protocol or the special case. A
restarted gateway uses the files of the one before. It restarts once while Codex runs a command, and once between two
turns, of which Codex resumes the second. Claude Code's web search is a separate request without other tools: if the
upstream has no search, Claude Code gets an error and continues. A failing upstream first responds with 429, at the next
step with an overload error, and cuts off its stream at the third; the gateway leaves the retry to the agent. Qwen Code
does not retry after a cut-off stream, so its runs omit that failure.

"""


def as_page(cells: list[Cell], versions: dict[str, str]) -> str:
    names = ", ".join(f"{name} {version}" for name, version in versions.items())
    upstreams = list(dict.fromkeys(cell.upstream for cell in cells))
    lines = [f"| agent | {' | '.join(upstreams)} |", f"|---|{'---|' * len(upstreams)}"]
    notes: list[str] = []
    for name in dict.fromkeys(cell.run.name for cell in cells):
        marks = [_mark(cell, notes) for cell in cells if cell.run.name == name]
        lines.append(f"| {name} | {' | '.join(marks)} |")
    done = sum(not cell.faults for cell in cells)
    summary = f"{done} of {len(cells)} are done.\n"
    return _INTRODUCTION.format(versions=names) + "\n".join([*lines, "", summary, *notes])


def _mark(cell: Cell, notes: list[str]) -> str:
    if not cell.faults:
        return f"done, {cell.thoughts}" if cell.thoughts else "done"
    number = sum(note.startswith("* ") for note in notes) + 1
    notes.append(f"* ({number}) {cell.run.name} on {cell.upstream}: {'; '.join(cell.faults)}\n")
    return f"**no** ({number})"
