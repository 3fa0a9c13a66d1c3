"""Requests with deferred tools and a tool search."""

import json
from typing import Any

from toolwire.codec.encoding.tools import conversation_tools
from toolwire.codec.interface import Route
from toolwire.protocols import PROTOCOLS

UPSTREAMS_WITHOUT_SEARCH = ["openai-chat", "gemini", "gemini-interactions", "ollama", "openrouter"]
CLIENTS_WITH_SEARCH = ["anthropic", "openai-responses"]
TOOL_DESCRIPTIONS = {"send_email": "Sends an email.", "pay_invoice": "Pays an invoice.", "read_file": "Reads a file."}
TOOL_SCHEMA = {"type": "object", "properties": {"what": {"type": "string"}}}
REGEX_SEARCH = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
BM25_SEARCH = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}


def search_request(
    client: str, *, stream: bool = False, search: dict[str, Any] = BM25_SEARCH, history: Any = ()
) -> tuple[str, bytes]:
    """Return a request with one immediate tool, two deferred tools and a search tool."""
    if client == "anthropic":
        tools: list[Any] = [search]
        tools += [
            {"name": name, "description": about, "input_schema": TOOL_SCHEMA, "defer_loading": name != "read_file"}
            for name, about in TOOL_DESCRIPTIONS.items()
        ]
        messages = [{"role": "user", "content": "Pay it."}, *history]
        body: dict[str, Any] = {"max_tokens": 99, "messages": messages}
        path = "/v1/messages"
    else:
        tools = [{"type": "tool_search"}]
        tools += [
            {"type": "function", "name": name, "description": about, "parameters": TOOL_SCHEMA, "strict": False}
            | {"defer_loading": name != "read_file"}
            for name, about in TOOL_DESCRIPTIONS.items()
        ]
        body = {"input": [{"role": "user", "content": "Pay it."}, *history], "store": False}
        path = "/v1/responses"
    return path, json.dumps({"model": "m", "tools": tools, "stream": stream, **body}).encode()


def declared_tool_names(protocol: str, body: Any) -> list[str]:
    request = PROTOCOLS[protocol].decode_request(json.dumps(body).encode(), Route())
    return [placed.tool.name or "" for placed in conversation_tools(request)]


def output_items(client: str, body: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = body["content" if client == "anthropic" else "output"]
    return items
