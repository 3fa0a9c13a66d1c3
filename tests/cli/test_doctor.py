"""`toolwire doctor`, against providers on loopback."""

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result

from tests.support.gateway.in_process import build_silent_app
from tests.support.runtime.cli_process import run_toolwire
from tests.support.servers.asgi import serve_app
from toolwire.cli import main
from toolwire.gateway.config import Config, ConfigError, StateSection, parse_config
from toolwire.gateway.observability.access_log import SilentLog
from toolwire.gateway.observability.recorder import build_recorder
from toolwire.gateway.providers.discovery import simulated_providers
from toolwire.gateway.providers.known_providers import KEY_VARIABLES
from toolwire.gateway.server.gateway import build_gateway
from toolwire.gateway.state.store_file import open_store, state_path
from toolwire.journal.postgres import displayed_url
from toolwire.journal.redaction import Redactor
from toolwire.journal.runs import RunStore
from toolwire.journal.store import JournalError, open_record_store
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.simulator.app import Simulator

SECRET = "canary-of-a-key"
# Not the keys in the environment of the tests.
NO_KEYS = dict.fromkeys(KEY_VARIABLES.values())


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with serve_app(Simulator(require_key=True)) as url:
        yield url


def doctor(folder: Path, config: str | None, **environment: str) -> Result:
    arguments = ["doctor", "--timeout", "120"]
    if config is not None:
        (folder / "toolwire.toml").write_text(config, encoding="utf-8")
        arguments += ["--config", str(folder / "toolwire.toml")]
    state = {"XDG_STATE_HOME": str(folder / "state")}  # nor their files
    result = CliRunner().invoke(main, arguments, env=NO_KEYS | state | environment)
    assert SECRET not in result.output
    return result


def provider(protocol: str, url: str, more: str = "") -> str:
    return f'[providers.{protocol}]\nprotocol = "{protocol}"\nbase_url = "{url}"\n{more}\n'


def test_all_checks_pass_with_every_protocol(base_url: str, tmp_path: Path) -> None:
    config = "".join(provider(name, base_url, 'api_key = "env:THE_KEY"') for name in PROTOCOLS)
    result = doctor(tmp_path, config, THE_KEY=SECRET)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    # One check for each key and list of models.
    together = {"openai-chat": "openai-chat, openai-responses", "gemini": "gemini, gemini-interactions"}
    names = [together.get(name, name) for name in PROTOCOLS if name not in ("openai-responses", "gemini-interactions")]
    assert [line[9:].partition(":")[0] for line in lines] == ["configuration", "server", "gateway", *names]
    assert all(line.startswith("ok ") for line in lines)
    assert f"anthropic: {base_url}, key from THE_KEY: reachable" in result.output
    assert "the key was not checked" in next(line for line in lines if "openrouter" in line)


def test_without_config_and_keys_the_simulator_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = doctor(tmp_path, None)
    assert result.exit_code == 0
    assert "ok       configuration: no toolwire.toml" in result.output
    assert (
        "using the built-in simulator, which answers to any model name (no ANTHROPIC_API_KEY, OPENAI_API_KEY"
        in result.output
    )


def test_provider_without_its_variable_is_a_problem(base_url: str, tmp_path: Path) -> None:
    config = provider("anthropic", base_url, 'api_key = "env:UNSET_KEY"') + provider("ollama", base_url)
    result = doctor(tmp_path, config.replace("[providers.ollama]", "[providers.other]"))
    assert result.exit_code == 1
    (tmp_path / "one.toml").write_text(config.replace("[providers.ollama]", "[providers.other]"))
    arguments = ["doctor", "--json", "--timeout", "120", "--config", str(tmp_path / "one.toml")]
    as_json = CliRunner().invoke(main, arguments, env=NO_KEYS)
    assert (as_json.exit_code, json.loads(as_json.stdout)["ok"]) == (1, False)
    message = "problem  anthropic: environment variable UNSET_KEY is not set; set it, or remove the provider\n"
    assert message in result.output
    assert sum("environment variable" in line for line in result.output.splitlines()) == 1


