"""Bodies that come compressed: undone as they arrive, in any number of layers, bounded in size."""

import zlib

_ZLIB_OR_GZIP = 32 + zlib.MAX_WBITS  # zlib itself tells gzip and its own form apart
_WINDOW_BITS = {"gzip": _ZLIB_OR_GZIP, "x-gzip": _ZLIB_OR_GZIP, "deflate": _ZLIB_OR_GZIP}
_MAX_LAYERS = 4
# zlib copies all of its input that is left after each gzip member: the input is short, and the members are few.
_INPUT_CHUNK = 16 * 1024
_MAX_MEMBERS = 1000


class ContentEncodingError(ValueError):
    """It is packed in a way that is not known here, or not packed as it says."""


class DecodedBodyTooLarge(ContentEncodingError):
    """It would take more room than there is for it."""


class ContentDecoder:
    """Takes what `content-encoding` says, in the order in which it was applied."""

    def __init__(self, encoding: str) -> None:
        names = [one for part in encoding.lower().split(",") if (one := part.strip()) not in ("", "identity")]
        for name in names:
            if name not in _WINDOW_BITS:
                raise ContentEncodingError(f"the content-encoding {name!r} is not known")
        if len(names) > _MAX_LAYERS:
            raise ContentEncodingError(f"more than {_MAX_LAYERS} content-encodings")
        self._layers = [_Layer(_WINDOW_BITS[name]) for name in reversed(names)]

    def feed(self, data: bytes, limit: int) -> bytes:
        """What is known of the body now: never more than the limit at a time."""
        for layer in self._layers:
            data = layer.feed(data, limit)
        return data

    def close(self) -> None:
        """There is no more: an EncodingError if that is too early."""
        if not all(layer.is_complete for layer in self._layers):
            raise ContentEncodingError("the packed body is cut")


class _Layer:
    def __init__(self, window_bits: int) -> None:
        self._window_bits = window_bits
        self._decompressor = zlib.decompressobj(window_bits)
        self._started = False

    @property
    def is_complete(self) -> bool:
        return self._decompressor.eof or not self._started

    def feed(self, data: bytes, limit: int) -> bytes:
        pieces: list[bytes] = []
        size = members = 0
        view = memoryview(data)
        for start in range(0, len(data), _INPUT_CHUNK):
            left: bytes | memoryview = view[start : start + _INPUT_CHUNK]
            while left:
                if self._decompressor.eof:  # gzip may hold several files, one after the other
                    members += 1
                    if members > _MAX_MEMBERS:
                        raise ContentEncodingError(f"more than {_MAX_MEMBERS} gzip members at once")
                    self._decompressor = zlib.decompressobj(self._window_bits)
                self._started = True
                try:
                    piece = self._decompressor.decompress(left, limit - size + 1)
                except zlib.error as error:
                    raise ContentEncodingError(f"not packed as it says: {error}") from None
                size += len(piece)
                if size > limit:
                    raise DecodedBodyTooLarge(f"unpacked it is longer than {limit} bytes")
                pieces.append(piece)
                left = self._decompressor.unconsumed_tail or self._decompressor.unused_data
        return b"".join(pieces)
