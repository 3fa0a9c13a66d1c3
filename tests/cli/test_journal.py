"""`toolwire journal`, on exchanges that a gateway recorded."""

import contextlib
import io
import json
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from tests.support.gateway.in_process import PROTOCOL_NAMES, question_request, run_async, run_gateway
from tests.support.runtime.journal_records import make_batch, make_record
from tests.support.servers.asgi import serve_app
from toolwire.canonical.errors import Loss, Severity
from toolwire.cli import main
from toolwire.gateway.providers.known_providers import KEY_VARIABLES
from toolwire.journal.store import open_record_store
from toolwire.upstream.simulator.app import Simulator

NO_KEYS = dict.fromkeys(KEY_VARIABLES.values())
SECRET = "canary-of-an-api-key"


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with serve_app(Simulator()) as url:
        yield url


def journal_config(folder: Path, url: str, more: str = "bodies = true") -> str:
    providers = "".join(
        f'[providers.{name}]\nprotocol = "{name}"\nbase_url = "{url}"\napi_key = "{SECRET}"\n'
        for name in PROTOCOL_NAMES
    )
    route = '[[routes]]\nprovider = "gemini"\nmodel = "gemini-2.5-pro"\n'
    return f'[journal]\nenabled = true\npath = "{folder}/journal.db"\n{more}\n{providers}{route}'


def record(folder: Path, url: str, client: str, *, stream: bool = False, more: str = "bodies = true") -> None:
    """Record one exchange with a Gemini model, and return the configuration."""
    config = journal_config(folder, url, more)
    (folder / "toolwire.toml").write_text(config, encoding="utf-8")

    async def work() -> None:
        async with run_gateway(config) as gateway:
            path, body = question_request(client, stream=stream)
            answer = await gateway.post(path, body)
            assert answer.status == 200
            await answer.read(1_000_000)

    run_async(work())


def journal(folder: Path, *arguments: str) -> Result:
    command_line = [*arguments, "--config", str(folder / "toolwire.toml")]
    result = CliRunner().invoke(main, ["journal", *command_line], env=NO_KEYS)
    assert SECRET not in result.output
    return result


def test_tail_prints_one_line_per_exchange_newest_last(base_url: str, tmp_path: Path) -> None:
    record(tmp_path, base_url, "anthropic")
    record(tmp_path, base_url, "ollama", stream=True)
    result = journal(tmp_path, "tail")
    assert result.exit_code == 0, result.output
    first, second = result.output.splitlines()
    assert "200 anthropic -> gemini/gemini-2.5-pro (gemini)" in first
    assert "200 ollama -> gemini/gemini-2.5-pro (gemini)" in second
    assert " stream in=" in second
    assert " stream " not in first
    assert journal(tmp_path, "tail", "-n", "1").output.splitlines() == [second]
    lines = json.loads(journal(tmp_path, "tail", "-n", "1", "--json").output)
    assert (lines["client"], lines["protocol"], "bodies" in lines) == ("ollama", "gemini", False)


def test_show_counts_losses_of_severity_info_unless_asked(tmp_path: Path) -> None:
    severities: dict[str, Severity] = {"/top_k": "warning", "/x0": "info", "/x1": "info"}
    losses = [
        Loss(severity=severity, kind="dropped", path=path, reason="r", direction="request")
        for path, severity in severities.items()
    ]
    path = tmp_path / "journal.db"
    with contextlib.closing(open_record_store(path, max_age_days=1, max_bytes=1_000_000)) as store:
        store.add(make_batch([replace(make_record(1), losses=losses)]))
    (tmp_path / "toolwire.toml").write_text("")
    shown = journal(tmp_path, "show", "last", "--journal", str(path)).output
    assert ("/top_k" in shown, "/x0" in shown) == (True, False)
    assert "2 losses of severity info: --info lists them" in shown
    complete = journal(tmp_path, "show", "last", "--journal", str(path), "--info").output
    assert all(pointer in complete for pointer in severities)
    assert "--info" not in complete


def test_show_prints_everything(base_url: str, tmp_path: Path) -> None:
    record(tmp_path, base_url, "anthropic")
    id = json.loads(journal(tmp_path, "tail", "--json").output)["id"]
    result = journal(tmp_path, "show", id)
    assert result.exit_code == 0, result.output
    assert result.output == journal(tmp_path, "show", "last").output
    for part in ("--- request", '"max_tokens"', "--- translated", '"contents"', "--- response", '"end_turn"', "usage"):
        assert part in result.output
    shown = json.loads(journal(tmp_path, "show", id, "--json").output)
    assert shown["bodies"]["request"]["messages"][0]["content"][0]["text"] == "What is the weather in Paris?"
    assert shown["bodies"]["translated"]["contents"][0]["role"] == "user"


