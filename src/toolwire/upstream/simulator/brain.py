"""What the model says: canonical request in, and the same request always gives the same reply."""

import json
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from toolwire.canonical.computer import Action, SafetyCheck
from toolwire.canonical.content import Data, Media, Part, Refusal, Text, ToolResult
from toolwire.canonical.errors import ApiError
from toolwire.canonical.request import Request
from toolwire.canonical.response import StopReason
from toolwire.canonical.tools import FreeformTool
from toolwire.codec.screen_function import NAME

from .arguments import Wanted, example_of, filled, forced_call, wanted_calls
from .dialects import thinks
from .instances import instance, resolved, type_of
from .reading import Asked, names_of_calls, read
from .screens import wanted_actions

_ECHO = 2000


class Call(Struct, frozen=True):
    name: str
    arguments: str
    namespace: str | None = None
    freeform: bool = False


class Reply(Struct, frozen=True, kw_only=True):
    """What is to be said, before it is put into a provider's form. `actions` are done on a screen, and a person must
    agree to all `checks` first. `stop` overrides why it ends; with an `error`, what was said before it."""

    thinking: str | None = None
    text: str | None = None
    calls: tuple[Call, ...] = ()
    actions: tuple[Action, ...] = ()
    checks: tuple[SafetyCheck, ...] = ()
    stop: StopReason | None = None
    error: ApiError | None = None


def reply_to(request: Request, protocol: str) -> Reply:
    asked = read(request)
    actions = wanted_actions(request, asked.text) if asked.fresh else ()
    calls = () if actions else _calls(asked)
    text = None if calls or actions else _text(request, asked)
    if not thinks(protocol, request):
        return Reply(text=text, calls=calls, actions=actions)
    names = [NAME] if actions else [call.name for call in calls]
    plan = f"I call {', '.join(names)}." if names else "I can answer right away."
    heard = "The tools have answered." if asked.results and not asked.fresh else f"The user says: {asked.text[:200]}"
    return Reply(thinking=f"{heard}\n{plan}", text=text, calls=calls, actions=actions)


def _calls(asked: Asked) -> tuple[Call, ...]:
    wanted: list[Wanted] = []
    if asked.fresh or asked.forced:
        wanted = wanted_calls(asked.text, asked.tools)
    if not wanted and asked.forced and asked.tools:
        wanted = [forced_call(asked.text, asked.tools[0])]
    if not asked.parallel:
        wanted = wanted[:1]
    return tuple(
        Call(one.tool.name, one.arguments, one.tool.namespace, isinstance(one.tool, FreeformTool)) for one in wanted
    )


def _text(request: Request, asked: Asked) -> str:
    output = request.output
    if output is not None and output.kind in ("json", "json_schema"):
        return _structured(None if output.schema is None else msgspec.json.decode(output.schema), request, asked)
    if asked.results:
        return _told(asked.results, names_of_calls(request.messages))
    if not asked.text:
        return "Hello! I am a simulated model. Ask me something, or ask for one of your tools."
    hint = f" To see me call a tool, write for example: {example_of(asked.tools[0])}" if asked.tools else ""
    return f"I am a simulated model, so all I can do is repeat: {asked.text[:_ECHO]}{hint}"


def _structured(schema: object, request: Request, asked: Asked) -> str:
    """A value of the schema with what the text has for it; without a schema, the answer under a name."""
    whole = resolved(schema, schema)
    if not whole:
        told = _told(asked.results, names_of_calls(request.messages)) if asked.results else asked.text[:_ECHO]
        return json.dumps({"answer": told}, ensure_ascii=False)
    made = filled(whole, asked.text) if type_of(whole) == "object" else instance(schema)
    return json.dumps(made, ensure_ascii=False)


def _told(results: Sequence[ToolResult], names: dict[str, str]) -> str:
    lines = []
    for result in results:
        name = result.name or names.get(result.call_id or "", "The tool")
        said = "\n".join(filter(None, map(_gist, result.content or ()))) or "nothing"
        lines.append(f"{name} {'returned' if result.status == 'ok' else 'failed'}: {said}")
    return "\n".join(lines)


def _gist(part: Part) -> str:
    match part:
        case Text() | Refusal():
            return part.text
        case Data():
            return bytes(part.json).decode()
        case Media():
            return f"[{part.kind}{'' if part.media_type is None else ' ' + part.media_type}]"
        case _:
            return ""
