"""Compaction in a run: a summary by the model takes the place of the earlier conversation when the context fills.

The run keeps its complete conversation; only requests are shortened. Each summary is a step of the run, so that a
resumed run continues from the same one.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeAlias, runtime_checkable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.content import Message
from toolwire.canonical.errors import ApiError
from toolwire.canonical.events import Event
from toolwire.canonical.fold import fold
from toolwire.canonical.request import Request
from toolwire.canonical.response import Usage
from toolwire.codec.token_count import estimate_tokens
from toolwire.journal.runs import decode_stored
from toolwire.runtime.model import Model, ModelFailed
from toolwire.runtime.run.history import trim_history
from toolwire.runtime.run.limits import CompactAt
from toolwire.runtime.run.step_log import StepLog
from toolwire.translation.compaction import (
    SummaryFailed,
    compacted_request,
    find_obstacle,
    find_recent,
    read_summary,
    summary_request,
)

_WINDOW_SHARE = 0.8
_RECENT_SHARE = 0.1
_SMALL_REQUEST = 8_000
"""Tokens up to which no window is looked up."""
_PATIENCE = 3
"""Turns to wait after a summary that failed."""

OnUsage: TypeAlias = Callable[[Usage], None]


@runtime_checkable
class SupportsContextSize(Protocol):
    """A model that knows its context window."""

    def context_tokens(self) -> Awaitable[int | None]:
        """Return the tokens of prompt and answer together; None if unknown."""
        ...


@runtime_checkable
class SupportsSummaries(Protocol):
    """A model that summarizes in a way of its own."""

    def summarize(self, request: Request) -> Awaitable[tuple[str, Usage]]:
        """Return a summary of the conversation, and the tokens that it took; raise `ModelFailed` if that failed."""
        ...


class CompactionStep(Struct, frozen=True):
    """A summary as recorded in the step log."""

    summary: str
    replaced: int
    """Messages of the run that the summary replaces."""
    usage: Usage


class Compactor:
    """Shortens the requests of one run."""

    def __init__(self, model: Model, step_log: StepLog, compact_at: CompactAt) -> None:
        self._warnings: list[str] = []
        self._model = model
        self._step_log = step_log
        self._compact_at = compact_at
        self._step: CompactionStep | None = None
        self._window: int | None = None
        self._is_window_known = False
        self._input_tokens = 0
        self._counted_messages = 0
        self._next_turn = 0

    def use_model(self, model: Model) -> None:
        """Continue with another model, after a hand-off."""
        if model is not self._model:
            self._model, self._window, self._is_window_known = model, None, False

    def take_warnings(self) -> list[str]:
        """Return the warnings since the last call and clear them."""
        warnings, self._warnings = self._warnings, []
        return warnings

    def restore(self, turn: int) -> Usage | None:
        """Take the summary that an earlier process recorded in this turn; return the tokens that it took."""
        if (stored := self._step_log.outcome(_step_name(turn))) is None:
            return None
        self._step = decode_stored(stored, CompactionStep, f"step {_step_name(turn)}")
        return self._step.usage

    def shorten(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """Return the messages with the summary in place of those that it replaces."""
        if self._step is None:
            return messages
        request = Request(origin="", messages=messages)
        kept_from = min(self._step.replaced, len(messages))
        return compacted_request(request, self._step.summary, keep_from=kept_from, keeps_user_messages=True).messages

    def count(self, usage: Usage | None, messages: tuple[Message, ...]) -> None:
        """Note the size of a request with these messages, as the provider counted it."""
        if usage is not None and usage.input_tokens:
            self._input_tokens, self._counted_messages = usage.input_tokens, len(messages)

    async def fit(self, turn: int, request: Request, messages: tuple[Message, ...], on_usage: OnUsage) -> Request:
        """Return the request, with a new summary if it fills the context; `messages` are all messages of the run.

        If the summary fails, the request stays as it is.
        """
        if self._compact_at == "never" or turn < self._next_turn or not await self._is_due(request, messages):
            return request
        try:
            return await self._compact(turn, request, messages, on_usage)
        except ModelFailed as error:
            self._next_turn = turn + _PATIENCE
            self._warnings.append(f"the conversation could not be summarized: {error}")
            return request

    async def stream(
        self, turn: int, request: Request, messages: tuple[Message, ...], on_usage: OnUsage
    ) -> AsyncIterator[Event]:
        """Yield the events of the model's response; if the request exceeds the context, summarize and send it again."""
        try:
            async for event in self._model.stream(request):
                yield event
        except ModelFailed as error:
            if error.error.kind != "context_length" or self._compact_at == "never":
                raise
            try:
                request = await self._compact(turn, request, messages, on_usage, exceeded=True)
            except ModelFailed:
                raise error from None
        else:
            return
        async for event in self._model.stream(request):
            yield event

    async def _is_due(self, request: Request, messages: tuple[Message, ...]) -> bool:
        """Return whether a request fills the context."""
        if not any(
            message.role == "assistant" for message in messages[0 if self._step is None else self._step.replaced :]
        ):
            return False  # nothing new to summarize
        tokens = self._estimate(request, messages)
        if isinstance(self._compact_at, int):
            return tokens > self._compact_at
        window = await self._context_window() if tokens > _SMALL_REQUEST else None
        return window is not None and tokens > window * _WINDOW_SHARE

    def _estimate(self, request: Request, messages: tuple[Message, ...]) -> int:
        """Return about the tokens of a request: those that the provider counted last, and the messages since."""
        if self._input_tokens:
            new = messages[self._counted_messages :]
            return self._input_tokens + (estimate_tokens(msgspec.json.encode(new)) if new else 0)
        return estimate_tokens(msgspec.json.encode((request.system, request.messages, request.tools)))

    async def _context_window(self) -> int | None:
        """Return the model's context window, looked up once."""
        if not self._is_window_known and isinstance(self._model, SupportsContextSize):
            self._window = await self._model.context_tokens()
        self._is_window_known = True
        return self._window

    async def _compact(
        self,
        turn: int,
        request: Request,
        messages: tuple[Message, ...],
        on_usage: OnUsage,
        *,
        exceeded: bool = False,
    ) -> Request:
        """Return the request with a new summary; raise `ModelFailed` if there is none.

        The latest messages stay. If the context was exceeded, the summary request leaves out the oldest turns.
        """
        if (obstacle := find_obstacle(request.messages)) is not None:
            raise ModelFailed(_failure(obstacle))
        tokens = self._estimate(request, messages)
        kept_from = find_recent(request.messages, int(tokens * _RECENT_SHARE))
        kept, summarized = len(request.messages) - kept_from, request.messages[:kept_from]
        if exceeded:
            summarized, omitted = trim_history(summarized, tokens // 2)
            if not omitted:
                raise ModelFailed(_failure("the conversation has no older turns to leave out"))
        summary, usage = await self._summarize(replace(request, messages=summarized))
        step = CompactionStep(summary, len(messages) - kept, usage)
        self._step_log.begin(_step_name(turn), b"")
        self._step_log.finish(_step_name(turn), msgspec.json.encode(step))
        self._step, self._input_tokens = step, 0
        on_usage(usage)
        self._warnings.append(f"the context is full: a summary replaces the first {step.replaced} messages")
        return compacted_request(request, summary, keep_from=kept_from, keeps_user_messages=True)

    async def _summarize(self, request: Request) -> tuple[str, Usage]:
        """Return a summary of the conversation, and the tokens that it took."""
        if isinstance(self._model, SupportsSummaries):
            return await self._model.summarize(request)
        response = fold([event async for event in self._model.stream(summary_request(request))])
        try:
            return read_summary(response), response.usage or Usage()
        except SummaryFailed as error:
            raise ModelFailed(_failure(str(error))) from None


def _failure(reason: str) -> ApiError:
    """Return the error for a summary that failed."""
    return ApiError(kind="context_length", message=f"no summary: {reason}")


def _step_name(turn: int) -> str:
    """Return the name of the step that records the summary of a turn."""
    return f"compaction/{turn}"