def test_aliases_are_checked_on_the_simulator(tmp_path: Path) -> None:
    result = doctor(tmp_path, '[server]\nport = 0\n[aliases]\nfast = "openai/gpt-5.5"\nslow = "opnai/x"\n')
    assert result.exit_code == 1
    assert "ok       alias fast: openai/gpt-5.5\n" in result.output
    slow = "problem  alias slow: unknown provider 'opnai' in model 'opnai/x' (did you mean \"openai\"?)"
    assert f"{slow}; set aliases.slow to PROVIDER/MODEL\n" in result.output


UP = '[providers.openai]\nprotocol = "openai-responses"\nbase_url = "http://127.0.0.1:9"\napi_key = "k"\n'
UNKNOWN = "unknown provider 'opnai' in model 'opnai/m' (did you mean \"openai\"?): use openai/MODEL"


@pytest.mark.parametrize(
    ("config", "variables", "message"),
    [
        ('default_model = "opnai/m"\n' + UP, {}, f"toolwire.toml:1:17: default_model: {UNKNOWN}"),
        (UP, {"TOOLWIRE_MODEL": "opnai/m"}, f"TOOLWIRE_MODEL: {UNKNOWN}"),
        (
            'default_model = "gtp-5.5"\n' + UP.replace("api_key", 'models = ["gpt-5.5"]\napi_key'),
            {},
            "toolwire.toml:1:17: default_model: unknown model 'gtp-5.5' (did you mean \"gpt-5.5\"?): use openai/MODEL",
        ),
    ],
    ids=["default_model", "variable", "model of a list"],
)
def test_whatever_serve_refuses_is_a_problem(
    tmp_path: Path, config: str, variables: dict[str, str], message: str
) -> None:
    (tmp_path / "toolwire.toml").write_text(config)
    refused = run_toolwire(tmp_path, "serve", "--port", "0", **variables)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert message in refused.err
    found = run_toolwire(tmp_path, "doctor", "--timeout", "120", **variables)
    assert found.code == 1
    (line,) = [line for line in found.out.splitlines() if line[9:].startswith("configuration: ")]
    assert line.startswith("problem  configuration: ")
    assert message in line
    assert line.endswith("; `toolwire serve` does not start until this is corrected")
    trusted = run_toolwire(tmp_path, "config", "trust")
    assert (message in trusted.err) == (not variables), trusted.err


def test_default_model_may_be_a_route_an_alias_or_a_model_that_a_server_lists(base_url: str, tmp_path: Path) -> None:
    route = '[[routes]]\nmatch = "fast"\nproviders = ["openai"]\nmodel = "m"\n'
    listed = UP.replace("openai-responses", "ollama").replace("http://127.0.0.1:9", base_url)
    for default, rest in (
        ("fast", UP + route),
        ("quick", f'[aliases]\nquick = "fast"\n{UP}{route}'),
        ("qwen3:latest", listed),
    ):
        result = doctor(tmp_path, f'default_model = "{default}"\n{rest}')
        assert f"ok       default model: {default}\n" in result.output


def test_misspelled_rules_are_problems(tmp_path: Path) -> None:
    rules = ["write_fil", "write_file(file_pth=*)", "pay", "one__pay", "computer(url=*)", "write_file(file_path=*)"]
    result = doctor(tmp_path, f'[policy]\ndeny = {json.dumps(rules)}\n[mcp.servers.one]\ncommand = "one"\n')
    assert result.exit_code == 1
    lines = [line for line in result.output.splitlines() if " policy" in line]
    assert [line[:25] for line in lines] == [
        "problem  policy.deny[0]: ",
        "problem  policy.deny[1]: ",
        "ok       policy.deny[2]: ",
    ]
    assert "unknown tool 'write_fil' (did you mean \"write_file\"" in lines[0]
    assert "write_file has no argument 'file_pth' (did you mean \"file_path\"?)" in lines[1]
    assert doctor(tmp_path, f"[policy]\ndeny = {json.dumps(rules[4:])}").output.count("ok       policy: 2 rules\n") == 1


