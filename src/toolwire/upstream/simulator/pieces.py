"""An answer as it would arrive: events with every text in several pieces."""

import re
from collections.abc import Iterator

from msgspec.structs import replace

from toolwire.canonical.events import Event, PartDelta, ResponseStart
from toolwire.canonical.fold import unfold
from toolwire.canonical.response import Response, Usage

_WORDS = re.compile(r"\s*\S{1,12}(?:\s+$)?|\s+$")
_MOST = 400


def pieces_of(response: Response) -> Iterator[list[Event]]:
    """The events in the groups that are sent together: what opens and closes a part goes with its neighbours."""
    group: list[Event] = []
    for event in unfold(response):
        if isinstance(event, ResponseStart):
            group.append(_opening(event))
        elif isinstance(event, PartDelta) and event.text:
            for text in _cut(event.text):
                yield [*group, replace(event, text=text)]
                group = []
        else:
            group.append(event)
    if group:
        yield group


def _opening(event: ResponseStart) -> ResponseStart:
    """The start of a stream, which can't know yet how long it will be."""
    usage = event.usage
    return event if usage is None else replace(event, usage=Usage(input_tokens=usage.input_tokens, output_tokens=1))


def _cut(text: str) -> list[str]:
    """A text word by word; a very long one in larger pieces, so that no stream is made of thousands of frames."""
    words = _WORDS.findall(text)
    if len(words) <= _MOST:
        return words
    size = -(-len(text) // _MOST)
    return [text[start : start + size] for start in range(0, len(text), size)]
