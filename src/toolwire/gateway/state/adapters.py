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
_GATEWAY_ID = re.compile(rb'"[a-z]+_tw[0-9a-f]{32}"')
_ITEM_ID_PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}
_CONTENT_TYPES = ("text", "image", "audio", "document", "video")


class StateAdapter(Struct, frozen=True, kw_only=True):
    """`kind` names what is held and `previous` the field that refers to it; `output` is where an answer has what the
    next request repeats. `items` is the input of a request as such a list. `waiting` is the status of an answer that
    nobody works on yet, `failure` what one says that went wrong.

    Of a stream, `tag` names the kind of a frame and `number` its place, which `counts` or is a text; a request to go on
    behind a frame says it as `after`. `begins` are the frames of an answer that waits, `ends` those that end one, and
    `closing` is what stands behind the last."""

    kind: str
    id_prefix: str
    previous_field: str
    output_field: str
    input_items: Callable[[Raw], list[Raw]]
    queued_status: str
    failure_fields: Callable[[ApiError], dict[str, Any]]
    event_type_field: str
    sequence_field: str
    sequence_is_integer: bool
    resume_parameter: str
    start_events: tuple[str, ...]
    end_events: frozenset[str]
    trailer: bytes = b""

    def end_event_for(self, response: bytes) -> str:
        """The kind of the frame that ends the stream of this answer."""
        if self.kind != "response":
            return f"{self.kind}.completed"
        status = _decode(response, type=dict[str, Any]).get("status")
        return f"response.{status}" if status in ("completed", "incomplete") else "response.failed"

    def new_id(self) -> str:
        return self.id_prefix + secrets.token_hex(24)

    def not_found(self, id: str) -> ApiError:
        return ApiError(kind="not_found", message=f"{self.kind.capitalize()} with id '{id}' not found.", status=404)

    def previous_not_found(self, id: str) -> ApiError:
        """What a request is told that continues an answer which is not there."""
        if self.kind != "response":
            return self.not_found(id)
        return ApiError(
            kind="invalid_request",
            message=f"Previous response with id '{id}' not found.",
            status=400,
            code="previous_response_not_found",
            param=self.previous_field,
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
            if not content or _decode(content[0], type=dict[str, Any]).get("type") not in _CONTENT_TYPES:
                return content
    return [Raw(_encode({"type": "user_input", "content": content}))]


def _response_failure(error: ApiError) -> dict[str, Any]:
    code = "rate_limit_exceeded" if error.kind == "rate_limit" else "server_error"
    return {"error": {"code": code, "message": error.message}}


def _interaction_failure(error: ApiError) -> dict[str, Any]:
    return {"errors": [{"code": error.kind, "message": error.message}]}


STATE_ADAPTERS = {
    "openai-responses": StateAdapter(
        kind="response",
        id_prefix="resp_",
        previous_field="previous_response_id",
        output_field="output",
        input_items=_response_items,
        queued_status="queued",
        failure_fields=_response_failure,
        event_type_field="type",
        sequence_field="sequence_number",
        sequence_is_integer=True,
        resume_parameter="starting_after",
        start_events=("response.created", "response.queued"),
        end_events=frozenset({"response.completed", "response.incomplete", "response.failed", "error"}),
    ),
    "gemini-interactions": StateAdapter(
        kind="interaction",
        id_prefix="v1_",
        previous_field="previous_interaction_id",
        output_field="steps",
        input_items=_interaction_steps,
        queued_status="in_progress",
        failure_fields=_interaction_failure,
        event_type_field="event_type",
        sequence_field="event_id",
        sequence_is_integer=False,
        resume_parameter="last_event_id",
        start_events=("interaction.created",),
        end_events=frozenset({"interaction.completed", "error"}),
        trailer=b"event: done\ndata: [DONE]\n\n",
    ),
}


def conversation_not_found(id: str) -> ApiError:
    return ApiError(kind="not_found", message=f"Conversation with id '{id}' not found.", status=404)


def item_not_found(id: str) -> ApiError:
    return ApiError(kind="not_found", message=f"Item with id '{id}' not found.", status=404)


def with_item_id(item: Raw) -> tuple[str, Raw]:
    """An item and its id; one that has none gets one which is known as ours."""
    whole = _decode(item, type=dict[str, Raw])
    if "id" in whole and isinstance(id := _decode(whole["id"]), str):
        return id, item
    kind = _decode(whole["type"]) if "type" in whole else "message"
    id = f"{_ITEM_ID_PREFIXES.get(kind, 'item')}_tw{secrets.token_hex(16)}"
    return id, Raw(_encode({"id": id, "type": kind, **{name: value for name, value in whole.items() if name != "id"}}))


def without_item_id(item: Raw) -> Raw:
    """The item as it was before it got an id of ours: no provider knows that."""
    whole = _decode(item, type=dict[str, Raw])
    if "id" not in whole or not _GATEWAY_ID.fullmatch(bytes(whole["id"])):
        return item
    return Raw(_encode({name: value for name, value in whole.items() if name != "id"}))
