"""Answers that are told alike: a server says the same of itself, in the same spelling, in one after the other.

What an answer was found to say besides its words is remembered. Of one that differs from it in its words, its calls and
its counts only, just those are read.
"""

from operator import attrgetter
from typing import Any

from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.content import Message, Part, Text, ToolCall
from toolwire.canonical.node import Extras
from toolwire.canonical.response import Candidate, Response, Usage
from toolwire.codec.shared import SharedExtras
from toolwire.protocols.openai_chat.parts.calls import decode_call, is_json
from toolwire.protocols.openai_chat.wire import AnswerShape, ResponseShape

_LIMIT = 256
_LIMIT_BYTES = 1024

# What is each answer's own.
_of_its_own = attrgetter(
    *("id", "created", "usage.prompt_tokens", "usage.completion_tokens", "usage.total_tokens"),
    *("usage.prompt_tokens_details.cached_tokens", "usage.completion_tokens_details.reasoning_tokens"),
)
# All else that a typed reading finds, but its words and calls.
_of_answer = attrgetter(
    *("object", "error", "service_tier", "system_fingerprint"),
    *("usage.prompt_tokens_details.cache_write_tokens", "usage.prompt_tokens_details.audio_tokens"),
    "usage.completion_tokens_details.accepted_prediction_tokens",
    "usage.completion_tokens_details.rejected_prediction_tokens",
    "usage.completion_tokens_details.audio_tokens",
)
_of_choice = attrgetter(
    *("index", "logprobs", "error", "message.role", "message.name", "message.tool_call_id", "message.annotations"),
    *("message.refusal", "message.function_call", "message.reasoning_content", "message.reasoning"),
)
_of_other_words = attrgetter("refusal", "function_call", "reasoning_content", "reasoning", "annotations")


class _Like(Struct, frozen=True):
    """An answer without what is its own: as it was written, and as it was read."""

    written: tuple[Any, ...]
    response: Response
    candidate: Candidate
    message: Message
    usage: Usage


class Alike:
    """The latest answers, one of each kind."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], _Like] = {}

    def read(self, shape: ResponseShape) -> Response | None:
        """The answer, if one like it was read before. The shape is of a typed reading, which takes all or nothing."""
        try:
            (choice,) = shape.choices  # type: ignore[misc]
            like = self._known.get(_kind(shape, choice))
            if like is None or (_of_answer(shape), _of_choice(choice)) != like.written:
                return None
            own = _of_its_own(shape)
        except (TypeError, ValueError, AttributeError):  # it has not one choice, or not all counts
            return None
        if None in own or UNSET in own:
            return None
        said = choice.message
        parts: list[Part] = [Text(text=said.content, at="/content")] if type(said.content) is str else []
        for index, shown in enumerate(said.tool_calls or ()):
            call = decode_call(shown, index)
            if type(call) is not ToolCall or call.extras or not (call.arguments and is_json(call.arguments)):
                return None
            parts.append(call)
        id, created, given, taken, total, cached, reasoning = own
        usage = replace(
            like.usage, input_tokens=given, output_tokens=taken, total=total, cache_read=cached, reasoning=reasoning
        )
        candidate = replace(like.candidate, messages=(replace(like.message, parts=tuple(parts)),))
        return replace(like.response, id=id, created=created, candidates=(candidate,), usage=usage)

    def remember(self, shape: ResponseShape, response: Response) -> None:
        """How this one was read."""
        try:
            (choice,), (candidate,) = shape.choices, response.candidates  # type: ignore[misc]
            written, own = (_of_answer(shape), _of_choice(choice)), _of_its_own(shape)
        except (TypeError, ValueError, AttributeError):
            return
        usage, (message,) = response.usage, candidate.messages
        raws = [value for values in written for value in values if type(value) is Raw]
        if (
            usage is None
            or None in own
            or UNSET in own
            or type(choice.message.content) is list
            or any(one not in (UNSET, None, []) for one in _of_other_words(choice.message))
            or any(part.extras or type(part) not in (Text, ToolCall) for part in message.parts)
            or sum(len(bytes(raw)) for raw in raws) > _LIMIT_BYTES
        ):
            return
        if len(self._known) >= _LIMIT:
            self._known.clear()
        usage = replace(usage, extras=_own(usage.extras))
        extras = _own(response.extras)
        if extras and candidate.plain:
            extras = SharedExtras(extras, response.form, usage)
        self._known[_kind(shape, choice)] = _Like(
            written=tuple([tuple(map(_copied, values)) for values in written]),
            response=replace(response, candidates=(), usage=None, extras=extras),
            candidate=replace(candidate, messages=(), extras=_own(candidate.extras)),
            message=replace(message, parts=(), extras=_own(message.extras)),
            usage=usage,
        )


def _kind(shape: ResponseShape, choice: AnswerShape) -> tuple[Any, ...]:
    said = choice.message
    calls = said.tool_calls
    return shape.model, choice.finish_reason, type(said.content), len(calls) if type(calls) is list else calls


def _copied(value: Any) -> Any:
    """What is raw holds on to all of the body that it is from."""
    return value.copy() if type(value) is Raw else value


def _own(extras: Extras | None) -> Extras | None:
    return extras and {family: {key: raw.copy() for key, raw in kept.items()} for family, kept in extras.items()}
