"""Actions of a script on a screen, in the form that the request declares: as its provider's model would call them."""

import json
import re

from toolwire.canonical.computer import KINDS, Action, SafetyCheck
from toolwire.canonical.content import ToolCall
from toolwire.canonical.errors import ApiError
from toolwire.canonical.request import Request
from toolwire.canonical.tools import Computer, FunctionTool
from toolwire.codec.computer import Form, Saying, Spoken, Watching, arguments_of, computers_of, told
from toolwire.codec.screen_function import FUNCTION, NAME
from toolwire.protocols import PROTOCOLS

from .strict import Refused

_NAMED = re.compile(rf"(?<![\w-]){NAME}\s*(?={{)")
_NO_TOOL = "The script drives a screen, and no tool of the request does."
_NO_WORDS = "The script drives the screen in a way that the request's tool has no words for."


def screen_calls(
    request: Request, protocol: str, actions: tuple[Action, ...], checks: tuple[SafetyCheck, ...]
) -> list[ToolCall]:
    """The calls that tell these actions. They have no ids yet."""
    form, computers = _form(request, protocol)
    watching = Watching(computers)
    for message in request.messages:
        for part in message.parts:
            watching.see(part)
    for computer in computers:
        saying = Saying(watching.size, watching.saying.point)
        if (spoken := told(actions, computer, form, saying)) is not None:
            return [_call(said, form, computer, () if number else checks) for number, said in enumerate(spoken)]
    raise Refused(ApiError(kind="server", message=_NO_WORDS))


def wanted_actions(request: Request, text: str) -> tuple[Action, ...]:
    """What a text asks for as it would of any tool: `computer {"actions": [...]}`."""
    named = _NAMED.search(text) if computers_of(request.tools) else None
    if named is None:
        return ()
    try:
        _, end = json.JSONDecoder().raw_decode(text, named.end())
    except (ValueError, RecursionError):
        return ()
    use = FUNCTION.read(ToolCall(id=None, name=NAME, arguments=text[named.end() : end]), None)
    return () if use is None else use.actions


def _form(request: Request, protocol: str) -> tuple[Form, tuple[Computer, ...]]:
    form = PROTOCOLS[protocol].screen
    if form is not None and (computers := computers_of(request.tools)):
        return form, computers
    if any(isinstance(tool, FunctionTool) and tool.name == NAME for tool in request.tools or ()):
        return FUNCTION, (Computer(dialect=NAME, kinds=KINDS),)
    raise Refused(ApiError(kind="server", message=_NO_TOOL))


def _call(said: Spoken, form: Form, computer: Computer, checks: tuple[SafetyCheck, ...]) -> ToolCall:
    return form.call(ToolCall(id=None, name=said.name, arguments=arguments_of(said)), computer, checks)
