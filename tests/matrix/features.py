"""What a body can say, as rows of the support matrix: each a name, and where it is found in a canonical value.

A row names fields of canonical nodes, so that no protocol needs a row of its own: whatever its decoder understands is
found. A field that no row names counts with the nearest row around it.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.matrix.located_nodes import LocatedNode
from toolwire.canonical.content import (
    Data,
    FileId,
    Inline,
    ItemRef,
    Media,
    Message,
    OpaquePart,
    Reasoning,
    Refusal,
    SettingChange,
    Text,
    ToolCall,
    ToolChange,
    ToolResult,
    Url,
)
from toolwire.canonical.errors import ApiError
from toolwire.canonical.node import Node
from toolwire.canonical.request import Continuation, Request
from toolwire.canonical.response import Candidate, Response, Stop, Usage
from toolwire.canonical.tools import (
    FreeformTool,
    FunctionTool,
    McpServer,
    NativeTool,
    OutputFormat,
    Sampling,
    Thinking,
    ToolChoice,
    ToolGroup,
    ToolRef,
)

Where = Callable[[LocatedNode], Any]
UNSAID: tuple[Any, ...] = (None, (), "")
"""What a field is where nothing is said in it."""


class Feature(NamedTuple):
    """A row. `fields` are those of a node of these kinds; an empty name is the node itself."""

    name: str
    title: str
    kinds: tuple[type[Node], ...]
    fields: tuple[str, ...]
    where: Where

    def found(self, seen: LocatedNode) -> tuple[str, ...]:
        if not isinstance(seen.node, self.kinds) or not self.where(seen):
            return ()
        named = [field for field in self.fields if field and getattr(seen.node, field, None) not in UNSAID]
        return ("", *named) if "" in self.fields else tuple(named)


def row(name: str, title: str, kinds: Any, *fields: str, where: Where = lambda _: True) -> Feature:
    return Feature(name, title, kinds if isinstance(kinds, tuple) else (kinds,), fields or ("",), where)


def has(**wanted: Any) -> Where:
    """The node's own fields have these values, or one of them."""

    def where(seen: LocatedNode) -> bool:
        return all(
            getattr(seen.node, field) in value if isinstance(value, tuple) else getattr(seen.node, field) == value
            for field, value in wanted.items()
        )

    return where


def marked(mark: str, where: Where = lambda _: True) -> Where:
    return lambda seen: mark in seen.marks and where(seen)


def unmarked(where: Where, *marks: str) -> Where:
    return lambda seen: seen.marks.isdisjoint(marks) and where(seen)


def _spoken(seen: LocatedNode) -> bool:
    """Text that user or assistant say themselves. In some protocols empty text can't be said."""
    message = seen.within(Message)
    inner = seen.within(ToolResult) or seen.within(Reasoning)
    return (
        message is not None and inner is None and message.role in ("user", "assistant") and bool(seen.node.text.strip())
    )


def _empty(seen: LocatedNode) -> bool:
    return not seen.node.text.strip() and seen.within(Message) is not None and seen.within(Reasoning) is None


def _leading(seen: LocatedNode) -> bool:
    """System text of a request's own, or of the messages that it starts with."""
    message = seen.within(Message)
    role = message.role if message is not None else "system"
    return role in ("system", "developer") and "later" not in seen.marks and bool(seen.node.text.strip())


def _system(seen: LocatedNode) -> bool:
    return seen.node.role in ("system", "developer") and any(isinstance(part, Text) for part in seen.node.parts)


def _media(*kinds: str, source: Any = (Node,), result: bool = False) -> Where:
    def where(seen: LocatedNode) -> bool:
        inside = (seen.within(ToolResult) is not None) is result and seen.within(Reasoning) is None
        held = isinstance(seen.node.source, FileId) and FileId not in source
        return inside and not held and seen.node.kind in kinds and isinstance(seen.node.source, source)

    return where


def _own(seen: LocatedNode) -> bool:
    """A call or result that the client has to do with, of a tool that it declared."""
    return seen.node.executor == "client" and seen.node.native in (None, "custom")


def _own_call(seen: LocatedNode) -> bool:
    return _own(seen) and seen.node.shape == "json"


def _own_result(*states: str) -> Where:
    return lambda seen: _own(seen) and seen.node.status in states


def _by_program(seen: LocatedNode) -> bool:
    return seen.node.caller is not None and seen.node.caller.kind != "direct"


def _native(seen: LocatedNode) -> bool:
    return seen.node.executor == "client" and seen.node.native not in (None, "custom")


