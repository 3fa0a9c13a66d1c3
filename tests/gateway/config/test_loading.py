"""The configuration files of a command: which are read, how they are merged, and where errors are."""

import os
from pathlib import Path

import pytest

from toolwire.gateway.config import ConfigError, load_config, parse_config
from toolwire.gateway.config.loading import LoadedConfig
from toolwire.gateway.config.reading import MAX_FILE_BYTES
from toolwire.gateway.config.trust import TrustRecords

UP = '[providers.up]\nprotocol = "ollama"\nbase_url = "http://127.0.0.1:1"\n'


class Home:
    """A user's home folder, and a project in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {"HOME": str(folder), "KEY": "a-secret-key"}
        self.user = folder / ".config" / "toolwire" / "config.toml"
        self.project = folder / "project" / "toolwire.toml"
        self.records = TrustRecords(folder / ".local" / "state" / "toolwire")
        for file in (self.user, self.project):
            file.parent.mkdir(parents=True)

    def write(self, user: str = "", project: str = "") -> None:
        for file, text in ((self.user, user), (self.project, project)):
            if text:
                file.write_text(text, encoding="utf-8")
        self.records.add(self.project, project)

    def load(self, named: Path | None = None) -> LoadedConfig:
        return load_config(named, self.environment, self.project)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_project_file_takes_precedence_key_by_key(home: Home) -> None:
    home.write(
        "[server]\nport = 1\nhosts = ['a']\n[limits]\nretries = 1\n[aliases]\nx = 'up/1'\ny = 'up/1'\n",
        "[server]\nport = 2\n[aliases]\nx = 'up/2'\n",
    )
    config = home.load().config
    assert (config.server.port, config.server.hosts, config.limits.retries) == (2, ("a",), 1)
    assert config.aliases == {"x": "up/2", "y": "up/1"}


def test_tables_with_an_address_and_a_key_are_replaced_as_one_piece(home: Home) -> None:
    home.write(
        f'{UP}api_key = "env:KEY"\n[search]\nurl = "https://a/{{query}}/{{key}}"\napi_key = "env:KEY"\n'
        '[mcp.servers.s]\nurl = "https://a"\nheaders = { Authorization = "env:KEY" }\n'
        '[mcp.servers.t]\ncommand = "t"\n[hosts.h]\nextends = "vllm"\n',
        '[providers.up]\nprotocol = "anthropic"\nbase_url = "http://evil"\n[search]\nurl = "https://evil/{query}"\n'
        '[mcp.servers.s]\nurl = "https://evil"\n[hosts.h.tools]\nmax_count = 3\n',
    )
    config = home.load().config
    assert (config.providers["up"].base_url, config.providers["up"].api_key) == ("http://evil", None)
    assert (config.search.url, config.search.api_key) == ("https://evil/{query}", None)
    assert config.mcp.servers["s"].headers == {}
    assert config.mcp.servers["t"].command == "t"
    assert config.hosts == {"h": {"tools": {"max_count": 3}}}


def test_project_can_not_remove_what_the_user_denies(home: Home) -> None:
    home.write(
        f"{UP}[policy]\ndeny = ['a']\nask = ['b']\n[tools]\nhidden = ['c']\n[[routes]]\nmatch = 'u'\nprovider = 'up'\n",
        "[policy]\ndeny = []\nask = ['d']\n[tools]\nhidden = ['e']\n[[routes]]\nmatch = 'p'\nprovider = 'up'\n",
    )
    config = home.load().config
    assert (config.policy.deny, config.policy.ask, config.tools.hidden) == (("a",), ("d", "b"), ("e", "c"))
    assert [route.match for route in config.routes] == ["p", "u"]


def test_named_file_is_read_alone(home: Home, tmp_path: Path) -> None:
    home.write("[server]\nport = 1\n", "[server]\nport = 2\n")
    named = tmp_path / "named.toml"
    named.write_text(UP)
    loaded = home.load(named)
    assert (loaded.config.server.port, list(loaded.config.providers)) == (4000, ["up"])
    home.environment["TOOLWIRE_CONFIG"] = str(named)
    assert (home.load().config, home.load().files) == (loaded.config, loaded.files)
    home.environment["TOOLWIRE_CONFIG"] = str(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match=r"^TOOLWIRE_CONFIG: .*none\.toml: No such file"):
        home.load()


def test_relative_base_directory_is_ignored(home: Home) -> None:
    home.write("[server]\nport = 1\n")
    home.environment["XDG_CONFIG_HOME"] = "relative"
    assert home.load().config.server.port == 1
    home.environment["XDG_CONFIG_HOME"] = str(home.folder / "other")
    assert home.load().config.server.port == 4000


def test_errors_name_the_file_that_sets_the_key(home: Home) -> None:
    user = f"{UP}[[routes]]\nprovider = 'up'\n[[routes]]\nprovider = 'down'\n"
    home.write(user, "[[routes]]\nmatch = 'x'\nprovider = 'up'\n")
    with pytest.raises(ConfigError) as error:
        home.load()
    assert str(error.value) == f"{home.user}:7:12: routes[2].provider: unknown provider 'down'"
    home.write(UP, "[limits]\n\nretires = 1\n")
    with pytest.raises(ConfigError) as error:
        home.load()
    assert str(error.value) == (f'{home.project}:3:1: unknown key "retires" in [limits] (did you mean "retries"?)')


def test_first_error_of_a_file_is_reported() -> None:
    with pytest.raises(ConfigError, match=r"^mine\.toml:2:8: server\.port"):
        parse_config("[server]\nport = 70000\n[limits]\nbody = 0\n", {}, "mine.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = = 1", "toolwire.toml:1:5: invalid value"),
        ("[server", "toolwire.toml:1: expected ']' at the end of a table declaration"),
        (f"a = {'[' * 60}{']' * 60}", "toolwire.toml: nested too deeply"),
        (f"a = {'[' * 5000}{']' * 5000}", "toolwire.toml: nested too deeply"),
        (f"{'a.' * 60}b = 1", "toolwire.toml: nested too deeply"),
        ("[limits]\nkey_share = nan", "toolwire.toml:2:13: limits.key_share: expected a number greater than 0"),
        ("[routes]\nmatch = 'x'", "toolwire.toml:1:2: routes: expected an array of tables: write [[routes]]"),
        ("[sever]\nport = 1", 'toolwire.toml:1:2: unknown table [sever] (did you mean "server"?)'),
        (
            f"{UP}[[routes]]\nprovider = 'up'\nbalance = 'wieght'",
            'toolwire.toml:6:11: routes[0].balance: expected "order" or "weight", got \'wieght\' (did you',
        ),
        (
            "[server]\nport = 1979-05-27",
            "toolwire.toml:2:8: server.port: expected an integer from 0 to 65535, got a date",
        ),
        ("[models.m]\nbudget = 'secret'", "toolwire.toml:2:10: models.m.budget: expected an array, got a string"),
        (f"{UP}default_model = true", "toolwire.toml:4:17: providers.up.default_model: expected a string, got true"),
        ("[browser]\nredact_areas = [[1, 2]]", "toolwire.toml:2:17: browser.redact_areas[0]: expected 4 values, got 2"),
    ],
)
def test_errors_have_positions(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_config(text, {})
    assert str(error.value).startswith(message)


def test_file_is_bounded_and_regular(home: Home) -> None:
    home.project.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(ConfigError, match="larger than 256 KB"):
        home.load()
    home.project.unlink()
    os.mkfifo(home.project)
    with pytest.raises(ConfigError, match="not a regular file"):
        home.load()


def test_byte_order_mark_is_accepted(home: Home) -> None:
    home.user.write_bytes(b"\xef\xbb\xbf[server]\nport = 1\n")
    assert home.load().config.server.port == 1
