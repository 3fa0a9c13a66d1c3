"""Gemini's calls and results of functions, to canonical parts and back."""

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import Data, Media, Part, Seal, Text, ToolCall, ToolResult
from toolwire.canonical.errors import DecodeError
from toolwire.codec.ids import is_made
from toolwire.codec.kept import given, joined, known
from toolwire.codec.media import summary, summed_up
from toolwire.codec.plan import Plan
from toolwire.codec.tools import lower_input
from toolwire.codec.turns import Placed
from toolwire.protocols.gemini.wire import (
    FAMILY,
    ISSUER,
    CallShape,
    OrdinaryCall,
    PartShape,
    ResultShape,
)
from toolwire.protocols.google_acting import NATIVE as SCREEN
from toolwire.protocols.google_acting import in_object

from .signatures import decode_seal, is_dummy
from .spelling import Spelling, extra, write

NO_ARGS = "gemini:absent:args"
SIBLING = "gemini:sibling"
"""Media beside the result that it belongs to, as models before Gemini 3 want it."""
_RESPONSE = "gemini:response:"
OUTPUT = (_RESPONSE + "output",)
_NO_PARTS = "gemini:parts:empty"
_CONVENTIONS = ("output", "result")
FAILED = "The tool failed and said nothing."
_EARLY = re.compile(r"gemini-[12](?:\D|$)")

# In an object the server takes these for references to media of the result, and refuses others.
_REFERENCES = (b'"$ref"', b'"$defs"')

_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode = msgspec.json.Decoder().decode


class _Output(msgspec.Struct, forbid_unknown_fields=True):
    output: str


_read_output = msgspec.json.Decoder(_Output).decode


def is_early(plan: Plan) -> bool:
    """Whether the model is older than Gemini 3: without signatures to check, and without media in results."""
    return plan.target.model is not None and _EARLY.search(plan.target.model) is not None


# ---- decode


def beside(part: PartShape, spelling: Spelling, *, sealed: bool = True) -> dict[str, Any]:
    """What stands beside the data of a part and has no canonical home there."""
    found: list[dict[str, Any]] = []
    if part.thought_signature is not UNSET and (not sealed or is_dummy(part.thought_signature)):
        found.append(extra(spelling.source("thoughtSignature"), part.thought_signature))
    if part.thought is not UNSET:
        found.append(extra("thought", part.thought) if part.thought else {"form": ("gemini:thought:false",)})
    return joined(*found) if found else {}


def ordinary_call(part: PartShape) -> ToolCall | None:
    """A call with nothing about it that has to be kept, as most are; None for anything else."""
    call, signature = part.function_call, part.thought_signature
    if type(call) is not CallShape or part != PartShape(function_call=call, thought_signature=signature):
        return None
    if call.name is UNSET or call.args is UNSET or call != CallShape(name=call.name, args=call.args, id=call.id):
        return None
    return plain_call(OrdinaryCall(name=call.name, args=call.args, id=call.id), signature)


def plain_call(call: OrdinaryCall, signature: str | UnsetType) -> ToolCall:
    id, arguments = known(call.id), str(call.args, "utf-8")
    if signature is UNSET:
        return ToolCall(id=id, name=call.name, arguments=arguments)
    if is_dummy(signature):
        return ToolCall(id=id, name=call.name, arguments=arguments, **joined(extra("thoughtSignature", signature)))
    seal = Seal(issuer=ISSUER, data=signature, kind="signature")
    return ToolCall(id=id, name=call.name, arguments=arguments, seal=seal)


def ordinary_result(part: PartShape) -> ToolResult | None:
    """A result of text under `output`, likewise."""
    result = part.function_response
    if type(result) is not ResultShape or part != PartShape(function_response=result):
        return None
    if result.response is UNSET or result.name is UNSET:
        return None
    if result != ResultShape(name=result.name, response=result.response, id=result.id):
        return None
    try:
        output = _read_output(result.response).output
    except msgspec.DecodeError:
        return None
    content = (Text(text=output, at="/functionResponse/response/output"),)
    return ToolResult(call_id=known(result.id), name=result.name, content=content, form=OUTPUT)


def decode_call(part: PartShape, spelling: Spelling) -> ToolCall:
    call = part.function_call
    if call is UNSET:
        raise TypeError("no call")
    spelling.read(call, "functionCall")
    if call.name is UNSET:
        raise DecodeError(FAMILY, f"{spelling.path}/{spelling.source('functionCall')}/name", "a string", "nothing")
    absent = (NO_ARGS,) if call.args is UNSET else ()
    return ToolCall(
        id=known(call.id),
        name=call.name,
        arguments="{}" if call.args is UNSET else str(call.args, "utf-8"),
        seal=decode_seal(part),
        **kept("ToolCall", part, spelling, (call, "functionCall"), absent),
    )


