"""One line per request, and what it says."""

import asyncio
import sys
import time
import traceback

from msgspec import Struct

from toolwire.canonical.response import Usage

PAUSE = 0.05
LIMIT_LINES = 1000


class Line(Struct, kw_only=True):
    """What is known of a request. `told` is when the client last got something, `over` that it gets no more."""

    id: str
    method: str
    path: str
    began: float
    seconds: float = 0.0
    status: int = 0
    client: str = ""
    provider: str = ""
    model: str = ""
    streamed: bool = False
    started: bool = False
    over: bool = False
    told: float = 0.0
    failed: bool = False
    losses: int = 0
    usage: Usage | None = None
    why: str = ""
    crash: Exception | None = None

    def goes_to(self, provider: str, model: str | None) -> None:
        self.provider, self.model = provider, model or ""

    def text(self, clock: str) -> str:
        goes = f" -> {self.provider}/{self.model}" if self.provider else ""
        stream = " stream" if self.streamed else ""
        used, losses, why = "", f" losses={self.losses}" if self.losses else "", ""
        if (usage := self.usage) is not None:
            used = f" in={usage.input_tokens or 0} out={usage.output_tokens or 0}"
        if self.why or self.failed:
            why = f" | {_one_line(self.why) if self.why else 'the upstream failed midway'}"
        took = f"{self.seconds * 1000:.0f}ms"
        status = self.status or 499
        return f"{clock} {status} {self.method} {self.path}{goes} {took}{stream}{used}{losses} {self.id}{why}"


def _one_line(text: str) -> str:
    shown = "".join(one if one.isprintable() else " " for one in text)
    return shown if len(shown) <= 300 else shown[:300] + "..."


class Log:
    """Writes to stderr, many lines at a time where there are many: writing each alone costs more than making it."""

    def __init__(self) -> None:
        self._lines: list[Line] = []

    def add(self, line: Line) -> None:
        if not self._lines:
            asyncio.get_running_loop().call_later(PAUSE, self.flush)
        self._lines.append(line)
        if len(self._lines) >= LIMIT_LINES:
            self.flush()

    def say(self, text: str) -> None:
        """A line that is about no request; from any thread."""
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} {_one_line(text)}\n")

    def flush(self) -> None:
        lines, self._lines = self._lines, []
        clock = time.strftime("%H:%M:%S")
        told: list[str] = []
        for line in lines:
            if line.path != "/healthz":
                told.append(line.text(clock) + "\n")
            if line.crash is not None:
                told += traceback.format_exception(line.crash)
        sys.stderr.write("".join(told))
