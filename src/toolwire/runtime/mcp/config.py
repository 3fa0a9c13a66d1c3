"""Configuration of MCP servers, and the identity that toolwire reports to them.

Configuration of MCP servers: the `[mcp.servers.NAME]` tables, and import from other tools' files.
"""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from importlib.metadata import version
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from toolwire.canonical.errors import ToolwireError

IMPLEMENTATION_NAME = "toolwire"
# Not `toolwire.__version__`: the import contracts place the top-level module above the runtime.
IMPLEMENTATION_VERSION = version(IMPLEMENTATION_NAME)

ProtocolVersion = Literal["auto", "2025-11-25", "2026-07-28"]

_SERVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class McpConfigError(ToolwireError):
    """The configuration of an MCP server is invalid; the message begins with the key."""


class OAuthConfig(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """OAuth settings of a server. Without a `client_id`, the client is registered on first use."""

    client_id: str | None = None
    client_secret: str | None = None
    issuer: str | None = None
    """The only authorization server that receives the secret."""
    client_metadata_url: str | None = None
    scope: str | None = None
    port: int = 0
    """Local port of the redirect URL; 0 means any."""


class McpServerConfig(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One MCP server: a program to start (`command`) or an HTTP address (`url`). Times are in seconds."""

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
    """Globs of tools to use, by the server's own names."""
    without: tuple[str, ...] = ()
    """Globs of tools to leave out."""

    def offers_tool(self, tool: str) -> bool:
        """Return True unless the configuration leaves out this tool of the server."""
        return any(fnmatchcase(tool, pattern) for pattern in self.tools) and not any(
            fnmatchcase(tool, pattern) for pattern in self.without
        )


class McpSection(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The `[mcp]` table of the configuration."""

    servers: dict[str, McpServerConfig] = field(default_factory=dict)


def check_servers(section: McpSection) -> None:
    """Raise `McpConfigError` for the first invalid server."""
    for name, server in section.servers.items():
        key_path = f"mcp.servers.{name}"
        if not _SERVER_NAME.fullmatch(name):
            raise McpConfigError(
                f"{key_path}: invalid name: use at most 63 letters, digits, _, . and -, starting with a letter or digit"
            )
        if (server.command is None) == (server.url is None):
            raise McpConfigError(f"{key_path}: set either command or url")
        if server.url is not None:
            _check_url(server.url, key_path)
        for header, value in server.headers.items():
            if not _HEADER_NAME.fullmatch(header) or not value.isprintable():
                raise McpConfigError(f"{key_path}.headers.{header}: invalid header")
        for key in ("timeout", "connect_timeout"):
            if getattr(server, key) <= 0:
                raise McpConfigError(f"{key_path}.{key}: must be greater than 0")


def _check_url(url: str, key_path: str) -> None:
    """Raise `McpConfigError` unless a server's URL is a plain http or https URL."""
    try:
        parts = urlsplit(url)
        is_http = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that are no IPv6 address, or a port that is no number
        is_http = False
    if not is_http:
        raise McpConfigError(f"{key_path}.url: expected an http or https URL, got {url!r}")
    if parts.username or parts.password:
        raise McpConfigError(f"{key_path}.url: user and password are not allowed in a URL: use headers")


_FOREIGN_KEYS = {"type", "transport", "disabled", "httpUrl", "serverUrl", "disabledTools", "excludeTools"}
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")


def parse_mcp_servers(text: bytes) -> tuple[dict[str, McpServerConfig], list[str]]:
    """Parse another tool's server file (`{"mcpServers": {...}}`).

    Returns the servers by name, and a note on each part that was not imported.
    """
    try:
        document = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise McpConfigError(f"invalid JSON: {error}") from None
    tables = document.get("mcpServers", document.get("servers")) if isinstance(document, dict) else None
    if not isinstance(tables, dict):
        raise McpConfigError("missing key mcpServers")
    servers, notes = dict[str, McpServerConfig](), list[str]()
    for name, table in tables.items():
        if not isinstance(table, dict):
            notes.append(f"{name}: expected an object")
            continue
        fields, field_notes = _import_fields(name, table)
        notes += field_notes
        servers[_valid_name(name, servers)] = _convert_table(fields, name)
    check_servers(McpSection(servers=servers))
    return servers, notes


def _import_fields(name: str, table: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Convert one server of another tool's file to our keys; return them with notes on what was not imported."""
    known_keys = McpServerConfig.__struct_fields__
    fields, notes = {key: table[key] for key in known_keys if key in table}, list[str]()
    if (url := table.get("httpUrl", table.get("serverUrl"))) is not None:
        fields["url"] = url
    if table.get("disabled") is True:
        fields["enabled"] = False
    if (without := table.get("disabledTools", table.get("excludeTools"))) is not None:
        fields["without"] = without
    # Elsewhere, `timeout` may be in milliseconds, and `tools` has various meanings.
    for key in ("timeout", "tools"):
        if fields.pop(key, None) is not None:
            notes.append(f"{name}.{key}: not imported, its meaning differs between tools")
    notes += [f"{name}.{key}: unknown key" for key in table.keys() - set(known_keys) - _FOREIGN_KEYS]
    if table.get("type", table.get("transport")) == "sse":
        notes.append(f"{name}: the HTTP+SSE transport is no longer supported, using streamable HTTP")
    return fields, notes


def _convert_table(table: Mapping[str, Any], name: str) -> McpServerConfig:
    """Convert a table to a server configuration; the error names the server."""
    try:
        return msgspec.convert(_rewrite_variables(table), McpServerConfig)
    except msgspec.ValidationError as error:
        raise McpConfigError(f"{name}: {error}") from None


def _rewrite_variables(value: Any) -> Any:
    """Rewrite values `${NAME}` and `${env:NAME}` as `env:NAME`, which toolwire expands."""
    if isinstance(value, Mapping):
        return {key: _rewrite_variables(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_rewrite_variables(item) for item in value]
    if isinstance(value, str) and (match := _VARIABLE.fullmatch(value)) is not None:
        return f"env:{match[1]}"
    return value


def _valid_name(name: str, used_names: Mapping[str, Any]) -> str:
    """Return the name with invalid characters replaced, and a number appended if it is already used."""
    valid = re.sub(r"[^A-Za-z0-9_.-]", "-", name).strip("-._")[:60] or "server"
    if valid not in used_names:
        return valid
    return next(candidate for number in range(2, 10**6) if (candidate := f"{valid}{number}") not in used_names)


def as_toml(servers: Mapping[str, McpServerConfig]) -> str:
    """Format servers as tables for `toolwire.toml`, without default values."""
    lines = list[str]()
    for name, server in servers.items():
        lines += ["", f"[mcp.servers.{_toml_key(name)}]"]
        values = msgspec.to_builtins(server)
        defaults = msgspec.to_builtins(McpServerConfig())
        lines += [f"{_toml_key(key)} = {_toml_value(value)}" for key, value in values.items() if value != defaults[key]]
    return "\n".join(lines[1:]) + "\n"


def _toml_key(name: str) -> str:
    """Return the key, quoted if TOML requires it."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else msgspec.json.encode(name).decode()


def _toml_value(value: Any) -> str:
    """Format a value as TOML, where strings, numbers and arrays look as in JSON and objects do not."""
    if isinstance(value, Mapping):
        pairs = [f"{_toml_key(key)} = {_toml_value(inner)}" for key, inner in value.items() if inner is not None]
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml_value(inner) for inner in value)}]"
    return msgspec.json.encode(value).decode()