HOSTED = {
    "web-search": ("web search", r"web_search|google_search"),
    "web-fetch": ("web fetch", r"web_fetch|url_context"),
    "code-execution": ("code execution", r"^code_"),
    "file-search": ("file search", r"^(file_search|retrieval)"),
    "mcp-connector": ("MCP connector", r"mcp"),
    "computer-use": ("computer and browser use", r"computer|browser"),
    "shell-and-edit": ("shell, patch and text editor tools", r"^(bash|shell|local_shell|apply_patch|text_editor)"),
    "tool-search": ("tool search", r"tool_search"),
    "other-hosted": ("other vendor tools", r""),
}


def _hosted(seen: LocatedNode) -> str:
    """The first row that a vendor's tool fits."""
    if isinstance(seen.node, McpServer):
        return "mcp-connector"
    return next(name for name, (_, pattern) in HOSTED.items() if re.search(pattern, seen.node.kind))


def _hosted_row(name: str, title: str) -> Feature:
    return row(name, title, (NativeTool, McpServer), where=lambda seen: _hosted(seen) == name)


def _offered(seen: LocatedNode) -> bool:
    return seen.marks.isdisjoint({"unchosen"})


_TOOLS = (FunctionTool, FreeformTool)
_USES = (ToolCall, ToolResult)
_SEALED = (Reasoning, Text, Media, ToolCall)
_MARKABLE = (Request, *_TOOLS, ToolGroup, NativeTool, ToolRef, Text, Media, *_USES)
_HIDDEN = has(hidden=("omitted", "redacted"))
_FAILED = ("context_window", "malformed_call", "cancelled", "error", "other")

OWN_FIELDS = "protocol-specific fields"
GUARDS = "constraints"

CONVERSATION = (
    row("text", "text", Text, "", "text", where=unmarked(_spoken, "after")),
    row("text-after-calls", "text after calls in one turn", Text, "", "text", where=marked("after", _spoken)),
    row("empty-text", "empty text", Text, "", "text", where=_empty),
    row("system", "leading system text", Text, "", "text", where=_leading),
    row("system-later", "mid-conversation system text", Message, where=marked("later", _system)),
    row("images", "inline images", Media, where=_media("image", source=(Inline,))),
    row("image-urls", "image URLs", Media, where=_media("image", source=(Url,))),
    row("image-detail", "image detail", Media, "detail"),
    row("documents", "documents", Media, where=_media("document")),
    row("audio", "audio", Media, where=_media("audio")),
    row("video", "video", Media, where=_media("video")),
    row("files", "files stored by the provider", Media, where=lambda seen: isinstance(seen.node.source, FileId)),
    row("media-names", "file names", Media, "name"),
    row("media-types", "file types", Media, "media_type"),
    row("citations", "citations in the history", Text, "annotations"),
    row("refusals", "refusals in the history", Refusal),
    row("speakers", "speaker names", Message, "name"),
    row("cache-marks", "cache marks", _MARKABLE, "cache"),
    row("item-references", "references to stored items", ItemRef),
    row("item-ids", "item ids", Message, "id"),
    row("item-states", "item statuses and phases", Message, "status", "phase", "clear_at"),
    row("setting-changes", "mid-conversation settings", SettingChange),
    row("vendor-parts", "vendor-specific parts", OpaquePart, where=lambda seen: seen.within(ToolResult) is None),
)

CALLS = (
    row("calls", "calls", ToolCall, "", where=unmarked(_own_call, "odd")),
    row("odd-arguments", "arguments that are not a JSON object", ToolCall, "arguments", where=marked("odd", _own_call)),
    row("parallel-calls", "parallel calls", ToolCall, where=marked("parallel", unmarked(_own_call, "odd"))),
    row("call-ids", "call ids", ToolCall, "id", where=_own_call),
    row("freeform-calls", "free-text calls", ToolCall, where=has(shape="freeform", native=None)),
    row("native-calls", "vendor tool calls that the client runs", _USES, where=_native),
    row("hosted-calls", "hosted calls", _USES, where=has(executor="server")),
    row("callers", "calls from programs", _USES, "caller", where=_by_program),
    row("toolsets", "toolset of a call", _USES, "toolset"),
    row("results", "results", ToolResult, where=unmarked(_own_result("ok"), "late")),
    row("failed-results", "failed results", ToolResult, "status", where=_own_result("error", "denied")),
    row("late-results", "results not directly after their calls", ToolResult, where=marked("late", _own)),
    row("result-pairs", "pairing of results and calls", ToolResult, "call_id", where=unmarked(_own, "late")),
    row("result-names", "result names", ToolResult, "name", "namespace", where=_own),
    row("result-images", "images in results", Media, where=_media("image", result=True)),
    row("result-media", "other media in results", Media, where=_media("document", "audio", "video", result=True)),
    row(
        "result-vendor-parts",
        "vendor-specific parts in results",
        (OpaquePart, ToolRef),
        where=lambda seen: seen.within(ToolResult),
    ),
    row("result-data", "structured results", Data),
)

