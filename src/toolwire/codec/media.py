"""Media on the wire: data URLs, and what is said where media can't go."""

import re

from toolwire.canonical.content import Inline, Media, Nested, Source, Text, Url

from .losses import Report
from .turns import Placed

_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*?);base64,(.*)", re.DOTALL | re.IGNORECASE)

ERROR_MARK = "[tool error] "
"""Stands before the text of a failed result where a protocol has no flag for it, and is read back as the flag."""

MARKED = "marked:error"
"""The form of a result that was read so: to say it the same way again loses nothing."""


def source_of(url: str) -> tuple[Source, str | None]:
    """The source that a URL stands for, and its media type if the URL says it. Only plain base64 data URLs are inline,
    so that each can be written back as it was."""
    match = _DATA_URL.fullmatch(url)
    if match is None or match[2] or not url.startswith("data:") or data_url(match[3], match[1]) != url:
        return Url(url=url), None
    return Inline(data=match[3]), match[1] or None


def data_url(data: str, media_type: str | None) -> str:
    return f"data:{media_type or ''};base64,{data}"


def summed_up(places: list[Placed], report: Report) -> list[Placed]:
    """The parts of a result with one line of text in place of each binary one."""
    out = []
    for placed in places:
        part = placed.part
        if isinstance(part, Media):
            report.approximated(placed.trail, "", "binary content is told in a few words")
            part = Text(text=summary(part))
        out.append(Placed(part, placed.trail))
    return out


def summary(media: Media) -> str:
    """One line in place of binary content."""
    return f"Binary content of type {media.media_type or media.kind} was processed."


def opened(placed: Placed, part: Media, source: Nested, report: Report) -> list[Placed]:
    """What a document of several parts consists of, its name first, for a target that has no such documents."""
    report.approximated(placed.trail, "source", "the target takes no such document: told part by part")
    if part.cache is not None:
        report.dropped((*placed.trail, "cache"), "", "the target has no cache marks on whole documents")
    trail = (*placed.trail, "source", "parts")
    parts = [Placed(inner, (*trail, index)) for index, inner in enumerate(source.parts)]
    return [Placed(Text(text=part.name), placed.trail), *parts] if part.name else parts
