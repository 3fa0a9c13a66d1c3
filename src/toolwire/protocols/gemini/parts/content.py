"""Gemini's parts, to canonical parts and back."""

from itertools import pairwise
from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.content import (
    Data,
    FileId,
    Foreign,
    Inline,
    ItemRef,
    Media,
    Part,
    Reasoning,
    ReasoningText,
    Refusal,
    SettingChange,
    Text,
    ToolCall,
    ToolChange,
    ToolResult,
    Url,
)
from toolwire.canonical.tools import ToolRef
from toolwire.codec.kept import given
from toolwire.codec.losses import Trail
from toolwire.codec.plan import Plan
from toolwire.codec.settings import report_setting
from toolwire.codec.telling import gist_of
from toolwire.codec.tools import report_change
from toolwire.codec.turns import Placed
from toolwire.protocols.gemini.wire import FAMILY, ISSUER, BlobShape, FileShape, PartShape

from .calls import (
    SIBLING,
    decode_call,
    decode_result,
    encode_call,
    encode_result,
    ordinary_call,
    ordinary_result,
)
from .hosted import (
    decode_code,
    decode_code_result,
    decode_hosted_call,
    decode_hosted_result,
    encode_server_call,
    encode_server_result,
    encode_used,
)
from .media import THOUGHT_FALSE, decode_file, decode_inline, encode_bytes, encode_media, kept_beside
from .signatures import HANDED_ON, decode_seal
from .spelling import Spelling, whole, write

_EMPTY_THOUGHT = "gemini:text:empty"

# ---- decode


def decode_parts(parts: list[PartShape], path: str) -> tuple[Part, ...]:
    found: list[Part] = []
    results = False
    for index, part in enumerate(parts):
        if type(part.text) is str and part == PartShape(text=part.text):
            found.append(Text(text=part.text))
            continue
        made = ordinary_call(part) or ordinary_result(part) or decode_part(part, f"{path}/{index}")
        results = results or isinstance(made, ToolResult)
        found.append(made)
    return _with_siblings(found) if results else tuple(found)


def decode_part(part: PartShape, path: str) -> Part:
    spelling = Spelling(path)
    body = None if part.unknown is UNSET else whole(part)
    spelling.read(part)
    members = [name for name in _DECODERS if getattr(part, name) is not UNSET]
    made: Part | None = _DECODERS[members[0]](part, spelling) if len(members) == 1 else None
    if made is not None:
        return made
    kind = members[0] if members else next(iter(part.unknown or ()), "part")
    raw = Raw(msgspec.json.encode(whole(part) if body is None else body))
    return Foreign(protocol=FAMILY, kind=kind, body=raw)


def _with_siblings(parts: list[Part]) -> tuple[Part, ...]:
    """Media right after a result belong to it. Since they stand beside it, so do the names that losses use."""
    if len(parts) == 1 or not any(
        isinstance(one, ToolResult) and isinstance(after, Media) for one, after in pairwise(parts)
    ):
        return tuple(parts)
    out: list[Part] = []
    for index, part in enumerate(parts):
        last = out[-1] if out else None
        owned = isinstance(last, ToolResult) and last.executor == "client" and last.extras is None
        if isinstance(part, Media) and isinstance(last, ToolResult) and owned:
            inner = replace(part, at=f"/parts/{index}", form=(*part.form, SIBLING))
            if last.at != "":
                last = _beside_parts(last, index - 1)
            out[-1] = replace(last, content=(*(last.content or ()), inner))
        else:
            out.append(replace(part, at=f"/parts/{index}"))
    return tuple(out)


def _beside_parts(result: ToolResult, index: int) -> ToolResult:
    """The result as one that stands at its whole content, with its own part as a place below."""
    place = f"parts/{index}"
    names = {"call_id": "id", "name": "name", "content": "response", "status": "response/error"}
    own = next((t.split("=")[1].split("/")[0] for t in result.form if t.startswith("gemini:name:name=")), None)
    base = f"{place}/{own or 'functionResponse'}"
    form = [token for token in result.form if not token.startswith("gemini:name:")]
    form += [f"gemini:name:{field}={base}/{wire}" for field, wire in names.items()]
    content = None
    if result.content is not None:
        content = tuple(replace(one, at=f"/{place}{one.at}") for one in result.content)
    return replace(result, at="", content=content, form=tuple(form))


def _decode_text(part: PartShape, spelling: Spelling) -> Text | Reasoning:
    text = "" if part.text is UNSET else part.text
    if part.thought is not True:
        return Text(text=text, seal=decode_seal(part), **kept_beside("Text", part, spelling))
    content = (ReasoningText(kind="summary", text=text, at=""),) if text else ()
    form = () if text else (_EMPTY_THOUGHT,)
    return Reasoning(content=content, seal=decode_seal(part), **kept_beside("Reasoning", part, spelling, form=form))


_DECODERS: dict[str, Any] = {
    "text": _decode_text,
    "inline_data": decode_inline,
    "file_data": decode_file,
    "function_call": decode_call,
    "function_response": lambda part, spelling: decode_result(part, spelling, decode_part),
    "executable_code": decode_code,
    "code_execution_result": decode_code_result,
    "tool_call": decode_hosted_call,
    "tool_response": decode_hosted_result,
}


# ---- encode


def encode_parts(places: list[Placed], plan: Plan) -> list[Any]:
    found: list[Any] = []
    for placed in places:
        found += _ENCODERS[type(placed.part)](placed.part, placed, plan)
    return found


