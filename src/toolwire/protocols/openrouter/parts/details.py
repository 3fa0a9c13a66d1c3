"""`reasoning_details`: what proves each vendor's reasoning, to canonical reasoning and back.

An entry is `reasoning.text` (perhaps with a `signature`), `reasoning.summary`, `reasoning.encrypted` (`data`) or
`reasoning.server_tool_call`, which is no reasoning but what OpenRouter ran meanwhile, and
`format` says whose it is. Each entry becomes one part, so that each has a place of its own. The whole list also stays
in the extras of its message, as it came: so Chat writes it back, too. `told` marks such extras: they are no loss where
what they say arrives as something canonical.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.canonical.content import Foreign, Message, Part, Reasoning, ReasoningText, Seal
from toolwire.canonical.errors import DecodeError
from toolwire.codec.fields import Reader, Wire
from toolwire.codec.hosted import json_of, use_of
from toolwire.codec.kept import as_object, known, note_extras
from toolwire.protocols.openai_chat.parts.content import kept
from toolwire.protocols.openai_chat.parts.reasoning import DETAILS, REASONING
from toolwire.protocols.openai_chat.wire import FAMILY

FIELD = "reasoning_details"
ENTRY = "openai-chat:reasoning:entry"
PLACE = f"/{FIELD}/"

FORMATS = {
    "anthropic": "anthropic-claude-v1",
    "openai": "openai-responses-v1",
    "google": "google-gemini-v1",
    # What another cloud or vendor encrypts, only it can read.
    "azure-openai": "azure-openai-responses-v1",
    "bedrock-openai": "bedrock-openai-responses-v1",
    "bedrock-xai": "bedrock-xai-responses-v1",
    "xai": "xai-responses-v1",
    "meta": "meta-responses-v1",
}
ISSUERS = {word: issuer for issuer, word in FORMATS.items()}
UNNAMED = "openrouter"
"""The issuer of what OpenRouter does not name one for: it goes back there, and nowhere else."""

_UNKNOWN = "unknown"
_RAN = "reasoning.server_tool_call"
_KINDS = ("web_search", "web_fetch")
SERVER = "openrouter:"
_JOINTS = ("", "\n", "\n\n")


def told(*names: str) -> tuple[str, ...]:
    return tuple(f"{FAMILY}:told:{name}" for name in names)


class EntryShape(Wire):
    type: str
    text: str | UnsetType | None = UNSET
    signature: str | UnsetType | None = UNSET
    summary: str | UnsetType | None = UNSET
    data: str | UnsetType | None = UNSET
    id: str | UnsetType | None = UNSET
    format: str | UnsetType | None = UNSET
    index: int | UnsetType | None = UNSET


_read_entries = Reader[list[EntryShape]](list[EntryShape], FAMILY).read
_text = msgspec.json.Decoder(str).decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode
_SAID = {
    "reasoning.text": ("text", "signature"),
    "reasoning.summary": ("summary",),
    "reasoning.encrypted": ("data",),
}
_FIELDS = ("text", "signature", "summary", "data")


# ---- decode


def read_entries(raw: Raw) -> list[EntryShape]:
    """The entries; none if this is no list of them, which is then kept like any unknown field."""
    try:
        return _read_entries(raw)
    except DecodeError:
        return []


def decode_entry(shape: EntryShape, position: int) -> Reasoning | Foreign:
    if shape.type == _RAN and (ran := _decode_run(shape, position)) is not None:
        return ran
    content: tuple[ReasoningText, ...] = ()
    seal: Seal | None = None
    hidden: Any = None
    match shape.type:
        case "reasoning.text":
            if shape.text:
                content = (ReasoningText(kind="full", text=shape.text, at="/text"),)
            seal = sealed(shape)
        case "reasoning.summary":
            if shape.summary:
                content = (ReasoningText(kind="summary", text=shape.summary, at="/summary"),)
        case "reasoning.encrypted":
            seal = sealed(shape)
            hidden = "redacted" if seal is not None and seal.issuer == "anthropic" else "omitted"
        case _:
            pass
    extras = unsaid(shape, position)
    return Reasoning(
        content=content,
        hidden=hidden,
        seal=seal,
        id=known(shape.id) if names_item(shape) else None,
        extras={FAMILY: extras} if extras else None,
        form=(DETAILS, ENTRY),
        at=f"{PLACE}{position}",
    )


def _decode_run(shape: EntryShape, position: int) -> Foreign | None:
    """What OpenRouter's own tools did while the model thought: a call and its result in one entry."""
    members = whole(shape)
    said = [members.get(name, "") for name in ("tool_name", "arguments", "result")]
    if not said[0] or not all(isinstance(one, str) for one in said):
        return None
    name, arguments, result = map(str, said)
    kind: Any = name.removeprefix(SERVER)
    use = None
    if kind in _KINDS:
        id = members.get("tool_call_id")
        asked = use_of(kind, json_of(arguments), id=id if isinstance(id, str) else None)
        found = json_of(result)
        told_of = use_of(kind, result if found is None else found)
        use = msgspec.structs.replace(asked, pages=told_of.pages, output=told_of.output or result)
    gist = f"[{name} was called with {arguments}]\n[{name}: {result}]"
    body = Raw(msgspec.json.encode(members))
    return Foreign(
        protocol="openrouter", kind=_RAN, body=body, gist=gist, use=use, form=(DETAILS, ENTRY), at=f"{PLACE}{position}"
    )


def whole(shape: EntryShape) -> dict[str, Any]:
    return as_object(shape) | {name: json_of(raw) for name, raw in (shape.unknown or {}).items()}


