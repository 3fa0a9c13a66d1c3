"""`reasoning_details`: what proves each vendor's reasoning, to canonical reasoning and back.

An entry is `reasoning.text` (perhaps with a `signature`), `reasoning.summary`, `reasoning.encrypted` (`data`) or
`reasoning.server_tool_call`, which is no reasoning but what OpenRouter ran meanwhile, and
`format` says whose it is. Each entry becomes one part, so that each has a place of its own. The whole list also stays
in the extras of its message, as it came: so Chat writes it back, too. `told` marks such extras: they are no loss where
what they say arrives as something canonical.

`images` of an assistant's message: what its model drew, to canonical media and back. The list also stays in the
extras of its message, as it came, and is told by them at home.
"""

from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import (
    Inline,
    Media,
    Message,
    OpaquePart,
    Part,
    Reasoning,
    ReasoningText,
    Signature,
    Text,
    Url,
)
from toolwire.canonical.errors import DecodeError
from toolwire.codec.encoding.hosted_tools import decode_hosted_use, parse_json
from toolwire.codec.encoding.media import data_url, source_from_url
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.codec.wire.extras import as_dict, mark_extras_seen, unset_to_none
from toolwire.codec.wire.reader import JSON_ERRORS, Reader, WireObject
from toolwire.protocols.openai_chat.parts.content import DETAILS_FORM, REASONING_FORM, collect_chat_extras
from toolwire.protocols.openai_chat.wire import FAMILY

DETAILS_FIELD = "reasoning_details"
ENTRY_FORM = "openai-chat:reasoning:entry"
DETAILS_POINTER = f"/{DETAILS_FIELD}/"

