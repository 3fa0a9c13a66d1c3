"""Calls that wait for an answer, in the version whose server may not ask: it ends the request, and gets another one.

What runs is kept and goes on when the answer comes, so that nothing is done twice. `requestState` is a name for it that
can't be guessed, good for one round of one call.

toolwire as an MCP server, of both versions: its tools, each call through one gate.

Whatever is called goes through `Carry`, which validates, asks the policy, runs and bounds: there is no other way to a
tool. A person whom the policy or a tool wants to ask is asked through the client, if it said that it can do that;
otherwise there is nobody, and what would be asked is denied.
"""

import asyncio
import contextlib
import re
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeAlias

import mcp_types as types
import msgspec
from mcp import MCPError
from mcp.server import NotificationOptions, Server, ServerRequestContext
from mcp.server.caching import CacheHint
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import Struct
from msgspec.structs import replace
from starlette.types import ASGIApp, Receive, Scope, Send

from toolwire.runtime.calls.approval import Approver, NoApprover
from toolwire.runtime.mcp import content
from toolwire.runtime.mcp.elicitation import ElicitationApprover, FormSender
from toolwire.runtime.mcp.identity import IMPLEMENTATION_NAME, IMPLEMENTATION_VERSION
from toolwire.runtime.policy import INPUT_ARGUMENT
from toolwire.runtime.tool import Arguments, Tool, ToolOutput

_SUSPENDED_TTL = 600.0
_MAX_SUSPENDED = 100


class _Question(Struct):
    params: types.ElicitRequestFormParams
    answer: "asyncio.Future[types.ElicitResult]"


