"""Content-Encoding of HTTP bodies: bounded decompression of gzip and deflate."""

import zlib

_ZLIB_OR_GZIP = 32 + zlib.MAX_WBITS  # lets zlib detect the gzip or zlib header
_WINDOW_BITS = {"gzip": _ZLIB_OR_GZIP, "x-gzip": _ZLIB_OR_GZIP, "deflate": _ZLIB_OR_GZIP}
_MAX_LAYERS = 4
# zlib copies the rest of its input after each gzip member: keep the input short and the members few.
_INPUT_CHUNK = 16 * 1024
_MAX_MEMBERS = 1000


class ContentEncodingError(ValueError):
    """The encoding is not supported, or the data does not match it."""


class DecodedBodyTooLarge(ContentEncodingError):
    """The decoded body exceeds its limit."""


class ContentDecoder:
    """Decodes a body with the encodings that its `Content-Encoding` header lists."""

    def __init__(self, encoding: str) -> None:
        names = [name for item in encoding.lower().split(",") if (name := item.strip()) not in ("", "identity")]
        for name in names:
            if name not in _WINDOW_BITS:
                raise ContentEncodingError(f"unsupported content-encoding {name!r}")
        if len(names) > _MAX_LAYERS:
            raise ContentEncodingError(f"more than {_MAX_LAYERS} content-encodings")
        self._layers = [_Layer(_WINDOW_BITS[name]) for name in reversed(names)]

    def feed(self, data: bytes, limit: int) -> bytes:
        """Decode a chunk and return the result; raise `DecodedBodyTooLarge` if it exceeds `limit` bytes."""
        for layer in self._layers:
            data = layer.feed(data, limit)
        return data

    def close(self) -> None:
        """Signal the end of the body. Raises `ContentEncodingError` if it is truncated."""
        if not all(layer.is_complete for layer in self._layers):
            raise ContentEncodingError("the compressed body is truncated")


class _Layer:
    """Decodes one encoding."""

    def __init__(self, window_bits: int) -> None:
        self._window_bits = window_bits
        self._decompressor = zlib.decompressobj(window_bits)
        self._started = False

    @property
    def is_complete(self) -> bool:
        """True if the compressed data has ended, or never began."""
        return self._decompressor.eof or not self._started

    def feed(self, data: bytes, limit: int) -> bytes:
        """Decompress a chunk into at most `limit` bytes."""
        chunks: list[bytes] = []
        size = members = 0
        view = memoryview(data)
        for start in range(0, len(data), _INPUT_CHUNK):
            remaining: bytes | memoryview = view[start : start + _INPUT_CHUNK]
            while remaining:
                if self._decompressor.eof:  # a gzip stream may have several members
                    members += 1
                    if members > _MAX_MEMBERS:
                        raise ContentEncodingError(f"more than {_MAX_MEMBERS} gzip members at once")
                    self._decompressor = zlib.decompressobj(self._window_bits)
                self._started = True
                try:
                    chunk = self._decompressor.decompress(remaining, limit - size + 1)
                except zlib.error as error:
                    raise ContentEncodingError(f"invalid compressed data: {error}") from None
                size += len(chunk)
                if size > limit:
                    raise DecodedBodyTooLarge(f"the decompressed body exceeds {limit} bytes")
                chunks.append(chunk)
                remaining = self._decompressor.unconsumed_tail or self._decompressor.unused_data
        return b"".join(chunks)
