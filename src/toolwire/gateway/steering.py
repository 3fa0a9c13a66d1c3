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

_MOST = 16
_CONTENT = ("input_text", "input_image", "input_file")
_UNSTEERED = ("conversation", "context_management")

_decode = msgspec.json.decode
_encode = msgspec.json.encode


class Steer(Struct, frozen=True):
    id: str
    previous: str
    input: Raw

    def items(self) -> list[Raw]:
        if bytes(self.input)[:1] == b'"':
            return [Raw(_encode({"type": "message", "role": "user", "content": _decode(self.input)}))]
        return _decode(self.input, type=list[Raw])


class Answer(Struct):
    """An answer under way, and what it was asked with."""

    lane: str
    body: dict[str, Raw]
    steers: list[Steer] = []


class Turn(Struct, frozen=True):
    """What comes next: events to tell, and a request, with what of it was waiting."""

    events: list[dict[str, Any]] = []
    request: dict[str, Raw] | None = None
    steers: list[Steer] = []


class _Wanted(Struct, forbid_unknown_fields=True):
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


class _Last(Struct):
    type: str
    response: _Response | None = None


class Steering:
    """Of one connection. What waits for a client does so in its lane, for the next request."""

    def __init__(self) -> None:
        self._answers: dict[str, Answer] = {}
        self._waiting: dict[str, list[Steer]] = {}
        self._told = 0

    def begin(self, id: str, lane: str, body: dict[str, Raw]) -> None:
        self._answers[id] = Answer(lane, body, [])

    def take(self, frame: dict[str, Raw], finished: set[str]) -> tuple[str, dict[str, Any]]:
        """A `response.steer`: the event that answers it, and the lane that this belongs to."""
        try:
            wanted = _decode(_encode(frame), type=_Wanted)
            _check(wanted.input)
        except (msgspec.MsgspecError, _WrongInput) as error:
            previous = _decode(frame.get("previous_response_id", b'""'))
            steer = Steer("", str(previous), frame.get("input", Raw(b'""')))
            return "", self._failed(steer, "invalid_input", str(error))
        steer = Steer(f"steer_{secrets.token_hex(16)}", wanted.previous_response_id, wanted.input)
        answer = self._answers.get(steer.previous)
        if answer is None:
            code = "response_already_completed" if steer.previous in finished else "response_not_found"
            why = f"Response with id '{steer.previous}' is not in progress on this connection."
            return "", self._failed(replace(steer, id=""), code, why)
        for name in _UNSTEERED:
            if bytes(answer.body.get(name, b"null")) != b"null":
                why = f"A response with {name} can't be steered."
                return answer.lane, self._failed(replace(steer, id=""), "steering_not_supported", why)
        if len(answer.steers) >= _MOST:
            why = f"more than {_MOST} wait"
            return answer.lane, self._failed(replace(steer, id=""), "too_many_pending_steers", why)
        answer.steers.append(steer)
        return answer.lane, self._event("accepted", steer=_named(steer))

    def end(self, id: str, last: bytes) -> Turn:
        """What follows an answer that is over; `last` is the event that ended it."""
        answer = self._answers.pop(id, None)
        if answer is None or not answer.steers:
            return Turn()
        told = _decode(last, type=_Last)
        if told.type not in ("response.completed", "response.incomplete") or told.response is None:
            why = "The response failed before its input was used."
            return Turn([self._failed(steer, "response_not_active", why) for steer in answer.steers])
        required = [stub for item in told.response.output or () if (stub := _required(item)) is not None]
        if required:
            self._waiting[answer.lane] = answer.steers
            more = {"reason": "waiting_for_required_input", "required_input": required}
            return Turn([self._event("pending", steer=_named(steer), **more) for steer in answer.steers])
        said = [item for steer in answer.steers for item in steer.items()]
        successor = answer.body | {"previous_response_id": Raw(_encode(id)), "input": Raw(_encode(said))}
        return Turn([], successor, answer.steers)

    def give_back(self, steers: list[Steer], why: str) -> list[dict[str, Any]]:
        """There will be no successor."""
        return [self._failed(steer, "successor_creation_failed", why) for steer in steers]

    def joined(self, lane: str, request: dict[str, Raw]) -> Turn:
        """With what waits in its lane before what it says. If it goes on from elsewhere, that is given back."""
        steers = self._waiting.pop(lane, [])
        if not steers:
            return Turn([], request)
        if _decode(request.get("previous_response_id", b"null")) != steers[0].previous:
            why = "The next request of the lane does not continue this response."
            return Turn([self._failed(steer, "response_not_active", why) for steer in steers], request)
        own = Steer("", "", request.get("input", Raw(b"[]"))).items()
        said = [*(item for steer in steers for item in steer.items()), *own]
        return Turn([], request | {"input": Raw(_encode(said))}, steers)

    def _event(self, kind: str, **members: Any) -> dict[str, Any]:
        self._told += 1
        return {"type": f"response.steer.{kind}", "sequence_number": self._told - 1, **members}

    def _failed(self, steer: Steer, code: str, why: str) -> dict[str, Any]:
        error = {"type": "invalid_request_error", "code": code, "message": why}
        return self._event("failed", steer=_named(steer) | {"input": steer.input}, error=error)


def _named(steer: Steer) -> dict[str, Any]:
    return ({"id": steer.id} if steer.id else {}) | {"previous_response_id": steer.previous}


class _WrongInput(ValueError):
    """Steering takes what a user says, and nothing else."""


def _check(said: Raw) -> None:
    if bytes(said)[:1] == b'"':
        return
    messages = _decode(said, type=list[_Message])
    if not messages:
        raise _WrongInput("input: at least one message is wanted")
    for message in messages:
        parts = message.content if isinstance(message.content, list) else []
        if message.type != "message" or message.role != "user":
            raise _WrongInput("input: only messages of the user are taken")
        if any(part.get("type") not in _CONTENT for part in parts):
            raise _WrongInput(f"input: content is {', '.join(_CONTENT)}")


def _required(item: _Item) -> dict[str, Any] | None:
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
