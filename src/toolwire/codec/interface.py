"""The interface of a protocol codec: one record of functions, and the values that they exchange."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec
from msgspec import Raw, Struct, field

from toolwire.canonical.content import Message
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import Event
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response
from toolwire.canonical.tools import Tool
from toolwire.codec.context_management import ContextManagementApi
from toolwire.codec.envelope import EnvelopeField, EnvelopeKey
from toolwire.codec.framing import FrameFilter
from toolwire.codec.hosts.openai import OPENAI
from toolwire.codec.hosts.profile import HostProfile
from toolwire.codec.losses import LossReport, WireNames
from toolwire.codec.models.info import ModelInfo
from toolwire.codec.surface import ModelCard, Surface
from toolwire.codec.token_count import TokenCountApi
from toolwire.codec.validation import Finding

if TYPE_CHECKING:
    from toolwire.codec.encoding.computer import ComputerUseAdapter, ScreenContext
    from toolwire.translation.stages.withheld import WithheldSignatures

TokenLogprobs = list[dict[str, Any]]


class LogprobsLayout(Struct, frozen=True):
    """The place and format of token log probabilities in a protocol."""

    family: str  # of the extras, in which they always have the key `logprobs`
    per_text: bool  # kept in the extras of texts, or else of candidates
    decode: Callable[[Raw], TokenLogprobs | None]  # returns None if other protocols cannot represent the value
    encode: Callable[[TokenLogprobs], Raw]


class Route(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Request data outside the body: in the URL or in headers."""

    path: str | None = None
    model: str | None = None
    stream: bool | None = None
    version: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


class Target(Struct, frozen=True, kw_only=True):
    """Facts about the recipient of a request."""

    model: str | None = None
    version: str | None = None
    stream: bool | None = None
    realm: str | None = None  # the deployment or account whose signatures the target accepts
    site: str | None = None  # the application's URL, for providers that ask for it
    title: str | None = None  # the application's name, for providers that ask for it
    issued_ids: bool = False  # the target issued all call ids itself
    # keep binary tool results, or replace them by a summary line
    binary_results: Literal["native", "summary"] = "native"
    hosted_tools: Literal["drop", "function", "refuse"] = "drop"  # handling of hosted tools that the target lacks
    host: HostProfile = OPENAI
    model_info: ModelInfo | None = None  # facts about the model; by default those that its name tells
    context_tokens: int | None = None  # for Ollama: the context size (`num_ctx`) to request
    adds_cache_marks: bool = False  # set cache marks if the request has none, where the provider caches only by marks
    cache_key: str | None = None  # the conversation's key for the prompt cache, where the host accepts one


class OriginalTool(Struct, frozen=True):
    """A tool as the client declared it."""

    name: str
    namespace: str | None = None
    freeform: bool = False  # a freeform tool that was declared as a function
    parameters: Raw | None = None  # the schema, if the target sends null for absent properties
    native: str | None = None  # the vendor's own call type, if the tool is not a function there


class ResponseMapping(Struct):
    """The mapping from a response's tool calls back to the tools that the client declared."""

    tools: dict[str, OriginalTool] = field(default_factory=dict)  # by the name that the target knows
    used_names: set[str] = field(default_factory=set)  # all tool names that the target knows
    # the request whose schemas tell where integers belong, if another protocol's model answers
    integer_schemas: Request | None = None
    computer_use: "ScreenContext | None" = None  # context for translating computer calls back to the client's form

    @property
    def is_empty(self) -> bool:
        """Return whether tool calls of a response reach the client as they are."""
        return not self.tools and self.integer_schemas is None and self.computer_use is None


class TextRecovery(Struct, frozen=True, kw_only=True):
    """Which calls and reasoning to recover from text that the upstream passed on as the model wrote it."""

    tool_calls: str = "auto"  # or `off`, or the name of a dialect
    reasoning: str = "auto"  # or `off`, or the name of a reasoning parser
    model: str | None = None  # the upstream's, which hints at its dialect
    added_tools: tuple[Tool, ...] = ()  # of the gateway, besides those that the client declared


class ResponseContext(Struct, frozen=True, kw_only=True):
    """Everything besides the response itself that decoding and encoding a response needs."""

    request: Request | None = None  # as received from the client
    mapping: ResponseMapping = field(default_factory=ResponseMapping)
    created: int = 0
    # seals data that the client's protocol cannot represent into a field that clients echo
    envelope_key: EnvelopeKey | None = None
    text_recovery: TextRecovery | None = None  # None: text of the upstream is text
    # computes `translation.history.digest_before` from the previous request of the conversation
    digest_before: Callable[[Sequence[Message]], str] | None = None
    # collects signatures that the gateway stores for the client instead
    withheld: "WithheldSignatures | None" = None


