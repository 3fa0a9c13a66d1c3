"""An answer as it would arrive: events with every text in several pieces."""

import re
from collections.abc import Iterator

from msgspec.structs import replace

from toolwire.canonical.events import Event, PartDelta, ResponseStart
from toolwire.canonical.fold import unfold
from toolwire.canonical.response import Response

_WORDS = re.compile(r"\s*\S{1,12}(?:\s+$)?|\s+$")
_MOST = 400


def pieces_of(response: Response) -> Iterator[list[Event]]:
    """The events in the groups that are sent together: what opens and closes a part goes with its neighbours."""
    group: list[Event] = []
    for event in unfold(response):
        if isinstance(event, ResponseStart) and event.usage is not None:
            # What is said at the start of a stream can't know its length.
            event = replace(event, usage=replace(event.usage, output_tokens=1, reasoning=None, total=None))  # noqa: PLW2901
        if not isinstance(event, PartDelta) or not event.text:
            group.append(event)
            continue
        for text in _cut(event.text):
            group.append(replace(event, text=text))
            yield group
            group = []
    if group:
        yield group


def _cut(text: str) -> list[str]:
    """A text word by word; a very long one in larger pieces, so that no stream is made of thousands of frames."""
    words = _WORDS.findall(text)
    if len(words) <= _MOST:
        return words
    size = -(-len(text) // _MOST)
    return [text[start : start + size] for start in range(0, len(text), size)]
