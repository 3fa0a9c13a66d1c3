"""`toolwire mcp` through click's test runner and as a subprocess."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from tests.support.deadlines import DEADLINE
from tests.support.mcp.scripted_server import tool_definition
from tests.support.mcp.toolsets import (
    MCP_VERSIONS,
    SCRIPTED_SERVER,
    RecordingApprover,
    call_context,
    call_tool,
    find_tool,
    open_toolset,
    text_of_output,
)
from toolwire.cli import main
from toolwire.cli.tool_modules import load_tools
from toolwire.gateway.keys.client_key import hash_secret
from toolwire.journal.runs import RunStore
from toolwire.runtime.mcp.config import McpServerConfig

ROOT = Path(__file__).parents[2]


def write_config(folder: Path, **servers: dict[str, Any]) -> Path:
    """Write a configuration with the test server under each of these names."""
    sections = []
    for name, options in servers.items():
        arguments = json.dumps(["-S", str(SCRIPTED_SERVER), json.dumps(options)])
        sections.append(f"[mcp.servers.{name}]\ncommand = {json.dumps(sys.executable)}\nargs = {arguments}\n")
    path = folder / "toolwire.toml"
    path.write_text("\n".join(sections), encoding="utf-8")
    return path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["mcp", *arguments])


def test_list_prints_servers_states_and_tools(tmp_path: Path) -> None:
    path = write_config(
        tmp_path, one={"tools": [tool_definition("echo", description="Says\nit again")]}, two={"tools": []}
    )
    with path.open("a", encoding="utf-8") as file:
        file.write('[mcp.servers.gone]\ncommand = "no-such-program-anywhere"\n')
        file.write('[mcp.servers.off]\ncommand = "x"\nenabled = false\n')
    result = run("list", "--config", str(path))
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "off: disabled",
        "one: up, 2025-11-25, 1 tool",
        "  one__echo  Says it again",
        "two: up, 2025-11-25, 0 tools",
        "gone: down: command not found: no-such-program-anywhere",
    ]
    assert result.stderr == ""


def test_call_prints_the_result(tmp_path: Path) -> None:
    path = str(write_config(tmp_path, one={}))
    result = run("call", "one", "echo", '{"a": 1}', "--config", path)
    assert (result.exit_code, result.stdout) == (0, '{"a": 1}\n')
    failed = run("call", "one", "fail", "--config", path)
    assert (failed.exit_code, failed.stdout) == (1, "the disk is full\n")
    unknown = run("call", "one", "nothing", "--config", path)
    assert unknown.exit_code == 1
    assert "unknown tool 'one__nothing'; nothing was run" in unknown.stdout


def test_invalid_json_arguments_are_not_sent(tmp_path: Path) -> None:
    result = run("call", "one", "echo", "{", "--config", str(write_config(tmp_path, one={})))
    assert result.exit_code == 1
    assert "not valid JSON" in result.stdout


def test_unknown_server_can_not_be_called(tmp_path: Path) -> None:
    result = run("call", "other", "echo", "--config", str(write_config(tmp_path, one={})))
    assert (result.exit_code, result.stderr) == (2, "Error: unknown MCP server 'other'; expected one of one\n")


def test_import_converts_mcp_servers_json_to_toml(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"a": {"command": "x", "shiny": 1}}}', encoding="utf-8")
    result = run("import", str(path))
    assert (result.exit_code, result.stdout) == (0, '[mcp.servers.a]\ncommand = "x"\n')
    assert result.stderr == "a.shiny: unknown key\n"


def test_logout_deletes_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mcp.shared.auth import OAuthToken

    from toolwire.runtime.mcp.oauth import TokenFile

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = tmp_path / "toolwire.toml"
    path.write_text('[mcp.servers.far]\nurl = "https://far.example/mcp"\n', encoding="utf-8")
    folder = tmp_path / "toolwire" / "mcp"
    store = TokenFile(folder, "far", "https://far.example/mcp")
    asyncio.run(store.set_tokens(OAuthToken(access_token="t")))
    assert run("logout", "far", "--config", str(path)).stdout == "far: signed out\n"
    assert list(folder.iterdir()) == []
    assert run("logout", "far", "--config", str(path)).stdout == "far: no tokens stored\n"
    assert "unknown MCP server 'fra' (did you mean \"far\"?)" in run("logout", "fra", "--config", str(path)).output


def serve_config(folder: Path, version: str, *options: str) -> McpServerConfig:
    program = "import sys, toolwire.cli; toolwire.cli.main(sys.argv[1:])"
    return McpServerConfig(
        command=sys.executable,
        args=("-c", program, "mcp", "serve", "--config", str(folder / "toolwire.toml"), *options),
        env={"PYTHONPATH": str(ROOT / "src"), "XDG_STATE_HOME": str(folder / "state")},
        version=version,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("version", MCP_VERSIONS)
def test_serve_over_stdio_applies_rules(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_config(tmp_path, one={"tools": [tool_definition("echo"), tool_definition("fail")]})
    settings = serve_config(tmp_path, version, "--servers-only", "--allow", "one__*", "--deny", "one__fail")

    async def work() -> None:
        async with open_toolset(settings, "me") as toolset:
            assert [one.name for one in await toolset.tools()] == ["me__one__echo", "me__one__fail"], toolset.error
            assert text_of_output(await call_tool(toolset, "one__echo", {"a": 1})) == '{"a": 1}'
            denied = await call_tool(toolset, "one__fail", person=RecordingApprover())
            assert denied.is_error
            assert text_of_output(denied).startswith("denied: ")

    asyncio.run(work())
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (kept,) = RunStore(tmp_path / "state" / "toolwire" / "runs.db").latest()
    assert "-  calls from MCP clients (" in CliRunner().invoke(main, ["runs", "list"]).stdout
    shown = CliRunner().invoke(main, ["runs", "show", kept.id])
    assert shown.exit_code == 0, shown.output
    steps = RunStore(tmp_path / "state" / "toolwire" / "runs.db").steps(kept.id)
    assert [(step.name, b'"denied"' in (step.outcome or b"")) for step in steps] == [
        ("call/1/call_1", False),
        ("call/1/call_2", True),
    ]


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("one__echo(wrd=*)", "Error: the rule 'deny one__echo(wrd=*)' never applies: one__echo has no argument 'wrd'"),
        ("one__ech", "the rule 'deny one__ech' restricts nothing: unknown tool 'one__ech' (did you mean \"one__echo\""),
        ("on__echo", "Error: --deny on__echo: unknown tool 'on__echo'"),
    ],
)
def test_misspelled_rule_for_a_tool_of_a_server_is_named(tmp_path: Path, rule: str, problem: str) -> None:
    schema = {"type": "object", "properties": {"word": {"type": "string"}}}
    write_config(tmp_path, one={"tools": [{"name": "echo", "inputSchema": schema}]})
    settings = serve_config(tmp_path, "2025-11-25", "--servers-only", "--deny", rule)
    process = subprocess.run(
        [settings.command or "", *settings.args],
        stdin=subprocess.DEVNULL,
        env=os.environ | settings.env,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE,
    )
    assert problem in process.stderr
    assert process.returncode == (2 if problem.startswith("Error") else 0)


def test_serve_includes_built_in_tools(tmp_path: Path) -> None:
    write_config(tmp_path, one={"tools": [tool_definition("echo")]})
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "note.txt").write_text("the key is sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789", encoding="utf-8")

    async def work() -> None:
        async with open_toolset(serve_config(tmp_path, MCP_VERSIONS[1], "--workspace", str(folder)), "me") as toolset:
            names = [one.name for one in await toolset.tools()]
            assert names[-1] == "me__one__echo"
            assert {"me__read_file", "me__run_shell_command", "me__apply_patch"} <= set(names)
            read = await call_tool(toolset, "read_file", {"absolute_path": str(folder / "note.txt")})
            assert "the key is" in text_of_output(read)
            assert "abcdefghijkl" not in text_of_output(read)
            wrote = {"file_path": str(folder / "new.txt"), "content": "x"}
            person = RecordingApprover("no")
            assert (await call_tool(toolset, "write_file", wrote, person)).is_error
            assert person.questions[0][1] == ("yes", "no")
            assert not (await call_tool(toolset, "write_file", wrote, RecordingApprover("yes"))).is_error

    asyncio.run(work())
    assert (folder / "new.txt").read_text(encoding="utf-8") == "x"


def test_serve_without_keys_only_on_loopback(tmp_path: Path) -> None:
    result = run("serve", "--config", str(write_config(tmp_path)), "--http", "0.0.0.0:0")
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: 0.0.0.0 is reachable from other machines: set server.keys or [keys.NAME], or listen on 127.0.0.1\n",
    )
    assert run("serve", "--config", str(write_config(tmp_path)), "--http", "nowhere").exit_code == 2


@contextmanager
def serve_over_http(folder: Path, *options: str) -> Iterator[str]:
    settings = serve_config(folder, "auto", "--http", "127.0.0.1:0", *options)
    environment = {**os.environ, **settings.env}
    with subprocess.Popen(
        [settings.command or "", *settings.args], env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            yield process.stderr.readline().strip()
        finally:
            process.terminate()


def refusals(url: str, *tried: dict[str, str]) -> list[int]:
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    return [httpx.post(url, json=request, headers=headers).status_code for headers in tried]


KEY = {"Authorization": "Bearer a-long-enough-key"}
EVIL = ({"Host": "evil.example"}, {"Host": "127.0.0.1@evil.example"}, {"Origin": "http://evil.example"})


@pytest.mark.parametrize("version", MCP_VERSIONS)
def test_serve_over_http_applies_rules(version: str, tmp_path: Path) -> None:
    write_config(tmp_path, one={"tools": [tool_definition("echo"), tool_definition("fail")]})

    async def work(url: str) -> None:
        async with open_toolset(McpServerConfig(url=url, version=version), "me") as toolset:  # type: ignore[arg-type]
            assert [one.name for one in await toolset.tools()] == ["me__one__echo", "me__one__fail"], toolset.error
            assert await toolset.protocol_version() == version
            assert text_of_output(await call_tool(toolset, "one__echo", {"a": 1})) == '{"a": 1}'
            assert text_of_output(await call_tool(toolset, "one__fail", person=RecordingApprover())).startswith(
                "denied: "
            )

    with serve_over_http(tmp_path, "--servers-only", "--allow", "one__*", "--deny", "one__fail") as url:
        assert refusals(url, *EVIL) == [403, 403, 403]
        asyncio.run(work(url))


@pytest.mark.parametrize(
    "keys",
    ['[server]\nkeys = ["a-long-enough-key"]\n', f'[keys.ann]\nhash = "{hash_secret("a-long-enough-key")}"\n'],
    ids=["secret", "hash"],
)
def test_serve_over_http_requires_a_configured_key(tmp_path: Path, keys: str) -> None:
    path = write_config(tmp_path, one={"tools": [tool_definition("echo")]})
    path.write_text(keys + path.read_text(encoding="utf-8"), encoding="utf-8")

    async def work(url: str) -> None:
        async with open_toolset(McpServerConfig(url=url, headers=KEY), "me") as toolset:
            assert [one.name for one in await toolset.tools()] == ["me__one__echo"], toolset.error

    with serve_over_http(tmp_path, "--servers-only") as url:
        assert refusals(url, {}, {"Authorization": "Bearer another-key"}) == [401, 401]
        assert refusals(f"{url}?key=a-long-enough-key", {}) == [401]
        assert refusals(url, {**KEY, "Origin": "http://evil.example"}) == [403]
        asyncio.run(work(url))


def test_help_does_not_import_the_sdk() -> None:
    script = "import sys, toolwire.cli, toolwire.gateway.config; sys.exit('mcp' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    assert subprocess.run([sys.executable, "-c", script], env=environment, check=False).returncode == 0


MODULE = '''
import toolwire as tw
from mytools import imported

print("loading")


@tw.tool(read_only=True)
def shout(text: str, context: tw.ToolContext) -> str:
    """Write a text in capital letters."""
    print("running")
    context.report_log("warning", f"log of {text}")
    return text.upper()


def plain() -> str:
    return "not a tool"


@tw.tool
def _private() -> str:
    return "not served"


helper = tw.Agent(name="helper", description="A helper.")
'''


def test_serve_offers_the_tools_of_a_module(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "mytools.py").write_text("import toolwire\n\n@toolwire.tool\ndef imported() -> int:\n    return 7\n")
    logged: list[tuple[str, str]] = []

    async def work() -> None:
        command = "from toolwire.cli import main; main()"
        arguments = ("mcp", "serve", "--servers-only", "--allow", "*", "--module", str(tmp_path / "tools.py"))
        settings = McpServerConfig(
            command=sys.executable,
            args=("-c", command, *arguments),
            env={"XDG_STATE_HOME": str(tmp_path)},
            cwd=str(tmp_path),
            timeout=DEADLINE,
            connect_timeout=DEADLINE,
        )
        async with open_toolset(settings, "mine") as toolset:
            names = [tool.name for tool in await toolset.tools()]
            assert names == ["mine__imported", "mine__shout", "mine__helper"]
            context = replace(call_context(), report_log=lambda level, text: logged.append((level, text)))
            output = await (await find_tool(toolset, "shout")).run({"text": "hi"}, context)
            assert text_of_output(output) == "HI"

    asyncio.run(work())
    assert logged == [("warning", "log of hi")]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = 1", "no tools: mark functions with @toolwire.tool"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def f(:", "SyntaxError: "),
    ],
)
def test_serve_explains_what_is_wrong_with_a_module(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text, encoding="utf-8")
    result = run("serve", "--module", str(path), "--config", str(write_config(tmp_path)))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: {path}: {problem}")


def test_module_prints_to_stderr_while_it_is_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Over stdio, stdout belongs to the protocol."""
    path = tmp_path / "printing.py"
    path.write_text("import toolwire\n\nprint('loading')\n\n@toolwire.tool\ndef seven() -> int:\n    return 7\n")
    assert len(load_tools(path)) == 1
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "loading\n")
