"""Tools that run as tasks: the server returns a task at once, and the client polls for its result.

In the older protocol version, the client requests a task (`execution.taskSupport` of the tool). In the newer one, tasks
are an extension, and a server answers any call with a task if it likes.
"""

import asyncio
import contextlib
from typing import Any

import mcp_types as types
from mcp import MCPError

from toolwire.runtime.mcp import limits
from toolwire.runtime.mcp.server_requests import ActiveCall, ServerRequests
from toolwire.runtime.mcp.session import Session
from toolwire.runtime.tool import ToolError

_MIN_POLL_SECONDS, _MAX_POLL_SECONDS, _DEFAULT_POLL_SECONDS = 0.05, 10.0, 1.0
_CANCEL_TIMEOUT = 5.0
_ENDED = ("completed", "failed", "cancelled")


class TaskState(types.Result):
    """The state of a task: the result of `tasks/get`, and in the newer version of a call."""

    result_type: str = "task"
    task_id: str
    status: types.TaskStatus
    status_message: str | None = None
    poll_interval: int | None = None
    """Milliseconds between polls, in the older version."""
    poll_interval_ms: int | None = None
    """Milliseconds between polls, in the newer version."""
    input_requests: types.InputRequests | None = None
    """Questions of the newer version, while the status is `input_required`."""
    result: types.CallToolResult | None = None
    """Result of the newer version, when the task is completed."""
    error: types.ErrorData | None = None
    """Error of the newer version, when the task failed."""

    @property
    def poll_seconds(self) -> float:
        """Seconds to wait before the next poll."""
        interval = self.poll_interval_ms if self.poll_interval is None else self.poll_interval
        seconds = _DEFAULT_POLL_SECONDS if interval is None else interval / 1000
        return min(max(seconds, _MIN_POLL_SECONDS), _MAX_POLL_SECONDS)


class _TaskParams(types.RequestParams):
    """Parameters of the requests about tasks."""

    task_id: str
    input_responses: types.InputResponses | None = None


class _TaskRequest(types.Request[_TaskParams, str]):
    """A request about a task; over HTTP, its id is in a header, too."""

    name_param = "taskId"


async def start_legacy_task(session: Session, params: types.CallToolRequestParams, timeout: float) -> TaskState:
    """Call a tool of the older version as a task. The SDK admits no task as the result of a call."""
    params = params.model_copy(update={"task": types.TaskMetadata(ttl=round(timeout * 1000))})
    body = params.model_dump(by_alias=True, mode="json", exclude_none=True)
    raw = await session.send_raw_request("tools/call", body, timeout)
    return TaskState.model_validate(raw.get("task") or {}, by_name=False)


async def finish_task(
    session: Session, task: TaskState, call: ActiveCall, requests: ServerRequests, timeout: float
) -> types.CallToolResult:
    """Poll a task to its end, answer its questions, and return its result; cancel it if the call ends earlier.

    `timeout` limits the last request of the older version, which waits for the result.
    """
    try:
        while task.status not in _ENDED:
            if task.status == "input_required" and not session.is_modern:
                break  # the server asks while it is asked for the result
            _report_status(task, call)
            if task.status == "input_required" and task.input_requests:
                answers = await requests.answer(task.input_requests, call)
                await _send(session, "tasks/update", types.Result, task_id=task.task_id, input_responses=answers)
            else:
                await asyncio.sleep(task.poll_seconds)
            task = await _send(session, "tasks/get", TaskState, task_id=task.task_id)
        return await _task_result(session, task, requests.server, timeout)
    except BaseException:
        if task.status not in _ENDED:
            await _cancel(session, task)
        raise


async def _task_result(session: Session, task: TaskState, server: str, timeout: float) -> types.CallToolResult:
    """Return the result of a task that ended, or in the older version of one that has questions."""
    if not session.is_modern and task.status != "cancelled":
        params = _TaskParams(task_id=task.task_id)
        request = _TaskRequest(method="tasks/result", params=params)
        return await session.send_request(request, types.CallToolResult, timeout)
    if task.result is not None:
        return task.result
    if task.error is not None:
        raise MCPError.from_error_data(task.error)
    reason = limits.sanitize_text(task.status_message or task.status, 500)
    raise ToolError(f"MCP server {server!r} ended its task without a result: {reason}", "protocol")


def _report_status(task: TaskState, call: ActiveCall) -> None:
    """Report the status of a task as progress of the call."""
    if task.status_message:
        call.context.report_progress(limits.sanitize_text(task.status_message, 500))


async def _send(session: Session, method: str, result_type: Any, **params: Any) -> Any:
    """Send a request about a task."""
    return await session.send_request(_TaskRequest(method=method, params=_TaskParams(**params)), result_type)


async def _cancel(session: Session, task: TaskState) -> None:
    """Cancel a task, whatever the server answers."""

    async def send() -> None:
        """Send the cancellation, with a timeout of its own."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_CANCEL_TIMEOUT):
                await _send(session, "tasks/cancel", types.Result, task_id=task.task_id)

    # Shielded: the call may be ending because it was cancelled.
    await asyncio.shield(asyncio.ensure_future(send()))
