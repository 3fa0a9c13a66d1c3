"""The access log with one line per request, and loss reports for each exchange.

Client input is escaped and truncated: no client can forge a line, or send escape codes to a terminal.

A loss report is stored as JSON for each exchange, and shortened for a response header.
"""

import asyncio
import json
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from toolwire.canonical.errors import Loss, counted_losses
from toolwire.canonical.response import Usage
from toolwire.upstream.asgi import Header

FLUSH_INTERVAL = 0.05
_PROBE_PATHS = ("/healthz", "/livez", "/readyz")
LIMIT_LINES = 1000
LIMIT_WORD = 256
LIMIT_TEXT = 300
LIMIT_TRACEBACK = 16 * 1024


class RequestRecord(Struct, kw_only=True):
    """A request's row in the access log, the metrics and the journal, filled in while it is served."""

    id: str
    method: str
    path: str
    started_at: float
    responded_at: float | None = None  # when the response began
    duration: float = 0.0
    status: int = 0
    client: str = ""
    provider: str = ""
    model: str = ""
    client_model: str = ""  # as the client names it
    requested: str = ""  # the client's model, where a default one answers instead
    streamed: bool = False
    failed: bool = False
    losses: int = 0  # all but those of severity `info`
    loss_errors: int = 0
    calls: dict[str, int] | None = None  # by outcome
    failovers: int = 0  # backends that failed before the one that responded
    usage: Usage | None = None
    error: str = ""
    exception: Exception | None = None
    request_id: str = ""  # as the client sent it in `x-request-id`
    trace: str = ""  # id of the client's trace
    user_agent: bytes = b""  # the beginning of `User-Agent`, for the console

    def as_json(self) -> dict[str, Any]:
        """Return the request as the members of a line of JSON; members without a value are left out."""
        usage = self.usage
        responded_at = self.responded_at
        members = {
            "status": self.status or 499,
            "method": self.method,
            "path": self.path[:LIMIT_TEXT],
            "client": self.client,
            "provider": self.provider,
            "model": self.model[:LIMIT_TEXT],
            "requested_model": self.requested[:LIMIT_TEXT],
            "ms": round(1000 * self.duration, 1),
            "first_ms": None if responded_at is None else round(1000 * (responded_at - self.started_at), 1),
            "streamed": self.streamed or None,
            "input_tokens": None if usage is None else usage.input_tokens,
            "output_tokens": None if usage is None else usage.output_tokens,
            "losses": self.losses or None,
            "loss_errors": self.loss_errors or None,
            "failovers": self.failovers or None,
            "exchange": self.id,
            "request_id": self.request_id,
            "trace": self.trace,
            "error": self.error[:LIMIT_TEXT] or ("the upstream failed during the response" if self.failed else ""),
        }
        return {name: value for name, value in members.items() if value not in (None, "")}

    def format_line(self, clock: str) -> str:
        """Return the line of the access log; `clock` is the time of day that it starts with."""
        path, model = self.path, self.model
        if len(words := path + model) > LIMIT_WORD or not words.isprintable() or " " in words:
            path, model = _escape_word(path), _escape_word(model)
        backend = f" -> {self.provider}/{model}" if self.provider else ""
        if self.requested:
            backend = f" {_escape_word(self.requested)}{backend}"
        stream = " stream" if self.streamed else ""
        tokens, losses, error = "", f" losses={self.losses}" if self.losses else "", ""
        if self.loss_errors:
            losses += f" loss_errors={self.loss_errors}"
        if self.failovers:
            losses += f" failovers={self.failovers}"
        if (usage := self.usage) is not None:
            tokens = f" in={usage.input_tokens or 0} out={usage.output_tokens or 0}"
        if self.error or self.failed:
            error = f" | {_escape_text(self.error) if self.error else 'the upstream failed during the response'}"
        duration = f"{self.duration * 1000:.0f}ms"
        status = self.status or 499
        start = f"{clock} {status} {self.method} {path}{backend}"
        request = f" request={_escape_word(self.request_id)}" if self.request_id else ""
        return f"{start} {duration}{stream}{tokens}{losses} {self.id}{request}{error}"


@lru_cache(maxsize=256)
def encode_model_header(provider: str, model: str) -> Header:
    """Return the header that names the model that answers."""
    return b"toolwire-model", _escape_word(f"{provider}/{model}").encode("ascii", "replace")


def _escape_word(text: str) -> str:
    """Return the text as one printable word, percent-encoded where needed and truncated."""
    if len(text) <= LIMIT_WORD and text.isprintable() and " " not in text:
        return text
    cut = text if len(text) <= LIMIT_WORD else text[:LIMIT_WORD] + "..."
    return quote(cut, safe="!$&'()*+,/:;=@[]~", errors="backslashreplace")


