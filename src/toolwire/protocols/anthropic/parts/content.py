"""Decode and encode content blocks and citations."""

from typing import Any

from msgspec import UNSET, Raw, UnsetType

from toolwire.canonical.content import (
    Citation,
    Data,
    FileId,
    Inline,
    ItemRef,
    Media,
    Nested,
    OpaquePart,
    Part,
    PlainText,
    Reasoning,
    ReasoningText,
    Refusal,
    SettingChange,
    Signature,
    Source,
    Text,
    ToolCall,
    ToolChange,
    ToolResult,
    Url,
)
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.tools import ToolRef
from toolwire.codec.encoding.fallbacks import (
    opaque_as_text,
    readable_text,
    report_item_reference,
    report_setting_change,
)
from toolwire.codec.encoding.hosted_tools import accepts_native
from toolwire.codec.encoding.media import media_summary, summarize_binary
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.losses import SourcePath
from toolwire.codec.wire.extras import collect_extras, encode_with_extras, none_to_unset, unset_to_none
from toolwire.codec.wire.reader import Reader, UnknownVariant
from toolwire.protocols.anthropic.computer import BROWSER_STATE, describe_tabs
from toolwire.protocols.anthropic.parts.calls import (
    NOT_ERROR,
    READABLE_FIELDS,
    decode_change,
    decode_mcp_use,
    decode_server_result,
    decode_tool_reference,
    decode_tool_use,
    encode_call,
    encode_change,
    encode_hosted_call,
    encode_hosted_result,
    encode_server_result,
    encode_tool_reference,
    read_change,
    read_mcp_use,
    read_server_result,
)
from toolwire.protocols.anthropic.tools import decode_cache, encode_cache
from toolwire.protocols.anthropic.wire import (
    FAMILY,
    CitationShape,
    DocumentBlock,
    ImageBlock,
    RedactedBlock,
    ServerToolUseBlock,
    SourceShape,
    TextBlock,
    ThinkingBlock,
    ToolReferenceBlock,
    ToolResultBlock,
    ToolUseBlock,
)

_read_citation = Reader[CitationShape](CitationShape, FAMILY).read


def decode_citation(raw: Raw) -> Citation:
    """Decode a citation; Anthropic's location fields go to the extras (fields without canonical counterpart)."""
    shape = _read_citation(raw)
    return Citation(
        url=unset_to_none(shape.url),
        title=unset_to_none(shape.title),
        quote=unset_to_none(shape.cited_text),
        **collect_extras(shape, FAMILY),
    )


def encode_foreign_citation(
    citation: Citation, path: SourcePath, target: str, plan: EncodingPlan
) -> dict[str, Any] | None:
    """Encode another protocol's citation as a web search citation of the complete text.

    Only clients accept it. For a provider, which accepts only citations that it issued, report a loss and return None.
    `target` is the pointer of the encoded citation.
    """
    if citation.url is None or not plan.for_client:
        plan.report.dropped(path, "", "citations are only valid for their issuer")
        return None
    plan.report.dropped_fields(path, citation, "start", "end", reason="the target cites complete texts only")
    plan.report.added(
        path, "", f"{target}/encrypted_index", "no encrypted content for results of another provider", severity="info"
    )
    fields = {"url": citation.url, "title": citation.title, "cited_text": citation.quote or "", "encrypted_index": ""}
    return {"type": "web_search_result_location", **fields}


def encode_citation(citation: Citation) -> Any:
    """Encode a citation that Anthropic issued."""
    shape = CitationShape(
        url=none_to_unset(citation.url), title=none_to_unset(citation.title), cited_text=none_to_unset(citation.quote)
    )
    return encode_with_extras(shape, citation, FAMILY)


EMPTY_FAILURE_TEXT = "The tool failed and said nothing."
"""Content for a failed result without any, which the provider rejects."""
STRING = "anthropic:string"
_NO_SIGNATURE = "anthropic:empty:signature"
_STRING_FORM = (STRING,)

IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")


# ---- decode


def decode_blocks(blocks: list[Any]) -> tuple[Part, ...]:
    """Decode content blocks."""
    return tuple([_DECODERS[type(block)](block) for block in blocks])


