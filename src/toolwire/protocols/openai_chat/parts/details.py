"""Decode and encode `reasoning_details` and `images` of assistant messages, as OpenRouter and other servers send them.

An entry of `reasoning_details` is `reasoning.text` (perhaps with a `signature`), `reasoning.summary`,
`reasoning.encrypted` (`data`) or `reasoning.server_tool_call`, a tool that OpenRouter ran meanwhile. `format` names the
issuer. Each entry and each image becomes one part.

Both lists also stay in the extras of the message, from where they are written back. `represented_tokens` marks these
extras: they are not reported as lost where their parts are translated.
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
from toolwire.codec.wire.extras import as_dict, unset_to_none
from toolwire.codec.wire.reader import JSON_ERRORS, Reader, WireObject, decode_elements, decode_string
from toolwire.protocols.openai_chat.parts.content import collect_chat_extras
from toolwire.protocols.openai_chat.wire import FAMILY

DETAILS_FIELD = "reasoning_details"
IMAGES = "images"
EXTENSION_FIELDS = frozenset({DETAILS_FIELD, IMAGES})
REASONING_FORM = "openai-chat:reasoning:"
DETAILS_FORM = "openai-chat:reasoning:details"
ENTRY_FORM = "openai-chat:reasoning:entry"
IMAGE_FORM = "openai-chat:generated_image"
DETAILS_POINTER = f"/{DETAILS_FIELD}/"

ENTRY_FORMATS = {
    "anthropic": "anthropic-claude-v1",
    "openai": "openai-responses-v1",
    "google": "google-gemini-v1",
    # Content encrypted by another cloud or vendor is only readable there.
    "azure-openai": "azure-openai-responses-v1",
    "bedrock-openai": "bedrock-openai-responses-v1",
    "bedrock-xai": "bedrock-xai-responses-v1",
    "xai": "xai-responses-v1",
    "meta": "meta-responses-v1",
}
FORMAT_ISSUERS = {entry_format: issuer for issuer, entry_format in ENTRY_FORMATS.items()}

DEFAULT_ISSUER = "openrouter"
"""The issuer of signatures without a known `format`: they are only valid for OpenRouter."""

_UNKNOWN_FORMAT = "unknown"
_SERVER_TOOL_ENTRY = "reasoning.server_tool_call"
_SERVER_TOOL_KINDS = ("web_search", "web_fetch")
SERVER_TOOL_PREFIX = "openrouter:"
_TEXT_SEPARATORS = ("", "\n", "\n\n")


def represented_tokens(*names: str) -> tuple[str, ...]:
    """Return wire-form tokens which tell that canonical fields represent these extras."""
    return tuple(f"{FAMILY}:canonical:{name}" for name in names)


class EntryShape(WireObject):
    """An entry of `reasoning_details`."""

    type: str
    text: str | UnsetType | None = UNSET
    signature: str | UnsetType | None = UNSET
    summary: str | UnsetType | None = UNSET
    data: str | UnsetType | None = UNSET
    id: str | UnsetType | None = UNSET
    format: str | UnsetType | None = UNSET
    index: int | UnsetType | None = UNSET


_read_entries = Reader[list[EntryShape]](list[EntryShape], FAMILY).read
_ENTRY_FIELDS = {
    "reasoning.text": ("text", "signature"),
    "reasoning.summary": ("summary",),
    "reasoning.encrypted": ("data",),
}
_CONTENT_FIELDS = ("text", "signature", "summary", "data")

# ---- decode


def read_entries(raw: Raw) -> list[EntryShape]:
    """Parse the elements of `reasoning_details`, called entries; an empty list if the value is not valid."""
    try:
        return _read_entries(raw)
    except DecodeError:
        return []


def decode_entry(shape: EntryShape, position: int) -> Reasoning | OpaquePart:
    """Decode an element of `reasoning_details` as reasoning, or as the server tool that it describes."""
    if shape.type == _SERVER_TOOL_ENTRY and (server_tool := _decode_server_tool(shape, position)) is not None:
        return server_tool
    content: tuple[ReasoningText, ...] = ()
    signature: Signature | None = None
    hidden: Any = None
    match shape.type:
        case "reasoning.text":
            if shape.text:
                content = (ReasoningText(kind="full", text=shape.text, at="/text"),)
            signature = decode_signature(shape)
        case "reasoning.summary":
            if shape.summary:
                content = (ReasoningText(kind="summary", text=shape.summary, at="/summary"),)
        case "reasoning.encrypted":
            signature = decode_signature(shape)
            hidden = "redacted" if signature is not None and signature.issuer == "anthropic" else "omitted"
        case _:
            pass
    extras = entry_extras(shape, position)
    return Reasoning(
        content=content,
        hidden=hidden,
        signature=signature,
        id=unset_to_none(shape.id) if has_vendor_id(shape) else None,
        extras={FAMILY: extras} if extras else None,
        wire_form=(DETAILS_FORM, ENTRY_FORM),
        at=f"{DETAILS_POINTER}{position}",
    )


def _decode_server_tool(shape: EntryShape, position: int) -> OpaquePart | None:
    """Decode an entry of `reasoning_details` with call and result of a server tool; None if it has none."""
    members = with_unknown_fields(shape)
    values = [members.get(name, "") for name in ("tool_name", "arguments", "result")]
    if not values[0] or not all(isinstance(value, str) for value in values):
        return None
    name, arguments, result = map(str, values)
    kind: Any = name.removeprefix(SERVER_TOOL_PREFIX)
    use = None
    if kind in _SERVER_TOOL_KINDS:
        id = members.get("tool_call_id")
        call_use = decode_hosted_use(kind, parse_json(arguments), id=id if isinstance(id, str) else None)
        parsed = parse_json(result)
        result_use = decode_hosted_use(kind, result if parsed is None else parsed)
        use = replace(call_use, pages=result_use.pages, output=result_use.output or result)
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
    """Return all fields of an entry of `reasoning_details`, including unknown ones."""
    return as_dict(shape) | {name: parse_json(raw) for name, raw in (shape.unknown or {}).items()}


def decode_signature(shape: EntryShape) -> Signature | None:
    """Decode the signature or encrypted data of an entry of `reasoning_details`; None if it has neither."""
    issuer = FORMAT_ISSUERS.get(unset_to_none(shape.format) or "", DEFAULT_ISSUER)
    if shape.type == "reasoning.encrypted" and shape.data:
        return Signature(issuer=issuer, data=shape.data, kind="encrypted", at="/data")
    if shape.type == "reasoning.text" and shape.signature:
        return Signature(issuer=issuer, data=shape.signature, kind="signature", at="/signature")
    return None


def has_vendor_id(shape: EntryShape) -> bool:
    """Return whether the id of an entry belongs to encrypted data, which is only valid with that id."""
    return shape.type == "reasoning.encrypted" and bool(shape.data)


def entry_extras(shape: EntryShape, position: int) -> dict[str, Raw]:
    """Return, by pointer, the fields of an entry of `reasoning_details` that its part does not represent."""
    extras = dict((collect_chat_extras(shape).get("extras") or {}).get(FAMILY, {}))
    names = _unrepresented_fields(shape, position)
    extras.update((name, Raw(msgspec.json.encode(getattr(shape, name)))) for name in names)
    return extras


def _unrepresented_fields(shape: EntryShape, position: int) -> list[str]:
    """Return pointers to the known fields that have no canonical meaning in an entry of this type."""
    represented = _ENTRY_FIELDS.get(shape.type, ())
    names = [name for name in _CONTENT_FIELDS if getattr(shape, name) and name not in represented]
    if not represented:
        names.append("type")
    if unset_to_none(shape.format) and shape.format not in FORMAT_ISSUERS and shape.format != _UNKNOWN_FORMAT:
        names.append("format")
    if shape.id and not has_vendor_id(shape):
        names.append("id")
    if isinstance(shape.index, int) and not 0 <= shape.index <= position:
        names.append("index")
    return names


def decode_extensions(message: Message) -> Message:
    """Return the message with one part for each element of `reasoning_details` and `images`."""
    return _decode_images(_decode_details(message))


def _decode_details(message: Message) -> Message:
    """Return the message with one part for each element of `reasoning_details`, instead of `reasoning` text."""
    fields = (message.extras or {}).get(FAMILY)
    if fields is None or DETAILS_FIELD not in fields or not (shapes := read_entries(fields[DETAILS_FIELD])):
        return message
    entries: list[Part] = [decode_entry(shape, position) for position, shape in enumerate(shapes)]
    extras, form = dict(fields), represented_tokens(DETAILS_FIELD)
    parts = message.parts
    first = parts[0] if parts else None
    if isinstance(first, Reasoning) and (name := _plain_reasoning_field(first)) is not None:
        parts = parts[1:]
        extras[name] = Raw(msgspec.json.encode("".join(_reasoning_texts(first))))
    for name in ("reasoning", "reasoning_content"):
        if name in extras and is_repeated_text(_text_or_none(extras[name]), entries):
            form += represented_tokens(name)
    return replace(
        message,
        parts=(*entries, *parts),
        extras={**(message.extras or {}), FAMILY: extras},
        wire_form=message.wire_form + form,
    )


def _reasoning_texts(part: Reasoning) -> list[str]:
    """Return the texts of a reasoning."""
    return [block.text for block in part.content if isinstance(block, ReasoningText)]


def _plain_reasoning_field(part: Reasoning) -> str | None:
    """Return the message field with the reasoning text; None for `thinking`, which entries do not repeat."""
    names = (token.removeprefix(REASONING_FORM) for token in part.wire_form if token.startswith(REASONING_FORM))
    name = next(names, "thinking")
    return None if name == "thinking" else name


def _text_or_none(raw: Raw) -> str | None:
    """Return the string, or None for other values."""
    try:
        return decode_string(raw)
    except msgspec.DecodeError:
        return None


def is_repeated_text(text: str | None, parts: Iterable[Part]) -> bool:
    """Return whether a text only repeats the texts of the `reasoning_details` entries in `parts`."""
    texts = [text for part in parts if isinstance(part, Reasoning) for text in _reasoning_texts(part)]
    return text is not None and (not text or any(separator.join(texts) == text for separator in _TEXT_SEPARATORS))


# ---- encode


def encode_entries(part: Reasoning, id: str | None, index: int) -> list[dict[str, Any]]:
    """Encode reasoning as elements of `reasoning_details`, called entries.

    `id` is the issuer's id for the reasoning, `index` the index of the first entry in its message.
    """
    texts = [block for block in part.content if isinstance(block, ReasoningText)]
    signature = part.signature
    if signature is None or not is_known_issuer(signature):
        return _number_entries([_encode_text_entry(block.kind, block.text) for block in texts], index)
    entry_format = ENTRY_FORMATS.get(signature.issuer, _UNKNOWN_FORMAT)
    signed_entry: dict[str, Any]
    if signature.kind == "signature":
        text = "".join(block.text for block in texts)
        signed_entry = {"type": "reasoning.text", **({"text": text} if text else {}), "signature": signature.data}
        entries = [signed_entry]
    else:
        signed_entry = {"type": "reasoning.encrypted", "data": signature.data, **({"id": id} if id is not None else {})}
        entries = [*(_encode_text_entry(block.kind, block.text) for block in texts), signed_entry]
    return _number_entries([{**entry, "format": entry_format} for entry in entries], index)


def is_known_issuer(signature: Signature) -> bool:
    """Return whether `reasoning_details` can hold signatures of this issuer."""
    return signature.issuer in ENTRY_FORMATS or signature.issuer == DEFAULT_ISSUER


def _encode_text_entry(kind: str, text: str) -> dict[str, Any]:
    """Encode a text as an entry of `reasoning_details`, still without index and format."""
    return {"type": f"reasoning.{'summary' if kind == 'summary' else 'text'}", entry_field(kind): text}


def entry_field(kind: str) -> str:
    """Return the field of a `reasoning_details` entry that holds its text: `summary` or `text`."""
    return "summary" if kind == "summary" else "text"


def _number_entries(entries: list[dict[str, Any]], index: int) -> list[dict[str, Any]]:
    """Return the entries with consecutive values of their `index` field, starting at `index`."""
    return [{**entry, "index": index + offset} for offset, entry in enumerate(entries)]


def is_in_extras(part: Part) -> bool:
    """Return whether the extras of its message hold the part: an image, or a server tool in `reasoning_details`."""
    return IMAGE_FORM in part.wire_form or (isinstance(part, OpaquePart) and ENTRY_FORM in part.wire_form)


def restore_extensions(message: Message) -> Message:
    """Return the message without images and server tools, and with `reasoning_details` in its extras, to be written.

    They are the original elements; those whose parts have changed are encoded again.
    """
    parts = tuple([part for part in message.parts if not is_in_extras(part)])
    restored = message if len(parts) == len(message.parts) else replace(message, parts=parts)
    if message.extras is None or represented_tokens(DETAILS_FIELD)[0] not in message.wire_form:
        return restored
    raw = message.extras[FAMILY][DETAILS_FIELD]
    entries = [part for part in message.parts if ENTRY_FORM in part.wire_form]
    decoded = [decode_entry(shape, position) for position, shape in enumerate(read_entries(raw))]
    if entries == decoded:
        return restored
    elements = decode_elements(raw)
    encoded: list[Any] = []
    for part in entries:
        if part in decoded:
            encoded.append(elements[decoded.index(part)])
        elif isinstance(part, Reasoning):
            encoded += encode_entries(part, part.id, len(encoded))
    extras = {**message.extras[FAMILY], DETAILS_FIELD: Raw(msgspec.json.encode(encoded))}
    if not encoded:
        del extras[DETAILS_FIELD]
    return replace(restored, extras={**message.extras, FAMILY: extras})


_IMAGE_NAMES = tuple(f"{FAMILY}:name:{field}=image_url/url" for field in ("source", "media_type"))


class _ImageUrl(Struct, forbid_unknown_fields=True):
    """The address of an image."""

    url: str


class _Image(Struct, forbid_unknown_fields=True):
    """An element of `images`."""

    image_url: _ImageUrl
    type: Literal["image_url"] = "image_url"
    index: int | UnsetType = UNSET


_decode_image_list = msgspec.json.Decoder(list[_Image]).decode


def decode_images(raw: Raw) -> tuple[Media, ...]:
    """Decode `images`; an empty tuple if an element has fields other than its URL."""
    try:
        images = _decode_image_list(raw)
    except JSON_ERRORS:
        return ()
    if any(image.index not in (UNSET, index) for index, image in enumerate(images)):
        return ()
    return tuple([_decode_image(image.image_url.url, index) for index, image in enumerate(images)])


def _decode_image(url: str, index: int) -> Media:
    """Decode one image."""
    source, media_type = source_from_url(url)
    return Media(
        kind="image",
        source=source,
        media_type=media_type,
        wire_form=(IMAGE_FORM, *_IMAGE_NAMES),
        at=f"/{IMAGES}/{index}",
    )


def _decode_images(message: Message) -> Message:
    """Return the message with a part for each element of `images`."""
    extras = (message.extras or {}).get(FAMILY, {})
    if IMAGES not in extras or not (images := decode_images(extras[IMAGES])):
        return message
    return replace(message, parts=(*message.parts, *images), wire_form=message.wire_form + represented_tokens(IMAGES))


def encode_image(part: Part, index: int) -> dict[str, Any] | None:
    """Encode an image of a response as an element of `images`.

    Return None for other parts and for images without data or URL.
    """
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
    """Return empty text for an image, which Chat's encoder would report as lost; other parts unchanged."""
    if encode_image(part, 0) is None:
        return part
    return Text(text="", extras=part.extras, wire_form=part.wire_form, at=part.at)


def report_image(part: Part, path: SourcePath, report: LossReport) -> None:
    """Report as losses the fields of an image that `images` lacks."""
    if not isinstance(part, Media) or encode_image(part, 0) is None:
        return
    report.dropped_fields(path, part, "name", "detail")
    if isinstance(part.source, Url) and part.media_type is not None:
        report.dropped(path, "media_type")
    if part.signature is not None:
        report.dropped((*path, "signature"), "", "no equivalent in the target protocol")
