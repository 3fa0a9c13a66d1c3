"""What the model is told of `run_code`: which Python it has, and the functions in it. The tests hold it to that."""

from collections.abc import Mapping

from .limits import Limits
from .stubs import HEAD, HELPERS, Stub

_LISTED = 8_000

WORKS = (
    "async def, await, asyncio.gather, asyncio.run; def, lambda, closures, decorators of functions; simple classes and "
    "@dataclass; comprehensions; match; try; with; f-strings; type hints"
)
LACKS = (
    "inheritance (so no own exceptions, no Enum), generators (yield), del, @property, @classmethod and @staticmethod, "
    "async with, async for, asyncio.create_task, globals()"
)
MODULES = (
    "asyncio base64 binascii bisect collections copy csv dataclasses datetime decimal functools hashlib itertools json "
    "math random re time typing unicodedata"
)

_TEXT = """\
Runs Python that calls tools as functions. Use it where a task needs several calls, or results are to be filtered or \
summed up: only what the code prints, and the value of its last line, comes back to you.

Each tool is an async function with named arguments: `rows = await list_orders(customer="7")`. Independent calls go \
together: `a, b = await asyncio.gather(f(x=1), f(x=2))` after `import asyncio`. A call that fails raises RuntimeError.
The code is type-checked before it runs, and nothing is kept from one run to the next. Await at the top level.

It is a sandbox with a part of Python. There are: {works}. Modules: {modules}.
There are not: {lacks}. No files, no network, no environment, no other modules; sleeping takes no time.
Limits: {seconds:g} seconds of computing, {memory} MB, {calls} calls, {output:,} characters of output."""

_SEARCH = """

`search_tools("what it should do")` gives the functions that fit, `describe_tool(name)` one of them with all that is \
known of it: print them in a first run."""


def description(stubs: Mapping[str, Stub], limits: Limits) -> str:
    text = _TEXT.format(
        works=WORKS,
        lacks=LACKS,
        modules=", ".join(MODULES.split()),
        seconds=limits.seconds,
        memory=limits.memory // (1024 * 1024),
        calls=limits.calls,
        output=limits.output,
    )
    told = [stub.text for stub in stubs.values()]
    if sum(map(len, told)) <= _LISTED:
        return "\n".join([f"{text}\n\nThe functions:\n\n{HEAD}", *told])
    return f"{text}{_SEARCH} There are {len(stubs):,} functions.\n\n" + "\n".join(HELPERS.values())