def _decode_text(block: TextBlock) -> Text:
    """Decode a text block."""
    if block.cache_control is UNSET and block.citations is UNSET and block.unknown is UNSET and block.nulls is UNSET:
        return Text(text=block.text)
    citations = None if not isinstance(block.citations, list) else tuple(map(decode_citation, block.citations))
    return Text(
        text=block.text, annotations=citations, cache=decode_cache(block.cache_control), **collect_extras(block, FAMILY)
    )


def _decode_image(block: ImageBlock) -> Media:
    """Decode an image block."""
    source, media_type = _decode_source(block.source)
    cache = decode_cache(block.cache_control)
    return Media(kind="image", source=source, media_type=media_type, cache=cache, **collect_extras(block, FAMILY))


def _decode_document(block: DocumentBlock) -> Media:
    """Decode a document block."""
    source, media_type = _decode_source(block.source)
    return Media(
        kind="document",
        source=source,
        media_type=media_type,
        name=unset_to_none(block.title),
        cache=decode_cache(block.cache_control),
        **collect_extras(block, FAMILY),
    )


def _decode_source(shape: SourceShape) -> tuple[Source, str | None]:
    """Decode the source of an image or document; return it and its media type."""
    extras = collect_extras(shape, FAMILY)
    media_type = unset_to_none(shape.media_type)
    match shape.type:
        case "base64" if shape.data is not UNSET:
            return Inline(data=shape.data, **extras), media_type
        case "text" if shape.data is not UNSET:
            return PlainText(text=shape.data, **extras), media_type
        case "url" if shape.url is not UNSET:
            return Url(url=shape.url, **extras), media_type
        case "file" if shape.file_id is not UNSET:
            return FileId(issuer=FAMILY, id=shape.file_id, **extras), media_type
        case "content" if isinstance(shape.content, str):
            return Nested(
                parts=(Text(text=shape.content, at="/content"),), **(extras | {"wire_form": (STRING,)})
            ), media_type
        case "content" if isinstance(shape.content, list):
            return Nested(parts=decode_blocks(shape.content), **extras), media_type
        case unknown:
            raise DecodeError(FAMILY, "", "a source of type base64, text, url, file or content", unknown)


def _decode_thinking(block: ThinkingBlock) -> Reasoning:
    """Decode a thinking block with its signature."""
    signature = None
    if block.signature:
        signature = Signature(issuer=FAMILY, data=block.signature, kind="signature")
    content = (ReasoningText(kind="full", text=block.thinking, at=""),) if block.thinking else ()
    wire_form = () if signature is not None or block.signature is UNSET else (_NO_SIGNATURE,)
    return Reasoning(
        content=content,
        hidden=None if content else "omitted",
        signature=signature,
        **collect_extras(block, FAMILY, *wire_form),
    )


def _decode_redacted(block: RedactedBlock) -> Reasoning:
    """Decode a `redacted_thinking` block."""
    signature = Signature(issuer=FAMILY, data=block.data, kind="encrypted", at="/data")
    return Reasoning(hidden="redacted", signature=signature, **collect_extras(block, FAMILY))


def _decode_tool_result(block: ToolResultBlock) -> ToolResult:
    """Decode a tool result; one with string content and no optional fields takes a fast path."""
    is_plain = block.unknown is UNSET and block.nulls is UNSET and block.toolset_name is UNSET
    if is_plain and type(block.content) is str and block.is_error is UNSET and block.cache_control is UNSET:
        return ToolResult(
            call_id=block.tool_use_id, content=(Text(text=block.content, at="/content"),), wire_form=_STRING_FORM
        )
    wire_form = () if block.is_error is not False else (NOT_ERROR,)
    content: tuple[Part, ...] | None = None
    if isinstance(block.content, str):
        content = (Text(text=block.content, at="/content"),)
        wire_form = (*wire_form, STRING)
    elif block.content is not UNSET:
        content = decode_blocks(block.content)
    return ToolResult(
        call_id=block.tool_use_id,
        content=content,
        status="error" if block.is_error is True else "ok",
        toolset=unset_to_none(block.toolset_name),
        cache=decode_cache(block.cache_control),
        **collect_extras(block, FAMILY, *wire_form),
    )


