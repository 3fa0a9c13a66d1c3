"""Trust in the configuration of a folder."""

import tomllib
from pathlib import Path

import pytest

from toolwire.gateway.config import ConfigError, load_config
from toolwire.gateway.config.trust import TrustRecords, sensitive_keys

UP = '[providers.up]\nprotocol = "ollama"\nbase_url = "http://127.0.0.1:1"\n'


def load(file: Path) -> None:
    load_config(None, {"HOME": str(file.parent / "home"), "XDG_STATE_HOME": str(file.parent / "state")}, file)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "toolwire.toml"


@pytest.fixture
def records(tmp_path: Path) -> TrustRecords:
    return TrustRecords(tmp_path / "state" / "toolwire")


def test_file_is_used_only_while_it_is_trusted(file: Path, records: TrustRecords) -> None:
    file.write_text(UP)
    with pytest.raises(ConfigError) as error:
        load(file)
    assert str(error.value) == (
        f"{file} is not trusted. It sets [providers.up], and so could send your keys elsewhere or run programs. "
        "Read it, then run: toolwire config trust"
    )
    records.add(file, UP)
    load(file)
    file.write_text(f"{UP}# changed\n")
    with pytest.raises(ConfigError, match="changed since you trusted it"):
        load(file)
    file.write_text(UP)
    assert records.remove(file)
    assert not records.remove(file)
    with pytest.raises(ConfigError, match="is not trusted"):
        load(file)


def test_copies_and_links_are_not_trusted(file: Path, records: TrustRecords, tmp_path: Path) -> None:
    file.write_text(UP)
    records.add(file, UP)
    for name in ("copy", "link"):
        (tmp_path / name).mkdir()
        records_of_copy = tmp_path / name / "toolwire.toml"
        if name == "copy":
            records_of_copy.write_text(UP)
        else:
            records_of_copy.symlink_to(file)
        assert records.state(records_of_copy, UP) == "unknown"
    # The same file by another path of its folder is trusted.
    (tmp_path / "folder").symlink_to(tmp_path)
    assert records.state(tmp_path / "folder" / "toolwire.toml", UP) == "trusted"


def test_records_are_private(file: Path, records: TrustRecords, tmp_path: Path) -> None:
    records.add(file, UP)
    folder = tmp_path / "state" / "toolwire" / "trusted"
    (record,) = folder.iterdir()
    assert (folder.stat().st_mode & 0o777, record.stat().st_mode & 0o777) == (0o700, 0o600)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("[limits]\nretries = 1\n[models.m]\ncontext = 5\n[server]\nport = 5\n", []),
        ("[policy]\nask = ['a']\ndeny = ['b']\n[tools]\nhidden = ['c']\n[browser]\nheadless = false\n", []),
        ("[simulator]\nscript = 'env:SECRET'\n", [("simulator", "script")]),
        ("[policy]\ndeny = ['env:SECRET']\n", [("policy", "deny", 0)]),
        ("[server]\nport = 1\nhost = '0.0.0.0'\nkeys = ['12345678']\n", [("server", "host"), ("server", "keys")]),
        ("[policy]\nallow = ['*']\n[tools]\nsandbox = true\n", [("policy", "allow"), ("tools", "sandbox")]),
        ("[mcp.servers.a]\ncommand = 'x'\n[hosts.b]\n", [("mcp", "servers", "a"), ("hosts", "b")]),
        ("default_model = 'a/b'\n[aliases]\na = 'b'\n", []),
        ("default_model = 'env:KEY'\n[aliases]\na = 'env:KEY'\n", [("default_model",), ("aliases", "a")]),
        ("[aliases]\n'a/b' = 'c'\nd = {}\n", [("aliases", "a/b"), ("aliases", "d")]),
        ("[[routes]]\nprovider = 'up'\n[journal]\nenabled = false\n", [("routes",), ("journal", "enabled")]),
        ("[browser]\nchromium = '/tmp/x'\n[search]\nurl = 'x'\n", [("browser", "chromium"), ("search", "url")]),
        ("mcp = 1\n[state]\npath = 'x'\n[unknown]\nkey = 1\n", [("mcp",), ("state", "path"), ("unknown", "key")]),
    ],
)
def test_keys_that_choose_receivers_programs_and_rights_need_trust(text: str, keys: list[object]) -> None:
    assert sensitive_keys(tomllib.loads(text), {}) == keys


def test_names_for_models_need_trust_if_they_replace_those_of_the_user(file: Path, tmp_path: Path) -> None:
    file.write_text("default_model = 'a/b'\n[aliases]\nfast = 'a/b'\n")
    load(file)
    user = tmp_path / "home" / ".config" / "toolwire" / "config.toml"
    user.parent.mkdir(parents=True)
    for text, key in (("default_model = 'b/c'\n", "default_model"), ("[aliases]\nfast = 'b/c'\n", "aliases.fast")):
        user.write_text(text)
        with pytest.raises(ConfigError, match=f"It sets {key},"):
            load(file)
    user.write_text("[aliases]\nother = 'b/c'\n")
    load(file)


def test_harmless_file_is_used_without_trust(file: Path) -> None:
    file.write_text("[limits]\nretries = 1\n")
    load(file)
    file.write_text("")
    load(file)


def test_misspelled_key_is_named_before_trust_is_requested(file: Path) -> None:
    for text, message in (
        ("[sever]\nport = 1\n", r':1:2: unknown table \[sever\] \(did you mean "server"\?\)'),
        ("[server]\nprt = 1\n", r':2:1: unknown key "prt" in \[server\] \(did you mean "port"\?\)'),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError, match=message):
            load(file)


def test_names_in_the_message_do_not_control_the_terminal(file: Path) -> None:
    names = "".join(f'[providers."\\u001b]{number}{"x" * 100}"]\n' for number in range(9))
    file.write_text(names)
    with pytest.raises(ConfigError) as error:
        load(file)
    assert str(error.value).isprintable()
    assert "and 4 more" in str(error.value)
    assert len(str(error.value)) < 700 + len(str(file))


def test_unwritable_record_is_an_error(file: Path, tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    with pytest.raises(ConfigError, match="can't write to"):
        TrustRecords(tmp_path / "state").add(file, "")
