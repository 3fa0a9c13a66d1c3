"""One program in the Monty sandbox: it runs until it waits for tools, and resumes with their results.

    start -> ProgramWaiting -> resume -> ProgramWaiting -> ... -> ProgramEnded

1. A tool is an async function. Gathered calls are waited for together.
2. Nothing of this machine is available: no files, network, environment or processes. Sleeping takes no time.
3. Memory, time, output and the number of calls are always limited, because the sandbox itself has no limits.
4. A waiting program can be dumped and loaded elsewhere. The interpreter trusts any snapshot, so snapshots are signed
   (HMAC) and bound to their call and to the version of the interpreter.
"""

import asyncio
import hashlib
import hmac
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct
from pydantic_monty import (
    ExternalResult,
    ExternalSettledResult,
    FunctionSnapshot,
    FutureSnapshot,
    Monty,
    MontyComplete,
    MontyCrashedError,
    MontyError,
    MontyRuntimeError,
    MontySession,
    MontySyntaxError,
    MontyTypingError,
    NameLookupSnapshot,
    ResourceLimits,
    SyncSnapshot,
    __version__,
)

from toolwire.canonical.errors import ToolwireError
from toolwire.runtime.sandbox.code.description import BUILTIN_STUBS, HELPER_STUBS, STUB_IMPORTS, CodeLimits, Stub
from toolwire.runtime.tool import ToolError

_SNAPSHOT_PREFIX = b"twcode1\0"
_SIGNATURE_LENGTH = hashlib.sha256().digest_size


class InvalidSnapshot(ToolwireError):
    """The snapshot is not ours, belongs to another call, or was changed."""


def sign_snapshot(snapshot: bytes, key: bytes, purpose: str) -> bytes:
    """Return a program's snapshot prefixed with its signature, which is valid only for `purpose`."""
    return _SNAPSHOT_PREFIX + _snapshot_hmac(snapshot, key, purpose) + snapshot


def verify_snapshot(signed: bytes, key: bytes, purpose: str) -> bytes:
    """Return the snapshot without its signature; raise `InvalidSnapshot` if that is not valid for `purpose`."""
    start = len(_SNAPSHOT_PREFIX) + _SIGNATURE_LENGTH
    snapshot = signed[start:]
    has_prefix = signed[: len(_SNAPSHOT_PREFIX)] == _SNAPSHOT_PREFIX
    if not has_prefix or not hmac.compare_digest(
        signed[len(_SNAPSHOT_PREFIX) : start], _snapshot_hmac(snapshot, key, purpose)
    ):
        raise InvalidSnapshot("invalid snapshot: it was not written by this run for this call")
    return snapshot


def _snapshot_hmac(snapshot: bytes, key: bytes, purpose: str) -> bytes:
    """Return the HMAC of a program's snapshot, bound to the purpose and to the interpreter's version."""
    message = b"\0".join([_SNAPSHOT_PREFIX, __version__.encode(), hashlib.sha256(purpose.encode()).digest(), snapshot])
    return hmac.digest(key, message, "sha256")


_MAX_LOOKUPS = 200
_MAX_TRACE_LENGTH = 4_000

ProgramErrorKind = Literal["syntax", "types", "error", "limit", "crash"]


class ProgramFunctions(Struct, frozen=True):
    """The functions that a program can call, by their Python names."""

    stubs: Mapping[str, Stub]
    # Functions that return at once, without calling a tool.
    helpers: Mapping[str, Callable[..., Any]]


class HostCall(Struct, frozen=True):
    """A tool call that the program waits for."""

    id: int
    tool: str
    arguments: Any


class CallReturned(Struct, frozen=True, tag=True):
    """The call returned this value."""

    value: Any


class CallRaised(Struct, frozen=True, tag=True):
    """The call failed: the program gets an exception with this message."""

    message: str


HostCallOutcome: TypeAlias = CallReturned | CallRaised


class ProgramWaiting(Struct, frozen=True):
    """The program waits for these calls."""

    calls: tuple[HostCall, ...]
    snapshot: FutureSnapshot


class ProgramEnded(Struct, frozen=True):
    """The program ended, with a value or with an error."""

    value: Any = None
    error_kind: ProgramErrorKind | None = None
    # The message for the author of the program.
    error: str = ""


class ProgramSnapshot(Struct):
    """The state of a waiting program: the interpreter's snapshot and our own state."""

    snapshot: bytes
    calls: list[HostCall]
    call_count: int
    output: str