def _decode_unknown(variant: UnknownVariant) -> Part:
    """Decode a block that the typed wire objects do not cover; a block of unknown type becomes opaque."""
    match variant.tag:
        case "mcp_tool_use":
            return decode_mcp_use(read_mcp_use(variant.body, variant.path))
        case "tool_addition" | "tool_removal":
            return decode_change(read_change(variant.body, variant.path), variant.path)
        case tag if tag.endswith("_tool_result"):
            return decode_server_result(read_server_result(variant.body, variant.path))
        case tag:
            gist = describe_tabs(variant.body) if tag == BROWSER_STATE else readable_text(variant.body, READABLE_FIELDS)
            return OpaquePart(protocol=FAMILY, kind=tag, body=variant.body, gist=gist)


_DECODERS: dict[type, Any] = {
    TextBlock: _decode_text,
    ImageBlock: _decode_image,
    DocumentBlock: _decode_document,
    ThinkingBlock: _decode_thinking,
    RedactedBlock: _decode_redacted,
    ToolUseBlock: decode_tool_use,
    ServerToolUseBlock: decode_tool_use,
    ToolResultBlock: _decode_tool_result,
    ToolReferenceBlock: decode_tool_reference,
    UnknownVariant: _decode_unknown,
}

# ---- encode


def encode_parts(located_parts: list[LocatedPart], plan: EncodingPlan, first_index: int = 0) -> list[Any]:
    """Encode parts as blocks; `first_index` is the index of the first block in its message."""
    blocks: list[Any] = []
    for located_part in located_parts:
        plan.output_index = first_index + len(blocks)
        block = _ENCODERS[type(located_part.part)](located_part.part, located_part, plan)
        if type(block) is list:
            blocks += block
        elif block is not None:
            blocks.append(block)
    return blocks


