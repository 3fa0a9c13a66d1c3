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
    "file-search": ("search in stored files", r"^(file_search|retrieval)"),
    "mcp-connector": ("MCP servers that the provider calls", r"mcp"),
    "computer-use": ("computer and browser use", r"computer|browser"),
    "shell-and-edit": ("shell, patches, text editor", r"^(bash|shell|local_shell|apply_patch|text_editor)"),
    "tool-search": ("search among deferred tools", r"tool_search"),
    "other-hosted": ("other tools of vendors", r""),
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

OWN_FIELDS = "fields that only this protocol has"
GUARDS = "what may not be left behind"

CONVERSATION = (
    row("text", "text", Text, "", "text", where=unmarked(_spoken, "after")),
    row("text-after-calls", "text after calls, in one turn", Text, "", "text", where=marked("after", _spoken)),
    row("empty-text", "empty text", Text, "", "text", where=_empty),
    row("system", "system text at the start", Text, "", "text", where=_leading),
    row("system-later", "system text further on", Message, where=marked("later", _system)),
    row("images", "images, as bytes", Media, where=_media("image", source=(Inline,))),
    row("image-urls", "images, by address", Media, where=_media("image", source=(Url,))),
    row("image-detail", "how closely to look at an image", Media, "detail"),
    row("documents", "documents", Media, where=_media("document")),
    row("audio", "audio", Media, where=_media("audio")),
    row("video", "video", Media, where=_media("video")),
    row("files", "files that the provider holds", Media, where=lambda seen: isinstance(seen.node.source, FileId)),
    row("media-names", "names of files", Media, "name"),
    row("media-types", "types of files", Media, "media_type"),
    row("citations", "citations in the history", Text, "annotations"),
    row("refusals", "refusals in the history", Refusal),
    row("speakers", "names of speakers", Message, "name"),
    row("cache-marks", "cache marks", _MARKABLE, "cache"),
    row("item-references", "stored items, by id", ItemRef),
    row("item-ids", "ids of items", Message, "id"),
    row("item-states", "states and phases of items", Message, "status", "phase", "clear_at"),
    row("setting-changes", "settings that change on the way", SettingChange),
    row("vendor-parts", "parts that one vendor has", OpaquePart, where=lambda seen: seen.within(ToolResult) is None),
)

CALLS = (
    row("calls", "calls", ToolCall, "", where=unmarked(_own_call, "odd")),
    row("odd-arguments", "arguments that are no JSON object", ToolCall, "arguments", where=marked("odd", _own_call)),
    row("parallel-calls", "several calls in a turn", ToolCall, where=marked("parallel", unmarked(_own_call, "odd"))),
    row("call-ids", "ids of calls", ToolCall, "id", where=_own_call),
    row("freeform-calls", "calls with free text", ToolCall, where=has(shape="freeform", native=None)),
    row("native-calls", "vendors' calls that the client runs", _USES, where=_native),
    row("hosted-calls", "calls that the provider ran", _USES, where=has(executor="server")),
    row("callers", "calls that a program made", _USES, "caller", where=_by_program),
    row("toolsets", "the toolset of a call", _USES, "toolset"),
    row("results", "results", ToolResult, where=unmarked(_own_result("ok"), "late")),
    row("failed-results", "results that are errors", ToolResult, "status", where=_own_result("error", "denied")),
    row("late-results", "results away from their calls", ToolResult, where=marked("late", _own)),
    row("result-pairs", "which call a result answers", ToolResult, "call_id", where=unmarked(_own, "late")),
    row("result-names", "names of results", ToolResult, "name", "namespace", where=_own),
    row("result-images", "images in results", Media, where=_media("image", result=True)),
    row("result-media", "other media in results", Media, where=_media("document", "audio", "video", result=True)),
    row(
        "result-vendor-parts",
        "vendors' parts in results",
        (OpaquePart, ToolRef),
        where=lambda seen: seen.within(ToolResult),
    ),
    row("result-data", "results that are data, not text", Data),
)