TOOLS = (
    row("functions", "functions", FunctionTool, where=_offered),
    row("schemas", "JSON schemas of functions", FunctionTool, "parameters", where=_offered),
    row("strict", "strict schemas", FunctionTool, "strict", where=has(strict=True)),
    row("output-schemas", "result schemas", FunctionTool, "output_schema"),
    row("freeform-tools", "free-text tools", FreeformTool, where=_offered),
    row("grammars", "grammars of free-text tools", FreeformTool, "grammar", where=_offered),
    row("namespaces", "namespaces", ToolGroup, "", "name", "description"),
    row("deferred", "deferred tools", _TOOLS, "defer", where=has(defer=True)),
    row(
        "asynchronous",
        "asynchronous tools and calls",
        (*_TOOLS, ToolCall),
        "asynchronous",
        where=has(asynchronous=True),
    ),
    row("allowed-callers", "allowed callers", _TOOLS, "allowed_callers"),
    row("tool-changes", "tool list changes", ToolChange),
    *(_hosted_row(name, title) for name, (title, _) in HOSTED.items()),
    row("choice-auto", "tool choice: auto", ToolChoice, "", "mode", where=has(mode="auto")),
    row("choice-none", "tool choice: none", ToolChoice, "", "mode", where=has(mode="none")),
    row("choice-required", "tool choice: required", ToolChoice, "", "mode", where=has(mode="required")),
    row(
        "choice-named",
        "tool choice: a named function",
        ToolChoice,
        "",
        "mode",
        "names",
        where=marked("function", has(mode="named")),
    ),
    row(
        "choice-native",
        "tool choice: a vendor tool",
        ToolChoice,
        "",
        "mode",
        "names",
        where=unmarked(has(mode="named"), "function"),
    ),
    row("choice-allowed", "tool choice: allowed tools", ToolChoice, "", "mode", "names", where=has(mode="allowed")),
    row("unchosen", "tools excluded by the choice", _TOOLS, where=marked("unchosen")),
    row("one-call", "no parallel calls", ToolChoice, "parallel", where=has(parallel=False)),
)

THINKING = (
    row("thinking-text", "thinking in the history", Reasoning, "", "content", where=has(hidden=None)),
    row("thinking-proof", "signatures, encrypted content", _SEALED, "signature"),
    row("thinking-hidden", "thinking without text", Reasoning, where=_HIDDEN),
    row("thinking-switch", "thinking on or off", Thinking, "enabled"),
    row("effort", "effort", Thinking, "effort"),
    row("budget", "thinking budget", Thinking, "budget_tokens"),
    row("thinking-shown", "visibility of thinking", Thinking, "visibility"),
)

SETTINGS = (
    row("model", "model", Request, "model", where=lambda seen: seen.node.messages),
    row("max-tokens", "output limit", Sampling, "max_tokens"),
    row("temperature", "temperature", Sampling, "temperature"),
    row("top-p", "top_p", Sampling, "top_p"),
    row("top-k", "top_k", Sampling, "top_k"),
    row("stop-sequences", "stop sequences", Sampling, "stop"),
    row("seed", "seed", Sampling, "seed"),
    row("penalties", "penalties", Sampling, "frequency_penalty", "presence_penalty"),
    row("several-answers", "several candidates", Sampling, "n", where=lambda seen: seen.node.n != 1),
    row("log-probabilities", "logprobs", Sampling, "logprobs", "top_logprobs"),
    row("output-json", "JSON output", OutputFormat, "", "kind", where=has(kind="json")),
    row("output-schema", "output schema", OutputFormat, "", "kind", "schema", where=has(kind="json_schema")),
    row("output-names", "output schema: name, description", OutputFormat, "name", "description"),
    row("output-strict", "output schema: strict", OutputFormat, "strict"),
    row("verbosity", "verbosity", OutputFormat, "verbosity"),
    row("stream", "streaming", Request, "stream"),
    row("stream-usage", "usage in the stream", Request, "include_usage"),
    row("end-user", "end user", Request, "end_user"),
    row("labels", "labels", Request, "labels"),
    row("tier", "service tier", Request, "tier"),
    row("previous", "conversations stored by the provider", Continuation, "id"),
    row("store", "storing the response", Continuation, "store"),
    row("background", "background responses", Continuation, "background", where=has(background=True)),
    row("guards", GUARDS, ()),
    row("own-fields", OWN_FIELDS, ()),
)

