"""What the gateway tells of its work: losses in a header and by exchange."""

from collections.abc import Callable, Sequence

import msgspec

from toolwire.canonical.loss import Loss

LIMIT_HEADER = 2048
LIMIT_REPORT = 256 * 1024

_encode_json = msgspec.json.encode


def encode_losses(losses: Sequence[Loss]) -> bytes:
    """The losses as JSON. A report that is too long is cut, with `more` for the number of losses that are missing."""
    body = _encode_json({"losses": losses})
    return body if len(body) <= LIMIT_REPORT else _encode_truncated(losses, LIMIT_REPORT, _encode_json)


def encode_losses_header(losses: Sequence[Loss], body: bytes) -> bytes:
    """The body of these losses as ASCII, cut to the length of a header."""
    if len(body) <= LIMIT_HEADER and len(whole := _escape_non_ascii(body)) <= LIMIT_HEADER:
        return whole
    return _encode_truncated(losses, LIMIT_HEADER, lambda loss: _escape_non_ascii(_encode_json(loss)))


def _encode_truncated(losses: Sequence[Loss], limit: int, encode: Callable[[Loss], bytes]) -> bytes:
    """Encode as many whole losses as fit, and count the rest in `more`."""
    room = limit - len(b'{"losses":[],"more":%d}' % len(losses))
    encoded: list[bytes] = []
    for loss in losses:
        one = encode(loss)
        room -= len(one) + len(b",")
        if room < 0:
            break
        encoded.append(one)
    return b'{"losses":[%b],"more":%d}' % (b",".join(encoded), len(losses) - len(encoded))


def _escape_non_ascii(data: bytes) -> bytes:
    if data.isascii():
        return data
    return "".join(
        one
        if one < "\x7f"
        else one.encode("utf-16-be").hex().join(("\\u", ""))
        if ord(one) < 0x10000
        else _escape_surrogate_pair(one)
        for one in data.decode()
    ).encode()


def _escape_surrogate_pair(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return f"\\u{units[:4]}\\u{units[4:]}"
