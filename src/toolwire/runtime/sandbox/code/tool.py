"""`run_code`: a tool that runs Python, in which the other tools are functions.

1. Each call that the code makes goes through `Calling.call`: it is validated, decided on, bounded and journalled as if
   the model had made it itself.
2. Only what the code prints or returns reaches the model; a fault is told so that the model can mend its code.
3. With `steps`, the program is written down, sealed, whenever it waits for tools. A run that comes back goes on from
   there: what was carried out is not carried out again, and what somebody changed meanwhile is refused.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from pydantic_monty import Monty

from toolwire.canonical.content import Data, Media, Part, Refusal, Text
from toolwire.runtime.callers import takes_calls_of_programs
from toolwire.runtime.search.deferred import SEARCH, entry_of
from toolwire.runtime.search.index import Index
from toolwire.runtime.toolset import Arguments, Calling, Output, Postponed, Tool, ToolFault

from .limits import Limits
from .program import Answer, Ended, Functions, Gave, HostCall, Program, Raised, Waiting, prepared
from .python import description
from .sealing import SnapshotRefused, seal, unseal
from .stubs import Stub, stubs_of

NAME = "run_code"
_WORKERS = 4
_GRACE = 5.0
_LIMITS = Limits()
_KINDS = {
    "syntax": "The code can't be read.",
    "types": "The code was not run: its types do not fit.",
    "error": "The code failed.",
    "limit": "The code was stopped: it went over a limit.",
    "crash": "The code was stopped.",
}
_ANSWER: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Gave | Raised)


class Steps(Protocol):
    """What a run remembers: an intent before anything happens, and what came of it."""

    def begun(self, name: str) -> bytes | None: ...
    def outcome(self, name: str) -> bytes | None: ...
    def begin(self, name: str, intent: bytes) -> None: ...
    def finish(self, name: str, outcome: bytes) -> None: ...


class Keeping(Struct, frozen=True):
    """Where programs that wait are written down, and the key that seals them."""

    steps: Callable[[Calling], Steps]
    key: bytes


class Sandbox:
    """The worker processes that programs run in; opened on first use, and shared."""

    def __init__(self, limits: Limits = _LIMITS, keeping: Keeping | None = None) -> None:
        self.limits = limits
        self._keeping = keeping
        self._pool: Monty | None = None
        self._opening = asyncio.Lock()
        self._offered: tuple[Tool, ...] = ()
        self._made: Tool | None = None

    async def pool(self) -> Monty:
        async with self._opening:
            if self._pool is None:
                patience = self.limits.seconds + _GRACE
                made = Monty(max_processes=_WORKERS, request_timeout=patience, checkout_timeout=patience)
                self._pool = await asyncio.to_thread(made.__enter__)
        return self._pool

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await asyncio.to_thread(pool.__exit__, None, None, None)

    def end(self) -> None:
        """Close it, where nobody can wait."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.__exit__(None, None, None)

    def tool(self, tools: Sequence[Tool]) -> Tool:
        """`run_code`, with those of the tools that programs may call."""
        called = tuple(tool for tool in tools if takes_calls_of_programs(tool) and tool.name not in (NAME, SEARCH))
        known = self._offered
        if (
            self._made is None
            or len(called) != len(known)
            or any(a is not b for a, b in zip(called, known, strict=True))
        ):
            self._made, self._offered = self._tool(called), called
        return self._made

    def _tool(self, called: Sequence[Tool]) -> Tool:
        stubs = stubs_of(called)
        functions = Functions(stubs, helpers_for(stubs, called))

        async def run(arguments: Arguments, calling: Calling) -> Output:
            running = _Running(self, functions, calling, self._keeping)
            return await running.run(arguments["code"])

        return Tool(
            name=NAME,
            description=description(stubs, self.limits),
            parameters=_PARAMETERS,
            run=run,
            locus="sandbox",
            source="toolwire",
            retries=0,
            resumable=self._keeping is not None,
            # What the code calls is bounded by itself: this only waits for it, and for a person.
            timeout=86_400.0,
            output_limit=2 * self.limits.output,
        )


_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"code": {"type": "string", "description": "Python; await is allowed at the top level"}},
    "required": ["code"],
    "additionalProperties": False,
}