def test_gateway_that_launch_would_use_is_named(tmp_path: Path) -> None:
    config = '[providers.up]\nprotocol = "ollama"\nbase_url = "http://127.0.0.1:9"'
    with serve_app(build_silent_app(config)) as url, serve_app(Simulator()) as other:
        found = {address: doctor(tmp_path, f"[server]\nport = {address[-5:]}\n").output for address in (url, other)}
    address = url.removeprefix("http://")
    running = f"gateway: one runs at {address}: `toolwire launch` uses it, with the configuration it started with\n"
    assert f"ok       {running}" in found[url]
    with serve_app(build_silent_app("", simulated_providers("http://127.0.0.1:9"))) as url:
        output = doctor(tmp_path, f"[server]\nport = {url[-5:]}\n").output
    address = url.removeprefix("http://")
    assert f"gateway: one runs at {address}, on the built-in simulator: `toolwire launch` uses it\n" in output
    assert f"gateway: another program listens on {other.removeprefix('http://')}: `toolwire serve`" in found[other]
    assert "ok       gateway: each start takes a free port" in doctor(tmp_path, "[server]\nport = 0\n").output
    free = doctor(tmp_path, "[server]\nport = 9\n").output
    assert "ok       gateway: none runs at 127.0.0.1:9: `toolwire launch` starts one\n" in free


def test_providers_are_discovered_in_the_environment(
    base_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with serve_app(Simulator()) as open_to_all:
        result = doctor(tmp_path, None, OLLAMA_HOST=open_to_all)
    assert result.exit_code == 0
    model = "qwen3:latest: context of 131072 tokens (num_ctx = auto), tools, vision, thinking"
    assert f"ok       ollama: {open_to_all}, without a key: reachable; {model}\n" in result.output


@pytest.mark.parametrize(
    ("protocol", "status"), [("anthropic", 401), ("openai-chat", 401), ("gemini", 403), ("ollama", 401)]
)
def test_rejected_key_is_a_problem(base_url: str, tmp_path: Path, protocol: str, status: int) -> None:
    result = doctor(tmp_path, provider(protocol, base_url))
    assert result.exit_code == 1
    line = result.output.splitlines()[-1]
    assert line.startswith(f"problem  {protocol}: ")
    assert f"key rejected ({status}); set providers.{protocol}.api_key" in line


def test_unreachable_provider_is_a_problem(tmp_path: Path) -> None:
    result = doctor(tmp_path, provider("anthropic", "http://127.0.0.1:9", f'api_key = "{SECRET}"'))
    assert result.exit_code == 1
    assert "can't connect to 127.0.0.1:9" in result.output
    assert "check base_url" in result.output
    ollama = doctor(tmp_path, provider("ollama", "http://127.0.0.1:9"))
    problem = "can't connect to 127.0.0.1:9: connection refused; start Ollama, or correct base_url"
    assert ollama.output.endswith(f"{problem}\n")


def status_app(status: int) -> object:
    async def app(scope: dict[str, object], receive: object, send: object) -> None:
        if scope["type"] == "http":
            start = {"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]}
            await send(start)  # type: ignore[operator]
            await send({"type": "http.response.body", "body": b""})  # type: ignore[operator]

    return app


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (404, 0, "reachable, but has no model list"),
        (302, 1, "status 302; redirects are not followed"),
        (503, 1, "status 503; try again later"),
    ],
)
def test_provider_responses_and_advice(tmp_path: Path, status: int, code: int, message: str) -> None:
    with serve_app(status_app(status)) as url:
        result = doctor(tmp_path, provider("anthropic", url))
    assert (result.exit_code, message in result.output) == (code, True), result.output


def test_public_server_without_keys_is_a_problem(tmp_path: Path) -> None:
    outside = '[server]\nhost = "0.0.0.0"\n'
    result = doctor(tmp_path, outside)
    assert result.exit_code == 1
    assert "problem  server: 0.0.0.0 is reachable from other machines" in result.output
    assert doctor(tmp_path, outside + f'keys = ["{SECRET}"]').exit_code == 0


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("[server]\nprot = 3\n", 'toolwire.toml:2:1: unknown key "prot" in [server] (did you mean "port"?)'),
        ('[server]\nkeys = ["env:UNSET_KEY"]\n', "variable UNSET_KEY is not set"),
        ("[server", "toolwire.toml"),
    ],
)
def test_unreadable_configuration_is_bad_input(tmp_path: Path, config: str, message: str) -> None:
    result = doctor(tmp_path, config)
    assert result.exit_code == 2
    assert message in result.output


