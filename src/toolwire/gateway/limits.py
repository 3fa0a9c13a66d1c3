"""Bounds on what runs at once: in all, and for one key.

Large bodies: decoded and encoded in worker threads, so that nobody else waits for them, and bounded in number.

A thread that runs Python gives way every few milliseconds. One that decodes a single long string does not:
`limits.body` keeps that short. See docs/decisions/0018-large-bodies-in-worker-threads.md.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from toolwire.canonical.errors import ApiError
from toolwire.canonical.loss import Loss
from toolwire.canonical.request import Request
from toolwire.gateway.config import LimitsSection
from toolwire.gateway.errors import RequestRejected, provider_error
from toolwire.upstream.provider import Provider


class Quota:
    """Places for streams or websockets. One key may hold `share` of them; `publish` is told how many are taken."""

    def __init__(self, noun: str, limit: int, share: int, publish: Callable[[int], None] | None = None) -> None:
        self.used = 0
        self._noun = noun
        self._limit = limit
        self._share = share
        self._publish = publish
        self._used_by_tenant: Counter[str] = Counter()

    def acquire(self, tenant: str) -> None:
        """Take a place, or raise `Refused`."""
        if self.used >= self._limit:
            why = f"too many {self._noun} at once"
            raise RequestRejected(ApiError(kind="overloaded", message=why, status=503))
        if self._used_by_tenant[tenant] >= self._share:
            why = f"this key has {self._share} {self._noun} at once, its share of all (limits.key_share): end one first"
            raise RequestRejected(ApiError(kind="rate_limit", message=why, status=429))
        self._used_by_tenant[tenant] += 1
        self._adjust(1)

    def release(self, tenant: str) -> None:
        self._used_by_tenant[tenant] -= 1
        if not self._used_by_tenant[tenant]:
            del self._used_by_tenant[tenant]
        self._adjust(-1)

    def _adjust(self, delta: int) -> None:
        self.used += delta
        if self._publish is not None:
            self._publish(self.used)


R = TypeVar("R")

SMALL_BODY = 32 * 1024
LARGE_BODY = 512 * 1024
MANY_OBJECTS = 1_000
"""What a body of a size in between has to hold to be worth a thread: time goes by objects, not by bytes."""

BODY_THREADS = 2
UNCOUNTED_BODY = 1024 * 1024
_STEP = 1024 * 1024

_MESSAGE_FIELDS = ("messages", "contents", "input", "steps")
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_elements = msgspec.json.Decoder(list[Raw]).decode


def is_heavy_body(body: bytes) -> bool:
    """Whether decoding a body may hold the event loop for more than a few milliseconds."""
    size = len(body)
    return size > SMALL_BODY and (size > LARGE_BODY or body.count(b"{") > MANY_OBJECTS)


class BodyExecutor:
    """Worker threads for heavy bodies; all others are dealt with at once."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, body: bytes, function: Callable[..., R], *args: Any) -> R:
        """Do the work that this body makes. It must not touch the event loop."""
        if not is_heavy_body(body):
            return function(*args)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(BODY_THREADS, thread_name_prefix="toolwire-body")
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *args)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


class BodyBudget(Struct):
    """The bytes of all large requests under way: `limits.bodies`."""

    limit: int
    used: int = 0

    def reserve(self, reserved: int, size: int) -> int:
        """Make room for a body of this size, of which `held` bytes are counted; returns how many are now."""
        if size <= UNCOUNTED_BODY:
            return reserved
        if self.used + size - reserved > self.limit:
            why = "too many large requests at once (limits.bodies): try again"
            raise RequestRejected(ApiError(kind="overloaded", message=why, status=503, retry_after=1))
        self.used += size - reserved
        return size


async def run_in_thread_if(work: Callable[..., R], *args: Any, heavy: bool) -> R:
    """Do work that is not tied to an exchange: in a thread if it is heavy. It must not touch the event loop."""
    return await asyncio.to_thread(work, *args) if heavy else work(*args)


def check_values(body: bytes, limits: LimitsSection) -> None:
    """Refuse a body with more JSON values than allowed: one call into C decodes them all, and never yields the GIL."""
    most = limits.values
    if len(body) > 2 * most and _count_signs(body, 0, len(body)) > most and _has_more_values(body, most):
        why = f"the request has more than the {most} JSON values that limits.values allows"
        raise RequestRejected(ApiError(kind="too_large", message=why, status=413))


def _has_more_values(body: bytes, most: int) -> bool:
    """Count the values outside strings, in steps: texts may hold any number of commas and brackets."""
    count, at = 0, 0
    while count <= most:
        quote = body.find(b'"', at)
        count += _count_signs(body, at, len(body) if quote < 0 else quote)
        if quote < 0 or (at := _end_of_string(body, quote + 1)) == 0:
            break
    return count > most


def _count_signs(body: bytes, start: int, end: int) -> int:
    """Count what separates or opens values: there are at most as many values, and one more."""
    return sum(
        [body.count(sign, at, min(at + _STEP, end)) for at in range(start, end, _STEP) for sign in (b",", b"[", b"{")]
    )


def _end_of_string(body: bytes, start: int) -> int:
    """Return where a string ends that starts here; 0 if it does not end."""
    while (end := body.find(b'"', start)) >= 0:
        text = body[start:end]
        start = end + 1
        if (len(text) - len(text.rstrip(b"\\"))) % 2 == 0:
            return start
    return 0


def check_body_counts(body: bytes, limits: LimitsSection) -> None:
    """Refuse a body with more values, messages or tools than allowed, before they are decoded."""
    if len(body) <= SMALL_BODY:
        return
    check_values(body, limits)
    try:
        members = _decode_members(body)
        for name in (*_MESSAGE_FIELDS, "tools"):
            value = members.get(name)
            if value is not None and bytes(value)[:1] == b"[":
                limit = "tools" if name == "tools" else "messages"
                _check_count(len(_decode_elements(value)), limit, getattr(limits, limit), name)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return  # the decoder of its protocol says what is wrong


def check_request_counts(request: Request, limits: LimitsSection) -> None:
    """Refuse a request that holds more than allowed: some protocols group tools, and all of them parts."""
    _check_count(len(request.tools or ()), "tools", limits.tools, "tools")
    count = sum([len(message.parts) for message in request.messages])
    _check_count(count, "parts", limits.parts, "parts of messages")


def check_loss_count(losses: list[Loss], limits: LimitsSection, target: str) -> None:
    if len(losses) > limits.losses:
        why = f"{len(losses)} fields of the request can't be carried to {target}: at most {limits.losses} are reported"
        raise RequestRejected(ApiError(kind="invalid_request", message=f"{why} (limits.losses)", status=400))


def _check_count(count: int, limit_name: str, maximum: int, noun: str) -> None:
    if count > maximum:
        why = f"the request has {count} {noun}, more than the {maximum} that limits.{limit_name} allows"
        raise RequestRejected(ApiError(kind="too_large", message=why, status=413))


class StreamBudget(Struct):
    """The bytes that may still be read of one streamed answer."""

    provider: Provider
    bytes_left: int

    def consume(self, data: bytes) -> None:
        self.bytes_left -= len(data)
        if self.bytes_left < 0:
            why = "sent a longer stream than limits.stream of this gateway allows"
            raise RequestRejected(provider_error(self.provider, "server", why), attempt="unknown")