ENTRY_FORMATS = {
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
FORMAT_ISSUERS = {word: issuer for issuer, word in ENTRY_FORMATS.items()}
DEFAULT_ISSUER = "openrouter"
"""The issuer of what OpenRouter does not name one for: it goes back there, and nowhere else."""

_UNKNOWN_FORMAT = "unknown"
_SERVER_TOOL_ENTRY = "reasoning.server_tool_call"
_SERVER_TOOL_KINDS = ("web_search", "web_fetch")
SERVER_TOOL_PREFIX = "openrouter:"
_TEXT_SEPARATORS = ("", "\n", "\n\n")


def represented_tokens(*names: str) -> tuple[str, ...]:
    return tuple(f"{FAMILY}:canonical:{name}" for name in names)


class EntryShape(WireObject):
    type: str
    text: str | UnsetType | None = UNSET
    signature: str | UnsetType | None = UNSET
    summary: str | UnsetType | None = UNSET
    data: str | UnsetType | None = UNSET
    id: str | UnsetType | None = UNSET
    format: str | UnsetType | None = UNSET
    index: int | UnsetType | None = UNSET


_read_entries = Reader[list[EntryShape]](list[EntryShape], FAMILY).read
_decode_string = msgspec.json.Decoder(str).decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode
_ENTRY_FIELDS = {
    "reasoning.text": ("text", "signature"),
    "reasoning.summary": ("summary",),
    "reasoning.encrypted": ("data",),
}
_CONTENT_FIELDS = ("text", "signature", "summary", "data")

# ---- decode


def read_entries(raw: Raw) -> list[EntryShape]:
    """The entries; none if this is no list of them, which is then kept like any unknown field."""
    try:
        return _read_entries(raw)
    except DecodeError:
        return []


def decode_entry(shape: EntryShape, position: int) -> Reasoning | OpaquePart:
    if shape.type == _SERVER_TOOL_ENTRY and (ran := _decode_server_tool(shape, position)) is not None:
        return ran
    content: tuple[ReasoningText, ...] = ()
    seal: Signature | None = None
    hidden: Any = None
    match shape.type:
        case "reasoning.text":
            if shape.text:
                content = (ReasoningText(kind="full", text=shape.text, at="/text"),)
            seal = decode_signature(shape)
        case "reasoning.summary":
            if shape.summary:
                content = (ReasoningText(kind="summary", text=shape.summary, at="/summary"),)
        case "reasoning.encrypted":
            seal = decode_signature(shape)
            hidden = "redacted" if seal is not None and seal.issuer == "anthropic" else "omitted"
        case _:
            pass
    extras = entry_extras(shape, position)
    return Reasoning(
        content=content,
        hidden=hidden,
        signature=seal,
        id=unset_to_none(shape.id) if has_vendor_id(shape) else None,
        extras={FAMILY: extras} if extras else None,
        wire_form=(DETAILS_FORM, ENTRY_FORM),
        at=f"{DETAILS_POINTER}{position}",
    )


def _decode_server_tool(shape: EntryShape, position: int) -> OpaquePart | None:
    """What OpenRouter's own tools did while the model thought: a call and its result in one entry."""
    members = with_unknown_fields(shape)
    said = [members.get(name, "") for name in ("tool_name", "arguments", "result")]
    if not said[0] or not all(isinstance(one, str) for one in said):
        return None
    name, arguments, result = map(str, said)
    kind: Any = name.removeprefix(SERVER_TOOL_PREFIX)
    use = None
    if kind in _SERVER_TOOL_KINDS:
        id = members.get("tool_call_id")
        asked = decode_hosted_use(kind, parse_json(arguments), id=id if isinstance(id, str) else None)
        found = parse_json(result)
        told_of = decode_hosted_use(kind, result if found is None else found)
        use = msgspec.structs.replace(asked, pages=told_of.pages, output=told_of.output or result)
    gist = f"[{name} was called with {arguments}]\n[{name}: {result}]"
    body = Raw(msgspec.json.encode(members))
    return OpaquePart(
        protocol="openrouter",
        kind=_SERVER_TOOL_ENTRY,
        body=body,
        gist=gist,
        use=use,
        wire_form=(DETAILS_FORM, ENTRY_FORM),
        at=f"{DETAILS_POINTER}{position}",
    )


def with_unknown_fields(shape: EntryShape) -> dict[str, Any]:
    return as_dict(shape) | {name: parse_json(raw) for name, raw in (shape.unknown or {}).items()}


def decode_signature(shape: EntryShape) -> Signature | None:
    issuer = FORMAT_ISSUERS.get(unset_to_none(shape.format) or "", DEFAULT_ISSUER)
    if shape.type == "reasoning.encrypted" and shape.data:
        return Signature(issuer=issuer, data=shape.data, kind="encrypted", at="/data")
    if shape.type == "reasoning.text" and shape.signature:
        return Signature(issuer=issuer, data=shape.signature, kind="signature", at="/signature")
    return None


def has_vendor_id(shape: EntryShape) -> bool:
    """Whether the id is the vendor's own, without which it would not know what it encrypted."""
    return shape.type == "reasoning.encrypted" and bool(shape.data)


def entry_extras(shape: EntryShape, position: int) -> dict[str, Raw]:
    """What of an entry a canonical part does not say."""
    found = dict((collect_chat_extras(shape).get("extras") or {}).get(FAMILY, {}))
    said = _ENTRY_FIELDS.get(shape.type)
    odd = [name for name in _CONTENT_FIELDS if getattr(shape, name) and (said is None or name not in said)]
    if said is None:
        odd.append("type")
    if unset_to_none(shape.format) and shape.format not in FORMAT_ISSUERS and shape.format != _UNKNOWN_FORMAT:
        odd.append("format")
    if shape.id and not has_vendor_id(shape):
        odd.append("id")
    if isinstance(shape.index, int) and not 0 <= shape.index <= position:
        odd.append("index")
    found.update((name, Raw(msgspec.json.encode(getattr(shape, name)))) for name in odd)
    if found:
        mark_extras_seen()
    return found


def decode_details(message: Message) -> Message:
    """A message as Chat reads it, with a part for each entry in place of the plain text that repeats them."""
    own = (message.extras or {}).get(FAMILY)
    if own is None or DETAILS_FIELD not in own or not (shapes := read_entries(own[DETAILS_FIELD])):
        return message
    entries: list[Part] = [decode_entry(shape, position) for position, shape in enumerate(shapes)]
    extras, form = dict(own), represented_tokens(DETAILS_FIELD)
    parts = list(message.parts)
    first = parts[0] if parts else None
    if isinstance(first, Reasoning) and any(token.startswith(REASONING_FORM) for token in first.wire_form):
        name = next(token.removeprefix(REASONING_FORM) for token in first.wire_form if token.startswith(REASONING_FORM))
        if name != "thinking":
            parts.pop(0)
        if DETAILS_FORM not in first.wire_form and name != "thinking":
            text = "".join(block.text for block in first.content if isinstance(block, ReasoningText))
            extras[name] = Raw(msgspec.json.encode(text))
    for name in ("reasoning", "reasoning_content"):
        if name in extras and is_repeated_text(_text_or_none(extras[name]), entries):
            form += represented_tokens(name)
    return msgspec.structs.replace(
        message,
        parts=(*entries, *parts),
        extras={**(message.extras or {}), FAMILY: extras},
        wire_form=message.wire_form + form,
    )


def _text_or_none(raw: Raw) -> str | None:
    try:
        return _decode_string(raw)
    except msgspec.DecodeError:
        return None


def is_repeated_text(text: str | None, parts: Iterable[Part]) -> bool:
    """Whether a text only says again what the entries say."""
    texts = [
        block.text
        for part in parts
        if isinstance(part, Reasoning)
        for block in part.content
        if isinstance(block, ReasoningText)
    ]
    return text is not None and (not text or any(joint.join(texts) == text for joint in _TEXT_SEPARATORS))


# ---- encode


def encode_entries(part: Reasoning, id: str | None, index: int) -> list[dict[str, Any]]:
    """The entries that say and prove a reasoning; `id` is what its vendor calls it."""
    texts = [block for block in part.content if isinstance(block, ReasoningText)]
    seal = part.signature
    if seal is None or not is_known_issuer(seal):
        return _number_entries([_encode_text_entry(block.kind, block.text) for block in texts], index)
    word = ENTRY_FORMATS.get(seal.issuer, _UNKNOWN_FORMAT)
    proof: dict[str, Any]
    if seal.kind == "signature":
        joined = "".join(block.text for block in texts)
        proof = {"type": "reasoning.text", **({"text": joined} if joined else {}), "signature": seal.data}
        entries = [proof]
    else:
        proof = {"type": "reasoning.encrypted", "data": seal.data, **({"id": id} if id is not None else {})}
        entries = [*(_encode_text_entry(block.kind, block.text) for block in texts), proof]
    return _number_entries([{**entry, "format": word} for entry in entries], index)


def is_known_issuer(signature: Signature) -> bool:
    return signature.issuer in ENTRY_FORMATS or signature.issuer == DEFAULT_ISSUER


def _encode_text_entry(kind: str, text: str) -> dict[str, Any]:
    return {"type": f"reasoning.{'summary' if kind == 'summary' else 'text'}", entry_field(kind): text}


def entry_field(kind: str) -> str:
    return "summary" if kind == "summary" else "text"


def _number_entries(entries: list[dict[str, Any]], index: int) -> list[dict[str, Any]]:
    return [{**entry, "index": index + place} for place, entry in enumerate(entries)]


def is_server_tool_entry(part: Part) -> bool:
    return isinstance(part, OpaquePart) and ENTRY_FORM in part.wire_form


def restore_details(message: Message) -> Message:
    """A message as it goes home: with the list as it came, unless what it proved has been changed since."""
    if message.extras is None or represented_tokens(DETAILS_FIELD)[0] not in message.wire_form:
        return message
    raw = message.extras[FAMILY][DETAILS_FIELD]
    entries = [
        part for part in message.parts if isinstance(part, Reasoning | OpaquePart) and ENTRY_FORM in part.wire_form
    ]
    before = [decode_entry(shape, position) for position, shape in enumerate(read_entries(raw))]
    parts = tuple([part for part in message.parts if not is_server_tool_entry(part)])
    if entries == before:
        return msgspec.structs.replace(message, parts=parts)
    own = _decode_list(raw)
    made: list[Any] = []
    for part in entries:
        if part in before:
            made.append(own[before.index(part)])
        elif isinstance(part, Reasoning):
            made += encode_entries(part, part.id, len(made))
    extras = {**message.extras[FAMILY], DETAILS_FIELD: Raw(msgspec.json.encode(made))}
    if not made:
        del extras[DETAILS_FIELD]
    return msgspec.structs.replace(message, parts=parts, extras={**message.extras, FAMILY: extras})


IMAGES = "images"
IMAGE_FORM = "openai-chat:drawn"
_IMAGE_NAMES = tuple(f"{FAMILY}:name:{field}=image_url/url" for field in ("source", "media_type"))


class _ImageUrl(Struct, forbid_unknown_fields=True):
    url: str


class _Image(Struct, forbid_unknown_fields=True):
    image_url: _ImageUrl
    type: Literal["image_url"] = "image_url"
    index: int | UnsetType = UNSET


_decode_image_list = msgspec.json.Decoder(list[_Image]).decode


def decode_images(raw: Raw) -> tuple[Media, ...]:
    """The pictures; none if more is said of them than where they are."""
    try:
        images = _decode_image_list(raw)
    except JSON_ERRORS:
        return ()
    if any(image.index not in (UNSET, place) for place, image in enumerate(images)):
        return ()
    return tuple([_decode_image(image.image_url.url, place) for place, image in enumerate(images)])


def _decode_image(url: str, index: int) -> Media:
    source, media_type = source_from_url(url)
    return Media(
        kind="image",
        source=source,
        media_type=media_type,
        wire_form=(IMAGE_FORM, *_IMAGE_NAMES),
        at=f"/{IMAGES}/{index}",
    )


def decode_message_images(message: Message) -> Message:
    """A message with a part for each picture, after what is said."""
    own = (message.extras or {}).get(FAMILY, {})
    if IMAGES not in own or not (images := decode_images(own[IMAGES])):
        return message
    return replace(message, parts=(*message.parts, *images), wire_form=message.wire_form + represented_tokens(IMAGES))


def remove_image_parts(message: Message) -> Message:
    if represented_tokens(IMAGES)[0] not in message.wire_form:
        return message
    return replace(message, parts=tuple([part for part in message.parts if IMAGE_FORM not in part.wire_form]))


def encode_image(part: Part, index: int) -> dict[str, Any] | None:
    """A picture in an answer; None if it is none, or none that a client could look at."""
    if not isinstance(part, Media) or part.kind != "image":
        return None
    match part.source:
        case Inline() as source:
            url = data_url(source.data, part.media_type)
        case Url() as source:
            url = source.url
        case _:
            return None
    return {"type": "image_url", "image_url": {"url": url}, "index": index}


def replace_image(part: Part) -> Part:
    """What Chat's encoder gets in place of a picture: it would report it as lost."""
    if encode_image(part, 0) is None:
        return part
    return Text(text="", extras=part.extras, wire_form=part.wire_form, at=part.at)


def report_image(part: Part, path: SourcePath, report: LossReport) -> None:
    if not isinstance(part, Media) or encode_image(part, 0) is None:
        return
    for field in ("name", "detail"):
        if getattr(part, field) is not None:
            report.dropped(path, field)
    if isinstance(part.source, Url) and part.media_type is not None:
        report.dropped(path, "media_type")
    if part.signature is not None:
        report.dropped((*path, "signature"), "", "the target has no place for a proof on a picture")
