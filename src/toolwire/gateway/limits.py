"""Bounds on concurrent work and request size, and worker threads for large bodies.

Large bodies are decoded and encoded in threads, so that other requests need not wait. A thread that runs Python yields
the GIL every few milliseconds, but one that decodes a single long string does not: `limits.body` keeps that short. See
docs/decisions/0018-large-bodies-in-worker-threads.md.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from toolwire.canonical.errors import ApiError, Loss
from toolwire.canonical.request import Request
from toolwire.codec.wire.reader import decode_elements, decode_members
from toolwire.gateway.config import LimitsSection
from toolwire.gateway.errors import RequestRejected, provider_error
from toolwire.gateway.in_flight_counts import InFlightCounts
from toolwire.upstream.provider import Provider


class Quota:
    """A limit on concurrent streams, websockets or background responses of all workers, in total and for each key."""

    def __init__(
        self,
        noun: str,
        limit: int,
        share: int,
        counts: InFlightCounts | None = None,
        publish: Callable[[int], None] | None = None,
    ) -> None:
        """Create a quota of `limit` uses, at most `share` per key; call `publish` with the uses in this worker."""
        self._noun = noun
        self._limit = limit
        self._share = share
        self._counts = counts or InFlightCounts()
        self._publish = publish

    @property
    def used(self) -> int:
        """The uses in this worker."""
        return self._counts.own_total

    def acquire(self, tenant: str) -> None:
        """Count one more use by this key's tenant, or raise `RequestRejected` if there are too many."""
        self._adjust(tenant, 1)
        if self._counts.total() > self._limit:
            self._adjust(tenant, -1)
            message = f"too many {self._noun} at once"
            raise RequestRejected(ApiError(kind="overloaded", message=message, status=503))
        if self._counts.total_of(tenant) > self._share:
            self._adjust(tenant, -1)
            message = f"this key already has {self._share} {self._noun}, its share (limits.key_share): end one first"
            raise RequestRejected(ApiError(kind="rate_limit", message=message, status=429))

    def release(self, tenant: str) -> None:
        """Count one use less by this key's tenant."""
        self._adjust(tenant, -1)

    def _adjust(self, tenant: str, change: int) -> None:
        """Change the number in use, and publish it."""
        self._counts.add(tenant, change)
        if self._publish is not None:
            self._publish(self.used)


R = TypeVar("R")

SMALL_BODY = 32 * 1024
LARGE_BODY = 512 * 1024
MANY_OBJECTS = 1_000
"""The number of JSON objects from which a mid-size body is handled in a thread: decoding time grows with objects."""

BODY_THREADS = 2
UNCOUNTED_BODY = 1024 * 1024
_STEP = 1024 * 1024
_SLICE = 16 * 1024

_MESSAGE_FIELDS = ("messages", "contents", "input", "steps")
_STRING_MESSAGES = frozenset({"gemini"})
"""Protocols in which a message may be a string, so that `is_heavy_body` does not see how many there are."""


def is_heavy_body(body: bytes) -> bool:
    """Return whether decoding a body may block the event loop for more than a few milliseconds."""
    size = len(body)
    return size > SMALL_BODY and (size > LARGE_BODY or _has_more_objects(body, MANY_OBJECTS))


def _has_more_objects(body: bytes, most: int) -> bool:
    """Return whether a body has more than `most` opening braces, as an estimate of its objects.

    `replace` finds them by memchr, while `count` looks at each byte.
    """
    for at in range(0, len(body), _SLICE):
        piece = body[at : at + _SLICE]
        most -= len(piece) - len(piece.replace(b"{", b""))
        if most < 0:
            return True
    return False


