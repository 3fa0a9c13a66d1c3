"""Answer the requests of one server, elicitation, sampling and roots, and forward its log messages.

In the older protocol version, a request does not name the call that it belongs to. It goes to the latest call in
progress.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import mcp_types as types
import msgspec
from mcp import MCPError
from mcp.client import ClientRequestContext
from msgspec import Struct
from pydantic import FileUrl

from toolwire.canonical.response import Usage, add_usage
from toolwire.runtime.mcp import limits
from toolwire.runtime.mcp.config import LogLevel, McpServerConfig
from toolwire.runtime.mcp.elicitation import elicit
from toolwire.runtime.mcp.sampling import ModelOpener, Sampler, SamplingRefused
from toolwire.runtime.mcp.session import Session
from toolwire.runtime.run.budget import Budget
from toolwire.runtime.run.limits import RunLimits
from toolwire.runtime.tool import ToolContext, ToolError

TASKS_EXTENSION = "io.modelcontextprotocol/tasks"
_LOG_LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)


class ActiveCall(Struct, eq=False):
    """A call of a server's tool in progress."""

    context: ToolContext
    budget: Budget | None = None
    """The part of the run's budget that the server uses by sampling."""
    usage: Usage | None = None
    """Usage of the server by sampling."""
    sampling_count: int = 0
    log_count: int = 0


