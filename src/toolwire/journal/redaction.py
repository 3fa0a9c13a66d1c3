"""Secrets, taken out of what is kept: those that are known, and what has the shape of a key."""

import json
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

from msgspec.structs import replace

from toolwire.canonical.loss import Loss
from toolwire.codec.sensitive_data import find_credentials
from toolwire.journal.records import Bodies, Record, recorded_response_body

REDACTED = "[removed]"
# A shorter one is a placeholder such as `none`, and part of ordinary words.
MIN_SECRET_LENGTH = 8
MAX_CACHED_LOSSES = 100


def redact_credentials(data: bytes) -> bytes:
    """The text without what looks like a key."""
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


class Redactor:
    """Takes out these secrets in whichever spelling, and whatever has the shape of one."""

    def __init__(self, secrets: Iterable[str]) -> None:
        spelled = {
            spelling.encode()
            for secret in secrets
            if len(secret) >= MIN_SECRET_LENGTH
            for spelling in (
                secret,
                json.dumps(secret)[1:-1],
                json.dumps(secret)[1:-1].replace("/", r"\/"),  # as PHP writes it
                json.dumps(secret, ensure_ascii=False)[1:-1],
                quote(secret, safe=""),
                quote_plus(secret),
            )
        }
        self._secrets = sorted(spelled, key=len, reverse=True)  # one may begin with another
        self._text_cache: dict[str, str] = {}
        self._last_losses: list[Loss] = []  # one exchange loses what the one before it did

    def redact_bytes(self, data: bytes) -> bytes:
        for known in self._secrets:
            if known in data:
                data = data.replace(known, REDACTED.encode())
        return redact_credentials(data)

    def redact_text(self, text: str) -> str:
        return (
            self.redact_bytes(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass") if text else text
        )

    def redact_record(self, record: Record) -> Record:
        """The record, as it may be kept and shown."""
        text, route, bodies = self._redact_cached, record.route, record.bodies
        path, model, why = text(record.path), text(record.model), text(record.error)
        if route.model is not None and (named := text(route.model)) is not route.model:
            route = replace(route, model=named)
        losses = record.losses
        if losses and losses != self._last_losses:
            losses = [self._redact_loss(loss) for loss in losses]
            self._last_losses = losses if len(losses) <= MAX_CACHED_LOSSES else []
        if bodies is not None:
            bodies = self._redact_bodies(record, bodies)
        elif path is record.path and model is record.model and why is record.error and route is record.route:
            return record if losses == record.losses else replace(record, losses=losses)
        return replace(record, path=path, model=model, error=why, route=route, losses=losses, bodies=bodies)

    def _redact_cached(self, text: str) -> str:
        """The same short texts come again and again; the very same text, if there is nothing in it to take out."""
        if (known := self._text_cache.get(text)) is not None:
            return text if known == text else known
        cleaned = self.redact_text(text)
        if len(text) <= 200 and len(self._text_cache) < 4096:  # some are the clients' to choose
            self._text_cache[text] = cleaned
        return text if cleaned == text else cleaned

    def _redact_loss(self, loss: Loss) -> Loss:
        path, why = self._redact_cached(loss.path), self._redact_cached(loss.reason)
        return loss if path is loss.path and why is loss.reason else replace(loss, path=path, reason=why)

    def _redact_bodies(self, record: Record, bodies: Bodies) -> Bodies:
        response, folded = self._redact_response(record, bodies)
        return Bodies(
            request=self.redact_bytes(bodies.request),
            translated=self.redact_bytes(bodies.translated),
            response=response,
            folded=folded,
        )

    def _redact_response(self, record: Record, bodies: Bodies) -> tuple[bytes, bool]:
        """The answer, and whether it is only what a stream told. The pieces of a stream may hold a piece of a secret
        each: then they can't be kept."""
        if record.streamed and not bodies.folded:
            told = recorded_response_body(record)
            if (cleaned := self.redact_bytes(told)) != told:
                return cleaned, True
        return self.redact_bytes(bodies.response), bodies.folded
