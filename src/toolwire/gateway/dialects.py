"""How providers tell of programs that call tools, for clients of theirs in front of other upstreams."""

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import Raw

from toolwire.canonical.content import Caller, Foreign, Part, ToolCall, ToolResult
from toolwire.canonical.node import Extras
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FreeformTool, FunctionTool, NativeTool
from toolwire.runtime.toolset import Output

Called = FunctionTool | FreeformTool


class Begun(NamedTuple):
    id: str
    code: str


class Finished(NamedTuple):
    id: str
    text: str
    failed: bool = False


class ProgramDialect(Protocol):
    """What a client declares, sees and repeats of programs. `forbidden`: which field its provider refuses beside them,
    and why. `caller_of` is the word for a program as the caller of a tool."""

    def forbidden(self, request: Request, called: Iterable[Called]) -> tuple[str, str] | None: ...
    def caller_of(self, tool: Called) -> str: ...
    def new_id(self, random: str) -> str: ...
    def call_id(self, random: str) -> str: ...
    def runs_programs(self, tool: NativeTool) -> bool: ...
    def begun(self, part: Part) -> Begun | None: ...
    def finished(self, part: Part) -> Finished | None: ...
    def show_begun(self, begun: Begun) -> Part: ...
    def show_finished(self, id: str, output: Output | None) -> Part: ...
    def held(self, id: str, until: str) -> Extras | None: ...


_CALLERS = ("code_execution_20260120", "code_execution_20250825")


class _Anthropic:
    def forbidden(self, request: Request, called: Iterable[Called]) -> tuple[str, str] | None:
        if any(isinstance(tool, FunctionTool) and tool.strict for tool in called):
            return "tools", "strict is not supported with programmatic tool calling"
        if request.tool_choice is not None and request.tool_choice.parallel is False:
            return "tool_choice", "disable_parallel_tool_use is not supported with programmatic tool calling"
        return None

    def caller_of(self, tool: Called) -> str:
        """The sandbox that the tool was declared for, where the official SDK reads its name in an answer."""
        return next((one for one in tool.allowed_callers or () if one in _CALLERS), _CALLERS[0])

    def new_id(self, random: str) -> str:
        return f"srvtoolu_{random}"

    def call_id(self, random: str) -> str:
        return f"toolu_{random}"

    def runs_programs(self, tool: NativeTool) -> bool:
        return tool.protocol == "anthropic" and tool.kind == "code_execution"

    def begun(self, part: Part) -> Begun | None:
        if not isinstance(part, ToolCall) or part.executor != "server" or part.name != "code_execution":
            return None
        code = _members(part.arguments).get("code")
        return Begun(part.id or "", code) if isinstance(code, str) else None

    def finished(self, part: Part) -> Finished | None:
        if not isinstance(part, ToolResult) or part.native != "code_execution_tool_result":
            return None
        content = part.content[0] if part.content else None
        said = _members(bytes(content.body)) if isinstance(content, Foreign) else {}
        texts = [
            text for name in ("stdout", "stderr", "error_code") if isinstance(text := said.get(name), str) and text
        ]
        failed = part.status != "ok" or bool(said.get("return_code"))
        return Finished(part.call_id or "", "\n".join(texts), failed)

    def show_begun(self, begun: Begun) -> Part:
        return _item(
            "anthropic",
            {"type": "server_tool_use", "id": begun.id, "name": "code_execution", "input": {"code": begun.code}},
        )

    def show_finished(self, id: str, output: Output | None) -> Part:
        if output is None:
            content: dict[str, Any] = {
                "type": "code_execution_tool_result_error",
                "error_code": "execution_time_exceeded",
            }
        else:
            text, failed = text_of(output), output.is_error
            said = {"stdout": "" if failed else text, "stderr": text if failed else "", "return_code": int(failed)}
            content = {"type": "code_execution_result", **said, "content": []}
        return _item("anthropic", {"type": "code_execution_tool_result", "tool_use_id": id, "content": content})

    def held(self, id: str, until: str) -> Extras | None:
        container = {"id": "container_" + id.removeprefix("srvtoolu_"), "expires_at": until}
        return {"anthropic": {"container": Raw(msgspec.json.encode(container))}}


class _Responses:
    def forbidden(self, request: Request, called: Iterable[Called]) -> tuple[str, str] | None:
        return None

    def caller_of(self, tool: Called) -> str:
        return "program"

    def new_id(self, random: str) -> str:
        return f"call_{random}"

    def call_id(self, random: str) -> str:
        return f"call_{random}"

    def runs_programs(self, tool: NativeTool) -> bool:
        return tool.protocol == "openai-responses" and tool.kind == "programmatic_tool_calling"

    def begun(self, part: Part) -> Begun | None:
        said = _members(bytes(part.body)) if isinstance(part, Foreign) and part.kind == "program" else {}
        id, code = said.get("call_id"), said.get("code")
        return Begun(id, code) if isinstance(id, str) and isinstance(code, str) else None

    def finished(self, part: Part) -> Finished | None:
        said = _members(bytes(part.body)) if isinstance(part, Foreign) and part.kind == "program_output" else {}
        id, result = said.get("call_id"), said.get("result")
        if not isinstance(id, str):
            return None
        return Finished(id, result if isinstance(result, str) else "", said.get("status") != "completed")

    def show_begun(self, begun: Begun) -> Part:
        id = begun.id.removeprefix("call_")
        said = {"type": "program", "id": f"prog_{id}", "call_id": begun.id, "code": begun.code}
        return _item("openai-responses", {**said, "fingerprint": f"tw_{id}"})

    def show_finished(self, id: str, output: Output | None) -> Part:
        failed = output is None or output.is_error
        text = "the program was not gone on with in time" if output is None else text_of(output)
        said = {"type": "program_output", "id": f"progo_{id.removeprefix('call_')}", "call_id": id, "result": text}
        return _item("openai-responses", {**said, "status": "incomplete" if failed else "completed"})

    def held(self, id: str, until: str) -> Extras | None:
        return None


DIALECTS: dict[str, ProgramDialect] = {"anthropic": _Anthropic(), "openai-responses": _Responses()}


def inner_call(dialect: ProgramDialect, program: str, call: ToolCall, tool: Called) -> ToolCall:
    """A call that a program makes, as the client is told of it."""
    return msgspec.structs.replace(call, caller=Caller(kind=dialect.caller_of(tool), id=program))


def text_of(output: Output) -> str:
    return "\n".join(text for part in output.content if (text := getattr(part, "text", None)))


def _item(protocol: str, body: dict[str, Any]) -> Foreign:
    return Foreign(protocol=protocol, kind=body["type"], body=Raw(msgspec.json.encode(body)), at="")


def _members(text: str | bytes) -> dict[str, Any]:
    try:
        said = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
