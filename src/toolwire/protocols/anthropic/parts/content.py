"""Anthropic's content blocks, to canonical parts and back."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.canonical.content import (
    Data,
    FileId,
    Foreign,
    Inline,
    ItemRef,
    Media,
    Nested,
    Part,
    PlainText,
    Reasoning,
    ReasoningText,
    Refusal,
    Seal,
    SettingChange,
    Source,
    Text,
    ToolCall,
    ToolChange,
    ToolResult,
    Url,
)
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.tools import ToolRef
from toolwire.codec.fields import Other
from toolwire.codec.kept import emit, given, known, rest
from toolwire.codec.media import summary, summed_up
from toolwire.codec.plan import Plan
from toolwire.codec.settings import report_setting
from toolwire.codec.telling import gist_of
from toolwire.codec.turns import Placed
from toolwire.protocols.anthropic.request.tools import decode_cache, encode_cache
from toolwire.protocols.anthropic.wire import (
    FAMILY,
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

from .calls import (
    NOT_ERROR,
    decode_change,
    decode_mcp_use,
    decode_server_result,
    decode_tool_reference,
    decode_tool_use,
    encode_asked,
    encode_call,
    encode_change,
    encode_found,
    encode_server_result,
    encode_tool_reference,
    gist,
    read_change,
    read_mcp_use,
    read_server_result,
)
from .citations import cite, decode_citation, encode_citation
from .computer import BROWSER_STATE, tabs_told

FAILED = "The tool failed and said nothing."
"""The provider refuses a failed result without words."""
STRING = "anthropic:string"
_NO_SIGNATURE = "anthropic:empty:signature"
_STRING = (STRING,)

IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")

_decode = msgspec.json.Decoder().decode
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode


# ---- decode


def decode_blocks(blocks: list[Any]) -> tuple[Part, ...]:
    return tuple([_DECODERS[type(block)](block) for block in blocks])


def _decode_text(block: TextBlock) -> Text:
    if block.cache_control is UNSET and block.citations is UNSET and block.unknown is UNSET and block.nulls is UNSET:
        return Text(text=block.text)
    notes = None if not isinstance(block.citations, list) else tuple(map(decode_citation, block.citations))
    return Text(text=block.text, annotations=notes, cache=decode_cache(block.cache_control), **rest(block, FAMILY))


def _decode_image(block: ImageBlock) -> Media:
    source, media_type = _decode_source(block.source)
    cache = decode_cache(block.cache_control)
    return Media(kind="image", source=source, media_type=media_type, cache=cache, **rest(block, FAMILY))


def _decode_document(block: DocumentBlock) -> Media:
    source, media_type = _decode_source(block.source)
    return Media(
        kind="document",
        source=source,
        media_type=media_type,
        name=known(block.title),
        cache=decode_cache(block.cache_control),
        **rest(block, FAMILY),
    )


def _decode_source(shape: SourceShape) -> tuple[Source, str | None]:
    kept = rest(shape, FAMILY)
    media_type = known(shape.media_type)
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
            return Nested(parts=(Text(text=shape.content, at="/content"),), **(kept | {"form": (STRING,)})), media_type
        case "content" if isinstance(shape.content, list):
            return Nested(parts=decode_blocks(shape.content), **kept), media_type
        case other:
            raise DecodeError(FAMILY, "", "a source of type base64, text, url, file or content", other)


def _decode_thinking(block: ThinkingBlock) -> Reasoning:
    seal = None
    if block.signature:
        seal = Seal(issuer=FAMILY, data=block.signature, kind="signature")
    content = (ReasoningText(kind="full", text=block.thinking, at=""),) if block.thinking else ()
    form = () if seal is not None or block.signature is UNSET else (_NO_SIGNATURE,)
    return Reasoning(content=content, hidden=None if content else "omitted", seal=seal, **rest(block, FAMILY, *form))


def _decode_redacted(block: RedactedBlock) -> Reasoning:
    seal = Seal(issuer=FAMILY, data=block.data, kind="encrypted", at="/data")
    return Reasoning(hidden="redacted", seal=seal, **rest(block, FAMILY))


def _decode_tool_result(block: ToolResultBlock) -> ToolResult:
    bare = block.unknown is UNSET and block.nulls is UNSET and block.toolset_name is UNSET
    if bare and type(block.content) is str and block.is_error is UNSET and block.cache_control is UNSET:
        return ToolResult(call_id=block.tool_use_id, content=(Text(text=block.content, at="/content"),), form=_STRING)
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
        toolset=known(block.toolset_name),
        cache=decode_cache(block.cache_control),
        **rest(block, FAMILY, *form),
    )


def _decode_other(other: Other) -> Part:
    match other.tag:
        case "mcp_tool_use":
            return decode_mcp_use(read_mcp_use(other.body, other.path))
        case "tool_addition" | "tool_removal":
            return decode_change(read_change(other.body, other.path), other.path)
        case tag if tag.endswith("_tool_result"):
            return decode_server_result(read_server_result(other.body, other.path))
        case tag:
            told = tabs_told(other.body) if tag == BROWSER_STATE else gist(other.body)
            return Foreign(protocol=FAMILY, kind=tag, body=other.body, gist=told)


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
    Other: _decode_other,
}


# ---- encode


def encode_parts(places: list[Placed], plan: Plan, first: int = 0) -> list[Any]:
    """The blocks, of which the first one stands at this place."""
    blocks: list[Any] = []
    for placed in places:
        plan.count = first + len(blocks)
        block = _ENCODERS[type(placed.part)](placed.part, placed, plan)
        if type(block) is list:
            blocks += block
        elif block is not None:
            blocks.append(block)
    return blocks


def _encode_text(part: Text, placed: Placed, plan: Plan) -> Any:
    refused = not plan.home and (not part.text or (part.text.isspace() and not plan.answering))
    if part.cache is None and part.annotations is None and part.seal is None and not refused:
        return emit(TextBlock(text=part.text), part, FAMILY)
    if part.seal is not None:
        plan.report.dropped((*placed.trail, "seal"), "", "a seal goes only to its issuer")
    if refused:
        plan.report.dropped(placed.trail, "", f"the target refuses {'blank' if part.text else 'empty'} text")
        return None
    notes: list[Any] | UnsetType = UNSET
    if part.annotations is not None and plan.home:
        notes = [encode_citation(note) for note in part.annotations]
    elif part.annotations:
        notes = []
        for index, note in enumerate(part.annotations):
            place = f"/content/{plan.count}/citations/{len(notes)}"
            if (cited := cite(note, (*placed.trail, "annotations", index), place, plan)) is not None:
                notes.append(cited)
        notes = notes or UNSET
    return emit(
        TextBlock(text=part.text, citations=notes, cache_control=encode_cache(part.cache, placed.trail, plan)),
        part,
        FAMILY,
    )


def _encode_media(part: Media, placed: Placed, plan: Plan) -> Any:
    if plan.answering and not plan.home:
        plan.report.dropped(placed.trail, "", "the target's answers hold no media")
        return None
    source = _encode_source(part, placed, plan)
    if source is None:
        return None
    if part.seal is not None:
        plan.report.dropped(placed.trail, "seal", "a seal goes only to its issuer")
    if part.detail is not None:
        plan.report.dropped(placed.trail, "detail")
    cache = encode_cache(part.cache, placed.trail, plan)
    if part.kind == "image":
        if part.name is not None:
            plan.report.dropped(placed.trail, "name")
        return emit(ImageBlock(source=source, cache_control=cache), part, FAMILY)
    return emit(DocumentBlock(source=source, title=given(part.name), cache_control=cache), part, FAMILY)


def _encode_source(part: Media, placed: Placed, plan: Plan) -> Any:
    """Where the bytes are; None, reported, if this provider can't take them."""
    source, media_type = part.source, given(part.media_type)
    match source:
        case Inline() if plan.home or part.media_type in IMAGES or part.media_type == "application/pdf":
            shape = SourceShape(type="base64", media_type=media_type, data=source.data)
        case PlainText():
            if not plan.home:
                media_type = "text/plain"
            shape = SourceShape(type="text", media_type=media_type, data=source.text)
        case Url() if plan.home or part.kind in ("image", "document"):
            if part.media_type is not None and not plan.home:
                plan.report.dropped(placed.trail, "media_type", "the target asks the address for it")
            shape = SourceShape(type="url", media_type=media_type if plan.home else UNSET, url=source.url)
        case FileId() if source.issuer == FAMILY:
            shape = SourceShape(type="file", media_type=media_type, file_id=source.id)
        case Nested():
            content: Any = encode_parts([Placed(inner, placed.trail) for inner in source.parts], plan)
            if STRING in source.form and len(source.parts) == 1 and isinstance(only := source.parts[0], Text):
                content = only.text
            shape = SourceShape(type="content", media_type=media_type, content=content)
        case FileId():
            plan.report.dropped(placed.trail, "", f"a file that only {source.issuer} holds")
            return None
        case _:
            plan.report.dropped(placed.trail, "", f"the target takes no {part.media_type or part.kind} here")
            return None
    return emit(shape, source, FAMILY)


