"""What the Responses API rejects of computer use."""

from toolwire.codec.check import Findings, Object, Path, list_of, object_of, text_of

from .vocabulary import VOICE

_SIZED = ("display_width", "display_height", "environment")


def check_computer(items: list[tuple[Path, Object]], tools: list[tuple[Path, Object]]) -> Findings:
    for path, tool in tools:
        if tool.get("type") == "computer_use_preview":
            for name in _SIZED:
                if tool.get(name) is None:
                    at = (*path, name)
                    yield VOICE.found("computer-display", at, "Missing required parameter: '{at}'.")
    pending: dict[str, list[str]] = {}
    for path, item in items:
        id = text_of(item.get("call_id"))
        if item.get("type") == "computer_call":
            pending[id] = _ids(item.get("pending_safety_checks"))
        elif item.get("type") == "computer_call_output":
            output = object_of(item.get("output"))
            if not output.get("image_url") and not output.get("file_id"):
                at = (*path, "output", "image_url")
                yield VOICE.found("computer-screenshot", at, "Missing required parameter: '{at}'.")
            seen = _ids(item.get("acknowledged_safety_checks"))
            if left := [one for one in pending.get(id, ()) if one not in seen]:
                # In its words, as clients met them.
                said = f"Computer tool has unacknowledged safety check for {left}"
                yield VOICE.found("computer-safety", path, said)


def _ids(checks: object) -> list[str]:
    return [text_of(object_of(one).get("id")) for one in list_of(checks)]
