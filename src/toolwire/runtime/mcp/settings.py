"""`[mcp.servers.NAME]`: the servers of this machine's own configuration. No request ever names one."""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from toolwire.canonical.errors import ToolwireError

Version = Literal["auto", "2025-11-25", "2026-07-28"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class McpConfigError(ToolwireError):
    """A server is not described as it can be used; the message begins with the key."""


class OAuth(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What an authorisation server was told before of this client, if it was; else it is registered when first used.
    `issuer`: the only one that gets the secret. `port`: where on this machine the browser comes back; 0 is any."""

    client_id: str | None = None
    client_secret: str | None = None
    issuer: str | None = None
    client_metadata_url: str | None = None
    scope: str | None = None
    port: int = 0


class Server(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A program that is started (`command`), or an address (`url`). `tools` and `without` are globs over the server's
    own names; times are in seconds."""

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    oauth: OAuth = field(default_factory=OAuth)
    version: Version = "auto"
    timeout: float = 120
    connect_timeout: float = 30
    enabled: bool = True
    tools: tuple[str, ...] = ("*",)
    without: tuple[str, ...] = ()

    def offers(self, tool: str) -> bool:
        return any(fnmatchcase(tool, one) for one in self.tools) and not any(
            fnmatchcase(tool, one) for one in self.without
        )


class McpSection(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    servers: dict[str, Server] = field(default_factory=dict)


def check(section: McpSection) -> None:
    for name, server in section.servers.items():
        at = f"mcp.servers.{name}"
        if not _NAME.fullmatch(name):
            raise McpConfigError(f"{at}: a name is at most 63 letters, digits, _, . and -, and begins with no sign")
        if (server.command is None) == (server.url is None):
            raise McpConfigError(f"{at}: wants either command or url")
        if server.url is not None:
            _check_url(server.url, at)
        for header, value in server.headers.items():
            if not _HEADER.fullmatch(header) or not value.isprintable():
                raise McpConfigError(f"{at}.headers.{header}: not a header")
        for key in ("timeout", "connect_timeout"):
            if getattr(server, key) <= 0:
                raise McpConfigError(f"{at}.{key}: must be more than 0")


def _check_url(url: str, at: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise McpConfigError(f"{at}.url: {url!r} is no http or https address")
    if parts.username or parts.password:
        raise McpConfigError(f"{at}.url: no user or password in an address: say it in headers")


_KNOWN_ELSEWHERE = {"type", "transport", "disabled", "httpUrl", "serverUrl", "disabledTools", "excludeTools"}
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")


def imported(text: bytes) -> tuple[dict[str, Server], list[str]]:
    """The servers of a file that other tools use (`{"mcpServers": {...}}`), and what of it could not be taken over."""
    try:
        tree = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise McpConfigError(f"not JSON: {error}") from None
    listed = tree.get("mcpServers", tree.get("servers")) if isinstance(tree, dict) else None
    if not isinstance(listed, dict):
        raise McpConfigError("there is no mcpServers in it")
    servers, left = dict[str, Server](), list[str]()
    for name, table in listed.items():
        if not isinstance(table, dict):
            left.append(f"{name}: not an object")
            continue
        taken = {key: table[key] for key in Server.__struct_fields__ if key in table}
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
        left += [f"{name}.{key}: unknown" for key in table.keys() - set(Server.__struct_fields__) - _KNOWN_ELSEWHERE]
        if table.get("type", table.get("transport")) == "sse":
            left.append(f"{name}: HTTP with SSE is gone from the protocol, trying it as streamable HTTP")
        servers[_legal(name, servers)] = _converted(taken, name)
    check(McpSection(servers=servers))
    return servers, left


def _converted(table: Mapping[str, Any], name: str) -> Server:
    try:
        return msgspec.convert(_renamed(table), Server)
    except msgspec.ValidationError as error:
        raise McpConfigError(f"{name}: {error}") from None


def _renamed(value: Any) -> Any:
    """`${NAME}` and `${env:NAME}` as a whole value is `env:NAME` here."""
    if isinstance(value, Mapping):
        return {key: _renamed(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_renamed(inner) for inner in value]
    if isinstance(value, str) and (found := _VARIABLE.fullmatch(value)) is not None:
        return f"env:{found[1]}"
    return value


def _legal(name: str, others: Mapping[str, Any]) -> str:
    made = re.sub(r"[^A-Za-z0-9_.-]", "-", name).strip("-._")[:60] or "server"
    return made if made not in others else next(one for n in range(2, 10**6) if (one := f"{made}{n}") not in others)


def as_toml(servers: Mapping[str, Server]) -> str:
    """To be put into `toolwire.toml`."""
    lines = list[str]()
    for name, server in servers.items():
        lines += ["", f"[mcp.servers.{_key(name)}]"]
        told = msgspec.to_builtins(server)
        usual = msgspec.to_builtins(Server())
        lines += [f"{_key(key)} = {_toml(value)}" for key, value in told.items() if value != usual[key]]
    return "\n".join(lines[1:]) + "\n"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else msgspec.json.encode(name).decode()


def _toml(value: Any) -> str:
    """JSON's strings, numbers and arrays are TOML's; its objects are not."""
    if isinstance(value, Mapping):
        return (
            f"{{ {', '.join(f'{_key(key)} = {_toml(inner)}' for key, inner in value.items() if inner is not None)} }}"
        )
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(inner) for inner in value)}]"
    return msgspec.json.encode(value).decode()