def _encode_data(part: Data, placed: Placed, plan: Plan) -> Any:
    return TextBlock(text=str(part.json, "utf-8"))


def _encode_reasoning(part: Reasoning, placed: Placed, plan: Plan) -> Any:
    """Thinking goes back only as the provider sealed it; unsealed it would be refused. A client may read it all."""
    seal = part.seal
    for index, block in enumerate(part.content):
        if isinstance(block, Media):
            plan.report.dropped((*placed.trail, "content", index), "", "the target's thinking is text only")
    if not plan.home and (seal is None or seal.issuer != FAMILY):
        if not plan.answering:
            plan.report.dropped(placed.trail, "", "reasoning that this provider did not seal can't be sent to it")
            return None
        text = "\n\n".join(block.text for block in part.content if isinstance(block, ReasoningText))
        plan.unproved(part, placed.trail)
        if part.id is not None:
            plan.report.dropped(placed.trail, "id")
        return ThinkingBlock(thinking=text, signature="") if text else None
    if part.id is not None and not plan.home:
        plan.report.dropped(placed.trail, "id")
    if part.hidden == "redacted" and seal is not None:
        return emit(RedactedBlock(data=seal.data), part, FAMILY)
    text = ("" if plan.home else "\n\n").join(one.text for one in part.content if isinstance(one, ReasoningText))
    unsigned: Any = "" if _NO_SIGNATURE in part.form else UNSET
    return emit(ThinkingBlock(thinking=text, signature=unsigned if seal is None else seal.data), part, FAMILY)