FILES = ("state", "journal", "runs")


def create_databases(folder: Path) -> dict[str, Path]:
    """Create the three database files, each as the program itself creates it."""
    here = folder / "state" / "toolwire"
    open_store(StateSection(), {"XDG_STATE_HOME": str(folder / "state")}).close()
    open_record_store(here / "journal.db", max_age_days=1, max_bytes=1_000_000).close()
    RunStore(here / "runs.db").close()
    return {name: here / f"{name}.db" for name in FILES}


def test_database_files_are_checked(tmp_path: Path) -> None:
    files = create_databases(tmp_path)
    result = doctor(tmp_path, "")
    assert result.exit_code == 0, result.output
    for name, path in files.items():
        assert f"ok       {name}: {path}\n" in result.output


@pytest.mark.postgres
def test_database_is_checked_instead_of_files_that_it_replaces(postgres_url: str, tmp_path: Path) -> None:
    create_databases(tmp_path)
    RunStore(postgres_url).close()
    config = f'[server]\nseal_keys = ["a shared key"]\n[state]\nurl = "{postgres_url}"\n'
    lines = [
        line
        for line in doctor(tmp_path, config).output.splitlines()
        if line[9:].startswith(("state:", "journal:", "runs:"))
    ]
    assert lines == [f"ok       state: {displayed_url(postgres_url)}"]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("INSERT INTO toolwire.versions VALUES ('ledger', 99)")
    refused = doctor(tmp_path, config)
    assert (refused.exit_code, "written by a newer toolwire (ledger version 99" in refused.output) == (1, True)


@pytest.mark.parametrize("name", FILES)
def test_damage_behind_a_valid_header_is_found_on_open(name: str, tmp_path: Path) -> None:
    """Integrity is checked for state, journal and runs, and by the doctor."""
    path = create_databases(tmp_path)[name]
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size - 4096)
        file.write(b"\xff" * 4096)
    if name == "state":
        store = open_store(StateSection(), {"XDG_STATE_HOME": str(tmp_path / "state")})
        assert "the file is damaged" in (store.unavailable_reason or "")
        store.close()
    elif name == "journal":
        with pytest.raises(JournalError, match="the file is damaged"):
            open_record_store(path, max_age_days=1, max_bytes=1_000_000)
    else:
        with pytest.raises(JournalError, match="the file is damaged"):
            RunStore(path)
    result = doctor(tmp_path, "")
    assert result.exit_code == 1
    assert f"problem  {name}: {path}: the file is damaged (" in result.output


@pytest.mark.parametrize("name", FILES)
def test_unusable_file_is_a_problem(name: str, tmp_path: Path) -> None:
    """A file that is damaged, of a newer version, or lacks a column."""
    path = create_databases(tmp_path)[name]
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA user_version = 99")
    result = doctor(tmp_path, "")
    assert result.exit_code == 1
    assert f"problem  {name}: {path}: the file was written by a newer toolwire (schema version 99," in result.output
    assert "upgrade toolwire" in result.output
    path.write_bytes(b"this is no database, whatever its name says" * 100)
    damaged = doctor(tmp_path, "")
    assert damaged.exit_code == 1
    assert f"problem  {name}: {path}: the file is damaged or not a SQLite database" in damaged.output
    assert "move the file away" in damaged.output
    assert "Traceback" not in damaged.output


PLACES = pytest.mark.parametrize("place", ["file/x.db", "/proc/x/y.db", "folder", "link", "dangling"])


def open_files(config: Config) -> None:
    """Open the state and the journal, as `toolwire serve` does."""
    open_store(config.state, {}).close()
    prices: Any = None
    build_recorder(config, Redactor(()), {}, print, prices)


