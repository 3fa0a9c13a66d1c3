"""Steps whose pictures together stay below a size: a run that watches a screen would fill any disk."""

import msgspec
from msgspec.structs import replace

from toolwire.canonical.content import Inline, Media, Part, Text

from .execute import Outcome
from .steps import Steps

MOST = 64 * 1024 * 1024
_SMALLEST = 16 * 1024
GONE = "[a picture was here: of a long run only the latest are kept]"


class BoundPictures:
    """The steps of a run. `most` is in bytes; the oldest pictures go first, and a note stays in their place."""

    def __init__(self, steps: Steps, most: int = MOST) -> None:
        self._steps = steps
        self._most = most
        self._sizes: dict[str, int] = {}

    def begun(self, name: str) -> bytes | None:
        return self._steps.begun(name)

    def begin(self, name: str, intent: bytes) -> None:
        self._steps.begin(name, intent)

    def outcome(self, name: str) -> bytes | None:
        if (known := self._steps.outcome(name)) is not None:
            self._count(name, known)
        return known

    def finish(self, name: str, outcome: bytes) -> None:
        self._steps.finish(name, outcome)
        self._count(name, outcome)

    def _count(self, name: str, outcome: bytes) -> None:
        if not name.startswith("call/") or len(outcome) < _SMALLEST:
            return
        self._sizes[name] = len(outcome)
        while sum(self._sizes.values()) > self._most and len(self._sizes) > 1:
            oldest = next(iter(self._sizes))
            del self._sizes[oldest]
            self._forget(oldest)

    def _forget(self, name: str) -> None:
        if (known := self._steps.outcome(name)) is None:
            return
        whole = msgspec.json.decode(known, type=Outcome)
        content = tuple(map(_without, whole.result.content or ()))
        self._steps.finish(name, msgspec.json.encode(replace(whole, result=replace(whole.result, content=content))))


def _without(part: Part) -> Part:
    return Text(text=GONE) if isinstance(part, Media) and isinstance(part.source, Inline) else part
