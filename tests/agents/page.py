"""The documentation page with the table of agents and upstreams."""

from pathlib import Path

from tests.agents.execution import Cell

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "agents.md"

_INTRODUCTION = """# Agents on every upstream

Made by `make test-agents`, which installs these agents from npm and runs each without a terminal, through the
gateway, on a simulated model that is as strict as its provider: {versions}.

Each is sent on the same errand: write a file with awkward content, run a command, read the file back, make three calls
at once (in Codex's code mode, in one program), and tell what only the results say. It is done if the agent ends well,
the file is right to the byte, the answer has the results, and the upstream refused nothing and got back its own calls
unchanged, with their results, every proof of its thinking and no other, or the thinking itself where it proves none;
the number says how many of these there were. An upstream thinks where the agent asks for it; Google's always, and those
that prove nothing unless they are asked not to.

In brackets: the model that the agent asks for, where its ways depend on it, and the protocol that it speaks or what
else is tried. A gateway that is restarted has the files of the one before: once while Codex runs a command, and once
between two turns of Codex, of which it resumes the second. Claude Code's web search is a
request of its own that offers nothing else: where the upstream has none, it is told so, and goes on. An upstream that
fails is busy at first (429), overloaded at the next step, and breaks off its stream at the third; the gateway leaves it
to the agent to try again. Qwen Code does not where a stream breaks off, so it is spared that.

"""


def as_page(cells: list[Cell], versions: dict[str, str]) -> str:
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    upstreams = list(dict.fromkeys(cell.upstream for cell in cells))
    lines = [f"| agent | {' | '.join(upstreams)} |", f"|---|{'---|' * len(upstreams)}"]
    notes: list[str] = []
    for name in dict.fromkeys(cell.run.name for cell in cells):
        marks = [_mark(cell, notes) for cell in cells if cell.run.name == name]
        lines.append(f"| {name} | {' | '.join(marks)} |")
    done = sum(not cell.faults for cell in cells)
    summary = f"{done} of {len(cells)} are done.\n"
    return _INTRODUCTION.format(versions=told) + "\n".join([*lines, "", summary, *notes])


def _mark(cell: Cell, notes: list[str]) -> str:
    if not cell.faults:
        return f"done, {cell.thoughts}" if cell.thoughts else "done"
    number = sum(note.startswith("* ") for note in notes) + 1
    notes.append(f"* ({number}) {cell.run.name} on {cell.upstream}: {'; '.join(cell.faults)}\n")
    return f"**no** ({number})"