TOOLS = (
    row("functions", "functions", FunctionTool, where=_offered),
    row("schemas", "their JSON schemas", FunctionTool, "parameters", where=_offered),
    row("strict", "strict schemas", FunctionTool, "strict", where=has(strict=True)),
    row("output-schemas", "schemas of results", FunctionTool, "output_schema"),
    row("freeform-tools", "free-text tools", FreeformTool, where=_offered),
    row("grammars", "their grammars", FreeformTool, "grammar", where=_offered),
    row("namespaces", "namespaces", ToolGroup, "", "name", "description"),
    row("deferred", "deferred tools", _TOOLS, "defer", where=has(defer=True)),
    row(
        "asynchronous",
        "asynchronous tools and calls",
        (*_TOOLS, ToolCall),
        "asynchronous",
        where=has(asynchronous=True),
    ),
    row("allowed-callers", "who may call a tool", _TOOLS, "allowed_callers"),
    row("tool-changes", "tools that come and go", ToolChange),
    *(_hosted_row(name, title) for name, (title, _) in HOSTED.items()),
    row("choice-auto", "choice: auto", ToolChoice, "", "mode", where=has(mode="auto")),
    row("choice-none", "choice: none", ToolChoice, "", "mode", where=has(mode="none")),
    row("choice-required", "choice: any, but one", ToolChoice, "", "mode", where=has(mode="required")),
    row(
        "choice-named",
        "choice: this function",
        ToolChoice,
        "",
        "mode",
        "names",
        where=marked("function", has(mode="named")),
    ),
    row(
        "choice-native",
        "choice: this tool of the vendor's",
        ToolChoice,
        "",
        "mode",
        "names",
        where=unmarked(has(mode="named"), "function"),
    ),
    row("choice-allowed", "choice: some of the tools", ToolChoice, "", "mode", "names", where=has(mode="allowed")),
    row("unchosen", "tools that the choice leaves out", _TOOLS, where=marked("unchosen")),
    row("one-call", "one call at a time", ToolChoice, "parallel", where=has(parallel=False)),
)

