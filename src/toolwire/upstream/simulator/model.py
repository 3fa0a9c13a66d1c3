"""The simulated model: a canonical request in, a reply out. The same request always gives the same reply."""

import json
import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.computer import Action, SafetyCheck
from toolwire.canonical.content import Data, Media, Part, Refusal, Text, ToolCall, ToolResult
from toolwire.canonical.errors import ApiError
from toolwire.canonical.request import Request
from toolwire.canonical.response import StopReason
from toolwire.canonical.tools import FreeformTool
from toolwire.codec.encoding.computer import COMPUTER_FUNCTION_NAME, FUNCTION_ADAPTER, computers_of
from toolwire.translation.stages.tool_call_parsers.registry import DIALECTS
from toolwire.translation.stages.tool_call_parsers.rendering import WrittenCall
from toolwire.upstream.simulator.hosted_tools import as_functions
from toolwire.upstream.simulator.prompt import (
    Prompt,
    RequestedCall,
    build_required_call,
    call_names,
    example_prompt,
    fill_object,
    find_exact_calls,
    find_requested_calls,
    read_prompt,
)
from toolwire.upstream.simulator.provider_traits import is_thinking_enabled
from toolwire.upstream.simulator.schema_examples import build_example, resolve_schema, schema_type

_COMPUTER_MENTION = re.compile(rf"(?<![\w-]){COMPUTER_FUNCTION_NAME}\s*(?={{)")


def find_requested_actions(request: Request, text: str) -> tuple[Action, ...]:
    """Return the computer actions that a text requests as `computer {"actions": [...]}`."""
    mention = _COMPUTER_MENTION.search(text) if computers_of(request.tools) else None
    if mention is None:
        return ()
    try:
        _, end = json.JSONDecoder().raw_decode(text, mention.end())
    except (ValueError, RecursionError):
        return ()
    use = FUNCTION_ADAPTER.decode_call(
        ToolCall(id=None, name=COMPUTER_FUNCTION_NAME, arguments=text[mention.end() : end]), None
    )
    return () if use is None else use.actions


_MAX_ECHO_CHARS = 2000


class ReplyCall(Struct, frozen=True):
    """A tool call of a reply."""

    name: str
    arguments: str
    namespace: str | None = None
    freeform: bool = False


class Reply(Struct, frozen=True, kw_only=True):
    """A reply of the model, independent of any provider's format."""

    thinking: str | None = None
    text: str | None = None
    calls: tuple[ReplyCall, ...] = ()  # also of hosted tools that the request declares
    # Actions on the screen, and the safety checks that the user must acknowledge before them.
    actions: tuple[Action, ...] = ()
    checks: tuple[SafetyCheck, ...] = ()
    # Overrides the stop reason.
    stop: StopReason | None = None
    # Ends a stream after the content above.
    error: ApiError | None = None


def generate_reply(request: Request, protocol: str) -> Reply:
    """Generate the reply of the model: calls that the user requests, or else text."""
    prompt = read_prompt(request)
    actions = find_requested_actions(request, prompt.text) if prompt.is_new else ()
    calls = () if actions else (*_hosted_calls(prompt), *_choose_calls(prompt))
    text = None if calls or actions else _compose_text(request, prompt)
    if not is_thinking_enabled(protocol, request):
        return Reply(text=text, calls=calls, actions=actions)
    names = [COMPUTER_FUNCTION_NAME] if actions else [call.name for call in calls]
    plan = f"I call {', '.join(names)}." if names else "I can answer right away."
    observation = (
        "The tools have answered." if prompt.results and not prompt.is_new else f"The user says: {prompt.text[:200]}"
    )
    return Reply(thinking=f"{observation}\n{plan}", text=text, calls=calls, actions=actions)


def check_dialect(name: str | None) -> None:
    """Raise `ValueError` for a dialect of text calls that does not exist."""
    if name is not None and name not in DIALECTS:
        raise ValueError(f"unknown dialect {name!r}; expected one of {', '.join(sorted(DIALECTS))}")


