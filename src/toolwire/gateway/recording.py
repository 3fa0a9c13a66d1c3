"""From an exchange to the record of it: what was at hand anyway is noted on the way, and put together at the end."""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

from msgspec import Struct

from toolwire import __version__
from toolwire.canonical.loss import Loss
from toolwire.canonical.response import Stop
from toolwire.codec.interface import Route
from toolwire.journal.records import COUNTS, Bodies, Own, Record, size_of
from toolwire.journal.secrets import Redactor
from toolwire.journal.store import kept_at
from toolwire.journal.telemetry import telemetry_of
from toolwire.journal.writer import Journal, Sink
from toolwire.upstream.provider import Provider

from .config import Config
from .log import Line
from .passing import Asked, Sent, Streaming, Whole
from .seals import state_folder
from .state.background import Work
from .state.telling import Following

_SECRET = re.compile("key|token|secret|password|credential", re.IGNORECASE)
"""Other variables hold ordinary words, which must not be taken out of everything."""


class Note(Struct, gc=False):
    """What is known of an exchange under way. `pieces` are those of the answer, if they are kept, and `room` is how
    many bytes more may be."""

    asked: Asked
    parent: str
    pieces: list[bytes] | None = None
    room: int = 0
    sent: Sent | None = None
    sent_at: float | None = None
    answered_at: float | None = None
    losses: list[Loss] | None = None
    answer: Whole | Streaming | Following | Work | None = None

    def sends(self, sent: Sent) -> None:
        self.sent, self.sent_at = sent, time.monotonic()

    def answers(self, answer: Whole | Streaming | Following) -> None:
        self.answered_at, self.answer = time.monotonic(), answer
        if type(answer) is Whole:
            self.losses = answer.losses
            if self.pieces is not None:
                self.keep(answer.body)

    def keep(self, data: bytes) -> None:
        if self.pieces is not None and self.room >= len(data):
            self.room -= len(data)
            self.pieces.append(data)
        else:
            self.room = 0


class Entry(Struct, gc=False):
    """What is known of an exchange that is over: the journal's thread makes the record of it, many in a row."""

    line: Line
    ended: float
    at: float
    route: Route
    tenant: str
    strict: bool
    parent: str
    sent: float | None = None
    answered: float | None = None
    protocol: str = ""
    answer: str | None = None
    answered_by: str | None = None
    stops: tuple[Stop | None, ...] = ()
    losses: list[Loss] = []
    bodies: Bodies | None = None

    @property
    def size(self) -> int:
        return size_of(self.losses, self.bodies)

    @property
    def own(self) -> Own:
        line, began = self.line, self.line.began
        return (
            line.id,
            self.at,
            None if self.sent is None else self.sent - began,
            None if self.answered is None else self.answered - began,
            self.ended - began,
            self.answer,
            () if line.usage is None else _of_counts(line.usage),
        )

    @property
    def shared(self) -> tuple[Any, ...]:
        line = self.line
        return (
            *(line.client, line.path, line.provider, line.model, line.status, line.streamed, line.why, line.failed),
            *(self.route, self.tenant, self.strict, self.protocol, self.answered_by, self.stops, self.losses),
            self.parent,
        )

    def record(self) -> Record:
        line, began = self.line, self.line.began
        return Record(
            id=line.id,
            at=self.at,
            toolwire=__version__,
            client=line.client,
            path=line.path,
            route=self.route,
            tenant=self.tenant,
            strict=self.strict,
            provider=line.provider,
            protocol=self.protocol,
            model=line.model,
            status=line.status or 499,
            streamed=line.streamed,
            why=line.why or ("the upstream failed midway" if line.failed else ""),
            sent=None if self.sent is None else self.sent - began,
            answered=None if self.answered is None else self.answered - began,
            ended=self.ended - began,
            usage={} if line.usage is None else _said(_of_counts(line.usage)),
            answer=self.answer,
            answered_by=self.answered_by,
            stops=[stop.reason for stop in self.stops if stop is not None],
            losses=self.losses,
            parent=self.parent,
            bodies=self.bodies,
        )