@PLACES
@pytest.mark.parametrize("table", ["[state]", "[journal]\nenabled = true"], ids=["state", "journal"])
def test_file_that_serve_refuses_to_create_is_a_problem(tmp_path: Path, table: str, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    path, name = tmp_path / place, table[1:].partition("]")[0]
    config = f'{table}\npath = "{path}"\n'
    result = doctor(tmp_path, config)
    assert result.exit_code == 1
    assert f"problem  {name}: {path}: " in result.output
    assert "set a file in a folder that can be written to" in result.output
    with pytest.raises(ConfigError, match=rf"^{name}\.path: {path}: .*; set a file in a folder that can be written to"):
        open_files(parse_config(config, {}))


def test_missing_files_are_left_missing(tmp_path: Path) -> None:
    config = '[state]\npath = "{0}/a/state.db"\n[journal]\nenabled = true\npath = "{0}/b/journal.db"\n'
    result = doctor(tmp_path, config.format(tmp_path))
    assert result.exit_code == 0, result.output
    assert [path.name for path in tmp_path.iterdir()] == ["toolwire.toml"]


def test_home_is_expanded_in_the_path_of_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert state_path(StateSection(path="~/x.db"), {}) == tmp_path / "x.db"


def test_database_without_common_keys_and_missing_script_are_problems(tmp_path: Path) -> None:
    shared = doctor(tmp_path, '[state]\nurl = "postgresql://127.0.0.1:9/none"\n')
    assert "problem  server: gateways that share state.url need the same keys" in shared.output
    script = doctor(tmp_path, f'[simulator]\nscript = "{tmp_path}/none.toml"\n')
    assert "problem  simulator: simulator.script: can't read" in script.output
    assert (shared.exit_code, script.exit_code) == (1, 1)


def test_damaged_usage_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "state" / "toolwire").mkdir(parents=True)
    (tmp_path / "state" / "toolwire" / "usage.db").write_bytes(b"no database" * 1000)
    result = doctor(tmp_path, "")
    assert (result.exit_code, "usage.db: the file is damaged" in result.output) == (1, True)


ROUTE = """
[[routes]]
backends = [{provider = "anthropic", model = "claude-opus-5-5"}, {provider = "ollama"%s}]
"""


def test_backends_of_a_route_are_listed(base_url: str, tmp_path: Path) -> None:
    providers = "".join(provider(name, base_url, 'api_key = "env:THE_KEY"') for name in ("anthropic", "ollama"))
    result = doctor(tmp_path, providers + ROUTE % ', model = "qwen3"', THE_KEY=SECRET)
    assert result.exit_code == 0, result.output
    assert "ok       route *: anthropic/claude-opus-5-5, then ollama/qwen3" in result.output


def test_fallback_with_model_names_of_another_vendor_is_a_problem(base_url: str, tmp_path: Path) -> None:
    providers = "".join(provider(name, base_url, 'api_key = "env:THE_KEY"') for name in ("anthropic", "ollama"))
    result = doctor(tmp_path, providers + ROUTE % "", THE_KEY=SECRET)
    assert result.exit_code == 1
    assert "ollama gets model names of anthropic: set its model" in result.output


@pytest.mark.parametrize("failing", [True, False])
def test_open_breakers_of_a_running_gateway_are_shown(base_url: str, tmp_path: Path, failing: bool) -> None:
    providers = "".join(provider(name, base_url, 'api_key = "env:THE_KEY"') for name in ("anthropic", "ollama"))
    route = ROUTE % ', model = "m"'

    def config(port: int) -> str:
        return f'[server]\nkeys = ["{SECRET}"]\nport = {port}\n{providers}{route}'

    gateway = build_gateway(
        parse_config(config(0), {"THE_KEY": SECRET}), None, {"HOME": "/nonexistent"}, log=SilentLog()
    )
    breakers = gateway.app._dispatcher.services.breakers
    for _ in range(5 if failing else 4):
        breakers.record_failure(gateway.router.route("x").backends[0])
    with serve_app(gateway.app) as url:
        result = doctor(tmp_path, config(int(url.rpartition(":")[2])), THE_KEY=SECRET)
    gateway.app.close()
    assert result.exit_code == int(failing)
    expected = (
        "problem  breaker: anthropic/claude-opus-5-5 keeps failing" if failing else "ok       breakers: none is open"
    )
    assert expected in result.output
