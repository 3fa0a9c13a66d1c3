"""Redact secrets: known values in any encoding, and text that looks like a key."""

import json
import threading
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

from msgspec.structs import replace

from toolwire.canonical.errors import Loss
from toolwire.codec.sensitive_data import find_credentials
from toolwire.journal.records import Bodies, Record, folded_answer, recorded_response_body

REDACTED = "[removed]"
# Shorter values are placeholders such as `none`, and occur in ordinary text.
MIN_SECRET_LENGTH = 8
MAX_CACHED_LOSSES = 100
MAX_ADDED_SECRETS = 256
"""Maximum number of secrets added after the start. The least recently used one is dropped first."""


def redact_credentials(data: bytes) -> bytes:
    """Replace each text that looks like an API key, and return the result."""
    spans = find_credentials(data)
    if not spans:
        return data
    pieces: list[bytes] = []
    last = 0
    for start, end in spans:
        if start >= last:
            pieces += (data[last:start], REDACTED.encode())
        last = max(last, end)
    return b"".join((*pieces, data[last:]))


def _encodings(secret: str) -> set[bytes]:
    """Return the encodings in which a secret may occur; none for a short one."""
    if len(secret) < MIN_SECRET_LENGTH:
        return set()
    escaped = json.dumps(secret)[1:-1]
    texts = (
        secret,
        escaped,
        escaped.replace("/", r"\/"),  # PHP escapes slashes in JSON
        json.dumps(secret, ensure_ascii=False)[1:-1],
        quote(secret, safe=""),
        quote_plus(secret),
    )
    return {text.encode() for text in texts}


class Redactor:
    """Redacts known secrets in plain, JSON and URL encoding, and text that looks like a key."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._configured = set[bytes]().union(*map(_encodings, secrets))
        self._added: dict[str, set[bytes]] = {}
        self._lock = threading.Lock()
        self._text_cache: dict[str, str] = {}
        self._last_losses: list[Loss] = []  # consecutive exchanges often have the same losses
        self._collect()

    def add_secret(self, secret: str) -> None:
        """Redact another secret from now on: a key that a command printed, or a credential of a client."""
        with self._lock:
            known = self._added.pop(secret, None)
            self._added[secret] = _encodings(secret) if known is None else known
            if known is not None:
                return
            if len(self._added) > MAX_ADDED_SECRETS:
                del self._added[next(iter(self._added))]
            self._collect()

    def _collect(self) -> None:
        """Collect the encodings of all secrets, the longest first, since one may be the beginning of another."""
        self._secrets = sorted(self._configured.union(*self._added.values()), key=len, reverse=True)
        self._text_cache, self._last_losses = {}, []

    def redact_bytes(self, data: bytes) -> bytes:
        """Return encoded text with its secrets replaced."""
        for secret in self._secrets:
            if secret in data:
                data = data.replace(secret, REDACTED.encode())
        return redact_credentials(data)

    def redact_text(self, text: str) -> str:
        """Return text with its secrets replaced."""
        return (
            self.redact_bytes(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass") if text else text
        )

    def redact_record(self, record: Record) -> Record:
        """Return the record without secrets; the same object if it has none."""
        redact, route, bodies = self._redact_cached, record.route, record.bodies
        path, model, error = redact(record.path), redact(record.model), redact(record.error)
        if route.model is not None and (route_model := redact(route.model)) is not route.model:
            route = replace(route, model=route_model)
        losses = record.losses
        if losses and losses != self._last_losses:
            losses = [self._redact_loss(loss) for loss in losses]
            self._last_losses = losses if len(losses) <= MAX_CACHED_LOSSES else []
        if bodies is not None:
            bodies = self._redact_bodies(record, bodies)
        elif path is record.path and model is record.model and error is record.error and route is record.route:
            return record if losses == record.losses else replace(record, losses=losses)
        return replace(record, path=path, model=model, error=error, route=route, losses=losses, bodies=bodies)

    def _redact_cached(self, text: str) -> str:
        """Redact a short text that recurs, such as a path; returns the same object if it has no secret."""
        if (cached := self._text_cache.get(text)) is not None:
            return text if cached == text else cached
        redacted = self.redact_text(text)
        if len(text) <= 200 and len(self._text_cache) < 4096:  # limited, since clients choose some of the texts
            self._text_cache[text] = redacted
        return text if redacted == text else redacted

    def _redact_loss(self, loss: Loss) -> Loss:
        """Redact path and reason of a loss; return the same object if they have no secret."""
        path, reason = self._redact_cached(loss.path), self._redact_cached(loss.reason)
        return loss if path is loss.path and reason is loss.reason else replace(loss, path=path, reason=reason)

    def _redact_bodies(self, record: Record, bodies: Bodies) -> Bodies:
        """Return the bodies of a record with their secrets replaced."""
        response, folded = self._redact_response(record, bodies)
        return Bodies(
            request=self.redact_bytes(bodies.request),
            translated=self.redact_bytes(bodies.translated),
            answers=[self._redact_answer(record, answer) for answer in bodies.answers],
            is_passed_through=bodies.is_passed_through,
            response=response,
            folded=folded,
        )

    def _redact_answer(self, record: Record, answer: bytes) -> bytes:
        """Redact an answer of the provider; a stream whose events hold a secret is stored folded."""
        folded = folded_answer(record, answer)
        redacted = self.redact_bytes(folded)
        return self.redact_bytes(answer) if redacted == folded else redacted

    def _redact_response(self, record: Record, bodies: Bodies) -> tuple[bytes, bool]:
        """Redact the response body, and return it with True if it is now stored folded.

        A secret may be split over the events of a stream. Such a stream is folded: stored as one buffered response.
        """
        if record.streamed and not bodies.folded:
            folded_body = recorded_response_body(record)
            if (redacted := self.redact_bytes(folded_body)) != folded_body:
                return redacted, True
        return self.redact_bytes(bodies.response), bodies.folded
