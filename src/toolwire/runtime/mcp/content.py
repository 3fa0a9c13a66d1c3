"""Convert tool results between MCP content blocks and canonical parts.

An embedded resource becomes a document with its URI as the name. A resource link becomes text, so that no provider
fetches an address that a server chose.
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
    """Decode a server's result, with the structured content as a part if there is no other."""
    parts = tuple(_decode_block(block) for block in result.content[: limits.MAX_PARTS])
    if (omitted_count := len(result.content) - len(parts)) > 0:
        parts = (*parts, Text(text=f"[{omitted_count} more parts omitted]"))
    has_structured = result.structured_content is not None or "structured_content" in result.model_fields_set
    if has_structured and not parts:
        parts = (Data(json=Raw(msgspec.json.encode(result.structured_content))),)
    is_error = bool(result.is_error)
    return ToolOutput(
        content=parts, is_error=is_error, structured=result.structured_content, error_kind="tool" if is_error else ""
    )


def _decode_block(block: types.ContentBlock) -> Part:
    """Decode one MCP content block."""
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
            return decode_resource(block.resource)


def decode_resource(resource: types.TextResourceContents | types.BlobResourceContents) -> Media:
    """Decode a resource as a named document, image, audio or video."""
    if isinstance(resource, types.TextResourceContents):
        source = PlainText(text=resource.text)
        return Media(kind="document", source=source, media_type=resource.mime_type or "text/plain", name=resource.uri)
    kind = _media_kind(resource.mime_type)
    if kind == "document" and (text := _decode_text_blob(resource)) is not None:
        return Media(kind=kind, source=PlainText(text=text), media_type=resource.mime_type, name=resource.uri)
    return Media(kind=kind, source=Inline(data=resource.blob), media_type=resource.mime_type, name=resource.uri)


def _decode_text_blob(resource: types.BlobResourceContents) -> str | None:
    """Return the text of a blob with a textual media type, since few models read text as bytes; else None."""
    if not (resource.mime_type or "").startswith(("text/", "application/json")):
        return None
    try:
        return base64.b64decode(resource.blob, validate=True).decode()
    except ValueError:
        return None


def _describe_link(link: types.ResourceLink) -> str:
    """Describe a resource link as text: name, URI, media type, size and description."""
    details = ", ".join(filter(None, (link.mime_type, None if link.size is None else f"{link.size} bytes")))
    description = f": {link.description}" if link.description else ""
    return f"[resource {link.name} at {link.uri}{f' ({details})' if details else ''}{description}]"


def _media_kind(media_type: str | None) -> MediaKind:
    """Return `image`, `audio` or `video` for such a media type, else `document`."""
    return _MEDIA_KINDS.get((media_type or "").partition("/")[0], "document")


def encode_result(output: ToolOutput) -> types.CallToolResult:
    """Encode a tool output for an MCP client, with structured content also as text if there is no other."""
    content = [_encode_part(part) for part in output.content]
    if not content and output.structured is not None:
        content = [types.TextContent(text=_to_json(output.structured))]
    if output.structured is None:
        return types.CallToolResult(content=content, is_error=output.is_error)
    return types.CallToolResult(content=content, is_error=output.is_error, structured_content=output.structured)


def _encode_part(part: Part) -> types.ContentBlock:
    """Encode one canonical part; parts without an MCP equivalent become JSON text."""
    match part:
        case Text(text=text):
            return types.TextContent(text=text)
        case Data(json=data):
            return types.TextContent(text=bytes(data).decode())
        case Media():
            return _encode_media(part)
        case _:
            return types.TextContent(text=_to_json(part))


def _encode_media(part: Media) -> types.ContentBlock:
    """Encode media: unnamed images and audio as such, other inline data as embedded resources, URLs as links."""
    name = part.name or f"toolwire:{part.kind}"
    match part.source:
        case Inline(data=data) if part.kind == "image" and part.name is None:
            return types.ImageContent(data=data, mime_type=part.media_type or "image/png")
        case Inline(data=data) if part.kind == "audio" and part.name is None:
            return types.AudioContent(data=data, mime_type=part.media_type or "audio/wav")
        case Inline(data=data):
            blob = types.BlobResourceContents(uri=_resource_uri(name), blob=data, mime_type=part.media_type)
            return types.EmbeddedResource(resource=blob)
        case PlainText(text=text):
            document = types.TextResourceContents(uri=_resource_uri(name), text=text, mime_type=part.media_type)
            return types.EmbeddedResource(resource=document)
        case Url(url=url):
            return types.ResourceLink(name=part.name or url, uri=url, mime_type=part.media_type)
        case _:
            return types.TextContent(text=_to_json(part))


def _resource_uri(name: str) -> str:
    """Return the name if it is a URI, else a `toolwire:` URI for it."""
    return name if ":" in name else f"toolwire:{name}"


def _to_json(value: Any) -> str:
    """Encode a value as JSON text."""
    return msgspec.json.encode(value).decode()
