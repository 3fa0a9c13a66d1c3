"""Whether a target enforces a response format, or only gets it as instructions."""

from toolwire.canonical.content import Message, Text
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool, OutputFormat
from toolwire.codec.hosts.profile import rule_for
from toolwire.codec.interface import Codec, Target

_PROBE_TOOL = FunctionTool(name="probe")


def enforces_output_format(codec: Codec, target: Target, output: OutputFormat, *, has_tools: bool) -> bool:
    """Return whether the target enforces a JSON Schema for responses, together with tools if `has_tools`.

    What the model accepts is a fact about it; what the host accepts shows in the losses of an encoded request.
    """
    support = None if target.model_info is None else target.model_info.structured_output
    rule = rule_for(target.host.output.formats, target.model or "")
    if support == "never" or (has_tools and (support == "without_tools" or (rule is not None and not rule.with_tools))):
        return False
    request = Request(
        origin="",
        model=target.model,
        messages=(Message(role="user", parts=(Text(text="hi"),)),),
        tools=(_PROBE_TOOL,) if has_tools else None,
        output=output,
    )
    report = codec.encode_request(request, target).report
    return not any(entry[1] == ("output",) and entry[2] == "kind" for entry in report.all_entries)
