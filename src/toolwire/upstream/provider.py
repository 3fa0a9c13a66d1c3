"""A provider: its protocol, base URL, key and request settings."""

import ipaddress
import re
from functools import lru_cache
from typing import Annotated, Literal
from urllib.parse import urlencode, urlsplit

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from toolwire.codec.hosts.profile import AddressFacts, HostProfile
from toolwire.codec.hosts.registry import default_profile, recognize_host
from toolwire.codec.interface import TextRecovery
from toolwire.codec.surface import Surface
from toolwire.upstream.key_command import KeyCommand
from toolwire.upstream.network import DIRECT, NetworkSettings

_VERSION_SEGMENT = re.compile(r"v\d+(?:(?:alpha|beta)\d*)?")
_UNSAFE = re.compile(r"[^\x21-\x7e]")


ContextSize = Annotated[int, Meta(ge=1)] | Literal["auto", "off"]
"""The context size of an Ollama model (`num_ctx`): tokens, by the prompt, or the server's default."""


class Origin(Struct, frozen=True):
    """The scheme, host and port of a connection."""

    scheme: str
    host: str
    port: int
    network: NetworkSettings = NetworkSettings()

    @property
    def authority(self) -> str:
        """Return host and port as in a URL; the default port is left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


_DEFAULT_PORTS = {"http": 80, "https": 443}


_LEAKING_PROTOCOLS = ("openai-chat", "ollama", "openrouter")
_EXACT_HOSTS = ("openai", "azure")
"""Host profiles of providers that never pass on a call as text."""


class Provider(Struct, frozen=True, kw_only=True):
    """The settings of one provider."""

    name: str
    protocol: str
    base_url: str
    api_key: str | None = None
    # The command that prints an expiring key; `with_current_key` sets `api_key` to that key.
    key_command: KeyCommand | None = None
    # The header in which clients send their own credential for this provider.
    client_credential: str | None = None
    # Seconds that the provider may send nothing.
    timeout: float = 600
    connect_timeout: float = 10
    # Seconds until the response begins; by default `timeout`.
    first_byte_timeout: float | None = None
    # Headers and query parameters added to every request.
    headers: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)
    # The path of every request, instead of the protocol's.
    path: str | None = None
    # Names or globs of the models that it serves.
    models: tuple[str, ...] = ()
    default_model: str | None = None
    # Its host profile; by default it is derived from the base URL.
    host: HostProfile | None = None
    # Of a cloud platform; they are part of its paths.
    region: str | None = None
    project: str | None = None
    # Parsers of calls and reasoning in text: `auto`, `off` or a name; by default `auto` where models leak them.
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    num_ctx: ContextSize | None = None  # for Ollama; by default `auto`
    # `native`, `prompt` (declare tools in the system text), or `auto`: prompt if the server refuses tools.
    tool_calling: str = "auto"
    # Whose signatures it accepts: providers of one account accept each other's; by default the provider's name.
    account: str | None = None
    # The URL of a proxy, or `direct`; by default that of the environment.
    proxy: str | None = None
    # Files in PEM form: additional certificate authorities, and the client's certificate and its key.
    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    is_simulated: bool = False  # whether it is the built-in simulator, which costs nothing
    # Why it can't be used: a variable that its settings refer to is not set.
    unavailable_reason: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether the server runs on this machine."""
        return is_loopback(self.origin.host)

    def text_recovery(
        self, model: str | None, tool_call_parser: str | None = None, reasoning_parser: str | None = None
    ) -> TextRecovery | None:
        """Return what to recover from text of this model; None if nothing. The arguments override the provider's."""
        leaks = self.protocol in _LEAKING_PROTOCOLS and self.profile(model).name not in _EXACT_HOSTS
        default = "auto" if leaks else "off"
        calls = tool_call_parser or self.tool_call_parser or default
        reasoning = reasoning_parser or self.reasoning_parser or default
        return None if calls == reasoning == "off" else TextRecovery(tool_calls=calls, reasoning=reasoning, model=model)

    @property
    def has_key(self) -> bool:
        """Whether requests carry a key, wherever it comes from."""
        return any(source is not None for source in (self.api_key, self.key_command, self.client_credential))

    async def with_current_key(self) -> "Provider":
        """Return the provider with the key that its command prints, if it has one; raise `KeyCommandError`."""
        return self if self.key_command is None else replace(self, api_key=await self.key_command.current_key())

    def profile(self, model: str | None) -> HostProfile:
        """Return the configured host profile, or the one for the host name, or else for protocol and model."""
        return self.host or recognize_url(self.base_url, self.protocol) or default_profile(self.protocol, model or "")

    @property
    def address(self) -> AddressFacts | None:
        """The paths of the cloud platform that serves the protocol; None if it is served at the vendor's paths."""
        host = self.host or recognize_url(self.base_url, self.protocol)
        return None if host is None or not host.address.path or self.path is not None else host.address

    @property
    def origin(self) -> Origin:
        """The scheme, host and port of the base URL, and how it is reached."""
        origin = parse_origin(self.base_url)
        proxy = None if self.proxy == DIRECT else self.proxy
        if proxy is self.ca_file is self.client_cert is None:
            return origin
        return replace(origin, network=NetworkSettings(proxy, self.ca_file, self.client_cert, self.client_key))

    def request_target(self, path: str) -> str:
        """Return the request target (path and query) for a path of the protocol."""
        protocol_path, _, protocol_query = path.partition("?")
        full_path = self.path or join_path(urlsplit(self.base_url).path, protocol_path)
        query = "&".join(part for part in (protocol_query, urlencode(self.query)) if part)
        return f"{full_path}?{query}" if query else full_path

    def request_headers(self, surface: Surface) -> dict[str, str]:
        """Return the headers of every request. Configured headers override the protocol's."""
        headers = dict(surface.headers) if self.address is None else {}
        if self.api_key is not None:
            name, value = surface.auth_header(self.api_key)
            if self.address is not None:
                name, value = "authorization", f"Bearer {self.api_key}"
            headers[name] = value
        return headers | {name.lower(): value for name, value in self.headers.items()}


