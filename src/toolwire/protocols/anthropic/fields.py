"""Check single fields, settings, blocks and tools as Anthropic's server validates them.

Rules over several parts of a request are in `rules`.
"""

import re

from msgspec.structs import replace

from toolwire.codec.models.info import ModelInfo
from toolwire.codec.schema.dialect import BOUNDS, Dialect
from toolwire.codec.validation import (
    ErrorWording,
    Finding,
    Findings,
    JsonObject,
    JsonPath,
    Level,
    field_errors,
    list_of,
    number_of,
    object_items,
    object_of,
    parse_fields,
    parse_shapes,
    strict_violations,
    subschemas,
    text_of,
    value_at,
    word_set,
)

ERROR_WORDING = ErrorWording(
    "anthropic",
    format_path=lambda path: ".".join(map(str, path)),
    type_names={"object": "dictionary", "array": "list"},
    missing_message="{at}: Field required",
    type_message="{at}: Input should be a valid {types}",
    choice_message="{at}: Input should be {words}",
)
EXTRA_FIELD_MESSAGE = "{at}: Extra inputs are not permitted"

REQUEST_FIELDS = parse_fields(
    "model!:string max_tokens!:integer messages!:array system:string|array tools:array tool_choice:object "
    "stop_sequences:array stream:boolean thinking:object output_config:object cache_control:object "
    "container:string|object mcp_servers:array context_management:object compaction:object thread:object "
    "metadata:object speed:string service_tier~auto|standard_only fallbacks:array|string "
    "inference_geo:string temperature:number top_p:number top_k:integer"
)
_SETTINGS = parse_shapes(
    "thinking - type!~adaptive|enabled|disabled|between_tools budget_tokens:integer display~summarized|omitted|updates",
    "output_config - effort~low|medium|high|xhigh|max format:object task_budget:object",
    "tool_choice - type!=auto|any|tool|none name:string disable_parallel_tool_use:boolean",
    "cache_control - type!~ephemeral ttl~5m|1h",
    "compaction - type!~summarize instructions:string",
    "thread - type!~create|continue previous_message_id:string",
)
_FIELDS_NOT_BETWEEN_TOOLS = word_set("display budget_tokens block_binding")
_FORMAT = parse_fields("type!~json_schema schema!:object")
_MESSAGE = parse_fields("role!=user|assistant|system content!:string|array")
_SYSTEM_MESSAGE = parse_fields("content:string|array clear_at~never|next_user_message output_config:object")
_MCP_SERVER = parse_fields("type!~url name!:string url!:string authorization_token:string")
_TOOL = parse_fields(
    "name!:string input_schema!:object description:string strict:boolean defer_loading:boolean "
    "cache_control:object eager_input_streaming:boolean input_examples:array allowed_callers:array"
)
# Keywords whose wrong type makes a JSON Schema invalid.
_SCHEMA = parse_fields(
    "type:string|array properties:object required:array items:object|boolean|array enum:array anyOf:array"
)
# Keywords that strict schemas support. Open maps do not fit: closing them would change their meaning.
STRICT_SCHEMA = Dialect(
    name="anthropic-strict",
    unsupported_keywords=BOUNDS
    | word_set("minLength maxLength maxItems uniqueItems minProperties maxProperties contains minContains maxContains")
    | word_set("oneOf not if then else dependentRequired dependentSchemas patternProperties propertyNames prefixItems")
    | word_set("nullable"),
    formats=word_set("date-time time date duration email hostname uri ipv4 ipv6 uuid"),
    closed_objects="unfit",
    allows_recursion=False,
)
OUTPUT_SCHEMA = replace(STRICT_SCHEMA, name="anthropic-format", closed_objects="closed")
_NON_STRICT_KEYWORDS = word_set(
    "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength maxItems"
)
_NATIVE_TOOL = parse_fields("max_uses:integer allowed_domains:array blocked_domains:array cache_control:object")
# Fixed name of each native tool by prefix of its type; toolsets have none.
_NATIVE_NAMES = {
    **{f"{name}_": name for name in word_set("bash memory computer web_search web_fetch code_execution advisor")},
    **{name: name for name in word_set("tool_search_tool_regex tool_search_tool_bm25")},
    **dict.fromkeys(word_set("text_editor_20250728 text_editor_20250429"), "str_replace_based_edit_tool"),
    **dict.fromkeys(word_set("text_editor_20250124 text_editor_20241022"), "str_replace_editor"),
    **dict.fromkeys(word_set("computer_toolset_ browser_toolset_ mcp_toolset"), ""),
}
_FIELDS_NOT_IN_TOOLSET = word_set("name strict input_examples defer_loading")
# Block type, initials of the roles that may send it (r: inside a tool result), fields.
_BLOCKS = parse_shapes(
    "text uasr text!:string citations:array cache_control:object",
    "image ur source!:object cache_control:object",
    "document uar source!:object title:string context:string citations:object cache_control:object",
    "search_result ur source!:string title!:string content!:array citations:object cache_control:object",
    "thinking a thinking!:string signature!:string",
    "redacted_thinking a data!:string",
    "tool_use,server_tool_use a id!:string name!:string input!:object caller:object cache_control:object",
    "tool_result u tool_use_id!:string content:string|array is_error:boolean cache_control:object",
    "web_search_tool_result,web_fetch_tool_result,code_execution_tool_result,bash_code_execution_tool_result,"
    "text_editor_code_execution_tool_result,tool_search_tool_result,advisor_tool_result a "
    "tool_use_id!:string content!:object|array",
    "mcp_tool_use a id!:string name!:string server_name!:string input!:object",
    "mcp_tool_result a tool_use_id!:string content:string|array is_error:boolean",
    "mcp_tool_listing a mcp_server_name!:string tools!:array",
    "container_upload ua file_id!:string",
    "compaction ua content:string",
    "fallback a from!:object to!:object",
    "tool_addition,tool_removal s tool!:object",
    "tool_reference r tool_name!:string",
    "browser_state r type!:string",
)
_CALL_ID = {"tool_use": r"[a-zA-Z0-9_-]+", "server_tool_use": r"srvtoolu_[a-zA-Z0-9_]+"}
_SINGLE_ROLE_BLOCKS = word_set("thinking redacted_thinking tool_use tool_result server_tool_use")
_SOURCES = parse_shapes(
    "image.base64 - media_type!=image/jpeg|image/png|image/gif|image/webp data!:string",
    "document.base64 - media_type!=application/pdf data!:string",
    "document.text - media_type!=text/plain data!:string",
    "document.content - content!:string|array",
    "image.url,document.url - url!:string",
    "image.file,document.file - file_id!:string",
)
# Fields of other protocols are errors. Other unknown fields may belong to a newer API version.
_FOREIGN_FIELDS = word_set(
    "n stop max_completion_tokens max_output_tokens response_format parallel_tool_calls functions "
    "function_call frequency_penalty presence_penalty logit_bias logprobs seed user input instructions "
    "reasoning store text reasoning_effort previous_response_id stream_options contents"
)
_FOREIGN_MESSAGE_FIELDS = word_set(
    "tool_calls tool_call_id function_call name reasoning_content reasoning refusal phase"
)
_FOREIGN_TAGS = word_set(
    "image_url input_text output_text input_image input_file input_audio file refusal function_call "
    "reasoning function_call_output function namespace mcp file_search web_search code_interpreter "
    "image_generation shell"
)


