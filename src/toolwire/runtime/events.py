"""What a run tells while it goes on: for who watches, and as JSON lines."""

from typing import Any, Literal

from msgspec import Struct

from toolwire.canonical.response import Usage

StoppedBy = Literal[
    "finished",
    "steps",
    "time",
    "tokens",
    "repetition",
    "length",
    "filtered",
    "refused",
    "waiting",
    "cancelled",
    "failed",
]
"""Why a run ended: the answer is whole; a cap; the model's own length, filter or refusal; a person or an outcome is
waited for; somebody stopped it; a fault of protocol."""


class CallRecord(Struct, frozen=True, kw_only=True):
    """One call: what was run, who allowed it, and what came of it. It is for events and journal, never for the model.
    Times are seconds since the epoch; `summary` is the beginning of what the model was given; `edited`: who approved
    it changed the arguments. `response` is the provider's id of the answer that asked for the call, which its result
    continues; `provider` is the model as it was asked for, `version` what it calls itself. Nothing is left out of it
    where it is written: who reads it need not know what would be missing."""

    tool: str
    call_id: str
    arguments: Any = None
    approval: str = ""
    start: float = 0.0
    end: float = 0.0
    summary: str = ""
    error: str = ""
    retries: int = 0
    source: str = ""
    locus: str = "local"
    truncated: bool = False
    redacted: int = 0
    repairs: tuple[str, ...] = ()
    edited: bool = False
    response: str = ""
    provider: str = ""
    version: str = ""


class _Told(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event"):
    pass


class RunStarted(_Told, frozen=True, kw_only=True, tag="run_started"):
    run: str
    model: str
    resumed: bool = False


class TurnStarted(_Told, frozen=True, kw_only=True, tag="turn_started"):
    """`recorded`: the run was taken up again, and what the model said then is told, without asking it."""

    turn: int
    recorded: bool = False


class TextGrew(_Told, frozen=True, kw_only=True, tag="text"):
    text: str


class ThinkingGrew(_Told, frozen=True, kw_only=True, tag="thinking"):
    text: str


class TurnEnded(_Told, frozen=True, kw_only=True, tag="turn_ended"):
    """`response` and `model` are what the provider calls its answer, and itself."""

    turn: int
    stop: str
    usage: Usage | None = None
    response: str = ""
    model: str = ""


class CallProposed(_Told, frozen=True, kw_only=True, tag="call_proposed"):
    """The model wants it. `verdict` is what the policy says, `by` why; `refused` why it can't be run at all."""

    call_id: str
    tool: str
    arguments: str
    verdict: str = ""
    by: str = ""
    refused: str = ""


class CallStarted(_Told, frozen=True, kw_only=True, tag="call_started"):
    call_id: str
    tool: str


class CallProgressed(_Told, frozen=True, kw_only=True, tag="call_progressed"):
    call_id: str
    text: str


class CallEnded(_Told, frozen=True, kw_only=True, tag="call_ended"):
    """`denied` and `error` are told apart: nothing ran, or it did and failed."""

    call_id: str
    status: Literal["ok", "error", "denied"]
    record: CallRecord


class Warned(_Told, frozen=True, kw_only=True, tag="warning"):
    """Something to know that stops nothing: a server that is not there, a loss."""

    text: str


class RunEnded(_Told, frozen=True, kw_only=True, tag="run_ended"):
    run: str
    stopped: StoppedBy
    why: str = ""
    text: str = ""
    usage: Usage | None = None
    turns: int = 0
    calls: int = 0


RunEvent = (
    RunStarted
    | TurnStarted
    | TextGrew
    | ThinkingGrew
    | TurnEnded
    | CallProposed
    | CallStarted
    | CallProgressed
    | CallEnded
    | Warned
    | RunEnded
)