class ServerRequests:
    """Answers the requests that one server sends during calls."""

    def __init__(
        self,
        server: str,
        config: McpServerConfig,
        *,
        open_model: ModelOpener | None = None,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`warn` receives log messages that belong to no call."""
        self.server = server
        self._config = config
        self._sampler = None if config.sampling is None else Sampler(server, config.sampling, open_model)
        self._warn = warn
        self._active: list[ActiveCall] = []
        self._question_count = 0

    @property
    def capabilities(self) -> types.ClientCapabilities:
        """The capabilities that the configuration grants to the server."""
        form, url = types.FormElicitationCapability(), types.UrlElicitationCapability()
        return types.ClientCapabilities(
            elicitation=types.ElicitationCapability(form=form, url=url),
            sampling=None if self._sampler is None else types.SamplingCapability(),
            roots=types.RootsCapability(list_changed=False) if self._config.roots else None,
            extensions={TASKS_EXTENSION: {}},
        )

    def callbacks(self) -> dict[str, Any]:
        """Return the callbacks for the SDK's session, which declares a capability for each."""
        level = self._config.log_level
        return {
            "elicitation_callback": self._elicit,
            "logging_callback": self._log,
            "log_level": None if level == "off" else level,
            **({} if self._sampler is None else {"sampling_callback": self._sample}),
            **({"list_roots_callback": self._list_roots} if self._config.roots else {}),
        }

    @contextmanager
    def during(self, context: ToolContext) -> Iterator[ActiveCall]:
        """Note that a call is in progress, so that requests of the server can be answered."""
        call = ActiveCall(context)
        self._active.append(call)
        try:
            yield call
        finally:
            self._active.remove(call)
            if not self._active:
                self._question_count = 0

    async def request_logs(self, session: Session) -> None:
        """Ask a server of the older version for its log messages; the newer version asks with each request."""
        capabilities = session.server_capabilities
        if session.is_modern or capabilities is None or capabilities.logging is None or self._config.log_level == "off":
            return
        params = types.SetLevelRequestParams(level=self._config.log_level)
        try:
            await session.send_request(types.SetLevelRequest(params=params), types.EmptyResult)
        except MCPError as error:
            self._warn(f"MCP server {self.server!r} rejected the log level: {limits.sanitize_text(str(error), 300)}")

    async def answer(self, requests: dict[str, types.InputRequest], call: ActiveCall) -> types.InputResponses:
        """Answer the requests of one round of the newer version, one after the other."""
        if len(requests) > limits.MAX_QUESTIONS:
            raise ToolError(
                f"MCP server {self.server!r} asked more than {limits.MAX_QUESTIONS} questions at once", "protocol"
            )
        return {key: await self._answer(request, call) for key, request in requests.items()}

    async def _answer(self, request: types.InputRequest, call: ActiveCall) -> types.InputResponse:
        """Answer one request of the newer version."""
        match request:
            case types.ElicitRequest():
                return await elicit(call.context.approver, self.server, request.params)
            case types.CreateMessageRequest() if self._sampler is not None:
                try:
                    return await self._sample_for(self._sampler, request.params, call)
                except SamplingRefused as error:
                    # Unlike the older version, a round can't answer with an error.
                    raise ToolError(f"MCP server {self.server!r} requested sampling: {error}", "denied") from None
            case types.ListRootsRequest() if self._config.roots:
                return self._roots()
        raise ToolError(f"MCP server {self.server!r} requested unsupported {request.method}", "protocol")

    async def _elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Answer a question of the older version."""
        self._question_count += 1
        if not self._active or self._question_count > limits.MAX_INPUT_ROUNDS * len(self._active):
            return types.ElicitResult(action="decline")
        return await elicit(self._active[-1].context.approver, self.server, params)

    async def _sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        """Answer a sampling request of the older version."""
        if not self._active or self._sampler is None:
            return types.ErrorData(code=types.INVALID_REQUEST, message="sampling needs a call in progress")
        try:
            return await self._sample_for(self._sampler, params, self._active[-1])
        except SamplingRefused as error:
            return types.ErrorData(code=error.code, message=str(error))

    async def _sample_for(
        self, sampler: Sampler, params: types.CreateMessageRequestParams, call: ActiveCall
    ) -> types.CreateMessageResult:
        """Answer a sampling request of a call, within its limits."""
        call.sampling_count += 1
        if call.sampling_count > sampler.config.requests:
            raise SamplingRefused(f"the limit is {sampler.config.requests} sampling requests per call")
        run = call.context.parent_run
        if call.budget is None and run is not None:
            call.budget = run.budget.nest(RunLimits())
        if call.budget is not None and (limit := call.budget.exceeded()) is not None:
            raise SamplingRefused(limit[1])
        remaining_tokens = None if call.budget is None else call.budget.remaining_tokens
        result, usage = await sampler.sample(params, call.context, remaining_tokens)
        call.usage = add_usage(call.usage, usage)
        if run is not None and call.budget is not None:
            run.add_usage(usage)
            call.budget.settle(call.usage)
        return result

    async def _list_roots(self, context: ClientRequestContext) -> types.ListRootsResult:
        """Answer a request of the older version for the roots."""
        return self._roots()

    def _roots(self) -> types.ListRootsResult:
        """Return the configured folders."""
        paths = [Path(folder).expanduser().resolve() for folder in self._config.roots]
        return types.ListRootsResult(
            roots=[types.Root(uri=FileUrl(path.as_uri()), name=path.name or str(path)) for path in paths]
        )

    async def _log(self, params: types.LoggingMessageNotificationParams) -> None:
        """Forward a log message to the latest call in progress; without one, only warnings and errors."""
        level = self._config.log_level
        if level == "off" or _LOG_LEVELS.index(params.level) < _LOG_LEVELS.index(level):
            return
        data = params.data if isinstance(params.data, str) else msgspec.json.encode(params.data).decode()
        text = limits.sanitize_text(f"{params.logger}: {data}" if params.logger else data, limits.MAX_LOG_LENGTH)
        if self._active:
            call = self._active[-1]
            call.log_count += 1
            if call.log_count <= limits.MAX_LOG_MESSAGES:
                call.context.report_log(params.level, text)
        elif _LOG_LEVELS.index(params.level) >= _LOG_LEVELS.index("warning"):
            self._warn(f"MCP server {self.server!r}: {params.level}: {text}")

    async def close(self) -> None:
        """Close the model for sampling, if one was opened."""
        if self._sampler is not None:
            await self._sampler.close()
