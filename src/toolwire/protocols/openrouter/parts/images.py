"""`images` of an assistant's message: what its model drew, to canonical media and back. The list also stays in the
extras of its message, as it came, and is told by them at home."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import Inline, Media, Message, Part, Text, Url
from toolwire.codec.fields import BAD_JSON
from toolwire.codec.losses import Report, Trail
from toolwire.codec.media import data_url, source_of
from toolwire.protocols.openai_chat.wire import FAMILY

from .details import told

IMAGES = "images"
DRAWN = "openai-chat:drawn"
_NAMES = tuple(f"{FAMILY}:name:{field}=image_url/url" for field in ("source", "media_type"))


class _Address(Struct, forbid_unknown_fields=True):
    url: str


class _Image(Struct, forbid_unknown_fields=True):
    image_url: _Address
    type: Literal["image_url"] = "image_url"
    index: int | UnsetType = UNSET


_read = msgspec.json.Decoder(list[_Image]).decode


def decode_images(raw: Raw) -> tuple[Media, ...]:
    """The pictures; none if more is said of them than where they are."""
    try:
        images = _read(raw)
    except BAD_JSON:
        return ()
    if any(image.index not in (UNSET, place) for place, image in enumerate(images)):
        return ()
    return tuple([_decode_image(image.image_url.url, place) for place, image in enumerate(images)])


def _decode_image(url: str, place: int) -> Media:
    source, media_type = source_of(url)
    return Media(kind="image", source=source, media_type=media_type, form=(DRAWN, *_NAMES), at=f"/{IMAGES}/{place}")


def lift_images(message: Message) -> Message:
    """A message with a part for each picture, after what is said."""
    own = (message.extras or {}).get(FAMILY, {})
    if IMAGES not in own or not (images := decode_images(own[IMAGES])):
        return message
    return replace(message, parts=(*message.parts, *images), form=message.form + told(IMAGES))


def lower_images(message: Message) -> Message:
    if told(IMAGES)[0] not in message.form:
        return message
    return replace(message, parts=tuple([part for part in message.parts if DRAWN not in part.form]))


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


def without_images(part: Part) -> Part:
    """What Chat's encoder gets in place of a picture: it would report it as lost."""
    if encode_image(part, 0) is None:
        return part
    return Text(text="", extras=part.extras, form=part.form, at=part.at)


def report_image(part: Part, trail: Trail, report: Report) -> None:
    if not isinstance(part, Media) or encode_image(part, 0) is None:
        return
    for field in ("name", "detail"):
        if getattr(part, field) is not None:
            report.dropped(trail, field)
    if isinstance(part.source, Url) and part.media_type is not None:
        report.dropped(trail, "media_type")
    if part.seal is not None:
        report.dropped((*trail, "seal"), "", "the target has no place for a proof on a picture")
