"""Scripts of exact turns for the simulator to play, in TOML or JSON.

Each request plays the first remaining turn that matches it. If none matches, the model replies on its own.
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
from toolwire.upstream.simulator.faults import ScriptedFault
from toolwire.upstream.simulator.model import Reply, ReplyCall, check_dialect, write_as_text
from toolwire.upstream.simulator.prompt import read_prompt


class ScriptError(ValueError):
    """The script is invalid; the message names the location."""


class ScriptedCall(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A call of a scripted turn."""

    name: str
    # A table, or text that need not be valid JSON.
    arguments: dict[str, Any] | str | None = None
    # The input of a freeform tool.
    input: str | None = None
    namespace: str | None = None

    def to_reply_call(self) -> ReplyCall:
        """Return the call as part of a reply, with its arguments as JSON text."""
        if self.input is not None:
            return ReplyCall(self.name, self.input, self.namespace, freeform=True)
        arguments = {} if self.arguments is None else self.arguments
        text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
        return ReplyCall(self.name, text, self.namespace)


class ScriptedError(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An error of a scripted turn."""

    kind: ErrorKind = "server"
    # Overrides the status that the protocol uses for the kind.
    status: int | None = None
    message: str = "The script says so."
    retry_after: float | None = None


class ScriptedTurn(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One turn of a script: its conditions, its content, and its failures."""

    # Matches if the last user text contains this.
    when: str | None = None
    # Matches after this many replies of the model.
    after: int | None = None
    # Number of times to play it; 0 is unlimited.
    repeat: int = 1
    thinking: str | None = None
    text: str | None = None
    calls: tuple[ScriptedCall, ...] = ()
    # Writes the calls after the text, in this dialect, and the thinking before it, as a server without parsers does.
    dialect: str | None = None
    # Actions on the screen that the request declares, and the safety checks to acknowledge before them.
    actions: tuple[Action, ...] = ()
    checks: tuple[SafetyCheck, ...] = ()
    stop: StopReason | None = None
    # Alone, an error response; after content, the end of a stream.
    error: ScriptedError | None = None
    # Seconds before the response, and between the chunks of a stream.
    delay: float = 0
    pace: float = 0
    # Closes the connection after this many chunks.
    cut: int | None = None
    # Sent instead of the rest of the response.
    garbage: str | None = None
    # Repeats the first delta until the client disconnects.
    endless: bool = False
    # Breaks the response at a point of its content.
    fault: ScriptedFault | None = None

    def to_reply(self) -> Reply:
        """Return the content of the turn as a reply."""
        error = None if self.error is None else self.to_api_error()
        calls = tuple(call.to_reply_call() for call in self.calls)
        reply = Reply(
            thinking=self.thinking,
            text=self.text,
            calls=calls,
            actions=self.actions,
            checks=self.checks,
            stop=self.stop,
            error=error,
        )
        return reply if self.dialect is None else write_as_text(reply, self.dialect)

    def to_api_error(self) -> ApiError:
        """Return the error of the turn."""
        error = self.error or ScriptedError()
        return ApiError(kind=error.kind, message=error.message, status=error.status, retry_after=error.retry_after)

    def is_error_only(self) -> bool:
        """Return whether the turn is an error without any content."""
        return (
            self.error is not None
            and self.text is None
            and self.thinking is None
            and not self.calls
            and not self.actions
        )


class _ScriptFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of a script file."""

    turns: tuple[ScriptedTurn, ...]


class Script:
    """The turns of a script, and how often each may still be played."""

    def __init__(self, turns: tuple[ScriptedTurn, ...]) -> None:
        self._turns = turns
        self._remaining = [turn.repeat or -1 for turn in turns]

    def next_turn(self, request: Request, protocol: str) -> ScriptedTurn | None:
        """Return the first remaining turn that matches the request, and count it as played."""
        text = read_prompt(request).text
        # Some protocols split one reply into several messages.
        roles = ("", *(message.role for message in request.messages))
        replies = sum(previous != "assistant" == role for previous, role in pairwise(roles))
        for index, turn in enumerate(self._turns):
            matches = (turn.when is None or turn.when in text) and turn.after in (None, replies)
            if self._remaining[index] and matches:
                self._remaining[index] -= 1
                return turn
        return None


def load_script(path: Path) -> Script:
    """Read a script file, as JSON if its name ends with .json, else as TOML."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ScriptError(f"can't read {path}: {error.strerror}") from None
    return parse_script(data, str(path), toml=path.suffix != ".json")


def parse_script(data: bytes, name: str, *, toml: bool = True) -> Script:
    """Parse a script. `name` is used in error messages."""
    try:
        script_file = (msgspec.toml if toml else msgspec.json).decode(data, type=_ScriptFile)
        for turn in script_file.turns:
            check_dialect(turn.dialect)
    except (msgspec.DecodeError, ValueError) as error:
        raise ScriptError(f"{name}: {error}") from None
    return Script(script_file.turns)