def _encode_text(part: Text, placed: Placed, plan: Plan) -> list[Any]:
    shape = PartShape(text=part.text)
    if plan.home:
        if part.seal is not None:
            shape.thought_signature = part.seal.data
        if THOUGHT_FALSE in part.form:
            shape.thought = False
        return [write(shape, part)]
    if part.seal is None and part.text and part.cache is None and part.annotations is None and part.id is None:
        return [shape]
    if part.seal is not None and part.seal.issuer == ISSUER:
        shape.thought_signature = part.seal.data
    elif not part.text:
        plan.report.dropped(placed.trail, "", "empty text says nothing here")
        return []
    report_text(part, placed.trail, plan)
    return [shape]


def report_text(part: Text, trail: Trail, plan: Plan) -> None:
    """What a text of another protocol has no place for here."""
    if part.seal is not None and part.seal.issuer != ISSUER:
        plan.report.dropped((*trail, "seal"), "", "a seal goes only to its issuer")
    if part.id is not None:
        plan.report.dropped(trail, "id")
    if part.cache is not None:
        plan.report.dropped((*trail, "cache"), "", "the target finds out by itself what to keep")
    for index, note in enumerate(part.annotations or ()):
        if note.url is None or not plan.answering:
            plan.report.dropped((*trail, "annotations", index), "", "the target cites pages only, in answers")
        elif note.quote is not None:
            plan.report.dropped((*trail, "annotations", index), "quote")


def _encode_data(part: Data, placed: Placed, plan: Plan) -> list[Any]:
    return [PartShape(text=str(part.json, "utf-8"))]


def _encode_reasoning(part: Reasoning, placed: Placed, plan: Plan) -> list[Any]:
    """Thoughts go back only as Google signed them. A client may read them all."""
    seal = part.seal
    own = HANDED_ON in part.form or (seal is not None and seal.issuer == ISSUER)
    for index, one in enumerate(part.content):
        if isinstance(one, Media) and index > 0:
            plan.report.dropped((*placed.trail, "content", index), "", "a thought is a text or a picture, not both")
    if plan.home:
        return [write(_thought(part), part)]
    if not own and not plan.answering:
        plan.report.dropped(placed.trail, "", "reasoning that this provider did not seal can't be sent to it")
        return []
    if seal is not None and not own:
        plan.report.dropped((*placed.trail, "seal"), "", "the target has no place for another issuer's proof")
    if part.id is not None:
        plan.report.dropped(placed.trail, "id")
    shape = _thought(part)
    if not own:
        shape.thought_signature = UNSET
    return [shape] if part.content or shape.thought_signature is not UNSET else []


def _thought(part: Reasoning) -> PartShape:
    first = part.content[0] if part.content else None
    if isinstance(first, Media):
        shape = PartShape()
        if isinstance(first.source, Inline):
            shape.inline_data = BlobShape(
                mime_type=given(first.media_type), data=encode_bytes(first.source), display_name=given(first.name)
            )
        elif isinstance(first.source, Url | FileId):
            uri = first.source.url if isinstance(first.source, Url) else first.source.id
            shape.file_data = FileShape(file_uri=uri, mime_type=given(first.media_type), display_name=given(first.name))
    else:
        shape = PartShape(text="\n\n".join([one.text for one in part.content if isinstance(one, ReasoningText)]))
    shape.thought = True
    if part.seal is not None:
        shape.thought_signature = part.seal.data
    return shape


def _encode_call(part: ToolCall, placed: Placed, plan: Plan) -> list[Any]:
    return encode_server_call(part, placed, plan) if part.executor == "server" else encode_call(part, placed, plan)


def _encode_result(part: ToolResult, placed: Placed, plan: Plan) -> list[Any]:
    if part.executor == "server":
        return encode_server_result(part, placed, plan)
    return encode_result(part, placed, plan, encode_parts)


def _encode_reference(part: ToolRef, placed: Placed, plan: Plan) -> list[Any]:
    plan.report.approximated(placed.trail, "", "the target has no references to tools: the name is told")
    return [PartShape(text=f"[tool: {plan.name(part.name, part.namespace)}]")]


def _encode_change(part: ToolChange, placed: Placed, plan: Plan) -> list[Any]:
    report_change(part, placed.trail, plan.report)
    return []


def _encode_setting(part: SettingChange, placed: Placed, plan: Plan) -> list[Any]:
    report_setting(part, placed.trail, plan)
    return []


def _encode_refusal(part: Refusal, placed: Placed, plan: Plan) -> list[Any]:
    plan.report.approximated(placed.trail, "", "a refusal is told as text")
    return [PartShape(text=part.text)] if part.text else []


def _encode_item_reference(part: ItemRef, placed: Placed, plan: Plan) -> list[Any]:
    plan.report.dropped(placed.trail, "id", "what another provider stored can't be named to this one")
    return []


def _encode_foreign(part: Foreign, placed: Placed, plan: Plan) -> list[Any]:
    if part.protocol == FAMILY:
        return [part.body]
    if part.use is not None and plan.answering:
        plan.report.approximated(placed.trail, "", "what another provider ran, told as a call and its result")
        return encode_used(part.use, plan)
    if part.media is not None and plan.answering:
        plan.report.approximated(placed.trail, "", "what a tool made, told as the model's own")
        return encode_media(part.media, Placed(part.media, (*placed.trail, "media")), plan)
    text = gist_of(part, placed.trail, plan)
    return [] if text is None else [PartShape(text=text)]


_ENCODERS: dict[type, Any] = {
    Text: _encode_text,
    Media: encode_media,
    Data: _encode_data,
    Reasoning: _encode_reasoning,
    ToolCall: _encode_call,
    ToolResult: _encode_result,
    ToolRef: _encode_reference,
    ToolChange: _encode_change,
    SettingChange: _encode_setting,
    Refusal: _encode_refusal,
    ItemRef: _encode_item_reference,
    Foreign: _encode_foreign,
}
