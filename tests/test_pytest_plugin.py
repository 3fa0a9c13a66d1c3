"""The fixtures of `toolwire.pytest_plugin`, in a project of its own, with the examples of the guide."""

import os
import re
from pathlib import Path

from tests.support.paths import ROOT
from tests.support.runtime.fork_server import run_forked

MORE_TESTS = """
import toolwire as tw
from toolwire.gateway.config import ProviderSection


def test_turns_are_left(scripted_model):
    assert tw.Agent(scripted_model("one", "two")).run("Hello").text == "one"


def test_request_to_a_provider(no_model_requests):
    config = tw.Config(providers={"own": ProviderSection(protocol="openai-chat", base_url="http://127.0.0.1:9")})
    with tw.Agent("own/model", config=config) as agent:
        agent.run("Hello")


def test_simulator_still_responds(no_model_requests):
    with tw.Agent("anthropic/simulated") as agent:
        assert "Hello" in agent.run("Hello").text
"""
PROGRAM = "import sys, pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', '-rA', '--tb=line', '-n0']))"


def test_fixtures_in_a_project(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "guides" / "testing-agents.md").read_text(encoding="utf-8").partition("## pytest")[2]
    conftest, example = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    (tmp_path / "conftest.py").write_text(conftest, encoding="utf-8")
    (tmp_path / "test_guide.py").write_text(example, encoding="utf-8")
    (tmp_path / "test_more.py").write_text(MORE_TESTS, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = run_forked(PROGRAM, folder=tmp_path, environment=environment)
    assert set(re.findall(r"^(PASSED|FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)) == {
        ("PASSED", "test_guide.py::test_umbrella"),
        ("PASSED", "test_more.py::test_turns_are_left"),
        ("ERROR", "test_more.py::test_turns_are_left"),
        ("FAILED", "test_more.py::test_request_to_a_provider"),
        ("PASSED", "test_more.py::test_simulator_still_responds"),
    }, done.stdout
    assert "1 of 2 turns of the script were not played" in done.stdout
    assert "a test sent a request to own/model: run the agent within agent.override(" in done.stdout
