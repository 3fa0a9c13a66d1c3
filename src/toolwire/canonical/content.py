"""Messages and their parts: text, media, reasoning, tool calls and tool results."""

from typing import Literal

from toolwire.canonical.computer import Action, SafetyCheck
from toolwire.canonical.node import Node, Raw
from toolwire.canonical.tools import CacheMark, HostedKind, OutputFormat, Thinking, Tool, ToolRef

Executor = Literal["client", "server"]
"""The side that runs a call: the client that receives the response, or the provider's server."""


class Signature(Node, frozen=True, tag=True):
    """An opaque value that proves a part's origin to the provider that issued it.

    Anthropic and Google call it a signature, OpenAI `encrypted_content`. It is only ever sent back to its issuer.
    """

    issuer: str
    data: str
    kind: Literal["signature", "encrypted"]
    realm: str | None = None  # the issuer's deployment or account, where signatures are only valid within one
    model: str | None = None


class Inline(Node, frozen=True, tag=True):
    """Media bytes inside the message, as base64 text."""

    data: str


class Url(Node, frozen=True, tag=True):
    """Media that the provider fetches from a URL."""

    url: str


class FileId(Node, frozen=True, tag=True):
    """A file stored at one provider; other providers cannot read it."""

    issuer: str
    id: str


class PlainText(Node, frozen=True, tag=True):
    """The text of a document."""

    text: str


class Nested(Node, frozen=True, tag=True):
    """A document made of content parts."""

    parts: tuple["Part", ...]


Source = Inline | Url | FileId | PlainText | Nested


class Citation(Node, frozen=True, tag=True):
    """A source that a text cites."""

    url: str | None = None
    title: str | None = None
    quote: str | None = None
    start: int | None = None  # in characters of the text that carries the citation
    end: int | None = None


class Text(Node, frozen=True, tag=True):
    """A piece of text, possibly with citations."""

    text: str
    annotations: tuple[Citation, ...] | None = None
    signature: Signature | None = None
    cache: CacheMark | None = None
    id: str | None = None


class Media(Node, frozen=True, tag=True):
    """An image, audio clip, video or document."""

    kind: Literal["image", "audio", "video", "document"]
    source: Source
    media_type: str | None = None
    name: str | None = None
    detail: str | None = None  # requested image resolution, in the vendor's terms
    signature: Signature | None = None
    cache: CacheMark | None = None


class Data(Node, frozen=True, tag=True):
    """A structured tool result that is not text."""

    json: Raw


class ReasoningText(Node, frozen=True, tag=True):
    """A passage of reasoning, either in full or summarized."""

    kind: Literal["full", "summary"]
    text: str


class Reasoning(Node, frozen=True, tag=True):
    """The model's reasoning.

    A part without visible text still carries the signature that the provider needs in the next turn, so it must be
    kept.
    """

    content: tuple[ReasoningText | Media, ...] = ()
    hidden: Literal["omitted", "redacted"] | None = None
    signature: Signature | None = None
    id: str | None = None


class Caller(Node, frozen=True, tag=True):
    """The origin of a tool call: the model itself, or a program that it wrote."""

    kind: str
    id: str | None = None


class HostedUse(Node, frozen=True, tag=True):
    """The vendor-neutral input or output of a hosted tool, for a call, a result, or an item that is both."""

    kind: HostedKind
    id: str | None = None
    queries: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    code: str | None = None
    pages: tuple[Citation, ...] = ()
    output: str | None = None
    failed: bool = False  # only set on items that are both call and result; a result has its own status


class ComputerUse(Node, frozen=True, tag=True):
    """The computer actions that a tool call requests."""

    actions: tuple[Action, ...]
    places: tuple[str, ...] = ()  # JSON pointers below the call's arguments, one for each action
    others: tuple[str, ...] = ()  # JSON pointers to arguments that have no vendor-neutral form
    checks: tuple[SafetyCheck, ...] = ()  # pending: a person must acknowledge them first
    checked: tuple[str, ...] = ()  # JSON pointers to where the call states them


class ScreenObservation(Node, frozen=True, tag=True):
    """State of the screen that a tool result reports besides its screenshot."""

    url: str | None = None
    acknowledged: bool = False  # a person acknowledged the pending safety checks
    checks: tuple[str, ...] = ()  # ids of the acknowledged checks; empty means all of them
    parts: tuple[int, ...] = ()  # indexes of content parts that only restate this observation


class ToolCall(Node, frozen=True, tag=True):
    """A model's request to run a tool."""

    id: str | None
    name: str
    arguments: str  # the model's exact text, which may be invalid JSON
    shape: Literal["json", "freeform"] = "json"
    namespace: str | None = None
    executor: Executor = "client"
    native: str | None = None  # the vendor's own call type that the client must answer (shell, apply_patch, computer)
    toolset: str | None = None
    caller: Caller | None = None
    complete: bool = True  # False if the call was cut off
    asynchronous: bool | None = None
    signature: Signature | None = None
    cache: CacheMark | None = None
    use: HostedUse | None = None
    screen: ComputerUse | None = None


class ToolResult(Node, frozen=True, tag=True):
    """The outcome of a tool call."""

    call_id: str | None
    content: "tuple[Part, ...] | None" = None  # None (absent) differs from empty
    name: str | None = None
    namespace: str | None = None
    status: Literal["ok", "error", "denied"] = "ok"
    executor: Executor = "client"
    native: str | None = None
    toolset: str | None = None
    caller: Caller | None = None
    signature: Signature | None = None
    cache: CacheMark | None = None
    use: HostedUse | None = None
    screen: ScreenObservation | None = None


class Refusal(Node, frozen=True, tag=True):
    """The model's explanation of why it declines to answer."""

    text: str


class ItemRef(Node, frozen=True, tag=True):
    """A reference, by id, to an item that the provider stored."""

    id: str


class OpaquePart(Node, frozen=True, tag=True):
    """A part that only its own protocol understands, kept as raw JSON."""

    protocol: str
    body: Raw
    kind: str = ""
    pair: str | None = None  # links the two halves of one item
    gist: str | None = None  # text that stands in for the part in other protocols
    media: Media | None = None  # a file that the tool produced, for clients that can show it
    use: HostedUse | None = None
    called: tuple[ToolCall | ToolResult, ...] = ()  # tool calls and results of an MCP server that the part reports


class ToolChange(Node, frozen=True, tag=True):
    """Tools that become available or unavailable from this point of the conversation."""

    add: tuple[Tool | ToolRef, ...] = ()
    remove: tuple[ToolRef, ...] = ()


class SettingChange(Node, frozen=True, tag=True):
    """Settings that apply from this point of the conversation."""

    thinking: Thinking | None = None
    output: OutputFormat | None = None


Part = (
    Text
    | Media
    | Data
    | Reasoning
    | ToolCall
    | ToolResult
    | ToolRef
    | ToolChange
    | SettingChange
    | Refusal
    | ItemRef
    | OpaquePart
)

Role = Literal["system", "developer", "user", "assistant"]


class Message(Node, frozen=True):
    """One message, item, step or content object of the wire. Decoders never reorder or merge them."""

    role: Role
    parts: tuple[Part, ...]
    id: str | None = None
    name: str | None = None
    status: str | None = None
    phase: str | None = None
    clear_at: str | None = None  # when the provider may discard the message
