"""Compressed bodies: several gzip members, limited in number, and limited output."""

import gzip
import zlib

import pytest

from toolwire.upstream.content_encoding import ContentDecoder, ContentEncodingError, DecodedBodyTooLarge

EMPTY_MEMBER = gzip.compress(b"")


def unpack(encoding: str, *chunks: bytes, limit: int = 1_000_000) -> bytes:
    decoder = ContentDecoder(encoding)
    decoded = b"".join(decoder.feed(chunk, limit) for chunk in chunks)
    decoder.close()
    return decoded


def test_gzip_members_are_decoded_across_chunks() -> None:
    packed = b"".join(gzip.compress(b"%d " % number) for number in range(1000))
    expected = b"".join(b"%d " % number for number in range(1000))
    assert unpack("gzip", packed) == expected
    assert unpack("gzip", *(packed[start : start + 7] for start in range(0, len(packed), 7))) == expected


def test_too_many_gzip_members_at_once_are_rejected() -> None:
    with pytest.raises(ContentEncodingError, match="more than 1000 gzip members"):
        unpack("gzip", EMPTY_MEMBER * 1002)


def test_stream_may_have_any_number_of_members() -> None:
    """The limit applies to one chunk: a server may flush each event as its own member."""
    assert unpack("gzip", *(gzip.compress(b"x") for _ in range(2000))) == b"x" * 2000


def test_input_is_not_copied_for_each_member(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = 0

    class Counted:
        """A decompressor that counts the bytes it was given and did not use."""

        def __init__(self, bits: int) -> None:
            self._inner = decompressobj(bits)

        def decompress(self, data: bytes, length: int) -> bytes:
            nonlocal copied
            decoded = self._inner.decompress(data, length)
            copied += len(self._inner.unused_data)
            return decoded

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

    decompressobj = zlib.decompressobj
    monkeypatch.setattr(zlib, "decompressobj", Counted)
    packed = EMPTY_MEMBER * 900 + gzip.compress(bytes(range(256)) * 40_000, 0)
    assert len(unpack("gzip", packed, limit=20_000_000)) == 256 * 40_000
    assert copied < 900 * 16 * 1024


def test_decoded_size_is_limited() -> None:
    with pytest.raises(DecodedBodyTooLarge, match="exceeds 1000000 bytes"):
        unpack("gzip", gzip.compress(bytes(1_000_001)))
    assert unpack("gzip", gzip.compress(bytes(1_000_000))) == bytes(1_000_000)
    with pytest.raises(DecodedBodyTooLarge):
        unpack("gzip, gzip", gzip.compress(gzip.compress(bytes(100_000_000), 1)))


@pytest.mark.parametrize(
    "packed",
    [gzip.compress(b"abc")[:-1], EMPTY_MEMBER + b"\x1f", zlib.compress(b"abc")[:-4]],
    ids=["trailer", "next member", "deflate"],  # the bytes contain the time, so test ids would differ between workers
)
def test_truncated_body_is_an_error(packed: bytes) -> None:
    with pytest.raises(ContentEncodingError, match="truncated"):
        unpack("gzip", packed)
