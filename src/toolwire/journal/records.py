"""Records of exchanges: their fields, their packed encoding, and decoding of recorded bodies to the canonical model."""

from collections.abc import Callable, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, Protocol

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from toolwire.canonical.errors import Loss, Strictness, ToolwireError
from toolwire.canonical.fold import fold
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response
from toolwire.codec.interface import Codec, ResponseContext, Route
from toolwire.protocols import PROTOCOLS

USAGE_COUNTS = ("input_tokens", "output_tokens", "cache_read", "cache_write", "reasoning", "tool_use", "total")
_NANO = 1_000_000_000
UniqueFields = tuple[str, float, float | None, float | None, float, str | None, tuple[int | None, ...]]
"""The fields that differ in every record: id, times, response id, and usage with the cost in nanodollars."""


class Bodies(Struct, kw_only=True, omit_defaults=True, gc=False):
    """The bodies of one exchange, as sent and received."""

    request: bytes = b""
    """The client's request."""
    translated: bytes = b""
    """The request to the provider."""
    answers: list[bytes] = []
    """The answers of the provider as they came, one for each attempt and round; empty if `is_passed_through`."""
    is_passed_through: bool = False
    """The only answer is equal to the response."""
    response: bytes = b""
    """The response to the client."""
    folded: bool = False
    """The response was a stream, and is stored as one buffered response."""

    @property
    def by_name(self) -> dict[str, bytes]:
        """The bodies by name: `request`, `translated`, `answer` (or `answer_1`, `answer_2`, ...) and `response`."""
        answers = [self.response] if self.is_passed_through else self.answers
        names = ["answer"] if len(answers) == 1 else [f"answer_{number}" for number in range(1, len(answers) + 1)]
        return {
            "request": self.request,
            "translated": self.translated,
            **dict(zip(names, answers, strict=True)),
            "response": self.response,
        }

    def set_answers(self, answers: list[bytes]) -> None:
        """Set the provider's answers; the response is not stored twice if it was passed through."""
        self.is_passed_through = answers == [self.response]
        self.answers = [] if self.is_passed_through else answers

    def __len__(self) -> int:
        """Return the total length of the bodies in bytes."""
        return len(self.request) + len(self.translated) + sum(map(len, self.answers)) + len(self.response)


class Record(Struct, kw_only=True, omit_defaults=True, gc=False):
    """The record of one exchange."""

    id: str
    at: float
    """Arrival of the request, in seconds since the epoch."""
    toolwire: str
    """Version of toolwire."""
    client: str
    """Protocol of the client."""
    path: str
    route: Route = field(default_factory=Route)
    tenant: str = ""
    strict: Strictness = False
    provider: str = ""
    protocol: str = ""
    """Protocol of the provider."""
    model: str = ""
    status: int = 0
    streamed: bool = False
    error: str = ""
    sent: float | None = None
    """Seconds until the translated request was ready."""
    answered: float | None = None
    """Seconds until the response began."""
    ended: float = 0.0
    """Seconds until the client had the complete response."""
    usage: dict[str, int] = field(default_factory=dict)
    cost: float | None = None
    """US dollars; None if the price of the model or the usage is unknown."""
    response_id: str | None = None
    """Provider's id of the response."""
    response_model: str | None = None
    """Model as reported by the provider."""
    stop_reasons: list[str] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)
    """Number of the model's calls by outcome: `valid`, `invalid_json`, `unknown_tool`, `schema_mismatch`."""
    losses: list[Loss] = field(default_factory=list)
    traceparent: str = ""
    """W3C trace context of the client's request."""
    bodies: Bodies | None = None

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        return record_size(self.losses, self.bodies)

    @property
    def unique_fields(self) -> UniqueFields:
        """The fields that differ in every record."""
        counts = tuple([self.usage.get(name) for name in USAGE_COUNTS])
        cost = None if self.cost is None else round(self.cost * _NANO)
        return self.id, self.at, self.sent, self.answered, self.ended, self.response_id, (*counts, cost)

    @property
    def repeated_fields(self) -> tuple[Any, ...]:
        """The fields that consecutive records often share, for comparison."""
        return _repeated_fields(self)

    def to_record(self) -> "Record":
        """Return the record itself, as a `JournalEntry`."""
        return self


class JournalEntry(Protocol):
    """An exchange to be recorded.

    If `repeated_fields` equal those of the previous entry, only `unique_fields` are stored and no `Record` is built.
    """

    @property
    def at(self) -> float:
        """Arrival of the request, in seconds since the epoch."""
        ...

    @property
    def bodies(self) -> Bodies | None:
        """The bodies of the exchange; None if they are not recorded."""
        ...

    @property
    def size(self) -> int:
        """Approximate size of the record in bytes."""
        ...

    @property
    def unique_fields(self) -> UniqueFields:
        """The fields that differ in every record."""
        ...

    @property
    def repeated_fields(self) -> tuple[Any, ...]:
        """The fields that consecutive records often share, for comparison."""
        ...

    def to_record(self) -> Record:
        """Return the exchange as a record."""
        ...


def record_size(losses: Sequence[Loss], bodies: Bodies | None) -> int:
    """Estimate the size of a record in bytes."""
    return 500 + 200 * len(losses) + (0 if bodies is None else len(bodies))


_UNIQUE_FIELDS = ("id", "at", "sent", "answered", "ended", "response_id", "usage", "cost")
_repeated_fields = attrgetter(*(name for name in Record.__struct_fields__ if name not in (*_UNIQUE_FIELDS, "bodies")))
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[Record | UniqueFields])


class PackedRecords(Struct, gc=False):
    """Consecutive records, encoded as MessagePack."""

    data: bytes
    count: int
    at: float
    """Arrival of the latest request."""
    bodies: bool
    """At least one record has bodies."""


