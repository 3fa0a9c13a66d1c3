"""`[mcp.servers.NAME]`: the servers of this machine's own configuration. No request ever names one."""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from toolwire.canonical.errors import ToolwireError

ProtocolVersion = Literal["auto", "2025-11-25", "2026-07-28"]

_SERVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class McpConfigError(ToolwireError):
    """A server is not described as it can be used; the message begins with the key."""


class OAuthConfig(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What an authorisation server was told before of this client, if it was; else it is registered when first used.
    `issuer`: the only one that gets the secret. `port`: where on this machine the browser comes back; 0 is any."""

    client_id: str | None = None
    client_secret: str | None = None
    issuer: str | None = None
    client_metadata_url: str | None = None
    scope: str | None = None
    port: int = 0


class McpServerConfig(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A program that is started (`command`), or an address (`url`). `tools` and `without` are globs over the server's
    own names; times are in seconds."""

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    oauth: OAuthConfig = field(default_factory=OAuthConfig)
    version: ProtocolVersion = "auto"
    timeout: float = 120
    connect_timeout: float = 30
    enabled: bool = True
    tools: tuple[str, ...] = ("*",)
    without: tuple[str, ...] = ()

    def offers_tool(self, tool: str) -> bool:
        return any(fnmatchcase(tool, one) for one in self.tools) and not any(
            fnmatchcase(tool, one) for one in self.without
        )


class McpSection(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    servers: dict[str, McpServerConfig] = field(default_factory=dict)


def check_servers(section: McpSection) -> None:
    for name, server in section.servers.items():
        at = f"mcp.servers.{name}"
        if not _SERVER_NAME.fullmatch(name):
            raise McpConfigError(f"{at}: a name is at most 63 letters, digits, _, . and -, and begins with no sign")
        if (server.command is None) == (server.url is None):
            raise McpConfigError(f"{at}: wants either command or url")
        if server.url is not None:
            _check_url(server.url, at)
        for header, value in server.headers.items():
            if not _HEADER_NAME.fullmatch(header) or not value.isprintable():
                raise McpConfigError(f"{at}.headers.{header}: not a header")
        for key in ("timeout", "connect_timeout"):
            if getattr(server, key) <= 0:
                raise McpConfigError(f"{at}.{key}: must be more than 0")


def _check_url(url: str, key_path: str) -> None:
    try:
        parts = urlsplit(url)
        is_http = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that are no IPv6 address, or a port that is no number
        is_http = False
    if not is_http:
        raise McpConfigError(f"{key_path}.url: {url!r} is no http or https address")
    if parts.username or parts.password:
        raise McpConfigError(f"{key_path}.url: no user or password in an address: say it in headers")


_FOREIGN_KEYS = {"type", "transport", "disabled", "httpUrl", "serverUrl", "disabledTools", "excludeTools"}
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")


def parse_mcp_servers(text: bytes) -> tuple[dict[str, McpServerConfig], list[str]]:
    """The servers of a file that other tools use (`{"mcpServers": {...}}`), and what of it could not be taken over."""
    try:
        tree = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise McpConfigError(f"not JSON: {error}") from None
    listed = tree.get("mcpServers", tree.get("servers")) if isinstance(tree, dict) else None
    if not isinstance(listed, dict):
        raise McpConfigError("there is no mcpServers in it")
    servers, left = dict[str, McpServerConfig](), list[str]()
    for name, table in listed.items():
        if not isinstance(table, dict):
            left.append(f"{name}: not an object")
            continue
        taken = {key: table[key] for key in McpServerConfig.__struct_fields__ if key in table}
        if (url := table.get("httpUrl", table.get("serverUrl"))) is not None:
            taken["url"] = url
        if table.get("disabled") is True:
            taken["enabled"] = False
        if (without := table.get("disabledTools", table.get("excludeTools"))) is not None:
            taken["without"] = without
        # Theirs are milliseconds or differ by tool.
        for key in ("timeout", "tools"):
            if taken.pop(key, None) is not None:
                left.append(f"{name}.{key}: left out, it means different things in different tools")
        left += [
            f"{name}.{key}: unknown" for key in table.keys() - set(McpServerConfig.__struct_fields__) - _FOREIGN_KEYS
        ]
        if table.get("type", table.get("transport")) == "sse":
            left.append(f"{name}: HTTP with SSE is gone from the protocol, trying it as streamable HTTP")
        servers[_valid_name(name, servers)] = _convert_table(taken, name)
    check_servers(McpSection(servers=servers))
    return servers, left


def _convert_table(table: Mapping[str, Any], name: str) -> McpServerConfig:
    try:
        return msgspec.convert(_rewrite_variables(table), McpServerConfig)
    except msgspec.ValidationError as error:
        raise McpConfigError(f"{name}: {error}") from None


def _rewrite_variables(value: Any) -> Any:
    """`${NAME}` and `${env:NAME}` as a whole value is `env:NAME` here."""
    if isinstance(value, Mapping):
        return {key: _rewrite_variables(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rewrite_variables(inner) for inner in value]
    if isinstance(value, str) and (found := _VARIABLE.fullmatch(value)) is not None:
        return f"env:{found[1]}"
    return value


def _valid_name(name: str, used_names: Mapping[str, Any]) -> str:
    made = re.sub(r"[^A-Za-z0-9_.-]", "-", name).strip("-._")[:60] or "server"
    return (
        made
        if made not in used_names
        else next(one for n in range(2, 10**6) if (one := f"{made}{n}") not in used_names)
    )


def as_toml(servers: Mapping[str, McpServerConfig]) -> str:
    """To be put into `toolwire.toml`."""
    lines = list[str]()
    for name, server in servers.items():
        lines += ["", f"[mcp.servers.{_toml_key(name)}]"]
        told = msgspec.to_builtins(server)
        usual = msgspec.to_builtins(McpServerConfig())
        lines += [f"{_toml_key(key)} = {_toml_value(value)}" for key, value in told.items() if value != usual[key]]
    return "\n".join(lines[1:]) + "\n"


def _toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else msgspec.json.encode(name).decode()


def _toml_value(value: Any) -> str:
    """JSON's strings, numbers and arrays are TOML's; its objects are not."""
    if isinstance(value, Mapping):
        pairs = [f"{_toml_key(key)} = {_toml_value(inner)}" for key, inner in value.items() if inner is not None]
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml_value(inner) for inner in value)}]"
    return msgspec.json.encode(value).decode()
