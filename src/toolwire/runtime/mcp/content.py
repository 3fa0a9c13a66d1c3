"""A tool's result, between MCP's words and canonical parts.

`decode` is MCP to canonical: an embedded resource is a document that has its URI as its name, and a link to one is
text, because no provider may be sent to fetch what a server points at. `encode` is the other way.
"""

import base64
from typing import Any, Literal

import mcp_types as types
import msgspec
from msgspec import Raw

from toolwire.canonical.content import Data, Inline, Media, Part, PlainText, Text, Url
from toolwire.runtime.mcp import limits
from toolwire.runtime.tool import ToolOutput

MediaKind = Literal["image", "audio", "video", "document"]
_MEDIA_KINDS: dict[str, MediaKind] = {"image": "image", "audio": "audio", "video": "video"}


def decode_result(result: types.CallToolResult) -> ToolOutput:
    parts = tuple(_decode_block(block) for block in result.content[: limits.MAX_PARTS])
    if (more := len(result.content) - len(parts)) > 0:
        parts = (*parts, Text(text=f"[{more} more parts are left out]"))
    told = result.structured_content is not None or "structured_content" in result.model_fields_set
    if told and not parts:
        parts = (Data(json=Raw(msgspec.json.encode(result.structured_content))),)
    failed = bool(result.is_error)
    return ToolOutput(
        content=parts, is_error=failed, structured=result.structured_content, error_kind="tool" if failed else ""
    )


def _decode_block(block: types.ContentBlock) -> Part:
    match block:
        case types.TextContent():
            return Text(text=block.text)
        case types.ImageContent():
            return Media(kind="image", source=Inline(data=block.data), media_type=block.mime_type)
        case types.AudioContent():
            return Media(kind="audio", source=Inline(data=block.data), media_type=block.mime_type)
        case types.ResourceLink():
            return Text(text=_describe_link(block))
        case types.EmbeddedResource():
            return _decode_resource(block.resource)


def _decode_resource(resource: types.TextResourceContents | types.BlobResourceContents) -> Media:
    if isinstance(resource, types.TextResourceContents):
        source = PlainText(text=resource.text)
        return Media(kind="document", source=source, media_type=resource.mime_type or "text/plain", name=resource.uri)
    kind = _media_kind(resource.mime_type)
    if kind == "document" and (text := _decode_text_blob(resource)) is not None:
        return Media(kind=kind, source=PlainText(text=text), media_type=resource.mime_type, name=resource.uri)
    return Media(kind=kind, source=Inline(data=resource.blob), media_type=resource.mime_type, name=resource.uri)


def _decode_text_blob(resource: types.BlobResourceContents) -> str | None:
    """Servers send text as bytes too, which few models could read so."""
    if not (resource.mime_type or "").startswith(("text/", "application/json")):
        return None
    try:
        return base64.b64decode(resource.blob, validate=True).decode()
    except ValueError:
        return None


def _describe_link(link: types.ResourceLink) -> str:
    about = [one for one in (link.mime_type, None if link.size is None else f"{link.size} bytes") if one]
    said = f": {link.description}" if link.description else ""
    return f"[resource {link.name} at {link.uri}{' (' + ', '.join(about) + ')' if about else ''}{said}]"


def _media_kind(media_type: str | None) -> MediaKind:
    return _MEDIA_KINDS.get((media_type or "").partition("/")[0], "document")


def encode_result(output: ToolOutput) -> types.CallToolResult:
    content = [_encode_part(part) for part in output.content]
    if not content and output.structured is not None:
        content = [types.TextContent(text=_to_json(output.structured))]
    if output.structured is None:
        return types.CallToolResult(content=content, is_error=output.is_error)
    return types.CallToolResult(content=content, is_error=output.is_error, structured_content=output.structured)


def _encode_part(part: Part) -> types.ContentBlock:
    match part:
        case Text(text=text):
            return types.TextContent(text=text)
        case Data(json=held):
            return types.TextContent(text=bytes(held).decode())
        case Media():
            return _encode_media(part)
        case _:
            return types.TextContent(text=_to_json(part))


def _encode_media(part: Media) -> types.ContentBlock:
    name = part.name or f"toolwire:{part.kind}"
    match part.source:
        case Inline(data=data) if part.kind == "image" and part.name is None:
            return types.ImageContent(data=data, mime_type=part.media_type or "image/png")
        case Inline(data=data) if part.kind == "audio" and part.name is None:
            return types.AudioContent(data=data, mime_type=part.media_type or "audio/wav")
        case Inline(data=data):
            held = types.BlobResourceContents(uri=_resource_uri(name), blob=data, mime_type=part.media_type)
            return types.EmbeddedResource(resource=held)
        case PlainText(text=text):
            text_held = types.TextResourceContents(uri=_resource_uri(name), text=text, mime_type=part.media_type)
            return types.EmbeddedResource(resource=text_held)
        case Url(url=url):
            return types.ResourceLink(name=part.name or url, uri=url, mime_type=part.media_type)
        case _:
            return types.TextContent(text=_to_json(part))


def _resource_uri(name: str) -> str:
    return name if ":" in name else f"toolwire:{name}"


def _to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
