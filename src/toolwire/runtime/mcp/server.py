"""Toolwire's tools as an MCP server, in both protocol versions.

Every call goes through a `CallHandler`, which validates it, applies the policy, and runs it with limits. Approvals and
questions go to the client's user if the client supports elicitation; otherwise they are denied.

In the newer version a server can't send requests. A call with a question ends its request with `input_required`, stays
suspended, and continues when the client sends the answers with the same `requestState`. That is an unguessable token,
valid for one round of one call.
"""

import asyncio
import contextlib
import re
import secrets
import time
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias, get_args

import mcp_types as types
import msgspec
from mcp import MCPDeprecationWarning, MCPError
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
from toolwire.runtime.mcp.config import IMPLEMENTATION_NAME, IMPLEMENTATION_VERSION
from toolwire.runtime.mcp.elicitation import ElicitationApprover, FormSender
from toolwire.runtime.policy import INPUT_ARGUMENT
from toolwire.runtime.tool import Arguments, Tool, ToolOutput

_SUSPENDED_TTL = 600.0
_MAX_SUSPENDED = 100


class _Question(Struct):
    """A question that waits for the client's answer."""

    params: types.ElicitRequestFormParams
    answer: "asyncio.Future[types.ElicitResult]"


class SuspendedCall:
    """One call over its rounds. `session` is that of the current round."""

    def __init__(self, session: ServerSession, responses: types.InputResponses) -> None:
        self.session = session
        self.questions: dict[str, _Question] = {}
        self.deadline = 0.0
        self.call_key = b""
        self.task: asyncio.Task[types.CallToolResult] | None = None
        self._responses = dict(responses)
        self._has_questions = asyncio.Event()

    async def elicit(self, key: str, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        """Ask the client's user, unless the answer came with the call."""
        if isinstance(response := self._responses.pop(key, None), types.ElicitResult):
            return response
        question = _Question(params, asyncio.get_running_loop().create_future())
        self.questions[key] = question
        self._has_questions.set()
        return await question.answer

    def accept_responses(self, responses: types.InputResponses) -> None:
        """Set the answers to open questions; answers to other questions are ignored."""
        for key, response in responses.items():
            question = self.questions.get(key)
            if question is not None and isinstance(response, types.ElicitResult):
                del self.questions[key]
                question.answer.set_result(response)
        if not self.questions:
            self._has_questions.clear()

    async def wait_for_result(self, task: "asyncio.Task[types.CallToolResult]") -> types.CallToolResult | None:
        """Wait for the result of the call; None if it has questions first."""
        question_task = asyncio.create_task(self._has_questions.wait())
        try:
            await asyncio.wait({task, question_task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            question_task.cancel()
        return task.result() if task.done() else None


class SuspendedCalls:
    """The calls that wait for answers, by `requestState`."""

    def __init__(self) -> None:
        self._suspended: dict[str, SuspendedCall] = {}

    async def run_round(
        self,
        context: ServerRequestContext,
        params: types.CallToolRequestParams,
        start_call: Callable[[SuspendedCall], Awaitable[types.CallToolResult]],
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Run one round: start a new call, or continue the suspended one that `requestState` names."""
        self._expire()
        responses = params.input_responses or {}
        call_key = msgspec.json.encode([params.name, params.arguments], order="deterministic")
        if params.request_state is None:
            call = SuspendedCall(context.session, responses)
            call.call_key = call_key
            call.task = asyncio.ensure_future(start_call(call))
        else:
            call = self._resume(params.request_state, call_key)
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
        """Cancel the suspended calls."""
        for call in self._suspended.values():
            if call.task is not None:
                call.task.cancel()
        self._suspended.clear()

    def _resume(self, state: str, call_key: bytes) -> SuspendedCall:
        """Take the suspended call with this `requestState`; it must have the same tool and arguments."""
        call = self._suspended.get(state)
        if call is None or call.call_key != call_key:
            raise MCPError(types.INVALID_PARAMS, "unknown requestState for this call")
        return self._suspended.pop(state)

    def _suspend(self, call: SuspendedCall) -> types.InputRequiredResult:
        """Store the call under a new `requestState`, and return its questions."""
        state = secrets.token_urlsafe(32)
        call.deadline = time.monotonic() + _SUSPENDED_TTL
        self._suspended[state] = call
        requests: dict[str, types.InputRequest] = {
            key: types.ElicitRequest(params=question.params) for key, question in call.questions.items()
        }
        return types.InputRequiredResult(input_requests=requests, request_state=state)

    def _expire(self) -> None:
        """Cancel suspended calls that are too old, and the oldest of too many."""
        now = time.monotonic()
        expired = [state for state, call in self._suspended.items() if call.deadline < now]
        excess_count = max(0, len(self._suspended) - len(expired) - _MAX_SUSPENDED)
        for state in [*expired, *list(self._suspended)[:excess_count]]:
            call = self._suspended.pop(state, None)
            if call is not None and call.task is not None:
                call.task.cancel()


RequestContext = ServerRequestContext[Any, Any]
_LIST_TTL_MS = 60_000
_MAX_LEGACY_SESSIONS = 100
_MAX_QUEUED_REPORTS = 1000
_LOG_LEVELS: tuple[types.LoggingLevel, ...] = get_args(types.LoggingLevel)
_DEFAULT_LOG_LEVEL: types.LoggingLevel = "info"
_PROGRESS_PATTERN = re.compile(
    r"(?P<done>\d+(?:\.\d+)?)(?:/(?P<total>\d+(?:\.\d+)?))?(?:\s+(?P<message>.*))?", re.DOTALL
)


class CallHandler(Protocol):
    """Validates, authorizes and runs a call.

    Failures of the caller or the tool are returned as a `ToolOutput` with `is_error`, not raised.
    """

    async def __call__(
        self,
        name: str,
        arguments: Arguments,
        /,
        *,
        approver: Approver,
        on_progress: Callable[[str], None],
        on_log: Callable[[str, str], None],
    ) -> ToolOutput:
        """Run one call of the named tool; failures are returned as outputs with `is_error`.

        `on_log` receives the level and the text of messages that the tool logs.
        """
        ...


class _SdkServer(Server[Any]):
    """The SDK's server, announcing `listChanged`."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Announce tool list changes, which the older protocol version expects at initialization."""
        options = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(options, experimental_capabilities, extensions)


class ToolServer:
    """An MCP server for the tools that `list_tools` returns; their calls go to `handle_call`."""

    def __init__(self, list_tools: Callable[[], Awaitable[Sequence[Tool]]], handle_call: CallHandler) -> None:
        self._list_tools = list_tools
        self._run_tool = handle_call
        self._suspended_calls = SuspendedCalls()
        self._legacy_sessions: dict[ServerSession, None] = {}
        self._log_levels: dict[str, types.LoggingLevel] = {}
        self.bus = InMemorySubscriptionBus()
        self.server: Server[Any] = _SdkServer(
            IMPLEMENTATION_NAME,
            version=IMPLEMENTATION_VERSION,
            cache_hints={"tools/list": CacheHint(ttl_ms=_LIST_TTL_MS, scope="private")},
            on_list_tools=self._handle_list,
            on_call_tool=self._handle_call,
            on_subscriptions_listen=ListenHandler(self.bus),
        )
        # Not a parameter of the constructor, which warns that logging is deprecated.
        self.server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self._handle_log_level)

    async def notify_changed(self) -> None:
        """Notify clients that the tool list changed."""
        await self.bus.publish(ToolsListChanged())
        # A session that lists the tools again is registered again.
        sessions, self._legacy_sessions = self._legacy_sessions, {}
        for session in sessions:
            with contextlib.suppress(Exception):
                await session.send_tool_list_changed()

    def close(self) -> None:
        """Cancel the suspended calls."""
        self._suspended_calls.close()

    async def _handle_list(
        self, context: RequestContext, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """Answer `tools/list`, and register sessions of the older version for change notifications."""
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            self._legacy_sessions[context.session] = None
            while len(self._legacy_sessions) > _MAX_LEGACY_SESSIONS:
                self._legacy_sessions.pop(next(iter(self._legacy_sessions)))
        modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        return types.ListToolsResult(tools=[_encode_tool(tool, modern=modern) for tool in await self._list_tools()])

    async def _handle_log_level(
        self, context: RequestContext, params: types.SetLevelRequestParams
    ) -> types.EmptyResult:
        """Store the log level of a session of the older version."""
        id = _session_id(context)
        self._log_levels.pop(id, None)
        self._log_levels[id] = params.level
        while len(self._log_levels) > _MAX_LEGACY_SESSIONS:
            self._log_levels.pop(next(iter(self._log_levels)))
        return types.EmptyResult()

    async def _handle_call(
        self, context: RequestContext, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Answer `tools/call`, with the client's user as approver if the client supports elicitation."""
        tool = next((tool for tool in await self._list_tools() if tool.name == params.name), None)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name[:200]}")
        arguments: Arguments = params.arguments or {}
        if tool.grammar is not None:
            arguments = arguments.get(INPUT_ARGUMENT, "")
        capabilities = context.session.client_capabilities
        can_elicit = capabilities is not None and capabilities.elicitation is not None
        if context.protocol_version in MODERN_PROTOCOL_VERSIONS:

            async def start_call(call: SuspendedCall) -> types.CallToolResult:
                """Run the tool, with approvals and progress sent to the client, and encode its result."""
                approver: Approver = ElicitationApprover(call.elicit) if can_elicit else NoApprover()
                async with _call_reporter(lambda: call.session) as reporter:
                    output = await self._run_tool(
                        tool.name,
                        arguments,
                        approver=approver,
                        on_progress=reporter.add_progress,
                        on_log=reporter.add_log,
                    )
                return content.encode_result(output)

            return await self._suspended_calls.run_round(context, params, start_call)
        approver: Approver = ElicitationApprover(_form_sender(context)) if can_elicit else NoApprover()
        level = self._log_levels.get(_session_id(context), _DEFAULT_LOG_LEVEL)
        async with _call_reporter(lambda: context.session, context.request_id, level) as reporter:
            output = await self._run_tool(
                tool.name,
                arguments,
                approver=approver,
                on_progress=reporter.add_progress,
                on_log=reporter.add_log,
            )
        # In the older version, structured content must be an object.
        return content.encode_result(
            output if isinstance(output.structured, dict) else replace(output, structured=None)
        )


def _session_id(context: RequestContext) -> str:
    """Return the id of an HTTP session of the older version; empty over stdio, which has one session."""
    headers = getattr(context.request, "headers", {})
    return str(headers.get("mcp-session-id", ""))


def _form_sender(context: RequestContext) -> FormSender:
    """Return a function that sends elicitation forms to the client as the older protocol version does."""

    async def send_form(key: str, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        """Send a form as a request, and return the user's answer."""
        return await context.session.elicit_form(params.message, params.requested_schema, context.request_id)

    return send_form


class _CallReporter:
    """Sends progress and log messages of a call in order.

    `level` is the least severe level that a client of the older version gets. In the newer version, the SDK knows the
    level that the request names.
    """

    def __init__(
        self,
        session: Callable[[], ServerSession],
        request_id: types.RequestId | None,
        level: types.LoggingLevel,
    ) -> None:
        self._session = session
        self._request_id = request_id
        self._level = level
        self._queue: asyncio.Queue[Callable[[], Awaitable[None]] | None] = asyncio.Queue(_MAX_QUEUED_REPORTS)
        self._last_value = -1.0

    def add_progress(self, text: str) -> None:
        """Queue a progress text; drop it if the queue is full."""
        self._add(partial(self._send_progress, text))

    def add_log(self, level: str, text: str) -> None:
        """Queue a log message, unless it is less severe than the client wants; unknown levels count as `info`."""
        known = next((known for known in _LOG_LEVELS if known == level), _DEFAULT_LOG_LEVEL)
        if _LOG_LEVELS.index(known) >= _LOG_LEVELS.index(self._level):
            self._add(partial(self._send_log, known, text))

    def _add(self, send: Callable[[], Awaitable[None]]) -> None:
        """Queue a notification; drop it if the queue is full."""
        with contextlib.suppress(asyncio.QueueFull):
            self._queue.put_nowait(send)

    async def send_queued(self) -> None:
        """Send the queued notifications until the reporter is closed."""
        while (send := await self._queue.get()) is not None:
            with contextlib.suppress(Exception):
                await send()

    async def close(self) -> None:
        """End `send_queued` after the last notification."""
        await self._queue.put(None)

    async def _send_progress(self, text: str) -> None:
        """Send a progress notification; MCP requires increasing values."""
        match = _PROGRESS_PATTERN.fullmatch(text)
        value = self._last_value + 1 if match is None else float(match["done"])
        if value <= self._last_value:
            return
        self._last_value = value
        total = None if match is None or match["total"] is None else float(match["total"])
        await self._session().report_progress(value, total, text if match is None else match["message"])

    async def _send_log(self, level: types.LoggingLevel, text: str) -> None:
        """Send a log notification."""
        with warnings.catch_warnings():
            # Deprecated together with the feature, which both versions still have.
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            sending = self._session().send_log_message(level, text, related_request_id=self._request_id)
        await sending


@contextlib.asynccontextmanager
async def _call_reporter(
    session: Callable[[], ServerSession],
    request_id: types.RequestId | None = None,
    level: types.LoggingLevel = "debug",
) -> AsyncGenerator[_CallReporter]:
    """Yield a reporter, and send everything reported before the result."""
    reporter = _CallReporter(session, request_id, level)
    task = asyncio.create_task(reporter.send_queued())
    try:
        yield reporter
    except BaseException:
        task.cancel()
        raise
    await reporter.close()
    await task


def _encode_tool(tool: Tool, *, modern: bool) -> types.Tool:
    """Encode a tool for `tools/list`; a grammar tool takes its text as the argument `input`.

    `modern` selects the newer protocol version.
    """
    annotations = tool.annotations
    schema = tool.output_schema
    text_schema = {"type": "object", "properties": {INPUT_ARGUMENT: {"type": "string"}}, "required": [INPUT_ARGUMENT]}
    return types.Tool(
        name=tool.name,
        description=tool.description or None,
        input_schema=tool.parameters if tool.grammar is None else text_schema,
        # In the older version, output schemas must describe objects.
        output_schema=schema if modern or (schema is not None and schema.get("type") == "object") else None,
        annotations=types.ToolAnnotations(
            read_only_hint=annotations.read_only,
            destructive_hint=annotations.destructive,
            idempotent_hint=annotations.idempotent,
            open_world_hint=annotations.open_world,
        ),
    )


async def serve_stdio(server: ToolServer) -> None:
    """Serve one client on stdin and stdout."""
    async with stdio_server() as (incoming, outgoing):
        await server.server.run(incoming, outgoing, server.server.create_initialization_options())


RequestFilter: TypeAlias = Callable[[dict[bytes, bytes], bytes], int | None]
"""Returns the status to reject a request with, by its headers and query string; None accepts it."""


def http_app(server: ToolServer, rejection_status: RequestFilter) -> ASGIApp:
    """Build the ASGI app for streamable HTTP. `rejection_status` alone checks host, origin and key."""
    inner = server.server.streamable_http_app(
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False)
    )

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse an HTTP request that the filter rejects; pass others to the SDK's app."""
        if scope["type"] == "http":
            headers = {name.lower(): value for name, value in scope["headers"]}
            if (status := rejection_status(headers, scope["query_string"])) is not None:
                challenge = [(b"www-authenticate", b"Bearer")] if status == 401 else []
                await send({"type": "http.response.start", "status": status, "headers": challenge})
                await send({"type": "http.response.body", "body": b""})
                return
        await inner(scope, receive, send)

    return app