@lru_cache(maxsize=256)
def recognize_url(base_url: str, protocol: str) -> HostProfile | None:
    """Return the built-in profile for a base URL and protocol, None if the host is unknown."""
    origin = parse_origin(base_url)
    return recognize_host(origin.host, origin.port, urlsplit(base_url).path, protocol)


def parse_origin(url: str) -> Origin:
    """Parse the origin of a base URL. Raises ValueError if the URL can't be used as one."""
    parts = urlsplit(url)
    if parts.scheme not in _DEFAULT_PORTS:
        raise ValueError(f"{url!r} does not start with http:// or https://")
    if not parts.hostname:
        raise ValueError(f"{url!r} has no host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a base URL must not contain a user name or password: use api_key or headers")
    if parts.query or parts.fragment:
        raise ValueError(f"{url!r} has a query or fragment: use the query setting")
    if _UNSAFE.search(url):
        raise ValueError(f"{url!r} contains characters that are not allowed in a URL")
    return Origin(parts.scheme, parts.hostname, parts.port or _DEFAULT_PORTS[parts.scheme])


def join_path(base: str, path: str) -> str:
    """Join the path of a base URL and a path of the protocol.

    The base may be a root, or already end with the version segment or with the beginning of the path.
    """
    base_segments = [segment for segment in base.split("/") if segment]
    path_segments = [segment for segment in path.split("/") if segment]
    for length in range(min(len(base_segments), len(path_segments)), 0, -1):
        if base_segments[-length:] == path_segments[:length]:
            return "/" + "/".join(base_segments + path_segments[length:])
    if any(_VERSION_SEGMENT.fullmatch(segment) for segment in base_segments):
        version = next(
            (index for index, segment in enumerate(path_segments) if _VERSION_SEGMENT.fullmatch(segment)), -1
        )
        path_segments = path_segments[version + 1 :]
    return "/" + "/".join(base_segments + path_segments)


def is_loopback(host: str) -> bool:
    """Return whether a host is `localhost` or a loopback address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