THINKING = (
    row("thinking-text", "thinking in the history", Reasoning, "", "content", where=has(hidden=None)),
    row("thinking-proof", "proofs: signed, encrypted", _SEALED, "signature"),
    row("thinking-hidden", "thinking without text", Reasoning, where=_HIDDEN),
    row("thinking-switch", "thinking on or off", Thinking, "enabled"),
    row("effort", "effort", Thinking, "effort"),
    row("budget", "a budget of tokens", Thinking, "budget_tokens"),
    row("thinking-shown", "whether thinking is shown", Thinking, "visibility"),
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
    row("several-answers", "several answers", Sampling, "n", where=lambda seen: seen.node.n != 1),
    row("log-probabilities", "log probabilities", Sampling, "logprobs", "top_logprobs"),
    row("output-json", "JSON output", OutputFormat, "", "kind", where=has(kind="json")),
    row("output-schema", "output by a JSON schema", OutputFormat, "", "kind", "schema", where=has(kind="json_schema")),
    row("output-names", "that schema's name, description", OutputFormat, "name", "description"),
    row("output-strict", "that schema strict", OutputFormat, "strict"),
    row("verbosity", "verbosity", OutputFormat, "verbosity"),
    row("stream", "streaming", Request, "stream"),
    row("stream-usage", "usage in the stream", Request, "include_usage"),
    row("end-user", "end user", Request, "end_user"),
    row("labels", "labels", Request, "labels"),
    row("tier", "service tier", Request, "tier"),
    row("previous", "conversations that the provider holds", Continuation, "id"),
    row("store", "whether to store the answer", Continuation, "store"),
    row("background", "answers in the background", Continuation, "background", where=has(background=True)),
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
        "arguments that are no JSON object",
        ToolCall,
        "arguments",
        where=marked("odd", _own_call),
    ),
    row("answer-parallel", "several calls", ToolCall, where=marked("parallel", unmarked(_own_call, "odd"))),
    row("answer-call-ids", "ids of calls", ToolCall, "id", where=unmarked(_own_call, "more")),
    row("answer-freeform", "calls with free text", ToolCall, where=has(shape="freeform", native=None)),
    row("answer-asynchronous", "asynchronous calls", ToolCall, "asynchronous", where=has(asynchronous=True)),
    row("answer-native", "vendors' calls that the client runs", ToolCall, where=_native),
    row("answer-hosted", "calls that the provider ran", _USES, where=has(executor="server")),
    row("answer-callers", "calls that a program made", _USES, "caller", where=_by_program),
    row("answer-toolsets", "the toolset of a call", _USES, "toolset"),
    row("answer-thinking", "thinking", Reasoning, "", "content", where=has(hidden=None)),
    row("answer-proof", "proofs: signed, encrypted", _SEALED, "signature"),
    row("answer-hidden", "thinking without text", Reasoning, where=_HIDDEN),
    row("answer-citations", "citations", Text, "annotations"),
    row("answer-refusals", "refusals, in words", Refusal),
    row("answer-media", "media", Media, where=lambda seen: seen.within(Reasoning) is None),
    row("answer-vendor-parts", "parts that one vendor has", OpaquePart),
    row("answer-item-ids", "ids of items", Message, "id"),
    row("answer-item-states", "states and phases of items", Message, "status", "phase"),
    row("candidates", "several answers", Candidate, where=lambda seen: seen.node.index > 0),
    row("stop-done", "stop: done", Stop, "reason", "raw", where=unmarked(has(reason="end_turn"), "more")),
    row("stop-calls", "stop: calls made", Stop, "reason", "raw", where=unmarked(has(reason="tool_use"), "more")),
    row("stop-limit", "stop: limit met", Stop, "reason", "raw", where=unmarked(has(reason="max_tokens"), "more")),
    row("stop-sequence", "stop: a stop sequence", Stop, "reason", "raw", "sequence", where=has(reason="stop_sequence")),
    row("stop-refused", "stop: refused, filtered", Stop, "reason", "raw", where=has(reason=("refusal", "filtered"))),
    row("stop-paused", "stop: to be continued", Stop, "reason", "raw", where=has(reason=("paused", "continuation"))),
    row("stop-failed", "stop: cancelled, failed, other", Stop, "reason", "raw", where=has(reason=_FAILED)),
    row("usage", "usage: input and output", Usage, "input_tokens", "output_tokens"),
    row("usage-total", "usage: total", Usage, "total"),
    row("usage-cache", "usage: cache", Usage, "cache_read", "cache_write"),
    row("usage-thinking", "usage: thinking", Usage, "reasoning"),
    row("usage-tools", "usage: tools", Usage, "tool_use"),
    row("usage-searches", "usage: searches and fetches", Usage, "searches", "fetches"),
    row("answer-id", "id of the answer", Response, "id"),
    row("answer-model", "model", Response, "model"),
    row("answer-created", "when it was made", Response, "created"),
    row("answer-status", "state of the answer", Response, "status"),
    row("answer-previous", "conversations that the provider holds", Continuation, "id", "store", "background"),
    row("answer-errors", "failures inside an answer", ApiError),
    row("answer-guards", GUARDS, ()),
    row("answer-own-fields", OWN_FIELDS, ()),
)

ERRORS = (
    row("error-message", "message", ApiError, "message"),
    row("error-kind", "kind", ApiError, "raw"),
    row("error-code", "code", ApiError, "code"),
    row("error-parameter", "the field at fault", ApiError, "param"),
    row("error-request-id", "id of the request", ApiError, "request_id"),
    row("error-own-fields", OWN_FIELDS, ()),
)

GROUPS: dict[str, tuple[str, tuple[Feature, ...]]] = {
    "Conversation": ("request", CONVERSATION),
    "Calls and results": ("request", CALLS),
    "Tools": ("request", TOOLS),
    "Thinking": ("request", THINKING),
    "Settings": ("request", SETTINGS),
    "Answers": ("response", ANSWERS),
    "Errors": ("error", ERRORS),
}
"""The rows by heading, and what they are looked for in."""

PREFIXES = {"request": "", "response": "answer-", "error": "error-"}
"""What the rows for values without a canonical home start with: they are found in extras, not in fields."""
