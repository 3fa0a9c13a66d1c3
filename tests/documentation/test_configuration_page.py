"""The configuration page lists every key with its default."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from toolwire.codec.models.info import ModelInfo
from toolwire.gateway import config
from toolwire.runtime.mcp.config import McpServerConfig

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"
SECTIONS = {
    "[server]": config.ServerSection,
    "[providers.NAME]": config.ProviderSection,
    "[[routes]]": config.RouteSection,
    "[[routes.backends]]": config.BackendSection,
    '[models."NAME"]': ModelInfo,
    "[limits]": config.LimitsSection,
    "[policy]": config.PolicySection,
    "[tools]": config.ToolsSection,
    "[search]": config.SearchSection,
    "[browser]": config.BrowserSection,
    "[simulator]": config.SimulatorSection,
    "[journal]": config.JournalSection,
    "[state]": config.StateSection,
    "[mcp.servers.NAME]": McpServerConfig,
}


def documented_default(field: msgspec.inspect.Field) -> str:
    if field.required:
        return "required"
    if field.default is msgspec.NODEFAULT or field.default in (None, ()):
        return "-"
    value: Any = field.default
    return f"`{json.dumps(float(value) if isinstance(field.type, msgspec.inspect.FloatType) else value)}`"


@pytest.mark.parametrize("name", SECTIONS)
def test_every_key_is_on_the_page(name: str) -> None:
    section = PAGE.read_text(encoding="utf-8").partition(f"## `{name}`\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| .+ \|$", section, re.MULTILINE)
    kind = msgspec.inspect.type_info(SECTIONS[name])
    assert isinstance(kind, msgspec.inspect.StructType)
    assert rows == [(field.name, documented_default(field)) for field in kind.fields]


def test_every_section_is_on_the_page() -> None:
    assert {field.name for field in msgspec.structs.fields(config.Config)} == {
        name.strip("[]").partition(".")[0] for name in (*SECTIONS, "[hosts.NAME]")
    }
    assert "## `[hosts.NAME]`\n" in PAGE.read_text(encoding="utf-8")
