"""Log probabilities of an answer's tokens, between protocols that tell the same of them in two places: of a candidate,
or of each of its texts. In a stream they are handed on as they arrive, and once more with all that was told.

What a protocol is to the rest of toolwire: one record of functions, and what they are given.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec
from msgspec import Raw, Struct, field

from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import Event
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response
from toolwire.codec.envelope import EnvelopeField, EnvelopeKey
from toolwire.codec.framing import FrameFilter
from toolwire.codec.host_profiles import OPENAI, HostProfile
from toolwire.codec.losses import LossReport, WireNames
from toolwire.codec.surface import ModelCard, Surface
from toolwire.codec.token_count import TokenCountApi
from toolwire.codec.validation import Finding

if TYPE_CHECKING:
    from toolwire.codec.encoding.computer import ComputerUseAdapter, ScreenContext
    from toolwire.translation.stages.withheld import WithheldSignatures

TokenLogprobs = list[dict[str, Any]]


class LogprobsLayout(Struct, frozen=True):
    """Where a protocol keeps them, always as `logprobs`: in the extras of texts, or else of candidates. `read` gives
    None for what can't be told elsewhere."""

    family: str
    per_text: bool
    decode: Callable[[Raw], TokenLogprobs | None]
    encode: Callable[[TokenLogprobs], Raw]


class Route(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a protocol keeps outside its body: in the address, or in headers."""

    path: str | None = None
    model: str | None = None
    stream: bool | None = None
    version: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


class Target(Struct, frozen=True, kw_only=True):
    """What is known of the one who will read a request. `issued_ids`: it issued all the call ids itself. `site` and
    `title` are the application's, for a provider that wants to know who asks. `host` is the profile of the server."""

    model: str | None = None
    version: str | None = None
    stream: bool | None = None
    realm: str | None = None
    site: str | None = None
    title: str | None = None
    issued_ids: bool = False
    binary_results: Literal["native", "summary"] = "native"
    hosted_tools: Literal["drop", "function", "refuse"] = "drop"
    host: HostProfile = OPENAI


class OriginalTool(Struct, frozen=True):
    """A tool as the client knows it. `parameters`: its schema, if the target gives null for what is absent. `native`:
    what its vendor calls a call of it, if it is no function there."""

    name: str
    namespace: str | None = None
    freeform: bool = False
    parameters: Raw | None = None
    native: str | None = None


class ResponseMapping(Struct):
    """How to raise an answer again to what the client asked: aliases and what was lowered; `taken` are all names that
    the target knows. `integers` is the request whose schemas say where it wants integers, if another protocol's model
    answers; `screen` what its calls that drive a screen are told again by."""

    tools: dict[str, OriginalTool] = field(default_factory=dict)
    used_names: set[str] = field(default_factory=set)
    integer_schemas: Request | None = None
    computer_use: "ScreenContext | None" = None

    @property
    def is_empty(self) -> bool:
        """Whether an answer stays as it is."""
        return not self.tools and self.integer_schemas is None and self.computer_use is None


class ResponseContext(Struct, frozen=True, kw_only=True):
    """What an answer needs besides itself. `request` is the client's. What its protocol can't keep, `carrier` hides in
    a field that it echoes, or `withholding` holds back for somebody else to keep."""

    request: Request | None = None
    mapping: ResponseMapping = field(default_factory=ResponseMapping)
    created: int = 0
    envelope_key: EnvelopeKey | None = None
    withheld: "WithheldSignatures | None" = None


class EncodedBody(Struct):
    """What an encoder made: a tree of dicts, wire structs and raw JSON, with its losses still as trails."""

    body: Any
    report: LossReport
    mapping: ResponseMapping = field(default_factory=ResponseMapping)
    route: Route = field(default_factory=Route)

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self.body)


class StreamDecoder(Protocol):
    """Bytes at any split in, events out. Total: what can't be read ends the stream with ResponseFailed."""

    def feed(self, data: bytes) -> list[Event]: ...
    def close(self) -> list[Event]: ...