def kept(
    kind: str,
    part: PartShape,
    spelling: Spelling,
    inner: tuple[Any, str],
    form: tuple[str, ...] = (),
    *more: dict[str, Any],
) -> dict[str, Any]:
    found = spelling.kept(kind, (part, ""), inner, form=form)
    side = beside(part, spelling, sealed=inner[1] != "functionResponse")
    return joined(found, side, *more) if side or more else found


def decode_result(part: PartShape, spelling: Spelling, media: Any) -> ToolResult:
    """`media` decodes a part of the result."""
    result = part.function_response
    if result is UNSET:
        raise TypeError("no result")
    spelling.read(result, "functionResponse")
    place = "/" + spelling.source("functionResponse")
    content, error, form = _decode_response(result.response, place + "/response")
    parts: list[Part] = []
    for index, inner in enumerate(result.parts if result.parts is not UNSET else ()):
        at = f"{place}/parts/{index}"
        parts.append(replace(media(inner, spelling.path + at), at=at))
    if result.parts == []:
        form = (*form, _NO_PARTS)
    return ToolResult(
        call_id=known(result.id),
        name=known(result.name),
        content=None if content is None and not parts else (*(content or ()), *parts),
        status="error" if error else "ok",
        **kept("ToolResult", part, spelling, (result, "functionResponse"), form),
    )


def _decode_response(raw: Any, place: str) -> tuple[tuple[Part, ...] | None, bool, tuple[str, ...]]:
    """The content of a result, whether it failed, and its form. By convention text is under `output` or `result`, and
    what went wrong under `error`; any other object is taken as it is."""
    if raw is UNSET:
        return None, False, (_RESPONSE + "absent",)
    if bytes(raw)[:1] != b"{":
        return (Data(json=raw, at=place),), False, (_RESPONSE + "whole",)
    members = _members(raw)
    if not members:
        return (), False, (_RESPONSE + "empty",)
    if len(members) == 1:
        (name, value) = next(iter(members.items()))
        if name in (*_CONVENTIONS, "error") and bytes(value)[:1] == b'"':
            text = Text(text=_decode(value), at=f"{place}/{name}")
            return (text,), name == "error", (_RESPONSE + name,)
        if name == "error" and bytes(value) != b"null":
            return (Data(json=value, at=f"{place}/error"),), True, (_RESPONSE + "error",)
    failed = "error" in members and "output" not in members and bytes(members["error"]) != b"null"
    return (Data(json=raw, at=place),), failed, (_RESPONSE + "whole",)


# ---- encode


def encode_call(part: ToolCall, placed: Placed, plan: Plan) -> list[Any]:
    id = part.id
    if not plan.home:
        id = None if not id or is_made(id) else plan.call_id(id)
        _report_call(part, placed, plan)
    arguments = Raw(part.arguments.encode()) if plan.home else _encode_arguments(part, placed, plan)
    if plan.home and NO_ARGS in part.form and part.arguments == "{}":
        args: Any = UNSET
    else:
        args = arguments
    shape = CallShape(name=plan.name(part.name, part.namespace), args=args, id=given(id))
    return [write(sealed(PartShape(function_call=shape), part, placed, plan), part)]


def sealed(shape: PartShape, part: ToolCall, placed: Placed, plan: Plan) -> PartShape:
    if part.seal is not None:
        if part.seal.issuer == ISSUER:
            shape.thought_signature = part.seal.data
        else:
            plan.report.dropped(placed.trail, "seal", "a seal goes only to its issuer")
    if "gemini:thought:false" in part.form:
        shape.thought = False
    return shape


def _report_call(part: ToolCall, placed: Placed, plan: Plan) -> None:
    if part.caller is not None and part.caller.kind != "direct":
        plan.report.dropped(placed.trail, "caller", "the target's programs can't call tools")
    for field in ("toolset", "asynchronous", "cache"):
        if getattr(part, field):
            plan.report.dropped(placed.trail, field)


def _encode_arguments(part: ToolCall, placed: Placed, plan: Plan) -> Raw:
    """The arguments as the object that this protocol has for them."""
    if part.native is not None:
        plan.report.approximated(placed.trail, "", f"{part.native} as a call of a function")
    if part.shape == "freeform":
        return Raw(lower_input(part.arguments).encode())
    text = part.arguments.strip().encode(errors="replace")
    if text in (b"", b"null"):
        return Raw(b"{}")
    try:
        _members(text)
    except (msgspec.DecodeError, RecursionError):
        plan.report.approximated(placed.trail, "arguments", "not a JSON object: sent as text")
        return Raw(msgspec.json.encode({"_raw": part.arguments}))
    return Raw(text)