def test_control_characters_are_escaped(tmp_path: Path) -> None:
    store = open_record_store(tmp_path / "journal.db", max_age_days=1, max_bytes=1_000_000)
    one = make_record(1)
    one.error = "\x1b[2J\x9b31m gone\nnext"
    store.add(make_batch([one]))
    store.close()
    for name in ("tail", "show"):
        arguments = ["journal", name, *(["last"] if name == "show" else []), "--journal", str(tmp_path / "journal.db")]
        output = CliRunner().invoke(main, arguments, env=NO_KEYS).output
        assert "\\x1b[2J\\x9b31m gone next" in output
        assert "\x1b" not in output


def test_invalid_calls_are_shown(tmp_path: Path) -> None:
    store = open_record_store(tmp_path / "journal.db", max_age_days=1, max_bytes=1_000_000)
    one = make_record(1)
    one.calls = {"valid": 3, "invalid_json": 1, "unknown_tool": 1}
    store.add(make_batch([one]))
    store.close()
    arguments = ["journal", "show", "last", "--journal", str(tmp_path / "journal.db")]
    output = CliRunner().invoke(main, arguments, env=NO_KEYS).output
    assert " invalid_calls=2 " in output
    assert "calls valid 3, invalid_json 1, unknown_tool 1\n" in output


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", PROTOCOL_NAMES)
def test_replay_to_the_same_provider_has_no_differences(
    client: str, stream: bool, base_url: str, tmp_path: Path
) -> None:
    record(tmp_path, base_url, client, stream=stream)
    result = journal(tmp_path, "replay", "last")
    assert result.exit_code == 0, result.output
    then, now, end = result.output.splitlines()
    assert then.partition("-> ")[2].split()[:2] == now.partition("-> ")[2].split()[:2]
    assert then.startswith(f"then 200 {client} -> gemini/gemini-2.5-pro (gemini)")
    assert end == "no difference"
    assert len(journal(tmp_path, "tail").output.splitlines()) == 1


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_replay_to_another_protocol(protocol: str, base_url: str, tmp_path: Path) -> None:
    record(tmp_path, base_url, "anthropic", stream=True)
    result = journal(tmp_path, "replay", "last", "--to", f"{protocol}/another")
    assert result.exit_code == 1, result.output
    lines = result.output.splitlines()
    assert lines[1].startswith(f"now  200 anthropic -> {protocol}/another ({protocol})")
    assert 'response changed /model: "gemini-2.5-pro" -> "another"' in lines
    assert not [line for line in lines if "/content/0/name" in line or "/stop_reason" in line]
    lines = journal(tmp_path, "replay", "last", "--to", f"{protocol}/another", "--all").output.splitlines()
    assert [line for line in lines if line.startswith("response changed /id: ")]


def test_replay_shows_changed_provider_behavior(base_url: str, tmp_path: Path) -> None:
    record(tmp_path, base_url, "openai-chat")
    with serve_app(Simulator(models=("only-this",))) as strict:
        (tmp_path / "toolwire.toml").write_text(journal_config(tmp_path, strict), encoding="utf-8")
        result = journal(tmp_path, "replay", "last")
    assert result.exit_code == 1, result.output
    assert "now  404 openai-chat -> gemini/gemini-2.5-pro (gemini)" in result.output
    assert "\n     models/gemini-2.5-pro is not found for API version v1beta" in result.output
    assert result.output.endswith("\nstatus changed: 200 -> 404\n")


def test_replay_without_provider_uses_the_simulator(tmp_path: Path) -> None:
    config = f'[journal]\nenabled = true\nbodies = true\npath = "{tmp_path}/journal.db"\n'
    store = open_record_store(tmp_path / "journal.db", max_age_days=1, max_bytes=1_000_000)
    one = make_record(1, body=1)
    assert one.bodies is not None
    one.bodies.request = question_request("anthropic")[1]
    one.path, one.provider, one.model = "/v1/messages", "gemini", "m"
    store.add(make_batch([one]))
    store.close()
    (tmp_path / "toolwire.toml").write_text(config, encoding="utf-8")
    result = journal(tmp_path, "replay", "ex_1")
    assert result.exit_code == 1, result.output
    assert "now  200 anthropic -> gemini/m (gemini)" in result.output


def test_replay_of_a_websocket_request_says_what_is_missing(tmp_path: Path) -> None:
    """Such a request has only the new items; the others were in the connection, which is gone."""
    store = open_record_store(tmp_path / "journal.db", max_age_days=1, max_bytes=1_000_000)
    one = make_record(1, body=1)
    assert one.bodies is not None
    body = {"model": "m", "input": "and now?", "store": False, "previous_response_id": "resp_gone", "stream": True}
    one.bodies.request = json.dumps(body).encode()
    one.client, one.path, one.provider, one.model = "openai-responses", "/v1/responses", "anthropic", "m"
    one.protocol = "anthropic"
    store.add(make_batch([one]))
    store.close()
    (tmp_path / "toolwire.toml").write_text(f'[journal]\npath = "{tmp_path}/journal.db"\n', encoding="utf-8")
    result = journal(tmp_path, "replay", "ex_1")
    assert result.exit_code == 2, result.output
    assert "ex_1 can't be replayed: it continues resp_gone, which is not stored. On a websocket" in result.output
    assert "limits.sockets = 0" in result.output


