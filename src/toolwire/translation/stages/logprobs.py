"""Move token log probabilities between protocols that attach them to candidates and those that attach them to texts.

In a stream they are passed on as they arrive, and once more, complete, at the end.
"""

from typing import TypeVar

from msgspec.structs import replace

from toolwire.canonical.content import Text
from toolwire.canonical.events import CandidateEnd, Event, Notice, PartDelta, PartDeltas, PartEnd, PartStart
from toolwire.canonical.fold import PartAccumulator
from toolwire.canonical.node import Node
from toolwire.canonical.response import Response
from toolwire.codec.interface import LogprobsLayout, TokenLogprobs

N = TypeVar("N", bound=Node)
LOGPROBS_KEY = "logprobs"
_CHOICE_NOTICE = "choice:"
"""Prefix of the kind of a notice about a candidate, before its index."""


def _read_logprobs(node: Node, layout: LogprobsLayout) -> TokenLogprobs | None:
    """Return the log probabilities of a node, if it has any."""
    raw = (node.extras or {}).get(layout.family, {}).get(LOGPROBS_KEY)
    return None if raw is None else layout.decode(raw)


def _without_logprobs(node: N, layout: LogprobsLayout) -> N:
    """Return the node without its log probabilities."""
    extras = {family: dict(fields) for family, fields in (node.extras or {}).items()}
    del extras[layout.family][LOGPROBS_KEY]
    return replace(node, extras={family: fields for family, fields in extras.items() if fields} or None)


def _with_logprobs(node: N, tokens: TokenLogprobs, layout: LogprobsLayout) -> N:
    """Return the node with log probabilities."""
    extras = dict(node.extras or {})
    extras[layout.family] = {**extras.get(layout.family, {}), LOGPROBS_KEY: layout.encode(tokens)}
    return replace(node, extras=extras)


class _OpenText:
    """A text that is still growing."""

    def __init__(self, start: PartStart) -> None:
        self.start = start
        self.accumulator = PartAccumulator()
        self.tokens: TokenLogprobs = []


class LogprobsStage:
    """Moves log probabilities between candidates and texts.

    They move to a text only if it is the only one of its candidate; else the owner of a token is unknown.
    """

    def __init__(self, source: LogprobsLayout, target: LogprobsLayout) -> None:
        self._source = source
        self._target = target
        self._texts: dict[tuple[int, int], _OpenText] = {}
        self._text_counts: dict[int, int] = {}
        self._tokens: dict[int, TokenLogprobs] = {}

    def applies(self, response: Response) -> bool:
        """Return whether the response has log probabilities."""
        if not self._source.per_text:
            return any(_read_logprobs(candidate, self._source) for candidate in response.candidates)
        return any(
            type(part) is Text and _read_logprobs(part, self._source)
            for candidate in response.candidates
            for message in candidate.messages
            for part in message.parts
        )

    def process(self, events: list[Event]) -> list[Event]:
        """Return the events with log probabilities in the target's layout."""
        move, texts = (self._move_to_text, self._texts) if self._target.per_text else (self._move_to_candidate, {})
        processed: list[Event] = []
        for event in events:
            if type(event) is not PartDeltas:
                processed += move(event, processed)
                continue
            if (text := texts.get((event.candidate, event.index))) is not None:
                text.accumulator.add(event)
            processed.append(event)
        return processed

    def _move_to_text(self, event: Event, processed: list[Event]) -> tuple[Event, ...]:
        """Return the events that replace an event, for targets with log probabilities on texts."""
        match event:
            case PartStart(part=Text()):
                self._texts[event.candidate, event.index] = _OpenText(event)
                self._text_counts[event.candidate] = self._text_counts.get(event.candidate, 0) + 1
            case PartDelta() if (text := self._texts.get((event.candidate, event.index))) is not None:
                text.accumulator.add(event)
                if tokens := _read_logprobs(event, self._source):
                    return (self._append_tokens(_without_logprobs(event, self._source), text, tokens),)
            case Notice() if event.kind.startswith(_CHOICE_NOTICE) and (tokens := _read_logprobs(event, self._source)):
                candidate = int(event.kind.removeprefix(_CHOICE_NOTICE))
                open_texts = [text for (number, _), text in self._texts.items() if number == candidate]
                if open_texts:
                    delta = PartDelta(index=open_texts[-1].start.index, candidate=candidate)
                    return (_without_logprobs(event, self._source), self._append_tokens(delta, open_texts[-1], tokens))
            case PartEnd() if (text := self._texts.pop((event.candidate, event.index), None)) is not None:
                if text.tokens:
                    final = text.accumulator.apply(text.start.part) if event.final is None else event.final
                    return (replace(event, final=_with_logprobs(final, text.tokens, self._target)),)
            case CandidateEnd() if tokens := _read_logprobs(event, self._source):
                sent = len(self._tokens.get(event.candidate, ()))
                if len(tokens) == sent or (not sent and self._attach_to_text(event.candidate, tokens, processed)):
                    return (_without_logprobs(event, self._source),)
        return (event,)

    def _attach_to_text(self, candidate: int, tokens: TokenLogprobs, processed: list[Event]) -> bool:
        """Attach logprobs that came with the end of a candidate to its only text; return whether there was one.

        Complete responses carry them there. This works because all of their events are processed at once.
        """
        if self._text_counts.get(candidate) != 1:
            return False
        for position, event in enumerate(processed):
            if type(event) is PartEnd and event.candidate == candidate and isinstance(event.final, Text):
                processed[position] = replace(event, final=_with_logprobs(event.final, tokens, self._target))
                return True
        return False

    def _append_tokens(self, delta: PartDelta, text: _OpenText, tokens: TokenLogprobs) -> PartDelta:
        """Attach tokens to a delta, and collect them for the end of the text."""
        text.tokens += tokens
        self._tokens.setdefault(delta.candidate, []).extend(tokens)
        return _with_logprobs(delta, tokens, self._target)

    def _move_to_candidate(self, event: Event, _processed: list[Event]) -> tuple[Event, ...]:
        """Return the events that replace an event, for targets with log probabilities on candidates."""
        match event:
            case PartStart(part=Text() as part) if _read_logprobs(part, self._source):
                return (replace(event, part=_without_logprobs(part, self._source)),)
            case PartEnd(final=Text() as final) if tokens := _read_logprobs(final, self._source):
                self._tokens.setdefault(event.candidate, []).extend(tokens)
                delta = PartDelta(index=event.index, candidate=event.candidate)
                return _with_logprobs(delta, tokens, self._target), replace(
                    event, final=_without_logprobs(final, self._source)
                )
            case CandidateEnd() if tokens := self._tokens.get(event.candidate):
                return (_with_logprobs(event, tokens, self._target),)
        return (event,)


def logprobs_stage(source: LogprobsLayout | None, target: LogprobsLayout | None) -> LogprobsStage | None:
    """Return a stage for two protocols with different layouts; None if nothing needs to move."""
    if source is None or target is None or source.per_text == target.per_text:
        return None
    return LogprobsStage(source, target)
