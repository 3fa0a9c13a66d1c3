"""Anthropic's content blocks, to canonical parts and back."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import (
    Caller,
    Citation,
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
    ToolRef,
    ToolResult,
    Url,
)
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.tools import Tool
from toolwire.codec.fields import Other, Reader, emit, given, known, rest
from toolwire.codec.plan import Plan
from toolwire.codec.tools import PlacedTool, lower_input
from toolwire.codec.turns import Placed

from .wire import (
    FAMILY,
    CallerShape,
    ChangeShape,
    CitationShape,
    DocumentBlock,
    ImageBlock,
    McpUse,
    RedactedBlock,
    ReferenceShape,
    ServerResult,
    ServerToolUseBlock,
    SourceShape,
    TextBlock,
    ThinkingBlock,
    ToolReferenceBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from .tools import decode_cache, decode_tool, encode_cache, encode_tool

STRING = "anthropic:string"
NOT_ERROR = "anthropic:is_error:false"

IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")

_decode = msgspec.json.Decoder().decode
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode

_read_mcp_use = Reader[McpUse](McpUse, FAMILY).read
_read_server_result = Reader[ServerResult](ServerResult, FAMILY).read
_read_change = Reader[ChangeShape](ChangeShape, FAMILY).read
_read_reference = Reader[ReferenceShape](ReferenceShape, FAMILY).read


# ---- decode


def decode_blocks(blocks: list[Any]) -> tuple[Part, ...]:
    return tuple([_DECODERS[type(block)](block) for block in blocks])


def _decode_text(block: TextBlock) -> Text:
    if block.cache_control is UNSET and block.citations is UNSET and block.unknown is UNSET and block.nulls is UNSET:
        return Text(text=block.text)
    notes = None if not isinstance(block.citations, list) else tuple(map(decode_citation, block.citations))
    return Text(text=block.text, annotations=notes, cache=decode_cache(block.cache_control), **rest(block, FAMILY))


_read_citation = Reader[CitationShape](CitationShape, FAMILY).read


def decode_citation(raw: Raw) -> Citation:
    shape = _read_citation(raw)
    return Citation(
        url=known(shape.url), title=known(shape.title), quote=known(shape.cited_text), **rest(shape, FAMILY)
    )


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
    if block.signature is not UNSET:
        seal = Seal(issuer=FAMILY, data=block.signature, kind="signature")
    content = (ReasoningText(kind="full", text=block.thinking, at=""),) if block.thinking else ()
    return Reasoning(content=content, hidden=None if content else "omitted", seal=seal, **rest(block, FAMILY))


def _decode_redacted(block: RedactedBlock) -> Reasoning:
    seal = Seal(issuer=FAMILY, data=block.data, kind="encrypted", at="/data")
    return Reasoning(hidden="redacted", seal=seal, **rest(block, FAMILY))


def _decode_tool_use(block: ToolUseBlock) -> ToolCall:
    server = isinstance(block, ServerToolUseBlock)
    arguments = "" if block.input is UNSET else str(block.input, "utf-8")
    if not server and block.caller is UNSET and block.cache_control is UNSET and block.toolset_name is UNSET:
        return ToolCall(id=block.id, name=block.name, arguments=arguments, **rest(block, FAMILY))
    return ToolCall(
        id=block.id,
        name=block.name,
        arguments=arguments,
        executor="server" if server else "client",
        native="server_tool_use" if server else None,
        toolset=known(block.toolset_name),
        caller=_decode_caller(block.caller),
        cache=decode_cache(block.cache_control),
        **rest(block, FAMILY),
    )


def _decode_caller(shape: CallerShape | UnsetType) -> Caller | None:
    if shape is UNSET:
        return None
    return Caller(kind=shape.type, id=known(shape.tool_id), **rest(shape, FAMILY))


def _decode_tool_result(block: ToolResultBlock) -> ToolResult:
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


def _decode_tool_reference(block: ToolReferenceBlock) -> ToolRef:
    return ToolRef(name=block.tool_name, cache=decode_cache(block.cache_control), **rest(block, FAMILY))


def _decode_other(other: Other) -> Part:
    match other.tag:
        case "mcp_tool_use":
            return _decode_mcp_use(_read_mcp_use(other.body))
        case "tool_addition" | "tool_removal":
            return _decode_change(_read_change(other.body))
        case tag if tag.endswith("_tool_result"):
            return _decode_server_result(_read_server_result(other.body))
        case tag:
            return Foreign(protocol=FAMILY, kind=tag, body=other.body, gist=gist(other.body))


def _decode_mcp_use(shape: McpUse) -> ToolCall:
    return ToolCall(
        id=shape.id,
        name=shape.name,
        namespace=shape.server_name,
        arguments=str(shape.input, "utf-8"),
        executor="server",
        native="mcp_tool_use",
        cache=decode_cache(shape.cache_control),
        **rest(shape, FAMILY),
    )


def _decode_server_result(shape: ServerResult) -> ToolResult:
    content = None
    if shape.content is not UNSET:
        content = (Foreign(protocol=FAMILY, kind="content", body=shape.content, gist=gist(shape.content), at="/content"),)
    return ToolResult(
        call_id=shape.tool_use_id,
        content=content,
        status="error" if shape.is_error is True else "ok",
        executor="server",
        native=shape.type,
        caller=_decode_caller(shape.caller),
        cache=decode_cache(shape.cache_control),
        **rest(shape, FAMILY, *(() if shape.is_error is not False else (NOT_ERROR,))),
    )


def _decode_change(shape: ChangeShape) -> ToolChange:
    reference = _read_reference(shape.tool)
    kept = rest(shape, FAMILY)
    added: Tool | ToolRef
    if reference.type == "tool_definition" and reference.definition is not UNSET:
        added = replace(decode_tool(reference.definition), at="/tool/definition")
        return ToolChange(add=(added,), **kept)
    added = ToolRef(
        name=reference.name or "",
        server=known(reference.server_name),
        kind="function" if reference.type == "tool_reference" else "server",
        at="/tool",
        **rest(reference, FAMILY),
    )
    return ToolChange(add=(added,), **kept) if shape.type == "tool_addition" else ToolChange(remove=(added,), **kept)


def gist(raw: Raw, limit: int = 100_000) -> str | None:
    """The readable text in a value that others can't use as it is."""
    found: list[str] = []

    def walk(value: object) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                if isinstance(inner, str) and name in _READABLE:
                    found.append(inner)
                else:
                    walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    walk(_decode(raw))
    text = "\n".join(part for part in found if part)
    return text[:limit] or None


