"""What the Anthropic server says of a field, block, tool or setting by itself; `rules` is the whole."""

import re

from msgspec.structs import replace

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

ModelVersion = tuple[str, tuple[int, int]]
"""Family and generation; ("", (0, 0)), of which nothing is known to be refused, for a name we don't know."""

_MODEL = re.compile(
    r"claude-(?:(\d)-(?:(\d)-)?)?(opus|sonnet|haiku|fable|mythos)(?:-(\d{1,2})(?!\d)(?:[-.](\d{1,2})(?!\d))?)?"
)
_EFFORTS = {
    ("opus", (4, 5)): "high, low, medium",
    ("opus", (4, 6)): "high, low, max, medium",
    ("sonnet", (4, 6)): "high, low, max, medium",
}

_REQUEST = parse_fields(
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
# What schemas that it holds the model to may say. An open map it would have to close.
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
# The fixed name of each native tool, by the beginning of its type; a toolset has none.
_NATIVE_NAMES = {
    **{f"{name}_": name for name in word_set("bash memory computer web_search web_fetch code_execution advisor")},
    **{name: name for name in word_set("tool_search_tool_regex tool_search_tool_bm25")},
    **dict.fromkeys(word_set("text_editor_20250728 text_editor_20250429"), "str_replace_based_edit_tool"),
    **dict.fromkeys(word_set("text_editor_20250124 text_editor_20241022"), "str_replace_editor"),
    **dict.fromkeys(word_set("computer_toolset_ browser_toolset_ mcp_toolset"), ""),
}
_FIELDS_NOT_IN_TOOLSET = word_set("name strict input_examples defer_loading")
# Block type, who may say it (user, assistant, system, or a tool's result), fields.
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
# Words of other protocols, refused for certain. Other unknown words may be a newer wire's: a warning at most.
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
    yield from ERROR_WORDING.check_fields((), body, _REQUEST)
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


def model_version(model: str) -> ModelVersion:
    match = _MODEL.search(model)
    if match is None:
        return "", (0, 0)
    return match[3], (int(match[1] or match[4] or 0), int(match[2] or match[5] or 0))


def refuses_prefill(model: str) -> bool:
    """Whether a conversation must end with a user message, so that nothing is there to be continued."""
    return model_version(model)[1] >= (4, 6)


# Blocks after which an assistant message may be the last one: the turn is paused, not prefilled.
UNFINISHED_BLOCKS = word_set("tool_use server_tool_use mcp_tool_use compaction fallback")

_UNFORCEABLE_MODELS = {("opus", (5, 5)), ("sonnet", (5, 5)), ("fable", (5, 1)), ("mythos", (5, 1))}


def supported_efforts(version: ModelVersion) -> str | None:
    """The levels of effort that a model takes: none of them is "", None is not known."""
    return _EFFORTS.get(version, "" if (0, 0) < version[1] < (4, 6) else None)


def refuses_forced_choice(model: str) -> bool:
    """Whether the model takes no tool choice that forces a call."""
    return model_version(model) in _UNFORCEABLE_MODELS or "mythos-preview" in model


def refuses_strict(model: str) -> bool:
    """Whether the model can't hold its calls to a schema: those before 4.5 can't, but for Opus 4.1."""
    kind = model_version(model)
    return (0, 0) < kind[1] < (4, 5) and kind != ("opus", (4, 1))


def refuses_system_messages(model: str) -> bool:
    """Whether the model takes no system text within a conversation."""
    kind = model_version(model)
    return (0, 0) < kind[1] < (4, 8) or kind == ("sonnet", (5, 0))


def check_settings(body: JsonObject, version: tuple[int, int], removal: Level | None) -> Findings:
    """`removed`: what `2026-10-21` took away is refused, perhaps refused (version unknown), or taken."""
    yield from _check_thinking(body, version)
    for name in ("temperature", "top_p", "top_k"):
        value = body.get(name)
        if value is not None and removal:
            yield ERROR_WORDING.finding("sampling-removed", (name,), EXTRA_FIELD_MESSAGE, removal)
        if value not in (None, 1) and version >= (4, 7):
            yield ERROR_WORDING.finding("sampling-model", (name,), f"`{name}` is deprecated for this model.")
    if body.get("temperature") not in (None, 1) and value_at(body, "thinking", "type") in ("enabled", "adaptive"):
        said = "`temperature` may only be set to 1 when thinking is enabled."
        yield ERROR_WORDING.finding("sampling-thinking", ("temperature",), said)
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
            said = "stop_sequences: each stop sequence must contain non-whitespace"
            yield ERROR_WORDING.finding("stop-blank", ("stop_sequences", index), said)


def _check_thinking(body: JsonObject, version: tuple[int, int]) -> Findings:
    thinking, at = object_of(body.get("thinking")), ("thinking", "budget_tokens")
    mode, budget, most = (
        thinking.get("type"),
        number_of(thinking.get("budget_tokens")),
        number_of(body.get("max_tokens")),
    )
    if mode == "adaptive" and (0, 0) < version < (4, 6):
        yield ERROR_WORDING.finding(
            "thinking-adaptive-model", ("thinking",), "adaptive thinking is not supported on this model"
        )
    for name in sorted(_FIELDS_NOT_BETWEEN_TOOLS & thinking.keys()) if mode == "between_tools" else []:
        yield ERROR_WORDING.finding("field-foreign", ("thinking", name), EXTRA_FIELD_MESSAGE)
    if mode == "enabled" and version >= (4, 7):
        said = '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and '
        said += '"output_config.effort" to control thinking behavior.'
        yield ERROR_WORDING.finding("thinking-enabled-model", ("thinking",), said)
    if mode == "enabled" and "budget_tokens" not in thinking:
        yield ERROR_WORDING.finding("field-missing", at, "thinking.enabled.budget_tokens: Field required")
    elif mode == "enabled" and budget is not None and budget < 1024:
        said = "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
        yield ERROR_WORDING.finding("thinking-budget-least", at, said)
    elif mode == "enabled" and budget is not None and most is not None and budget >= most:
        yield ERROR_WORDING.finding(
            "thinking-budget", at, "`max_tokens` must be greater than `thinking.budget_tokens`."
        )


def check_output(body: JsonObject, version: ModelVersion) -> Findings:
    effort, output = value_at(body, "output_config", "effort"), value_at(body, "output_config", "format")
    at, levels = ("output_config", "effort"), supported_efforts(version)
    if effort is not None and levels == "":
        yield ERROR_WORDING.finding("effort-unsupported", at, "This model does not support the effort parameter.")
    elif isinstance(effort, str) and levels is not None and effort not in levels.split(", "):
        said = f"This model does not support effort level '{effort}'. Supported levels: {levels}."
        yield ERROR_WORDING.finding("effort-model", at, said)
    yield from ERROR_WORDING.check_fields(("output_config", "format"), output, _FORMAT)
    yield from _check_strict(("output_config", "format", "schema"), value_at(output, "schema"))


def check_block(role: str, path: JsonPath, block: JsonObject) -> Findings:
    """`role` is the initial of who says it; `r` is the content of a tool's result."""
    tag = text_of(block.get("type"))
    if tag not in _BLOCKS:
        yield _unknown_type_finding(path, tag)
        return
    roles, table = _BLOCKS[tag]
    yield from ERROR_WORDING.check_fields(path, block, table, tag)
    if role not in roles:
        said = f"{{at}}: `{tag}` blocks can only be in `{'assistant' if 'a' in roles else 'user'}` messages"
        yield ERROR_WORDING.finding("block-role", path, said, "error" if tag in _SINGLE_ROLE_BLOCKS else "warning")
    if tag in ("thinking", "redacted_thinking") and "cache_control" in block:
        yield ERROR_WORDING.finding("field-foreign", (*path, "cache_control"), EXTRA_FIELD_MESSAGE)
    yield from _check_source(path, tag, object_of(block.get("source")))
    text, content, name = block.get("text"), block.get("content"), block.get("id")
    if tag == "text" and text == "":
        yield ERROR_WORDING.finding("text-empty", path, "messages: text content blocks must be non-empty")
    elif tag == "text" and isinstance(text, str) and not text.strip() and role in "ua":
        yield ERROR_WORDING.finding(
            "text-blank", path, "messages: text content blocks must contain non-whitespace text"
        )
    if tag in _CALL_ID and isinstance(name, str) and not re.fullmatch(_CALL_ID[tag], name):
        said = f"{ERROR_WORDING.format_path(path)}.{tag}.id: String should match pattern '^{_CALL_ID[tag]}$'"
        yield ERROR_WORDING.finding("call-id", (*path, "id"), said)
    if tag == "tool_result" and block.get("is_error") is True:
        if not content:
            yield ERROR_WORDING.finding(
                "result-error-empty", path, "{at}: content cannot be empty if `is_error` is true"
            )
        elif any(part.get("type") != "text" for _, part in object_items(content, ())):
            said = "{at}: all content must be type `text` if `is_error` is true"
            yield ERROR_WORDING.finding("result-error-text", path, said)


def check_removed(role: str, path: JsonPath, block: JsonObject, level: Level) -> Findings:
    """What `2026-10-21` took away from messages."""
    if block.get("type") == "document" and role == "a":
        said = "{at}: `document` blocks are not permitted in `assistant` messages"
        yield ERROR_WORDING.finding("document-assistant", path, said, level)
    if block.get("type") == "text" and role in "ur" and list_of(block.get("citations")):
        said = "{at}: `citations` are not permitted on `text` blocks in `user` messages"
        yield ERROR_WORDING.finding("citations-user", (*path, "citations"), said, level)


def _check_source(path: JsonPath, tag: str, source: JsonObject) -> Findings:
    kind = text_of(source.get("type"))
    if f"{tag}.{kind}" in _SOURCES:
        yield from ERROR_WORDING.check_fields((*path, "source"), source, _SOURCES[f"{tag}.{kind}"][1], kind)
    if kind == "base64" and text_of(source.get("data")).startswith("data:"):
        yield ERROR_WORDING.finding("base64-data-url", (*path, "source", "data"), "{at}: Invalid base64 data")


def check_tool(path: JsonPath, tool: JsonObject) -> Findings:
    tag = text_of(tool.get("type")) or "custom"
    if tag == "custom":
        yield from ERROR_WORDING.check_fields(path, tool, _TOOL, tag)
        yield from _check_custom_tool(path, tool)
        return
    known = max((start for start in _NATIVE_NAMES if tag.startswith(start)), key=len, default=None)
    if known is None:
        yield _unknown_type_finding(path, tag)
        return
    yield from ERROR_WORDING.check_fields(path, tool, _NATIVE_TOOL, tag)
    name = _NATIVE_NAMES[known]
    if name and tool.get("name") != name:
        said = f"{ERROR_WORDING.format_path(path)}.{tag}.name: Input should be '{name}'"
        yield ERROR_WORDING.finding("tool-name-fixed", (*path, "name"), said)
    if known == "computer_":
        for size in ("display_width_px", "display_height_px"):
            if tool.get(size) is None:
                yield ERROR_WORDING.finding(
                    "tool-display", (*path, size), f"{ERROR_WORDING.format_path(path)}.{tag}.{size}: Field required"
                )
    for extra in [] if name else sorted(_FIELDS_NOT_IN_TOOLSET & tool.keys()):
        yield ERROR_WORDING.finding("field-foreign", (*path, extra), EXTRA_FIELD_MESSAGE)


def _check_custom_tool(path: JsonPath, tool: JsonObject) -> Findings:
    name, schema, at = text_of(tool.get("name")), object_of(tool.get("input_schema")), (*path, "input_schema")
    place = f"{ERROR_WORDING.format_path(path)}.custom"
    # The documentation says 64; servers name 128.
    if name and not re.fullmatch("[a-zA-Z0-9_-]{1,128}", name):
        said = f"{place}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
        yield ERROR_WORDING.finding("tool-name", (*path, "name"), said)
    if "input_schema" in tool and schema.get("type") != "object":
        said = f"{place}.input_schema.type: " + ("Input should be 'object'" if "type" in schema else "Field required")
        yield ERROR_WORDING.finding("tool-schema-type", (*at, "type"), said)
    if schema.keys() & {"oneOf", "allOf", "anyOf"}:
        said = f"{place}.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"
        yield ERROR_WORDING.finding("tool-schema-union", at, said)
    if any(misfit for _, part in subschemas(schema) for misfit in field_errors(part, _SCHEMA)):
        said = f"{place}.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12"
        yield ERROR_WORDING.finding("tool-schema", at, said)
    for key in object_of(schema.get("properties")):
        if not re.fullmatch("[a-zA-Z0-9_.-]{1,64}", key):
            said = f"{place}.input_schema.properties: "
            said += "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'"
            yield ERROR_WORDING.finding("tool-property-name", (*at, "properties", key), said)
    if tool.get("strict") is True:
        if any(caller != "direct" for caller in list_of(tool.get("allowed_callers"))):
            said = "{at}: strict is not supported with programmatic tool calling"
            yield ERROR_WORDING.finding("strict-programmatic", path, said)
        yield from _check_strict(at, schema)


def _check_strict(at: JsonPath, schema: object) -> Findings:
    for reason, path, keyword in strict_violations(schema, _NON_STRICT_KEYWORDS):
        if reason == "open":
            said = "{at}: For 'object' type, 'additionalProperties' must be explicitly set to false"
            yield ERROR_WORDING.finding("strict-object", (*at, *path), said)
        elif reason == "keyword":
            said = f"{{at}}: schema keyword '{keyword}' is not supported in strict schemas"
            yield ERROR_WORDING.finding("strict-keyword", (*at, *path, keyword), said)


def _unknown_type_finding(path: JsonPath, tag: str) -> Finding:
    said = f"{{at}}: Input tag '{tag}' found using 'type' does not match any of the expected tags"
    return ERROR_WORDING.finding("tag-unknown", path, said, "error" if tag in _FOREIGN_TAGS else "warning")
