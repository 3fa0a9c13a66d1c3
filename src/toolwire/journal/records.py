"""What is kept of one exchange."""

from collections.abc import Callable, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, Protocol

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from toolwire.canonical.loss import Loss
from toolwire.codec.interface import Route

COUNTS = ("input_tokens", "output_tokens", "cache_read", "cache_write", "reasoning", "tool_use", "total")
Own = tuple[str, float, float | None, float | None, float, str | None, tuple[int | None, ...]]


class Bodies(Struct, kw_only=True, omit_defaults=True, gc=False):
    """What went over the wire: the client's request, what was made of it for the provider, and the client's answer.
    `folded`: of a stream only the answer that it told is kept."""

    request: bytes = b""
    translated: bytes = b""
    response: bytes = b""
    folded: bool = False

    @property
    def parts(self) -> dict[str, bytes]:
        return {"request": self.request, "translated": self.translated, "response": self.response}

    def __len__(self) -> int:
        return len(self.request) + len(self.translated) + len(self.response)


class Record(Struct, kw_only=True, omit_defaults=True, gc=False):
    """One exchange. `at` is when it came, in seconds since the epoch; `sent`, `answered` and `ended` are seconds after
    that: the translated request was ready, the answer began, the client had all of it. `toolwire` is the version that
    did it, `client` and `protocol` what was spoken on either side, `parent` the trace that it belongs to. `answer` is
    how the provider named its answer, `answered_by` how its model, and `stops` why it ended."""

    id: str
    at: float
    toolwire: str
    client: str
    path: str
    route: Route = field(default_factory=Route)
    tenant: str = ""
    strict: bool = False
    provider: str = ""
    protocol: str = ""
    model: str = ""
    status: int = 0
    streamed: bool = False
    why: str = ""
    sent: float | None = None
    answered: float | None = None
    ended: float = 0.0
    usage: dict[str, int] = field(default_factory=dict)
    answer: str | None = None
    answered_by: str | None = None
    stops: list[str] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    parent: str = ""
    bodies: Bodies | None = None

    @property
    def size(self) -> int:
        return size_of(self.losses, self.bodies)

    @property
    def own(self) -> Own:
        counts = tuple([self.usage.get(name) for name in COUNTS])
        return self.id, self.at, self.sent, self.answered, self.ended, self.answer, counts

    @property
    def shared(self) -> tuple[Any, ...]:
        return _of_shared(self)

    def record(self) -> "Record":
        return self


class Entry(Protocol):
    """What is to be recorded. `own` is what is each one's, and `shared` what one has as the one before it, mostly:
    then the record itself need not be made."""

    @property
    def at(self) -> float: ...
    @property
    def bodies(self) -> Bodies | None: ...
    @property
    def size(self) -> int: ...
    @property
    def own(self) -> Own: ...
    @property
    def shared(self) -> tuple[Any, ...]: ...
    def record(self) -> Record: ...


def size_of(losses: Sequence[Loss], bodies: Bodies | None) -> int:
    """What it takes to keep a record, roughly."""
    return 500 + 200 * len(losses) + (0 if bodies is None else len(bodies))


_OWN = ("id", "at", "sent", "answered", "ended", "answer", "usage")
_of_shared = attrgetter(*(name for name in Record.__struct_fields__ if name not in (*_OWN, "bodies")))
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[Record | Own])


class Packed(Struct, gc=False):
    """Records as they are kept, one after the other. `at` is when the last of them came, `bodies` whether they have
    any."""

    data: bytes
    count: int
    at: float
    bodies: bool


def packed(entries: Sequence[Entry], clean: Callable[[Record], Record]) -> Packed:
    """Not as JSON: bodies are bytes, and stay as they are. Of an exchange that is like the one before it only what is
    its own is kept."""
    data = bytearray()
    before: tuple[Any, ...] = ()
    at, bodies = 0.0, False
    for entry in entries:
        shared = entry.shared
        if entry.bodies is not None or shared != before:
            bodies = bodies or entry.bodies is not None
            _ENCODER.encode_into(clean(entry.record()), data, -1)
            before = shared
        else:
            _ENCODER.encode_into(entry.own, data, -1)
        at = max(at, entry.at)
    return Packed(bytes(data), len(entries), at, bodies)


class Batch:
    """Some records, as they are written at once."""

    def __init__(self, packs: Sequence[Packed]) -> None:
        self.count = sum([pack.count for pack in packs])
        self._packs = packs

    def __bytes__(self) -> bytes:
        """All of them as one list."""
        return b"\xdd%b%b" % (self.count.to_bytes(4, "big"), b"".join([pack.data for pack in self._packs]))

    @property
    def at(self) -> float:
        return max(pack.at for pack in self._packs)

    @property
    def bodies(self) -> bool:
        return any(pack.bodies for pack in self._packs)

    @cached_property
    def records(self) -> list[Record]:
        return decode_records(bytes(self))


def encode_records(records: Sequence[Record]) -> bytes:
    return bytes(Batch([packed(records, Record.record)]))


def decode_records(data: bytes) -> list[Record]:
    records: list[Record] = []
    for found in _DECODER.decode(data):
        if isinstance(found, Record):
            records.append(found)
        elif not records:
            raise msgspec.ValidationError("the first record is told by one before it")
        else:
            id, at, sent, answered, ended, answer, counts = found
            usage = {name: count for name, count in zip(COUNTS, counts, strict=False) if count is not None}
            own = {"id": id, "at": at, "sent": sent, "answered": answered, "ended": ended, "answer": answer}
            records.append(replace(records[-1], **own, usage=usage, bodies=None))
    return records


def readable(record: Record) -> dict[str, object]:
    """The record as JSON data: bodies as JSON where they are, else as text."""
    whole: dict[str, object] = msgspec.to_builtins(replace(record, bodies=None))
    if record.bodies is not None:
        whole["bodies"] = {name: content(data) for name, data in record.bodies.parts.items() if data}
    return whole


def content(data: bytes) -> object:
    """A body as the JSON that it is, or else as text."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return data.decode("utf-8", "replace")
