"""The `run_code` tool: runs Python in which the other tools are functions.

1. Each call that the code makes goes through `ToolContext.call`: it is validated, approved, limited and recorded as if
   the model had made it.
2. Only printed text and the last value reach the model. Errors are reported so that the model can fix its code.
3. With a `SnapshotStore`, the program is saved and signed whenever it waits for tools. A resumed run continues from
   there: finished calls are not repeated, and an altered snapshot is rejected.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from pydantic_monty import Monty

from toolwire.canonical.content import Data, Media, Part, Refusal, Text
from toolwire.runtime.calls.validation import nesting_depth
from toolwire.runtime.sandbox.code.description import (
    CodeLimits,
    Stub,
    code_tool_description,
    make_stubs,
    subset_hint,
)
from toolwire.runtime.sandbox.code.program import (
    CallRaised,
    CallReturned,
    HostCall,
    HostCallOutcome,
    InvalidSnapshot,
    Program,
    ProgramEnded,
    ProgramFunctions,
    ProgramWaiting,
    open_program,
    sign_snapshot,
    verify_snapshot,
)
from toolwire.runtime.search.deferred_tools import SEARCH_TOOL_NAME, indexed_tool
from toolwire.runtime.search.index import ToolIndex
from toolwire.runtime.tool import Arguments, CallDeferred, Tool, ToolContext, ToolError, ToolOutput, takes_program_calls

if TYPE_CHECKING:
    from toolwire.runtime.run.step_log import StepLog

RUN_CODE = "run_code"
_MAX_WORKERS = 4
_GRACE_SECONDS = 5.0
_MAX_RESULT_DEPTH = 200
_TOO_DEEP = "the result of the tool is nested too deeply"
_DEFAULT_LIMITS = CodeLimits()
_ERROR_MESSAGES = {
    "syntax": "The code has a syntax error.",
    "types": "The code was not run: it has type errors.",
    "error": "The code failed.",
    "limit": "The code was stopped: it exceeded a limit.",
    "crash": "The code was stopped.",
}
_OUTCOME_DECODER: msgspec.msgpack.Decoder[HostCallOutcome] = msgspec.msgpack.Decoder(CallReturned | CallRaised)


class SnapshotStore(Struct, frozen=True):
    """The step log that holds snapshots of waiting programs, and the key that signs them."""

    step_log: "Callable[[ToolContext], StepLog]"
    key: bytes


class CodeSandbox:
    """A pool of worker processes that programs run in, opened on first use and shared."""

    def __init__(self, limits: CodeLimits = _DEFAULT_LIMITS, snapshots: SnapshotStore | None = None) -> None:
        self.limits = limits
        self._snapshots = snapshots
        self._pool: Monty | None = None
        self._open_lock = asyncio.Lock()
        self._callable_tools: tuple[Tool, ...] = ()
        self._cached_tool: Tool | None = None

    async def pool(self) -> Monty:
        """Return the pool of worker processes, opened on first use."""
        async with self._open_lock:
            if self._pool is None:
                timeout = self.limits.seconds + _GRACE_SECONDS
                pool = Monty(max_processes=_MAX_WORKERS, request_timeout=timeout, checkout_timeout=timeout)
                self._pool = await asyncio.to_thread(pool.__enter__)
        return self._pool

    async def close(self) -> None:
        """Close the pool of worker processes, if it was opened."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await asyncio.to_thread(pool.__exit__, None, None, None)

    def close_sync(self) -> None:
        """Close the pool without an event loop."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.__exit__(None, None, None)

    def tool(self, tools: Sequence[Tool]) -> Tool:
        """Build the tool `run_code`, whose programs may call the tools that permit it; the last one built is cached."""
        callable_tools = tuple(
            tool for tool in tools if takes_program_calls(tool) and tool.name not in (RUN_CODE, SEARCH_TOOL_NAME)
        )
        cached_tools = self._callable_tools
        if (
            self._cached_tool is None
            or len(callable_tools) != len(cached_tools)
            or any(tool is not cached for tool, cached in zip(callable_tools, cached_tools, strict=True))
        ):
            self._cached_tool, self._callable_tools = self._make_tool(callable_tools), callable_tools
        return self._cached_tool

    def _make_tool(self, tools: Sequence[Tool]) -> Tool:
        """Build `run_code` with these tools as functions."""
        stubs = make_stubs(tools)
        functions = ProgramFunctions(stubs, make_helpers(stubs, tools))

        async def run(arguments: Arguments, context: ToolContext) -> ToolOutput:
            """Run the code of one call."""
            code_call = _CodeCall(self, functions, context, self._snapshots)
            return await code_call.run(arguments["code"])

        return Tool(
            name=RUN_CODE,
            description=code_tool_description(stubs, self.limits),
            parameters=_PARAMETERS,
            run=run,
            locus="sandbox",
            source="toolwire",
            retries=0,
            resumable=self._snapshots is not None,
            # The calls of the code have their own timeouts; this one also covers waiting for approvals.
            timeout=86_400.0,
            output_limit=2 * self.limits.output_characters,
        )


_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"code": {"type": "string", "description": "Python; await is allowed at the top level"}},
    "required": ["code"],
    "additionalProperties": False,
}


class _CodeCall:
    """One call of `run_code`."""

    def __init__(
        self, sandbox: CodeSandbox, functions: ProgramFunctions, context: ToolContext, snapshots: SnapshotStore | None
    ) -> None:
        self._sandbox = sandbox
        self._functions = functions
        self._context = context
        self._step_log = None if snapshots is None else snapshots.step_log(context)
        self._key = b"" if snapshots is None else snapshots.key
        self._turn = 0
        self._call_slots = asyncio.Semaphore(sandbox.limits.concurrency)
        self._tasks: dict[int, asyncio.Task[HostCallOutcome]] = {}

    async def run(self, code: str) -> ToolOutput:
        """Run the code, or resume it from its snapshot, until it ends."""
        pool = await self._sandbox.pool()
        async with open_program(pool, self._functions, self._sandbox.limits, code) as program:
            try:
                snapshot = self._load_snapshot()
                state = await (program.start() if snapshot is None else program.load(snapshot))
                while isinstance(state, ProgramWaiting):
                    await self._save_snapshot(program, state)
                    state = await program.resume(state, await self._next_outcomes(state.calls))
            except InvalidSnapshot as error:
                raise ToolError(str(error), "snapshot") from None
            finally:
                await self._cancel_calls()
            return program_output(program.output, state, self._sandbox.limits)

    async def _next_outcomes(self, calls: Sequence[HostCall]) -> dict[int, HostCallOutcome]:
        """Start the calls that are not running yet, wait for at least one, and return outcomes by call id.

        Raises `CallDeferred` if all remaining calls wait for an approval and nothing else is running.
        """
        if len(calls) == 1 and not self._tasks:
            return {calls[0].id: await self._recorded_call(calls[0])}
        for call in calls:
            if call.id not in self._tasks:
                self._tasks[call.id] = asyncio.create_task(self._recorded_call(call))
        while not (done := [call.id for call in calls if _has_outcome(self._tasks[call.id])]):
            running = [task for call in calls if not (task := self._tasks[call.id]).done()]
            if not running:
                raise CallDeferred
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        return {id: self._tasks.pop(id).result() for id in done}

    async def _recorded_call(self, call: HostCall) -> HostCallOutcome:
        """Return the recorded outcome of a call, or make the call and record its outcome."""
        name = f"{self._context.idempotency_key}/call/{call.id}"
        if self._step_log is not None:
            if (recorded := self._step_log.outcome(name)) is not None:
                return _OUTCOME_DECODER.decode(verify_snapshot(recorded, self._key, name))
            if self._step_log.intent(name) is None:
                self._step_log.begin(name, msgspec.msgpack.encode(call))
        async with self._call_slots:
            outcome = await self._call_tool(call)
        if self._step_log is not None:
            self._step_log.finish(name, sign_snapshot(msgspec.msgpack.encode(outcome), self._key, name))
        return outcome

    async def _call_tool(self, call: HostCall) -> HostCallOutcome:
        """Call the tool and convert its output to a value or an error."""
        if self._context.call is None:
            return CallRaised("tools can't be called from code here")
        try:
            output = await self._context.call(call.tool, call.arguments, str(call.id))
        except ToolError as fault:
            return CallRaised(str(fault))
        if output.is_error:
            return CallRaised(_content_text(output.content) or "the call failed")
        try:
            value = _output_value(output)
        except (RecursionError, msgspec.DecodeError):
            return CallRaised(_TOO_DEEP)
        return CallRaised(_TOO_DEEP) if nesting_depth(value) > _MAX_RESULT_DEPTH else CallReturned(value)

    def _load_snapshot(self) -> bytes | None:
        """Return the program's last snapshot, if an earlier process recorded one for this call; else None."""
        if self._step_log is None:
            return None
        last = None
        while (intent := self._step_log.intent(self._snapshot_step(self._turn))) is not None:
            last = intent
            self._turn += 1
        return None if last is None else verify_snapshot(last, self._key, self._snapshot_step(self._turn - 1))

    async def _save_snapshot(self, program: Program, waiting: ProgramWaiting) -> None:
        """Record a signed snapshot of the waiting program in the step log."""
        if self._step_log is not None:
            name = self._snapshot_step(self._turn)
            self._step_log.begin(name, sign_snapshot(await program.dump(waiting), self._key, name))
            self._turn += 1

    def _snapshot_step(self, turn: int) -> str:
        """Return the name of the step log entry for the program's `turn`-th snapshot."""
        return f"{self._context.idempotency_key}/code/{turn}"

    async def _cancel_calls(self) -> None:
        """Cancel the calls that are still running."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


def _has_outcome(task: "asyncio.Task[HostCallOutcome]") -> bool:
    """Return whether a call has finished and was not deferred."""
    return task.done() and not isinstance(task.exception(), CallDeferred)


def make_helpers(stubs: Mapping[str, Stub], tools: Sequence[Tool]) -> dict[str, Callable[..., Any]]:
    """Return the functions, by name, with which a program can look up tools."""
    by_tool = {stub.tool: stub for stub in stubs.values()}
    index = ToolIndex(map(indexed_tool, tools))

    def search_tools(query: str, limit: int = 5) -> list[str]:
        """Return the signatures of the tools that best match the query."""
        names = index.search_words(str(query)[:500], min(max(int(limit), 1), 50))
        return [by_tool[name].description.split("\n", 1)[0] for name in names]

    def describe_tool(name: str) -> str:
        """Return the stub of a tool with its descriptions."""
        stub = stubs.get(name) or by_tool.get(name)
        if stub is None:
            raise ValueError(f"unknown tool {name!r}: use search_tools to find tools")
        return stub.description

    return {"search_tools": search_tools, "describe_tool": describe_tool}


def _output_value(output: ToolOutput) -> Any:
    """Return the value that the code gets: structured data if there is any, else text."""
    if output.structured is not None:
        return msgspec.to_builtins(output.structured)
    if len(output.content) == 1 and isinstance(part := output.content[0], Data):
        return msgspec.json.decode(part.json)
    return _content_text(output.content)


def _content_text(parts: Sequence[Part]) -> str:
    """Join the texts of all parts with newlines."""
    return "\n".join(filter(None, map(_part_text, parts)))


def _part_text(part: Part) -> str:
    """Return the text of a part, or a placeholder for media."""
    match part:
        case Text() | Refusal():
            return part.text
        case Data():
            return bytes(part.json).decode()
        case Media():
            return f"[{part.kind} {part.media_type or ''}".rstrip() + "]"
        case _:
            return ""


def program_output(printed: str, result: ProgramEnded, limits: CodeLimits) -> ToolOutput:
    """Return the result of `run_code`: printed text and last value, or the error."""
    if result.error_kind is not None:
        message = "\n".join(
            filter(None, [_ERROR_MESSAGES[result.error_kind], result.error.rstrip(), subset_hint(result.error)])
        )
        text = f"{printed.rstrip()}\n\n{message}" if printed else message
        return ToolOutput(content=(Text(text=text.rstrip()),), is_error=True, error_kind=f"code_{result.error_kind}")
    value, rendered = _render_value(result.value)
    if len(rendered) > limits.output_characters:
        reason = f"the value of the last line has {len(rendered):,} characters, "
        reason += f"more than {limits.output_characters:,}: print only the relevant part"
        return program_output(printed, ProgramEnded(error_kind="limit", error=reason), limits)
    text = "\n".join(filter(None, [printed.rstrip("\n"), rendered])) or "The code ran without output."
    return ToolOutput(content=(Text(text=text),), structured={"printed": printed, "value": value})


def _render_value(value: Any) -> tuple[Any, str]:
    """Return the program's last value as JSON data and as text."""
    if value is None or isinstance(value, str):
        return value, value or ""
    encoded = msgspec.json.encode(value, enc_hook=repr)
    return msgspec.json.decode(encoded), encoded.decode()