def check_fields(body: JsonObject) -> Findings:
    """Check the types and values of known fields: top-level ones, settings and messages."""
    yield from ERROR_WORDING.check_fields((), body, REQUEST_FIELDS)
    for name, (_, table) in _SETTINGS.items():
        yield from ERROR_WORDING.check_fields((name,), body.get(name), table)
    for path, server in object_items(body.get("mcp_servers"), ("mcp_servers",)):
        yield from ERROR_WORDING.check_fields(path, server, _MCP_SERVER)
    foreign: list[JsonPath] = [(name,) for name in sorted(_FOREIGN_FIELDS & body.keys())]
    for path, message in object_items(body.get("messages"), ("messages",)):
        yield from ERROR_WORDING.check_fields(
            path, message, _SYSTEM_MESSAGE if message.get("role") == "system" else _MESSAGE
        )
        foreign += [(*path, name) for name in sorted(_FOREIGN_MESSAGE_FIELDS & message.keys())]
    for path in foreign:
        yield ERROR_WORDING.finding("field-foreign", path, EXTRA_FIELD_MESSAGE)


# An assistant message that ends with one of these is a paused turn, not a prefill.
UNFINISHED_BLOCKS = word_set("tool_use server_tool_use mcp_tool_use compaction fallback")


def check_settings(body: JsonObject, model: ModelInfo, removal: Level | None) -> Findings:
    """Check settings against each other and against the model.

    `removal` is the level of findings for fields removed in API version `2026-10-21`.
    """
    yield from _check_thinking(body, model)
    yield from _check_sampling(body, model, removal)
    for name in ("system", "tools") if value_at(body, "thread", "type") == "continue" else ():
        if body.get(name):
            yield ERROR_WORDING.finding("thread-continue", (name,), "{at}: not permitted when a thread is continued")
    forced = "tool_choice" if value_at(body, "tool_choice", "type") in ("any", "tool") else "context_management"
    for name in ("context_management", "stop_sequences", forced) if body.get("compaction") else ():
        if body.get(name):
            yield ERROR_WORDING.finding("compaction-conflict", (name,), "{at}: not permitted in a compaction request")
    if len(list_of(body.get("fallbacks"))) > 3:
        yield ERROR_WORDING.finding("fallbacks-limit", ("fallbacks",), "{at}: List should have at most 3 items")
    for index, stop in enumerate(list_of(body.get("stop_sequences"))):
        if isinstance(stop, str) and not stop.strip():
            message = "stop_sequences: each stop sequence must contain non-whitespace"
            yield ERROR_WORDING.finding("stop-blank", ("stop_sequences", index), message)


