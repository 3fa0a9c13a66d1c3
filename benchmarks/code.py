"""`make bench-code`: the cost of a tool call from code, compared with a turn of a model.

Exits 1 if it exceeds its limit.
"""

import asyncio
import sys
import time
from typing import Any

from toolwire.runtime.calls.approval import NoApprover
from toolwire.runtime.sandbox.code.description import CodeLimits
from toolwire.runtime.sandbox.code.tool import CodeSandbox
from toolwire.runtime.tool import Tool, ToolContext, ToolOutput

CALLS, ROUNDS, MILLISECONDS = 400, 9, 1.0
_NUMBERS = {"a": {"type": "integer"}, "b": {"type": "integer"}}
_NOTHING = "1"
_ONE_BY_ONE = "total = 0\nfor i in range({calls}):\n    total = await add(a=total, b=i)\ntotal"
_TOGETHER = "import asyncio\nsum(await asyncio.gather(*[add(a=i, b=1) for i in range({calls})]))"


async def _add(arguments: Any, calling: ToolContext) -> ToolOutput:
    return ToolOutput(structured=arguments["a"] + arguments["b"])


async def _call(name: str, arguments: Any, id: str | None = None) -> ToolOutput:
    return ToolOutput(structured=arguments["a"] + arguments["b"])


async def _best(tool: Tool, code: str) -> float:
    times = []
    for number in range(ROUNDS):
        calling = ToolContext(
            run="bench", id="1", tool=tool.name, idempotency_key=str(number), approver=NoApprover(), call=_call
        )
        started = time.perf_counter()
        output = await tool.run({"code": code}, calling)
        times.append((time.perf_counter() - started) * 1000)
        if output.is_error:
            raise SystemExit(str(output.content))
    return min(times)


async def main() -> int:
    parameters = {"type": "object", "properties": _NUMBERS, "required": ["a", "b"]}
    sandbox = CodeSandbox(CodeLimits(calls=CALLS))
    tool = sandbox.tool([Tool(name="add", run=_add, parameters=parameters)])
    await _best(tool, _NOTHING)
    empty = await _best(tool, _NOTHING)
    each = (await _best(tool, _ONE_BY_ONE.format(calls=CALLS)) - empty) / CALLS
    together = (await _best(tool, _TOGETHER.format(calls=CALLS)) - empty) / CALLS
    twenty = await _best(tool, _ONE_BY_ONE.format(calls=20))
    await sandbox.close()
    print(f"best of {ROUNDS} rounds with a no-op tool")
    print(f"a program without calls, checked and run: {empty:.1f} ms")
    print(f"one sequential call: {each:.2f} ms (limit {MILLISECONDS}); one parallel call: {together:.2f} ms")
    print(f"a task of 20 calls in one program: {twenty:.1f} ms, and 1 turn of the model instead of 20")
    return 0 if each < MILLISECONDS else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
