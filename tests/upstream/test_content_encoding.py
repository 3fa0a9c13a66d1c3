"""Compressed bodies: several gzip members, bounded in number, and output that is bounded in size."""

import gzip
import zlib

import pytest

from toolwire.upstream.content_encoding import ContentDecoder, ContentEncodingError, DecodedBodyTooLarge

EMPTY_MEMBER = gzip.compress(b"")


def unpack(encoding: str, *pieces: bytes, limit: int = 1_000_000) -> bytes:
    unpacker = ContentDecoder(encoding)
    found = b"".join(unpacker.feed(piece, limit) for piece in pieces)
    unpacker.close()
    return found


def test_members_follow_each_other_in_any_pieces() -> None:
    packed = b"".join(gzip.compress(b"%d " % number) for number in range(1000))
    expected = b"".join(b"%d " % number for number in range(1000))
    assert unpack("gzip", packed) == expected
    assert unpack("gzip", *(packed[start : start + 7] for start in range(0, len(packed), 7))) == expected


def test_body_with_too_many_gzip_members_is_rejected() -> None:
    with pytest.raises(ContentEncodingError, match="more than 1000 gzip members"):
        unpack("gzip", EMPTY_MEMBER * 1002)


def test_stream_may_have_any_number_of_gzip_members() -> None:
    """The bound is on the work of one step: a server may flush each event as a member of its own."""
    assert unpack("gzip", *(gzip.compress(b"x") for _ in range(2000))) == b"x" * 2000


def test_input_after_a_member_is_not_copied_for_each_member(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = 0

    class Counted:
        """A decompressor that counts the bytes that it was given and did not use."""

        def __init__(self, bits: int) -> None:
            self._inner = decompressobj(bits)

        def decompress(self, data: bytes, length: int) -> bytes:
            nonlocal copied
            found = self._inner.decompress(data, length)
            copied += len(self._inner.unused_data)
            return found

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

    decompressobj = zlib.decompressobj
    monkeypatch.setattr(zlib, "decompressobj", Counted)
    packed = EMPTY_MEMBER * 900 + gzip.compress(bytes(range(256)) * 40_000, 0)
    assert len(unpack("gzip", packed, limit=20_000_000)) == 256 * 40_000
    assert copied < 900 * 16 * 1024


def test_output_is_bounded() -> None:
    with pytest.raises(DecodedBodyTooLarge, match="longer than 1000000 bytes"):
        unpack("gzip", gzip.compress(bytes(1_000_001)))
    assert unpack("gzip", gzip.compress(bytes(1_000_000))) == bytes(1_000_000)
    with pytest.raises(DecodedBodyTooLarge):
        unpack("gzip, gzip", gzip.compress(gzip.compress(bytes(100_000_000), 1)))


@pytest.mark.parametrize(
    "packed",
    [gzip.compress(b"abc")[:-1], EMPTY_MEMBER + b"\x1f", zlib.compress(b"abc")[:-4]],
    ids=["trailer", "next member", "deflate"],  # the bytes hold the time: each worker would have other names
)
def test_a_cut_body_is_an_error(packed: bytes) -> None:
    with pytest.raises(ContentEncodingError, match="cut"):
        unpack("gzip", packed)