def write_as_text(reply: Reply, dialect: str) -> Reply:
    """Return a reply as a server without parsers passes it on: thinking and calls stand in its text."""
    thinking = "" if reply.thinking is None else f"<think>\n{reply.thinking}\n</think>\n\n"
    calls = [WrittenCall(call.name, call.arguments, number) for number, call in enumerate(reply.calls)]
    blocks = [reply.text or "", DIALECTS[dialect].render_calls(calls) if calls else ""]
    text = thinking + "\n".join(filter(None, blocks))
    return replace(reply, thinking=None, text=text or None, calls=())


def _hosted_calls(prompt: Prompt) -> tuple[ReplyCall, ...]:
    """Return the calls of hosted tools that a new prompt requests with their exact arguments."""
    if not prompt.is_new or not prompt.hosted:
        return ()
    return tuple(
        ReplyCall(call.tool.name, call.arguments) for call in find_exact_calls(prompt.text, as_functions(prompt.hosted))
    )


def _choose_calls(prompt: Prompt) -> tuple[ReplyCall, ...]:
    """Return the calls that the prompt requests, or one call if it requires one."""
    requested: list[RequestedCall] = []
    if prompt.is_new or prompt.requires_call:
        requested = find_requested_calls(prompt.text, prompt.tools)
    if not requested and prompt.requires_call and prompt.tools:
        requested = [build_required_call(prompt.text, prompt.tools[0])]
    if not prompt.allows_parallel_calls:
        requested = requested[:1]
    return tuple(
        ReplyCall(call.tool.name, call.arguments, call.tool.namespace, isinstance(call.tool, FreeformTool))
        for call in requested
    )


def _compose_text(request: Request, prompt: Prompt) -> str:
    """Compose the text of a reply: JSON for structured output, a summary of tool results, or an echo."""
    output = request.output
    if output is not None and output.kind in ("json", "json_schema"):
        return _compose_json(None if output.schema is None else msgspec.json.decode(output.schema), request, prompt)
    if prompt.results:
        return _describe_results(prompt.results, call_names(request.messages))
    if not prompt.text:
        return "Hello! I am a simulated model. Ask me something, or ask for one of your tools."
    hint = f"\nTo see me call a tool, write for example: {example_prompt(prompt.tools[0])}" if prompt.tools else ""
    return f"I am a simulated model, so all I can do is repeat: {prompt.text[:_MAX_ECHO_CHARS]}{hint}"


def _compose_json(schema: object, request: Request, prompt: Prompt) -> str:
    """Return JSON text that fills the schema from the prompt; without a schema, an object with the answer."""
    resolved = resolve_schema(schema, schema)
    if not resolved:
        answer = (
            _describe_results(prompt.results, call_names(request.messages))
            if prompt.results
            else prompt.text[:_MAX_ECHO_CHARS]
        )
        return json.dumps({"answer": answer}, ensure_ascii=False)
    value = fill_object(resolved, prompt.text) if schema_type(resolved) == "object" else build_example(schema)
    return json.dumps(value, ensure_ascii=False)


def _describe_results(results: Sequence[ToolResult], names: dict[str, str]) -> str:
    """Describe the tool results in one line each; `names` gives the tool's name by call id."""
    lines = []
    for result in results:
        name = result.name or names.get(result.call_id or "", "The tool")
        text = "\n".join(filter(None, map(_part_text, result.content or ()))) or "nothing"
        lines.append(f"{name} {'returned' if result.status == 'ok' else 'failed'}: {text}")
    return "\n".join(lines)


def _part_text(part: Part) -> str:
    """Return the text of a part, or a placeholder for media."""
    match part:
        case Text() | Refusal():
            return part.text
        case Data():
            return bytes(part.json).decode()
        case Media():
            return f"[{part.kind}{'' if part.media_type is None else ' ' + part.media_type}]"
        case _:
            return ""
