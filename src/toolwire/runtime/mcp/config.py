"""Configuration of MCP servers (`[mcp.servers.NAME]`), names of their tools, and toolwire's identity for them.

Names of tools have the form `server__tool`, in characters and length that every provider accepts:

1. Names are unique. A table maps them back to server and tool, because either may contain `__` itself.
2. A name that had to be changed or shortened, or is already in use, ends with a hash of both names.
3. A tool keeps its name for the lifetime of the table, even if other tools appear or disappear.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from importlib.metadata import version
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from toolwire.canonical.errors import ToolwireError
from toolwire.codec.env_references import ENV_PREFIX, describe_unset
from toolwire.codec.toml_text import toml_key, toml_value

IMPLEMENTATION_NAME = "toolwire"
# Not `toolwire.__version__`: the import contracts place the top-level module above the runtime.
IMPLEMENTATION_VERSION = version(IMPLEMENTATION_NAME)

ProtocolVersion = Literal["auto", "2025-11-25", "2026-07-28"]

_SERVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class McpConfigError(ToolwireError):
    """The configuration of an MCP server is invalid; the message begins with the key, if there is one."""

    def __init__(self, problem: str, path: tuple[str | int, ...] = ()) -> None:
        """`path` is the key in the configuration file."""
        super().__init__(": ".join(filter(None, (".".join(map(str, path)), problem))))
        self.problem = problem
        self.path = path


class OAuthConfig(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """OAuth settings of a server. Without a `client_id`, the client is registered on first use."""

    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    """`client_credentials` needs no person: the client has a secret or a private key."""
    client_id: str | None = None  # the client that was registered manually
    client_secret: str | None = None  # its secret
    authentication: Literal["basic", "post"] = "basic"
    """The place in which `client_credentials` sends the secret: a header or the body."""
    private_key: str | None = None
    """PEM text of the key that signs assertions (`private_key_jwt`), in place of a secret."""
    algorithm: str = "RS256"
    """Algorithm of these signatures, such as `RS256` or `ES256`."""
    issuer: str | None = None
    """The only authorization server that receives the secret."""
    client_metadata_url: str | None = None  # the URL that identifies the client
    scope: str | None = None  # the requested scopes
    port: int = 0
    """Local port of the redirect URL; 0 means any."""


LogLevel = Literal["off", "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


class SamplingConfig(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Limits on sampling: requests of a server for answers of a model."""

    model: str | None = None
    """The model that answers; the default is the run's own."""
    max_tokens: int = 1_000
    """Output tokens per request."""
    requests: int = 5
    """Requests per call of a tool."""
    approval: Literal["ask", "never"] = "ask"
    """`ask` shows each request to the user for approval."""


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
    task_timeout: float = 3600
    """Time for a call that the server runs as a task."""
    connect_timeout: float = 30
    enabled: bool = True
    roots: tuple[str, ...] = ()
    """Folders that the server is told about."""
    log_level: LogLevel = "info"
    """The least severe log messages of the server to show."""
    sampling: SamplingConfig | None = None
    """Limits on sampling; None means that the server may not sample."""
    resources: bool = False
    """Offer tools that list and read the server's resources."""
    tools: tuple[str, ...] = ("*",)
    """Globs of tools to use, by the server's own names."""
    without: tuple[str, ...] = ()
    """Globs of tools to leave out."""

    @property
    def unavailable_reason(self) -> str | None:
        """Return why the server can't be used: a variable that its settings refer to is not set."""
        return describe_unset(msgspec.to_builtins(self))

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
        path = ("mcp", "servers", name)
        if not _SERVER_NAME.fullmatch(name):
            problem = "invalid name: use at most 63 letters, digits, _, . and -, starting with a letter or digit"
            raise McpConfigError(problem, path)
        if (server.command is None) == (server.url is None):
            raise McpConfigError("set either command or url", path)
        if server.unavailable_reason is not None:
            continue
        if server.url is not None:
            _check_url(server.url, (*path, "url"))
        _check_oauth(server.oauth, (*path, "oauth"))
        for header, value in server.headers.items():
            if not _HEADER_NAME.fullmatch(header) or not value.isprintable():
                raise McpConfigError("invalid header", (*path, "headers", header))
        for key in ("timeout", "connect_timeout", "task_timeout"):
            if getattr(server, key) <= 0:
                raise McpConfigError("must be greater than 0", (*path, key))
        for key in ("max_tokens", "requests") if server.sampling is not None else ():
            if getattr(server.sampling, key) <= 0:
                raise McpConfigError("must be greater than 0", (*path, "sampling", key))


