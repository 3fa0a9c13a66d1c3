"""The protocols whose clients refer to earlier answers by id: what they call things, and how one that is gone."""

import re
import secrets
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolwire.canonical.errors import ApiError

_decode = msgspec.json.decode
_encode = msgspec.json.encode
_OURS = re.compile(rb'"[a-z]+_tw[0-9a-f]{32}"')
_PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}
_CONTENT = ("text", "image", "audio", "document", "video")


class Holder(Struct, frozen=True, kw_only=True):
    """`kind` names what is held and `previous` the field that refers to it; `output` is where an answer has what the
    next request repeats. `items` is the input of a request as such a list. `waiting` is the status of an answer that
    nobody works on yet, `failure` what one says that went wrong.

    Of a stream, `tag` names the kind of a frame and `number` its place, which `counts` or is a text; a request to go on
    behind a frame says it as `after`. `begins` are the frames of an answer that waits, `ends` those that end one, and
    `closing` is what stands behind the last."""

    kind: str
    prefix: str
    previous: str
    output: str
    items: Callable[[Raw], list[Raw]]
    waiting: str
    failure: Callable[[ApiError], dict[str, Any]]
    tag: str
    number: str
    counts: bool
    after: str
    begins: tuple[str, ...]
    ends: frozenset[str]
    closing: bytes = b""

    def ends_with(self, answer: bytes) -> str:
        """The kind of the frame that ends the stream of this answer."""
        if self.kind != "response":
            return f"{self.kind}.completed"
        status = _decode(answer, type=dict[str, Any]).get("status")
        return f"response.{status}" if status in ("completed", "incomplete") else "response.failed"

    def new_id(self) -> str:
        return self.prefix + secrets.token_hex(24)

    def not_found(self, id: str) -> ApiError:
        return ApiError(kind="not_found", message=f"{self.kind.capitalize()} with id '{id}' not found.", status=404)

    def no_previous(self, id: str) -> ApiError:
        """What a request is told that continues an answer which is not there."""
        if self.kind != "response":
            return self.not_found(id)
        return ApiError(
            kind="invalid_request",
            message=f"Previous response with id '{id}' not found.",
            status=400,
            code="previous_response_not_found",
            param=self.previous,
        )


def _response_items(raw: Raw) -> list[Raw]:
    if bytes(raw)[:1] != b'"':
        return _decode(raw, type=list[Raw])
    part = {"type": "input_text", "text": _decode(raw, type=str)}
    return [Raw(_encode({"type": "message", "role": "user", "content": [part]}))]


def _interaction_steps(raw: Raw) -> list[Raw]:
    """A string, content, or a list of content is what the user says; else they are steps."""
    match bytes(raw)[:1]:
        case b'"':
            content = [Raw(_encode({"type": "text", "text": _decode(raw, type=str)}))]
        case b"{":
            content = [raw]
        case _:
            content = _decode(raw, type=list[Raw])
            if not content or _decode(content[0], type=dict[str, Any]).get("type") not in _CONTENT:
                return content
    return [Raw(_encode({"type": "user_input", "content": content}))]


def _response_failure(error: ApiError) -> dict[str, Any]:
    code = "rate_limit_exceeded" if error.kind == "rate_limit" else "server_error"
    return {"error": {"code": code, "message": error.message}}


def _interaction_failure(error: ApiError) -> dict[str, Any]:
    return {"errors": [{"code": error.kind, "message": error.message}]}


HOLDERS = {
    "openai-responses": Holder(
        kind="response",
        prefix="resp_",
        previous="previous_response_id",
        output="output",
        items=_response_items,
        waiting="queued",
        failure=_response_failure,
        tag="type",
        number="sequence_number",
        counts=True,
        after="starting_after",
        begins=("response.created", "response.queued"),
        ends=frozenset({"response.completed", "response.incomplete", "response.failed", "error"}),
    ),
    "gemini-interactions": Holder(
        kind="interaction",
        prefix="v1_",
        previous="previous_interaction_id",
        output="steps",
        items=_interaction_steps,
        waiting="in_progress",
        failure=_interaction_failure,
        tag="event_type",
        number="event_id",
        counts=False,
        after="last_event_id",
        begins=("interaction.created",),
        ends=frozenset({"interaction.completed", "error"}),
        closing=b"event: done\ndata: [DONE]\n\n",
    ),
}


def no_conversation(id: str) -> ApiError:
    return ApiError(kind="not_found", message=f"Conversation with id '{id}' not found.", status=404)


def no_item(id: str) -> ApiError:
    return ApiError(kind="not_found", message=f"Item with id '{id}' not found.", status=404)


def named_item(item: Raw) -> tuple[str, Raw]:
    """An item and its id; one that has none gets one which is known as ours."""
    whole = _decode(item, type=dict[str, Raw])
    if "id" in whole and isinstance(id := _decode(whole["id"]), str):
        return id, item
    kind = _decode(whole["type"]) if "type" in whole else "message"
    id = f"{_PREFIXES.get(kind, 'item')}_tw{secrets.token_hex(16)}"
    return id, Raw(_encode({"id": id, "type": kind, **{name: value for name, value in whole.items() if name != "id"}}))


def unnamed_item(item: Raw) -> Raw:
    """The item as it was before it got an id of ours: no provider knows that."""
    whole = _decode(item, type=dict[str, Raw])
    if "id" not in whole or not _OURS.fullmatch(bytes(whole["id"])):
        return item
    return Raw(_encode({name: value for name, value in whole.items() if name != "id"}))
