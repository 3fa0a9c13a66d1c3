"""Host profiles that users define, as tables that extend another profile."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from toolwire.codec.hosts.profile import HostProfile
from toolwire.codec.hosts.registry import (
    CHAT,
    HOST_NAMES,
    PROFILED_PROTOCOLS,
    host_profiles,
    profile_named,
    recognize_host,
)

_NOT_EXTENDED = ("recognition", "sources", "pass_through")


class UnknownHost(Exception):
    """Raised for the name of a host without a profile."""


class HostTables:
    """The profiles of user-defined hosts, and by name and address also the built-in ones."""

    def __init__(self, tables: Mapping[str, Mapping[str, Any]]) -> None:
        self._tables = tables

    @property
    def names(self) -> Iterable[str]:
        """Return the names of all hosts, the user's first."""
        return dict.fromkeys([*self._tables, *HOST_NAMES])

    def profile(self, name: str, protocol: str = CHAT) -> HostProfile:
        """Return the profile of a host for a protocol.

        Raises `UnknownHost` for the name of no host, and `msgspec.ValidationError` for a table with invalid keys.
        """
        if name not in self._tables:
            if name not in HOST_NAMES:
                raise UnknownHost(name)
            return profile_named(name, protocol)
        return self._extend(name, protocol)

    def profiles(self, name: str) -> list[HostProfile]:
        """Return the profiles of a host for all protocols that it has."""
        if name not in self._tables:
            return list(host_profiles(name).values())
        parent = str(self._tables[name].get("extends", name))
        protocols = [profile.protocol for profile in self.profiles(parent)] if parent != name else host_profiles(name)
        return [self._extend(name, protocol) for protocol in protocols]

    def recognize(self, hostname: str, port: int, path: str, protocol: str) -> HostProfile | None:
        """Return the profile of a user-defined host for the parts of a base URL; None if there is none."""
        profiles = [self._extend(name, protocol) for name in self._tables]
        return recognize_host(hostname, port, path, protocol, profiles)

    def _extend(self, name: str, protocol: str) -> HostProfile:
        """Return the profile of a table: that of the host which it extends, with the facts that it states."""
        table = dict(self._tables[name])
        extended = table.pop("extends", name if name in HOST_NAMES else "generic")
        table_protocol = table.pop("protocol", protocol)
        _check_extends_and_protocol(extended, table_protocol)
        if extended == name and name not in HOST_NAMES:
            raise UnknownHost(name)
        try:
            parent = self.profile(extended, protocol) if extended != name else profile_named(name, protocol)
        except RecursionError:
            raise UnknownHost(extended) from None
        if table_protocol != protocol:
            return replace(parent, name=name)
        members = msgspec.to_builtins(parent)
        for key in _NOT_EXTENDED if extended != name else ():
            members.pop(key, None)
        return msgspec.convert(_merge(members, table) | {"name": name, "protocol": protocol}, HostProfile)


def _check_extends_and_protocol(extends: object, protocol: object) -> None:
    """Raise `ValidationError` for keys of a table that are not facts, if their values are invalid."""
    if not isinstance(extends, str):
        raise msgspec.ValidationError("expected the name of a host - at `$.extends`")
    if protocol not in PROFILED_PROTOCOLS:
        raise msgspec.ValidationError(f"expected one of {', '.join(PROFILED_PROTOCOLS)} - at `$.protocol`")


def _merge(facts: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts with the changes of a table; tables within it are merged, other values replaced."""
    merged = dict(facts)
    for key, value in changes.items():
        known = merged.get(key)
        merged[key] = _merge(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return merged
