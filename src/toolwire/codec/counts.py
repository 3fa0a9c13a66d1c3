"""How often hosted tools ran, which vendors count beside the tokens: read from what an answer kept, or reported."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from toolwire.canonical.response import Usage

from .fields import escape
from .losses import Report

_FIELDS = ("searches", "fetches")
_members = msgspec.json.Decoder(dict[str, Raw]).decode


def read_counts(kept: dict[str, Any], family: str, places: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What was kept, with what it says of counts marked as told; and the counts, by field. `places` are pointers."""
    own: dict[str, Raw] = (kept.get("extras") or {}).get(family, {})
    if own.keys().isdisjoint([pointer.partition("/")[0] for pointer in places.values()]):
        return kept, {}
    opened = dict(own)
    for pointer in places.values():
        _open(opened, pointer)
    found: dict[str, int] = {}
    told: list[str] = []
    for field, pointer in places.items():
        raw = bytes(opened.get(pointer, b""))
        if raw.isdigit() and len(raw) < 16:
            found[field] = int(raw)
            told += (f"{family}:told:{pointer}", f"{family}:name:{field}={pointer}")
    if not found:
        return kept, {}
    extras = {**kept["extras"], family: opened}
    return {**kept, "extras": extras, "form": (*kept.get("form", ()), *told)}, found


def _open(own: dict[str, Raw], pointer: str) -> None:
    """The members of each object on the way to a place, as values of their own."""
    path = ""
    for step in pointer.split("/")[:-1]:
        path = f"{path}/{step}" if path else step
        raw = own.get(path)
        if raw is not None and bytes(raw)[:1] == b"{" and (members := _members(raw)):
            del own[path]
            own |= {f"{path}/{escape(name)}": value for name, value in members.items()}


def drop_counts(usage: Usage, report: Report, *fields: str) -> None:
    """Report the counts that the target has no field for; all of them if none are named."""
    for field in fields or _FIELDS:
        if getattr(usage, field) is not None:
            report.dropped(("usage",), field, "the target does not count it")