def _encode_text(part: Text, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    """Encode text, None if it is empty or blank and the provider rejects that."""
    rejected = not plan.same_protocol and (not part.text or (part.text.isspace() and not plan.for_client))
    if part.cache is None and part.annotations is None and part.signature is None and not rejected:
        return encode_with_extras(TextBlock(text=part.text), part, FAMILY)
    if part.signature is not None:
        plan.report.dropped((*located_part.path, "signature"), "", "signatures are only valid for their issuer")
    if rejected:
        plan.report.dropped(located_part.path, "", f"the target rejects {'blank' if part.text else 'empty'} text")
        return None
    citations = _encode_citations(part, located_part, plan)
    cache = encode_cache(part.cache, located_part.path, plan)
    return encode_with_extras(TextBlock(text=part.text, citations=citations, cache_control=cache), part, FAMILY)


def _encode_citations(part: Text, located_part: LocatedPart, plan: EncodingPlan) -> list[Any] | UnsetType:
    """Encode the citations of a text, UNSET without any."""
    if part.annotations is None:
        return UNSET
    if plan.same_protocol:
        return [encode_citation(citation) for citation in part.annotations]
    citations: list[Any] = []
    for index, citation in enumerate(part.annotations):
        if not plan.for_client and FAMILY in (citation.extras or {}) and accepts_native("server", plan.target.host):
            citations.append(encode_citation(citation))  # with the encrypted index that Anthropic wants back
            continue
        pointer = f"/content/{plan.output_index}/citations/{len(citations)}"
        encoded = encode_foreign_citation(citation, (*located_part.path, "annotations", index), pointer, plan)
        if encoded is not None:
            citations.append(encoded)
    return citations or UNSET


def _encode_media(part: Media, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    """Encode an image or document; report it and return None if it cannot be sent."""
    if plan.for_client and not plan.same_protocol:
        plan.report.dropped(located_part.path, "", "responses of the target cannot contain media")
        return None
    source = _encode_source(part, located_part, plan)
    if source is None:
        return None
    if part.signature is not None:
        plan.report.dropped(located_part.path, "signature", "signatures are only valid for their issuer")
    if part.detail is not None:
        plan.report.dropped(located_part.path, "detail")
    cache = encode_cache(part.cache, located_part.path, plan)
    if part.kind == "image":
        if part.name is not None:
            plan.report.dropped(located_part.path, "name")
        return encode_with_extras(ImageBlock(source=source, cache_control=cache), part, FAMILY)
    return encode_with_extras(
        DocumentBlock(source=source, title=none_to_unset(part.name), cache_control=cache), part, FAMILY
    )


def _encode_source(part: Media, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    """Encode the source of an image or document; report it and return None if the provider rejects it."""
    source, media_type = part.source, none_to_unset(part.media_type)
    match source:
        case Inline() if plan.same_protocol or part.media_type in IMAGE_TYPES or part.media_type == "application/pdf":
            shape = SourceShape(type="base64", media_type=media_type, data=source.data)
        case PlainText():
            shape = SourceShape(
                type="text", media_type=media_type if plan.same_protocol else "text/plain", data=source.text
            )
        case Url() if plan.same_protocol or part.kind in ("image", "document"):
            if part.media_type is not None and not plan.same_protocol:
                plan.report.dropped(located_part.path, "media_type", "the target reads it from the URL")
            shape = SourceShape(type="url", media_type=media_type if plan.same_protocol else UNSET, url=source.url)
        case FileId() if source.issuer == FAMILY:
            shape = SourceShape(type="file", media_type=media_type, file_id=source.id)
        case Nested():
            shape = SourceShape(
                type="content", media_type=media_type, content=_encode_nested(source, located_part, plan)
            )
        case _:
            reason = f"the target does not accept {part.media_type or part.kind} here"
            if isinstance(source, FileId):
                reason = f"file is stored by {source.issuer} only"
            plan.report.dropped(located_part.path, "", reason)
            return None
    return encode_with_extras(shape, source, FAMILY)


def _encode_nested(source: Nested, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    """Encode the content of a document that consists of blocks or of one string."""
    content = encode_parts([LocatedPart(part, located_part.path) for part in source.parts], plan)
    if STRING in source.wire_form and len(source.parts) == 1 and isinstance(text := source.parts[0], Text):
        return text.text
    return content


def _encode_data(part: Data, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    """Encode JSON as text."""
    return TextBlock(text=str(part.json, "utf-8"))


def _encode_reasoning(part: Reasoning, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    """Encode reasoning that Anthropic signed; the provider rejects any other, which is reported as lost."""
    signature = part.signature
    for index, block in enumerate(part.content):
        if isinstance(block, Media):
            plan.report.dropped((*located_part.path, "content", index), "", "thinking of the target is text only")
    if not plan.same_protocol:
        if signature is None or signature.issuer != FAMILY:
            return _encode_foreign_reasoning(part, located_part, plan)
        if part.id is not None:
            plan.report.dropped(located_part.path, "id")
    if part.hidden == "redacted" and signature is not None:
        return encode_with_extras(RedactedBlock(data=signature.data), part, FAMILY)
    text = _join_reasoning(part, "" if plan.same_protocol else "\n\n")
    unsigned: Any = "" if _NO_SIGNATURE in part.wire_form else UNSET
    return encode_with_extras(
        ThinkingBlock(thinking=text, signature=unsigned if signature is None else signature.data), part, FAMILY
    )


def _encode_foreign_reasoning(part: Reasoning, located_part: LocatedPart, plan: EncodingPlan) -> ThinkingBlock | None:
    """Encode reasoning without Anthropic's signature, which only a client accepts; None for a provider."""
    host = plan.target.host
    if not plan.for_client and (host.pass_through or host.reasoning.signatures):
        plan.report.dropped(located_part.path, "", "the target only accepts reasoning that it signed")
        return None
    plan.report_unsealed_signature(part, located_part.path)
    if part.id is not None:
        plan.report.dropped(located_part.path, "id")
    text = _join_reasoning(part, "\n\n")
    return ThinkingBlock(thinking=text, signature="") if text else None


def _join_reasoning(part: Reasoning, separator: str) -> str:
    """Join the texts of all blocks of a reasoning part with `separator`."""
    return separator.join([block.text for block in part.content if isinstance(block, ReasoningText)])


def _encode_result(part: ToolResult, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    """Encode the result of a tool call."""
    if part.executor == "server":
        return encode_server_result(part, located_part, plan)
    content = UNSET if part.content is None else _encode_result_content(part, part.content, located_part, plan)
    if not content and not plan.same_protocol:
        content = EMPTY_FAILURE_TEXT if part.status != "ok" else UNSET
    shape = ToolResultBlock(tool_use_id=plan.call_id(part.call_id or ""), content=content)
    if not plan.same_protocol:
        plan.report_result_name(part, located_part.path)
    if part.status == "denied":
        plan.report.approximated(located_part.path, "status", "denied sent as an error")
    if part.status != "ok":
        shape.is_error = True
    elif NOT_ERROR in part.wire_form:
        shape.is_error = False
    shape.toolset_name = none_to_unset(part.toolset)
    shape.cache_control = encode_cache(part.cache, located_part.path, plan)
    return encode_with_extras(shape, part, FAMILY)


def _encode_result_content(
    part: ToolResult, content: tuple[Part, ...], located_part: LocatedPart, plan: EncodingPlan
) -> Any:
    """Encode the content of a result as a string or as blocks."""
    located_parts = [LocatedPart(inner, (*located_part.path, "content", index)) for index, inner in enumerate(content)]
    if plan.target.binary_results == "summary":
        located_parts = summarize_binary(located_parts, plan.report)
    if part.status != "ok" and not plan.same_protocol:
        located_parts = _select_text(located_parts, plan)
    if (text := _encode_result_string(part, plan)) is not None:
        return text
    return encode_parts(located_parts, plan) if plan.same_protocol else _encode_result_parts(located_parts, plan)


def _select_text(located_parts: list[LocatedPart], plan: EncodingPlan) -> list[LocatedPart]:
    """Replace media by text summaries, since the provider accepts only text in a failed result."""
    for located_part in located_parts:
        if isinstance(located_part.part, Media):
            plan.report.dropped(located_part.path, "", "failed results of the target are text only")
    texts = [
        Text(text=media_summary(located_part.part)) if isinstance(located_part.part, Media) else located_part.part
        for located_part in located_parts
    ]
    return [LocatedPart(part, located_part.path) for part, located_part in zip(texts, located_parts, strict=True)]


def _encode_result_parts(located_parts: list[LocatedPart], plan: EncodingPlan) -> list[Any]:
    """Encode the parts of a result as blocks; media that the provider rejects become text summaries."""
    blocks: list[Any] = []
    for located_part in located_parts:
        encoded = encode_parts([located_part], plan)
        blocks += encoded or (
            [TextBlock(text=media_summary(located_part.part))] if isinstance(located_part.part, Media) else []
        )
    return blocks


def _encode_result_string(part: ToolResult, plan: EncodingPlan) -> str | None:
    """Return the content of a result if it can be sent as one string, else None."""
    if part.content is None or len(part.content) != 1:
        return None
    text = part.content[0]
    is_plain = isinstance(text, Text) and text.cache is None and not text.extras and text.annotations is None
    if not is_plain or (plan.same_protocol and STRING not in part.wire_form):
        return None
    return text.text if isinstance(text, Text) else None


def _report_setting(part: SettingChange, located_part: LocatedPart, plan: EncodingPlan) -> None:
    """Report the loss of a settings change; for Anthropic clients, the message encoder handles it instead."""
    if not plan.same_protocol:
        report_setting_change(part, located_part.path, plan)


def _encode_refusal(part: Refusal, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    """Encode a refusal as text."""
    plan.report.approximated(located_part.path, "", "refusal sent as text")
    return TextBlock(text=part.text) if part.text else None


def _encode_opaque(part: OpaquePart, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    """Encode an opaque part: Anthropic's own unchanged, any other as its tool use or readable text."""
    if part.protocol == FAMILY:
        return part.body
    if part.called and plan.for_client:
        return encode_parts([LocatedPart(called, located_part.path) for called in part.called], plan, plan.output_index)
    if part.use is not None and plan.for_client:
        plan.report.approximated(
            located_part.path, "", "server-side call of another provider, sent as a call and its result"
        )
        call = encode_hosted_call(part.use, plan)
        plan.output_index += 1
        return [call, encode_hosted_result(part.use, located_part, plan, failed=part.use.failed)]
    text = opaque_as_text(part, located_part.path, plan)
    return None if text is None else TextBlock(text=text)


_ENCODERS: dict[type, Any] = {
    Text: _encode_text,
    Media: _encode_media,
    Data: _encode_data,
    Reasoning: _encode_reasoning,
    ToolCall: encode_call,
    ToolResult: _encode_result,
    ToolRef: encode_tool_reference,
    ToolChange: encode_change,
    SettingChange: _report_setting,
    Refusal: _encode_refusal,
    ItemRef: report_item_reference,
    OpaquePart: _encode_opaque,
}