def _encode_result(part: ToolResult, placed: Placed, plan: Plan) -> Any:
    if part.executor == "server":
        return encode_server_result(part, placed, plan)
    content: Any = UNSET
    if part.content is not None:
        places = [Placed(inner, (*placed.trail, "content", index)) for index, inner in enumerate(part.content)]
        if plan.target.binary_results == "summary":
            places = summed_up(places, plan.report)
        if part.status != "ok" and not plan.home:
            places = _text_only(places, plan)
        content = _encode_string(part, plan)
        if content is None:
            content = encode_parts(places, plan) if plan.home else _shown(places, plan)
    if not content and not plan.home:
        content = FAILED if part.status != "ok" else UNSET
    shape = ToolResultBlock(tool_use_id=plan.call_id(part.call_id or ""), content=content)
    if not plan.home:
        plan.report_name(part, placed.trail)
    if part.status == "denied":
        plan.report.approximated(placed.trail, "status", "denied is told as an error")
    if part.status != "ok":
        shape.is_error = True
    elif NOT_ERROR in part.form:
        shape.is_error = False
    shape.toolset_name = given(part.toolset)
    shape.cache_control = encode_cache(part.cache, placed.trail, plan)
    return emit(shape, part, FAMILY)


def _text_only(places: list[Placed], plan: Plan) -> list[Placed]:
    """What the provider takes of a failed result."""
    for placed in places:
        if isinstance(placed.part, Media):
            plan.report.dropped(placed.trail, "", "the target's failed results are text only")
    told = [Text(text=summary(one.part)) if isinstance(one.part, Media) else one.part for one in places]
    return [Placed(part, placed.trail) for part, placed in zip(told, places, strict=True)]


def _shown(places: list[Placed], plan: Plan) -> list[Any]:
    """The blocks of a result, with a line in place of media that the provider can't take."""
    blocks: list[Any] = []
    for placed in places:
        shown = encode_parts([placed], plan)
        blocks += shown or ([TextBlock(text=summary(placed.part))] if isinstance(placed.part, Media) else [])
    return blocks


def _encode_string(part: ToolResult, plan: Plan) -> str | None:
    """The content as a bare string, where that says all of it."""
    if part.content is None or len(part.content) != 1:
        return None
    only = part.content[0]
    bare = isinstance(only, Text) and only.cache is None and not only.extras and only.annotations is None
    if not bare or (plan.home and STRING not in part.form):
        return None
    return only.text if isinstance(only, Text) else None


def _encode_setting(part: SettingChange, placed: Placed, plan: Plan) -> None:
    """At home the message carries it, not its content."""
    if not plan.home:
        report_setting(part, placed.trail, plan)


def _encode_refusal(part: Refusal, placed: Placed, plan: Plan) -> Any:
    plan.report.approximated(placed.trail, "", "a refusal is told as text")
    return TextBlock(text=part.text) if part.text else None


def _encode_item_reference(part: ItemRef, placed: Placed, plan: Plan) -> None:
    plan.report.dropped(placed.trail, "id", "what another provider stored can't be named to this one")


def _encode_foreign(part: Foreign, placed: Placed, plan: Plan) -> Any:
    if part.protocol == FAMILY:
        return part.body
    if part.called and plan.answering:
        return encode_parts([Placed(one, placed.trail) for one in part.called], plan, plan.count)
    if part.use is not None and plan.answering:
        plan.report.approximated(placed.trail, "", "what another provider ran, told as a call and its result")
        call = encode_asked(part.use, plan)
        plan.count += 1
        return [call, encode_found(part.use, placed, plan, failed=part.use.failed)]
    text = gist_of(part, placed.trail, plan)
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
    Foreign: _encode_foreign,
}