_READABLE = frozenset({"text", "title", "url", "stdout", "stderr", "content", "source", "tool_name", "error_code"})

_DECODERS: dict[type, Any] = {
    TextBlock: _decode_text,
    ImageBlock: _decode_image,
    DocumentBlock: _decode_document,
    ThinkingBlock: _decode_thinking,
    RedactedBlock: _decode_redacted,
    ToolUseBlock: _decode_tool_use,
    ServerToolUseBlock: _decode_tool_use,
    ToolResultBlock: _decode_tool_result,
    ToolReferenceBlock: _decode_tool_reference,
    Other: _decode_other,
}


# ---- encode


def encode_parts(places: list[Placed], plan: Plan) -> list[Any]:
    blocks = []
    for placed in places:
        block = _ENCODERS[type(placed.part)](placed.part, placed, plan)
        if block is not None:
            blocks.append(block)
    return blocks


def _encode_text(part: Text, placed: Placed, plan: Plan) -> Any:
    if part.cache is None and part.annotations is None and part.seal is None and (plan.home or part.text):
        return emit(TextBlock(text=part.text), part, FAMILY)
    if not part.text and not plan.home:
        plan.report.dropped(placed.trail, "text", "the target refuses empty text")
        return None
    if part.seal is not None:
        plan.report.dropped(placed.trail, "seal", "a seal goes only to its issuer")
    notes: list[Any] | UnsetType = UNSET
    if part.annotations is not None and plan.home:
        notes = [encode_citation(note) for note in part.annotations]
    elif part.annotations:
        for index in range(len(part.annotations)):
            plan.report.dropped((*placed.trail, "annotations", index), "", "citations only go back to their issuer")
    return emit(TextBlock(text=part.text, citations=notes, cache_control=encode_cache(part.cache)), part, FAMILY)


def encode_citation(note: Citation) -> Any:
    shape = CitationShape(url=given(note.url), title=given(note.title), cited_text=given(note.quote))
    return emit(shape, note, FAMILY)


