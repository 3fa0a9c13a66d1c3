"""Pictures of real terminals for the site: `python -m tests.documentation.pictures`.

Each is the output of commands in a pseudo-terminal, drawn as SVG. `overview.svg` is drawn by hand.
"""

import io
import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from urllib.request import Request, urlopen

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from tests.support.deadlines import DEADLINE
from tests.support.gateway.process import MESSAGES_REQUEST, serve_process
from tests.support.paths import ROOT
from tests.support.runtime.cli_process import (
    calls_turn,
    open_terminal,
    read_file_call,
    run_toolwire,
    text_reply,
    write_file_call,
    write_script,
)

FOLDER = ROOT / "docs" / "pictures"
WIDTH = 92
_THEME = TerminalTheme(
    (24, 27, 34),
    (214, 219, 229),
    [
        *((24, 27, 34), (230, 97, 100), (92, 190, 120), (219, 171, 9)),
        *((97, 154, 240), (190, 130, 230), (80, 190, 200), (214, 219, 229)),
    ],
)
_FONT_FACE = re.compile(r"@font-face \{.*?\}", re.DOTALL)
_CURSOR = re.compile(r"\x1b\[[0-9;?]*[A-HJKhl]|\r")


def draw(title: str, output: str) -> str:
    """Draw the output of a terminal, without fonts from elsewhere."""
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    for line in _CURSOR.sub("", output).rstrip().splitlines():
        console.print(Text.from_ansi(line), soft_wrap=False)
    svg = console.export_svg(title=title, theme=_THEME, unique_id=re.sub(r"\W", "-", title))
    return _FONT_FACE.sub("", svg).replace("Fira Code", "ui-monospace, Menlo, Consolas, monospace") + "\n"


def ask(folder: Path) -> str:
    """An agent that reads a file, and edits it after approval."""
    (folder / "notes.txt").write_text("Buy milk.\n", encoding="utf-8")
    change = write_file_call(folder, "notes.txt", "Buy milk and bread.\n")
    write_script(
        folder, calls_turn(read_file_call(folder, "notes.txt")), calls_turn(change), text_reply("Bread is on the list.")
    )
    with open_terminal(folder, "ask", "add bread to my notes") as screen:
        shown = screen.read_until("[l]ater: ")
        screen.type_text("y\n")
        rest = screen.wait()[1]
    notes = re.compile(r"^\x1b\[[0-9;]*m(?:toolwire: |run_).*\n?", re.MULTILINE)
    text = notes.sub("", f"{shown}[l]ater: {rest}")
    return "$ toolwire ask 'add bread to my notes'\n" + text.replace(f"{folder}/", "")


def journal(folder: Path) -> str:
    """The list of exchanges that a gateway recorded, from clients of several protocols."""
    with serve_process(folder, "--record") as (process, root):
        chat = {"messages": [{"role": "user", "content": "Hi"}], "top_k": 5}
        requests = [
            ("/v1/messages", MESSAGES_REQUEST | {"model": "openai/gpt-5.5", "top_k": 5}),
            ("/v1/responses", {"model": "anthropic/claude-sonnet-4-5", "input": "Hi", "stream": True}),
            ("/v1/chat/completions", chat | {"model": "gemini/gemini-3.1-pro-preview"}),
            ("/api/chat", chat | {"model": "openrouter/z-ai/glm-5"}),
            ("/v1/chat/completions", chat | {"model": "opnai/gpt-5.5"}),
        ]
        for path, body in requests:
            data = json.dumps(body).encode()
            try:
                urlopen(Request(f"{root}{path}", data, {"content-type": "application/json"})).read()
            except OSError:
                continue
        process.terminate()
        process.wait(DEADLINE)
    recorded = folder / "toolwire" / "journal.db"
    with open_terminal(folder, "journal", "tail", "--journal", str(recorded)) as screen:
        return "$ toolwire journal tail\n" + screen.wait()[1]


def losses(folder: Path) -> str:
    """A translation, with what the target can't express."""
    request = {"model": "m", "max_tokens": 99, "top_k": 5, "messages": [{"role": "user", "content": "Hi"}]}
    command = "translate --from anthropic --to openai-responses"
    done = run_toolwire(folder, *command.split(), stdin=json.dumps(request), FORCE_COLOR="1", COLUMNS=str(WIDTH))
    body = json.dumps(json.loads(done.out), indent=2)
    return f"$ toolwire {command} < request.json\n{done.err}{body}"


PICTURES: dict[str, tuple[str, Callable[[Path], str]]] = {
    "ask": ("toolwire ask", ask),
    "journal": ("toolwire journal", journal),
    "losses": ("toolwire translate", losses),
}

if __name__ == "__main__":
    for name, (title, produce) in PICTURES.items():
        with tempfile.TemporaryDirectory(prefix="toolwire-picture-") as folder:
            (FOLDER / f"{name}.svg").write_text(draw(title, produce(Path(folder))), encoding="utf-8")