def _check_sampling(body: JsonObject, model: ModelInfo, removal: Level | None) -> Findings:
    """Check the sampling parameters against the API version, the model and thinking."""
    for name in ("temperature", "top_p", "top_k"):
        value = body.get(name)
        if value is not None and removal:
            yield ERROR_WORDING.finding("sampling-removed", (name,), EXTRA_FIELD_MESSAGE, removal)
        if value not in (None, 1) and model.sampling is False:
            yield ERROR_WORDING.finding("sampling-model", (name,), f"`{name}` is deprecated for this model.")
    if body.get("temperature") not in (None, 1) and value_at(body, "thinking", "type") in ("enabled", "adaptive"):
        message = "`temperature` may only be set to 1 when thinking is enabled."
        yield ERROR_WORDING.finding("sampling-thinking", ("temperature",), message)


def _check_thinking(body: JsonObject, model: ModelInfo) -> Findings:
    """Check `thinking` against the model and `max_tokens`."""
    thinking = object_of(body.get("thinking"))
    mode = thinking.get("type")
    if mode == "adaptive" and model.adaptive is False:
        yield ERROR_WORDING.finding(
            "thinking-adaptive-model", ("thinking",), "adaptive thinking is not supported on this model"
        )
    for name in sorted(_FIELDS_NOT_BETWEEN_TOOLS & thinking.keys()) if mode == "between_tools" else []:
        yield ERROR_WORDING.finding("field-foreign", ("thinking", name), EXTRA_FIELD_MESSAGE)
    if mode != "enabled":
        return
    if model.adaptive and model.budget == ():
        message = '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and '
        message += '"output_config.effort" to control thinking behavior.'
        yield ERROR_WORDING.finding("thinking-enabled-model", ("thinking",), message)
    yield from _check_budget(thinking, number_of(body.get("max_tokens")))


def _check_budget(thinking: JsonObject, limit: float | None) -> Findings:
    """Check `budget_tokens` of enabled thinking, which must be below `max_tokens`."""
    at, budget = ("thinking", "budget_tokens"), number_of(thinking.get("budget_tokens"))
    if "budget_tokens" not in thinking:
        yield ERROR_WORDING.finding("field-missing", at, "thinking.enabled.budget_tokens: Field required")
    elif budget is not None and budget < 1024:
        message = "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
        yield ERROR_WORDING.finding("thinking-budget-least", at, message)
    elif budget is not None and limit is not None and budget >= limit:
        yield ERROR_WORDING.finding(
            "thinking-budget", at, "`max_tokens` must be greater than `thinking.budget_tokens`."
        )


