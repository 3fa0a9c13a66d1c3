"""Wire details of the protocols whose clients refer to earlier responses by id."""

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
    """The field names, ids, statuses and stream events of one stateful protocol."""

    kind: str
    """The stored object: `response` or `interaction`."""
    id_prefix: str
    previous_field: str
    """The request field that names the response to continue."""
    output_field: str
    """The response field with the items that a continued request repeats."""
    input_items: Callable[[Raw], list[Raw]]
    """Converts the `input` of a request to a list of items."""
    queued_status: str
    """The status of a background response that has not started."""
    failure_fields: Callable[[ApiError], dict[str, Any]]
    """Builds the response fields that report a failure."""
    event_type_field: str
    """The field with the type of a stream event."""
    sequence_field: str
    """The field with the number of a stream event."""
    sequence_is_integer: bool
    resume_parameter: str
    """The query parameter that names the last event seen."""
    start_events: tuple[str, ...]
    """The events that start the stream of a background response."""
    end_events: frozenset[str]
    """The events that end a stream."""
    trailer: bytes = b""
    """Bytes after the last event."""

    def end_event_for(self, response: bytes) -> str:
        """Return the type of the event that ends the stream of this response."""
        if self.kind != "response":
            return f"{self.kind}.completed"
        status = _decode(response, type=dict[str, Any]).get("status")
        return f"response.{status}" if status in ("completed", "incomplete") else "response.failed"

    def new_id(self) -> str:
        """Return a new response id."""
        return self.id_prefix + secrets.token_hex(24)

    def not_found(self, id: str) -> ApiError:
        """Build the error for an id that does not exist."""
        return ApiError(kind="not_found", message=f"{self.kind.capitalize()} with id '{id}' not found.", status=404)

    def previous_not_found(self, id: str) -> ApiError:
        """Build the error for a request that continues a response that does not exist."""
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
    """Return the `input` of a Responses request as a list of items; a string is a user message."""
    if bytes(raw)[:1] != b'"':
        return _decode(raw, type=list[Raw])
    part = {"type": "input_text", "text": _decode(raw, type=str)}
    return [Raw(_encode({"type": "message", "role": "user", "content": [part]}))]


def _interaction_steps(raw: Raw) -> list[Raw]:
    """Return the `input` of an interaction as a list of steps; strings and content are user input."""
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
    """Return the `error` field of a failed response."""
    code = "rate_limit_exceeded" if error.kind == "rate_limit" else "server_error"
    return {"error": {"code": code, "message": error.message}}


def _interaction_failure(error: ApiError) -> dict[str, Any]:
    """Return the `errors` field of a failed interaction."""
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
    """Build the error for a conversation that does not exist."""
    return ApiError(kind="not_found", message=f"Conversation with id '{id}' not found.", status=404)


def item_not_found(id: str) -> ApiError:
    """Build the error for an item that does not exist."""
    return ApiError(kind="not_found", message=f"Item with id '{id}' not found.", status=404)


def with_item_id(item: Raw) -> tuple[str, Raw]:
    """Return an item and its id; an item without one gets an id marked as the gateway's."""
    fields = _decode(item, type=dict[str, Raw])
    if "id" in fields and isinstance(id := _decode(fields["id"]), str):
        return id, item
    kind = _decode(fields["type"]) if "type" in fields else "message"
    id = f"{_ITEM_ID_PREFIXES.get(kind, 'item')}_tw{secrets.token_hex(16)}"
    return id, Raw(_encode({"id": id, "type": kind, **{name: value for name, value in fields.items() if name != "id"}}))


def without_item_id(item: Raw) -> Raw:
    """Return the item without an id that the gateway assigned, as no provider knows it."""
    fields = _decode(item, type=dict[str, Raw])
    if "id" not in fields or not _GATEWAY_ID.fullmatch(bytes(fields["id"])):
        return item
    return Raw(_encode({name: value for name, value in fields.items() if name != "id"}))
