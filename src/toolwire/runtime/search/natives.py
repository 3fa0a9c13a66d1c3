"""Where the provider itself looks for tools: its own search is used, and it is told of all tools, deferred."""

import re

from msgspec import Raw

from toolwire.canonical.tools import NativeTool

_SEARCHES = {
    "anthropic": NativeTool(
        protocol="anthropic",
        kind="tool_search_tool_bm25",
        name="tool_search_tool_bm25",
        body=Raw(b'{"type":"tool_search_tool_bm25_20251119","name":"tool_search_tool_bm25"}'),
    ),
    "openai-responses": NativeTool(
        protocol="openai-responses", kind="tool_search", body=Raw(b'{"type":"tool_search"}')
    ),
}
# An unknown name is never held against a model.
_WITHOUT = {
    "anthropic": re.compile(r"claude-([23]|instant|(opus|sonnet)-4(-[01](-|$)|-20|$))"),
    "openai-responses": re.compile(r"gpt-4|gpt-3|o1|o3|o4|gpt-5(-(?!codex)|$)|gpt-5\.[123](-|$)"),
}


def native_search(protocol: str, model: str) -> NativeTool | None:
    """The search of the model's own provider; None if it has none."""
    found = _SEARCHES.get(protocol)
    return None if found is None or _WITHOUT[protocol].match(model) else found
