"""`run_code`: tools as functions, results, and programs that resume after an interruption."""

import asyncio
from typing import Any

import pytest

from tests.support.deadlines import run_event_loop, wait_until_async
from tests.support.runtime.code_sandbox import (
    SMALL_LIMITS,
    InMemorySteps,
    SandboxTools,
    output_text,
    run_code,
    run_code_description,
)
from toolwire.runtime.sandbox.code.description import AVAILABLE_MODULES, UNSUPPORTED_SYNTAX, CodeLimits
from toolwire.runtime.sandbox.code.tool import RUN_CODE, CodeSandbox
from toolwire.runtime.tool import Tool, ToolContext, ToolError


async def nothing(arguments: Any, calling: ToolContext) -> None: ...


def test_sequential_calls_return_only_the_last_value() -> None:
    sandbox_tools = SandboxTools()
    output = run_code("total = 0\nfor i in range(20):\n    total = await add(a=total, b=i)\ntotal", sandbox_tools)
    assert output_text(output) == "190"
    assert not output.is_error
    assert len(sandbox_tools.calls) == 20


def test_gathered_calls_run_concurrently_up_to_a_limit() -> None:
    sandbox_tools = SandboxTools()
    sandbox_tools.batch_size = SMALL_LIMITS.concurrency
    code = "import asyncio\nsum(await asyncio.gather(*[add(a=i, b=i) for i in range(20)]))"
    assert output_text(run_code(code, sandbox_tools)) == "380"
    assert sandbox_tools.peak_running == SMALL_LIMITS.concurrency


def test_functions_that_call_tools_run_concurrently() -> None:
    code = """
import asyncio
async def twice(n: int) -> int:
    first = await add(a=n, b=n)
    return await add(a=first, b=first)
await asyncio.gather(twice(1), twice(2))
"""
    sandbox_tools = SandboxTools()
    assert output_text(run_code(code, sandbox_tools)) == "[4,8]"
    assert sandbox_tools.peak_running == 2


def test_printed_text_and_value_are_returned() -> None:
    output = run_code('print("one", 2)\n{"three": 4}')
    assert output_text(output) == 'one 2\n{"three":4}'
    assert output.structured == {"printed": "one 2\n", "value": {"three": 4}}
    assert output_text(run_code("x = 1")) == "The code ran without output."
    assert output_text(run_code("{1}")) == "[1]"
    assert "lambda" in output_text(run_code("[lambda: 1]"))


def test_text_results_and_renamed_tools() -> None:
    sandbox_tools = SandboxTools()
    assert output_text(run_code("(await say_it()).upper()", sandbox_tools)) == "HELLO"
    assert sandbox_tools.calls == [("say-it", {})]


def test_failed_call_can_be_caught() -> None:
    assert (
        output_text(run_code("try:\n    await fail()\nexcept RuntimeError as error:\n    print('caught', error)"))
        == "caught it is broken"
    )
    output = run_code("await fail()")
    assert (output.is_error, output.error_kind) == (True, "code_error")
    assert "RuntimeError: it is broken" in output_text(output)


def test_call_without_await_is_never_made() -> None:
    sandbox_tools = SandboxTools()
    output = run_code("add(a=1, b=2)\n1", sandbox_tools)
    assert output.error_kind == "code_types"
    run_code("x = [add(a=1, b=2)]\n1", sandbox_tools)
    assert sandbox_tools.calls == []


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        ("await add(a=1)", "code_types", "No argument provided for required parameter `b`"),
        ("await add(a=1, b='2')", "code_types", "Expected `int`"),
        ("await add(1, 2)", "code_types", "Too many positional arguments"),
        ("await missing(a=1)", "code_types", "`missing` used when not defined"),
        ("x = ", "code_syntax", "Expected an expression"),
        ("1 / 0", "code_error", "ZeroDivisionError"),
        ("x = [1]\nx[len(x) + 7]", "code_error", "IndexError"),
    ],
)
def test_errors_are_reported_for_the_model_to_fix(code: str, kind: str, message: str) -> None:
    sandbox_tools = SandboxTools()
    output = run_code(code, sandbox_tools)
    assert (output.is_error, output.error_kind) == (True, kind)
    assert message in output_text(output)
    assert sandbox_tools.calls == []


def test_text_printed_before_an_error_is_kept() -> None:
    output = run_code('print("half way")\nawait fail()')
    assert output_text(output).startswith("half way\n\nThe code failed.\n")


def test_code_can_search_and_describe_tools() -> None:
    assert "async def add(*, a: int, b: int) -> Any: ..." in output_text(run_code('search_tools("sum of two numbers")'))
    assert (
        output_text(run_code('describe_tool("say-it")')) == "async def say_it() -> Any: ...\n# say-it: Says something."
    )
    assert "unknown tool" in output_text(run_code('describe_tool("nope")'))


