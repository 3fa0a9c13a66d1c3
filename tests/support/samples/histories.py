"""The requests that a client sent before, found in the history of a recorded one."""

from typing import Any

# Types of items and steps that the client sends, besides those that end in `_output`.
CLIENT_TYPES = ("mcp_approval_response", "item_reference", "additional_tools", "user_input", "function_result")
CONTENT_TYPES = ("text", "image", "audio", "video", "document")


def earlier_requests(history: list[Any]) -> list[int]:
    """Return the lengths at which the client sent a request: a user turn, followed by a model turn."""
    return [
        length
        for length in range(1, len(history))
        if not _is_from_model(history[length - 1]) and _is_from_model(history[length])
    ]


def _is_from_model(message: Any) -> bool:
    if message.get("role") is not None:
        return message["role"] in ("assistant", "model")
    kind = str(message.get("type"))
    return kind == "model_output" or (not kind.endswith("_output") and kind not in CLIENT_TYPES + CONTENT_TYPES)
