"""Bounds on what runs at once: in all, and for one key."""

from collections import Counter
from collections.abc import Callable

from toolwire.canonical.errors import ApiError

from .refusal import Refused


class Quota:
    """Places for streams or websockets. One key may hold `share` of them; `publish` is told how many are taken."""

    def __init__(self, noun: str, limit: int, share: int, publish: Callable[[int], None] | None = None) -> None:
        self.taken = 0
        self._noun = noun
        self._limit = limit
        self._share = share
        self._publish = publish
        self._tenants: Counter[str] = Counter()

    def take(self, tenant: str) -> None:
        """Take a place, or raise `Refused`."""
        if self.taken >= self._limit:
            why = f"too many {self._noun} at once"
            raise Refused(ApiError(kind="overloaded", message=why, status=503))
        if self._tenants[tenant] >= self._share:
            why = f"this key has {self._share} {self._noun} at once, its share of all (limits.key_share): end one first"
            raise Refused(ApiError(kind="rate_limit", message=why, status=429))
        self._tenants[tenant] += 1
        self._change(1)

    def give_back(self, tenant: str) -> None:
        self._tenants[tenant] -= 1
        if not self._tenants[tenant]:
            del self._tenants[tenant]
        self._change(-1)

    def _change(self, by: int) -> None:
        self.taken += by
        if self._publish is not None:
            self._publish(self.taken)