def _escape_text(text: str, limit: int = LIMIT_TEXT) -> str:
    """Return the text with control characters escaped as in Python, truncated to `limit`."""
    cut = text if len(text) <= limit else text[:limit] + "..."
    return (
        cut
        if cut.isprintable()
        else "".join(character if character.isprintable() else repr(character)[1:-1] for character in cut)
    )


def _format_traceback(error: Exception) -> str:
    """Return the end of a traceback, with every line marked, as error messages may contain line breaks."""
    lines = _traceback_text(error).split("\n")
    return "".join(f"  | {_escape_text(line, LIMIT_TRACEBACK)}\n" for line in lines)


def _traceback_text(error: Exception) -> str:
    """Return the end of a traceback."""
    return "".join(traceback.format_exception(error)).rstrip("\n")[-LIMIT_TRACEBACK:]


def _json_line(members: dict[str, Any]) -> str:
    """Return a line of JSON in ASCII, with the time; nothing in it controls a terminal."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return json.dumps({"time": now, **members}).replace("\x7f", "\\u007f") + "\n"


class AccessLog:
    """Writes the log to stderr in batches, as a write costs more than formatting a line."""

    def __init__(self, *, is_json: bool = False) -> None:
        """With `is_json`, each line is a JSON object."""
        self._is_json = is_json
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
        if self._is_json:
            sys.stderr.write(_json_line({"message": text[:LIMIT_TRACEBACK]}))
        else:
            sys.stderr.write(f"{time.strftime('%H:%M:%S')} {_escape_text(text)}\n")

    def flush(self) -> None:
        """Write all pending records."""
        records, self._records = self._records, []
        clock = time.strftime("%H:%M:%S")
        output: list[str] = []
        for record in records:
            if record.path not in _PROBE_PATHS:
                output.append(_json_line(record.as_json()) if self._is_json else record.format_line(clock) + "\n")
            if record.exception is not None:
                output.append(
                    _json_line({"exchange": record.id, "traceback": _traceback_text(record.exception)})
                    if self._is_json
                    else _format_traceback(record.exception)
                )
        if output:
            sys.stderr.write("".join(output))


class SilentLog(AccessLog):
    """An access log that discards every line, for gateways inside a program that knows its own requests."""

    def add_record(self, record: RequestRecord) -> None:
        """Skip the line of a request."""

    def write_line(self, text: str) -> None:
        """Skip a line."""


LIMIT_HEADER = 2048
LIMIT_REPORT = 256 * 1024

_encode_json = msgspec.json.encode


def encode_losses(losses: Sequence[Loss]) -> bytes:
    """Return losses as JSON; over the size limit, as many as fit and the number of the others as `more`."""
    body = _encode_json({"losses": losses})
    return body if len(body) <= LIMIT_REPORT else _encode_truncated(losses, LIMIT_REPORT, _encode_json)


def encode_losses_header(losses: list[Loss], report: bytes | None = None) -> bytes:
    """Encode losses as ASCII JSON for a header, without those of severity `info`; empty if there are no others.

    `report` is the JSON of all losses, if it is known. If the JSON is too long, losses are left out.
    """
    counted = counted_losses(losses)
    if not counted:
        return b""
    body = report if report is not None and len(counted) == len(losses) else _encode_json({"losses": counted})
    if len(body) <= LIMIT_HEADER and len(escaped := _escape_non_ascii(body)) <= LIMIT_HEADER:
        return escaped
    counted.sort(key=lambda loss: loss.severity)  # errors first
    return _encode_truncated(counted, LIMIT_HEADER, lambda loss: _escape_non_ascii(_encode_json(loss)))


def _encode_truncated(losses: Sequence[Loss], limit: int, encode: Callable[[Loss], bytes]) -> bytes:
    """Return as JSON the losses that fit in `limit` bytes, and the number of the others as `more`."""
    bytes_left = limit - len(b'{"losses":[],"more":%d}' % len(losses))
    encoded: list[bytes] = []
    for loss in losses:
        item = encode(loss)
        bytes_left -= len(item) + len(b",")
        if bytes_left < 0:
            break
        encoded.append(item)
    return b'{"losses":[%b],"more":%d}' % (b",".join(encoded), len(losses) - len(encoded))


def _escape_non_ascii(data: bytes) -> bytes:
    """Escape non-ASCII characters of JSON as `\\u` sequences."""
    if data.isascii():
        return data
    return "".join(
        character
        if character < "\x7f"
        else character.encode("utf-16-be").hex().join(("\\u", ""))
        if ord(character) < 0x10000
        else _escape_surrogate_pair(character)
        for character in data.decode()
    ).encode()


def _escape_surrogate_pair(character: str) -> str:
    """Escape a character outside the basic plane as two `\\u` sequences."""
    units = character.encode("utf-16-be").hex()
    return f"\\u{units[:4]}\\u{units[4:]}"
