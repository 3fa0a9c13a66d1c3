"""`response.steer` of the websocket: what a user says to an answer that is under way.

1. It is accepted at once and waits: the answer is finished first, as an upstream that speaks can't be told anything.
2. If the answer ends with nothing for the client to do, its successor follows by itself, with the same settings.
3. If it ends with calls, the client is told that the input waits; it is put before what the client sends next.
4. Where it can't be used any more, it is given back.
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
    id: str
    response_id: str
    input: Raw

    def items(self) -> list[Raw]:
        if bytes(self.input)[:1] == b'"':
            return [Raw(_encode({"type": "message", "role": "user", "content": _decode(self.input)}))]
        return _decode(self.input, type=list[Raw])


class ActiveResponse(Struct):
    """An answer under way, and what it was asked with."""

    stream_id: str
    body: dict[str, Raw]
    steers: list[Steer] = []


class NextTurn(Struct, frozen=True):
    """What comes next: events to tell, and a request, with what of it was waiting."""

    events: list[dict[str, Any]] = []
    request: dict[str, Raw] | None = None
    steers: list[Steer] = []


class _SteerFrame(Struct, forbid_unknown_fields=True):
    type: str
    previous_response_id: str
    input: Raw


class _Message(Struct, forbid_unknown_fields=True):
    role: str
    content: str | list[dict[str, Any]]
    type: str = "message"
    id: str | UnsetType = msgspec.UNSET
    status: str | UnsetType = msgspec.UNSET


class _Item(Struct):
    type: str = "message"
    call_id: str | None = None
    id: str | None = None
    name: str | None = None
    execution: str | None = None
    environment: dict[str, Any] | None = None


class _Response(Struct):
    output: list[_Item] | None = None


class _FinalEvent(Struct):
    type: str
    response: _Response | None = None


class SteeringQueue:
    """Of one connection. What waits for a client does so in its lane, for the next request."""

    def __init__(self) -> None:
        self._active_responses: dict[str, ActiveResponse] = {}
        self._pending_steers: dict[str, list[Steer]] = {}
        self._sequence_number = 0

    def start_response(self, id: str, stream_id: str, body: dict[str, Raw]) -> None:
        self._active_responses[id] = ActiveResponse(stream_id, body, [])

    def accept_steer(self, frame: dict[str, Raw], finished_ids: set[str]) -> tuple[str, dict[str, Any]]:
        """A `response.steer`: the event that answers it, and the lane that this belongs to."""
        try:
            wanted = _decode(_encode(frame), type=_SteerFrame)
            _check_input(wanted.input)
        except (msgspec.MsgspecError, _InvalidSteerInput) as error:
            previous = _decode(frame.get("previous_response_id", b'""'))
            steer = Steer("", str(previous), frame.get("input", Raw(b'""')))
            return "", self._failed_event(steer, "invalid_input", str(error))
        steer = Steer(f"steer_{secrets.token_hex(16)}", wanted.previous_response_id, wanted.input)
        answer = self._active_responses.get(steer.response_id)
        if answer is None:
            code = "response_already_completed" if steer.response_id in finished_ids else "response_not_found"
            why = f"Response with id '{steer.response_id}' is not in progress on this connection."
            return "", self._failed_event(replace(steer, id=""), code, why)
        for name in _UNSTEERABLE_FIELDS:
            if bytes(answer.body.get(name, b"null")) != b"null":
                why = f"A response with {name} can't be steered."
                return answer.stream_id, self._failed_event(replace(steer, id=""), "steering_not_supported", why)
        if len(answer.steers) >= _MAX_STEERS:
            why = f"more than {_MAX_STEERS} wait"
            return answer.stream_id, self._failed_event(replace(steer, id=""), "too_many_pending_steers", why)
        answer.steers.append(steer)
        return answer.stream_id, self._steer_event("accepted", steer=_steer_fields(steer))

    def end_response(self, id: str, last_event: bytes) -> NextTurn:
        """What follows an answer that is over; `last` is the event that ended it."""
        answer = self._active_responses.pop(id, None)
        if answer is None or not answer.steers:
            return NextTurn()
        told = _decode(last_event, type=_FinalEvent)
        if told.type not in ("response.completed", "response.incomplete") or told.response is None:
            why = "The response failed before its input was used."
            return NextTurn([self._failed_event(steer, "response_not_active", why) for steer in answer.steers])
        required = [stub for item in told.response.output or () if (stub := _required_input(item)) is not None]
        if required:
            self._pending_steers[answer.stream_id] = answer.steers
            more = {"reason": "waiting_for_required_input", "required_input": required}
            return NextTurn(
                [self._steer_event("pending", steer=_steer_fields(steer), **more) for steer in answer.steers]
            )
        said = [item for steer in answer.steers for item in steer.items()]
        successor = answer.body | {"previous_response_id": Raw(_encode(id)), "input": Raw(_encode(said))}
        return NextTurn([], successor, answer.steers)

    def reject_steers(self, steers: list[Steer], reason: str) -> list[dict[str, Any]]:
        """There will be no successor."""
        return [self._failed_event(steer, "successor_creation_failed", reason) for steer in steers]

    def merge_pending(self, stream_id: str, request: dict[str, Raw]) -> NextTurn:
        """With what waits in its lane before what it says. If it goes on from elsewhere, that is given back."""
        steers = self._pending_steers.pop(stream_id, [])
        if not steers:
            return NextTurn([], request)
        if _decode(request.get("previous_response_id", b"null")) != steers[0].response_id:
            why = "The next request of the lane does not continue this response."
            return NextTurn([self._failed_event(steer, "response_not_active", why) for steer in steers], request)
        own = Steer("", "", request.get("input", Raw(b"[]"))).items()
        said = [*(item for steer in steers for item in steer.items()), *own]
        return NextTurn([], request | {"input": Raw(_encode(said))}, steers)

    def _steer_event(self, kind: str, **members: Any) -> dict[str, Any]:
        self._sequence_number += 1
        return {"type": f"response.steer.{kind}", "sequence_number": self._sequence_number - 1, **members}

    def _failed_event(self, steer: Steer, code: str, reason: str) -> dict[str, Any]:
        error = {"type": "invalid_request_error", "code": code, "message": reason}
        return self._steer_event("failed", steer=_steer_fields(steer) | {"input": steer.input}, error=error)


def _steer_fields(steer: Steer) -> dict[str, Any]:
    return ({"id": steer.id} if steer.id else {}) | {"previous_response_id": steer.response_id}


class _InvalidSteerInput(ValueError):
    """Steering takes what a user says, and nothing else."""


def _check_input(steer_input: Raw) -> None:
    if bytes(steer_input)[:1] == b'"':
        return
    messages = _decode(steer_input, type=list[_Message])
    if not messages:
        raise _InvalidSteerInput("input: at least one message is wanted")
    for message in messages:
        parts = message.content if isinstance(message.content, list) else []
        if message.type != "message" or message.role != "user":
            raise _InvalidSteerInput("input: only messages of the user are taken")
        if any(part.get("type") not in _CONTENT_TYPES for part in parts):
            raise _InvalidSteerInput(f"input: content is {', '.join(_CONTENT_TYPES)}")


def _required_input(item: _Item) -> dict[str, Any] | None:
    """What the client owes to an item of an answer: its result, or a decision."""
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
