"""Large bodies: decoded and encoded in worker threads, so that nobody else waits for them, and bounded in number.

A thread that runs Python gives way every few milliseconds. One that decodes a single long string does not:
`limits.body` keeps that short. See docs/decisions/0018-large-bodies-leave-the-event-loop.md.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from toolwire.canonical.errors import ApiError
from toolwire.canonical.loss import Loss
from toolwire.canonical.request import Request

from .config import LimitsSection
from .refusal import Refused

R = TypeVar("R")

SMALL_BODY = 32 * 1024
LARGE_BODY = 512 * 1024
MANY_OBJECTS = 1_000
"""What a body of a size in between has to hold to be worth a thread: time goes by objects, not by bytes."""

THREADS = 2
UNCOUNTED_BODY = 1024 * 1024
_STEP = 1024 * 1024

_MESSAGES = ("messages", "contents", "input", "steps")
_members = msgspec.json.Decoder(dict[str, Raw]).decode
_elements = msgspec.json.Decoder(list[Raw]).decode


def is_heavy(body: bytes) -> bool:
    """Whether decoding a body may hold the event loop for more than a few milliseconds."""
    size = len(body)
    return size > SMALL_BODY and (size > LARGE_BODY or body.count(b"{") > MANY_OBJECTS)


class Offload:
    """Worker threads for heavy bodies; all others are dealt with at once."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, body: bytes, work: Callable[..., R], *args: Any) -> R:
        """Do the work that this body makes. It must not touch the event loop."""
        if not is_heavy(body):
            return work(*args)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="toolwire-body")
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *args)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


class BodyRoom(Struct):
    """The bytes of all large requests under way: `limits.bodies`."""

    limit: int
    taken: int = 0

    def take(self, held: int, size: int) -> int:
        """Make room for a body of this size, of which `held` bytes are counted; returns how many are now."""
        if size <= UNCOUNTED_BODY:
            return held
        if self.taken + size - held > self.limit:
            why = "too many large requests at once (limits.bodies): try again"
            raise Refused(ApiError(kind="overloaded", message=why, status=503, retry_after=1))
        self.taken += size - held
        return size


async def run_apart(work: Callable[..., R], *args: Any, heavy: bool) -> R:
    """Do work that is not tied to an exchange: in a thread if it is heavy. It must not touch the event loop."""
    return await asyncio.to_thread(work, *args) if heavy else work(*args)


def check_values(body: bytes, limits: LimitsSection) -> None:
    """Refuse a body with more JSON values than allowed: one call into C decodes them all, and never yields the GIL."""
    most = limits.values
    if len(body) > 2 * most and _count_signs(body, 0, len(body)) > most and _has_more_values(body, most):
        why = f"the request has more than the {most} JSON values that limits.values allows"
        raise Refused(ApiError(kind="too_large", message=why, status=413))


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


def check_counts(body: bytes, limits: LimitsSection) -> None:
    """Refuse a body with more values, messages or tools than allowed, before they are decoded."""
    if len(body) <= SMALL_BODY:
        return
    check_values(body, limits)
    try:
        members = _members(body)
        for name in (*_MESSAGES, "tools"):
            value = members.get(name)
            if value is not None and bytes(value)[:1] == b"[":
                limit = "tools" if name == "tools" else "messages"
                _check(len(_elements(value)), limit, getattr(limits, limit), name)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return  # the decoder of its protocol says what is wrong


def check_request(request: Request, limits: LimitsSection) -> None:
    """Refuse a request that holds more than allowed: some protocols group tools, and all of them parts."""
    _check(len(request.tools or ()), "tools", limits.tools, "tools")
    count = sum([len(message.parts) for message in request.messages])
    _check(count, "parts", limits.parts, "parts of messages")


def check_losses(losses: list[Loss], limits: LimitsSection, target: str) -> None:
    if len(losses) > limits.losses:
        why = f"{len(losses)} fields of the request can't be carried to {target}: at most {limits.losses} are reported"
        raise Refused(ApiError(kind="invalid_request", message=f"{why} (limits.losses)", status=400))


def _check(count: int, limit: str, allowed: int, what: str) -> None:
    if count > allowed:
        why = f"the request has {count} {what}, more than the {allowed} that limits.{limit} allows"
        raise Refused(ApiError(kind="too_large", message=why, status=413))
