"""The tables of the configuration page, by the type of their section."""

import re
from typing import Any

from tests.support.paths import ROOT
from toolwire.codec.models.info import ModelInfo
from toolwire.gateway.config import sections
from toolwire.runtime.mcp.config import McpServerConfig

PAGE = ROOT / "docs" / "reference" / "configuration.md"
SECTIONS: dict[str, Any] = {
    "[server]": sections.ServerSection,
    "[keys.NAME]": sections.KeySection,
    "[providers.NAME]": sections.ProviderSection,
    "[providers.NAME.api_key]": sections.KeyCommandSection,
    "[[routes]]": sections.RouteSection,
    "[[routes.backends]]": sections.BackendSection,
    '[models."NAME"]': ModelInfo,
    "[limits]": sections.LimitsSection,
    "[compaction]": sections.CompactionSection,
    "[policy]": sections.PolicySection,
    "[tools]": sections.ToolsSection,
    "[search]": sections.SearchSection,
    "[browser]": sections.BrowserSection,
    "[simulator]": sections.SimulatorSection,
    "[journal]": sections.JournalSection,
    "[console]": sections.ConsoleSection,
    "[state]": sections.StateSection,
    "[mcp.servers.NAME]": McpServerConfig,
}
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def documented_keys(heading: str) -> dict[str, tuple[str, str]]:
    """Return the default and the meaning of each key in the table below a heading."""
    section = PAGE.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.+) \|$", section, re.MULTILINE)
    return {key: (default, meaning) for key, default, meaning in rows}


def plain_text(markdown: str) -> str:
    """Return Markdown without its links and code marks."""
    return _LINK.sub(r"\1", markdown).replace("`", "")
