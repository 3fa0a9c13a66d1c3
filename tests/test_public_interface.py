"""The public interface: exactly these names, each there, and nothing loaded before it is used."""

import json
import subprocess
import sys

import pytest

import toolwire

NAMES = [
    "Agent",
    "Browser",
    "DecodeError",
    "Loss",
    "LossyTranslationError",
    "Policy",
    "RunFailed",
    "RunLimits",
    "ToolContext",
    "ToolError",
    "ToolwireError",
    "Translation",
    "check",
    "continue_request",
    "format_tool_result",
    "format_tool_results",
    "format_tools",
    "parse_tool_calls",
    "tool",
    "translate",
    "translate_stream",
]


def test_the_list_of_names_is_exact() -> None:
    assert toolwire.__all__ == NAMES
    assert dir(toolwire) == sorted([*NAMES, "__version__"])


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_there(name: str) -> None:
    found = getattr(toolwire, name)
    assert found.__name__ == name
    assert found.__module__.startswith("toolwire.")
    assert found.__doc__


def test_all_names_can_be_imported_at_once() -> None:
    scope: dict[str, object] = {}
    exec("from toolwire import *", scope)
    assert set(NAMES) <= set(scope)


def test_another_name_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'toolwire' has no attribute 'translat'"):
        toolwire.translat  # noqa: B018


def test_importing_loads_nothing_else() -> None:
    loaded = _loaded("import toolwire")
    assert {name for name in loaded if name.split(".")[0] == "toolwire"} == {"toolwire"}
    assert loaded.isdisjoint({"msgspec", "click", "asyncio", "inspect", "ssl", "socket"})


def test_an_error_is_caught_without_loading_a_codec() -> None:
    loaded = _loaded("from toolwire import DecodeError, LossyTranslationError")
    assert not any(name.startswith(("toolwire.codec", "toolwire.protocols", "toolwire.cli")) for name in loaded)


def test_only_the_protocols_in_use_are_loaded() -> None:
    loaded = _loaded("import toolwire; toolwire.check({'model': 'm', 'messages': []}, 'openai-chat')")
    folders = {name.split(".")[2] for name in loaded if name.startswith("toolwire.protocols.")}
    assert folders == {"openai_chat", "vendors"}  # the second holds what the protocols of one vendor share
    assert loaded.isdisjoint({"click", "asyncio", "ssl", "toolwire.cli"})


def _loaded(code: str) -> set[str]:
    """The modules that this code brings into a process of its own."""
    program = (
        f"import json, sys; before = set(sys.modules)\n{code}\nprint(json.dumps(sorted(set(sys.modules) - before)))"
    )
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return set(json.loads(ran.stdout))
