"""`toolwire mcp`, as a shell user meets it."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.runtime.mcp.actor import tool
from tests.runtime.mcp.playing import ACTOR, VERSIONS, Someone, called, playing, words
from toolwire.cli import main
from toolwire.runtime.mcp.settings import Server

ROOT = Path(__file__).parents[2]


def configured(folder: Path, **servers: dict[str, Any]) -> Path:
    """A configuration with the actor under each of these names."""
    sections = []
    for name, options in servers.items():
        arguments = json.dumps(["-S", str(ACTOR), json.dumps(options)])
        sections.append(f"[mcp.servers.{name}]\ncommand = {json.dumps(sys.executable)}\nargs = {arguments}\n")
    path = folder / "toolwire.toml"
    path.write_text("\n".join(sections), encoding="utf-8")
    return path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["mcp", *arguments])


def test_servers_their_state_and_their_tools_are_listed(tmp_path: Path) -> None:
    path = configured(tmp_path, one={"tools": [tool("echo", description="Says\nit again")]}, two={"tools": []})
    with path.open("a", encoding="utf-8") as file:
        file.write('[mcp.servers.gone]\ncommand = "no-such-program-anywhere"\n')
        file.write('[mcp.servers.off]\ncommand = "x"\nenabled = false\n')
    result = run("list", "--config", str(path))
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "off: switched off",
        "one: up, 2025-11-25, 1 tools",
        "  one__echo  Says it again",
        "two: up, 2025-11-25, 0 tools",
        "gone: down: there is no program 'no-such-program-anywhere'",
    ]


def test_a_tool_is_called(tmp_path: Path) -> None:
    path = str(configured(tmp_path, one={}))
    result = run("call", "one", "echo", '{"a": 1}', "--config", path)
    assert (result.exit_code, result.stdout) == (0, '{"a": 1}\n')
    failed = run("call", "one", "fail", "--config", path)
    assert (failed.exit_code, failed.stdout) == (1, "the disk is full\n")
    unknown = run("call", "one", "nothing", "--config", path)
    assert unknown.exit_code == 1
    assert "there is no tool 'one__nothing'; nothing was run" in unknown.stdout


def test_arguments_that_are_no_json_are_not_sent(tmp_path: Path) -> None:
    result = run("call", "one", "echo", "{", "--config", str(configured(tmp_path, one={})))
    assert result.exit_code == 1
    assert "not valid JSON" in result.stdout


def test_a_server_that_is_not_configured_can_not_be_called(tmp_path: Path) -> None:
    result = run("call", "other", "echo", "--config", str(configured(tmp_path, one={})))
    assert (result.exit_code, result.stderr) == (2, "Error: there is no MCP server 'other': choose from one\n")


def test_a_file_of_another_tool_is_turned_into_sections(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"a": {"command": "x", "shiny": 1}}}', encoding="utf-8")
    result = run("import", str(path))
    assert (result.exit_code, result.stdout) == (0, '[mcp.servers.a]\ncommand = "x"\n')
    assert result.stderr == "a.shiny: unknown\n"


def test_tokens_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mcp.shared.auth import OAuthToken

    from toolwire.runtime.mcp.oauth import TokenFile

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = tmp_path / "toolwire.toml"
    path.write_text('[mcp.servers.far]\nurl = "https://far.example/mcp"\n', encoding="utf-8")
    folder = tmp_path / "toolwire" / "mcp"
    store = TokenFile(folder, "far", "https://far.example/mcp")
    asyncio.run(store.set_tokens(OAuthToken(access_token="t")))
    assert run("logout", "far", "--config", str(path)).stdout == "far: forgotten\n"
    assert list(folder.iterdir()) == []
    assert run("logout", "far", "--config", str(path)).stdout == "far: there was nothing\n"


@pytest.mark.parametrize("version", VERSIONS)
def test_it_serves_what_is_configured_over_stdio_under_its_rules(version: str, tmp_path: Path) -> None:
    path = configured(tmp_path, one={"tools": [tool("echo"), tool("fail")]})
    program = "import sys, toolwire.cli; toolwire.cli.main(sys.argv[1:])"
    rules = ("--allow", "one__*", "--deny", "one__fail")
    work_in = tmp_path / "work"
    work_in.mkdir()
    (work_in / "a.txt").write_text("hello\n", encoding="utf-8")
    arguments = ("-c", program, "mcp", "serve", "--config", str(path), *rules, "--workspace", str(work_in))
    settings = Server(
        command=sys.executable,
        args=arguments,
        env={"PYTHONPATH": str(ROOT / "src")},
        version=version,  # type: ignore[arg-type]
    )

    async def work() -> None:
        async with playing(settings, "me") as toolset:
            names = [one.name for one in await toolset.tools()]
            assert names[-2:] == ["me__one__echo", "me__one__fail"], toolset.why
            assert {"me__read_file", "me__run_shell_command", "me__apply_patch"} <= set(names)
            assert words(await called(toolset, "read_file", {"absolute_path": str(work_in / "a.txt")})) == "hello\n"
            new = {"file_path": str(work_in / "b.txt"), "content": "x"}
            refused = await called(toolset, "write_file", new, person=Someone("no"))
            assert refused.is_error
            assert not (work_in / "b.txt").exists()
            assert words(await called(toolset, "one__echo", {"a": 1})) == '{"a": 1}'
            denied = await called(toolset, "one__fail", person=Someone())
            assert denied.is_error
            assert words(denied).startswith("denied: ")

    asyncio.run(work())


def test_the_built_in_tools_can_be_left_out(tmp_path: Path) -> None:
    program = "import sys, toolwire.cli; toolwire.cli.main(sys.argv[1:])"
    path = configured(tmp_path, one={"tools": [tool("echo")]})
    arguments = ("-c", program, "mcp", "serve", "--config", str(path), "--servers-only")
    settings = Server(command=sys.executable, args=arguments, env={"PYTHONPATH": str(ROOT / "src")})

    async def work() -> None:
        async with playing(settings, "me") as toolset:
            assert [one.name for one in await toolset.tools()] == ["me__one__echo"]

    asyncio.run(work())


def test_without_a_key_it_is_served_to_this_machine_alone(tmp_path: Path) -> None:
    result = run("serve", "--config", str(configured(tmp_path)), "--http", "0.0.0.0:0")
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: 0.0.0.0 is not this machine alone: server.keys must have a key\n",
    )
    assert run("serve", "--config", str(configured(tmp_path)), "--http", "nowhere").exit_code == 2


def test_the_sdk_is_not_loaded_to_show_help() -> None:
    script = "import sys, toolwire.cli, toolwire.gateway.config; sys.exit('mcp' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    assert subprocess.run([sys.executable, "-c", script], env=environment, check=False).returncode == 0
