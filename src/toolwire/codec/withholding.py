"""Proofs that are kept for a client whose protocol has no field for them.

The answer passes without its proofs; as it was, they are in `whole`. Who holds on to that puts it back into the next
request (`put_back`), in place of what the client repeats of it.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from toolwire.canonical.content import Media, Message, Part, Reasoning, Text, ToolCall, ToolResult
from toolwire.canonical.events import Event, PartDelta, PartEnd, PartStart
from toolwire.canonical.fold import fold, unfold
from toolwire.canonical.node import Extras
from toolwire.canonical.response import Response

_SEALED = (Text, Media, Reasoning, ToolCall)


class Withholding:
    """Of one answer. `found`: it had proofs."""

    def __init__(self) -> None:
        self.found = False
        self._events: list[Event] = []

    def pass_events(self, events: Iterable[Event]) -> list[Event]:
        """The same list, if there is nothing to hold back."""
        given = passed = events if isinstance(events, list) else list(events)
        self._events += given
        for place, event in enumerate(given):
            if type(event) is PartDelta and (event.plain or event.seal is None):
                continue
            if (bare := self._without(event)) is not event:
                passed = list(given) if passed is given else passed
                passed[place] = bare
        return passed

    def _without(self, event: Event) -> Event:
        match event:
            case PartDelta():
                self.found = True
                return replace(event, seal=None)
            case PartStart() if (bare := self._bare(event.part)) is not event.part:
                return replace(event, part=bare)
            case PartEnd() if event.final is not None and (bare := self._bare(event.final)) is not event.final:
                return replace(event, final=bare)
            case _:
                return event

    def pass_response(self, response: Response) -> Response:
        """The same for a whole answer."""
        sealed = (
            part.seal
            for one in response.candidates
            for said in one.messages
            for part in said.parts
            if isinstance(part, _SEALED)
        )
        if all(seal is None for seal in sealed):
            return response
        self._events += unfold(response)
        self.found = True
        candidates = [
            replace(
                one, messages=tuple([replace(said, parts=tuple(map(self._bare, said.parts))) for said in one.messages])
            )
            for one in response.candidates
        ]
        return replace(response, candidates=tuple(candidates))

    def whole(self) -> tuple[Message, ...]:
        """What was said first, with all that proves it."""
        candidates = fold(self._events).candidates
        return candidates[0].messages if candidates else ()

    def _bare(self, part: Part) -> Part:
        if not isinstance(part, _SEALED) or part.seal is None:
            return part
        self.found = True
        return replace(part, seal=None)


def put_back(messages: Sequence[Message], turn: tuple[int, int], whole: Sequence[Message]) -> list[Message]:
    """The conversation with a turn as it was said. What the client itself added to it is still to be reported, and its
    results answer the calls under the ids that these had."""
    first, after = turn
    repeated = messages[first:after]
    calls, said = _calls(repeated), _calls(whole)
    added = [node.extras for message in repeated for node in (message, *message.parts) if node.extras]
    back = [
        replace(message, at=repeated[0].at, parts=tuple([replace(one, at="") for one in message.parts]))
        for message in whole
    ]
    back[0] = replace(back[0], extras=_joined([back[0].extras or {}, *added]))
    following = list(messages[after:])
    ids = {call.id: issued.id for call, issued in zip(calls, said, strict=False) if call.id}
    nameless = [issued for call, issued in zip(calls, said, strict=False) if not call.id]
    for number, message in enumerate(following):
        if message.role == "assistant":
            break
        parts = tuple([_answering(part, ids, nameless) for part in message.parts])
        following[number] = replace(message, parts=parts)
    return [*messages[:first], *back, *following]


def _calls(messages: Iterable[Message]) -> list[ToolCall]:
    parts = [part for message in messages for part in message.parts]
    return [part for part in parts if isinstance(part, ToolCall) and part.executor == "client"]


def _answering(part: Part, ids: dict[str, str | None], nameless: list[ToolCall]) -> Part:
    if not isinstance(part, ToolResult):
        return part
    if part.call_id:
        return replace(part, call_id=ids.get(part.call_id, part.call_id))
    if not nameless:
        return part
    call = next((one for one in nameless if one.name == part.name), nameless[0])
    nameless.remove(call)
    return replace(part, call_id=call.id)


def _joined(all_extras: Iterable[Extras]) -> Extras | None:
    joined: Extras = {}
    for extras in all_extras:
        for family, kept in extras.items():
            joined[family] = {**kept, **joined.get(family, {})}
    return joined or None
