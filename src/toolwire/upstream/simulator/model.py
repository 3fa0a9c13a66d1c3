"""What the model says: canonical request in, and the same request always gives the same reply."""

import json
import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from toolwire.canonical.computer import Action, SafetyCheck
from toolwire.canonical.content import Data, Media, Part, Refusal, Text, ToolCall, ToolResult
from toolwire.canonical.errors import ApiError
from toolwire.canonical.request import Request
from toolwire.canonical.response import StopReason
from toolwire.canonical.tools import FreeformTool
from toolwire.codec.encoding.computer import COMPUTER_FUNCTION_NAME, FUNCTION_ADAPTER, computers_of
from toolwire.upstream.simulator.prompt import (
    Prompt,
    RequestedCall,
    build_required_call,
    call_names,
    example_prompt,
    fill_object,
    find_requested_calls,
    read_prompt,
)
from toolwire.upstream.simulator.provider_traits import is_thinking_enabled
from toolwire.upstream.simulator.schema_examples import build_example, resolve_schema, schema_type

_COMPUTER_MENTION = re.compile(rf"(?<![\w-]){COMPUTER_FUNCTION_NAME}\s*(?={{)")


def find_requested_actions(request: Request, text: str) -> tuple[Action, ...]:
    """What a text asks for as it would of any tool: `computer {"actions": [...]}`."""
    named = _COMPUTER_MENTION.search(text) if computers_of(request.tools) else None
    if named is None:
        return ()
    try:
        _, end = json.JSONDecoder().raw_decode(text, named.end())
    except (ValueError, RecursionError):
        return ()
    use = FUNCTION_ADAPTER.decode_call(
        ToolCall(id=None, name=COMPUTER_FUNCTION_NAME, arguments=text[named.end() : end]), None
    )
    return () if use is None else use.actions


_MAX_ECHO_CHARS = 2000


class ReplyCall(Struct, frozen=True):
    name: str
    arguments: str
    namespace: str | None = None
    freeform: bool = False


class Reply(Struct, frozen=True, kw_only=True):
    """What is to be said, before it is put into a provider's form. `actions` are done on a screen, and a person must
    agree to all `checks` first. `stop` overrides why it ends; with an `error`, what was said before it."""

    thinking: str | None = None
    text: str | None = None
    calls: tuple[ReplyCall, ...] = ()
    actions: tuple[Action, ...] = ()
    checks: tuple[SafetyCheck, ...] = ()
    stop: StopReason | None = None
    error: ApiError | None = None


def generate_reply(request: Request, protocol: str) -> Reply:
    asked = read_prompt(request)
    actions = find_requested_actions(request, asked.text) if asked.is_new else ()
    calls = () if actions else _choose_calls(asked)
    text = None if calls or actions else _compose_text(request, asked)
    if not is_thinking_enabled(protocol, request):
        return Reply(text=text, calls=calls, actions=actions)
    names = [COMPUTER_FUNCTION_NAME] if actions else [call.name for call in calls]
    plan = f"I call {', '.join(names)}." if names else "I can answer right away."
    heard = "The tools have answered." if asked.results and not asked.is_new else f"The user says: {asked.text[:200]}"
    return Reply(thinking=f"{heard}\n{plan}", text=text, calls=calls, actions=actions)


def _choose_calls(prompt: Prompt) -> tuple[ReplyCall, ...]:
    wanted: list[RequestedCall] = []
    if prompt.is_new or prompt.requires_call:
        wanted = find_requested_calls(prompt.text, prompt.tools)
    if not wanted and prompt.requires_call and prompt.tools:
        wanted = [build_required_call(prompt.text, prompt.tools[0])]
    if not prompt.allows_parallel_calls:
        wanted = wanted[:1]
    return tuple(
        ReplyCall(one.tool.name, one.arguments, one.tool.namespace, isinstance(one.tool, FreeformTool))
        for one in wanted
    )


def _compose_text(request: Request, prompt: Prompt) -> str:
    output = request.output
    if output is not None and output.kind in ("json", "json_schema"):
        return _compose_json(None if output.schema is None else msgspec.json.decode(output.schema), request, prompt)
    if prompt.results:
        return _describe_results(prompt.results, call_names(request.messages))
    if not prompt.text:
        return "Hello! I am a simulated model. Ask me something, or ask for one of your tools."
    hint = f" To see me call a tool, write for example: {example_prompt(prompt.tools[0])}" if prompt.tools else ""
    return f"I am a simulated model, so all I can do is repeat: {prompt.text[:_MAX_ECHO_CHARS]}{hint}"


def _compose_json(schema: object, request: Request, prompt: Prompt) -> str:
    """A value of the schema with what the text has for it; without a schema, the answer under a name."""
    whole = resolve_schema(schema, schema)
    if not whole:
        told = (
            _describe_results(prompt.results, call_names(request.messages))
            if prompt.results
            else prompt.text[:_MAX_ECHO_CHARS]
        )
        return json.dumps({"answer": told}, ensure_ascii=False)
    made = fill_object(whole, prompt.text) if schema_type(whole) == "object" else build_example(schema)
    return json.dumps(made, ensure_ascii=False)


def _describe_results(results: Sequence[ToolResult], names: dict[str, str]) -> str:
    lines = []
    for result in results:
        name = result.name or names.get(result.call_id or "", "The tool")
        said = "\n".join(filter(None, map(_part_text, result.content or ()))) or "nothing"
        lines.append(f"{name} {'returned' if result.status == 'ok' else 'failed'}: {said}")
    return "\n".join(lines)


def _part_text(part: Part) -> str:
    match part:
        case Text() | Refusal():
            return part.text
        case Data():
            return bytes(part.json).decode()
        case Media():
            return f"[{part.kind}{'' if part.media_type is None else ' ' + part.media_type}]"
        case _:
            return ""