def sealed(shape: EntryShape) -> Seal | None:
    issuer = ISSUERS.get(known(shape.format) or "", UNNAMED)
    if shape.type == "reasoning.encrypted" and shape.data:
        return Seal(issuer=issuer, data=shape.data, kind="encrypted", at="/data")
    if shape.type == "reasoning.text" and shape.signature:
        return Seal(issuer=issuer, data=shape.signature, kind="signature", at="/signature")
    return None


def names_item(shape: EntryShape) -> bool:
    """Whether the id is the vendor's own, without which it would not know what it encrypted."""
    return shape.type == "reasoning.encrypted" and bool(shape.data)


def unsaid(shape: EntryShape, position: int) -> dict[str, Raw]:
    """What of an entry a canonical part does not say."""
    found = dict((kept(shape).get("extras") or {}).get(FAMILY, {}))
    said = _SAID.get(shape.type)
    odd = [name for name in _FIELDS if getattr(shape, name) and (said is None or name not in said)]
    if said is None:
        odd.append("type")
    if known(shape.format) and shape.format not in ISSUERS and shape.format != _UNKNOWN:
        odd.append("format")
    if shape.id and not names_item(shape):
        odd.append("id")
    if isinstance(shape.index, int) and not 0 <= shape.index <= position:
        odd.append("index")
    found.update((name, Raw(msgspec.json.encode(getattr(shape, name)))) for name in odd)
    if found:
        note_extras()
    return found


def lift_message(message: Message) -> Message:
    """A message as Chat reads it, with a part for each entry in place of the plain text that repeats them."""
    own = (message.extras or {}).get(FAMILY)
    if own is None or FIELD not in own or not (shapes := read_entries(own[FIELD])):
        return message
    entries: list[Part] = [decode_entry(shape, position) for position, shape in enumerate(shapes)]
    extras, form = dict(own), told(FIELD)
    parts = list(message.parts)
    first = parts[0] if parts else None
    if isinstance(first, Reasoning) and any(token.startswith(REASONING) for token in first.form):
        name = next(token.removeprefix(REASONING) for token in first.form if token.startswith(REASONING))
        if name != "thinking":
            parts.pop(0)
        if DETAILS not in first.form and name != "thinking":
            text = "".join(block.text for block in first.content if isinstance(block, ReasoningText))
            extras[name] = Raw(msgspec.json.encode(text))
    for name in ("reasoning", "reasoning_content"):
        if name in extras and repeats(_plain(extras[name]), entries):
            form += told(name)
    return msgspec.structs.replace(
        message,
        parts=(*entries, *parts),
        extras={**(message.extras or {}), FAMILY: extras},
        form=message.form + form,
    )


def _plain(raw: Raw) -> str | None:
    try:
        return _text(raw)
    except msgspec.DecodeError:
        return None


def repeats(text: str | None, parts: Iterable[Part]) -> bool:
    """Whether a text only says again what the entries say."""
    texts = [
        block.text
        for part in parts
        if isinstance(part, Reasoning)
        for block in part.content
        if isinstance(block, ReasoningText)
    ]
    return text is not None and (not text or any(joint.join(texts) == text for joint in _JOINTS))


# ---- encode


def encode_entries(part: Reasoning, id: str | None, index: int) -> list[dict[str, Any]]:
    """The entries that say and prove a reasoning; `id` is what its vendor calls it."""
    texts = [block for block in part.content if isinstance(block, ReasoningText)]
    seal = part.seal
    if seal is None or not can_prove(seal):
        return _numbered([_said(block.kind, block.text) for block in texts], index)
    word = FORMATS.get(seal.issuer, _UNKNOWN)
    proof: dict[str, Any]
    if seal.kind == "signature":
        joined = "".join(block.text for block in texts)
        proof = {"type": "reasoning.text", **({"text": joined} if joined else {}), "signature": seal.data}
        entries = [proof]
    else:
        proof = {"type": "reasoning.encrypted", "data": seal.data, **({"id": id} if id is not None else {})}
        entries = [*(_said(block.kind, block.text) for block in texts), proof]
    return _numbered([{**entry, "format": word} for entry in entries], index)


def can_prove(seal: Seal) -> bool:
    return seal.issuer in FORMATS or seal.issuer == UNNAMED


def _said(kind: str, text: str) -> dict[str, Any]:
    return {"type": f"reasoning.{'summary' if kind == 'summary' else 'text'}", field_of(kind): text}


def field_of(kind: str) -> str:
    return "summary" if kind == "summary" else "text"


def _numbered(entries: list[dict[str, Any]], index: int) -> list[dict[str, Any]]:
    return [{**entry, "index": index + place} for place, entry in enumerate(entries)]


def is_run(part: Part) -> bool:
    return isinstance(part, Foreign) and ENTRY in part.form


def as_it_came(message: Message) -> Message:
    """A message as it goes home: with the list as it came, unless what it proved has been changed since."""
    if message.extras is None or told(FIELD)[0] not in message.form:
        return message
    raw = message.extras[FAMILY][FIELD]
    entries = [part for part in message.parts if isinstance(part, Reasoning | Foreign) and ENTRY in part.form]
    before = [decode_entry(shape, position) for position, shape in enumerate(read_entries(raw))]
    parts = tuple([part for part in message.parts if not is_run(part)])
    if entries == before:
        return msgspec.structs.replace(message, parts=parts)
    own = _decode_list(raw)
    made: list[Any] = []
    for part in entries:
        if part in before:
            made.append(own[before.index(part)])
        elif isinstance(part, Reasoning):
            made += encode_entries(part, part.id, len(made))
    extras = {**message.extras[FAMILY], FIELD: Raw(msgspec.json.encode(made))}
    if not made:
        del extras[FIELD]
    return msgspec.structs.replace(message, parts=parts, extras={**message.extras, FAMILY: extras})
