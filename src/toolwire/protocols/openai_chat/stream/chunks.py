"""Chunks as they are written. All of a stream begin and end alike: that is made once, and a delta fills in its text."""

from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.events import Notice, ResponseStart
from toolwire.codec.interface import Context
from toolwire.codec.kept import restore
from toolwire.codec.plan import Plan
from toolwire.codec.sse import in_lines, unframed
from toolwire.protocols.openai_chat.response.body import completion_id
from toolwire.protocols.openai_chat.wire import FAMILY

from .decoder import LOGPROBS

text_of = msgspec.json.Encoder().encode
_NULL_USAGE = f"{FAMILY}:null:usage"


class Chunks(Struct):
    envelope: dict[str, Any]
    head: bytes
    tail: bytes
    logprobs: bytes

    def extended(self, members: dict[str, Any]) -> "Chunks":
        """The same with more members beside the choices."""
        envelope = self.envelope | members
        return replace(self, envelope=envelope, head=_head(envelope)) if members else self

    def around(self, candidate: int) -> tuple[bytes, bytes]:
        """What stands before and after a delta."""
        before = self.head + b'{"index":%d,"delta":' % candidate
        return before, self.logprobs + b',"finish_reason":null}' + self.tail

    def of(self, candidate: int, delta: dict[str, Any]) -> bytes:
        before, after = self.around(candidate)
        return before + in_lines(text_of(delta)) + after

    def with_extras(self, candidate: int, delta: dict[str, Any], extras: dict[str, Any]) -> bytes:
        """A chunk with fields that only this protocol has; their keys are pointers below the choice."""
        choice: dict[str, Any] = {"index": candidate, "delta": delta}
        restore(choice, Notice(kind="", extras={FAMILY: extras}), FAMILY)
        choice.setdefault("finish_reason", None)
        return self.head + in_lines(text_of(choice)) + self.tail

    def finish(self, candidate: int, reason: str | None) -> bytes:
        before = self.head + b'{"index":%d,"delta":{}' % candidate
        return before + self.logprobs + b',"finish_reason":' + text_of(reason) + b"}" + self.tail


class _WrittenChoice(Struct):
    delta: dict[str, Raw]


class _WrittenChunk(Struct):
    choices: tuple[_WrittenChoice]


_read_chunk = msgspec.json.Decoder(_WrittenChunk).decode


def delta_of(chunk: bytes) -> dict[str, Any]:
    """The delta of a chunk that is already written."""
    (choice,) = _read_chunk(unframed(chunk)).choices
    return dict(choice.delta)


def _head(envelope: dict[str, Any]) -> bytes:
    return b"data: " + in_lines(text_of(envelope))[:-1] + b',"choices":['


NO_CHUNKS = Chunks({}, b"", b"", b"")


def chunks_of(event: ResponseStart, plan: Plan, context: Context, *, counts: bool) -> Chunks:
    envelope: dict[str, Any] = {}
    if event.id is not None or not plan.home:
        envelope["id"] = completion_id(event.id, plan, context)
    envelope["object"] = "chat.completion.chunk"
    if event.created is not None or not plan.home:
        envelope["created"] = event.created if plan.home else int(event.created or context.created)
    if event.model is not None or not plan.home:
        envelope["model"] = event.model or ""
    restore(envelope, event, FAMILY)
    for name in ("usage", "choices", "error"):
        envelope.pop(name, None)
    said = _NULL_USAGE in event.form if plan.home else counts
    return Chunks(
        envelope=envelope,
        head=_head(envelope),
        tail=b"]" + (b',"usage":null' if said else b"") + b"}\n\n",
        logprobs=b',"logprobs":null' if LOGPROBS in event.form or not plan.home else b"",
    )