def encode_answer(part: ToolResult, call: ToolCall, plan: Plan) -> PartShape | None:
    """The result of this call, where it is nothing but text; None for any other."""
    content = part.content
    if part.status != "ok" or part.extras or part.cache is not None or part.caller is not None or part.toolset:
        return None
    if content is None or len(content) != 1 or type(only := content[0]) is not Text or not only.text:
        return None
    if only.cache is not None or only.annotations is not None or only.seal is not None or only.id is not None:
        return None
    id = part.call_id
    return PartShape(
        function_response=ResultShape(
            id=UNSET if not id or is_made(id) else plan.call_id(id),
            name=plan.name(call.name, call.namespace),
            response={"output": only.text},  # type: ignore[arg-type]
        )
    )


def encode_result(part: ToolResult, placed: Placed, plan: Plan, encode_parts: Any) -> list[Any]:
    """The result, and the media that stand beside it for a model that wants them there."""
    if plan.home:
        return _encode_own(part, placed, plan, encode_parts)
    _report_result(part, placed, plan)
    if part.screen is not None and part.native != SCREEN:
        part = in_object(part)  # from the newer protocol, which has the text of it
    places = [Placed(inner, (*placed.trail, "content", index)) for index, inner in enumerate(part.content or ())]
    if plan.target.binary_results == "summary":
        places = summed_up(places, plan.report)
    media: list[Any] = []
    words: list[Any] = []
    for inner in places:
        if isinstance(inner.part, Data) and not any(word in bytes(inner.part.json) for word in _REFERENCES):
            words.append(inner.part.json)
            continue
        if isinstance(inner.part, Media) and inner.part.detail is not None:
            plan.report.dropped(inner.trail, "detail", "the target has no resolution in results")
            inner = Placed(replace(inner.part, detail=None), inner.trail)  # noqa: PLW2901
        shapes = encode_parts([inner], plan)
        if not shapes and isinstance(inner.part, Media):
            words.append(summary(inner.part))
        for shape in shapes:
            if isinstance(shape, PartShape) and shape.text is not UNSET:
                words.append(shape.text)
            else:
                media.append(shape)
    id = part.call_id
    shape = ResultShape(
        id=UNSET if not id or is_made(id) else plan.call_id(id),
        name=plan.name(part.name or "", part.namespace),
        response=_encode_response(part, words),
    )
    if media and (part.native == SCREEN or not is_early(plan)):
        shape.parts, media = media, []
    return [write(PartShape(function_response=shape), part), *media]


def _encode_response(part: ToolResult, words: list[Any]) -> Any:
    """Text as it is, whatever it looks like: an object that only looks like JSON, or one with `$ref` in it, would be
    refused."""
    if part.native == SCREEN and words and not isinstance(words[0], str):
        return words[0]
    value: Any = words[0] if len(words) == 1 else "\n".join(w if isinstance(w, str) else str(w, "utf-8") for w in words)
    if part.status != "ok":
        return {"error": value or FAILED}
    return {"output": value} if words else {}


def _report_result(part: ToolResult, placed: Placed, plan: Plan) -> None:
    if part.status == "denied":
        plan.report.approximated(placed.trail, "status", "denied is told as an error")
    for field in ("toolset", "cache"):
        if getattr(part, field) is not None:
            plan.report.dropped(placed.trail, field)
    if part.caller is not None and part.caller.kind != "direct":
        plan.report.dropped(placed.trail, "caller", "the target's programs can't call tools")


def _encode_own(part: ToolResult, placed: Placed, plan: Plan, encode_parts: Any) -> list[Any]:
    said = part.content
    if part.form == OUTPUT and not part.extras and said is not None and len(said) == 1 and type(said[0]) is Text:
        response: Any = {"output": said[0].text}
        own = ResultShape(id=given(part.call_id), name=given(part.name), response=response)
        return [PartShape(function_response=own)]
    kind = next((token.removeprefix(_RESPONSE) for token in part.form if token.startswith(_RESPONSE)), "output")
    content = said or ()
    first = 0 if kind in ("absent", "empty") or not content else 1
    response = UNSET if kind == "absent" else {}
    if first:
        only = content[0]
        value = only.text if isinstance(only, Text) else only.json if isinstance(only, Data) else None
        response = value if kind == "whole" else {kind: value}
    media: list[Any] = []
    siblings: list[Any] = []
    for index, inner in enumerate(content[first:], first):
        found = encode_parts([Placed(inner, (*placed.trail, "content", index))], plan)
        (siblings if SIBLING in inner.form else media).extend(found)
    shape = ResultShape(id=given(part.call_id), name=given(part.name), response=response)
    if media or _NO_PARTS in part.form:
        shape.parts = media
    outer = PartShape(function_response=shape)
    if "gemini:thought:false" in part.form:
        outer.thought = False
    return [write(outer, part), *siblings]
