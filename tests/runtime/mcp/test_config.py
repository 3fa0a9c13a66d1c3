"""`[mcp.servers.NAME]`, and the files of other tools."""

import json
import tomllib
from typing import Any

import pytest

from toolwire.gateway.config import Config, ConfigError, parse_config
from toolwire.runtime.mcp.config import McpConfigError, McpServerConfig, as_toml, parse_mcp_servers


def read(text: str, **environment: str) -> Config:
    return parse_config(text, environment)


def test_a_program_and_an_address_are_read() -> None:
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
        ('comand = "x"', "unknown key mcp.servers.a.comand"),
        ("", "mcp.servers.a: wants either command or url"),
        ('command = "x"\nurl = "http://y"', "mcp.servers.a: wants either command or url"),
        ('url = "file:///etc/passwd"', "mcp.servers.a.url: 'file:///etc/passwd' is no http or https address"),
        ('url = "https://["', "mcp.servers.a.url: 'https://[' is no http or https address"),
        ('url = "https://y:port"', "mcp.servers.a.url: 'https://y:port' is no http or https address"),
        ('url = "https://me:pass@y.example"', "mcp.servers.a.url: no user or password in an address"),
        ('url = "https://y"\nheaders = { "a b" = "c" }', "mcp.servers.a.headers.a b: not a header"),
        ('url = "https://y"\nheaders = { X = "c\\r\\nY: d" }', "mcp.servers.a.headers.X: not a header"),
        ('command = "x"\ntimeout = 0', "mcp.servers.a.timeout: must be more than 0"),
        ('command = "x"\nversion = "2024-11-05"', "mcp.servers.a.version: "),
        ('command = "x"\nenv = { A = "env:NOT_THERE" }', "mcp.servers.a.env.A: the environment variable NOT_THERE"),
    ],
)
def test_what_is_wrong_is_refused_with_its_key(section: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(f"[mcp.servers.a]\n{section}")
    assert str(error.value).startswith(message)


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"mcp\.servers\.a b: a name is"):
        read('[mcp.servers."a b"]\ncommand = "x"')


def test_unknown_keys_beside_the_servers_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown key mcp\.server"):
        read('[mcp.server.a]\ncommand = "x"')


OTHERS: dict[str, Any] = {
    "mcpServers": {
        "file system": {"command": "npx", "args": ["-y", "s"], "env": {"T": "${TOKEN}", "U": "plain"}, "type": "stdio"},
        "gemini": {"httpUrl": "https://g.example/mcp", "excludeTools": ["rm"], "trust": True},
        "off": {"command": "x", "disabled": True, "timeout": 30000},
        "old": {"type": "sse", "url": "https://o.example/sse"},
    }
}


def test_the_file_of_another_tool_is_turned_into_ours() -> None:
    servers, left = parse_mcp_servers(json.dumps(OTHERS).encode())
    assert list(servers) == ["file-system", "gemini", "off", "old"]
    assert servers["file-system"] == McpServerConfig(
        command="npx", args=("-y", "s"), env={"T": "env:TOKEN", "U": "plain"}
    )
    assert (servers["gemini"].url, servers["gemini"].without) == ("https://g.example/mcp", ("rm",))
    assert not servers["off"].enabled
    assert left == [
        "gemini.trust: unknown",
        "off.timeout: left out, it means different things in different tools",
        "old: HTTP with SSE is gone from the protocol, trying it as streamable HTTP",
    ]


def test_what_is_written_is_read_again() -> None:
    servers, _ = parse_mcp_servers(json.dumps(OTHERS).encode())
    text = as_toml(servers)
    assert list(tomllib.loads(text)["mcp"]["servers"]) == list(servers)
    resolved = read(text, TOKEN="t").mcp.servers
    assert resolved["file-system"].env == {"T": "t", "U": "plain"}
    assert {name: one for name, one in resolved.items() if name != "file-system"} == {
        name: one for name, one in servers.items() if name != "file-system"
    }


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"mcpServers": []}', b'{"mcpServers": {"a": {"args": 1}}}'])
def test_a_file_that_is_none_is_refused(text: bytes) -> None:
    with pytest.raises(McpConfigError):
        parse_mcp_servers(text)
