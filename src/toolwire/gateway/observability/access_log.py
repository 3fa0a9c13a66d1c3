"""The access log: one line per request.

Client input is escaped and truncated: no client can forge a line, or send escape codes to a terminal.
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
    """A request's entry in the access log, filled in while it is served."""

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
    """Whether the response is complete."""
    last_sent_at: float = 0.0
    """When data was last sent to the client, on the monotonic clock."""
    failed: bool = False
    losses: int = 0
    usage: Usage | None = None
    error: str = ""
    exception: Exception | None = None

    def set_backend(self, provider: str, model: str | None) -> None:
        """Record the provider and model that serve the request."""
        self.provider, self.model = provider, model or ""

    def format_line(self, clock: str) -> str:
        """Format the line, starting with this time of day."""
        path, model = self.path, self.model
        if len(words := path + model) > LIMIT_WORD or not words.isprintable() or " " in words:
            path, model = _escape_word(path), _escape_word(model)
        backend = f" -> {self.provider}/{model}" if self.provider else ""
        stream = " stream" if self.streamed else ""
        tokens, losses, error = "", f" losses={self.losses}" if self.losses else "", ""
        if (usage := self.usage) is not None:
            tokens = f" in={usage.input_tokens or 0} out={usage.output_tokens or 0}"
        if self.error or self.failed:
            error = f" | {_escape_text(self.error) if self.error else 'the upstream failed during the response'}"
        duration = f"{self.duration * 1000:.0f}ms"
        status = self.status or 499
        start = f"{clock} {status} {self.method} {path}{backend}"
        return f"{start} {duration}{stream}{tokens}{losses} {self.id}{error}"


def _escape_word(text: str) -> str:
    """Percent-encode text that is not one printable word, and truncate it."""
    if len(text) <= LIMIT_WORD and text.isprintable() and " " not in text:
        return text
    cut = text if len(text) <= LIMIT_WORD else text[:LIMIT_WORD] + "..."
    return quote(cut, safe="!$&'()*+,/:;=@[]~", errors="backslashreplace")


def _escape_text(text: str, limit: int = LIMIT_TEXT) -> str:
    """Escape control characters as Python does, and truncate the text."""
    cut = text if len(text) <= limit else text[:limit] + "..."
    return (
        cut
        if cut.isprintable()
        else "".join(character if character.isprintable() else repr(character)[1:-1] for character in cut)
    )


def _format_traceback(error: Exception) -> str:
    """Format the end of a traceback; every line is marked, as error messages may contain line breaks."""
    text = "".join(traceback.format_exception(error)).rstrip("\n")[-LIMIT_TRACEBACK:]
    return "".join(f"  | {_escape_text(line, LIMIT_TRACEBACK)}\n" for line in text.split("\n"))


class AccessLog:
    """Writes the log to stderr in batches, as a write costs more than formatting a line."""

    def __init__(self) -> None:
        self._records: list[RequestRecord] = []

    def add_record(self, record: RequestRecord) -> None:
        """Add a request, to be written within `FLUSH_INTERVAL`."""
        if not self._records:
            asyncio.get_running_loop().call_later(FLUSH_INTERVAL, self.flush)
        self._records.append(record)
        if len(self._records) >= LIMIT_LINES:
            self.flush()

    def write_line(self, text: str) -> None:
        """Write a line that is not about a request; callable from any thread."""
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} {_escape_text(text)}\n")

    def flush(self) -> None:
        """Write all pending records."""
        records, self._records = self._records, []
        clock = time.strftime("%H:%M:%S")
        output: list[str] = []
        for record in records:
            if record.path != "/healthz":
                output.append(record.format_line(clock) + "\n")
            if record.exception is not None:
                output.append(_format_traceback(record.exception))
        sys.stderr.write("".join(output))
