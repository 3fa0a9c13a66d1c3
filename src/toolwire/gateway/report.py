"""What the gateway tells of its work: losses in a header and by exchange."""

from collections import OrderedDict
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from toolwire.canonical.loss import Loss

from .auth import Caller

LIMIT_HEADER = 2048


def losses_body(losses: Sequence[Loss]) -> bytes:
    """All of them, as JSON."""
    return msgspec.json.encode({"losses": losses})


def losses_header(losses: Sequence[Loss], body: bytes) -> bytes:
    """The body of these losses as ASCII; what is too long for a header is cut at whole losses, with `more` for the
    rest."""
    if len(body) <= LIMIT_HEADER and len(whole := _ascii(body)) <= LIMIT_HEADER:
        return whole
    room = LIMIT_HEADER - len(b'{"losses":[],"more":%d}' % len(losses))
    told: list[bytes] = []
    for loss in losses:
        told.append(_ascii(msgspec.json.encode(loss)))
        room -= len(told[-1]) + len(b",")
        if room < 0:
            told.pop()
            break
    return b'{"losses":[%b],"more":%d}' % (b",".join(told), len(losses) - len(told))


def _ascii(data: bytes) -> bytes:
    if data.isascii():
        return data
    return "".join(
        one if one < "\x7f" else one.encode("utf-16-be").hex().join(("\\u", "")) if ord(one) < 0x10000 else _pair(one)
        for one in data.decode()
    ).encode()


def _pair(one: str) -> str:
    units = one.encode("utf-16-be").hex()
    return f"\\u{units[:4]}\\u{units[4:]}"


class Kept(Struct):
    """What is remembered of one exchange, for the key that made it."""

    caller: Caller
    losses: bytes


class Exchanges:
    """The latest exchanges, bounded."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: OrderedDict[str, Kept] = OrderedDict()

    def keep(self, id: str, caller: Caller, losses: bytes) -> None:
        self._kept[id] = Kept(caller, losses)
        if len(self._kept) > self._limit:
            self._kept.popitem(last=False)

    def losses(self, id: str, caller: Caller) -> bytes | None:
        found = self._kept.get(id)
        return found.losses if found is not None and found.caller == caller else None
