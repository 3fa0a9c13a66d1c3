"""Lists of pages, written from the pages: `python -m tests.documentation.page_lists`.

`docs/llms.txt` lists all pages for language models (llmstxt.org), in the order of the site; `docs/decisions/README.md`
lists the decisions.
"""

import re
from pathlib import Path

from tests.support.paths import ROOT

DOCS = ROOT / "docs"
SITE = ROOT / "mkdocs.yml"
LLMS = DOCS / "llms.txt"
DECISIONS = DOCS / "decisions" / "README.md"

_ENTRY = re.compile(r"^(?P<indent> *)- (?:(?P<title>[^:]+):)? ?(?P<path>\S+\.md)?$")
_HEADING = re.compile(r"^# (.+)$", re.MULTILINE)
_NOT_PROSE = re.compile(r"^```.*?^```$|^#[^\n]*$|^<!--.*?-->$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")
_DESCRIPTION = re.compile(r"^site_description: (.+)$", re.MULTILINE)


def navigation() -> list[tuple[str, str]]:
    """Return the sections of the site and their pages, in order: the title of the section, and the path."""
    section, found = "", []
    for line in SITE.read_text(encoding="utf-8").partition("\nnav:\n")[2].splitlines():
        match = _ENTRY.match(line)
        assert match is not None, line
        if match["path"] is not None:
            found.append((section if match["indent"] != "  " else "", match["path"]))
        elif match["indent"] == "  ":
            section = match["title"]
    return found


def title(path: Path) -> str:
    """Return the first heading of a page."""
    heading = _HEADING.search(path.read_text(encoding="utf-8"))
    assert heading is not None, path
    return str(heading[1])


def summary(path: Path) -> str:
    """Return the first sentence of a page, with links replaced by their text; empty if the page begins otherwise."""
    text = _NOT_PROSE.sub("", path.read_text(encoding="utf-8")).strip()
    first = " ".join(_LINK.sub(r"\1", text.partition("\n\n")[0]).split())
    sentence = re.split(r"(?<=\.)\s", first, maxsplit=1)[0]
    return sentence if sentence[:1].isalpha() and sentence.endswith(".") else ""


def render_llms() -> str:
    """Render `llms.txt`."""
    description = _DESCRIPTION.findall(SITE.read_text(encoding="utf-8"))[0]
    lines, last = ["# toolwire", "", f"> {description}", ""], ""
    for section, path in navigation():
        if section != last:
            lines += ["", f"## {section}", ""]
            last = section
        about = summary(DOCS / path)
        lines.append(f"- [{title(DOCS / path)}]({path})" + (f": {about}" if about else ""))
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def render_decisions() -> str:
    """Render the list of decisions."""
    lines = ["# Decisions", "", "Why toolwire is built this way: choices that a maintainer would question.", ""]
    for path in sorted(DECISIONS.parent.glob("0*.md")):
        number, _, name = title(path).partition(": ")
        lines.append(f"* [{number}]({path.name}): {name}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    DECISIONS.write_text(render_decisions(), encoding="utf-8")
    LLMS.write_text(render_llms(), encoding="utf-8")