ANSWERS = (
    row("answer-text", "text", Text, "", "text", where=unmarked(_spoken, "after", "more")),
    row("answer-text-after", "text after calls", Text, "", "text", where=marked("after", unmarked(_spoken, "more"))),
    row("answer-empty-text", "empty text", Text, "", "text", where=_empty),
    row("answer-calls", "calls", ToolCall, "", where=unmarked(_own_call, "odd", "more")),
    row(
        "answer-odd-arguments",
        "arguments that are not a JSON object",
        ToolCall,
        "arguments",
        where=marked("odd", _own_call),
    ),
    row("answer-parallel", "parallel calls", ToolCall, where=marked("parallel", unmarked(_own_call, "odd"))),
    row("answer-call-ids", "call ids", ToolCall, "id", where=unmarked(_own_call, "more")),
    row("answer-freeform", "free-text calls", ToolCall, where=has(shape="freeform", native=None)),
    row("answer-asynchronous", "asynchronous calls", ToolCall, "asynchronous", where=has(asynchronous=True)),
    row("answer-native", "vendor tool calls that the client runs", ToolCall, where=_native),
    row("answer-hosted", "hosted calls", _USES, where=has(executor="server")),
    row("answer-callers", "calls from programs", _USES, "caller", where=_by_program),
    row("answer-toolsets", "toolset of a call", _USES, "toolset"),
    row("answer-thinking", "thinking", Reasoning, "", "content", where=has(hidden=None)),
    row("answer-proof", "signatures, encrypted content", _SEALED, "signature"),
    row("answer-hidden", "thinking without text", Reasoning, where=_HIDDEN),
    row("answer-citations", "citations", Text, "annotations"),
    row("answer-refusals", "refusal text", Refusal),
    row("answer-media", "media", Media, where=lambda seen: seen.within(Reasoning) is None),
    row("answer-vendor-parts", "vendor-specific parts", OpaquePart),
    row("answer-item-ids", "item ids", Message, "id"),
    row("answer-item-states", "item statuses and phases", Message, "status", "phase"),
    row("candidates", "several candidates", Candidate, where=lambda seen: seen.node.index > 0),
    row("stop-done", "stop: done", Stop, "reason", "raw", where=unmarked(has(reason="end_turn"), "more")),
    row("stop-calls", "stop: tool calls", Stop, "reason", "raw", where=unmarked(has(reason="tool_use"), "more")),
    row("stop-limit", "stop: limit reached", Stop, "reason", "raw", where=unmarked(has(reason="max_tokens"), "more")),
    row("stop-sequence", "stop: a stop sequence", Stop, "reason", "raw", "sequence", where=has(reason="stop_sequence")),
    row("stop-refused", "stop: refused, filtered", Stop, "reason", "raw", where=has(reason=("refusal", "filtered"))),
    row("stop-paused", "stop: paused", Stop, "reason", "raw", where=has(reason=("paused", "continuation"))),
    row("stop-failed", "stop: cancelled, failed, other", Stop, "reason", "raw", where=has(reason=_FAILED)),
    row("usage", "usage: input and output", Usage, "input_tokens", "output_tokens"),
    row("usage-total", "usage: total", Usage, "total"),
    row("usage-cache", "usage: cache", Usage, "cache_read", "cache_write"),
    row("usage-thinking", "usage: thinking", Usage, "reasoning"),
    row("usage-tools", "usage: tools", Usage, "tool_use"),
    row("usage-searches", "usage: searches and fetches", Usage, "searches", "fetches"),
    row("answer-id", "response id", Response, "id"),
    row("answer-model", "model", Response, "model"),
    row("answer-created", "creation time", Response, "created"),
    row("answer-status", "response status", Response, "status"),
    row("answer-previous", "conversations stored by the provider", Continuation, "id", "store", "background"),
    row("answer-errors", "errors inside a response", ApiError),
    row("answer-guards", GUARDS, ()),
    row("answer-own-fields", OWN_FIELDS, ()),
)

ERRORS = (
    row("error-message", "message", ApiError, "message"),
    row("error-kind", "kind", ApiError, "raw"),
    row("error-code", "code", ApiError, "code"),
    row("error-parameter", "parameter", ApiError, "param"),
    row("error-request-id", "request id", ApiError, "request_id"),
    row("error-own-fields", OWN_FIELDS, ()),
)

GROUPS: dict[str, tuple[str, tuple[Feature, ...]]] = {
    "Conversation": ("request", CONVERSATION),
    "Calls and results": ("request", CALLS),
    "Tools": ("request", TOOLS),
    "Thinking": ("request", THINKING),
    "Settings": ("request", SETTINGS),
    "Responses": ("response", ANSWERS),
    "Errors": ("error", ERRORS),
}
"""The rows by heading, and what they are looked for in."""

PREFIXES = {"request": "", "response": "answer-", "error": "error-"}
"""What the rows for values without a canonical home start with: they are found in extras, not in fields."""
