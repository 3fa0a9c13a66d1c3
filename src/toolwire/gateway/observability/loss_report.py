"""Loss reports: as JSON for each exchange, and shortened for a response header."""

from collections.abc import Callable, Sequence

import msgspec

from toolwire.canonical.loss import Loss

LIMIT_HEADER = 2048
LIMIT_REPORT = 256 * 1024

_encode_json = msgspec.json.encode


def encode_losses(losses: Sequence[Loss]) -> bytes:
    """Encode losses as JSON; a report over the limit is cut, with `more` for the number left out."""
    body = _encode_json({"losses": losses})
    return body if len(body) <= LIMIT_REPORT else _encode_truncated(losses, LIMIT_REPORT, _encode_json)


def encode_losses_header(losses: Sequence[Loss], body: bytes) -> bytes:
    """Encode losses as ASCII for a header; `body` is their JSON, used if it is short enough."""
    if len(body) <= LIMIT_HEADER and len(escaped := _escape_non_ascii(body)) <= LIMIT_HEADER:
        return escaped
    return _encode_truncated(losses, LIMIT_HEADER, lambda loss: _escape_non_ascii(_encode_json(loss)))


def _encode_truncated(losses: Sequence[Loss], limit: int, encode: Callable[[Loss], bytes]) -> bytes:
    """Encode as many losses as fit, and count the others in `more`."""
    bytes_left = limit - len(b'{"losses":[],"more":%d}' % len(losses))
    encoded: list[bytes] = []
    for loss in losses:
        item = encode(loss)
        bytes_left -= len(item) + len(b",")
        if bytes_left < 0:
            break
        encoded.append(item)
    return b'{"losses":[%b],"more":%d}' % (b",".join(encoded), len(losses) - len(encoded))


def _escape_non_ascii(data: bytes) -> bytes:
    """Escape non-ASCII characters of JSON as `\\u` sequences."""
    if data.isascii():
        return data
    return "".join(
        character
        if character < "\x7f"
        else character.encode("utf-16-be").hex().join(("\\u", ""))
        if ord(character) < 0x10000
        else _escape_surrogate_pair(character)
        for character in data.decode()
    ).encode()


def _escape_surrogate_pair(character: str) -> str:
    """Escape a character outside the basic plane as two `\\u` sequences."""
    units = character.encode("utf-16-be").hex()
    return f"\\u{units[:4]}\\u{units[4:]}"
