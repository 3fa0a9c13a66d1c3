"""Every rule of the Anthropic Messages API, with a body that breaks only this rule and the server's error message."""

import inspect
import re
from typing import Any

import pytest

from toolwire.codec.validation import Finding
from toolwire.protocols.anthropic import fields, rules

USER = {"role": "user", "content": "Weather in Paris?"}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Paris"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "18C"}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
SEARCH_RESULT = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CLOSED = {**SCHEMA, "additionalProperties": False}
TOOL = {"name": "get_weather", "input_schema": SCHEMA}
WEB_SEARCH = {"type": "web_search_20260318", "name": "web_search"}
CACHED = {"cache_control": {"type": "ephemeral"}}
PROGRAM = {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}
IMAGE = {"type": "image", "source": {"type": "url", "url": "https://a/b.png"}}
DOCUMENT = {"type": "document", "source": {"type": "url", "url": "https://a/b.pdf"}}
COMPUTERS = {"type": "computer_toolset_20260801"}
COMPUTER = {"type": "computer_20251124", "name": "computer", "display_width_px": 1, "display_height_px": 1}
FORMAT = {"format": {"type": "json_schema", "schema": CLOSED}}
PROGRAMMATIC = {**TOOL, "allowed_callers": ["code_execution_20260120"]}
CODE = {"type": "code_execution_20260120", "name": "code_execution"}
WIKI = {"type": "mcp_toolset", "mcp_server_name": "wiki"}
WIKI_SERVERS = [{"type": "url", "name": "wiki", "url": "https://wiki.example/mcp"}]


def body(*messages: Any, **changes: Any) -> dict[str, Any]:
    base = {"model": "a-model", "max_tokens": 4096, "messages": [*(messages or (USER,))], "tools": [TOOL]}
    return {name: value for name, value in {**base, **changes}.items() if value is not ...}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [*blocks]}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": [*blocks]}


def system(text: str = "Be brief.") -> dict[str, Any]:
    return {"role": "system", "content": text}