def _check_oauth(oauth: OAuthConfig, path: tuple[str, ...]) -> None:
    """Raise `McpConfigError` unless the grant has the credentials that it needs, and no others."""
    if oauth.grant == "client_credentials":
        if oauth.client_id is None:
            raise McpConfigError("client_credentials needs a client_id", path)
        if (oauth.client_secret is None) == (oauth.private_key is None):
            raise McpConfigError("client_credentials needs either client_secret or private_key", path)
    elif oauth.private_key is not None:
        raise McpConfigError('only with grant = "client_credentials"', (*path, "private_key"))


def _check_url(url: str, path: tuple[str, ...]) -> None:
    """Raise `McpConfigError` unless a server's URL is a plain http or https URL."""
    try:
        parts = urlsplit(url)
        is_http = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that are no IPv6 address, or a port that is no number
        is_http = False
    if not is_http:
        raise McpConfigError(f"expected an http or https URL, got {url!r}", path)
    if parts.username or parts.password:
        raise McpConfigError("user and password are not allowed in a URL: use headers", path)


_FOREIGN_KEYS = {"type", "transport", "disabled", "httpUrl", "serverUrl", "disabledTools", "excludeTools"}
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")


def parse_mcp_servers(text: bytes) -> tuple[dict[str, McpServerConfig], list[str]]:
    """Parse another tool's server file (`{"mcpServers": {...}}`, or VS Code's `{"servers": {...}}`).

    Returns the servers by name, and a note on each part that was not imported.
    """
    try:
        document = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise McpConfigError(f"invalid JSON: {error}") from None
    tables = _server_tables(document) if isinstance(document, dict) else None
    if not isinstance(tables, dict):
        raise McpConfigError("missing key mcpServers, or servers as in VS Code")
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


def _server_tables(document: dict[str, Any]) -> Any:
    """Return the servers of a file, which are under `servers` in VS Code's mcp.json, and `mcp` in its settings."""
    settings = document.get("mcp")
    if isinstance(settings, dict):
        document = settings | document
    return document.get("mcpServers", document.get("servers"))


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
        return f"{ENV_PREFIX}{match[1]}"
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
        lines += ["", f"[mcp.servers.{toml_key(name)}]"]
        values = msgspec.to_builtins(server)
        defaults = msgspec.to_builtins(McpServerConfig())
        lines += [f"{toml_key(key)} = {toml_value(value)}" for key, value in values.items() if value != defaults[key]]
    return "\n".join(lines[1:]) + "\n"


MAX_NAME_LENGTH = 63
"""Providers reject names longer than 64 characters."""

_INVALID_CHARACTERS = re.compile(r"[^A-Za-z0-9_-]")
_HASH_LENGTH = 8


class McpToolNames:
    """The names of all MCP tools of an agent. `reserved` names belong to its other tools."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._reserved = set(reserved)
        self._names: dict[tuple[str, str], str] = {}
        self._origins: dict[str, tuple[str, str]] = {}

    def name_for(self, server: str, tool: str) -> str:
        """Return the name that models see for a server's tool."""
        origin = (server, tool)
        if (known := self._names.get(origin)) is not None:
            return known
        name = next(
            candidate
            for candidate in _candidate_names(origin)
            if candidate not in self._reserved and candidate not in self._origins
        )
        self._names[origin] = name
        self._origins[name] = origin
        return name

    def origin(self, name: str) -> tuple[str, str] | None:
        """Return the server's name and the server's own name for a tool; None if the name is unknown."""
        return self._origins.get(name)


def may_be_tool_of(name: str, server: str) -> bool:
    """Return True if a tool of the server may have this name, which depends on the tools that the server lists."""
    prefix = _INVALID_CHARACTERS.sub("_", f"{server}__")
    prefix = prefix if prefix[0].isalpha() or prefix[0] == "_" else f"_{prefix}"
    return name.startswith(prefix[: MAX_NAME_LENGTH - _HASH_LENGTH - 1])


def _candidate_names(origin: tuple[str, str]) -> Iterable[str]:
    """Yield possible names in order of preference: the plain name if valid, then names with a hash."""
    joined = "__".join(origin)
    valid = _INVALID_CHARACTERS.sub("_", joined)
    if not (valid[0].isalpha() or valid[0] == "_"):  # Gemini requires a letter or underscore first
        valid = f"_{valid}"
    if valid == joined and len(valid) <= MAX_NAME_LENGTH:
        yield valid
    # As a JSON list, no two pairs of names can encode to the same text.
    digest = hashlib.sha256(msgspec.json.encode(origin)).hexdigest()
    for start in range(len(digest)):
        suffix = (digest[start:] + digest)[:_HASH_LENGTH]
        yield f"{valid[: MAX_NAME_LENGTH - _HASH_LENGTH - 1]}_{suffix}"
    yield from (
        f"{valid[: MAX_NAME_LENGTH - _HASH_LENGTH - 9]}_{digest[:_HASH_LENGTH]}{count:08x}" for count in range(2**32)
    )
