"""Arguments of calls for targets that accept only JSON objects.

Other text is wrapped as `{"_raw": ...}`, and unwrapped for targets that accept any text.
"""

import msgspec
from msgspec import Raw

from toolwire.canonical.content import ToolCall
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.tools import wrap_freeform_input
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.wire.reader import decode_json, decode_members

WRAPPED_PREFIX = '{"_raw"'


def encode_object_arguments(part: ToolCall, located_part: LocatedPart, plan: EncodingPlan) -> Raw:
    """Encode the arguments of another protocol's call as a JSON object; anything else is wrapped in one."""
    if part.shape == "freeform":
        return Raw(wrap_freeform_input(part.arguments).encode())
    text = part.arguments.strip().encode(errors="replace")
    if text in (b"", b"null"):
        plan.report_empty_arguments(part, located_part.path)
        return Raw(b"{}")
    if is_object(text):
        return Raw(text)
    plan.report.approximated(located_part.path, "arguments", "not a JSON object; sent as text under _raw")
    return wrap_invalid_arguments(part.arguments)


def is_object(text: bytes) -> bool:
    """Return whether the text is a JSON object."""
    try:
        decode_members(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def wrap_invalid_arguments(arguments: str) -> Raw:
    """Return a JSON object that holds arguments which are no object themselves."""
    return Raw(msgspec.json.encode({"_raw": arguments}))


def unwrap_invalid_arguments(arguments: str) -> str:
    """Return the text of arguments that an encoder wrapped in an object; other arguments unchanged."""
    if not arguments.startswith(WRAPPED_PREFIX):
        return arguments
    try:
        members = decode_members(arguments.encode())
    except msgspec.DecodeError:
        return arguments
    text = decode_json(members["_raw"]) if len(members) == 1 and "_raw" in members else None
    return text if isinstance(text, str) else arguments
