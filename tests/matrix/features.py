"""Features of a body, the rows of the support matrix: a name, a title and the canonical fields that express it.

Rows name fields of canonical nodes, so that no protocol needs rows of its own. A field without a row counts for the
nearest row around it.
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

Predicate = Callable[[LocatedNode], Any]
EMPTY_VALUES: tuple[Any, ...] = (None, (), "")
"""Values of an absent field."""


class Feature(NamedTuple):
    """A row of the matrix."""

    name: str
    title: str
    kinds: tuple[type[Node], ...]
    fields: tuple[str, ...]  # of a node of these kinds; an empty name is the node itself
    where: Predicate

    def present_fields(self, located: LocatedNode) -> tuple[str, ...]:
        """Return the fields of a node that express the feature."""
        if not isinstance(located.node, self.kinds) or not self.where(located):
            return ()
        fields = [field for field in self.fields if field and getattr(located.node, field, None) not in EMPTY_VALUES]
        return ("", *fields) if "" in self.fields else tuple(fields)


def row(name: str, title: str, kinds: Any, *fields: str, where: Predicate = lambda _: True) -> Feature:
    return Feature(name, title, kinds if isinstance(kinds, tuple) else (kinds,), fields or ("",), where)


def has(**expected: Any) -> Predicate:
    """Match nodes whose fields have these values, or one of them."""

    def where(located: LocatedNode) -> bool:
        return all(
            getattr(located.node, field) in value if isinstance(value, tuple) else getattr(located.node, field) == value
            for field, value in expected.items()
        )

    return where


def marked(mark: str, where: Predicate = lambda _: True) -> Predicate:
    return lambda located: mark in located.marks and where(located)


def unmarked(where: Predicate, *marks: str) -> Predicate:
    return lambda located: located.marks.isdisjoint(marks) and where(located)


def _is_message_text(located: LocatedNode) -> bool:
    """Whether a text is of the user or the assistant and not blank, which some protocols reject."""
    message = located.within(Message)
    inner = located.within(ToolResult) or located.within(Reasoning)
    return (
        message is not None
        and inner is None
        and message.role in ("user", "assistant")
        and bool(located.node.text.strip())
    )


def _is_empty_text(located: LocatedNode) -> bool:
    return not located.node.text.strip() and located.within(Message) is not None and located.within(Reasoning) is None


def _is_leading_system_text(located: LocatedNode) -> bool:
    """Whether a text is system text of the request or of its first messages."""
    message = located.within(Message)
    role = message.role if message is not None else "system"
    return role in ("system", "developer") and "later" not in located.marks and bool(located.node.text.strip())


def _system(located: LocatedNode) -> bool:
    return located.node.role in ("system", "developer") and any(isinstance(part, Text) for part in located.node.parts)


def _media(*kinds: str, source: Any = (Node,), result: bool = False) -> Predicate:
    def where(located: LocatedNode) -> bool:
        inside = (located.within(ToolResult) is not None) is result and located.within(Reasoning) is None
        is_stored_file = isinstance(located.node.source, FileId) and FileId not in source
        return inside and not is_stored_file and located.node.kind in kinds and isinstance(located.node.source, source)

    return where


def _is_client_tool(located: LocatedNode) -> bool:
    """Whether a call or result belongs to a tool that the client declared."""
    return located.node.executor == "client" and located.node.native in (None, "custom")


def _is_client_call(located: LocatedNode) -> bool:
    return _is_client_tool(located) and located.node.shape == "json"


def _client_result(*states: str) -> Predicate:
    return lambda located: _is_client_tool(located) and located.node.status in states


def _by_program(located: LocatedNode) -> bool:
    return located.node.caller is not None and located.node.caller.kind != "direct"


def _native(located: LocatedNode) -> bool:
    return located.node.executor == "client" and located.node.native not in (None, "custom")


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


def _hosted(located: LocatedNode) -> str:
    """Return the first row that a hosted tool matches."""
    if isinstance(located.node, McpServer):
        return "mcp-connector"
    return next(name for name, (_, pattern) in HOSTED.items() if re.search(pattern, located.node.kind))


def _hosted_row(name: str, title: str) -> Feature:
    return row(name, title, (NativeTool, McpServer), where=lambda located: _hosted(located) == name)


def _offered(located: LocatedNode) -> bool:
    return located.marks.isdisjoint({"unchosen"})


_TOOLS = (FunctionTool, FreeformTool)
_USES = (ToolCall, ToolResult)
_SEALED = (Reasoning, Text, Media, ToolCall)
_MARKABLE = (Request, *_TOOLS, ToolGroup, NativeTool, ToolRef, Text, Media, *_USES)
_HIDDEN = has(hidden=("omitted", "redacted"))
_FAILED = ("context_window", "malformed_call", "cancelled", "error", "other")

OWN_FIELDS = "protocol-specific fields"
GUARDS = "constraints"

CONVERSATION = (
    row("text", "text", Text, "", "text", where=unmarked(_is_message_text, "after")),
    row("text-after-calls", "text after calls in one turn", Text, "", "text", where=marked("after", _is_message_text)),
    row("empty-text", "empty text", Text, "", "text", where=_is_empty_text),
    row("system", "leading system text", Text, "", "text", where=_is_leading_system_text),
    row("system-later", "mid-conversation system text", Message, where=marked("later", _system)),
    row("images", "inline images", Media, where=_media("image", source=(Inline,))),
    row("image-urls", "image URLs", Media, where=_media("image", source=(Url,))),
    row("image-detail", "image detail", Media, "detail"),
    row("documents", "documents", Media, where=_media("document")),
    row("audio", "audio", Media, where=_media("audio")),
    row("video", "video", Media, where=_media("video")),
    row("files", "files stored by the provider", Media, where=lambda located: isinstance(located.node.source, FileId)),
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
    row("vendor-parts", "vendor-specific parts", OpaquePart, where=lambda located: located.within(ToolResult) is None),
)

CALLS = (
    row("calls", "calls", ToolCall, "", where=unmarked(_is_client_call, "odd")),
    row(
        "odd-arguments",
        "arguments that are not a JSON object",
        ToolCall,
        "arguments",
        where=marked("odd", _is_client_call),
    ),
    row("parallel-calls", "parallel calls", ToolCall, where=marked("parallel", unmarked(_is_client_call, "odd"))),
    row("call-ids", "call ids", ToolCall, "id", where=_is_client_call),
    row("freeform-calls", "free-text calls", ToolCall, where=has(shape="freeform", native=None)),
    row("native-calls", "vendor tool calls that the client runs", _USES, where=_native),
    row("hosted-calls", "hosted calls", _USES, where=has(executor="server")),
    row("callers", "calls from programs", _USES, "caller", where=_by_program),
    row("toolsets", "toolset of a call", _USES, "toolset"),
    row("results", "results", ToolResult, where=unmarked(_client_result("ok"), "late")),
    row("failed-results", "failed results", ToolResult, "status", where=_client_result("error", "denied")),
    row("late-results", "results not directly after their calls", ToolResult, where=marked("late", _is_client_tool)),
    row("result-pairs", "pairing of results and calls", ToolResult, "call_id", where=unmarked(_is_client_tool, "late")),
    row("result-names", "result names", ToolResult, "name", "namespace", where=_is_client_tool),
    row("result-images", "images in results", Media, where=_media("image", result=True)),
    row("result-media", "other media in results", Media, where=_media("document", "audio", "video", result=True)),
    row(
        "result-vendor-parts",
        "vendor-specific parts in results",
        (OpaquePart, ToolRef),
        where=lambda located: located.within(ToolResult),
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
    row("model", "model", Request, "model", where=lambda located: located.node.messages),
    row("max-tokens", "output limit", Sampling, "max_tokens"),
    row("temperature", "temperature", Sampling, "temperature"),
    row("top-p", "top_p", Sampling, "top_p"),
    row("top-k", "top_k", Sampling, "top_k"),
    row("stop-sequences", "stop sequences", Sampling, "stop"),
    row("seed", "seed", Sampling, "seed"),
    row("penalties", "penalties", Sampling, "frequency_penalty", "presence_penalty"),
    row("several-answers", "several candidates", Sampling, "n", where=lambda located: located.node.n != 1),
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
    row("answer-text", "text", Text, "", "text", where=unmarked(_is_message_text, "after", "more")),
    row(
        "answer-text-after",
        "text after calls",
        Text,
        "",
        "text",
        where=marked("after", unmarked(_is_message_text, "more")),
    ),
    row("answer-empty-text", "empty text", Text, "", "text", where=_is_empty_text),
    row("answer-calls", "calls", ToolCall, "", where=unmarked(_is_client_call, "odd", "more")),
    row(
        "answer-odd-arguments",
        "arguments that are not a JSON object",
        ToolCall,
        "arguments",
        where=marked("odd", _is_client_call),
    ),
    row("answer-parallel", "parallel calls", ToolCall, where=marked("parallel", unmarked(_is_client_call, "odd"))),
    row("answer-call-ids", "call ids", ToolCall, "id", where=unmarked(_is_client_call, "more")),
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
    row("answer-media", "media", Media, where=lambda located: located.within(Reasoning) is None),
    row("answer-vendor-parts", "vendor-specific parts", OpaquePart),
    row("answer-item-ids", "item ids", Message, "id"),
    row("answer-item-states", "item statuses and phases", Message, "status", "phase"),
    row("candidates", "several candidates", Candidate, where=lambda located: located.node.index > 0),
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
"""The rows by heading, with the kind of body that has them."""

PREFIXES = {"request": "", "response": "answer-", "error": "error-"}
"""Prefixes of the rows for vendor-specific values, which are in extras."""