def _encode_media(part: Media, placed: Placed, plan: Plan) -> Any:
    source = _encode_source(part, placed, plan)
    if source is None:
        return None
    if part.seal is not None:
        plan.report.dropped(placed.trail, "seal", "a seal goes only to its issuer")
    if part.detail is not None:
        plan.report.dropped(placed.trail, "detail")
    cache = encode_cache(part.cache)
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
            shape = SourceShape(type="text", media_type=media_type or "text/plain", data=source.text)
        case Url() if plan.home or part.kind in ("image", "document"):
            shape = SourceShape(type="url", media_type=media_type if plan.home else UNSET, url=source.url)
        case FileId() if source.issuer == FAMILY:
            shape = SourceShape(type="file", media_type=media_type, file_id=source.id)
        case Nested():
            content: Any = encode_parts([Placed(inner, placed.trail) for inner in source.parts], plan)
            if STRING in source.form and len(source.parts) == 1 and isinstance(only := source.parts[0], Text):
                content = only.text
            shape = SourceShape(type="content", media_type=media_type, content=content)
        case FileId():
            plan.report.dropped(placed.trail, "source", f"a file that only {source.issuer} holds")
            return None
        case _:
            plan.report.dropped(placed.trail, "source", f"the target takes no {part.media_type or part.kind} here")
            return None
    return emit(shape, source, FAMILY)


def _encode_data(part: Data, placed: Placed, plan: Plan) -> Any:
    return TextBlock(text=str(part.json, "utf-8"))


def _encode_reasoning(part: Reasoning, placed: Placed, plan: Plan) -> Any:
    """Thinking goes back only as the provider sealed it; unsealed it would be refused."""
    seal = part.seal
    if not plan.home and (seal is None or seal.issuer != FAMILY):
        plan.report.dropped(placed.trail, "", "reasoning that this provider did not seal can't be sent to it")
        return None
    if part.hidden == "redacted" and seal is not None:
        return emit(RedactedBlock(data=seal.data), part, FAMILY)
    text = "".join(block.text for block in part.content if isinstance(block, ReasoningText))
    return emit(ThinkingBlock(thinking=text, signature=UNSET if seal is None else seal.data), part, FAMILY)


def _encode_call(part: ToolCall, placed: Placed, plan: Plan) -> Any:
    if part.executor == "server":
        return _encode_server_call(part, placed, plan)
    if plan.home:
        arguments = Raw(part.arguments.encode()) if part.arguments else UNSET
    else:
        arguments = _encode_arguments(part, placed, plan)
    shape = ToolUseBlock(id=plan.id_of(placed), name=plan.name(part.name, part.namespace), input=arguments)
    if part.caller is not None:
        if plan.home:
            shape.caller = emit(CallerShape(type=part.caller.kind, tool_id=given(part.caller.id)), part.caller, FAMILY)
        elif part.caller.kind != "direct":
            plan.report.dropped(placed.trail, "caller", "the target's programs are another vendor's")
    if part.seal is not None:
        plan.report.dropped(placed.trail, "seal", "a seal goes only to its issuer")
    shape.toolset_name = given(part.toolset)
    shape.cache_control = encode_cache(part.cache)
    return emit(shape, part, FAMILY)


def _encode_arguments(part: ToolCall, placed: Placed, plan: Plan) -> Raw:
    """The arguments as the object that the provider insists on."""
    if part.native is not None:
        plan.report.approximated(placed.trail, "", f"{part.native} as a call of a function")
    if part.shape == "freeform":
        return Raw(lower_input(part.arguments).encode())
    text = part.arguments.strip().encode()
    if text in (b"", b"null"):
        return Raw(b"{}")
    try:
        _decode_object(text)
    except (msgspec.DecodeError, RecursionError):
        plan.report.approximated(placed.trail, "arguments", "not a JSON object: sent inside one, as text")
        return Raw(msgspec.json.encode({"_raw": part.arguments}))
    return Raw(text)


def _encode_server_call(part: ToolCall, placed: Placed, plan: Plan) -> Any:
    if not plan.home:
        plan.report.approximated(placed.trail, "", "a call that another provider ran: told as text")
        return TextBlock(text=f"[{part.name} was called with {part.arguments}]")
    arguments = Raw(part.arguments.encode()) if part.arguments else UNSET
    if part.native == "mcp_tool_use":
        body = Raw(b"{}") if arguments is UNSET else arguments
        name = part.namespace or ""
        use = McpUse(type="mcp_tool_use", id=part.id or "", name=part.name, server_name=name, input=body)
        use.cache_control = encode_cache(part.cache)
        return emit(use, part, FAMILY)
    shape = ServerToolUseBlock(id=part.id or "", name=part.name, input=arguments, toolset_name=given(part.toolset))
    if part.caller is not None:
        shape.caller = emit(CallerShape(type=part.caller.kind, tool_id=given(part.caller.id)), part.caller, FAMILY)
    shape.cache_control = encode_cache(part.cache)
    return emit(shape, part, FAMILY)


