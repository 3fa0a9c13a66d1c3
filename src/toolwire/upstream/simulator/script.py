"""Scripts: exact turns for the model to play, in TOML or JSON.

Each request plays the first turn that is left and matches. When none is, the model answers by itself.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from toolwire.canonical.computer import Action, SafetyCheck
from toolwire.canonical.errors import ApiError, ErrorKind
from toolwire.canonical.request import Request
from toolwire.canonical.response import StopReason
from toolwire.upstream.simulator.model import Reply, ReplyCall
from toolwire.upstream.simulator.prompt import read_prompt


class ScriptError(ValueError):
    """The script can't be played: the message names the place."""


class ScriptedCall(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A call: `arguments` as a table or as text that need not be JSON, or for a free-text tool `input`."""

    name: str
    arguments: dict[str, Any] | str | None = None
    input: str | None = None
    namespace: str | None = None

    def to_reply_call(self) -> ReplyCall:
        if self.input is not None:
            return ReplyCall(self.name, self.input, self.namespace, freeform=True)
        said = {} if self.arguments is None else self.arguments
        text = said if isinstance(said, str) else msgspec.json.encode(said).decode()
        return ReplyCall(self.name, text, self.namespace)


class ScriptedError(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`status` overrides the one that the protocol has for the kind."""

    kind: ErrorKind = "server"
    status: int | None = None
    message: str = "The script says so."
    retry_after: float | None = None


class ScriptedTurn(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What to play. `when` and `after` say for which words of the user, and after how many answers of the model. An
    `error` alone is the whole answer; after a `text` it breaks a stream. `cut` closes the connection after so many
    pieces; `garbage` is sent in place of the rest; `endless` never stops. `actions` drive the screen that the request
    declares, in its form; a person must agree to the `checks` first."""

    when: str | None = None
    after: int | None = None
    repeat: int = 1
    thinking: str | None = None
    text: str | None = None
    calls: tuple[ScriptedCall, ...] = ()
    actions: tuple[Action, ...] = ()
    checks: tuple[SafetyCheck, ...] = ()
    stop: StopReason | None = None
    error: ScriptedError | None = None
    delay: float = 0
    pace: float = 0
    cut: int | None = None
    garbage: str | None = None
    endless: bool = False

    def to_reply(self) -> Reply:
        error = None if self.error is None else self.to_api_error()
        calls = tuple(call.to_reply_call() for call in self.calls)
        return Reply(
            thinking=self.thinking,
            text=self.text,
            calls=calls,
            actions=self.actions,
            checks=self.checks,
            stop=self.stop,
            error=error,
        )

    def to_api_error(self) -> ApiError:
        told = self.error or ScriptedError()
        return ApiError(kind=told.kind, message=told.message, status=told.status, retry_after=told.retry_after)

    def is_error_only(self) -> bool:
        """Whether it is an error before anything is said."""
        return (
            self.error is not None
            and self.text is None
            and self.thinking is None
            and not self.calls
            and not self.actions
        )


class _ScriptFile(Struct, frozen=True, forbid_unknown_fields=True):
    turns: tuple[ScriptedTurn, ...]


class Script:
    """Turns, and how often each may still be played; `repeat` of 0 is for ever."""

    def __init__(self, turns: tuple[ScriptedTurn, ...]) -> None:
        self._turns = turns
        self._remaining = [turn.repeat or -1 for turn in turns]

    def next_turn(self, request: Request, protocol: str) -> ScriptedTurn | None:
        """The turn to play for the words of the user in it."""
        text = read_prompt(request).text
        # Some protocols tell one answer in several messages.
        roles = ("", *(message.role for message in request.messages))
        answers = sum(before != "assistant" == one for before, one in pairwise(roles))
        for place, turn in enumerate(self._turns):
            meant = (turn.when is None or turn.when in text) and turn.after in (None, answers)
            if self._remaining[place] and meant:
                self._remaining[place] -= 1
                return turn
        return None


def load_script(path: Path) -> Script:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ScriptError(f"can't read {path}: {error.strerror}") from None
    return parse_script(data, str(path), toml=path.suffix != ".json")


def parse_script(data: bytes, name: str, *, toml: bool = True) -> Script:
    try:
        found = (msgspec.toml if toml else msgspec.json).decode(data, type=_ScriptFile)
    except (msgspec.DecodeError, ValueError) as error:
        raise ScriptError(f"{name}: {error}") from None
    return Script(found.turns)