def recorder_of(
    config: Config, providers: Iterable[Provider], environment: Mapping[str, str], say: Callable[[str], None]
) -> "Recorder | None":
    """What records exchanges, if a journal or telemetry wants them."""
    section, sinks, content = config.journal, list[Sink](), False
    if section.enabled:
        path = journal_path(config, environment)
        sinks.append(kept_at(path, days=section.days, size=section.size, bodies=section.bodies))
        content = section.bodies
    if (telemetry := telemetry_of(environment, say)) is not None:
        sinks.append(telemetry)
        content = content or telemetry.content
    if not sinks:
        return None
    redactor = Redactor(secrets_of(config, providers))
    journal = Journal(sinks, redactor, section.queue, lambda why: say(f"journal: {why}"))
    return Recorder(journal, config.limits.answer if content else 0)


def journal_path(config: Config, environment: Mapping[str, str]) -> Path:
    named = config.journal.path
    return state_folder(environment) / "journal.db" if named is None else Path(named).expanduser()


def secrets_of(config: Config, providers: Iterable[Provider]) -> Iterator[str]:
    """What must be in no record: everybody's keys, and what is configured to be sent along with them."""
    yield from (*config.server.keys, *config.server.seal_keys)
    yield from (config.search.api_key or "", *config.search.headers.values())
    for server in config.mcp.servers.values():
        yield from (server.oauth.client_secret or "", *server.headers.values())
        yield from (value for name, value in server.env.items() if _SECRET.search(name))
    for provider in providers:
        yield from (provider.api_key or "", *provider.headers.values(), *provider.query.values())


class Recorder:
    """`limit` is how much of an answer is kept, 0 if no bodies are."""

    def __init__(self, journal: Journal, limit: int) -> None:
        self.journal = journal
        self._limit = limit

    def note(self, asked: Asked, headers: dict[bytes, bytes]) -> Note:
        parent = headers.get(b"traceparent")
        told = "" if parent is None else parent.decode("latin-1")
        return Note(asked, told, [], self._limit) if self._limit else Note(asked, told)

    def record(self, line: Line, note: Note) -> None:
        """Record it now; what is made in the background once that is over, as if the client had waited for it."""
        answer = note.answer
        work = None if answer is None or isinstance(answer, Work) else answer.work
        if work is None or work.task is None:
            self.journal.add(_entry(line, note))
        else:
            work.task.add_done_callback(lambda _: self._record_work(line, note, work))

    def _record_work(self, line: Line, note: Note, work: Work) -> None:
        note.answer, note.losses = work, work.losses
        line.streamed, line.usage = False, None if work.told is None else work.told.usage
        if note.pieces is not None:
            note.pieces = []
            note.keep(work.ended)
        if work.failure is not None:
            line.status, line.why = work.failure.status or 502, work.failure.message
        self.journal.add(_entry(line, note))


def _entry(line: Line, note: Note) -> Entry:
    """What every exchange goes through: no more than must be done at once."""
    asked, sent, answer, now = note.asked, note.sent, note.answer, time.monotonic()
    entry = Entry(line, now, time.time() - (now - line.began), asked.route, asked.tenant, asked.strict, note.parent)
    entry.sent, entry.answered = note.sent_at, note.answered_at
    if sent is not None:
        entry.protocol = sent.upstream.name
    if answer is not None and (told := answer.told) is not None:
        entry.answer, entry.answered_by, entry.stops = told.id, told.model, tuple(map(_stop, told.candidates))
    if note.losses:
        entry.losses = note.losses
    if note.pieces is not None:
        translated = b"" if sent is None else sent.body
        entry.bodies = Bodies(request=asked.body, translated=translated, response=b"".join(note.pieces))
    return entry


def _said(counts: tuple[int | None, ...]) -> dict[str, int]:
    return {name: count for name, count in zip(COUNTS, counts, strict=True) if count is not None}


_of_counts = attrgetter(*COUNTS)
_stop = attrgetter("stop")
