"""The architecture page names only files, classes and functions that exist."""

import re
from pathlib import Path

import pytest

from tests.support.assertions import non_empty
from tests.support.paths import ROOT

SOURCES = ROOT / "src" / "toolwire"
PAGE = (ROOT / "docs" / "concepts" / "architecture.md").read_text(encoding="utf-8")
# Paths are relative to the package, in the gateway's table to the gateway, or to a protocol folder.
FOLDERS = (SOURCES, SOURCES / "gateway", SOURCES / "protocols" / "anthropic", ROOT)
NAMES = sorted(set(re.findall(r"`([A-Z]\w+(?:\.\w+)?|[a-z]+_\w+)(?:\(\))?`", PAGE)))
PATHS = sorted({path for path in re.findall(r"`([\w/<>]+(?:\.py|\.md|/))`", PAGE) if "<" not in path})


@pytest.mark.parametrize("path", PATHS)
def test_path_exists(path: str) -> None:
    assert any((folder / path).exists() for folder in FOLDERS)


def test_names_are_defined_in_the_sources() -> None:
    text = "\n".join(file.read_text(encoding="utf-8") for file in sorted(SOURCES.rglob("*.py")))
    for name in non_empty(NAMES):
        for part in name.split("."):
            assert re.search(rf"(?:def|class) {part}\b|^{part}\b.* = |\b{part}: ", text, re.MULTILINE), name


def test_every_package_is_listed() -> None:
    packages = {path.name for path in SOURCES.iterdir() if (path / "__init__.py").exists()}
    assert {name for name in packages if f"`{name}/`" not in PAGE} == set()
    assert Path(SOURCES / "agent.py").exists()