class BodyExecutor:
    """The worker threads of a gateway, for work on heavy bodies and histories; other work runs inline."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, function: Callable[..., R], *args: Any, heavy: bool) -> R:
        """Run the function, in a thread if it is `heavy`, and return its result; it must not touch the event loop."""
        return await self.run_in_thread(function, *args) if heavy else function(*args)

    async def run_in_thread(self, function: Callable[..., R], *args: Any) -> R:
        """Run the function in a thread, and return its result; it must not touch the event loop."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(BODY_THREADS, thread_name_prefix="toolwire-body")
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *args)

    def close(self) -> None:
        """Stop the threads without waiting for them."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


class BodyBudget:
    """A limit on the bytes of all large request bodies that the workers hold at once (`limits.bodies`)."""

    def __init__(self, limit: int, counts: InFlightCounts | None = None) -> None:
        self._limit = limit
        self._counts = counts or InFlightCounts()

    @property
    def used(self) -> int:
        """The bytes that are reserved in this worker."""
        return self._counts.own_total

    def reserve(self, reserved: int, size: int) -> int:
        """Reserve bytes for a body of `size`, of which `reserved` are reserved already; return those reserved now."""
        if size <= UNCOUNTED_BODY:
            return reserved
        self._counts.add("", size - reserved)
        if self._counts.total() > self._limit:
            self._counts.add("", reserved - size)
            message = "too many large requests at once (limits.bodies): try again"
            raise RequestRejected(ApiError(kind="overloaded", message=message, status=503, retry_after=1))
        return size

    def release(self, reserved: int) -> None:
        """Release reserved bytes."""
        self._counts.add("", -reserved)


def check_values(body: bytes, limits: LimitsSection) -> None:
    """Reject a body with more than `limits.values` JSON values: decoding is one C call that never yields the GIL."""
    maximum = limits.values
    if len(body) > 2 * maximum and _count_signs(body, 0, len(body)) > maximum and _has_more_values(body, maximum):
        message = f"the request has more than {maximum} JSON values (limits.values)"
        raise RequestRejected(ApiError(kind="too_large", message=message, status=413))


def _has_more_values(body: bytes, maximum: int) -> bool:
    """Return whether a body has more than `maximum` values, not counting commas and brackets inside strings."""
    count, position = 0, 0
    while count <= maximum:
        quote = body.find(b'"', position)
        count += _count_signs(body, position, len(body) if quote < 0 else quote)
        if quote < 0 or (position := _end_of_string(body, quote + 1)) == 0:
            break
    return count > maximum


def _count_signs(body: bytes, start: int, end: int) -> int:
    """Count commas and opening brackets: an upper bound of the number of values, less one.

    The count goes in steps, so that the GIL is released in between.
    """
    return sum(
        [
            body.count(separator, position, min(position + _STEP, end))
            for position in range(start, end, _STEP)
            for separator in (b",", b"[", b"{")
        ]
    )


def _end_of_string(body: bytes, start: int) -> int:
    """Return the position after the string that starts here; 0 if it is unterminated."""
    while (end := body.find(b'"', start)) >= 0:
        text = body[start:end]
        start = end + 1
        if (len(text) - len(text.rstrip(b"\\"))) % 2 == 0:
            return start
    return 0


def uncounted_size(limits: LimitsSection) -> int:
    """Return the size up to which a body can exceed no limit: a tool or a part takes at least two bytes."""
    return min(SMALL_BODY, 2 * min(limits.parts, limits.tools))


def check_body_counts(body: bytes, limits: LimitsSection, protocol: str) -> None:
    """Reject a body with more values, messages or tools than allowed, before it is decoded.

    Decoding a body smaller than `LARGE_BODY` is cheaper than scanning it; `check_request_counts` checks it afterwards.
    """
    if len(body) <= SMALL_BODY:
        return
    check_values(body, limits)
    if len(body) > LARGE_BODY or protocol in _STRING_MESSAGES:
        _check_wire_counts(body, limits)


def _check_wire_counts(body: bytes, limits: LimitsSection) -> None:
    """Raise `RequestRejected` if a top-level list of messages or tools in the body is too long."""
    try:
        members = decode_members(body)
        for name in (*_MESSAGE_FIELDS, "tools"):
            value = members.get(name)
            if value is not None and bytes(value)[:1] == b"[":
                limit = "tools" if name == "tools" else "messages"
                _check_count(len(decode_elements(value)), limit, getattr(limits, limit), name)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return  # the protocol's decoder reports what is wrong


def check_request_counts(request: Request, limits: LimitsSection, body: bytes) -> None:
    """Reject a decoded request with too many tools or message parts, which some protocols group.

    Each message of the body is a message or a part of the request, so the body is counted only if these are many.
    """
    count = count_parts(request)
    tools = len(request.tools or ())
    if len(body) > SMALL_BODY and (count + len(request.messages) > limits.messages or tools > limits.tools):
        _check_wire_counts(body, limits)
    _check_count(tools, "tools", limits.tools, "tools")
    _check_count(count, "parts", limits.parts, "parts of messages")


def count_parts(request: Request) -> int:
    """Return the number of message parts of a request."""
    return sum(map(len, map(_parts, request.messages)))


_parts = attrgetter("parts")


def check_loss_count(losses: list[Loss], limits: LimitsSection, target: str) -> None:
    """Reject a request whose losses exceed `limits.losses`."""
    if len(losses) > limits.losses:
        message = f"{len(losses)} fields of the request have no equivalent in {target}, the limit is {limits.losses}"
        raise RequestRejected(ApiError(kind="invalid_request", message=f"{message} (limits.losses)", status=400))


def _check_count(count: int, limit_name: str, maximum: int, noun: str) -> None:
    """Raise `RequestRejected` (413) if there are more than `maximum` items of one kind."""
    if count > maximum:
        message = f"the request has {count} {noun}, the limit is {maximum} (limits.{limit_name})"
        raise RequestRejected(ApiError(kind="too_large", message=message, status=413))


class StreamBudget(Struct):
    """The bytes that may still be read of one upstream stream (`limits.stream`)."""

    provider: Provider
    bytes_left: int

    def consume(self, data: bytes) -> None:
        """Count received data, and raise `RequestRejected` if the stream is too long."""
        self.bytes_left -= len(data)
        if self.bytes_left < 0:
            reason = "sent a stream longer than this gateway allows (limits.stream)"
            raise RequestRejected(provider_error(self.provider, "server", reason), attempt="unknown")
