"""Calls that wait for an answer, in the version whose server may not ask: it ends the request, and gets another one.

What runs is kept and goes on when the answer comes, so that nothing is done twice. `requestState` is a name for it that
can't be guessed, good for one round of one call.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable

import mcp_types as types
import msgspec
from mcp import MCPError
from mcp.server import ServerRequestContext
from mcp.server.session import ServerSession
from msgspec import Struct

_PATIENCE = 600.0
_WAITING = 100


class _Question(Struct):
    params: types.ElicitRequestFormParams
    answer: "asyncio.Future[types.ElicitResult]"


class Suspended:
    """One call, over its rounds. `session` is the one of the round that is under way."""

    def __init__(self, session: ServerSession, responses: types.InputResponses) -> None:
        self.session = session
        self.questions: dict[str, _Question] = {}
        self.deadline = 0.0
        self.about = b""
        self.task: asyncio.Task[types.CallToolResult] | None = None
        self._responses = dict(responses)
        self._asked = asyncio.Event()

    async def ask(self, key: str, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        """Answers may come with the call, before it asks."""
        if isinstance(told := self._responses.pop(key, None), types.ElicitResult):
            return told
        question = _Question(params, asyncio.get_running_loop().create_future())
        self.questions[key] = question
        self._asked.set()
        return await question.answer

    def take(self, responses: types.InputResponses) -> None:
        """What nobody asked for is not looked at; what is missing is asked again."""
        for key, response in responses.items():
            question = self.questions.get(key)
            if question is not None and isinstance(response, types.ElicitResult):
                del self.questions[key]
                question.answer.set_result(response)
        if not self.questions:
            self._asked.clear()

    async def goes_on(self, task: "asyncio.Task[types.CallToolResult]") -> types.CallToolResult | None:
        """The result, or None if it asks first."""
        asked = asyncio.create_task(self._asked.wait())
        try:
            await asyncio.wait({task, asked}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
        return task.result() if task.done() else None


class Calls:
    def __init__(self) -> None:
        self._waiting: dict[str, Suspended] = {}

    async def turn(
        self,
        context: ServerRequestContext,
        params: types.CallToolRequestParams,
        start: Callable[[Suspended], Awaitable[types.CallToolResult]],
    ) -> types.CallToolResult | types.InputRequiredResult:
        """One round: of a call that waits, or the first of a new one."""
        self._forget()
        responses = params.input_responses or {}
        about = msgspec.json.encode([params.name, params.arguments], order="deterministic")
        if params.request_state is None:
            call = Suspended(context.session, responses)
            call.about = about
            call.task = asyncio.ensure_future(start(call))
        else:
            call = self._resumed(params.request_state, about)
            call.session = context.session
            call.take(responses)
        if call.task is None:
            raise AssertionError
        try:
            result = await call.goes_on(call.task)
        except asyncio.CancelledError:
            call.task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await call.task
            raise
        if result is not None:
            return result
        return self._suspended(call)

    def close(self) -> None:
        for call in self._waiting.values():
            if call.task is not None:
                call.task.cancel()
        self._waiting.clear()

    def _resumed(self, state: str, about: bytes) -> Suspended:
        found = self._waiting.get(state)
        if found is None or found.about != about:
            raise MCPError(types.INVALID_PARAMS, "requestState is not of a call that waits for this")
        return self._waiting.pop(state)

    def _suspended(self, call: Suspended) -> types.InputRequiredResult:
        state = secrets.token_urlsafe(32)
        call.deadline = time.monotonic() + _PATIENCE
        self._waiting[state] = call
        requests: dict[str, types.InputRequest] = {
            key: types.ElicitRequest(params=question.params) for key, question in call.questions.items()
        }
        return types.InputRequiredResult(input_requests=requests, request_state=state)

    def _forget(self) -> None:
        now = time.monotonic()
        late = [state for state, call in self._waiting.items() if call.deadline < now]
        for state in [*late, *list(self._waiting)[: max(0, len(self._waiting) - len(late) - _WAITING)]]:
            call = self._waiting.pop(state, None)
            if call is not None and call.task is not None:
                call.task.cancel()
