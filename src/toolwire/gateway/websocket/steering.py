"""User input for a response under way: `response.steer` of the Responses WebSocket.

1. Input is accepted at once and queued until the response ends, since the upstream can't take input meanwhile.
2. If the response ends without pending calls, a follow-up response with the same settings is started automatically.
3. If it ends with calls, the client is notified, and the input is put before that of the client's next request.
4. Input that can no longer be used is returned with a `response.steer.failed` event.
"""

import secrets
from typing import Any

import msgspec
from msgspec import Raw, Struct, UnsetType
from msgspec.structs import replace

_MAX_STEERS = 16
_CONTENT_TYPES = ("input_text", "input_image", "input_file")
_UNSTEERABLE_FIELDS = ("conversation", "context_management")

_decode = msgspec.json.decode
_encode = msgspec.json.encode


class Steer(Struct, frozen=True):
    """Input for a response under way."""

    id: str
    response_id: str
    input: Raw

    def items(self) -> list[Raw]:
        """Return the input as a list of items."""
        if bytes(self.input)[:1] == b'"':
            return [Raw(_encode({"type": "message", "role": "user", "content": _decode(self.input)}))]
        return _decode(self.input, type=list[Raw])


class ActiveResponse(Struct):
    """A response under way, its request body, and the input queued for it."""

    stream_id: str
    body: dict[str, Raw]
    steers: list[Steer] = []


class NextTurn(Struct, frozen=True):
    """Events to send next, and the request to run, if any, with the queued input that it contains."""

    events: list[dict[str, Any]] = []
    request: dict[str, Raw] | None = None
    steers: list[Steer] = []


class _SteerFrame(Struct, forbid_unknown_fields=True):
    """A `response.steer` event."""

    type: str
    previous_response_id: str
    input: Raw


class _Message(Struct, forbid_unknown_fields=True):
    """A user message of a `response.steer` event."""

    role: str
    content: str | list[dict[str, Any]]
    type: str = "message"
    id: str | UnsetType = msgspec.UNSET
    status: str | UnsetType = msgspec.UNSET


class _Item(Struct):
    """The fields of an output item that decide whether the client must act."""

    type: str = "message"
    call_id: str | None = None
    id: str | None = None
    name: str | None = None
    execution: str | None = None
    environment: dict[str, Any] | None = None


class _Response(Struct):
    """The output of a final event."""

    output: list[_Item] | None = None


class _FinalEvent(Struct):
    """The event that ended a response."""

    type: str
    response: _Response | None = None


