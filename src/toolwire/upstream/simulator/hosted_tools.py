"""Hosted tools as the vendors run them: the calls that a text requests, their results, and texts that cite them.

A text requests a call with the vendor-neutral name and a JSON object: `web_search {"query": "rain"}`. Vendors differ in
what they show of a call. Anthropic, the Responses API and the Interactions API show it with its result; Gemini does so
for programs and where the request declares functions beside; Chat Completions and OpenRouter only cite pages.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolwire.canonical.content import Citation, HostedUse, Part, Text, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool, HostedKind, HostedTool, NativeTool
from toolwire.codec.encoding.tools import conversation_tools

_ARGUMENTS: dict[HostedKind, str] = {"web_search": "query", "web_fetch": "url", "code_execution": "code"}
_ID_PREFIXES = {"anthropic": "srvtoolu_01", "openai-responses": ""}
_CITES_ONLY = ("openai-chat", "openrouter")
_SHOWS_CALLS = "toolConfig/includeServerSideToolInvocations"
_SITE = "https://example.com/"


class HostedCall(Struct, frozen=True):
    """A call of a hosted tool."""

    tool: HostedTool
    arguments: str

    @property
    def input(self) -> str:
        """The only argument of the call: a query, an address or a program."""
        try:
            members: Any = json.loads(self.arguments)
        except (ValueError, RecursionError):
            members = {}
        value = members.get(_ARGUMENTS[self.tool.kind]) if isinstance(members, dict) else None
        return value if isinstance(value, str) else ""


def hosted_tools_of(request: Request) -> dict[str, HostedTool]:
    """Return the hosted tools that a request declares, by their vendor-neutral names."""
    declared = [located.tool for located in conversation_tools(request)]
    hosted = [tool.hosted for tool in declared if isinstance(tool, NativeTool) and tool.hosted is not None]
    return {tool.kind: tool for tool in hosted}


def as_functions(tools: dict[str, HostedTool]) -> tuple[FunctionTool, ...]:
    """Return hosted tools in the form of functions, so that a text can request them by name."""
    return tuple(FunctionTool(name=tool.kind, parameters=_schema(_ARGUMENTS[tool.kind])) for tool in tools.values())


def _schema(argument: str) -> Raw:
    """Return the schema of an object with one text."""
    schema = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return Raw(msgspec.json.encode(schema))


# ---- results


def pages_of(call: HostedCall) -> tuple[Citation, ...]:
    """Return the pages that a call finds, without those of domains that its tool excludes."""
    if call.tool.kind == "web_fetch":
        return (Citation(url=call.input, title=f"Page at {call.input}"),)
    if call.tool.kind != "web_search":
        return ()
    sites = [f"https://{domain}/" for domain in call.tool.allowed_domains or ()] or [_SITE]
    slug = hashlib.blake2s(call.input.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    return tuple(Citation(url=f"{site}{slug}", title=f"About {call.input}") for site in sites)


def output_of(call: HostedCall) -> str | None:
    """Return the text that a call yields; None for a search. No program is run."""
    match call.tool.kind:
        case "web_fetch":
            return f"The simulated text of {call.input}."
        case "code_execution":
            return f"simulated output of {len(call.input.splitlines())} lines of code\n"
        case "web_search":
            return None


def describe_calls(calls: Sequence[HostedCall]) -> Text:
    """Return a text about the results of calls that cites the pages."""
    lines, citations, length = [], [], 0
    for call in calls:
        pages = pages_of(call)
        found = " and ".join(page.title or "" for page in pages) or (output_of(call) or "").strip()
        line = f"{call.tool.kind} returned: {found}"
        citations += [
            Citation(url=page.url, title=page.title, quote=page.title, start=length, end=length + len(line))
            for page in pages
        ]
        lines.append(line)
        length += len(line) + 1
    return Text(text="\n".join(lines), annotations=tuple(citations) or None)


def hosted_parts(calls: Sequence[HostedCall], request: Request, protocol: str, nonce: str) -> list[Part]:
    """Return the calls and results that the vendor shows, without ids and signatures where the vendor has none."""
    parts: list[Part] = []
    for number, call in enumerate(calls):
        if not _is_shown(call, request, protocol):
            continue
        id = f"{_ID_PREFIXES.get(protocol, 'hosted')}{nonce[:16]}{number:04x}"
        parts += _call_and_result(call, id)
    return parts


def _is_shown(call: HostedCall, request: Request, protocol: str) -> bool:
    """Return whether the vendor shows a call and its result, not only citations."""
    if protocol in _CITES_ONLY:
        return False
    if protocol != "gemini" or call.tool.kind == "code_execution":
        return True
    shows_calls = (request.extras or {}).get("gemini", {}).get(_SHOWS_CALLS)
    return shows_calls is not None and bytes(shows_calls) == b"true"


def _call_and_result(call: HostedCall, id: str) -> list[Part]:
    """Return a call and its result."""
    kind = call.tool.kind
    asked = HostedUse(
        kind=kind,
        id=id,
        queries=(call.input,) if kind == "web_search" else (),
        urls=(call.input,) if kind == "web_fetch" else (),
        code=call.input if kind == "code_execution" else None,
    )
    answered = HostedUse(kind=kind, id=id, pages=pages_of(call), output=output_of(call))
    return [
        ToolCall(id=id, name=kind, arguments=call.arguments, executor="server", use=asked),
        ToolResult(call_id=id, name=kind, executor="server", use=answered),
    ]
