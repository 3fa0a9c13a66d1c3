"""Retry and failover, decided by what is known of the attempt that failed.

1. The same provider gets a request again only if it did no work on it: it answered 429, 503 or 529, or no connection
   was made. A POST is not idempotent (RFC 9110, section 9.2.2).
2. Another provider of the route may also be asked after a time-out, a 5xx or a broken response: at worst the answer is
   paid for twice.
3. Neither happens where answering may have effects beyond the answer: see `find_effect`.
"""

import random

from toolwire.canonical.errors import ApiError, ErrorKind
from toolwire.canonical.request import Continuation
from toolwire.canonical.tools import NativeTool
from toolwire.codec.interface import Codec, Route
from toolwire.codec.tools import finds_tools, tools_in_force

from .refusal import Attempt, Refused
from .state.holders import HOLDERS

_BUSY_STATUSES = frozenset({429, 503, 529})
_BUSY: frozenset[ErrorKind] = frozenset({"rate_limit", "overloaded"})
_BROKEN: frozenset[ErrorKind] = frozenset({"server", "timeout", "other"})
_PROVIDER_FAULTS: frozenset[ErrorKind] = frozenset({"authentication", "billing", "permission", "not_found", "server"})
_FIRST_DELAY = 0.5
_LONGEST_DELAY = 10.0
_JITTER = 0.25


def classify_status(status: int) -> Attempt:
    """Classify an attempt that ended with this HTTP status."""
    if status in _BUSY_STATUSES:
        return "unprocessed"
    return "unknown" if status >= 500 or status == 408 else "rejected"


def classify_error(error: ApiError, *, begun: bool = False) -> Attempt:
    """Classify an attempt that ended with an error under a status of 200, in place of the answer or after it began."""
    if error.kind in _BUSY:
        return "unknown" if begun else "unprocessed"
    return "unknown" if error.kind in _BROKEN else "rejected"


def retry_delay(refused: Refused, retries: int) -> float | None:
    """Return the seconds to wait before the same provider is asked again, after this many retries; None: it is not."""
    if refused.attempt != "unprocessed" or refused.error.kind == "billing":  # OpenAI: 429, `insufficient_quota`
        return None
    after = refused.error.retry_after
    delay = min(_FIRST_DELAY * 2**retries, _LONGEST_DELAY) if after is None else after
    return None if delay > _LONGEST_DELAY else delay * random.uniform(1, 1 + _JITTER)  # noqa: S311 - no secret


def can_fail_over(refused: Refused) -> bool:
    """Whether another provider may succeed: not where the request itself was at fault."""
    return refused.attempt != "rejected" or refused.error.kind in _PROVIDER_FAULTS


def find_effect(upstream: Codec, body: bytes) -> str | None:
    """Find what answering this request body does beyond the answer; None if it is only an answer."""
    request = upstream.decode_request(body, Route())
    natives = [placed.tool for placed in tools_in_force(request) if isinstance(placed.tool, NativeTool)]
    if any(tool.executor == "server" and not finds_tools(tool) for tool in natives):
        return "its provider runs tools"
    held = request.continuation or Continuation()
    if held.background:
        return "its provider works in the background"
    stores = upstream.name in HOLDERS if held.store is None else held.store
    return "its provider stores the conversation" if stores or held.kind in ("conversation", "thread") else None