class SteeringQueue:
    """Queued input of one connection; input that waits for the client stays with its channel."""

    def __init__(self) -> None:
        self._active_responses: dict[str, ActiveResponse] = {}
        self._pending_steers: dict[str, list[Steer]] = {}
        self._sequence_number = 0

    def start_response(self, id: str, stream_id: str, body: dict[str, Raw]) -> None:
        """Register a response as active."""
        self._active_responses[id] = ActiveResponse(stream_id, body, [])

    def accept_steer(self, frame: dict[str, Raw], finished_ids: set[str]) -> tuple[str, dict[str, Any]]:
        """Queue the input of a `response.steer` event; return the channel's stream id and the event to reply with."""
        try:
            steer_frame = _decode(_encode(frame), type=_SteerFrame)
            _check_input(steer_frame.input)
        except (msgspec.MsgspecError, _InvalidSteerInput) as error:
            previous = _decode(frame.get("previous_response_id", b'""'))
            steer = Steer("", str(previous), frame.get("input", Raw(b'""')))
            return "", self._failed_event(steer, "invalid_input", str(error))
        steer = Steer(f"steer_{secrets.token_hex(16)}", steer_frame.previous_response_id, steer_frame.input)
        active = self._active_responses.get(steer.response_id)
        if active is None:
            code = "response_already_completed" if steer.response_id in finished_ids else "response_not_found"
            message = f"Response with id '{steer.response_id}' is not in progress on this connection."
            return "", self._failed_event(replace(steer, id=""), code, message)
        for name in _UNSTEERABLE_FIELDS:
            if bytes(active.body.get(name, b"null")) != b"null":
                message = f"A response with {name} can't be steered."
                return active.stream_id, self._failed_event(replace(steer, id=""), "steering_not_supported", message)
        if len(active.steers) >= _MAX_STEERS:
            message = f"More than {_MAX_STEERS} inputs are queued for this response."
            return active.stream_id, self._failed_event(replace(steer, id=""), "too_many_pending_steers", message)
        active.steers.append(steer)
        return active.stream_id, self._steer_event("accepted", steer=_steer_fields(steer))

    def end_response(self, id: str, last_event: bytes) -> NextTurn:
        """Return what to do after a response has ended with `last_event`: events to send, and a follow-up request."""
        active = self._active_responses.pop(id, None)
        if active is None or not active.steers:
            return NextTurn()
        final_event = _decode(last_event, type=_FinalEvent)
        if final_event.type not in ("response.completed", "response.incomplete") or final_event.response is None:
            message = "The response failed before its input was used."
            return NextTurn([self._failed_event(steer, "response_not_active", message) for steer in active.steers])
        required = [
            required_item
            for item in final_event.response.output or ()
            if (required_item := _required_input(item)) is not None
        ]
        if required:
            self._pending_steers[active.stream_id] = active.steers
            details = {"reason": "waiting_for_required_input", "required_input": required}
            return NextTurn(
                [self._steer_event("pending", steer=_steer_fields(steer), **details) for steer in active.steers]
            )
        items = [item for steer in active.steers for item in steer.items()]
        successor = active.body | {"previous_response_id": Raw(_encode(id)), "input": Raw(_encode(items))}
        return NextTurn([], successor, active.steers)

    def reject_steers(self, steers: list[Steer], reason: str) -> list[dict[str, Any]]:
        """Return events that reject the input of a follow-up response that could not be started."""
        return [self._failed_event(steer, "successor_creation_failed", reason) for steer in steers]

    def merge_pending(self, stream_id: str, request: dict[str, Raw]) -> NextTurn:
        """Return the channel's next request with queued input first; input that it does not continue is rejected."""
        steers = self._pending_steers.pop(stream_id, [])
        if not steers:
            return NextTurn([], request)
        if _decode(request.get("previous_response_id", b"null")) != steers[0].response_id:
            message = "The next request on this stream does not continue this response."
            return NextTurn([self._failed_event(steer, "response_not_active", message) for steer in steers], request)
        request_items = Steer("", "", request.get("input", Raw(b"[]"))).items()
        items = [*(item for steer in steers for item in steer.items()), *request_items]
        return NextTurn([], request | {"input": Raw(_encode(items))}, steers)

    def _steer_event(self, kind: str, **members: Any) -> dict[str, Any]:
        """Build a `response.steer.*` event with the next sequence number."""
        self._sequence_number += 1
        return {"type": f"response.steer.{kind}", "sequence_number": self._sequence_number - 1, **members}

    def _failed_event(self, steer: Steer, code: str, reason: str) -> dict[str, Any]:
        """Build the event that returns unused input with an error."""
        error = {"type": "invalid_request_error", "code": code, "message": reason}
        return self._steer_event("failed", steer=_steer_fields(steer) | {"input": steer.input}, error=error)


def _steer_fields(steer: Steer) -> dict[str, Any]:
    """Return the fields that identify queued input."""
    return ({"id": steer.id} if steer.id else {}) | {"previous_response_id": steer.response_id}


class _InvalidSteerInput(ValueError):
    """The input is not a user message."""


def _check_input(steer_input: Raw) -> None:
    """Raise `_InvalidSteerInput` unless the input is text or user messages."""
    if bytes(steer_input)[:1] == b'"':
        return
    messages = _decode(steer_input, type=list[_Message])
    if not messages:
        raise _InvalidSteerInput("input: expected at least one message")
    for message in messages:
        parts = message.content if isinstance(message.content, list) else []
        if message.type != "message" or message.role != "user":
            raise _InvalidSteerInput("input: only user messages are supported")
        if any(part.get("type") not in _CONTENT_TYPES for part in parts):
            raise _InvalidSteerInput(f"input: content must be one of {', '.join(_CONTENT_TYPES)}")


def _required_input(item: _Item) -> dict[str, Any] | None:
    """Describe the item that the client must send for an output item; None if it need not act."""
    match item.type:
        case "function_call":
            return {"type": "function_call_output", "call_id": item.call_id, "name": item.name}
        case "custom_tool_call" | "computer_call" | "apply_patch_call":
            return {"type": f"{item.type}_output", "call_id": item.call_id}
        case "shell_call" if (item.environment or {}).get("type", "local") == "local":
            return {"type": "shell_call_output", "call_id": item.call_id}
        case "tool_search_call" if item.execution == "client":
            return {"type": "tool_search_output", "call_id": item.call_id, "execution": "client"}
        case "mcp_approval_request":
            return {"type": "mcp_approval_response", "approval_request_id": item.id}
        case _:
            return None