def test_export_names_a_file_that_exists(base_url: str, tmp_path: Path) -> None:
    record(tmp_path, base_url, "anthropic")
    target = tmp_path / "bug.zip"
    target.touch()
    result = journal(tmp_path, "export", "last", "-o", str(target))
    assert result.exit_code == 2
    assert f"{target} exists: remove it, or name another file" in result.output


def test_export_writes_a_private_bundle(base_url: str, tmp_path: Path) -> None:
    record(tmp_path, base_url, "anthropic", stream=True)
    record(tmp_path, base_url, "gemini")
    first, second = (json.loads(line) for line in journal(tmp_path, "tail", "--json").output.splitlines())
    target = tmp_path / "bug.zip"
    result = journal(tmp_path, "export", first["id"], "last", "-o", str(target))
    assert (result.exit_code, result.output) == (0, f"{target}\n")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    archive = zipfile.ZipFile(io.BytesIO(target.read_bytes()))
    files = {name: archive.read(name) for name in archive.namelist()}
    assert set(files) == {
        "README.txt",
        "environment.json",
        *(
            f"{first['id']}/{name}"
            for name in ("record.json", "request.json", "translated.json", "answer.txt", "response.txt")
        ),
        *(
            f"{second['id']}/{name}"
            for name in ("record.json", "request.json", "translated.json", "answer.json", "response.json")
        ),
    }
    assert json.loads(files[f"{first['id']}/record.json"])["provider"] == "gemini"
    assert files[f"{first['id']}/response.txt"].startswith(b"event: message_start")
    assert journal(tmp_path, "export", "last", "-o", str(target)).exit_code == 2


def test_later_configured_key_is_redacted_everywhere(tmp_path: Path) -> None:
    """The exchange is recorded before the key is configured."""
    store = open_record_store(tmp_path / "journal.db", max_age_days=1, max_bytes=1_000_000)
    one = make_record(1, body=1)
    assert one.bodies is not None
    one.bodies.request, one.error = f'{{"a":"{SECRET}"}}'.encode(), f"wrong: {SECRET}"
    one.tenant = "digest-of-a-key"
    store.add(make_batch([one]))
    store.close()
    (tmp_path / "toolwire.toml").write_text(journal_config(tmp_path, "http://127.0.0.1:9"), encoding="utf-8")
    for arguments in (["tail"], ["tail", "--json"], ["show", "last"], ["show", "last", "--json"]):
        result = journal(tmp_path, *arguments)
        assert result.exit_code == 0
        assert "[removed]" in result.output
    assert journal(tmp_path, "export", "last", "-o", str(tmp_path / "a.zip")).exit_code == 0
    archive = zipfile.ZipFile(tmp_path / "a.zip")
    packed = b"".join(archive.read(name) for name in archive.namelist())
    assert b"[removed]" in packed
    assert SECRET.encode() not in packed
    assert b"digest-of-a-key" not in packed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "ex_none"], "exchange not found: ex_none (see `toolwire journal tail`)"),
        (["replay", "ex_none"], "exchange not found: ex_none"),
        (["replay", "last", "--to", "nobody/m"], "unknown provider 'nobody'; expected one of anthropic, "),
        (["show", "last", "--journal", "none.db"], "no journal at none.db: start the gateway with --record"),
    ],
)
def test_failures_are_one_line_errors(arguments: list[str], message: str, base_url: str, tmp_path: Path) -> None:
    record(tmp_path, base_url, "anthropic")
    result = journal(tmp_path, *arguments)
    assert result.exit_code == 2
    assert result.output.startswith(f"Error: {message}")
    assert result.output.count("\n") == 1


def test_exchange_without_bodies_can_not_be_replayed(base_url: str, tmp_path: Path) -> None:
    record(tmp_path, base_url, "anthropic", more="")
    assert "no bodies recorded: set journal.bodies" in journal(tmp_path, "show", "last").output
    result = journal(tmp_path, "replay", "last")
    assert result.exit_code == 2
    assert "was recorded without bodies: set journal.bodies" in result.output


def test_empty_journal_prints_only_a_note(tmp_path: Path) -> None:
    open_record_store(tmp_path / "journal.db", max_age_days=1, max_bytes=1_000_000)
    (tmp_path / "toolwire.toml").write_text(f'[journal]\npath = "{tmp_path}/journal.db"\n', encoding="utf-8")
    result = journal(tmp_path, "tail")
    assert (result.stdout, result.stderr) == ("", "no exchanges are recorded yet\n")
    assert journal(tmp_path, "show", "last").output == "Error: the journal is empty\n"
