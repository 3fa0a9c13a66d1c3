"""Data URLs that can be written back unchanged become inline; image sizes are read from headers."""

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.bodies.computer_use import white_png
from toolwire.canonical.content import Inline, Media, Message, Source, Text, Url
from toolwire.canonical.request import Request
from toolwire.codec.encoding.media import data_url, image_size, media_summary, source_from_url, summarize_binary
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.losses import LossReport


@pytest.mark.parametrize(
    ("url", "source", "media_type"),
    [
        ("data:image/png;base64,QUJD", Inline(data="QUJD"), "image/png"),
        ("data:;base64,QUJD", Inline(data="QUJD"), None),
        ("data:text/plain;base64,", Inline(data=""), "text/plain"),
        ("data:text/plain;base64,QU\nJD", Inline(data="QU\nJD"), "text/plain"),
        ("https://a/b.png", Url(url="https://a/b.png"), None),
        ("data:text/plain,hello", Url(url="data:text/plain,hello"), None),
        ("data:text/plain;charset=utf-8;base64,QUJD", Url(url="data:text/plain;charset=utf-8;base64,QUJD"), None),
        ("DATA:image/png;base64,QUJD", Url(url="DATA:image/png;base64,QUJD"), None),
        ("data:image/png;BASE64,QUJD", Url(url="data:image/png;BASE64,QUJD"), None),
        ("gs://bucket/a", Url(url="gs://bucket/a"), None),
        ("", Url(url=""), None),
    ],
)
def test_sources(url: str, source: Source, media_type: str | None) -> None:
    assert source_from_url(url) == (source, media_type)


@settings(deadline=None)
@given(st.text() | st.builds("data:{};base64,{}".format, st.text(max_size=8), st.text(max_size=8)))
def test_urls_round_trip(url: str) -> None:
    source, media_type = source_from_url(url)
    assert isinstance(source, Url | Inline)
    assert (source.url if isinstance(source, Url) else data_url(source.data, media_type)) == url


@settings(deadline=None)
@given(st.binary(), st.sampled_from([None, "image/png", "application/vnd.api+json"]))
def test_data_urls_round_trip(content: bytes, media_type: str | None) -> None:
    data = base64.b64encode(content).decode()
    assert source_from_url(data_url(data, media_type)) == (Inline(data=data), media_type)


def test_many_url_parameters_are_cheap() -> None:
    url = "data:" + ";a=b" * 20_000
    assert source_from_url(url) == (Url(url=url), None)


@pytest.mark.parametrize(("media_type", "word"), [("image/png", "image/png"), (None, "image")])
def test_a_summary_names_the_type(media_type: str | None, word: str) -> None:
    media = Media(kind="image", source=Inline(data="QUJD"), media_type=media_type)
    assert media_summary(media) == f"Binary content of type {word} was processed."


def test_only_binary_parts_are_summarized() -> None:
    text, audio = Text(text="a"), Media(kind="audio", source=Url(url="u"))
    root, report = Request(origin="", messages=(Message(role="user", parts=(text, audio)),)), LossReport()
    located = [LocatedPart(text, ("messages", 0, "parts", 0)), LocatedPart(audio, ("messages", 0, "parts", 1))]
    assert summarize_binary(located, report) == [
        located[0],
        LocatedPart(Text(text=media_summary(audio)), located[1].path),
    ]
    assert [(loss.kind, loss.path) for loss in report.resolve(root, {})] == [("approximated", "/messages/0/parts/1")]


JPEG = bytes.fromhex("ffd8ffe000104a46494600010100000100010000ffc0001108032005000301220002110103110 1".replace(" ", ""))
WEBP = b"RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\xff\x04\x00\x1f\x03\x00"
LOSSLESS = b"RIFF\x00\x00\x00\x00WEBPVP8L\x00\x00\x00\x00\x2f\xff\xc4\xc7\x00" + bytes(8)


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (base64.b64decode(white_png(1280, 800)), (1280, 800)),
        (JPEG, (1280, 800)),
        (WEBP, (1280, 800)),
        (LOSSLESS, (1280, 800)),
        (b"GIF89a", None),
        (b"\x89PNG\r\n\x1a\n", None),
        (b"\xff\xd8\xff\xe0\xff\xff", None),
        (b"", None),
    ],
)
def test_image_size_is_read_from_the_header(data: bytes, size: tuple[int, int] | None) -> None:
    text = base64.b64encode(data).decode()
    assert image_size(Media(kind="image", source=Inline(data=text))) == size
    assert image_size(Media(kind="image", source=Url(url=f"data:image/png;base64,{text}"))) == size


def test_remote_image_has_no_known_size() -> None:
    assert image_size(Media(kind="image", source=Url(url="https://example.com/a.png"))) is None
    assert image_size(Media(kind="image", source=Inline(data="no base64!"))) is None
