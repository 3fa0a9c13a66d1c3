"""One program in the Monty sandbox: it runs until it waits for tools, and goes on with what they gave.

    start -> Waiting -> resume -> Waiting -> ... -> Ended

1. A tool is an asynchronous function. What is gathered is waited for together.
2. Nothing of this machine is there: no files, network, environment or processes. Sleeping takes no time.
3. Memory, time, output and the number of calls are bounded, always: the sandbox itself has no bounds.
4. While it waits, it can be written down whole, and read back elsewhere. It must have been sealed meanwhile.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
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
)

from toolwire.runtime.toolset import ToolFault

from .limits import Limits
from .stubs import HEAD, HELPERS, Stub

_LOOKUPS = 200
_TRACE = 4_000

Kind = Literal["syntax", "types", "error", "limit", "crash"]


class Functions(Struct, frozen=True):
    """What a program can call, by its name there: tools, and what answers at once."""

    stubs: Mapping[str, Stub]
    helpers: Mapping[str, Callable[..., Any]]


class HostCall(Struct, frozen=True):
    """A tool that the program waits for."""

    id: int
    tool: str
    arguments: Any


class Gave(Struct, frozen=True, tag=True):
    value: Any


class Raised(Struct, frozen=True, tag=True):
    """The call failed: the program gets an exception with this message."""

    message: str


Answer: TypeAlias = Gave | Raised


class Waiting(Struct, frozen=True):
    calls: tuple[HostCall, ...]
    state: FutureSnapshot


class Ended(Struct, frozen=True):
    """What it returned; or why it did not, in words for who wrote it."""

    value: Any = None
    kind: Kind | None = None
    why: str = ""


class Paused(Struct):
    """What must be written down with the interpreter's own snapshot."""

    snapshot: bytes
    calls: list[HostCall]
    made: int
    printed: str


@asynccontextmanager
async def prepared(
    pool: Monty,
    functions: Functions,
    limits: Limits,
    code: str,
) -> AsyncIterator["Program"]:
    """A program with a worker process to itself, and a thread that waits for it: the interface for event loops
    aborts the interpreter now and then when that ends."""
    mentioned = [stub.code for name, stub in functions.stubs.items() if name in code]
    session = pool.checkout(
        limits=_bounds(limits),
        type_check=True,
        type_check_stubs="\n".join([HEAD, *HELPERS.values(), *mentioned]),
        type_check_format="concise",
        os_policy={"sleep": "zero"},
    )
    thread = ThreadPoolExecutor(1)
    try:
        try:
            await asyncio.wrap_future(thread.submit(session.__enter__))
        except TimeoutError:
            raise ToolFault("too much code is running: try again later", "busy") from None
        yield Program(session, thread, functions, limits, code)
    finally:
        # It may still compute, in its bounds: who was interrupted does not wait for that.
        thread.submit(session.__exit__, None, None, None)
        thread.shutdown(wait=False)


