"""Configuration of `[mcp.servers.NAME]`, and import of other tools' files."""

import json
import re
import tomllib
from typing import Any

import pytest

from toolwire.gateway.config import Config, ConfigError, configured_secrets, parse_config
from toolwire.runtime.mcp.config import McpConfigError, McpServerConfig, as_toml, parse_mcp_servers


def read(text: str, **environment: str) -> Config:
    return parse_config(text, environment)


def test_command_and_url_servers_are_parsed() -> None:
    config = read(
        """
        [mcp.servers.files]
        command = "npx"
        args = ["-y", "server", "."]
        env = { KEY = "env:FILES_KEY" }
        version = "2025-11-25"
        timeout = 5
        tools = ["read_*"]

        [mcp.servers.far]
        url = "https://far.example/mcp"
        headers = { Authorization = "env:FAR" }
        oauth = { scope = "read" }
        enabled = false
        """,
        FILES_KEY="k",
        FAR="Bearer t",
    )
    files, far = config.mcp.servers["files"], config.mcp.servers["far"]
    assert (files.command, files.env, files.version, files.timeout) == ("npx", {"KEY": "k"}, "2025-11-25", 5)
    assert (far.headers, far.oauth.scope, far.enabled) == ({"Authorization": "Bearer t"}, "read", False)
    assert files.offers_tool("read_text")
    assert not files.offers_tool("write_text")


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ('comand = "x"', 'unknown key "comand" in [mcp.servers.a] (did you mean "command"?)'),
        ("", "mcp.servers.a: set either command or url"),
        ('command = "x"\nurl = "http://y"', "mcp.servers.a: set either command or url"),
        ('url = "file:///etc/passwd"', "mcp.servers.a.url: expected an http or https URL, got 'file:///etc/passwd'"),
        ('url = "https://["', "mcp.servers.a.url: expected an http or https URL, got 'https://['"),
        ('url = "https://y:port"', "mcp.servers.a.url: expected an http or https URL, got 'https://y:port'"),
        ('url = "https://me:pass@y.example"', "mcp.servers.a.url: user and password are not allowed in a URL"),
        ('url = "https://y"\nheaders = { "a b" = "c" }', 'mcp.servers.a.headers."a b": invalid header'),
        ('url = "https://y"\nheaders = { X = "c\\r\\nY: d" }', "mcp.servers.a.headers.X: invalid header"),
        ('command = "x"\ntimeout = 0', "mcp.servers.a.timeout: must be greater than 0"),
        ('command = "x"\nversion = "2024-11-05"', "mcp.servers.a.version: "),
    ],
)
def test_config_error_names_the_key(section: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(f"[mcp.servers.a]\n{section}")
    assert re.match(r"toolwire\.toml:\d:\d+: ", str(error.value))
    assert message in str(error.value)


def test_invalid_server_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r'mcp\.servers\."a b": invalid name'):
        read('[mcp.servers."a b"]\ncommand = "x"')


def test_unknown_keys_beside_the_servers_are_refused() -> None:
    with pytest.raises(ConfigError, match=r'unknown key "server" in \[mcp\]'):
        read('[mcp.server.a]\ncommand = "x"')


OTHERS: dict[str, Any] = {
    "mcpServers": {
        "file system": {"command": "npx", "args": ["-y", "s"], "env": {"T": "${TOKEN}", "U": "plain"}, "type": "stdio"},
        "gemini": {"httpUrl": "https://g.example/mcp", "excludeTools": ["rm"], "trust": True},
        "off": {"command": "x", "disabled": True, "timeout": 30000},
        "old": {"type": "sse", "url": "https://o.example/sse"},
    }
}


def test_mcp_servers_file_is_imported() -> None:
    servers, left = parse_mcp_servers(json.dumps(OTHERS).encode())
    assert list(servers) == ["file-system", "gemini", "off", "old"]
    assert servers["file-system"] == McpServerConfig(
        command="npx", args=("-y", "s"), env={"T": "env:TOKEN", "U": "plain"}
    )
    assert (servers["gemini"].url, servers["gemini"].without) == ("https://g.example/mcp", ("rm",))
    assert not servers["off"].enabled
    assert left == [
        "gemini.trust: unknown key",
        "off.timeout: not imported, its meaning differs between tools",
        "old: the HTTP+SSE transport is no longer supported, using streamable HTTP",
    ]


def test_toml_round_trip() -> None:
    servers, _ = parse_mcp_servers(json.dumps(OTHERS).encode())
    text = as_toml(servers)
    assert list(tomllib.loads(text)["mcp"]["servers"]) == list(servers)
    resolved = read(text, TOKEN="t").mcp.servers
    assert resolved["file-system"].env == {"T": "t", "U": "plain"}
    assert {name: one for name, one in resolved.items() if name != "file-system"} == {
        name: one for name, one in servers.items() if name != "file-system"
    }


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"mcpServers": []}', b'{"mcpServers": {"a": {"args": 1}}}'])
def test_invalid_import_file_is_refused(text: bytes) -> None:
    with pytest.raises(McpConfigError):
        parse_mcp_servers(text)


OAUTH = '[mcp.servers.s]\nurl = "https://x.example/mcp"\n[mcp.servers.s.oauth]\n'
MACHINE = f'{OAUTH}grant = "client_credentials"\nclient_id = "n"\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f'{OAUTH}grant = "client_credentials"\nclient_secret = "s"', "client_credentials needs a client_id"),
        (MACHINE, "client_credentials needs either client_secret or private_key"),
        (f'{MACHINE}client_secret = "s"\nprivate_key = "k"', "client_credentials needs either client_secret"),
        (f'{OAUTH}private_key = "k"', 'private_key: only with grant = "client_credentials"'),
        ('[mcp.servers.s]\nurl = "http://x"\nsampling = {max_tokens = 0}', "sampling.max_tokens: must be greater"),
        ('[mcp.servers.s]\nurl = "http://x"\ntask_timeout = 0', "task_timeout: must be greater than 0"),
    ],
)
def test_incomplete_grants_and_limits_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        read(text)


def test_private_key_is_redacted() -> None:
    config = read(f'{MACHINE}private_key = "the-key-of-the-client"')
    assert "the-key-of-the-client" in configured_secrets(config, ())
