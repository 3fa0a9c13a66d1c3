"""OpenRouter's answers: Chat's, with what proves their reasoning, to canonical and back."""

from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Part, Reasoning, Text, ToolCall
from toolwire.canonical.errors import DecodeError
from toolwire.canonical.response import Candidate, Response, Usage
from toolwire.canonical.tools import FreeformTool
from toolwire.codec.answers import FAILED
from toolwire.codec.interface import Context, Encoding
from toolwire.codec.tools import lower_input
from toolwire.protocols.openai_chat.response import body as chat
from toolwire.protocols.openai_chat.wire import FAMILY
from toolwire.protocols.openrouter.parts.details import FIELD, can_prove, encode_entries
from toolwire.protocols.openrouter.parts.images import IMAGES, encode_image, report_image, without_images
from toolwire.protocols.openrouter.parts.messages import encode_proof, is_item, item_id, lift, lower, report_images
from toolwire.protocols.openrouter.request.body import PROTOCOL, renamed

from .errors import as_own, known_kind, report_error

# ---- decode


def decode_response(body: bytes, context: Context) -> Response:
    try:
        response = chat.decode_response(body, context)
    except DecodeError as error:
        raise renamed(error) from None
    candidates = tuple([_each(candidate, lift) for candidate in response.candidates])
    error_told = None if response.error is None else known_kind(response.error)
    return replace(response, origin=PROTOCOL, candidates=candidates, error=error_told)


def _each(candidate: Candidate, change: Any) -> Candidate:
    return replace(candidate, messages=tuple([change(message) for message in candidate.messages]))


# ---- encode


def encode_response(response: Response, context: Context) -> Encoding:
    if response.origin == PROTOCOL:
        candidates = tuple([_each(candidate, lower) for candidate in response.candidates])
        return chat.encode_response(replace(response, origin=FAMILY, candidates=candidates), context)
    error = None if response.error is None else as_own(response.error, under="")
    bare = tuple([_bare(candidate, context) for candidate in response.candidates])
    usage = None if response.usage is None else counted(response.usage)
    shown = replace(response, origin="", candidates=bare, error=error, usage=usage)
    encoding = chat.encode_response(shown, context)
    if response.error is not None:
        report_error(response.error, ("error",), encoding.report)
    encoding.body.setdefault("system_fingerprint", None)
    for place, (candidate, choice) in enumerate(zip(response.candidates, encoding.body["choices"], strict=False)):
        _complete(choice, candidate)
        for number, message in enumerate(candidate.messages):
            trail = ("candidates", place, "messages", number)
            for position, part in enumerate(message.parts):
                report_image(part, (*trail, "parts", position), encoding.report)
                if isinstance(part, Reasoning):
                    report_images(part, (*trail, "parts", position), encoding.report)
    return encoding


def counted(usage: Usage) -> Usage:
    """Another protocol's counts with the searches where this dialect has them, which Chat has not."""
    if usage.searches is None:
        return usage
    own = {chat.COUNTS["searches"]: Raw(b"%d" % usage.searches)}
    extras = {**(usage.extras or {}), FAMILY: {**(usage.extras or {}).get(FAMILY, {}), **own}}
    return replace(usage, searches=None, extras=extras)


def _bare(candidate: Candidate, context: Context) -> Candidate:
    """A candidate without the proofs that are written apart: what Chat's encoder still finds, it reports."""
    messages = []
    free = free_text_tools(context)
    for message in candidate.messages:
        parts = tuple([_lowered(without_images(_unproved(part)), free) for part in message.parts])
        carried = is_item(message) and parts[0] is not message.parts[0]
        messages.append(replace(message, parts=parts, id=None if carried else message.id))
    stop = candidate.stop
    if stop is not None and stop.reason in FAILED:
        stop = replace(stop, reason="end_turn")
    return replace(candidate, messages=tuple(messages), stop=stop)


def _unproved(part: Part) -> Part:
    if isinstance(part, Reasoning) and part.seal is not None and can_prove(part.seal):
        return replace(part, seal=None, id=None)
    if isinstance(part, Text | ToolCall) and _proves(part):
        return replace(part, seal=None)
    return part


def _proves(part: Part) -> bool:
    """Whether a text or a call of the client's brings a proof that has a place here."""
    if isinstance(part, ToolCall) and part.executor == "server":
        return False
    return isinstance(part, Text | ToolCall) and part.seal is not None and can_prove(part.seal)


def free_text_tools(context: Context) -> frozenset[str]:
    """The tools whose calls are free text to the client: there are only functions, unless it asked for others."""
    asked = () if context.request is None else context.request.tools or ()
    return frozenset(tool.name for tool in asked if isinstance(tool, FreeformTool))


def _lowered(part: Part, free: frozenset[str]) -> Part:
    if isinstance(part, ToolCall) and part.shape == "freeform" and part.name not in free:
        return replace(part, shape="json", arguments=lower_input(part.arguments))
    return part


def _complete(choice: dict[str, Any], candidate: Candidate) -> None:
    """A choice as Chat's encoder wrote it, with what only this dialect has."""
    message = choice["message"]
    if "reasoning_content" in message:
        message["reasoning"] = message.pop("reasoning_content")
    entries: list[Any] = []
    for number, said in enumerate(candidate.messages):
        for part in said.parts:
            if isinstance(part, Reasoning):
                entries += encode_entries(part, item_id(part, number, candidate.messages), len(entries))
            elif isinstance(part, Text | ToolCall) and part.seal is not None and _proves(part):
                call_id = part.id if isinstance(part, ToolCall) else None
                entries += encode_proof(part.seal, call_id, len(entries))
    if entries:
        message[FIELD] = entries
    images: list[Any] = []
    for said in candidate.messages:
        for part in said.parts:
            if (image := encode_image(part, len(images))) is not None:
                images.append(image)
    if images:
        message[IMAGES] = images
    for said in candidate.messages:
        message.update((said.extras or {}).get(FAMILY, {}))  # what compatible servers write of it
    stop = candidate.stop
    if stop is not None and stop.raw is not None:
        choice.setdefault("native_finish_reason", stop.raw)
    if stop is not None and stop.reason in FAILED:
        choice["finish_reason"] = "error"