class Program:
    def __init__(
        self,
        session: MontySession,
        thread: ThreadPoolExecutor,
        functions: Functions,
        limits: Limits,
        code: str,
    ) -> None:
        self._session = session
        self._thread = thread
        self._functions = functions
        self._limits = limits
        self._code = code
        self._made = 0
        self._output = _Output(limits.output)
        self._open: dict[int, HostCall] = {}

    @property
    def printed(self) -> str:
        return "".join(self._output.pieces)

    async def start(self) -> Waiting | Ended:
        if len(self._code) > self._limits.code:
            return Ended(kind="limit", why=f"the code has more than {self._limits.code:,} characters")
        return await self._guarded(lambda: self._session.feed_start(self._code, print_callback=self._output))

    async def resume(self, waiting: Waiting, answers: Mapping[int, Answer]) -> Waiting | Ended:
        """Go on with what some of the calls gave."""
        for id in answers:
            self._open.pop(id, None)
        settled = {id: _settled(one) for id, one in answers.items()}
        return await self._guarded(lambda: waiting.state.resume(settled))

    async def dump(self, waiting: Waiting) -> bytes:
        snapshot = await asyncio.wrap_future(self._thread.submit(waiting.state.dump))
        return msgspec.msgpack.encode(Paused(snapshot, list(self._open.values()), self._made, self.printed))

    async def load(self, dumped: bytes) -> Waiting | Ended:
        """Read it back, where it waits. Only what was sealed may come here."""
        paused = msgspec.msgpack.decode(dumped, type=Paused)
        self._open = {call.id: call for call in paused.calls}
        self._made, self._output.pieces = paused.made, [paused.printed]
        self._output.room -= len(paused.printed)
        return await self._guarded(lambda: self._session.load_snapshot(paused.snapshot, print_callback=self._output))

    async def _guarded(self, begin: Callable[[], SyncSnapshot]) -> Waiting | Ended:
        return await asyncio.wrap_future(self._thread.submit(self._advance, begin))

    def _advance(self, begin: Callable[[], SyncSnapshot]) -> Waiting | Ended:
        """Run until it waits for tools, or ends."""
        try:
            state = begin()
            while True:
                match state:
                    case MontyComplete():
                        return Ended(state.output)
                    case FutureSnapshot():
                        return Waiting(tuple(self._open[id] for id in sorted(state.pending_call_ids)), state)
                    case NameLookupSnapshot():
                        state = self._looked_up(state)
                    case FunctionSnapshot():
                        state = self._called(state)
        except MontyError as error:
            return self._ended(error)

    def _looked_up(self, state: NameLookupSnapshot) -> SyncSnapshot:
        """A function that is passed on by its name."""
        name = state.variable_name
        if state.object_id is None and (name in self._functions.stubs or name in self._functions.helpers):
            return state.resume(value=_Named(name))
        return state.resume()

    def _called(self, state: FunctionSnapshot) -> SyncSnapshot:
        if state.is_os_function:
            return state.resume_not_handled()
        return state.resume(self._answer(state))

    def _answer(self, state: FunctionSnapshot) -> ExternalResult:
        name = state.function_name
        self._made += 1
        if self._made > self._limits.calls:
            return {"exc_type": "RuntimeError", "message": f"no more than {self._limits.calls} calls are allowed"}
        try:
            if (helper := self._functions.helpers.get(name)) is not None:
                return {"return_value": helper(*state.args, **state.kwargs)}
            if (stub := self._functions.stubs.get(name)) is None:
                return {"exc_type": "NameError", "message": f"name {name!r} is not defined: no tool has that name"}
            arguments = _arguments(stub, state.args, state.kwargs)
        except (TypeError, ValueError) as error:
            return {"exc_type": "TypeError", "message": str(error)}
        self._open[state.call_id] = HostCall(state.call_id, stub.tool, arguments)
        return {"future": ...}

    def _ended(self, error: MontyError) -> Ended:
        if self._output.is_over:
            return Ended(kind="limit", why=f"it printed more than {self._limits.output:,} characters")
        if isinstance(error, MontyTypingError):
            told = error.display()
            return Ended(kind="syntax" if "invalid-syntax" in told else "types", why=_short(told))
        if isinstance(error, MontySyntaxError):
            return Ended(kind="syntax", why=_short(error.display()))
        if isinstance(error, MontyCrashedError):
            return Ended(kind="limit" if error.timed_out else "crash", why="the sandbox had to be stopped")
        told = error.display("type-msg") if isinstance(error, MontyRuntimeError) else str(error)
        if isinstance(error, MontyRuntimeError) and not _is_bound(told):
            return Ended(kind="error", why=_short(error.display()))
        return Ended(kind="limit", why=_short(told))


class _Output:
    """What was printed, up to its bound. What is over it ends the program."""

    def __init__(self, room: int) -> None:
        self.pieces: list[str] = []
        self.room = room

    @property
    def is_over(self) -> bool:
        return self.room < 0

    def __call__(self, stream: str, text: str) -> None:
        if self.room > 0:
            self.pieces.append(text[: self.room])
        self.room -= len(text)
        if self.is_over:
            raise MemoryError


class _Named:
    """A function of the host, as a value: only its name crosses."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self) -> None:
        """Never called here: each call is announced by name."""


def _bounds(limits: Limits) -> ResourceLimits:
    return {
        "max_memory": limits.memory,
        "max_feed_duration_secs": limits.seconds,
        "max_turn_duration_secs": limits.seconds,
        "max_recursion_depth": 200,
        # Each call is announced once and waited for once; names are looked up besides.
        "max_suspensions": 2 * limits.calls + _LOOKUPS,
    }


def _arguments(stub: Stub, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What the tool is given, as JSON has it."""
    if stub.whole:
        if len(args) != 1 or kwargs:
            raise TypeError(f"{stub.name} takes one argument")
        return _json(args[0])
    if args:
        raise TypeError(f"{stub.name} takes named arguments only")
    return _json(dict(kwargs))


def _json(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=_refused))


def _refused(value: Any) -> Any:
    raise TypeError(f"a tool is given JSON values, not {type(value).__name__}")


def _settled(answer: Answer) -> ExternalSettledResult:
    if isinstance(answer, Gave):
        return {"return_value": answer.value}
    return {"exc_type": "RuntimeError", "message": answer.message}


_BOUNDS = ("MemoryError: memory limit", "MemoryError: the worker", "TimeoutError: ", "RuntimeError: suspension limit")


def _is_bound(told: str) -> bool:
    return told.startswith(_BOUNDS)


def _short(text: str) -> str:
    """The end of a long trace says what happened."""
    return text if len(text) <= _TRACE else f"...{text[-_TRACE:]}"
