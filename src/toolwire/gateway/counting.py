"""How many tokens a request takes: what the provider says, or else an estimate of what it would be sent."""

import asyncio

import msgspec
from msgspec import Struct

from toolwire.codec.counting import estimate
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.transport import Transport, TransportError, head_of

from .exchange import Exchanger
from .log import Line
from .offload import is_heavy, run_apart
from .passing import Asked, Sent
from .routing import NoRoute

# Agents count before they ask: they should not wait long for a figure that can be estimated.
PATIENCE = 10.0
_LIMIT_ANSWER = 1024 * 1024


class Counted(Struct, frozen=True):
    tokens: int
    estimated: bool


class Counter:
    """A count is never worth an error: whatever keeps the provider from counting, there is an estimate."""

    def __init__(self, exchanger: Exchanger, transport: Transport) -> None:
        self._exchanger = exchanger
        self._transport = transport

    async def count(self, asked: Asked, line: Line) -> Counted:
        try:
            sent = await self._exchanger.translate(asked)
        except NoRoute:
            return Counted(await _estimate(asked.body), estimated=True)
        line.goes_to(sent.way.provider.name, sent.way.model)
        tokens = await self._told(sent)
        return Counted(await _estimate(sent.body) if tokens is None else tokens, estimated=tokens is None)

    async def _told(self, sent: Sent) -> int | None:
        """What the provider says, if it has an address for that."""
        provider, counting = sent.way.provider, PROTOCOLS[sent.way.provider.protocol].counting
        if counting is None or provider.path is not None or sent.route.path is None:
            return None
        path = counting.path(sent.route.path)
        headers = {"content-type": "application/json"} | provider.own_headers(sent.upstream.surface)
        head = head_of(provider.origin, provider.address(path), headers.items())
        body = await run_apart(counting.wrap, sent.body, sent.route.path, heavy=is_heavy(sent.body))
        try:
            async with asyncio.timeout(PATIENCE):
                answer = await self._transport.send(provider.origin, head, body, patience=provider.connect_timeout)
                told = await answer.read(_LIMIT_ANSWER)
            return counting.decode_count(told) if answer.status == 200 else None
        except (TransportError, TimeoutError, msgspec.MsgspecError, UnicodeDecodeError):
            return None


async def _estimate(body: bytes) -> int:
    return await run_apart(estimate, body, heavy=is_heavy(body))
