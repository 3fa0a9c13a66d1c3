"""`toolwire config` and `toolwire init`."""

import json
import tomllib
from pathlib import Path

import jsonschema_rs
import pytest
from click.testing import CliRunner, Result

from tests.support.servers.asgi import serve_app
from toolwire.cli import main
from toolwire.gateway.config import parse_config
from toolwire.gateway.providers.known_providers import KEY_VARIABLES
from toolwire.upstream.simulator.app import Simulator

SECRET = "canary-of-a-key"
NO_KEYS = dict.fromkeys((*KEY_VARIABLES.values(), "TOOLWIRE_CONFIG", "TOOLWIRE_MODEL"))
UP = '[providers.up]\nprotocol = "ollama"\nbase_url = "http://127.0.0.1:1"\n'
NO_OLLAMA = {"OLLAMA_HOST": "http://127.0.0.1:9"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


def run(folder: Path, *arguments: str, **environment: str) -> Result:
    home = {"HOME": str(folder), "XDG_CONFIG_HOME": None, "XDG_STATE_HOME": None}
    result = CliRunner().invoke(main, arguments, env=NO_KEYS | home | environment)
    assert SECRET not in result.output
    return result


def test_init_writes_the_providers_of_the_environment_without_their_keys(folder: Path) -> None:
    keys = {"ANTHROPIC_API_KEY": SECRET, "OPENAI_API_KEY": SECRET}
    result = run(folder, "init", **keys, **NO_OLLAMA)
    assert result.exit_code == 0, result.output
    assert "  anthropic    ANTHROPIC_API_KEY\n  openai       OPENAI_API_KEY\n" in result.output
    assert "no Ollama answers at http://127.0.0.1:9 (connection refused)" in result.output
    text = Path("toolwire.toml").read_text()
    assert SECRET not in text
    config = parse_config(text, keys)
    assert list(config.providers) == ["anthropic", "openai", "openai-chat"]
    assert config.default_model == f"anthropic/{config.providers['anthropic'].default_model}"
    assert run(folder, "config", "show", **keys).exit_code == 0  # it is trusted


def test_init_finds_an_ollama_that_answers(folder: Path) -> None:
    with serve_app(Simulator()) as url:
        assert run(folder, "init", OLLAMA_HOST=url).exit_code == 0
    provider = parse_config(Path("toolwire.toml").read_text(), {}).providers["ollama"]
    assert (provider.base_url, provider.default_model) == (url, "qwen3:latest")


def test_every_commented_line_of_the_template_is_valid(folder: Path) -> None:
    run(folder, "init", **NO_OLLAMA)
    lines = Path("toolwire.toml").read_text().splitlines()
    text = "\n".join(
        line.removeprefix("# ") for line in lines if line.startswith("# ") and ("[" in line or " = " in line)
    )
    text = "\n".join(line for line in text.splitlines() if not line.startswith(("-", "and", "Completion", "A value")))
    config = parse_config(text, {"ANTHROPIC_API_KEY": "12345678", "TOOLWIRE_KEY": "12345678"})
    assert list(config.providers) == ["anthropic"]
    assert (config.aliases, config.journal.bodies, list(config.mcp.servers)) == (
        {"fast": "anthropic/claude-sonnet-4-5"},
        True,
        ["files"],
    )


def test_init_does_not_overwrite(folder: Path) -> None:
    Path("elsewhere").write_text("mine")
    Path("toolwire.toml").symlink_to("elsewhere")
    result = run(folder, "init", **NO_OLLAMA)
    assert (result.exit_code, result.output) == (2, "Error: toolwire.toml exists; --force replaces it\n")
    assert run(folder, "init", "--force", **NO_OLLAMA).exit_code == 0
    assert (Path("elsewhere").read_text(), Path("toolwire.toml").is_symlink()) == ("mine", False)


def test_init_writes_a_private_file_of_the_user(folder: Path) -> None:
    result = run(folder, "init", "--user", ANTHROPIC_API_KEY=SECRET, **NO_OLLAMA)
    file = folder / ".config" / "toolwire" / "config.toml"
    assert f"wrote {file}\n" in result.output
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert not Path("toolwire.toml").exists()


SECRETS = f"""
[server]
keys = ["{SECRET}", "env:KEY"]
[providers.a]
protocol = "anthropic"
base_url = "https://me:{SECRET}@example.org"
api_key = "{SECRET}"
headers = {{ x = "{SECRET}", y = "env:KEY" }}
query = {{ code = "{SECRET}" }}
[search]
url = "https://example.org?token={SECRET}&q={{query}}"
headers = {{ x = "{SECRET}" }}
[mcp.servers.s]
command = "x"
args = ["--token={SECRET}"]
env = {{ ANY = "{SECRET}" }}
oauth = {{ client_secret = "{SECRET}" }}
"""


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_show_hides_secrets(folder: Path, options: list[str]) -> None:
    Path("c.toml").write_text(SECRETS)
    output = run(folder, "config", "show", "--config", "c.toml", *options, KEY=SECRET).output
    assert output.count("(hidden)") == 10
    assert output.count("env:KEY") == 2


def test_show_names_the_origin_of_every_value(folder: Path) -> None:
    run(folder, "init", "--user", ANTHROPIC_API_KEY=SECRET, **NO_OLLAMA)
    (folder / ".config" / "toolwire" / "config.toml").write_text(f"[server]\nport = 1\nhosts = ['a']\n{UP}")
    Path("toolwire.toml").write_text("[server]\n\nport = 2\n")
    result = run(folder, "config", "show")
    assert result.exit_code == 0
    assert 'project:3  server.port = 2\nuser:3     server.hosts = ["a"]\n' in result.output
    assert "project  toolwire.toml (used, needs no trust)\n" in result.output
    overview = json.loads(run(folder, "config", "show", "--json").output)
    assert overview["error"] is None
    assert [file["kind"] for file in overview["files"]] == ["user", "project"]
    assert overview["settings"][0]["value"] == 2


def test_untrusted_file_is_shown_but_not_used(folder: Path) -> None:
    Path("toolwire.toml").write_text(UP)
    result = run(folder, "config", "show")
    assert result.exit_code == 1
    assert "project:2  providers.up.protocol" in result.output
    assert "Error: toolwire.toml is not trusted. It sets [providers.up]" in result.output
    as_json = run(folder, "config", "show", "--json")
    assert as_json.exit_code == 1
    assert json.loads(as_json.stdout)["error"].startswith("toolwire.toml is not trusted. It sets [providers.up]")
    for command in (["doctor"], ["serve", "--port", "0"], ["ask", "hi"], ["mcp", "list"], ["hosts"], ["runs", "list"]):
        refused = run(folder, *command)
        assert (refused.exit_code, "toolwire.toml is not trusted" in refused.output) == (2, True), refused.output
    assert run(folder, "config", "trust").output == "toolwire.toml: trusted; it sets [providers.up]\n"
    assert run(folder, "hosts").exit_code == 0
    assert "(trusted)" in run(folder, "config", "path").output
    assert run(folder, "config", "trust", "--revoke").exit_code == 0
    assert run(folder, "hosts").exit_code == 2
    assert run(folder, "hosts", "--config", "toolwire.toml").exit_code == 0
    assert run(folder, "hosts", TOOLWIRE_CONFIG="toolwire.toml").exit_code == 0


def test_trust_without_a_file_names_the_command_that_writes_one(tmp_path: Path) -> None:
    result = run(tmp_path, "config", "trust")
    assert (result.exit_code, result.output) == (2, "Error: there is no toolwire.toml (`toolwire init` writes one)\n")


def test_trust_reads_the_file_as_commands_do_over_the_users(folder: Path) -> None:
    (folder / ".config" / "toolwire").mkdir(parents=True)
    (folder / ".config" / "toolwire" / "config.toml").write_text(UP)
    Path("toolwire.toml").write_text('[[routes]]\nmatch = "fast"\nprovider = "up"\n')
    assert run(folder, "config", "trust").output == "toolwire.toml: trusted; it sets routes\n"
    Path("toolwire.toml").write_text('[server]\nhost = "0.0.0.0"\n[[routes]]\nmatch = "fast"\nprovider = "up"\n')
    warned = run(folder, "config", "trust").output
    assert "warning: 0.0.0.0 is reachable from other machines, and no keys are set: set server.keys" in warned


def test_trust_accepts_folders_and_refuses_other_files(folder: Path) -> None:
    Path("toolwire.toml").write_text(UP)
    assert run(folder, "config", "trust", ".").exit_code == 0
    Path("other.toml").write_text(UP)
    assert "only a toolwire.toml needs trust" in run(folder, "config", "trust", "other.toml").output
    Path("toolwire.toml").write_text("[provders.x]\n")
    result = run(folder, "config", "trust")
    assert 'warning: toolwire.toml:1:2: unknown table [provders] (did you mean "providers"?)' in result.output
    Path("toolwire.toml").write_text("[limits]\n")
    assert run(folder, "config", "trust").output == "toolwire.toml: needs no trust\n"


def test_path_lists_files_as_json(folder: Path) -> None:
    files = json.loads(run(folder, "config", "path", "--json").output)
    assert [(file["kind"], file["state"]) for file in files] == [("user", "not present"), ("project", "not present")]


def test_schema_is_printed_and_accepts_the_template(folder: Path) -> None:
    run(folder, "init", ANTHROPIC_API_KEY=SECRET, **NO_OLLAMA)
    schema = json.loads(run(folder, "config", "schema").output)
    jsonschema_rs.Draft7Validator(schema).validate(tomllib.loads(Path("toolwire.toml").read_text()))
