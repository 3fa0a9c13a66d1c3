"""Data URLs: those that can be written back as they were are inline, all others stay URLs."""

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolwire.canonical.content import Inline, Media, Source, Url
from toolwire.codec.media import data_url, source_of, summary


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
    assert source_of(url) == (source, media_type)


@settings(deadline=None)
@given(st.text() | st.builds("data:{};base64,{}".format, st.text(max_size=8), st.text(max_size=8)))
def test_any_url_can_be_written_back(url: str) -> None:
    source, media_type = source_of(url)
    assert isinstance(source, Url | Inline)
    assert (source.url if isinstance(source, Url) else data_url(source.data, media_type)) == url


@settings(deadline=None)
@given(st.binary(), st.sampled_from([None, "image/png", "application/vnd.api+json"]))
def test_any_content_is_read_back(content: bytes, media_type: str | None) -> None:
    data = base64.b64encode(content).decode()
    assert source_of(data_url(data, media_type)) == (Inline(data=data), media_type)


def test_many_parameters_take_no_time() -> None:
    url = "data:" + ";a=b" * 20_000
    assert source_of(url) == (Url(url=url), None)


@pytest.mark.parametrize(("media_type", "word"), [("image/png", "image/png"), (None, "image")])
def test_a_summary_names_the_type(media_type: str | None, word: str) -> None:
    media = Media(kind="image", source=Inline(data="QUJD"), media_type=media_type)
    assert summary(media) == f"Binary content of type {word} was processed."