def test_run_code_and_direct_only_tools_are_excluded() -> None:
    only_direct = Tool(name="sign", run=nothing, allowed_callers=("direct",))
    only_code = Tool(name="deep", run=nothing, allowed_callers=("code_execution_20260120",))
    tools = SandboxTools(
        only_direct, only_code, Tool(name=RUN_CODE, run=nothing), Tool(name="find_tools", run=nothing)
    ).tools
    description = run_code_description(tools)
    assert "async def deep(" in description
    assert "async def sign(" not in description
    assert "async def run_code" not in description
    assert "async def find_tools" not in description


def test_many_tools_are_searchable_but_not_listed() -> None:
    many = [Tool(name=f"filler_{number}", description="x" * 100, run=nothing) for number in range(200)]
    description = run_code_description(SandboxTools(*many).tools)
    assert "filler_7" not in description
    assert "search_tools" in description
    assert len(description) < 4_000


def test_described_modules_are_available() -> None:
    modules = "\n".join(f"import {name}" for name in AVAILABLE_MODULES.split())
    assert not run_code(modules).is_error
    lacking = {
        "inheritance": "class A:\n    pass\nclass B(A):\n    pass",
        "generators": "def f():\n    yield 1",
        "del": "x = [1]\ndel x[0]",
        "@property": "class A:\n    @property\n    def x(self) -> int:\n        return 1",
        "async with": "async def f(x):\n    async with x:\n        pass",
        "async for": "async def f(x):\n    async for y in x:\n        pass",
        "asyncio.create_task": "import asyncio\nasync def f() -> None: ...\nt = asyncio.create_task(f())",
        "globals()": "globals()",
        "getattr": "class A:\n    def __init__(self) -> None:\n        self.x = 1\ngetattr(A(), 'x')",
        "callable": "callable(len)",
        "except*": "try:\n    pass\nexcept* ValueError:\n    pass",
        "type aliases": "type X = int",
        "methods of types": "list(map(str.upper, ['a']))",
        "str.translate": "'a'.translate({97: 'b'})",
    }
    for word, code in lacking.items():
        assert word in UNSUPPORTED_SYNTAX
        assert run_code(code).is_error, word


@pytest.mark.parametrize(
    ("code", "is_lacking"),
    [
        ("def f():\n    yield 1", True),
        ("import statistics", True),
        ("hasattr(1, 'x')", True),
        ("list(map(str.upper, ['a']))", True),
        ("1 / 0", False),
        ("await missing()", False),
    ],
)
def test_errors_of_the_subset_say_what_it_lacks(code: str, is_lacking: bool) -> None:
    assert (f"Not supported: {UNSUPPORTED_SYNTAX}" in output_text(run_code(code))) == is_lacking


def test_described_syntax_works() -> None:
    code = """
import asyncio
from dataclasses import dataclass
@dataclass
class Point:
    x: int
class Counter:
    def __init__(self) -> None:
        self.n = 0
    def add(self) -> int:
        self.n += 1
        return self.n
class Manager:
    def __enter__(self) -> int:
        return 5
    def __exit__(self, *rest: object) -> None:
        return None
def same(f):
    return f
@same
def seven() -> int:
    return 7
async def one() -> int:
    return 1
def closed():
    n = 0
    def inner() -> int:
        nonlocal n
        n += 1
        return n
    return inner
match Point(3).x:
    case 3:
        found = "three"
    case _:
        found = "other"
with Manager() as managed:
    pass
try:
    1 / int("0")
except ZeroDivisionError:
    caught = True
mapped = map(str, [1, 2]) + filter(None, ["", "a"])
first = [found, managed, caught, seven(), closed()()]
first + [Counter().add(), f"{2:03d}", {k: v for k, v in [(1, 2)]}, (lambda: 4)(), asyncio.run(one()), mapped]
"""
    assert output_text(run_code(code)) == '["three",5,true,7,1,1,"002",{"1":2},4,1,["1","2","a"]]'


async def _interrupted(code: str, sandbox_tools: SandboxTools, memory: InMemorySteps, limits: CodeLimits) -> None:
    from toolwire.runtime.sandbox.code.tool import SnapshotStore

    sandbox = CodeSandbox(limits, SnapshotStore(lambda _: memory, b"k" * 32))
    running = asyncio.ensure_future(
        sandbox.tool(list(sandbox_tools.tools.values())).run({"code": code}, sandbox_tools.context())
    )
    try:
        await sandbox_tools.stopped.wait()
        await wait_until_async(lambda: sandbox_tools.running == 0)  # calls that were started are finished
        await run_event_loop()
        assert not running.done()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    finally:
        await sandbox.close()


