"""Fields and frames of a stream that the folded answer has no place for: they are losses all the same."""

from collections.abc import Iterable

import msgspec
from msgspec import Raw

from toolwire.canonical.events import UNKNOWN, Event, Notice, PartDelta, PartEnd, PartStart
from toolwire.canonical.response import Response

from .fields import escape
from .losses import Report, Trail, foreign_extras

_NAMELESS = Raw(b"frame")
_members = msgspec.json.Decoder(dict[str, Raw]).decode


class FrameFields:
    """Collects them from the events of a stream, in order, for a target that writes the extras of `families`. Each is
    kept once, however often the stream repeats it."""

    def __init__(self, families: tuple[str, ...]) -> None:
        self._families = families
        self._trails: dict[tuple[int, int], Trail] = {}
        self._counts: dict[Trail, int] = {}
        self._fields: dict[tuple[Trail, str], None] = {}
        self._frames: dict[str, None] = {}

    def add_all(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, PartStart):
                message = ("candidates", event.candidate, "messages", event.message)
                place = self._counts.get(message, 0)
                self._counts[message] = place + 1
                self._trails[event.candidate, event.index] = (*message, "parts", place)
            if not event.extras:
                continue
            if isinstance(event, PartStart | PartDelta | PartEnd):
                trail = self._trails.get((event.candidate, event.index), ())
                for family, kept in event.extras.items():
                    if family not in self._families:
                        self._fields.update(dict.fromkeys([(trail, key) for key in kept]))
            elif isinstance(event, Notice) and event.kind == UNKNOWN:
                self._add_frame(event)

    def _add_frame(self, event: Notice) -> None:
        for family, kept in (event.extras or {}).items():
            if family not in self._families:
                members = _members(kept["frame"])
                name = members.get("type", members.get("event_type", _NAMELESS))
                self._frames[bytes(name).decode().strip('"')] = None

    def report(self, response: Response, report: Report) -> None:
        """Report everything collected that is not in the folded `response`."""
        for name in self._frames:
            report.dropped((), "//" + escape(name), "a frame that nobody here knows")
        if not self._fields:
            return
        foreign = foreign_extras(response, self._families)
        folded = {key.partition("/")[0] for _, _, kept in foreign for key in kept}
        for trail, key in self._fields:
            if key.removeprefix("delta/") not in folded:
                report.dropped(trail, "//" + key, "a field that only its own protocol has")
