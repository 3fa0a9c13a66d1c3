"""Whether a target runs a hosted tool itself, and which of its options the target lacks."""

from msgspec import Struct

from toolwire.canonical.content import Message, Text
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool, NativeTool
from toolwire.codec.interface import Codec, Target

_PROBE_TOOL = FunctionTool(name="probe")
_PATH = ("tools", 0)


class HostedSupport(Struct, frozen=True):
    """What a target makes of a hosted tool."""

    refusal: str | None = None
    """Why the target can't run the tool; None if it can."""
    lost_options: tuple[str, ...] = ()
    """Options that the target ignores."""


def find_hosted_support(codec: Codec, target: Target, tool: NativeTool, *, has_functions: bool) -> HostedSupport:
    """Return what the target makes of a hosted tool, beside functions if `has_functions`.

    The losses of an encoded request show it. A filter that the target can't enforce is a refusal.
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
            return HostedSupport(refusal=f"{field}: {reason}" if isinstance(field, str) and field else reason)
        lost.append(str(field).strip("/"))
    return HostedSupport(lost_options=tuple(lost))
