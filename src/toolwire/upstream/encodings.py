"""Bodies that come compressed: undone as they arrive, in any number of layers, bounded in size."""

import zlib

_AUTOMATIC = 32 + zlib.MAX_WBITS  # zlib itself tells gzip and its own form apart
_LAYERS = {"gzip": _AUTOMATIC, "x-gzip": _AUTOMATIC, "deflate": _AUTOMATIC}
_MOST_LAYERS = 4
# zlib copies all of its input that is left after each gzip member: the input is short, and the members are few.
_INPUT = 16 * 1024
_MOST_MEMBERS = 1000


class EncodingError(ValueError):
    """It is packed in a way that is not known here, or not packed as it says."""


class TooLarge(EncodingError):
    """It would take more room than there is for it."""


class Unpacker:
    """Takes what `content-encoding` says, in the order in which it was applied."""

    def __init__(self, encoding: str) -> None:
        names = [one for part in encoding.lower().split(",") if (one := part.strip()) not in ("", "identity")]
        for name in names:
            if name not in _LAYERS:
                raise EncodingError(f"the content-encoding {name!r} is not known")
        if len(names) > _MOST_LAYERS:
            raise EncodingError(f"more than {_MOST_LAYERS} content-encodings")
        self._layers = [_Layer(_LAYERS[name]) for name in reversed(names)]

    def feed(self, data: bytes, limit: int) -> bytes:
        """What is known of the body now: never more than the limit at a time."""
        for layer in self._layers:
            data = layer.feed(data, limit)
        return data

    def close(self) -> None:
        """There is no more: an EncodingError if that is too early."""
        if not all(layer.ended for layer in self._layers):
            raise EncodingError("the packed body is cut")


class _Layer:
    def __init__(self, bits: int) -> None:
        self._bits = bits
        self._inflating = zlib.decompressobj(bits)
        self._begun = False

    @property
    def ended(self) -> bool:
        return self._inflating.eof or not self._begun

    def feed(self, data: bytes, limit: int) -> bytes:
        pieces: list[bytes] = []
        size = members = 0
        view = memoryview(data)
        for start in range(0, len(data), _INPUT):
            left: bytes | memoryview = view[start : start + _INPUT]
            while left:
                if self._inflating.eof:  # gzip may hold several files, one after the other
                    members += 1
                    if members > _MOST_MEMBERS:
                        raise EncodingError(f"more than {_MOST_MEMBERS} gzip members at once")
                    self._inflating = zlib.decompressobj(self._bits)
                self._begun = True
                try:
                    piece = self._inflating.decompress(left, limit - size + 1)
                except zlib.error as error:
                    raise EncodingError(f"not packed as it says: {error}") from None
                size += len(piece)
                if size > limit:
                    raise TooLarge(f"unpacked it is longer than {limit} bytes")
                pieces.append(piece)
                left = self._inflating.unconsumed_tail or self._inflating.unused_data
        return b"".join(pieces)
