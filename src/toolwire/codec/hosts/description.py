"""Facts of host profiles as text, for the command line and the documentation."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec.structs import fields

from toolwire.codec.hosts.profile import Facts, FactSource, HostProfile

GROUPS = ("address", "messages", "content", "reasoning", "tools", "choice", "thinking", "output", "fields")


class Fact(NamedTuple):
    """One fact in which a host differs from the vendor's API."""

    name: str  # such as `tools.max_count`
    value: str
    source: FactSource | None


def describe_facts(profile: HostProfile) -> Iterator[Fact]:
    """Yield the facts of a profile that differ from the defaults."""
    for group in GROUPS:
        facts = getattr(profile, group)
        default = type(facts)()
        for field in fields(facts):
            value = getattr(facts, field.name)
            if value != getattr(default, field.name):
                name = f"{group}.{field.name}"
                yield Fact(name, describe_value(value), profile.sources.get(name) or profile.sources.get(group))


def describe_value(value: Any) -> str:
    """Return a value as short text: words joined by commas, rules as `models: values`."""
    if isinstance(value, Facts):
        members = {field.name: getattr(value, field.name) for field in fields(value)}
        models = members.pop("models", None)
        text = ", ".join(
            f"{name} {describe_value(member)}"
            for name, member in members.items()
            if member is not None and member != () and (member is not True or len(members) == 1)
        )
        return f"{describe_value(models)}: {text or 'none'}" if models else text
    if isinstance(value, dict):
        return ", ".join(f"{name} as {other}" for name, other in value.items())
    if isinstance(value, tuple):
        separator = "; " if value and isinstance(value[0], Facts) else " "
        return separator.join(map(describe_value, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value) if str(value).strip() else repr(value)


def describe_source(source: FactSource | None) -> str:
    """Return the kind of a source, its references and its note."""
    if source is None:
        return ""
    text = f"{source.kind}: {', '.join(source.references)}" if source.references else source.kind
    return f"{text} ({source.note})" if source.note else text


def describe_addresses(profile: HostProfile) -> str:
    """Return the host names, ports and paths at which a host is recognized."""
    patterns = profile.recognition
    parts = [*patterns.hostnames, *[f"port {port}" for port in patterns.ports]]
    named = [path for path in patterns.paths if path]
    paths = [
        *(["without a path"] if "" in patterns.paths else []),
        *([f"with path {' or '.join(named)}"] if named else []),
    ]
    return " ".join([", ".join(parts), " or ".join(paths)]).strip()
