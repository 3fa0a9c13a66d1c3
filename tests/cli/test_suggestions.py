"""Suggestions of the command line for names that are unknown."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from toolwire.cli import main
from toolwire.gateway.providers.known_providers import KEY_VARIABLES
from toolwire.protocols import PROTOCOLS


def run(*arguments: str, given: str = "") -> tuple[int, str]:
    result = CliRunner().invoke(main, list(arguments), input=given, env=dict.fromkeys(KEY_VARIABLES.values()))
    return result.exit_code, result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("serv", "unknown command 'serv': did you mean \"serve\"?"),
        ("launch clade", "unknown agent 'clade' (did you mean \"claude\""),
        ("launch qwen --protocol antropic", "'antropic' (did you mean \"anthropic\"?)"),
        ("translate --from openia-chat --to gemini", "unknown protocol 'openia-chat' (did you mean \"openai-chat\""),
        ("simulate openai-chat --port 0 --profile deepsek", "unknown host 'deepsek' (did you mean \"deepseek\"?)"),
        ("mcp call maths add", "unknown MCP server 'maths' (did you mean \"math\"?)"),
        ("mcp login maths", "unknown MCP server 'maths' (did you mean \"math\"?)"),
        ("hosts nope", "unknown host 'nope': `toolwire hosts` lists them"),
        ("serve --port x", "invalid value for '--port': 'x' is not an integer (see `toolwire serve --help`)"),
        ("serve --model", "option '--model' requires an argument"),
        ("doctor --probe antropic", "unknown provider 'antropic' (did you mean \"anthropic\"?)"),
        (
            "ask --model antropic/x hi",
            "unknown provider 'antropic' in model 'antropic/x' (did you mean \"anthropic\"?)",
        ),
        ("serve --port 0 --model antropic/x", "unknown provider 'antropic' in model 'antropic/x'"),
    ],
)
def test_unknown_names_are_errors_with_suggestions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "qwen").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    Path("toolwire.toml").write_text(
        '[providers.anthropic]\nprotocol = "anthropic"\nbase_url = "http://127.0.0.1:9"\ndefault_model = "claude-x"\n'
        '[mcp.servers.math]\ncommand = "math"\n'
    )
    monkeypatch.setenv("TOOLWIRE_CONFIG", "toolwire.toml")  # one that is named needs no trust
    code, output = run(*arguments.split())
    assert (code, message in output) == (2, True), output


@pytest.mark.parametrize("option", ["--allow", "--deny"])
def test_rule_that_names_no_tool_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    code, output = run("ask", option, "write_flie(path=*.md)", "hi")
    assert (
        code,
        f"{option} write_flie(path=*.md): unknown tool 'write_flie' (did you mean \"write_file\"" in output,
    ) == (
        2,
        True,
    )
    code, output = run("ask", option, "read_*", option, "find_tools", "hi")
    assert code == 0, output


@pytest.mark.parametrize("option", ["--allow", "--ask", "--deny"])
def test_rule_of_an_mcp_server_that_names_no_tool_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    code, output = run("mcp", "serve", option, "read_fiel")
    assert (code, f"{option} read_fiel: unknown tool 'read_fiel' (did you mean \"read_file\"" in output) == (2, True)


@pytest.mark.parametrize("option", ["--allow", "--deny"])
@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("write_file(file_pth=*)", "write_file has no argument 'file_pth' (did you mean \"file_path\"?)"),
        ("*(file_pth=*)", "no tool that '*' matches has the argument 'file_pth' (did you mean \"file_path\"?)"),
        ("apply_patch(path=*)", "apply_patch has no argument 'path' (did you mean \"file_path\"?)"),
    ],
)
def test_rule_with_an_unknown_argument_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, rule: str, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for command in (("ask", "hi"), ("mcp", "serve")):
        code, output = run(*command, option, rule)
        assert (code, f"{option} {rule}: {problem}" in output) == (2, True), output


def test_rules_are_checked_beside_mcp_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a name that a tool of a server may have is checked later, when the servers list their tools."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    Path("toolwire.toml").write_text('[mcp.servers.files]\ncommand = "false"\n')
    monkeypatch.setenv("TOOLWIRE_CONFIG", "toolwire.toml")
    for rule in ("write_fil", "write_file(file_pth=*)", "fils__write"):
        assert run("ask", "hi", "--deny", rule)[0] == 2, rule
        assert run("mcp", "serve", "--deny", rule)[0] == 2, rule
    code, output = run("ask", "hi", "--deny", "files__write", "--deny", "*(anything=*)", "--deny", "f*")
    assert code == 0, output


@pytest.mark.parametrize("kind", ["request", "response"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_empty_body_is_refused(protocol: str, kind: str) -> None:
    target = "gemini" if protocol != "gemini" else "anthropic"
    code, output = run("translate", "--from", protocol, "--to", target, "--kind", kind, given="{}")
    assert code == 2, output
    code, output = run("translate", "--from", protocol, "--to", target, "--kind", kind, given='{"modle": "x"}')
    assert code == 2, output


def test_stored_prompt_needs_no_messages() -> None:
    code, _ = run("translate", "--from", "openai-responses", "--to", "openai-responses", given='{"prompt":{"id":"p"}}')
    assert code == 0


@pytest.mark.parametrize("document", [{"servers": {}}, {"mcp": {"servers": {}}}, {"mcpServers": {}}])
def test_import_without_servers_is_refused(tmp_path: Path, document: object) -> None:
    (tmp_path / "mcp.json").write_text(json.dumps(document))
    code, output = run("mcp", "import", str(tmp_path / "mcp.json"))
    assert (code, output) == (2, "Error: there are no servers in mcpServers or servers\n")


@pytest.mark.parametrize("wrap", [False, True])
def test_servers_of_vs_code_are_imported(tmp_path: Path, wrap: bool) -> None:
    servers = {"servers": {"docs": {"type": "http", "url": "https://docs.example/mcp"}}, "inputs": []}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcp": servers} if wrap else servers))
    result = CliRunner().invoke(main, ["mcp", "import", str(tmp_path / "mcp.json")])
    assert (result.exit_code, 'url = "https://docs.example/mcp"' in result.stdout) == (0, True)
