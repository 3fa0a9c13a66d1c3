"""Secrets, taken out of what is kept: those that are known, and what has the shape of a key."""

import json
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

from msgspec.structs import replace

from toolwire.canonical.loss import Loss
from toolwire.codec.credentials import find_credentials

from .reading import answer_of
from .records import Bodies, Record

REMOVED = "[removed]"
# A shorter one is a placeholder such as `none`, and part of ordinary words.
LEAST_LENGTH = 8
LIMIT_REMEMBERED = 100


def without_shapes(data: bytes) -> bytes:
    """The text without what looks like a key."""
    spans = find_credentials(data)
    if not spans:
        return data
    pieces: list[bytes] = []
    last = 0
    for start, end in spans:
        if start >= last:
            pieces += (data[last:start], REMOVED.encode())
        last = max(last, end)
    return b"".join((*pieces, data[last:]))


class Redactor:
    """Takes out these secrets in whichever spelling, and whatever has the shape of one."""

    def __init__(self, secrets: Iterable[str]) -> None:
        spelled = {
            spelling.encode()
            for secret in secrets
            if len(secret) >= LEAST_LENGTH
            for spelling in (
                secret,
                json.dumps(secret)[1:-1],
                json.dumps(secret)[1:-1].replace("/", r"\/"),  # as PHP writes it
                json.dumps(secret, ensure_ascii=False)[1:-1],
                quote(secret, safe=""),
                quote_plus(secret),
            )
        }
        self._known = sorted(spelled, key=len, reverse=True)  # one may begin with another
        self._seen: dict[str, str] = {}
        self._clean: list[Loss] = []  # one exchange loses what the one before it did

    def data(self, data: bytes) -> bytes:
        for known in self._known:
            if known in data:
                data = data.replace(known, REMOVED.encode())
        return without_shapes(data)

    def text(self, text: str) -> str:
        return self.data(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass") if text else text

    def record(self, record: Record) -> Record:
        """The record, as it may be kept and shown."""
        text, route, bodies = self._text, record.route, record.bodies
        path, model, why = text(record.path), text(record.model), text(record.why)
        if route.model is not None and (named := text(route.model)) is not route.model:
            route = replace(route, model=named)
        losses = record.losses
        if losses and losses != self._clean:
            losses = [self._loss(loss) for loss in losses]
            self._clean = losses if len(losses) <= LIMIT_REMEMBERED else []
        if bodies is not None:
            bodies = self._cleaned(record, bodies)
        elif path is record.path and model is record.model and why is record.why and route is record.route:
            return record if losses == record.losses else replace(record, losses=losses)
        return replace(record, path=path, model=model, why=why, route=route, losses=losses, bodies=bodies)

    def _text(self, text: str) -> str:
        """The same short texts come again and again; the very same text, if there is nothing in it to take out."""
        if (known := self._seen.get(text)) is not None:
            return text if known == text else known
        cleaned = self.text(text)
        if len(text) <= 200 and len(self._seen) < 4096:  # some are the clients' to choose
            self._seen[text] = cleaned
        return text if cleaned == text else cleaned

    def _loss(self, loss: Loss) -> Loss:
        path, why = self._text(loss.path), self._text(loss.why)
        return loss if path is loss.path and why is loss.why else replace(loss, path=path, why=why)

    def _cleaned(self, record: Record, bodies: Bodies) -> Bodies:
        response, folded = self._answer(record, bodies)
        return Bodies(
            request=self.data(bodies.request),
            translated=self.data(bodies.translated),
            response=response,
            folded=folded,
        )

    def _answer(self, record: Record, bodies: Bodies) -> tuple[bytes, bool]:
        """The answer, and whether it is only what a stream told. The pieces of a stream may hold a piece of a secret
        each: then they can't be kept."""
        if record.streamed and not bodies.folded:
            told = answer_of(record)
            if (cleaned := self.data(told)) != told:
                return cleaned, True
        return self.data(bodies.response), bodies.folded