@asynccontextmanager
async def open_program(
    pool: Monty,
    functions: ProgramFunctions,
    limits: CodeLimits,
    code: str,
) -> AsyncIterator["Program"]:
    """Open a program, code that the model wrote, with its own worker process and a thread that waits for it.

    A thread is used because Monty's asyncio interface sometimes aborts the interpreter on exit.
    """
    mentioned = [stub.declaration for name, stub in functions.stubs.items() if name in code]
    session = pool.checkout(
        limits=_resource_limits(limits),
        type_check=True,
        type_check_stubs="\n".join([STUB_IMPORTS, BUILTIN_STUBS, *HELPER_STUBS.values(), *mentioned]),
        type_check_format="concise",
        os_policy={"sleep": "zero"},
    )
    thread = ThreadPoolExecutor(1)
    try:
        try:
            await asyncio.wrap_future(thread.submit(session.__enter__))
        except TimeoutError:
            raise ToolError("too many programs are running: try again later", "busy") from None
        program = Program(session, thread, functions, limits, code)
        try:
            yield program
        finally:
            program.stop()
    finally:
        thread.submit(session.__exit__, None, None, None)
        thread.shutdown(wait=False)


class Program:
    """A program in the sandbox."""

    def __init__(
        self,
        session: MontySession,
        thread: ThreadPoolExecutor,
        functions: ProgramFunctions,
        limits: CodeLimits,
        code: str,
    ) -> None:
        self._session = session
        self._thread = thread
        self._functions = functions
        self._limits = limits
        self._code = code
        self._call_count = 0
        self._is_computing = False
        # Known only between turns: during a turn the session returns None.
        self._worker_pid = session.worker_pid
        self._printer = _PrintBuffer(limits.output_characters, self.stop)
        self._pending_calls: dict[int, HostCall] = {}

    @property
    def output(self) -> str:
        """Return what the program has printed so far."""
        return "".join(self._printer.chunks)

    def stop(self) -> None:
        """Kill the worker process if it is computing; Monty itself would let it go on up to its time limit."""
        if self._is_computing and self._worker_pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._worker_pid, signal.SIGKILL)

    async def start(self) -> ProgramWaiting | ProgramEnded:
        """Run the program until it waits for tool calls or ends."""
        if len(self._code) > self._limits.code_characters:
            return ProgramEnded(
                error_kind="limit", error=f"the code is longer than {self._limits.code_characters:,} characters"
            )
        return await self._run_in_thread(lambda: self._session.feed_start(self._code, print_callback=self._printer))

    async def resume(
        self, waiting: ProgramWaiting, outcomes: Mapping[int, HostCallOutcome]
    ) -> ProgramWaiting | ProgramEnded:
        """Resume the program with the outcomes of some of its tool calls, by their ids in the program."""
        for id in outcomes:
            self._pending_calls.pop(id, None)
        settled = {id: _monty_result(outcome) for id, outcome in outcomes.items()}
        return await self._run_in_thread(lambda: waiting.snapshot.resume(settled))

    async def dump(self, waiting: ProgramWaiting) -> bytes:
        """Return the state of the waiting program as bytes, for `load`."""
        snapshot = await asyncio.wrap_future(self._thread.submit(waiting.snapshot.dump))
        return msgspec.msgpack.encode(
            ProgramSnapshot(snapshot, list(self._pending_calls.values()), self._call_count, self.output)
        )

    async def load(self, dumped: bytes) -> ProgramWaiting | ProgramEnded:
        """Restore a waiting program from a dump, which `verify_snapshot` must have accepted, and continue it."""
        restored = msgspec.msgpack.decode(dumped, type=ProgramSnapshot)
        self._pending_calls = {call.id: call for call in restored.calls}
        self._call_count, self._printer.chunks = restored.call_count, [restored.output]
        self._printer.remaining -= len(restored.output)
        return await self._run_in_thread(
            lambda: self._session.load_snapshot(restored.snapshot, print_callback=self._printer)
        )

    async def _run_in_thread(self, begin: Callable[[], SyncSnapshot]) -> ProgramWaiting | ProgramEnded:
        """Advance the program in its own thread, so that the event loop is not blocked."""
        self._is_computing = True
        return await asyncio.wrap_future(self._thread.submit(self._advance, begin))

    def _advance(self, begin: Callable[[], SyncSnapshot]) -> ProgramWaiting | ProgramEnded:
        """Run until the program waits for tool calls or ends; `begin` takes the first step."""
        try:
            state = begin()
            while True:
                match state:
                    case MontyComplete():
                        return ProgramEnded(state.output)
                    case FutureSnapshot():
                        return ProgramWaiting(
                            tuple(self._pending_calls[id] for id in sorted(state.pending_call_ids)), state
                        )
                    case NameLookupSnapshot():
                        state = self._resume_lookup(state)
                    case FunctionSnapshot():
                        state = self._resume_call(state)
        except MontyError as error:
            return self._error_result(error)
        finally:
            self._is_computing = False

    def _resume_lookup(self, state: NameLookupSnapshot) -> SyncSnapshot:
        """Resolve a name that the program uses as a value, such as a function passed to another."""
        name = state.variable_name
        if state.object_id is None and (name in self._functions.stubs or name in self._functions.helpers):
            return state.resume(value=_FunctionReference(name))
        return state.resume()

    def _resume_call(self, state: FunctionSnapshot) -> SyncSnapshot:
        """Resume after a function call: with a helper's result, or with a future for a tool's."""
        if state.is_os_function:
            return state.resume_not_handled()
        return state.resume(self._start_call(state))

    def _start_call(self, state: FunctionSnapshot) -> ExternalResult:
        """Start a call of a tool or helper, and return the value or the future that the program gets for it."""
        name = state.function_name
        self._call_count += 1
        if self._call_count > self._limits.calls:
            return {"exc_type": "RuntimeError", "message": f"at most {self._limits.calls} calls are allowed"}
        try:
            if (helper := self._functions.helpers.get(name)) is not None:
                return {"return_value": helper(*state.args, **state.kwargs)}
            if (stub := self._functions.stubs.get(name)) is None:
                return {"exc_type": "NameError", "message": f"name {name!r} is not defined: there is no such tool"}
            arguments = _call_arguments(stub, state.args, state.kwargs)
        except (TypeError, ValueError) as error:
            return {"exc_type": "TypeError", "message": str(error)}
        self._pending_calls[state.call_id] = HostCall(state.call_id, stub.tool, arguments)
        return {"future": ...}

    def _error_result(self, error: MontyError) -> ProgramEnded:
        """Convert an error of the interpreter to the end of the program."""
        if self._printer.is_exceeded:
            return ProgramEnded(
                error_kind="limit", error=f"printed more than {self._limits.output_characters:,} characters"
            )
        if isinstance(error, MontyTypingError):
            message = error.display()
            return ProgramEnded(
                error_kind="syntax" if "invalid-syntax" in message else "types", error=_truncate_trace(message)
            )
        if isinstance(error, MontySyntaxError):
            return ProgramEnded(error_kind="syntax", error=_truncate_trace(error.display()))
        if isinstance(error, MontyCrashedError):
            return ProgramEnded(error_kind="limit" if error.timed_out else "crash", error="the sandbox was stopped")
        message = error.display("type-msg") if isinstance(error, MontyRuntimeError) else str(error)
        if isinstance(error, MontyRuntimeError) and not _is_limit_error(message):
            return ProgramEnded(error_kind="error", error=_truncate_trace(error.display()))
        return ProgramEnded(error_kind="limit", error=_truncate_trace(message))