def _encode_result(part: ToolResult, placed: Placed, plan: Plan) -> Any:
    if part.executor == "server":
        return _encode_server_result(part, placed, plan)
    content: Any = UNSET
    if part.content is not None:
        places = [Placed(inner, (*placed.trail, "content", index)) for index, inner in enumerate(part.content)]
        content = _encode_string(part, plan) or encode_parts(places, plan)
        if not content and not plan.home:
            content = UNSET
    shape = ToolResultBlock(tool_use_id=plan.call_id(part.call_id or ""), content=content)
    if part.status == "denied":
        plan.report.approximated(placed.trail, "status", "denied is told as an error")
    if part.status != "ok":
        shape.is_error = True
    elif NOT_ERROR in part.form:
        shape.is_error = False
    shape.toolset_name = given(part.toolset)
    shape.cache_control = encode_cache(part.cache)
    return emit(shape, part, FAMILY)


def _encode_string(part: ToolResult, plan: Plan) -> str | None:
    """The content as a bare string, where that says all of it."""
    if part.content is None or len(part.content) != 1:
        return None
    only = part.content[0]
    bare = isinstance(only, Text) and only.cache is None and not only.extras and only.annotations is None
    if not bare or (plan.home and STRING not in part.form):
        return None
    return only.text if isinstance(only, Text) else None


def _encode_server_result(part: ToolResult, placed: Placed, plan: Plan) -> Any:
    content = part.content[0] if part.content else None
    if not plan.home:
        text = content.gist if isinstance(content, Foreign) else None
        plan.report.approximated(placed.trail, "", "a result that another provider got: told as text")
        return TextBlock(text=f"[{part.native}: {text or 'no readable content'}]")
    body = content.body if isinstance(content, Foreign) else UNSET
    shape = ServerResult(type=part.native or "", tool_use_id=part.call_id or "", content=body)
    if part.status == "error" or NOT_ERROR in part.form:
        shape.is_error = part.status == "error"
    if part.caller is not None:
        shape.caller = emit(CallerShape(type=part.caller.kind, tool_id=given(part.caller.id)), part.caller, FAMILY)
    shape.cache_control = encode_cache(part.cache)
    return emit(shape, part, FAMILY)


def _encode_tool_reference(part: ToolRef, placed: Placed, plan: Plan) -> Any:
    shape = ToolReferenceBlock(tool_name=plan.name(part.name, part.namespace), cache_control=encode_cache(part.cache))
    return emit(shape, part, FAMILY)


def _encode_change(part: ToolChange, placed: Placed, plan: Plan) -> Any:
    if not plan.home:
        plan.report.approximated(placed.trail, "", "tools that come later are declared from the start")
        return None
    kind, changed = ("tool_addition", part.add) if part.add else ("tool_removal", part.remove)
    tool = changed[0]
    if isinstance(tool, ToolRef):
        names = {"function": "tool_reference", "server": "mcp_tool_reference" if tool.name else "mcp_toolset_reference"}
        reference = ReferenceShape(
            type=names.get(tool.kind, "tool_reference"), name=tool.name or UNSET, server_name=given(tool.server)
        )
        inner = emit(reference, tool, FAMILY)
    else:
        inner = {"type": "tool_definition", "definition": encode_tool(PlacedTool(tool, placed.trail), plan)}
    return emit(ChangeShape(type=kind, tool=inner), part, FAMILY)


def _encode_setting(part: SettingChange, placed: Placed, plan: Plan) -> None:
    """At home the message carries it, not its content."""
    if not plan.home:
        plan.report.dropped(placed.trail, "", "the target can't change settings within a conversation")


def _encode_refusal(part: Refusal, placed: Placed, plan: Plan) -> Any:
    plan.report.approximated(placed.trail, "text", "a refusal is told as text")
    return TextBlock(text=part.text) if part.text else None


def _encode_item_reference(part: ItemRef, placed: Placed, plan: Plan) -> None:
    plan.report.dropped(placed.trail, "id", "what another provider stored can't be named to this one")


def _encode_foreign(part: Foreign, placed: Placed, plan: Plan) -> Any:
    if part.protocol == FAMILY:
        return part.body
    if part.gist:
        plan.report.approximated(placed.trail, "", f"only {part.protocol} has {part.kind}: its text is told")
        return TextBlock(text=part.gist)
    plan.report.dropped(placed.trail, "", f"only {part.protocol} has {part.kind}")
    return None


_ENCODERS: dict[type, Any] = {
    Text: _encode_text,
    Media: _encode_media,
    Data: _encode_data,
    Reasoning: _encode_reasoning,
    ToolCall: _encode_call,
    ToolResult: _encode_result,
    ToolRef: _encode_tool_reference,
    ToolChange: _encode_change,
    SettingChange: _encode_setting,
    Refusal: _encode_refusal,
    ItemRef: _encode_item_reference,
    Foreign: _encode_foreign,
}
