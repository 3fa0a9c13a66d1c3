"""The size of a picture, by its first bytes."""

import base64

import pytest

from tests.computer.screens import png
from toolwire.canonical.content import Inline, Media, Url
from toolwire.codec.pictures import size_of

JPEG = bytes.fromhex("ffd8ffe000104a46494600010100000100010000ffc0001108032005000301220002110103110 1".replace(" ", ""))
WEBP = b"RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\xff\x04\x00\x1f\x03\x00"
LOSSLESS = b"RIFF\x00\x00\x00\x00WEBPVP8L\x00\x00\x00\x00\x2f\xff\xc4\xc7\x00" + bytes(8)


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (base64.b64decode(png(1280, 800)), (1280, 800)),
        (JPEG, (1280, 800)),
        (WEBP, (1280, 800)),
        (LOSSLESS, (1280, 800)),
        (b"GIF89a", None),
        (b"\x89PNG\r\n\x1a\n", None),
        (b"\xff\xd8\xff\xe0\xff\xff", None),
        (b"", None),
    ],
)
def test_what_a_picture_says_of_itself(data: bytes, size: tuple[int, int] | None) -> None:
    text = base64.b64encode(data).decode()
    assert size_of(Media(kind="image", source=Inline(data=text))) == size
    assert size_of(Media(kind="image", source=Url(url=f"data:image/png;base64,{text}"))) == size


def test_what_is_elsewhere_is_not_looked_at() -> None:
    assert size_of(Media(kind="image", source=Url(url="https://example.com/a.png"))) is None
    assert size_of(Media(kind="image", source=Inline(data="no base64!"))) is None
