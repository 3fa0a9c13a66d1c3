"""Log probabilities of an answer's tokens, between protocols that tell the same of them in two places: of a candidate,
or of each of its texts. In a stream they are handed on as they arrive, and once more with all that was told."""

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.content import Message, Text
from toolwire.canonical.events import Event, Notice, PartDelta, PartEnd, PartStart, Stopped
from toolwire.canonical.fold import PartGrowth
from toolwire.canonical.node import Node
from toolwire.canonical.response import Candidate, Response

N = TypeVar("N", bound=Node)
Tokens = list[dict[str, Any]]
KEY = "logprobs"
_CHOICE = "choice:"
"""The kind of a notice about a candidate, before its number."""


class Probabilities(Struct, frozen=True):
    """Where a protocol keeps them, always as `logprobs`: in the extras of texts, or else of candidates. `read` gives
    None for what can't be told elsewhere."""

    family: str
    of_texts: bool
    read: Callable[[Raw], Tokens | None]
    write: Callable[[Tokens], Raw]


def hand_on(response: Response, here: Probabilities, there: Probabilities) -> Response:
    """The answer with its probabilities where the other protocol has them."""
    if here.of_texts == there.of_texts:
        return response
    move = _to_texts if there.of_texts else _to_candidate
    candidates = tuple([move(one, here, there) for one in response.candidates])
    same = all(one is other for one, other in zip(candidates, response.candidates, strict=True))
    return response if same else replace(response, candidates=candidates)


def _told(node: Node, of: Probabilities) -> Tokens | None:
    raw = (node.extras or {}).get(of.family, {}).get(KEY)
    return None if raw is None else of.read(raw)


def _without(node: N, of: Probabilities) -> N:
    extras = {family: dict(kept) for family, kept in (node.extras or {}).items()}
    del extras[of.family][KEY]
    return replace(node, extras={family: kept for family, kept in extras.items() if kept} or None)


def _with(node: N, tokens: Tokens, of: Probabilities) -> N:
    extras = dict(node.extras or {})
    extras[of.family] = {**extras.get(of.family, {}), KEY: of.write(tokens)}
    return replace(node, extras=extras)


def _to_texts(candidate: Candidate, here: Probabilities, there: Probabilities) -> Candidate:
    """Of one text, since nothing says which tokens of an answer are whose."""
    tokens = _told(candidate, here)
    if not tokens or sum(isinstance(part, Text) for said in candidate.messages for part in said.parts) != 1:
        return candidate

    def message(said: Message) -> Message:
        parts = [_with(part, tokens, there) if isinstance(part, Text) else part for part in said.parts]
        return replace(said, parts=tuple(parts))

    return replace(_without(candidate, here), messages=tuple([message(said) for said in candidate.messages]))


def _to_candidate(candidate: Candidate, here: Probabilities, there: Probabilities) -> Candidate:
    found: Tokens = []

    def text(part: Any) -> Any:
        if not isinstance(part, Text) or not (tokens := _told(part, here)):
            return part
        found.extend(tokens)
        return _without(part, here)

    messages = tuple([replace(said, parts=tuple(map(text, said.parts))) for said in candidate.messages])
    return _with(replace(candidate, messages=messages), found, there) if found else candidate


class _Growing:
    """A text while it grows."""

    def __init__(self, start: PartStart) -> None:
        self.start = start
        self.growth = PartGrowth()
        self.tokens: Tokens = []


class StreamProbabilities:
    """Takes the events of a stream in order, as `hand_on` takes the whole answer."""

    def __init__(self, here: Probabilities, there: Probabilities) -> None:
        self._here = here
        self._there = there
        self._texts: dict[tuple[int, int], _Growing] = {}
        self._tokens: dict[int, Tokens] = {}

    def hand_on(self, events: list[Event]) -> list[Event]:
        move, texts = (self._to_texts, self._texts) if self._there.of_texts else (self._to_candidate, {})
        handed: list[Event] = []
        for event in events:
            if type(event) is not PartDelta or not event.plain:
                handed += move(event)
                continue
            if (text := texts.get((event.candidate, event.index))) is not None:
                text.growth.text.append(event.text)
            handed.append(event)
        return handed

    def _to_texts(self, event: Event) -> tuple[Event, ...]:
        match event:
            case PartStart(part=Text()):
                self._texts[event.candidate, event.index] = _Growing(event)
            case PartDelta() if (text := self._texts.get((event.candidate, event.index))) is not None:
                text.growth.add(event)
                if tokens := _told(event, self._here):
                    return (self._grow(_without(event, self._here), text, tokens),)
            case Notice() if event.kind.startswith(_CHOICE) and (tokens := _told(event, self._here)):
                candidate = int(event.kind.removeprefix(_CHOICE))
                open_texts = [text for (number, _), text in self._texts.items() if number == candidate]
                if open_texts:
                    delta = PartDelta(index=open_texts[-1].start.index, candidate=candidate)
                    return (_without(event, self._here), self._grow(delta, open_texts[-1], tokens))
            case PartEnd() if (text := self._texts.pop((event.candidate, event.index), None)) is not None:
                if text.tokens:
                    final = text.growth.apply(text.start.part) if event.final is None else event.final
                    return (replace(event, final=_with(final, text.tokens, self._there)),)
            case Stopped() if tokens := _told(event, self._here):
                if len(tokens) == len(self._tokens.get(event.candidate, ())):
                    return (_without(event, self._here),)
        return (event,)

    def _grow(self, delta: PartDelta, text: _Growing, tokens: Tokens) -> PartDelta:
        text.tokens += tokens
        self._tokens.setdefault(delta.candidate, []).extend(tokens)
        return _with(delta, tokens, self._there)

    def _to_candidate(self, event: Event) -> tuple[Event, ...]:
        match event:
            case PartEnd(final=Text() as final) if tokens := _told(final, self._here):
                self._tokens.setdefault(event.candidate, []).extend(tokens)
                delta = PartDelta(index=event.index, candidate=event.candidate)
                return _with(delta, tokens, self._there), replace(event, final=_without(final, self._here))
            case Stopped() if tokens := self._tokens.get(event.candidate):
                return (_with(event, tokens, self._there),)
        return (event,)


def handing_on(here: Probabilities | None, there: Probabilities | None) -> StreamProbabilities | None:
    """For a stream between two protocols, if they tell the same in two places."""
    if here is None or there is None or here.of_texts == there.of_texts:
        return None
    return StreamProbabilities(here, there)
