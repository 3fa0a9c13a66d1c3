"""What a person can read of an answer, as it arrives."""

from collections.abc import Iterator

from toolwire.canonical.content import Media, Part, Reasoning, Text
from toolwire.canonical.events import Event, PartDelta, PartEnd, PartStart
from toolwire.canonical.response import Response

from .events import RunEvent, TextGrew, ThinkingGrew


class Telling:
    """Takes the events of one answer in order."""

    def __init__(self) -> None:
        self._kinds: dict[int, type] = {}
        self._told: set[int] = set()

    def take(self, event: Event) -> RunEvent | None:
        match event:
            case PartStart(candidate=0):
                self._kinds[event.index] = type(event.part)
                return self._tell(event.index, _text(event.part))
            case PartDelta(candidate=0):
                return self._tell(event.index, event.text)
            case PartEnd(candidate=0) if event.final is not None and event.index not in self._told:
                return self._tell(event.index, _text(event.final))
            case _:
                return None

    def _tell(self, index: int, text: str) -> RunEvent | None:
        kind = self._kinds.get(index)
        if not text or kind not in (Text, Reasoning):
            return None
        self._told.add(index)
        return TextGrew(text=text) if kind is Text else ThinkingGrew(text=text)


def retold(response: Response) -> Iterator[RunEvent]:
    """The same of an answer that is known already."""
    for message in response.candidates[0].messages if response.candidates else ():
        for part in message.parts:
            if text := _text(part):
                yield TextGrew(text=text) if isinstance(part, Text) else ThinkingGrew(text=text)


def _text(part: Part) -> str:
    match part:
        case Text():
            return part.text
        case Reasoning():
            return "".join("" if isinstance(one, Media) else one.text for one in part.content)
        case _:
            return ""
