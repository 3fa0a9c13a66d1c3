"""One line per request, and what it says.

Whatever comes from outside is escaped and bounded: no client forges a line, or sends escape codes to a terminal.
"""

import asyncio
import sys
import time
import traceback
from urllib.parse import quote

from msgspec import Struct

from toolwire.canonical.response import Usage

FLUSH_INTERVAL = 0.05
LIMIT_LINES = 1000
LIMIT_WORD = 256
LIMIT_TEXT = 300
LIMIT_TRACEBACK = 16 * 1024


class RequestRecord(Struct, kw_only=True):
    """What is known of a request. `told` is when the client last got something, `over` that it gets no more."""

    id: str
    method: str
    path: str
    started_at: float
    duration: float = 0.0
    status: int = 0
    client: str = ""
    provider: str = ""
    model: str = ""
    streamed: bool = False
    head_sent: bool = False
    finished: bool = False
    last_sent_at: float = 0.0
    failed: bool = False
    losses: int = 0
    usage: Usage | None = None
    error: str = ""
    exception: Exception | None = None

    def set_backend(self, provider: str, model: str | None) -> None:
        self.provider, self.model = provider, model or ""

    def format_line(self, clock: str) -> str:
        path, model = self.path, self.model
        if len(words := path + model) > LIMIT_WORD or not words.isprintable() or " " in words:
            path, model = _escape_word(path), _escape_word(model)
        goes = f" -> {self.provider}/{model}" if self.provider else ""
        stream = " stream" if self.streamed else ""
        used, losses, why = "", f" losses={self.losses}" if self.losses else "", ""
        if (usage := self.usage) is not None:
            used = f" in={usage.input_tokens or 0} out={usage.output_tokens or 0}"
        if self.error or self.failed:
            why = f" | {_escape_text(self.error) if self.error else 'the upstream failed midway'}"
        took = f"{self.duration * 1000:.0f}ms"
        status = self.status or 499
        return f"{clock} {status} {self.method} {path}{goes} {took}{stream}{used}{losses} {self.id}{why}"


def _escape_word(text: str) -> str:
    """Percent-encode what is not one printable word, and cut what is too long."""
    if len(text) <= LIMIT_WORD and text.isprintable() and " " not in text:
        return text
    cut = text if len(text) <= LIMIT_WORD else text[:LIMIT_WORD] + "..."
    return quote(cut, safe="!$&'()*+,/:;=@[]~", errors="backslashreplace")


def _escape_text(text: str, limit: int = LIMIT_TEXT) -> str:
    """Escape control characters as Python does, and cut what is too long."""
    cut = text if len(text) <= limit else text[:limit] + "..."
    return cut if cut.isprintable() else "".join(one if one.isprintable() else repr(one)[1:-1] for one in cut)


def _format_traceback(error: Exception) -> str:
    """The end of a traceback. Its lines are marked, for an error's text may hold line breaks."""
    text = "".join(traceback.format_exception(error)).rstrip("\n")[-LIMIT_TRACEBACK:]
    return "".join(f"  | {_escape_text(line, LIMIT_TRACEBACK)}\n" for line in text.split("\n"))


class AccessLog:
    """Writes to stderr, many lines at a time where there are many: writing each alone costs more than making it."""

    def __init__(self) -> None:
        self._records: list[RequestRecord] = []

    def add_record(self, record: RequestRecord) -> None:
        if not self._records:
            asyncio.get_running_loop().call_later(FLUSH_INTERVAL, self.flush)
        self._records.append(record)
        if len(self._records) >= LIMIT_LINES:
            self.flush()

    def write_line(self, text: str) -> None:
        """A line that is about no request; from any thread."""
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} {_escape_text(text)}\n")

    def flush(self) -> None:
        lines, self._records = self._records, []
        clock = time.strftime("%H:%M:%S")
        told: list[str] = []
        for line in lines:
            if line.path != "/healthz":
                told.append(line.format_line(clock) + "\n")
            if line.exception is not None:
                told.append(_format_traceback(line.exception))
        sys.stderr.write("".join(told))