def check_output(body: JsonObject, model: ModelInfo) -> Findings:
    """Check `output_config`: the effort against the model, and the schema of the format."""
    effort, output = value_at(body, "output_config", "effort"), value_at(body, "output_config", "format")
    at, levels = ("output_config", "effort"), model.efforts
    if effort is not None and levels == ():
        yield ERROR_WORDING.finding("effort-unsupported", at, "This model does not support the effort parameter.")
    elif isinstance(effort, str) and levels is not None and effort not in levels:
        message = f"This model does not support effort level '{effort}'. Supported levels: {', '.join(levels)}."
        yield ERROR_WORDING.finding("effort-model", at, message)
    yield from ERROR_WORDING.check_fields(("output_config", "format"), output, _FORMAT)
    yield from _check_strict(("output_config", "format", "schema"), value_at(output, "schema"))


def check_block(role: str, path: JsonPath, block: JsonObject) -> Findings:
    """Check one block; `role` is the initial of its message's role, or `r` inside a tool result."""
    tag = text_of(block.get("type"))
    if tag not in _BLOCKS:
        yield _unknown_type_finding(path, tag)
        return
    roles, table = _BLOCKS[tag]
    yield from ERROR_WORDING.check_fields(path, block, table, tag)
    if role not in roles:
        message = f"{{at}}: `{tag}` blocks can only be in `{'assistant' if 'a' in roles else 'user'}` messages"
        yield ERROR_WORDING.finding("block-role", path, message, "error" if tag in _SINGLE_ROLE_BLOCKS else "warning")
    if tag in ("thinking", "redacted_thinking") and "cache_control" in block:
        yield ERROR_WORDING.finding("field-foreign", (*path, "cache_control"), EXTRA_FIELD_MESSAGE)
    yield from _check_source(path, tag, object_of(block.get("source")))
    if tag == "text":
        yield from _check_text(role, path, block.get("text"))
    id = block.get("id")
    if tag in _CALL_ID and isinstance(id, str) and not re.fullmatch(_CALL_ID[tag], id):
        message = f"{ERROR_WORDING.format_path(path)}.{tag}.id: String should match pattern '^{_CALL_ID[tag]}$'"
        yield ERROR_WORDING.finding("call-id", (*path, "id"), message)
    if tag == "tool_result" and block.get("is_error") is True:
        yield from _check_error_result(path, block.get("content"))


def _check_text(role: str, path: JsonPath, text: object) -> Findings:
    """Check that a text block is neither empty nor, in a message, blank."""
    if text == "":
        yield ERROR_WORDING.finding("text-empty", path, "messages: text content blocks must be non-empty")
    elif isinstance(text, str) and not text.strip() and role in "ua":
        yield ERROR_WORDING.finding(
            "text-blank", path, "messages: text content blocks must contain non-whitespace text"
        )


def _check_error_result(path: JsonPath, content: object) -> Findings:
    """Check that the content of a failed tool result is text only, and not empty."""
    if not content:
        yield ERROR_WORDING.finding("result-error-empty", path, "{at}: content cannot be empty if `is_error` is true")
    elif any(part.get("type") != "text" for _, part in object_items(content, ())):
        message = "{at}: all content must be type `text` if `is_error` is true"
        yield ERROR_WORDING.finding("result-error-text", path, message)


def check_removed(role: str, path: JsonPath, block: JsonObject, level: Level) -> Findings:
    """Report block fields that API version `2026-10-21` removed, as findings of this level."""
    if block.get("type") == "document" and role == "a":
        message = "{at}: `document` blocks are not permitted in `assistant` messages"
        yield ERROR_WORDING.finding("document-assistant", path, message, level)
    if block.get("type") == "text" and role in "ur" and list_of(block.get("citations")):
        message = "{at}: `citations` are not permitted on `text` blocks in `user` messages"
        yield ERROR_WORDING.finding("citations-user", (*path, "citations"), message, level)


def _check_source(path: JsonPath, tag: str, source: JsonObject) -> Findings:
    """Check the source of an image or document."""
    kind = text_of(source.get("type"))
    if f"{tag}.{kind}" in _SOURCES:
        yield from ERROR_WORDING.check_fields((*path, "source"), source, _SOURCES[f"{tag}.{kind}"][1], kind)
    if kind == "base64" and text_of(source.get("data")).startswith("data:"):
        yield ERROR_WORDING.finding("base64-data-url", (*path, "source", "data"), "{at}: Invalid base64 data")


