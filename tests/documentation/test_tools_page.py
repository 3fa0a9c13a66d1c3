"""The page about the built-in tools matches their schemas."""

import re
from pathlib import Path

from tests.support.runtime.tool_calls import NO_SANDBOX
from toolwire.runtime.tools import built_in_tools

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "tools.md"
SECTION = re.compile(r"^## `(?P<name>\w+)`\n(?P<text>.*?)(?=^## )", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<required>required )?\| (?P<told>.*) \|$", re.MULTILINE)


def test_every_tool_is_documented_with_its_parameters(tmp_path: Path) -> None:
    documented = {
        section["name"]: [(row["name"], bool(row["required"]), row["told"]) for row in ROW.finditer(section["text"])]
        for section in SECTION.finditer(PAGE.read_text(encoding="utf-8"))
    }
    assert documented == {
        tool.name: [
            (name, name in tool.parameters["required"], schema["description"])
            for name, schema in tool.parameters["properties"].items()
        ]
        for tool in built_in_tools(tmp_path, sandbox=NO_SANDBOX)
    }
