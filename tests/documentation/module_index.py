"""The module index in the documentation, written from the docstrings: `python -m tests.documentation.module_index`."""

import ast
from pathlib import Path

from tests.support.paths import ROOT

SOURCES = ROOT / "src" / "toolwire"
PAGE = ROOT / "docs" / "reference" / "modules.md"
HEAD = """# Module index

Every module of the package with the first line of its docstring.
[Architecture](../concepts/architecture.md) explains how they work together.
`python -m tests.documentation.module_index` writes this page.
"""


def summary(path: Path) -> str:
    """Return the first line of a module's docstring, without its period."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.split("\n", 1)[0].rstrip(".")


def folders() -> list[Path]:
    """Return the package and its sub-packages, parents first."""
    return sorted({path.parent for path in SOURCES.rglob("*.py")})


def render_page() -> str:
    """Render the page."""
    lines = [HEAD]
    for folder in folders():
        name = folder.relative_to(SOURCES.parent).as_posix()
        lines.append(f"## `{name}/`\n\n{summary(folder / '__init__.py')}.\n\n| module | contents |\n|---|---|")
        for path in sorted(folder.glob("*.py")):
            if path.name != "__init__.py":
                text = summary(path).replace("|", "\\|")
                lines.append(f"| `{path.name}` | {text} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(render_page(), encoding="utf-8")