def check_tool(path: JsonPath, tool: JsonObject) -> Findings:
    """Check one tool declaration."""
    tag = text_of(tool.get("type")) or "custom"
    if tag == "custom":
        yield from ERROR_WORDING.check_fields(path, tool, _TOOL, tag)
        yield from _check_custom_tool(path, tool)
        return
    prefix = max((start for start in _NATIVE_NAMES if tag.startswith(start)), key=len, default=None)
    if prefix is None:
        yield _unknown_type_finding(path, tag)
        return
    yield from ERROR_WORDING.check_fields(path, tool, _NATIVE_TOOL, tag)
    name = _NATIVE_NAMES[prefix]
    if name and tool.get("name") != name:
        message = f"{ERROR_WORDING.format_path(path)}.{tag}.name: Input should be '{name}'"
        yield ERROR_WORDING.finding("tool-name-fixed", (*path, "name"), message)
    if prefix == "computer_":
        for size in ("display_width_px", "display_height_px"):
            if tool.get(size) is None:
                yield ERROR_WORDING.finding(
                    "tool-display", (*path, size), f"{ERROR_WORDING.format_path(path)}.{tag}.{size}: Field required"
                )
    for extra in [] if name else sorted(_FIELDS_NOT_IN_TOOLSET & tool.keys()):
        yield ERROR_WORDING.finding("field-foreign", (*path, extra), EXTRA_FIELD_MESSAGE)


def _check_custom_tool(path: JsonPath, tool: JsonObject) -> Findings:
    """Check name and schema of a tool that the client defines."""
    name, schema, at = text_of(tool.get("name")), object_of(tool.get("input_schema")), (*path, "input_schema")
    location = f"{ERROR_WORDING.format_path(path)}.custom"
    # The documentation says 64; the server's error message says 128.
    if name and not re.fullmatch("[a-zA-Z0-9_-]{1,128}", name):
        message = f"{location}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
        yield ERROR_WORDING.finding("tool-name", (*path, "name"), message)
    if "input_schema" in tool and schema.get("type") != "object":
        message = f"{location}.input_schema.type: " + (
            "Input should be 'object'" if "type" in schema else "Field required"
        )
        yield ERROR_WORDING.finding("tool-schema-type", (*at, "type"), message)
    if schema.keys() & {"oneOf", "allOf", "anyOf"}:
        message = f"{location}.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"
        yield ERROR_WORDING.finding("tool-schema-union", at, message)
    if any(error for _, part in subschemas(schema) for error in field_errors(part, _SCHEMA)):
        message = f"{location}.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12"
        yield ERROR_WORDING.finding("tool-schema", at, message)
    for key in object_of(schema.get("properties")):
        if not re.fullmatch("[a-zA-Z0-9_.-]{1,64}", key):
            message = f"{location}.input_schema.properties: "
            message += "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'"
            yield ERROR_WORDING.finding("tool-property-name", (*at, "properties", key), message)
    if tool.get("strict") is True:
        if any(caller != "direct" for caller in list_of(tool.get("allowed_callers"))):
            message = "{at}: strict is not supported with programmatic tool calling"
            yield ERROR_WORDING.finding("strict-programmatic", path, message)
        yield from _check_strict(at, schema)


def _check_strict(at: JsonPath, schema: object) -> Findings:
    """Check the JSON Schema of strict tool arguments or structured output."""
    for reason, path, keyword in strict_violations(schema, _NON_STRICT_KEYWORDS):
        if reason == "open":
            message = "{at}: For 'object' type, 'additionalProperties' must be explicitly set to false"
            yield ERROR_WORDING.finding("strict-object", (*at, *path), message)
        elif reason == "keyword":
            message = f"{{at}}: schema keyword '{keyword}' is not supported in strict schemas"
            yield ERROR_WORDING.finding("strict-keyword", (*at, *path, keyword), message)


def _unknown_type_finding(path: JsonPath, tag: str) -> Finding:
    """Return the finding for an unknown `type`: an error if another protocol has that type, else a warning."""
    message = f"{{at}}: Input tag '{tag}' found using 'type' does not match any of the expected tags"
    return ERROR_WORDING.finding("tag-unknown", path, message, "error" if tag in _FOREIGN_TAGS else "warning")
