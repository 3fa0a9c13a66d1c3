"""Anthropic's citations, each of a whole text, to canonical ones and back.

Anthropic's content blocks, to canonical parts and back.
"""

from typing import Any

import msgspec
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
from toolwire.codec.encoding.fallbacks import opaque_as_text, report_setting_change
from toolwire.codec.encoding.media import media_summary, summarize_binary
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.losses import SourcePath
from toolwire.codec.wire.extras import collect_extras, encode_with_extras, none_to_unset, unset_to_none
from toolwire.codec.wire.reader import Reader, UnknownVariant
from toolwire.protocols.anthropic.computer import BROWSER_STATE, describe_tabs
from toolwire.protocols.anthropic.parts.calls import (
    NOT_ERROR,
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
    readable_text,
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
    """A citation of another protocol, for a client to read: here it is of a whole text. None, reported, for a provider,
    who takes only its own. `place` is where it will stand."""
    if citation.url is None or not plan.for_client:
        plan.report.dropped(path, "", "citations only go back to their issuer")
        return None
    for field in ("start", "end"):
        if getattr(citation, field) is not None:
            plan.report.dropped(path, field, "the target cites for whole texts")
    plan.report.added(path, "", f"{target}/encrypted_index", "there is no proof of what others found: it is empty")
    told = {"url": citation.url, "title": citation.title, "cited_text": citation.quote or "", "encrypted_index": ""}
    return {"type": "web_search_result_location", **told}


def encode_citation(citation: Citation) -> Any:
    shape = CitationShape(
        url=none_to_unset(citation.url), title=none_to_unset(citation.title), cited_text=none_to_unset(citation.quote)
    )
    return encode_with_extras(shape, citation, FAMILY)


EMPTY_FAILURE_TEXT = "The tool failed and said nothing."
"""The provider refuses a failed result without words."""
STRING = "anthropic:string"
_NO_SIGNATURE = "anthropic:empty:signature"
_STRING_FORM = (STRING,)

IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode

# ---- decode


def decode_blocks(blocks: list[Any]) -> tuple[Part, ...]:
    return tuple([_DECODERS[type(block)](block) for block in blocks])


def _decode_text(block: TextBlock) -> Text:
    if block.cache_control is UNSET and block.citations is UNSET and block.unknown is UNSET and block.nulls is UNSET:
        return Text(text=block.text)
    notes = None if not isinstance(block.citations, list) else tuple(map(decode_citation, block.citations))
    return Text(
        text=block.text, annotations=notes, cache=decode_cache(block.cache_control), **collect_extras(block, FAMILY)
    )


def _decode_image(block: ImageBlock) -> Media:
    source, media_type = _decode_source(block.source)
    cache = decode_cache(block.cache_control)
    return Media(kind="image", source=source, media_type=media_type, cache=cache, **collect_extras(block, FAMILY))


def _decode_document(block: DocumentBlock) -> Media:
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
    kept = collect_extras(shape, FAMILY)
    media_type = unset_to_none(shape.media_type)
    match shape.type:
        case "base64" if shape.data is not UNSET:
            return Inline(data=shape.data, **kept), media_type
        case "text" if shape.data is not UNSET:
            return PlainText(text=shape.data, **kept), media_type
        case "url" if shape.url is not UNSET:
            return Url(url=shape.url, **kept), media_type
        case "file" if shape.file_id is not UNSET:
            return FileId(issuer=FAMILY, id=shape.file_id, **kept), media_type
        case "content" if isinstance(shape.content, str):
            return Nested(
                parts=(Text(text=shape.content, at="/content"),), **(kept | {"wire_form": (STRING,)})
            ), media_type
        case "content" if isinstance(shape.content, list):
            return Nested(parts=decode_blocks(shape.content), **kept), media_type
        case other:
            raise DecodeError(FAMILY, "", "a source of type base64, text, url, file or content", other)


def _decode_thinking(block: ThinkingBlock) -> Reasoning:
    seal = None
    if block.signature:
        seal = Signature(issuer=FAMILY, data=block.signature, kind="signature")
    content = (ReasoningText(kind="full", text=block.thinking, at=""),) if block.thinking else ()
    form = () if seal is not None or block.signature is UNSET else (_NO_SIGNATURE,)
    return Reasoning(
        content=content, hidden=None if content else "omitted", signature=seal, **collect_extras(block, FAMILY, *form)
    )


def _decode_redacted(block: RedactedBlock) -> Reasoning:
    seal = Signature(issuer=FAMILY, data=block.data, kind="encrypted", at="/data")
    return Reasoning(hidden="redacted", signature=seal, **collect_extras(block, FAMILY))


def _decode_tool_result(block: ToolResultBlock) -> ToolResult:
    bare = block.unknown is UNSET and block.nulls is UNSET and block.toolset_name is UNSET
    if bare and type(block.content) is str and block.is_error is UNSET and block.cache_control is UNSET:
        return ToolResult(
            call_id=block.tool_use_id, content=(Text(text=block.content, at="/content"),), wire_form=_STRING_FORM
        )
    form = () if block.is_error is not False else (NOT_ERROR,)
    content: tuple[Part, ...] | None = None
    if isinstance(block.content, str):
        content = (Text(text=block.content, at="/content"),)
        form = (*form, STRING)
    elif block.content is not UNSET:
        content = decode_blocks(block.content)
    return ToolResult(
        call_id=block.tool_use_id,
        content=content,
        status="error" if block.is_error is True else "ok",
        toolset=unset_to_none(block.toolset_name),
        cache=decode_cache(block.cache_control),
        **collect_extras(block, FAMILY, *form),
    )


def _decode_unknown(other: UnknownVariant) -> Part:
    match other.tag:
        case "mcp_tool_use":
            return decode_mcp_use(read_mcp_use(other.body, other.path))
        case "tool_addition" | "tool_removal":
            return decode_change(read_change(other.body, other.path), other.path)
        case tag if tag.endswith("_tool_result"):
            return decode_server_result(read_server_result(other.body, other.path))
        case tag:
            told = describe_tabs(other.body) if tag == BROWSER_STATE else readable_text(other.body)
            return OpaquePart(protocol=FAMILY, kind=tag, body=other.body, gist=told)


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
    """The blocks, of which the first one stands at this place."""
    blocks: list[Any] = []
    for placed in located_parts:
        plan.output_index = first_index + len(blocks)
        block = _ENCODERS[type(placed.part)](placed.part, placed, plan)
        if type(block) is list:
            blocks += block
        elif block is not None:
            blocks.append(block)
    return blocks


def _encode_text(part: Text, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    refused = not plan.same_protocol and (not part.text or (part.text.isspace() and not plan.for_client))
    if part.cache is None and part.annotations is None and part.signature is None and not refused:
        return encode_with_extras(TextBlock(text=part.text), part, FAMILY)
    if part.signature is not None:
        plan.report.dropped((*located_part.path, "signature"), "", "a seal goes only to its issuer")
    if refused:
        plan.report.dropped(located_part.path, "", f"the target refuses {'blank' if part.text else 'empty'} text")
        return None
    notes: list[Any] | UnsetType = UNSET
    if part.annotations is not None and plan.same_protocol:
        notes = [encode_citation(note) for note in part.annotations]
    elif part.annotations:
        notes = []
        for index, note in enumerate(part.annotations):
            place = f"/content/{plan.output_index}/citations/{len(notes)}"
            if (
                cited := encode_foreign_citation(note, (*located_part.path, "annotations", index), place, plan)
            ) is not None:
                notes.append(cited)
        notes = notes or UNSET
    return encode_with_extras(
        TextBlock(text=part.text, citations=notes, cache_control=encode_cache(part.cache, located_part.path, plan)),
        part,
        FAMILY,
    )


def _encode_media(part: Media, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    if plan.for_client and not plan.same_protocol:
        plan.report.dropped(located_part.path, "", "the target's answers hold no media")
        return None
    source = _encode_source(part, located_part, plan)
    if source is None:
        return None
    if part.signature is not None:
        plan.report.dropped(located_part.path, "signature", "a seal goes only to its issuer")
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
    """Where the bytes are; None, reported, if this provider can't take them."""
    source, media_type = part.source, none_to_unset(part.media_type)
    match source:
        case Inline() if plan.same_protocol or part.media_type in IMAGE_TYPES or part.media_type == "application/pdf":
            shape = SourceShape(type="base64", media_type=media_type, data=source.data)
        case PlainText():
            if not plan.same_protocol:
                media_type = "text/plain"
            shape = SourceShape(type="text", media_type=media_type, data=source.text)
        case Url() if plan.same_protocol or part.kind in ("image", "document"):
            if part.media_type is not None and not plan.same_protocol:
                plan.report.dropped(located_part.path, "media_type", "the target asks the address for it")
            shape = SourceShape(type="url", media_type=media_type if plan.same_protocol else UNSET, url=source.url)
        case FileId() if source.issuer == FAMILY:
            shape = SourceShape(type="file", media_type=media_type, file_id=source.id)
        case Nested():
            content: Any = encode_parts([LocatedPart(inner, located_part.path) for inner in source.parts], plan)
            if STRING in source.wire_form and len(source.parts) == 1 and isinstance(only := source.parts[0], Text):
                content = only.text
            shape = SourceShape(type="content", media_type=media_type, content=content)
        case FileId():
            plan.report.dropped(located_part.path, "", f"a file that only {source.issuer} holds")
            return None
        case _:
            plan.report.dropped(located_part.path, "", f"the target takes no {part.media_type or part.kind} here")
            return None
    return encode_with_extras(shape, source, FAMILY)


def _encode_data(part: Data, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    return TextBlock(text=str(part.json, "utf-8"))


def _encode_reasoning(part: Reasoning, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    """Thinking goes back only as the provider sealed it; unsealed it would be refused. A client may read it all."""
    seal = part.signature
    for index, block in enumerate(part.content):
        if isinstance(block, Media):
            plan.report.dropped((*located_part.path, "content", index), "", "the target's thinking is text only")
    if not plan.same_protocol and (seal is None or seal.issuer != FAMILY):
        if not plan.for_client:
            plan.report.dropped(located_part.path, "", "reasoning that this provider did not seal can't be sent to it")
            return None
        text = "\n\n".join(block.text for block in part.content if isinstance(block, ReasoningText))
        plan.report_unsealed_signature(part, located_part.path)
        if part.id is not None:
            plan.report.dropped(located_part.path, "id")
        return ThinkingBlock(thinking=text, signature="") if text else None
    if part.id is not None and not plan.same_protocol:
        plan.report.dropped(located_part.path, "id")
    if part.hidden == "redacted" and seal is not None:
        return encode_with_extras(RedactedBlock(data=seal.data), part, FAMILY)
    text = ("" if plan.same_protocol else "\n\n").join(
        one.text for one in part.content if isinstance(one, ReasoningText)
    )
    unsigned: Any = "" if _NO_SIGNATURE in part.wire_form else UNSET
    return encode_with_extras(
        ThinkingBlock(thinking=text, signature=unsigned if seal is None else seal.data), part, FAMILY
    )


def _encode_result(part: ToolResult, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    if part.executor == "server":
        return encode_server_result(part, located_part, plan)
    content: Any = UNSET
    if part.content is not None:
        places = [
            LocatedPart(inner, (*located_part.path, "content", index)) for index, inner in enumerate(part.content)
        ]
        if plan.target.binary_results == "summary":
            places = summarize_binary(places, plan.report)
        if part.status != "ok" and not plan.same_protocol:
            places = _select_text(places, plan)
        content = _encode_result_string(part, plan)
        if content is None:
            content = encode_parts(places, plan) if plan.same_protocol else _encode_result_parts(places, plan)
    if not content and not plan.same_protocol:
        content = EMPTY_FAILURE_TEXT if part.status != "ok" else UNSET
    shape = ToolResultBlock(tool_use_id=plan.call_id(part.call_id or ""), content=content)
    if not plan.same_protocol:
        plan.report_result_name(part, located_part.path)
    if part.status == "denied":
        plan.report.approximated(located_part.path, "status", "denied is told as an error")
    if part.status != "ok":
        shape.is_error = True
    elif NOT_ERROR in part.wire_form:
        shape.is_error = False
    shape.toolset_name = none_to_unset(part.toolset)
    shape.cache_control = encode_cache(part.cache, located_part.path, plan)
    return encode_with_extras(shape, part, FAMILY)


def _select_text(located_parts: list[LocatedPart], plan: EncodingPlan) -> list[LocatedPart]:
    """What the provider takes of a failed result."""
    for placed in located_parts:
        if isinstance(placed.part, Media):
            plan.report.dropped(placed.path, "", "the target's failed results are text only")
    told = [Text(text=media_summary(one.part)) if isinstance(one.part, Media) else one.part for one in located_parts]
    return [LocatedPart(part, placed.path) for part, placed in zip(told, located_parts, strict=True)]


def _encode_result_parts(located_parts: list[LocatedPart], plan: EncodingPlan) -> list[Any]:
    """The blocks of a result, with a line in place of media that the provider can't take."""
    blocks: list[Any] = []
    for placed in located_parts:
        shown = encode_parts([placed], plan)
        blocks += shown or ([TextBlock(text=media_summary(placed.part))] if isinstance(placed.part, Media) else [])
    return blocks


def _encode_result_string(part: ToolResult, plan: EncodingPlan) -> str | None:
    """The content as a bare string, where that says all of it."""
    if part.content is None or len(part.content) != 1:
        return None
    only = part.content[0]
    bare = isinstance(only, Text) and only.cache is None and not only.extras and only.annotations is None
    if not bare or (plan.same_protocol and STRING not in part.wire_form):
        return None
    return only.text if isinstance(only, Text) else None


def _encode_setting(part: SettingChange, located_part: LocatedPart, plan: EncodingPlan) -> None:
    """At home the message carries it, not its content."""
    if not plan.same_protocol:
        report_setting_change(part, located_part.path, plan)


def _encode_refusal(part: Refusal, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    plan.report.approximated(located_part.path, "", "a refusal is told as text")
    return TextBlock(text=part.text) if part.text else None


def _encode_item_reference(part: ItemRef, located_part: LocatedPart, plan: EncodingPlan) -> None:
    plan.report.dropped(located_part.path, "id", "what another provider stored can't be named to this one")


def _encode_opaque(part: OpaquePart, located_part: LocatedPart, plan: EncodingPlan) -> Any:
    if part.protocol == FAMILY:
        return part.body
    if part.called and plan.for_client:
        return encode_parts([LocatedPart(one, located_part.path) for one in part.called], plan, plan.output_index)
    if part.use is not None and plan.for_client:
        plan.report.approximated(located_part.path, "", "what another provider ran, told as a call and its result")
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
    SettingChange: _encode_setting,
    Refusal: _encode_refusal,
    ItemRef: _encode_item_reference,
    OpaquePart: _encode_opaque,
}