def text(content: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": content, **fields}


def inline(media_type: str, data: str) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def tool(**changes: Any) -> dict[str, Any]:
    return {**TOOL, **changes}


def no_result(at: str, ids: str) -> str:
    return (
        f"{at}: `tool_use` ids were found without `tool_result` blocks immediately after: {ids}. Each `tool_use` block "
        "must have a corresponding `tool_result` block in the next message."
    )


SYSTEM_PLACEMENT = (
    "{}: a `system` message must follow a `user` message or a server tool result, "
    "and be last or before an `assistant` message"
)
EXTRA = "{}: Extra inputs are not permitted"
EMPTY = "messages: text content blocks must be non-empty"

# fmt: off
BAD: list[tuple[Any, str, str, str]] = [
    ([], "body", "", "Input should be a valid dictionary"),
    # fields
    (body(max_tokens=...), "field-missing", "/max_tokens", "max_tokens: Field required"),
    (body(max_tokens="many"), "field-type", "/max_tokens", "max_tokens: Input should be a valid integer"),
    (body(system=5), "field-type", "/system", "system: Input should be a valid string or list"),
    (body({"role": "tool", "content": "x"}),
     "field-word", "/messages/0/role", "messages.0.role: Input should be 'user', 'assistant' or 'system'"),
    (body(USER, assistant({**CALL, "input": "{}"}), user(RESULT)),
     "field-type", "/messages/1/content/0/input",
     "messages.1.content.0.tool_use.input: Input should be a valid dictionary"),
    (body(user(inline("image/bmp", "QUJD"))),
     "field-word", "/messages/0/content/0/source/media_type",
     ("messages.0.content.0.source.base64.media_type: "
      "Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'")),
    (body(parallel_tool_calls=False), "field-foreign", "/parallel_tool_calls", EXTRA.format("parallel_tool_calls")),
    (body(USER, {"role": "user", "content": "x", "tool_call_id": "call_1"}),
     "field-foreign", "/messages/1/tool_call_id", EXTRA.format("messages.1.tool_call_id")),
    (body(thinking={"type": "between_tools", "display": "omitted"}),
     "field-foreign", "/thinking/display", EXTRA.format("thinking.display")),
    (body(tools=[TOOL, {"type": "computer_toolset_20260801", "name": "computer"}]),
     "field-foreign", "/tools/1/name", EXTRA.format("tools.1.name")),
    (body(user({"type": "image_url", "image_url": {"url": "https://a/b.png"}})),
     "tag-unknown", "/messages/0/content/0",
     "messages.0.content.0: Input tag 'image_url' found using 'type' does not match any of the expected tags"),
    (body(tools=[{"type": "function", "function": {"name": "f"}}]),
     "tag-unknown", "/tools/0",
     "tools.0: Input tag 'function' found using 'type' does not match any of the expected tags"),
    (body(user({"type": "thinking", "thinking": "", "signature": "c2ln"})),
     "block-role", "/messages/0/content/0",
     "messages.0.content.0: `thinking` blocks can only be in `assistant` messages"),
    (body(user(inline("image/png", "data:image/png;base64,QUJD"))),
     "base64-data-url", "/messages/0/content/0/source/data",
     "messages.0.content.0.source.data: Invalid base64 data"),
    # messages
    (body(messages=[]), "messages-empty", "/messages", "messages: at least one message is required"),
    (body(messages=[USER] * 100_001), "messages-limit", "/messages", "messages: List should have at most 100000 items"),
    (body({"role": "user", "content": ""}),
     "message-empty", "/messages/0",
     "messages.0: all messages must have non-empty content except for the optional final assistant message"),
    (body(user(text(""))), "text-empty", "/messages/0/content/0", EMPTY),
    (body(system=[text("")]), "text-empty", "/system/0", EMPTY),
    (body(USER, assistant(CALL), user({**RESULT, "content": [text("")]})),
     "text-empty", "/messages/2/content/0/content/0", EMPTY),
    (body(user(text(" \n"))),
     "text-blank", "/messages/0/content/0", "messages: text content blocks must contain non-whitespace text"),
    (body(USER, assistant(text("The weather")), model="claude-opus-4-6"),
     "prefill", "/messages/1",
     "This model does not support assistant message prefill. The conversation must end with a user message."),
    (body(USER, {"role": "assistant", "content": "The weather "}),
     "prefill-whitespace", "/messages/1/content",
     "messages: final assistant content cannot end with trailing whitespace"),
    (body(USER, assistant(text("{")), output_config=FORMAT),
     "format-prefill", "/messages/1", "output_config.format is incompatible with message prefill"),
    (body(system(), USER),
     "system-placement", "/messages/0",
     SYSTEM_PLACEMENT.format("messages.0")),
    (body(USER, system(), USER),
     "system-placement", "/messages/1",
     SYSTEM_PLACEMENT.format("messages.1")),
    (body(USER, assistant(CALL), system(), user(RESULT)),
     "system-placement", "/messages/2",
     SYSTEM_PLACEMENT.format("messages.2")),
    (body(USER, system(), model="claude-sonnet-5"),
     "system-model", "/messages/1", "role 'system' is not supported on this model"),
    (body(USER, {"role": "system", "clear_at": "never"}),
     "system-empty", "/messages/1", "messages.1: a `system` message must have content or output_config"),
    # calls and results
    (body(USER, assistant({**CALL, "id": "call:1"}), user({**RESULT, "tool_use_id": "call:1"})),
     "call-id", "/messages/1/content/0/id",
     "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"),
    (body(USER, assistant({**SEARCH, "id": "ws_1"}, {**SEARCH_RESULT, "tool_use_id": "ws_1"}), USER),
     "call-id", "/messages/1/content/0/id",
     "messages.1.content.0.server_tool_use.id: String should match pattern '^srvtoolu_[a-zA-Z0-9_]+$'"),
    (body(USER, assistant(CALL, CALL), user(RESULT)),
     "call-id-duplicate", "/messages/1/content/1", "messages.1.content.1: `tool_use` ids must be unique"),
    (body(USER, assistant(CALL)), "result-missing", "/messages/1", no_result("messages.1", "toolu_1")),
    (body(USER, assistant(CALL, {**CALL, "id": "toolu_2"}, {**CALL, "id": "toolu_3"}), user(RESULT)),
     "result-missing", "/messages/1", no_result("messages.1", "toolu_2, toolu_3")),
    (body(USER, assistant(CALL), user(text("Here:"), RESULT)),
     "result-not-first", "/messages/2/content/1", no_result("messages.2.content.1", "toolu_1")),
    (body(user(RESULT)),
     "result-orphan", "/messages/0/content/0",
     ("messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1. "
      "Each `tool_result` block must have a corresponding `tool_use` block in the previous message.")),
    (body(USER, assistant(CALL), user(RESULT, RESULT)),
     "result-duplicate", "/messages/2/content/1",
     ("messages.2.content.1: each tool_use must have a single result. "
      "Found multiple `tool_result` blocks with id: toolu_1")),
    (body(USER, assistant(CALL), user({"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True})),
     "result-error-empty", "/messages/2/content/0",
     "messages.2.content.0: content cannot be empty if `is_error` is true"),
    (body(USER, assistant(CALL), user({**RESULT, "is_error": True, "content": [IMAGE]})),
     "result-error-text", "/messages/2/content/0",
     "messages.2.content.0: all content must be type `text` if `is_error` is true"),
    (body(USER, assistant(SEARCH), USER),
     "server-result-missing", "/messages/1/content/0",
     ("messages.1.content.0: `web_search` tool use with id `srvtoolu_1` was found "
      "without a corresponding `web_search_tool_result` block")),
    (body(USER, assistant(SEARCH_RESULT), USER),
     "server-result-orphan", "/messages/1/content/0",
     ("messages.1.content.0: unexpected `tool_use_id` found in `web_search_tool_result` blocks: srvtoolu_1. "
      "Each `web_search_tool_result` block must have a corresponding `server_tool_use` block before it.")),
    (body(USER, assistant(SEARCH)),
     "server-tool-absent", "/messages/1/content/0",
     ("messages.1.content.0: `web_search` tool use with id `srvtoolu_1` was found, "
      "but no `web_search` tool was provided")),
    (body(USER, assistant({**CALL, "caller": PROGRAM}), user(RESULT)),
     "container-missing", "/messages/1/content/0",
     "container_id is required when there are pending tool uses generated by code execution with tools."),
    # tools
    (body(user(*(text("x", **CACHED) for _ in range(4))), **CACHED),
     "cache-limit", "/messages/0/content/3/cache_control",
     "A maximum of 4 blocks with cache_control may be provided. Found 5."),
    (body(user(text("x", cache_control={"type": "ephemeral", "ttl": "1h"})), tools=[tool(**CACHED)]),
     "cache-order", "/messages/0/content/0/cache_control/ttl",
     ("messages.0.content.0.cache_control.ttl: "
      "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. "
      "Note that blocks are processed in the following order: `tools`, `system`, `messages`.")),
    (body(tools=[tool(name="get.weather")]),
     "tool-name", "/tools/0/name", "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"),
    (body(tools=[{**WEB_SEARCH, "name": "search"}]),
     "tool-name-fixed", "/tools/0/name", "tools.0.web_search_20260318.name: Input should be 'web_search'"),
    (body(tools=[TOOL, TOOL]), "tool-names-unique", "/tools/1", "tools: Tool names must be unique."),
    (body(tools=[tool(input_schema={})]),
     "tool-schema-type", "/tools/0/input_schema/type", "tools.0.custom.input_schema.type: Field required"),
    (body(tools=[tool(input_schema={**SCHEMA, "anyOf": [{"required": ["city"]}]})]),
     "tool-schema-union", "/tools/0/input_schema",
     "tools.0.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"),
    (body(tools=[tool(input_schema={"type": "object", "properties": {"city": {"type": "string", "enum": "a"}}})]),
     "tool-schema", "/tools/0/input_schema",
     "tools.0.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12"),
    (body(tools=[tool(input_schema={"type": "object", "properties": {"a/b": {"type": "string"}}})]),
     "tool-property-name", "/tools/0/input_schema/properties/a~1b",
     "tools.0.custom.input_schema.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'"),
    (body(tools=[{**WEB_SEARCH, "allowed_domains": ["a.org"], "blocked_domains": ["b.org"]}]),
     "tool-domains", "/tools/0", "tools.0: only one of allowed_domains and blocked_domains may be given"),
    (body(tools=[TOOL, {**TOOL, **CACHED, "name": "other", "defer_loading": True}]),
     "tool-deferred-cached", "/tools/1/cache_control",
     "Tool 'other' cannot have both defer_loading=true and cache_control set."),
    (body(tools=[{"type": "computer_20251124", "name": "computer", "display_height_px": 1}]),
     "tool-display", "/tools/0/display_width_px", "tools.0.computer_20251124.display_width_px: Field required"),
    (body(USER, {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "screenshot", "input": {},
                                                "toolset_name": "computer"}]},
          {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}, tools=[COMPUTERS]),
     "result-toolset", "/messages/2/content/0",
     "messages.2.content.0: `toolset_name` must be that of the `tool_use` block it answers: 'computer'."),
    (body(model="claude-opus-5-5", tools=[COMPUTER]),
     "tool-model", "/tools/0",
     "'claude-opus-5-5' does not support tool types: computer_20251124."),
    (body(tools=[tool(defer_loading=True)]),
     "tools-all-deferred", "/tools", "At least one tool must have defer_loading=false. All tools cannot be deferred."),
    (body(tools=[tool(name=f"t{n}", strict=True, input_schema=CLOSED) for n in range(21)]),
     "strict-limit", "/tools", "Schema is too complex for compilation."),
    (body(tools=[tool(strict=True)]),
     "strict-object", "/tools/0/input_schema",
     "tools.0.input_schema: For 'object' type, 'additionalProperties' must be explicitly set to false"),
    (body(tools=[tool(strict=True, input_schema={**CLOSED, "properties": {"n": {"type": "integer", "minimum": 1}}})] ),
     "strict-keyword", "/tools/0/input_schema/properties/n/minimum",
     "tools.0.input_schema.properties.n.minimum: schema keyword 'minimum' is not supported in strict schemas"),
    (body(tools=[tool(strict=True, input_schema=CLOSED, allowed_callers=["code_execution_20260120"]), CODE]),
     "strict-programmatic", "/tools/0", "tools.0: strict is not supported with programmatic tool calling"),
    (body(USER, assistant(CALL), user({**RESULT, "content": [{"type": "tool_reference", "tool_name": "lost"}]})),
     "tool-reference-unknown", "/messages/2/content/0/content/0", "Tool reference 'lost' not found in available tools"),
    (body(tools=[{"type": "mcp_toolset", "mcp_server_name": "wiki"}]),
     "mcp-server-unknown", "/tools/0/mcp_server_name",
     "tools.0.mcp_server_name: MCP server 'wiki' not found in mcp_servers"),
    # programmatic tool calling
    (body(tools=[{**WIKI, "allowed_callers": ["code_execution_20260120"]}, CODE], mcp_servers=WIKI_SERVERS),
     "mcp-programmatic", "/tools/0/allowed_callers",
     "tools.0.allowed_callers: MCP connector tools cannot be called programmatically"),
    (body(tools=[{**WIKI, "configs": {"read": {"allowed_callers": ["direct", "code_execution_20260120"]}}}, CODE],
          mcp_servers=WIKI_SERVERS),
     "mcp-programmatic", "/tools/0/configs/read/allowed_callers",
     "tools.0.configs.read.allowed_callers: MCP connector tools cannot be called programmatically"),
    (body(tools=[{**WIKI, "default_config": {"allowed_callers": ["code_execution_20260120"]}}, CODE],
          mcp_servers=WIKI_SERVERS),
     "mcp-programmatic", "/tools/0/default_config/allowed_callers",
     "tools.0.default_config.allowed_callers: MCP connector tools cannot be called programmatically"),
    # tool choice
    (body(tools=..., tool_choice={"type": "any"}),
     "choice-without-tools", "/tool_choice", "tool_choice: tool_choice may only be specified while providing tools."),
    (body(tool_choice={"type": "tool", "name": "lost"}),
     "choice-unknown", "/tool_choice/name", "Tool 'lost' not found in provided tools"),
    (body(tool_choice={"type": "any"}, thinking={"type": "enabled", "budget_tokens": 1024}),
     "choice-thinking", "/tool_choice", "Thinking may not be enabled when tool_choice forces tool use."),
    (body(tool_choice={"type": "any"}, model="claude-opus-5-5"),
     "choice-model", "/tool_choice", 'tool_choice: type "tool" and "any" are not supported for this model.'),
    (body(tool_choice={"type": "tool", "name": "get_weather"}, tools=[PROGRAMMATIC, CODE]),
     "choice-not-direct", "/tool_choice/name",
     "tool_choice.name: a tool without `direct` in allowed_callers cannot be forced"),
    (body(tool_choice={"type": "auto", "disable_parallel_tool_use": True}, tools=[PROGRAMMATIC, CODE]),
     "choice-programmatic", "/tool_choice",
     "tool_choice: disable_parallel_tool_use is not supported with programmatic tool calling"),
    # settings
    (body(thinking={"type": "enabled", "budget_tokens": 512}),
     "thinking-budget-least", "/thinking/budget_tokens",
     "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"),
    (body(thinking={"type": "enabled", "budget_tokens": 4096}),
     "thinking-budget", "/thinking/budget_tokens", "`max_tokens` must be greater than `thinking.budget_tokens`."),
    (body(model="claude-opus-4-7", thinking={"type": "enabled", "budget_tokens": 1024}),
     "thinking-enabled-model", "/thinking",
     ('"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and '
      '"output_config.effort" to control thinking behavior.')),
    (body(model="claude-sonnet-4-5-20250929", thinking={"type": "adaptive"}),
     "thinking-adaptive-model", "/thinking", "adaptive thinking is not supported on this model"),
    (body(model="claude-opus-4-6", output_config={"effort": "xhigh"}),
     "effort-model", "/output_config/effort",
     "This model does not support effort level 'xhigh'. Supported levels: high, low, max, medium."),
    (body(model="claude-sonnet-4-5", output_config={"effort": "low"}),
     "effort-unsupported", "/output_config/effort", "This model does not support the effort parameter."),
    (body(user({**DOCUMENT, "citations": {"enabled": True}}), output_config=FORMAT),
     "format-citations", "/messages/0/content/0",
     "output_config.format is incompatible with citations"),
    (body(stop_sequences=["END", " "]),
     "stop-blank", "/stop_sequences/1", "stop_sequences: each stop sequence must contain non-whitespace"),
    (body(fallbacks=[{"model": "m"}] * 4),
     "fallbacks-limit", "/fallbacks", "fallbacks: List should have at most 3 items"),
    (body(thread={"type": "continue", "previous_message_id": "msg_1"}),
     "thread-continue", "/tools", "tools: not permitted when a thread is continued"),
    (body(compaction={"type": "summarize"}, stop_sequences=["END"]),
     "compaction-conflict", "/stop_sequences", "stop_sequences: not permitted in a compaction request"),
]
# fmt: on


@pytest.mark.parametrize(("bad", "rule", "path", "message"), BAD, ids=[rule for _, rule, *_ in BAD])
def test_body_that_breaks_one_rule(bad: Any, rule: str, path: str, message: str) -> None:
    assert rules.check_request(bad) == [Finding(f"anthropic.{rule}", path, message)]


NEW = "2026-10-21"
# fmt: off
REMOVED: list[tuple[Any, str, str, str]] = [
    (body(temperature=1), "sampling-removed", "/temperature", EXTRA.format("temperature")),
    (body(USER, assistant(DOCUMENT), USER), "document-assistant", "/messages/1/content/0",
     "messages.1.content.0: `document` blocks are not permitted in `assistant` messages"),
    (body(user(text("x", citations=[{"type": "char_location"}]))), "citations-user", "/messages/0/content/0/citations",
     "messages.0.content.0.citations: `citations` are not permitted on `text` blocks in `user` messages"),
]
# fmt: on


@pytest.mark.parametrize(("bad", "rule", "path", "message"), REMOVED)
def test_fields_that_a_version_removed(bad: Any, rule: str, path: str, message: str) -> None:
    finding = Finding(f"anthropic.{rule}", path, message)
    assert rules.check_request(bad, version=NEW) == [finding]
    assert rules.check_request(bad) == [Finding(finding.rule, path, message, "warning")]
    assert rules.check_request(bad, version="2023-06-01") == []


MANUAL = {"type": "enabled", "budget_tokens": 1024}
# fmt: off
SAMPLING: list[tuple[Any, str, str]] = [
    (body(temperature=0.5, thinking=MANUAL),
     "sampling-thinking", "`temperature` may only be set to 1 when thinking is enabled."),
    (body(temperature=0.5, model="claude-sonnet-5"), "sampling-model", "`temperature` is deprecated for this model."),
]
# fmt: on


@pytest.mark.parametrize(("bad", "rule", "message"), SAMPLING)
def test_sampling_that_the_server_rejects(bad: Any, rule: str, message: str) -> None:
    assert rules.check_request(bad, version="2023-06-01") == [Finding(f"anthropic.{rule}", "/temperature", message)]


# fmt: off
WARNINGS: list[tuple[Any, str, str]] = [
    # programmatic tool calling
    (body(tools=[PROGRAMMATIC]), "callers-without-code", "/tools/0/allowed_callers"),
    (body(output_config={"effort": "ultra"}), "field-word", "/output_config/effort"),
    (body(user({"type": "hologram"})), "tag-unknown", "/messages/0/content/0"),
    (body(tools=[TOOL, {"type": "teleport_20270101", "name": "teleport"}]), "tag-unknown", "/tools/1"),
    (body(USER, assistant(IMAGE), USER), "block-role", "/messages/1/content/0"),
    (body(USER, assistant(CALL), user(RESULT), assistant(CALL), user(RESULT)),
     "call-id-duplicate", "/messages/3/content/0"),
    (body(USER, assistant(CALL), user(RESULT), thinking=MANUAL), "thinking-first", "/messages/1/content/0"),
]
# fmt: on


@pytest.mark.parametrize(("unusual", "rule", "path"), WARNINGS)
def test_what_a_newer_api_may_accept_is_only_a_warning(unusual: Any, rule: str, path: str) -> None:
    findings = rules.check_request(unusual)
    assert [(finding.rule, finding.path, finding.level) for finding in findings] == [
        (f"anthropic.{rule}", path, "warning")
    ]


OTHER_CALL, OTHER_RESULT = {**CALL, "id": "toolu_2"}, {**RESULT, "tool_use_id": "toolu_2"}
# fmt: off
GOOD: dict[str, Any] = {
    "minimal request": body(tools=...),
    "a new field": body(novelty={"any": "thing"}),
    "parallel calls, results in another order, text after": body(
        USER, assistant(text("Looking."), CALL, OTHER_CALL), user(OTHER_RESULT, RESULT, text("And tomorrow?"))),
    "adjacent messages of one role are one turn": body(
        USER, USER, assistant(CALL), assistant(OTHER_CALL), user(RESULT), user(OTHER_RESULT)),
    "an empty result": body(USER, assistant(CALL), user({"type": "tool_result", "tool_use_id": "toolu_1"})),
    "an error result": body(USER, assistant(CALL), user({**RESULT, "is_error": True, "content": [text("timeout")]})),
    "thinking without text": body(
        USER, assistant({"type": "thinking", "thinking": "", "signature": "c2ln"}, CALL), user(RESULT),
        thinking=MANUAL),
    "a paused turn": body(USER, assistant(SEARCH), tools=[WEB_SEARCH], model="claude-opus-4-6"),
    "a finished search": body(USER, assistant(SEARCH, SEARCH_RESULT, text("Done.")), USER, tools=[WEB_SEARCH]),
    "a search and a call in flight": body(USER, assistant(SEARCH, CALL), user(RESULT), tools=[TOOL, WEB_SEARCH]),
    "a programmatic call": body(
        USER, assistant({**SEARCH, "name": "code_execution"}, {**CALL, "caller": PROGRAM}), user(RESULT),
        container="container_1",
        tools=[PROGRAMMATIC, {"type": "code_execution_20260120", "name": "code_execution"}]),
    "prefill for an older model": body(USER, assistant(text("The")), model="claude-sonnet-4-5"),
    "a section of system messages": body(
        USER, assistant(CALL), user(RESULT), system(), system("And kind."), assistant(text("18C")), USER,
        model="claude-opus-4-8"),
    "forcing with adaptive thinking": body(
        tool_choice={"type": "any"}, thinking={"type": "adaptive"}, model="claude-opus-4-6"),
    "deferred tools behind a search": body(
        tools=[tool(defer_loading=True), {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}]),
    "a strict tool": body(tools=[tool(strict=True, input_schema=CLOSED)]),
    "four markers": body(user(*(text("x", **CACHED) for _ in range(3))), tools=[tool(**CACHED)]),
    "a continued thread": body(
        user(RESULT), tools=..., thread={"type": "continue", "previous_message_id": "msg_1"}),
    "properties named like keywords": body(tools=[tool(strict=True, input_schema={
        "type": "object", "additionalProperties": False,
        "properties": {"items": {"type": "array", "items": {"type": "string"}}, "minimum": {"type": "integer"}}})]),
}
# fmt: on


@pytest.mark.parametrize("good", GOOD.values(), ids=GOOD.keys())
def test_body_that_the_server_accepts(good: Any) -> None:
    assert rules.check_request(good, version=NEW) == []


def test_model_argument_overrides_the_body() -> None:
    prefilled = body(USER, assistant(text("The")))
    assert rules.check_request(prefilled) == []
    assert [finding.rule for finding in rules.check_request(prefilled, model="claude-fable-5")] == ["anthropic.prefill"]


def test_every_rule_has_a_case() -> None:
    source = inspect.getsource(rules) + inspect.getsource(fields)
    rule_names = set(re.findall(r'finding\(\s*"([a-z0-9-]+)"', source)) | {"result-missing", "result-not-first"}
    cases = {rule for _, rule, *_ in [*BAD, *REMOVED, *SAMPLING, *WARNINGS]}
    assert rule_names | {"field-type", "field-word"} == cases
