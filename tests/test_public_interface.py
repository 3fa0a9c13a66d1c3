"""The public interface: exactly these names, loaded on first use."""

import json
import re
import subprocess
import sys
from typing import get_args

import pytest

import toolwire
from tests.support.paths import ROOT

NAMES = [
    "Agent",
    "AgentWarning",
    "ApprovalAnswer",
    "ApprovalRequest",
    "Approver",
    "Browser",
    "CallDeniedWarning",
    "CallEnded",
    "CallLogged",
    "CallProgressed",
    "CallProposed",
    "CallRecord",
    "CallStarted",
    "Citation",
    "CodeExecution",
    "Config",
    "DecodeError",
    "Denied",
    "HandedOff",
    "Hooks",
    "Inline",
    "Loss",
    "LossyTranslationError",
    "Media",
    "Message",
    "Model",
    "ModelSettings",
    "ModelTurn",
    "NativeTool",
    "PendingCall",
    "Policy",
    "ProposedCall",
    "RateLimit",
    "Request",
    "Response",
    "Run",
    "RunContext",
    "RunEnded",
    "RunFailed",
    "RunInUse",
    "RunLimits",
    "RunStarted",
    "RunState",
    "RunStream",
    "RunWarning",
    "Session",
    "SessionInUse",
    "SubAgentEvent",
    "Text",
    "TextDelta",
    "ThinkingDelta",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolOutput",
    "ToolwireError",
    "Translation",
    "TurnEnded",
    "TurnStarted",
    "Url",
    "Usage",
    "WebFetch",
    "WebSearch",
    "async_http_client",
    "check",
    "continue_request",
    "format_tool_result",
    "format_tool_results",
    "format_tools",
    "http_client",
    "mcp_server",
    "model_info",
    "parse_tool_calls",
    "tool",
    "translate",
    "translate_stream",
]
ALIASES = {"ApprovalAnswer": ("yes", "no", "always", "later")}


def test_public_names_are_exact() -> None:
    assert toolwire.__all__ == NAMES
    assert dir(toolwire) == sorted([*NAMES, "__version__"])


@pytest.mark.parametrize("name", NAMES)
def test_public_name_is_importable_and_documented(name: str) -> None:
    value = getattr(toolwire, name)
    if name in ALIASES:  # these know neither their name nor their documentation
        assert get_args(value) == ALIASES[name]
        return
    assert value.__name__ == name
    assert value.__module__.startswith("toolwire.")
    assert value.__doc__


def test_public_name_is_looked_up_only_once() -> None:
    value = toolwire.translate
    assert vars(toolwire)["translate"] is value


def test_star_import_provides_all_names() -> None:
    scope: dict[str, object] = {}
    exec("from toolwire import *", scope)
    assert set(NAMES) <= set(scope)


def test_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'toolwire' has no attribute 'translat'"):
        toolwire.translat  # noqa: B018


def test_import_loads_no_other_module() -> None:
    loaded = _loaded("import toolwire")
    assert {name for name in loaded if name.split(".")[0] == "toolwire"} == {"toolwire"}
    assert loaded.isdisjoint({"msgspec", "click", "asyncio", "inspect", "ssl", "socket"})


def test_errors_load_no_codec() -> None:
    loaded = _loaded("from toolwire import DecodeError, LossyTranslationError")
    assert not any(name.startswith(("toolwire.codec", "toolwire.protocols", "toolwire.cli")) for name in loaded)


def test_only_the_protocols_in_use_are_loaded() -> None:
    loaded = _loaded("import toolwire; toolwire.check({'model': 'm', 'messages': []}, 'openai-chat')")
    folders = {name.split(".")[2] for name in loaded if name.startswith("toolwire.protocols.")}
    assert folders == {"openai_chat", "vendors"}  # `vendors` holds code that protocols of one vendor share
    assert loaded.isdisjoint({"click", "asyncio", "ssl", "toolwire.cli"})


def _loaded(code: str) -> set[str]:
    """Return the modules that this code loads in a new process."""
    program = (
        f"import json, sys; before = set(sys.modules)\n{code}\nprint(json.dumps(sorted(set(sys.modules) - before)))"
    )
    process = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return set(json.loads(process.stdout))


def test_pages_use_public_names_only() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    used = {name: page for page in pages for name in re.findall(r"\btw\.(\w+)", page.read_text(encoding="utf-8"))}
    assert len(used) > 50
    assert {name: str(page) for name, page in used.items() if not hasattr(toolwire, name)} == {}