class _PrintBuffer:
    """Collects printed text up to a limit; exceeding the limit stops the program."""

    def __init__(self, limit: int, stop_program: Callable[[], None]) -> None:
        self.chunks: list[str] = []
        self.remaining = limit
        self._stop_program = stop_program

    @property
    def is_exceeded(self) -> bool:
        """True if the program printed more than the limit."""
        return self.remaining < 0

    def __call__(self, stream: str, text: str) -> None:
        """Add printed text, as Monty's print callback; raise `MemoryError` beyond the limit."""
        if self.remaining > 0:
            self.chunks.append(text[: self.remaining])
        self.remaining -= len(text)
        if self.is_exceeded:
            self._stop_program()
            raise MemoryError


class _FunctionReference:
    """A host function as a value in the program: only its name crosses the boundary."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self) -> None:
        """Do nothing: the interpreter announces each call by name instead."""


def _resource_limits(limits: CodeLimits) -> ResourceLimits:
    """Convert the limits to those of Monty, the interpreter."""
    return {
        "max_memory": limits.memory_bytes,
        "max_feed_duration_secs": limits.seconds,
        "max_turn_duration_secs": limits.seconds,
        "max_recursion_depth": 200,
        # Each call suspends twice, when it starts and when it is awaited; name lookups suspend too.
        "max_suspensions": 2 * limits.calls + _MAX_LOOKUPS,
    }


def _call_arguments(stub: Stub, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the arguments of a program's call as JSON: an object by name, or the only value of some tools."""
    if stub.takes_one_value:
        if len(args) != 1 or kwargs:
            raise TypeError(f"{stub.name} takes one argument")
        return _to_json_value(args[0])
    if args:
        raise TypeError(f"{stub.name} takes named arguments only")
    return _to_json_value(dict(kwargs))


def _to_json_value(value: Any) -> Any:
    """Convert a value to JSON types, or raise TypeError."""
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=_reject_value))


def _reject_value(value: Any) -> Any:
    """Raise `TypeError` for a value that is not JSON."""
    raise TypeError(f"tools take JSON values, not {type(value).__name__}")


def _monty_result(outcome: HostCallOutcome) -> ExternalSettledResult:
    """Convert the outcome of a call to a return value or an exception in the program."""
    if isinstance(outcome, CallReturned):
        return {"return_value": outcome.value}
    return {"exc_type": "RuntimeError", "message": outcome.message}


_LIMIT_ERRORS = (
    "MemoryError: memory limit",
    "MemoryError: the worker",
    "TimeoutError: ",
    "RuntimeError: suspension limit",
)


def _is_limit_error(message: str) -> bool:
    """Return True if an error message of the interpreter says that a limit was reached."""
    return message.startswith(_LIMIT_ERRORS)


def _truncate_trace(text: str) -> str:
    """Keep the end of a long traceback, which names the error."""
    return text if len(text) <= _MAX_TRACE_LENGTH else f"...{text[-_MAX_TRACE_LENGTH:]}"
