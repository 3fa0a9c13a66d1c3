"""Data URLs: those that can be written back as they were are inline, all others stay URLs."""

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolwire.canonical.content import Inline, Media, Message, Source, Text, Url
from toolwire.canonical.request import Request
from toolwire.codec.losses import Report
from toolwire.codec.media import data_url, source_of, summary, summed_up
from toolwire.codec.turns import Placed


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


def test_only_what_is_binary_is_summed_up() -> None:
    text, sound = Text(text="a"), Media(kind="audio", source=Url(url="u"))
    root, report = Request(origin="", messages=(Message(role="user", parts=(text, sound)),)), Report()
    places = [Placed(text, ("messages", 0, "parts", 0)), Placed(sound, ("messages", 0, "parts", 1))]
    assert summed_up(places, report) == [places[0], Placed(Text(text=summary(sound)), places[1].trail)]
    assert [(loss.kind, loss.path) for loss in report.resolve(root, {})] == [("approximated", "/messages/0/parts/1")]
