"""Whether a target runs a hosted tool itself or knows its vendor's client-run tools, and which options it lacks."""

from msgspec import Struct

from toolwire.canonical.content import Message, Text
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool, NativeTool
from toolwire.codec.encoding.hosted_tools import accepts_native
from toolwire.codec.interface import Codec, Target
from toolwire.codec.models import claude, gpt

_PROBE_TOOL = FunctionTool(name="probe")
_PATH = ("tools", 0)


_KNOWS_CLIENT_TOOLS = {
    ("anthropic", "bash"): claude.knows_bash,
    ("anthropic", "text_editor"): claude.knows_text_editor,
    ("openai-responses", "shell"): gpt.knows_shell_and_patches,
    ("openai-responses", "apply_patch"): gpt.knows_shell_and_patches,
    ("openai-responses", "local_shell"): gpt.knows_local_shell,
}


class HostedSupport(Struct, frozen=True):
    """The support of a target for a hosted tool."""

    unsupported: str | None = None
    """Why the target can't run the tool; None if it can."""
    lost_options: tuple[str, ...] = ()
    """Options that the target ignores."""


def find_hosted_support(codec: Codec, target: Target, tool: NativeTool, *, has_functions: bool) -> HostedSupport:
    """Return what the target makes of a hosted tool, beside functions if `has_functions`.

    The losses of an encoded request show it. A filter that the target can't enforce makes the tool unsupported.
    """
    request = Request(
        origin="",
        model=target.model,
        messages=(Message(role="user", parts=(Text(text="hi"),)),),
        tools=(tool, _PROBE_TOOL) if has_functions else (tool,),
    )
    report = codec.encode_request(request, target).report
    lost = []
    for kind, path, field, reason, _, constraint, _ in report.all_entries:
        if kind != "dropped" or path[:2] != _PATH:
            continue
        if constraint or (path == _PATH and not field):
            return HostedSupport(unsupported=f"{field}: {reason}" if isinstance(field, str) and field else reason)
        lost.append(str(field).strip("/"))
    return HostedSupport(lost_options=tuple(lost))


def knows_client_tool(codec: Codec, target: Target, tool: NativeTool) -> bool:
    """Return whether the target's host and model support a vendor's tool that the client runs."""
    knows = _KNOWS_CLIENT_TOOLS.get((codec.name, tool.kind))
    if knows is None or tool.protocol != codec.name or not accepts_native("client", target.host):
        return False
    return knows(target.model or "")
