"""One request to a provider: its head, its retries, and the error that a refusal stands for."""

import asyncio

from msgspec.structs import replace

from toolwire.canonical.errors import ApiError, DecodeError
from toolwire.codec.interface import Codec, Route
from toolwire.codec.repeated import Repeated
from toolwire.translation import to_bytes
from toolwire.upstream.provider import Origin, Provider
from toolwire.upstream.transport import Answer, Transport, TransportError, head_of

from .config import LimitsSection
from .faults import STATUS_KINDS, fault_of, seconds, transport_refusal
from .passing import Sent
from .refusal import Refused
from .retries import classify_status, retry_delay
from .routing import size_of

_LIMIT_ERROR = 1024 * 1024
"""The longest error body that is read, in bytes."""


class Sender:
    def __init__(self, transport: Transport, limits: LimitsSection) -> None:
        self._transport = transport
        self._limits = limits
        self._heads: Repeated[tuple[str, str, tuple[tuple[str, str], ...]], tuple[Origin, bytes]] = Repeated()

    async def send(self, sent: Sent, body: bytes) -> Answer:
        """Send one request, again while the provider does no work on it."""
        provider, retries = sent.way.provider, 0
        origin, head = self._head(provider, sent.upstream, sent.route)
        while True:
            try:
                answer = await self._transport.send(
                    origin, head, body, silence=provider.timeout, patience=provider.connect_timeout
                )
                if answer.status < 300:
                    return answer
                refused = Refused(await self._fault(sent, answer), attempt=classify_status(answer.status))
            except TransportError as error:
                refused = transport_refusal(provider, error)
            delay = retry_delay(refused, retries)
            if delay is None or retries == self._limits.retries:
                raise refused
            retries += 1
            await asyncio.sleep(delay)

    def _head(self, provider: Provider, upstream: Codec, route: Route) -> tuple[Origin, bytes]:
        key = (provider.name, path := route.path or "/", route.headers)
        if (known := self._heads.get(key)) is not None:
            return known
        headers = {"content-type": "application/json"} | provider.own_headers(upstream.surface)
        for name, words in route.headers:
            joined_words = name == upstream.surface.passed and name in headers
            headers[name] = f"{headers[name]},{words}" if joined_words else words
        found = provider.origin, head_of(provider.origin, provider.address(path), headers.items())
        self._heads.keep(key, found, size_of(path, *(words for _, words in route.headers)))
        return found

    async def _fault(self, sent: Sent, answer: Answer) -> ApiError:
        """Decode what a provider answered in place of success, as an error that names it."""
        provider = sent.way.provider
        if answer.status < 400:
            answer.close()
            return fault_of(provider, "server", f"answered with a redirect ({answer.status}), which is not followed")
        try:
            body = await answer.read(min(_LIMIT_ERROR, self._limits.answer))
            error = sent.upstream.decode_error(to_bytes(body, sent.upstream.name), answer.status)
        except (DecodeError, TransportError):
            kind = STATUS_KINDS.get(answer.status) or ("server" if answer.status >= 500 else "invalid_request")
            kind = "rate_limit" if answer.status == 429 else kind
            error = fault_of(provider, kind, f"answered {answer.status} with no error of its protocol")
        else:
            if error.kind == "authentication":
                message = f"{provider.name} did not accept the key configured for it: {error.message}"
                error = replace(error, message=message, form=())
        after = seconds(answer.headers.get("retry-after"))
        return replace(error, status=answer.status, retry_after=after or error.retry_after)