def pack_records(entries: Sequence[JournalEntry], redact: Callable[[Record], Record]) -> PackedRecords:
    """Encode entries as MessagePack, which stores bodies as bytes.

    An entry that repeats the fields of the previous one is stored as its unique fields only.
    """
    data = bytearray()
    previous_fields: tuple[Any, ...] = ()
    at, bodies = 0.0, False
    for entry in entries:
        repeated_fields = entry.repeated_fields
        if entry.bodies is not None or repeated_fields != previous_fields:
            bodies = bodies or entry.bodies is not None
            _ENCODER.encode_into(redact(entry.to_record()), data, -1)
            previous_fields = repeated_fields
        else:
            _ENCODER.encode_into(entry.unique_fields, data, -1)
        at = max(at, entry.at)
    return PackedRecords(bytes(data), len(entries), at, bodies)


class RecordBatch:
    """Packed records that are written together."""

    def __init__(self, packs: Sequence[PackedRecords]) -> None:
        self.count = sum([pack.count for pack in packs])
        self._packs = packs

    def __bytes__(self) -> bytes:
        """Encode the records as one MessagePack array."""
        return b"\xdd%b%b" % (self.count.to_bytes(4, "big"), b"".join([pack.data for pack in self._packs]))

    @property
    def at(self) -> float:
        """Arrival of the latest request, in seconds since the epoch."""
        return max(pack.at for pack in self._packs)

    @property
    def bodies(self) -> bool:
        """True if at least one record has bodies."""
        return any(pack.bodies for pack in self._packs)

    @cached_property
    def records(self) -> list[Record]:
        """The records, decoded on first use."""
        return decode_records(bytes(self))


def encode_records(records: Sequence[Record]) -> bytes:
    """Encode records as one MessagePack array."""
    return bytes(RecordBatch([pack_records(records, Record.to_record)]))


def decode_records(data: bytes) -> list[Record]:
    """Decode a MessagePack array of records; those stored as unique fields are completed from the previous one."""
    records: list[Record] = []
    for item in _DECODER.decode(data):
        if isinstance(item, Record):
            records.append(item)
        elif not records:
            raise msgspec.ValidationError("the first record has only unique fields")
        else:
            id, at, sent, answered, ended, response_id, counts = item
            usage = {name: count for name, count in zip(USAGE_COUNTS, counts, strict=False) if count is not None}
            nanodollars = counts[len(USAGE_COUNTS)] if len(counts) > len(USAGE_COUNTS) else None
            cost = None if nanodollars is None else nanodollars / _NANO
            times = {"at": at, "sent": sent, "answered": answered, "ended": ended}
            changes = {"id": id, **times, "response_id": response_id, "usage": usage, "cost": cost, "bodies": None}
            records.append(replace(records[-1], **changes))
    return records


def record_as_json(record: Record) -> dict[str, object]:
    """Convert a record to JSON data, with each body as JSON where possible and as a string otherwise."""
    fields: dict[str, object] = msgspec.to_builtins(replace(record, bodies=None))
    if record.bodies is not None:
        fields["bodies"] = {name: body_content(data) for name, data in record.bodies.by_name.items() if data}
    return fields


def body_content(data: bytes) -> object:
    """Decode a body as JSON, or as a string if it is not JSON."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return data.decode("utf-8", "replace")


def decode_recorded_request(record: Record) -> Request | None:
    """Decode the client's request; None if it was not recorded or is invalid."""
    if record.bodies is None:
        return None
    try:
        return PROTOCOLS[record.client].decode_request(record.bodies.request, record.route)
    except ToolwireError:
        return None


def decode_recorded_response(record: Record) -> Response | None:
    """Decode the response to the client, streamed or buffered; None if it was not recorded or is an error."""
    request = decode_recorded_request(record)
    if record.bodies is None or request is None or (record.status >= 300 and not record.streamed):
        return None
    codec, context, data = PROTOCOLS[record.client], ResponseContext(request=request), record.bodies.response
    try:
        if record.bodies.folded or not record.streamed:
            return codec.decode_response(data, context)
        return _fold_stream(codec, context, data)
    except ToolwireError:
        return None


def _fold_stream(codec: Codec, context: ResponseContext, data: bytes) -> Response:
    """Decode a stream, and fold it to one response."""
    decoder = codec.stream_decoder(context)
    return fold([*decoder.feed(data), *decoder.close()])


def _encode_folded(codec: Codec, context: ResponseContext, response: Response) -> bytes:
    """Encode a folded response as a buffered one, or as an error."""
    if response.error is not None and not response.candidates:
        return codec.encode_error(response.error).to_bytes()
    return codec.encode_response(response, context).to_bytes()


def recorded_response_body(record: Record) -> bytes:
    """Return the body of the response to the client, with a stream folded to one buffered response."""
    if record.bodies is None:
        return b""
    if record.bodies.folded or not record.streamed or (response := decode_recorded_response(record)) is None:
        return record.bodies.response
    context = ResponseContext(request=decode_recorded_request(record))
    return _encode_folded(PROTOCOLS[record.client], context, response)


def folded_answer(record: Record, answer: bytes) -> bytes:
    """Return an answer of the provider, with a stream folded to one buffered response."""
    codec = PROTOCOLS.get(record.protocol)
    if record.bodies is None or codec is None or not isinstance(body_content(answer), str):
        return answer
    try:
        request = codec.decode_request(record.bodies.translated, Route(model=record.model, stream=True))
        context = ResponseContext(request=request)
        return _encode_folded(codec, context, _fold_stream(codec, context, answer))
    except ToolwireError:
        return answer