class EncodedBody(Struct):
    """An encoded body as a tree of dicts, wire structs and raw JSON, with unresolved losses."""

    body: Any
    report: LossReport
    mapping: ResponseMapping = field(default_factory=ResponseMapping)
    route: Route = field(default_factory=Route)

    def to_bytes(self) -> bytes:
        """Serialize the body to JSON."""
        return msgspec.json.encode(self.body)


class StreamDecoder(Protocol):
    """Decodes stream bytes, cut anywhere, to events. Unreadable input ends the stream with ResponseFailed."""

    def feed(self, data: bytes) -> list[Event]:
        """Decode the next bytes to the events that they complete."""

    def close(self) -> list[Event]:
        """Decode the bytes still buffered at the end of the stream to its last events."""


class StreamEncoder(Protocol):
    """Encodes events to stream bytes."""

    report: LossReport  # losses, relative to the response that the events fold into

    @property
    def failure(self) -> ApiError | None:
        """Return the error that prevents further encoding, if any; the caller sends it as `ResponseFailed`."""

    def encode(self, events: Iterable[Event]) -> bytes:
        """Encode the next events to the frames that they complete."""

    def close(self) -> bytes:
        """Encode what the protocol requires at the end of a stream."""


class SharedExtra(Struct, frozen=True):
    """An extra that another protocol of the same vendor has as well, under its own name and format."""

    family: str
    key: str
    decode: Callable[[Raw], Raw | None]  # to the common format; None if that is impossible
    encode: Callable[[Raw], Raw | None]  # from the common format; None if that is impossible
    key_aliases: tuple[str, ...] = ()  # other spellings of the key that are accepted


class Codec(Struct, frozen=True, kw_only=True):
    """One protocol, as a record of functions and facts."""

    name: str
    families: tuple[str, ...]  # of the extras that it writes back, its own first
    wire_names: WireNames  # wire names of canonical fields, for loss paths
    surface: Surface  # its HTTP endpoints and headers
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
    check_request: Callable[..., list[Finding]]  # returns the findings that make the provider reject a request
    # repairs what the provider is known to reject; used by the gateway, not by `translate`
    repair_request: Callable[[Request, Target, WireNames, LossReport], Request] | None = None
    envelope_field: EnvelopeField | None = None  # the field in which clients echo an envelope
    # the error to return if a request needs a feature that only this protocol's provider has
    native_only_error: Callable[[Request], ApiError | None] = lambda _: None
    # reads ids, stop reasons and usage of a response without its content; None if it must be decoded
    peek: Callable[[bytes], Response | None] = lambda _: None
    # rewrites frames of a passed-through stream that the client did not request
    frame_filter: Callable[[ResponseContext], FrameFilter | None] = lambda _: None
    stream_end: bytes = b""  # completes a passed-through stream whose provider omitted the end
    end_event_repeats_response: bool = False  # the last event of a stream contains the complete response
    token_count: TokenCountApi | None = None  # its endpoint for counting tokens
    context_management: ContextManagementApi | None = None  # its members for clearing and compacting a history
    errors_in_body: bool = False  # a response can report its own failure, besides an error in its place
    stop_message_key: str | None = None  # the extra of a candidate that explains the stop reason in words
    has_start_event: bool = True  # streams begin with an event of their own, so that a start does not promise content
    system_member: str | None = None  # the member of a request that holds the system text, if messages don't
    # messages are decoded without regard to other members of a request, unless it declares a computer
    has_independent_messages: bool = False
    # whether the messages of a request of another protocol can be encoded without those before them
    is_separable: Callable[[Request], bool] = lambda _: True
    # removes what only the vendor's own servers read; used for requests to other vendors
    remove_client_metadata: Callable[[Request, LossReport], Request] = lambda request, _: request
    caches_by_marks: bool = False  # clients mark the prefixes to cache; without marks nothing is cached
    has_cache_key: bool = False  # clients may name the conversation for the prompt cache
    mid_conversation_settings: bool = False  # settings may change within a conversation
    # by canonical type, extras that another protocol of the family has as well
    shared_fields: Mapping[str, frozenset[str]] = {}
    # wire_form tokens with the same meaning in another protocol of the family
    shared_wire_forms: frozenset[str] = frozenset()
    # by canonical type, extras that a protocol of another family, but the same vendor, has as well
    vendor_extras: Mapping[str, Mapping[str, SharedExtra]] = {}
    logprobs: LogprobsLayout | None = None  # its layout of log probabilities, if other protocols can represent them
    computer_use: "ComputerUseAdapter | None" = None  # its format of computer calls
