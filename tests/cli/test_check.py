"""`toolwire check` as a subprocess or through click's test runner."""

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from toolwire.cli import main

GOOD: dict[str, Any] = {
    "model": "some-model",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "Hello"}],
}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {}}
UNANSWERED = {
    **GOOD,
    "messages": [
        *GOOD["messages"],
        {"role": "assistant", "content": [CALL]},
        {"role": "user", "content": "Never mind."},
    ],
}


def check(body: Any, protocol: str = "anthropic") -> Result:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    return CliRunner().invoke(main, ["check", "--protocol", protocol], input=sent)


def test_valid_request_is_ok() -> None:
    result = check(GOOD)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "ok\n", "")


def test_rejected_request_exits_with_1() -> None:
    result = check(UNANSWERED)
    assert result.exit_code == 1
    assert "ok" not in result.stdout.splitlines()
    (finding,) = [line for line in result.stdout.splitlines() if "toolu_1" in line]
    level, rule, path, message = finding.split(" ", 3)
    assert level == "error"
    assert rule
    assert path.startswith("/messages/")
    assert message


@pytest.mark.parametrize("body", [b"", b"{", b"\xff"])
def test_invalid_json_is_bad_input(body: bytes) -> None:
    result = check(body)
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert "anthropic" in result.stderr


def test_unknown_protocol_lists_the_choices() -> None:
    result = check(GOOD, protocol="claude")
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert "anthropic, openai-chat, openai-responses" in result.stderr


def test_help_has_an_example() -> None:
    shown = CliRunner().invoke(main, ["check", "--help"]).stdout
    assert "toolwire check --protocol anthropic < request.json" in shown