LONG = """
import random
mark = random.random()
print("begun")
total = 0
for i in range(6):
    total = await add(a=total, b=i)
print("ended")
[total, mark == mark]
"""


@pytest.mark.parametrize("done", [0, 1, 4])
def test_resumed_run_repeats_no_call(done: int) -> None:
    sandbox_tools, memory = SandboxTools(), InMemorySteps()
    sandbox_tools.stop_at = done
    asyncio.run(_interrupted(LONG, sandbox_tools, memory, SMALL_LIMITS))
    assert len(sandbox_tools.calls) == done
    sandbox_tools.stop_at = None
    assert output_text(run_code(LONG, sandbox_tools, memory=memory)) == "begun\nended\n[15,true]"
    assert [arguments["b"] for _, arguments in sandbox_tools.calls] == [0, 1, 2, 3, 4, 5]


def test_only_unfinished_gathered_calls_are_made_again() -> None:
    code = "import asyncio\nsum(await asyncio.gather(*[add(a=i, b=0) for i in range(6)]))"
    sandbox_tools, memory = SandboxTools(), InMemorySteps()
    sandbox_tools.stop_at = 3
    asyncio.run(_interrupted(code, sandbox_tools, memory, SMALL_LIMITS))
    sandbox_tools.stop_at = None
    assert output_text(run_code(code, sandbox_tools, memory=memory)) == "15"
    assert sorted(arguments["a"] for _, arguments in sandbox_tools.calls) == [0, 1, 2, 3, 4, 5]


def test_calls_after_the_last_snapshot_are_not_repeated() -> None:
    sandbox_tools, memory = SandboxTools(), InMemorySteps()
    sandbox_tools.stop_at = 3
    asyncio.run(_interrupted(LONG, sandbox_tools, memory, SMALL_LIMITS))
    sandbox_tools.stop_at = None
    # As if stopped right after a call: its outcome is recorded, but the program still waits for it.
    memory.intents.pop(next(name for name in reversed(memory.intents) if "/call/" in name))
    memory.intents.pop(next(name for name in reversed(memory.intents) if "/code/" in name))
    assert output_text(run_code(LONG, sandbox_tools, memory=memory)) == "begun\nended\n[15,true]"
    assert [arguments["b"] for _, arguments in sandbox_tools.calls] == [0, 1, 2, 3, 4, 5]


def test_limits_count_across_interruptions() -> None:
    sandbox_tools, memory = SandboxTools(), InMemorySteps()
    sandbox_tools.stop_at = 4
    asyncio.run(_interrupted(LONG, sandbox_tools, memory, SMALL_LIMITS))
    sandbox_tools.stop_at = None
    few = CodeLimits(
        memory_bytes=SMALL_LIMITS.memory_bytes, seconds=SMALL_LIMITS.seconds, calls=5, output_characters=2_000
    )
    assert "at most 5 calls" in output_text(run_code(LONG, sandbox_tools, few, memory))


@pytest.mark.parametrize("part", ["intents", "outcomes"])
def test_tampered_steps_are_rejected(part: str) -> None:
    sandbox_tools, memory = SandboxTools(), InMemorySteps()
    sandbox_tools.stop_at = 3
    asyncio.run(_interrupted(LONG, sandbox_tools, memory, SMALL_LIMITS))
    sandbox_tools.stop_at = None
    kept: dict[str, bytes] = getattr(memory, part)
    last = [name for name in kept if "/code/" in name or part == "outcomes"][-1]
    kept[last] = kept[last][:-1] + bytes([kept[last][-1] ^ 1])
    if part == "outcomes":
        # The outcome is read only while the program waits for it.
        memory.intents.pop(next(name for name in reversed(memory.intents) if "/code/" in name))
    made = len(sandbox_tools.calls)
    with pytest.raises(ToolError, match="not written by this run") as fault:
        run_code(LONG, sandbox_tools, memory=memory)
    assert fault.value.kind == "snapshot"
    assert len(sandbox_tools.calls) == made


def test_snapshot_of_another_call_or_key_is_rejected() -> None:
    sandbox_tools, memory = SandboxTools(), InMemorySteps()
    sandbox_tools.stop_at = 1
    asyncio.run(_interrupted(LONG, sandbox_tools, memory, SMALL_LIMITS))
    sandbox_tools.stop_at = None
    moved = InMemorySteps()
    moved.intents = {name.replace("run/1", "run/2"): intent for name, intent in memory.intents.items()}
    with pytest.raises(ToolError, match="not written by this run"):
        run_code(LONG, sandbox_tools, memory=moved, name="run/2")
    with pytest.raises(ToolError, match="not written by this run"):
        run_code(LONG, sandbox_tools, memory=memory, key=b"x" * 32)