class StreamEncoder(Protocol):
    """Events in, bytes out. `report` speaks of the response that the events fold into; `failure`: why it can't
    go on, if so; it waits for the ResponseFailed that says so."""

    report: LossReport

    @property
    def failure(self) -> ApiError | None: ...
    def encode(self, events: Iterable[Event]) -> bytes: ...
    def close(self) -> bytes: ...


class SharedExtra(Struct, frozen=True):
    """An extra that another protocol of the same vendor has, too: where it is, and how both words for it are turned
    into the common one and back. None: it can't be said. `spelt` are other spellings of the key, which are read."""

    family: str
    key: str
    decode: Callable[[Raw], Raw | None]
    encode: Callable[[Raw], Raw | None]
    key_aliases: tuple[str, ...] = ()


class Codec(Struct, frozen=True, kw_only=True):
    """One protocol. `families` key the extras that it writes back, its own first; `names` gives wire names to canonical
    fields, for losses; `surface` says where it is spoken, `carriage` is the field that its clients echo, `counting` how
    it counts tokens, if there is one. Of what it shares with another protocol of its family, `known` are the extras
    that it has, too, by canonical type, and `spelling` the tokens of `form` that mean the same in both;
    `alike` are, by canonical type, those that a protocol of another family has, too, but the same vendor.
    `probabilities`: where it tells those of tokens, if as others do.
    `failing`: an answer can say itself that it failed; else only an error in its place does.
    `stop_message`: the extra of a candidate that says in words why it stopped.
    `announced`: its streams begin with an event of their own, so that a start alone does not promise content.
    `resets`: settings may change within a conversation.
    `repair_request` mends what the provider is known to refuse: a translation does without it, the gateway does not.
    `demand`: why only its own provider can do what is asked, as the error by which its clients learn to ask otherwise.
    `glance`: an ordinary answer without its words, for who passes it on as it is: its names, its stops and its usage.
    None if it must be decoded to be understood.
    `frame_filter`: changes frames of a stream that is passed on as it came, if this client did not ask for them;
    `closing` ends such a stream, if its provider left that out; `cumulative`: the event that ends one repeats all of
    the answer."""

    name: str
    families: tuple[str, ...]
    wire_names: WireNames
    surface: Surface
    decode_request: Callable[[bytes, Route], Request]
    encode_request: Callable[[Request, Target], EncodedBody]
    decode_response: Callable[[bytes, ResponseContext], Response]
    encode_response: Callable[[Response, ResponseContext], EncodedBody]
    decode_error: Callable[[bytes, int | None], ApiError]
    encode_error: Callable[[ApiError], EncodedBody]
    encode_models: Callable[[Sequence[ModelCard]], Any]
    encode_model: Callable[[ModelCard], Any]
    stream_decoder: Callable[[ResponseContext], StreamDecoder]
    stream_encoder: Callable[[ResponseContext], StreamEncoder]
    check_request: Callable[..., list[Finding]]
    repair_request: Callable[[Request, Target, WireNames, LossReport], Request] | None = None
    envelope_field: EnvelopeField | None = None
    native_only_error: Callable[[Request], ApiError | None] = lambda _: None
    peek: Callable[[bytes], Response | None] = lambda _: None
    frame_filter: Callable[[ResponseContext], FrameFilter | None] = lambda _: None
    stream_end: bytes = b""
    end_event_repeats_response: bool = False
    token_count: TokenCountApi | None = None
    errors_in_body: bool = False
    stop_message_key: str | None = None
    has_start_event: bool = True
    mid_conversation_settings: bool = False
    shared_fields: Mapping[str, frozenset[str]] = {}
    shared_wire_forms: frozenset[str] = frozenset()
    vendor_extras: Mapping[str, Mapping[str, SharedExtra]] = {}
    logprobs: LogprobsLayout | None = None
    computer_use: "ComputerUseAdapter | None" = None