class _Running:
    """One call of `run_code`."""

    def __init__(self, sandbox: Sandbox, functions: Functions, calling: Calling, keeping: Keeping | None) -> None:
        self._sandbox = sandbox
        self._functions = functions
        self._calling = calling
        self._steps = None if keeping is None else keeping.steps(calling)
        self._key = b"" if keeping is None else keeping.key
        self._turn = 0
        self._at_once = asyncio.Semaphore(sandbox.limits.at_once)
        self._tasks: dict[int, asyncio.Task[Answer]] = {}

    async def run(self, code: str) -> Output:
        pool = await self._sandbox.pool()
        async with prepared(pool, self._functions, self._sandbox.limits, code) as program:
            try:
                written = self._written()
                state = await (program.start() if written is None else program.load(written))
                while isinstance(state, Waiting):
                    await self._write(program, state)
                    state = await program.resume(state, await self._some(state.calls))
            except SnapshotRefused as refused:
                raise ToolFault(str(refused), "snapshot") from None
            finally:
                await self._stop()
            return outcome_of(program.printed, state, self._sandbox.limits)

    async def _some(self, calls: Sequence[HostCall]) -> dict[int, Answer]:
        """What the calls gave, as soon as one of them did. If each of them waits for a person, the program does: when
        nothing is under way any more."""
        if len(calls) == 1 and not self._tasks:
            return {calls[0].id: await self._answer(calls[0])}
        for call in calls:
            if call.id not in self._tasks:
                self._tasks[call.id] = asyncio.create_task(self._answer(call))
        while not (done := [call.id for call in calls if _is_answered(self._tasks[call.id])]):
            under_way = [task for call in calls if not (task := self._tasks[call.id]).done()]
            if not under_way:
                raise Postponed
            await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
        return {id: self._tasks.pop(id).result() for id in done}

    async def _answer(self, call: HostCall) -> Answer:
        name = f"{self._calling.key}/call/{call.id}"
        if self._steps is not None:
            if (known := self._steps.outcome(name)) is not None:
                return _ANSWER.decode(unseal(known, self._key, name))
            if self._steps.begun(name) is None:
                self._steps.begin(name, msgspec.msgpack.encode(call))
        async with self._at_once:
            answer = await self._made(call)
        if self._steps is not None:
            self._steps.finish(name, seal(msgspec.msgpack.encode(answer), self._key, name))
        return answer

    async def _made(self, call: HostCall) -> Answer:
        if self._calling.call is None:
            return Raised("tools can't be called from code here")
        try:
            output = await self._calling.call(call.tool, call.arguments, str(call.id))
        except ToolFault as fault:
            return Raised(str(fault))
        if output.is_error:
            return Raised(_text(output.content) or "the call failed")
        try:
            return Gave(_value(output))
        except (RecursionError, msgspec.DecodeError):
            return Raised("what the tool gave is nested too deeply")

    def _written(self) -> bytes | None:
        """The program as it last waited, if this call was begun before."""
        if self._steps is None:
            return None
        last = None
        while (intent := self._steps.begun(self._named(self._turn))) is not None:
            last = intent
            self._turn += 1
        return None if last is None else unseal(last, self._key, self._named(self._turn - 1))

    async def _write(self, program: Program, waiting: Waiting) -> None:
        if self._steps is not None:
            name = self._named(self._turn)
            self._steps.begin(name, seal(await program.dump(waiting), self._key, name))
            self._turn += 1

    def _named(self, turn: int) -> str:
        return f"{self._calling.key}/code/{turn}"

    async def _stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


def _is_answered(task: "asyncio.Task[Answer]") -> bool:
    return task.done() and not isinstance(task.exception(), Postponed)


def helpers_for(stubs: Mapping[str, Stub], tools: Sequence[Tool]) -> dict[str, Callable[..., Any]]:
    by_tool = {stub.tool: stub for stub in stubs.values()}
    index = Index(map(entry_of, tools))

    def search_tools(query: str, limit: int = 5) -> list[str]:
        found = index.ranked(str(query)[:500], min(max(int(limit), 1), 50))
        return [by_tool[name].text.split("\n", 1)[0] for name in found]

    def describe_tool(name: str) -> str:
        stub = stubs.get(name) or by_tool.get(name)
        if stub is None:
            raise ValueError(f"no tool has the name {name!r}: search_tools finds them")
        return stub.text

    return {"search_tools": search_tools, "describe_tool": describe_tool}


def _value(output: Output) -> Any:
    """What the code gets: data where there is data, else text."""
    if output.structured is not None:
        return msgspec.to_builtins(output.structured)
    if len(output.content) == 1 and isinstance(part := output.content[0], Data):
        return msgspec.json.decode(part.json)
    return _text(output.content)


def _text(parts: Sequence[Part]) -> str:
    return "\n".join(filter(None, map(_said, parts)))


def _said(part: Part) -> str:
    match part:
        case Text() | Refusal():
            return part.text
        case Data():
            return bytes(part.json).decode()
        case Media():
            return f"[{part.kind} {part.media_type or ''}".rstrip() + "]"
        case _:
            return ""


def outcome_of(printed: str, ended: Ended, limits: Limits) -> Output:
    """What the model gets."""
    if ended.kind is not None:
        said = f"{_KINDS[ended.kind]}\n{ended.why}"
        text = f"{printed.rstrip()}\n\n{said}" if printed else said
        return Output(content=(Text(text=text.rstrip()),), is_error=True, kind=f"code_{ended.kind}")
    value, shown = _shown(ended.value)
    if len(shown) > limits.output:
        why = f"the last line gives {len(shown):,} characters, more than {limits.output:,}: print what matters of it"
        return outcome_of(printed, Ended(kind="limit", why=why), limits)
    text = "\n".join(filter(None, [printed.rstrip("\n"), shown])) or "The code ran, and gave nothing."
    return Output(content=(Text(text=text),), structured={"printed": printed, "value": value})


def _shown(value: Any) -> tuple[Any, str]:
    if value is None or isinstance(value, str):
        return value, value or ""
    encoded = msgspec.json.encode(value, enc_hook=repr)
    return msgspec.json.decode(encoded), encoded.decode()