class SuspendedCall:
    """One call, over its rounds. `session` is the one of the round that is under way."""

    def __init__(self, session: ServerSession, responses: types.InputResponses) -> None:
        self.session = session
        self.questions: dict[str, _Question] = {}
        self.deadline = 0.0
        self.call_key = b""
        self.task: asyncio.Task[types.CallToolResult] | None = None
        self._responses = dict(responses)
        self._has_questions = asyncio.Event()

    async def elicit(self, key: str, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        """Answers may come with the call, before it asks."""
        if isinstance(told := self._responses.pop(key, None), types.ElicitResult):
            return told
        question = _Question(params, asyncio.get_running_loop().create_future())
        self.questions[key] = question
        self._has_questions.set()
        return await question.answer

    def accept_responses(self, responses: types.InputResponses) -> None:
        """What nobody asked for is not looked at; what is missing is asked again."""
        for key, response in responses.items():
            question = self.questions.get(key)
            if question is not None and isinstance(response, types.ElicitResult):
                del self.questions[key]
                question.answer.set_result(response)
        if not self.questions:
            self._has_questions.clear()

    async def wait_for_result(self, task: "asyncio.Task[types.CallToolResult]") -> types.CallToolResult | None:
        """The result, or None if it asks first."""
        asked = asyncio.create_task(self._has_questions.wait())
        try:
            await asyncio.wait({task, asked}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
        return task.result() if task.done() else None


class SuspendedCalls:
    def __init__(self) -> None:
        self._suspended: dict[str, SuspendedCall] = {}

    async def run_round(
        self,
        context: ServerRequestContext,
        params: types.CallToolRequestParams,
        start_call: Callable[[SuspendedCall], Awaitable[types.CallToolResult]],
    ) -> types.CallToolResult | types.InputRequiredResult:
        """One round: of a call that waits, or the first of a new one."""
        self._expire()
        responses = params.input_responses or {}
        about = msgspec.json.encode([params.name, params.arguments], order="deterministic")
        if params.request_state is None:
            call = SuspendedCall(context.session, responses)
            call.call_key = about
            call.task = asyncio.ensure_future(start_call(call))
        else:
            call = self._resume(params.request_state, about)
            call.session = context.session
            call.accept_responses(responses)
        if call.task is None:
            raise AssertionError
        try:
            result = await call.wait_for_result(call.task)
        except asyncio.CancelledError:
            call.task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await call.task
            raise
        if result is not None:
            return result
        return self._suspend(call)

    def close(self) -> None:
        for call in self._suspended.values():
            if call.task is not None:
                call.task.cancel()
        self._suspended.clear()

    def _resume(self, state: str, call_key: bytes) -> SuspendedCall:
        found = self._suspended.get(state)
        if found is None or found.call_key != call_key:
            raise MCPError(types.INVALID_PARAMS, "requestState is not of a call that waits for this")
        return self._suspended.pop(state)

    def _suspend(self, call: SuspendedCall) -> types.InputRequiredResult:
        state = secrets.token_urlsafe(32)
        call.deadline = time.monotonic() + _SUSPENDED_TTL
        self._suspended[state] = call
        requests: dict[str, types.InputRequest] = {
            key: types.ElicitRequest(params=question.params) for key, question in call.questions.items()
        }
        return types.InputRequiredResult(input_requests=requests, request_state=state)

    def _expire(self) -> None:
        now = time.monotonic()
        late = [state for state, call in self._suspended.items() if call.deadline < now]
        for state in [*late, *list(self._suspended)[: max(0, len(self._suspended) - len(late) - _MAX_SUSPENDED)]]:
            call = self._suspended.pop(state, None)
            if call is not None and call.task is not None:
                call.task.cancel()


RequestContext = ServerRequestContext[Any, Any]
_LIST_TTL_MS = 60_000
_MAX_LEGACY_SESSIONS = 100
_MAX_QUEUED_PROGRESS = 1000
_PROGRESS_PATTERN = re.compile(
    r"(?P<done>\d+(?:\.\d+)?)(?:/(?P<total>\d+(?:\.\d+)?))?(?:\s+(?P<message>.*))?", re.DOTALL
)


class CallHandler(Protocol):
    """Carries out a call of a tool that was offered: validated, authorised, bounded. It raises nothing that is the
    caller's own fault or the tool's: that is an `Output` with `is_error`."""

    async def __call__(
        self, name: str, arguments: Arguments, /, *, approver: Approver, on_progress: Callable[[str], None]
    ) -> ToolOutput: ...


class _SdkServer(Server[Any]):
    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """The older version is told here, and nowhere else, that change notices come."""
        notices = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(notices, experimental_capabilities, extensions)


class ToolServer:
    """`offered` gives the tools of the moment; `changed` tells clients that they are others."""

    def __init__(self, list_tools: Callable[[], Awaitable[Sequence[Tool]]], handle_call: CallHandler) -> None:
        self._list_tools = list_tools
        self._run_tool = handle_call
        self._suspended_calls = SuspendedCalls()
        self._legacy_sessions: dict[ServerSession, None] = {}
        self.bus = InMemorySubscriptionBus()
        self.server: Server[Any] = _SdkServer(
            IMPLEMENTATION_NAME,
            version=IMPLEMENTATION_VERSION,
            cache_hints={"tools/list": CacheHint(ttl_ms=_LIST_TTL_MS, scope="private")},
            on_list_tools=self._handle_list,
            on_call_tool=self._handle_call,
            on_subscriptions_listen=ListenHandler(self.bus),
        )

    async def notify_changed(self) -> None:
        await self.bus.publish(ToolsListChanged())
        # Each of them lists again, and is known again.
        told, self._legacy_sessions = self._legacy_sessions, {}
        for session in told:
            with contextlib.suppress(Exception):
                await session.send_tool_list_changed()

    def close(self) -> None:
        self._suspended_calls.close()

    async def _handle_list(
        self, context: RequestContext, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            self._legacy_sessions[context.session] = None
            while len(self._legacy_sessions) > _MAX_LEGACY_SESSIONS:
                self._legacy_sessions.pop(next(iter(self._legacy_sessions)))
        modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        return types.ListToolsResult(tools=[_encode_tool(tool, modern=modern) for tool in await self._list_tools()])

    async def _handle_call(
        self, context: RequestContext, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        tool = next((one for one in await self._list_tools() if one.name == params.name), None)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name[:200]}")
        given: Arguments = params.arguments or {}
        if tool.grammar is not None:
            given = given.get(INPUT_ARGUMENT, "")
        capabilities = context.session.client_capabilities
        asks = capabilities is not None and capabilities.elicitation is not None
        if context.protocol_version in MODERN_PROTOCOL_VERSIONS:

            async def start(call: SuspendedCall) -> types.CallToolResult:
                person: Approver = ElicitationApprover(call.elicit) if asks else NoApprover()
                async with _progress_reporter(lambda: call.session) as progress:
                    output = await self._run_tool(tool.name, given, approver=person, on_progress=progress)
                return content.encode_result(output)

            return await self._suspended_calls.run_round(context, params, start)
        person: Approver = ElicitationApprover(_form_sender(context)) if asks else NoApprover()
        async with _progress_reporter(lambda: context.session) as progress:
            output = await self._run_tool(tool.name, given, approver=person, on_progress=progress)
        # The older version has structured content only as an object.
        return content.encode_result(
            output if isinstance(output.structured, dict) else replace(output, structured=None)
        )


def _form_sender(context: RequestContext) -> FormSender:
    async def form(key: str, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        return await context.session.elicit_form(params.message, params.requested_schema, context.request_id)

    return form


@contextlib.asynccontextmanager
async def _progress_reporter(session: Callable[[], ServerSession]) -> AsyncGenerator[Callable[[str], None]]:
    """Progress, told in the order it came, and all of it before the result is."""
    queue: asyncio.Queue[str | None] = asyncio.Queue(_MAX_QUEUED_PROGRESS)

    def progress(text: str) -> None:
        with contextlib.suppress(asyncio.QueueFull):
            queue.put_nowait(text)

    async def tell() -> None:
        last = -1.0
        while (text := await queue.get()) is not None:
            said = _PROGRESS_PATTERN.fullmatch(text)
            done = last + 1 if said is None else float(said["done"])
            if done <= last:
                continue
            last = done
            total = None if said is None or said["total"] is None else float(said["total"])
            with contextlib.suppress(Exception):
                await session().report_progress(done, total, text if said is None else said["message"])

    task = asyncio.create_task(tell())
    try:
        yield progress
    except BaseException:
        task.cancel()
        raise
    await queue.put(None)
    await task


def _encode_tool(tool: Tool, *, modern: bool) -> types.Tool:
    says = tool.annotations
    schema = tool.output_schema
    text = {"type": "object", "properties": {INPUT_ARGUMENT: {"type": "string"}}, "required": [INPUT_ARGUMENT]}
    return types.Tool(
        name=tool.name,
        description=tool.description or None,
        input_schema=tool.parameters if tool.grammar is None else text,
        # The older version has objects only.
        output_schema=schema if modern or (schema is not None and schema.get("type") == "object") else None,
        annotations=types.ToolAnnotations(
            read_only_hint=says.read_only,
            destructive_hint=says.destructive,
            idempotent_hint=says.idempotent,
            open_world_hint=says.open_world,
        ),
    )


async def serve_stdio(server: ToolServer) -> None:
    async with stdio_server() as (received, sent):
        await server.server.run(received, sent, server.server.create_initialization_options())


RequestFilter: TypeAlias = Callable[[dict[bytes, bytes], bytes], int | None]
"""The status that a request is turned away with, by its headers and its query; None lets it in."""


def http_app(server: ToolServer, rejection_status: RequestFilter) -> ASGIApp:
    """Who may come in, by host, origin and key, is `refuse`'s to say, and nobody else's."""
    inner = server.server.streamable_http_app(
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False)
    )

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = {name.lower(): value for name, value in scope["headers"]}
            if (status := rejection_status(headers, scope["query_string"])) is not None:
                challenge = [(b"www-authenticate", b"Bearer")] if status == 401 else []
                await send({"type": "http.response.start", "status": status, "headers": challenge})
                await send({"type": "http.response.body", "body": b""})
                return
        await inner(scope, receive, send)

    return app
