"""The first steps in the documentation: installation, extras, and messages that new users meet."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
EXTRAS = {
    "mcp": r"toolwire\.runtime\.mcp\b|mcp_server\(",
    "code": r"toolwire\.runtime\.sandbox\.code\b|code=True",
}
PACKAGES = ("openai", "anthropic", "pydantic", "pytest")
MESSAGES = (
    "externally-managed-environment",
    "unknown provider",
    "and no valid error body",
    "Invalid URL",
    "Model metadata for",
)


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def prose_before(text: str, start: int) -> str:
    """Return the text of a section up to a block, with what the page's introduction says of all its examples."""
    introduction = text.partition("\n## ")[0].partition("\n```")[0]
    return (introduction if "the examples" in introduction else "") + text[text.rfind("\n## ", 0, start) + 1 : start]


def test_quick_starts_install_into_an_environment() -> None:
    installing = [page for page in PAGES if page.startswith("docs/start/") and "pip install ." in read(page)]
    assert len(installing) >= 3
    for page in installing:
        for line in re.findall(r".*pip install \.(?:\W.*)?$", read(page), re.MULTILINE):
            assert "python3 -m venv .venv && . .venv/bin/activate && pip install ." in line, page


@pytest.mark.parametrize("extra", EXTRAS)
def test_extra_is_named_before_the_examples_that_need_it(extra: str) -> None:
    examples = [
        (page, block.start())
        for page in PAGES
        for block in re.finditer(r"^```python\n.*?^```", read(page), re.MULTILINE | re.DOTALL)
        if page != "docs/reference/api.md" and re.search(EXTRAS[extra], block[0])
    ]
    assert examples
    for page, start in examples:
        assert f"extra `{extra}`" in read(page)[:start], page


@pytest.mark.parametrize("package", PACKAGES)
def test_package_is_named_before_the_examples_that_import_it(package: str) -> None:
    examples = [
        (page, block.start())
        for page in ["README.md", *PAGES]
        for block in re.finditer(r"^```python\n.*?^```", read(page), re.MULTILINE | re.DOTALL)
        if re.search(rf"^ *(import|from) {package}\b", block[0], re.MULTILINE)
    ]
    assert examples
    for page, start in examples:
        assert re.search(rf"pip install [\w ]*\b{package}\b", prose_before(read(page), start)), f"{page}: {start}"


@pytest.mark.parametrize("message", MESSAGES)
def test_troubleshooting_has_the_message(message: str) -> None:
    rows = [line for line in read("docs/start/troubleshooting.md").splitlines() if line.startswith("| `")]
    assert any(message in row.split(" | ")[0] for row in rows)
