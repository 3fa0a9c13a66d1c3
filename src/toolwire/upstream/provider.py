"""A provider: who speaks which protocol, where, and with which key."""

import re
from functools import lru_cache
from urllib.parse import urlencode, urlsplit

from msgspec import Struct, field

from toolwire.codec.host_profiles import PROFILES, HostProfile, default_profile, profile_for_host
from toolwire.codec.surface import Surface

_VERSION_SEGMENT = re.compile(r"v\d+(?:(?:alpha|beta)\d*)?")
_UNSAFE = re.compile(r"[^\x21-\x7e]")


class Origin(Struct, frozen=True):
    """Where connections go."""

    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


_DEFAULT_PORTS = {"http": 80, "https": 443}


class Provider(Struct, frozen=True, kw_only=True):
    """`realm` is whose proofs of reasoning this provider accepts: by default its own."""

    name: str
    protocol: str
    base_url: str
    api_key: str | None = None
    timeout: float = 600
    connect_timeout: float = 10
    headers: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)
    path: str | None = None
    models: tuple[str, ...] = ()
    default_model: str | None = None
    host: str | None = None

    def profile(self, model: str | None) -> HostProfile:
        """Return the profile of the server: the configured one, or what its host name or else the model tells."""
        return _host_profile(self.host, self.base_url) or default_profile(self.protocol, model or "")

    @property
    def origin(self) -> Origin:
        return parse_origin(self.base_url)

    def request_target(self, path: str) -> str:
        """What is asked for at the origin, for a protocol's own path."""
        own, _, query = path.partition("?")
        whole = self.path or join_path(urlsplit(self.base_url).path, own)
        asked = "&".join(part for part in (query, urlencode(self.query)) if part)
        return f"{whole}?{asked}" if asked else whole

    def request_headers(self, surface: Surface) -> dict[str, str]:
        """The headers of every request to this provider. What is configured wins over what the protocol wants."""
        found = dict(surface.headers)
        if self.api_key is not None:
            name, value = surface.auth_header(self.api_key)
            found[name] = value
        return found | {name.lower(): value for name, value in self.headers.items()}


@lru_cache(maxsize=256)
def _host_profile(host: str | None, base_url: str) -> HostProfile | None:
    return profile_for_host(parse_origin(base_url).host) if host is None else PROFILES[host]


def parse_origin(url: str) -> Origin:
    """The origin of a base URL; a ValueError says what is wrong with it."""
    parts = urlsplit(url)
    if parts.scheme not in _DEFAULT_PORTS:
        raise ValueError(f"{url!r} does not start with http:// or https://")
    if not parts.hostname:
        raise ValueError(f"{url!r} names no host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a base URL holds no user name or password: use api_key or headers")
    if parts.query or parts.fragment:
        raise ValueError(f"{url!r} has a query: use the query setting")
    if _UNSAFE.search(url):
        raise ValueError(f"{url!r} has characters that no URL has")
    return Origin(parts.scheme, parts.hostname, parts.port or _DEFAULT_PORTS[parts.scheme])


def join_path(base: str, path: str) -> str:
    """A protocol's path below a base that is a root, or that already has the version segment, or part of the path."""
    segments = [part for part in base.split("/") if part]
    wanted = [part for part in path.split("/") if part]
    for length in range(min(len(segments), len(wanted)), 0, -1):
        if segments[-length:] == wanted[:length]:
            return "/" + "/".join(segments + wanted[length:])
    if any(_VERSION_SEGMENT.fullmatch(part) for part in segments):
        version = next((place for place, part in enumerate(wanted) if _VERSION_SEGMENT.fullmatch(part)), -1)
        wanted = wanted[version + 1 :]
    return "/" + "/".join(segments + wanted)
