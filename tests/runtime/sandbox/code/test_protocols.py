"""A task of twenty calls in one turn of the model, in every protocol."""

import asyncio
import json

import pytest

from tests.support.runtime.code_sandbox import SMALL_LIMITS, SandboxTools
from toolwire.canonical.content import Message, Text, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.canonical.response import Candidate, Response, Stop
from toolwire.codec.encoding.tools import conversation_tools
from toolwire.codec.interface import ResponseContext, Route, Target
from toolwire.protocols import PROTOCOLS
from toolwire.runtime.sandbox.code.tool import RUN_CODE, CodeSandbox
from toolwire.runtime.tool import Tool, ToolOutput

CODE = "total = 0\nfor i in range(20):\n    total = await add(a=total, b=i)\nprint('the total is', total)"


async def _run(tool: Tool, sandbox: CodeSandbox, sandbox_tools: SandboxTools, arguments: str) -> ToolOutput:
    try:
        output: ToolOutput = await tool.run(json.loads(arguments), sandbox_tools.context())
        return output
    finally:
        await sandbox.close()


@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_twenty_calls_take_one_turn(protocol: str) -> None:
    codec, target, sandbox_tools, sandbox = (
        PROTOCOLS[protocol],
        Target(model="m"),
        SandboxTools(),
        CodeSandbox(SMALL_LIMITS),
    )
    tool = sandbox.tool(list(sandbox_tools.tools.values()))
    request = Request(
        origin="",
        model="m",
        tools=(tool.declaration(),),
        messages=(Message(role="user", parts=(Text(text="Add up."),)),),
    )
    # The request, as the provider decodes it.
    first = codec.encode_request(request, target)
    (placed,) = conversation_tools(codec.decode_request(first.to_bytes(), Route()))
    assert placed.tool.name == RUN_CODE
    assert "async def add(*, a: int, b: int) -> Any: ..." in (getattr(placed.tool, "description", None) or "")
    # The response, as the provider encodes it.
    call = ToolCall(id="call_1", name=RUN_CODE, arguments=json.dumps({"code": CODE}))
    candidate = Candidate(messages=(Message(role="assistant", parts=(call,)),), stop=Stop(reason="tool_use"))
    wire = codec.encode_response(
        Response(origin="", id="r", model="m", candidates=(candidate,)), ResponseContext(created=1)
    )
    answer = codec.decode_response(wire.to_bytes(), ResponseContext(mapping=first.mapping))
    spoken = answer.candidates[0].messages
    (made,) = [part for message in spoken for part in message.parts if isinstance(part, ToolCall)]
    output = asyncio.run(_run(tool, sandbox, sandbox_tools, made.arguments))
    assert len(sandbox_tools.calls) == 20
    # The next request.
    result = ToolResult(call_id=made.id, name=made.name, content=output.content)
    messages = (*request.messages, *spoken, Message(role="user", parts=(result,)))
    second = codec.encode_request(
        Request(origin="", model="m", tools=request.tools, messages=messages), target
    ).to_bytes()
    assert codec.check_request(json.loads(second)) == []
    assert b"the total is 190" in second
    assert b"171" not in second
