"""What a message is made of: text, media, reasoning, calls and results."""

from typing import Literal

from toolwire.canonical.computer import Action, SafetyCheck
from toolwire.canonical.node import Node, Raw
from toolwire.canonical.tools import CacheMark, HostedKind, OutputFormat, Thinking, Tool, ToolRef

Executor = Literal["client", "server"]
"""Who runs a call: the one who reads the answer, or the provider that gave it."""


class Signature(Node, frozen=True, tag=True):
    """An opaque proof of continuity. It goes back only to its issuer."""

    issuer: str
    data: str
    kind: Literal["signature", "encrypted"]
    realm: str | None = None
    model: str | None = None


class Inline(Node, frozen=True, tag=True):
    """Bytes in the message itself, as base64 text."""

    data: str


class Url(Node, frozen=True, tag=True):
    url: str


class FileId(Node, frozen=True, tag=True):
    """A file that one provider holds; no other can read it."""

    issuer: str
    id: str


class PlainText(Node, frozen=True, tag=True):
    text: str


class Nested(Node, frozen=True, tag=True):
    parts: tuple["Part", ...]


Source = Inline | Url | FileId | PlainText | Nested


class Citation(Node, frozen=True, tag=True):
    """Where a text came from. `start` and `end` count characters of the text that carries it."""

    url: str | None = None
    title: str | None = None
    quote: str | None = None
    start: int | None = None
    end: int | None = None


class Text(Node, frozen=True, tag=True):
    text: str
    annotations: tuple[Citation, ...] | None = None
    signature: Signature | None = None
    cache: CacheMark | None = None
    id: str | None = None


class Media(Node, frozen=True, tag=True):
    kind: Literal["image", "audio", "video", "document"]
    source: Source
    media_type: str | None = None
    name: str | None = None
    detail: str | None = None
    signature: Signature | None = None
    cache: CacheMark | None = None


class Data(Node, frozen=True, tag=True):
    """A structured result that is not text."""

    json: Raw


class ReasoningText(Node, frozen=True, tag=True):
    kind: Literal["full", "summary"]
    text: str


class Reasoning(Node, frozen=True, tag=True):
    """Thinking, perhaps with nothing to read: an empty one still proves continuity and must be kept."""

    content: tuple[ReasoningText | Media, ...] = ()
    hidden: Literal["omitted", "redacted"] | None = None
    signature: Signature | None = None
    id: str | None = None


class Caller(Node, frozen=True, tag=True):
    """Who asked for a call: the model itself, or a program that it wrote."""

    kind: str
    id: str | None = None


class HostedUse(Node, frozen=True, tag=True):
    """What a hosted tool was asked, or what it found, in common words: of a call, a result, or an item that is both,
    which alone says here that it failed."""

    kind: HostedKind
    id: str | None = None
    queries: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    code: str | None = None
    pages: tuple[Citation, ...] = ()
    output: str | None = None
    failed: bool = False


class ComputerUse(Node, frozen=True, tag=True):
    """What a call does with a screen. `places` are pointers below its arguments, one for each action; `others` those to
    what has no common word. `checks` are pending: a person must agree first; `checked` is where the call says so."""

    actions: tuple[Action, ...]
    places: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    checks: tuple[SafetyCheck, ...] = ()
    checked: tuple[str, ...] = ()


class ScreenObservation(Node, frozen=True, tag=True):
    """What a result says of a screen besides its picture, and which parts of its content say only this. `acknowledged`:
    a person agreed to what was pending; to these checks, by their ids, or to all if there are none."""

    url: str | None = None
    acknowledged: bool = False
    checks: tuple[str, ...] = ()
    parts: tuple[int, ...] = ()


class ToolCall(Node, frozen=True, tag=True):
    """A model's request to run a tool. `arguments` is the text it wrote, exactly, and may be invalid JSON.

    `native` names a vendor's own kind of call that the client must answer (shell, apply_patch, computer).
    """

    id: str | None
    name: str
    arguments: str
    shape: Literal["json", "freeform"] = "json"
    namespace: str | None = None
    executor: Executor = "client"
    native: str | None = None
    toolset: str | None = None
    caller: Caller | None = None
    complete: bool = True
    asynchronous: bool | None = None
    signature: Signature | None = None
    cache: CacheMark | None = None
    use: HostedUse | None = None
    screen: ComputerUse | None = None


class ToolResult(Node, frozen=True, tag=True):
    """What came of a call. `content` absent is not the same as empty."""

    call_id: str | None
    content: "tuple[Part, ...] | None" = None
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
    text: str


class ItemRef(Node, frozen=True, tag=True):
    """Something the provider stored, by id."""

    id: str


class OpaquePart(Node, frozen=True, tag=True):
    """A part that only its own protocol understands. `pair` keeps two halves together; `gist` is what others get, or
    where a client can be shown them: the `media` that a tool made, and what of an MCP server was `called`."""

    protocol: str
    body: Raw
    kind: str = ""
    pair: str | None = None
    gist: str | None = None
    media: Media | None = None
    use: HostedUse | None = None
    called: tuple[ToolCall | ToolResult, ...] = ()


class ToolChange(Node, frozen=True, tag=True):
    """From here on these tools are there, or gone."""

    add: tuple[Tool | ToolRef, ...] = ()
    remove: tuple[ToolRef, ...] = ()


class SettingChange(Node, frozen=True, tag=True):
    """From here on these settings hold."""

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
    """One wire message, item, step or content. Decoders never move or merge."""

    role: Role
    parts: tuple[Part, ...]
    id: str | None = None
    name: str | None = None
    status: str | None = None
    phase: str | None = None
    clear_at: str | None = None
