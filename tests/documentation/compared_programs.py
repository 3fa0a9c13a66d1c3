"""The programs of the page that compares toolwire with Pydantic AI."""

import re

from tests.documentation.page_lists import DOCS

PAGE = DOCS / "guides" / "five-tasks.md"
_PAIR = re.compile(
    r"^## (?P<task>.+?)$.*?^```python\n(?P<toolwire>.*?)^```.*?^```text\n(?P<other>.*?)^```", re.MULTILINE | re.DOTALL
)


def compared_programs() -> dict[str, tuple[str, str]]:
    """Return the program of toolwire and that of Pydantic AI, by task."""
    pairs = _PAIR.finditer(PAGE.read_text(encoding="utf-8"))
    return {pair["task"]: (pair["toolwire"], pair["other"]) for pair in pairs}


def statement_lines(program: str) -> int:
    return sum(bool(line.strip()) for line in program.splitlines())
