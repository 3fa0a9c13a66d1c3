"""What is kept of one exchange."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct, field

from toolwire.canonical.loss import Loss
from toolwire.codec.interface import Route


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
    how the provider named its answer, `answered_by` how its model, and `stops` why it ended. `loses_again`, in a batch
    that is kept: what the record before it lost."""

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
    loses_again: bool = False
    parent: str = ""
    bodies: Bodies | None = None

    @property
    def size(self) -> int:
        return size_of(self.losses, self.bodies)

    def record(self) -> "Record":
        return self


def size_of(losses: Sequence[Loss], bodies: Bodies | None) -> int:
    """What it takes to keep a record, roughly."""
    return 500 + 200 * len(losses) + (0 if bodies is None else len(bodies))


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[Record])


def encode_records(records: Sequence[Record]) -> bytes:
    """Not as JSON: bodies are bytes, and stay as they are. One exchange loses what the one before it did: that is said
    once."""
    losses: list[Loss] = []
    again: list[Record] = []
    for record in records:
        if record.losses and record.losses == losses:
            again.append(record)
        else:
            losses = record.losses
    kept = [record.losses for record in again]
    for record in again:
        record.losses, record.loses_again = [], True
    try:
        return _ENCODER.encode(records)
    finally:
        for record, losses in zip(again, kept, strict=True):
            record.losses, record.loses_again = losses, False


def decode_records(data: bytes) -> list[Record]:
    records = _DECODER.decode(data)
    losses: list[Loss] = []
    for record in records:
        if record.loses_again:
            record.losses, record.loses_again = losses, False
        losses = record.losses
    return records


def readable(record: Record) -> dict[str, object]:
    """The record as JSON data: bodies as JSON where they are, else as text."""
    whole: dict[str, object] = msgspec.to_builtins(msgspec.structs.replace(record, bodies=None))
    if record.bodies is not None:
        whole["bodies"] = {name: content(data) for name, data in record.bodies.parts.items() if data}
    return whole


def content(data: bytes) -> object:
    """A body as the JSON that it is, or else as text."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return data.decode("utf-8", "replace")
