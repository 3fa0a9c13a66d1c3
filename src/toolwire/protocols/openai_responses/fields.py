"""Validation of single fields, items, parts and tools, with the messages of OpenAI's server.

`rules` validates the request as a whole.
"""

import re

from toolwire.codec.validation import (
    Findings,
    JsonObject,
    JsonPath,
    Level,
    list_of,
    number_of,
    object_items,
    object_of,
    parse_fields,
    parse_shapes,
    text_of,
    value_at,
    word_set,
)
from toolwire.protocols.vendors.openai import NAME, check_length, check_name, check_schema, openai_error_wording

ERROR_WORDING = openai_error_wording("openai-responses")

REQUEST_FIELDS = parse_fields(
    "model:string input:string|array instructions:string|array previous_response_id:string store:boolean "
    "conversation:string|object background:boolean tools:array tool_choice:string|object reasoning:object "
    "parallel_tool_calls:boolean max_tool_calls:integer text:object include:array max_output_tokens:integer "
    "temperature:number top_p:number top_logprobs:integer truncation~disabled|auto context_management:array "
    "prompt_cache_key:string stream:boolean stream_options:object metadata:object safety_identifier:string "
    "service_tier~auto|default|flex|scale|priority|fast|ultrafast prompt:object "
    "moderation:object prompt_cache_options:object prompt_cache_retention:string user:string client_metadata:object"
)
_REASONING = parse_fields(
    "effort~none|minimal|low|medium|high|xhigh|max summary~auto|concise|detailed mode~standard|pro "
    "context~auto|current_turn|all_turns"
)
_TEXT = parse_fields("format:object verbosity~low|medium|high")
_FORMAT = parse_fields("type!~text|json_object|json_schema")
_JSON_SCHEMA = parse_fields("name!:string schema!:object strict:boolean description:string")
_RANGES = {"temperature": (0, 2), "top_p": (0, 1), "top_logprobs": (0, 20), "max_output_tokens": (16, None)}
# Item type, the prefix of its ids, fields.
_ITEMS = parse_shapes(
    "message msg role!=user|assistant|system|developer content!:string|array phase~commentary|final_answer",
    "function_call fc call_id!:string name!:string arguments!:string namespace:string caller:object async:boolean",
    "function_call_output - call_id!:string output!:string|array caller:object",
    "custom_tool_call ctc call_id!:string name!:string input!:string namespace:string caller:object async:boolean",
    "custom_tool_call_output - call_id!:string output!:string|array caller:object",
    "computer_call cu call_id!:string",
    "computer_call_output - call_id!:string output!:object",
    "shell_call sh call_id!:string action!:object",
    "shell_call_output - call_id!:string output!:array",
    "local_shell_call lsh call_id!:string action!:object",
    "local_shell_call_output - id!:string output!:string",
    "apply_patch_call apc call_id!:string operation!:object",
    "apply_patch_call_output - call_id!:string status!=completed|failed output:string",
    "tool_search_call tsc call_id:string execution~server|client",
    "tool_search_output tso call_id:string execution~server|client tools!:array",
    "mcp_call mcp id!:string name!:string arguments!:string server_label!:string",
    "mcp_list_tools mcpl id!:string server_label!:string tools!:array",
    "mcp_approval_request mcpr id!:string name!:string arguments!:string server_label!:string",
    "mcp_approval_response - approval_request_id!:string approve!:boolean reason:string",
    "web_search_call ws id!:string",
    "file_search_call fs id!:string",
    "code_interpreter_call ci id!:string",
    "image_generation_call ig id!:string",
    "program prog call_id!:string code!:string fingerprint!:string",
    "program_output - call_id!:string",
    "reasoning rs id:string summary!:array content:array encrypted_content:string",
    "compaction cmp encrypted_content:string",
    "compaction_trigger - id:string",
    "item_reference - id!:string",
    "additional_tools - tools!:array",
    "configuration_update - reasoning:object text:object",
)
_CHECKED_PREFIXES = word_set("message function_call custom_tool_call reasoning")
# Part type, allowed contexts (u: user or system message, a: assistant message, o: tool output), fields.
_PARTS = parse_shapes(
    "input_text uo text!:string",
    "input_image uo image_url:string file_id:string detail~low|high|auto|original",
    "input_file uo file_id:string file_url:string file_data:string filename:string",
    "input_audio u input_audio!:object",
    "output_text ua text!:string",
    "refusal ua refusal!:string",
    "computer_screenshot u image_url:string file_id:string",
    "summary_text u text!:string",
)
_TOOLS = parse_shapes(
    "function - name!:string description:string parameters:object strict:boolean defer_loading:boolean async:boolean",
    "custom - name!:string description:string format:object defer_loading:boolean async:boolean",
    "namespace - name!:string description!:string tools!:array",
    "tool_search - execution~server|client description:string parameters:object",
    "mcp - server_label!:string server_url:string connector_id:string tunnel_id:string",
    "file_search - vector_store_ids!:array",
    "code_interpreter - container!:string|object",
    "programmatic_tool_calling,web_search,web_search_2025_08_26,web_search_preview,web_search_preview_2025_03_11,"
    "image_generation,computer,computer_use_preview,local_shell,shell,apply_patch - type!:string",
)
_GRAMMAR = parse_fields("syntax!=lark|regex definition!:string")
_MOVED_FIELDS = {
    "messages": "input",
    "response_format": "text.format",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
}
# Fields of other protocols, which the server rejects. Other unknown names may be new fields: a warning at most.
_FOREIGN_FIELDS = word_set(
    "stop n seed frequency_penalty presence_penalty logit_bias logprobs functions function_call stop_sequences top_k "
    "system thinking output_config contents mcp_servers web_search_options prediction"
)
_FOREIGN_TAGS = word_set("text image_url image document file tool_use tool_result tool_call thinking redacted_thinking")
_MEDIA_DATA_URL = re.compile(r"data:((?:audio|video)/[^;,]+)")
_MEDIA_FILE_URL = re.compile(
    r"https?://[^?#]+\.(mp3|wav|ogg|flac|aac|m4a|mp4|mov|webm|mkv|avi|mpeg)([?#]|$)", re.IGNORECASE
)


def check_fields(body: JsonObject) -> Findings:
    """Check the top-level fields of a request."""
    yield from ERROR_WORDING.check_fields((), body, REQUEST_FIELDS)
    yield from ERROR_WORDING.check_fields(("reasoning",), body.get("reasoning"), _REASONING)
    yield from ERROR_WORDING.check_fields(("text",), body.get("text"), _TEXT)
    for name in sorted(_FOREIGN_FIELDS & body.keys()):
        yield ERROR_WORDING.finding("field-foreign", (name,), "Unknown parameter: '{at}'.")
    for name in sorted(_MOVED_FIELDS.keys() & body.keys()):
        message = (
            f"Unsupported parameter: '{name}'. "
            f"In the Responses API, this parameter has moved to '{_MOVED_FIELDS[name]}'. "
        )
        yield ERROR_WORDING.finding("field-moved", (name,), message + "Try again with the new parameter.")
    for name, (minimum, maximum) in _RANGES.items():
        value = number_of(body.get(name))
        if value is not None and value < minimum:
            message = f"Invalid '{name}': number below minimum value. Expected a value >= {minimum}."
            yield ERROR_WORDING.finding("field-range", (name,), message)
        elif value is not None and maximum is not None and value > maximum:
            message = f"Invalid '{name}': number above maximum value. Expected a value <= {maximum}."
            yield ERROR_WORDING.finding("field-range", (name,), message)
    for name, label in object_of(body.get("metadata")).items():
        yield from check_length(ERROR_WORDING, ("metadata", name), name, 64)
        yield from check_length(ERROR_WORDING, ("metadata", name), label, 512)
    yield from check_length(ERROR_WORDING, ("prompt_cache_key",), body.get("prompt_cache_key"), 64)
    yield from _check_format(("text", "format"), object_of(value_at(body, "text", "format")))


def _unknown_type_finding(path: JsonPath, tag: str, supported: str) -> Findings:
    """Yield a finding for an unknown `type`: an error if another protocol has that type, else a warning."""
    level: Level = "error" if tag in _FOREIGN_TAGS else "warning"
    message = f"Invalid value: '{tag}'. Supported values are: {supported}."
    yield ERROR_WORDING.finding("tag-unknown", (*path, "type"), message, level)


def item_type(item: JsonObject) -> str:
    """Return the type of an item; one without `type` but with a role is a message."""
    return text_of(item.get("type")) or ("message" if "role" in item else "")


def check_item(path: JsonPath, item: JsonObject) -> Findings:
    """Check one input item, its content and its tools."""
    tag = item_type(item)
    if tag not in _ITEMS:
        yield from _unknown_type_finding(path, tag, ERROR_WORDING.join_choices(_ITEMS))
        return
    prefix, table = _ITEMS[tag]
    yield from ERROR_WORDING.check_fields(path, item, table)
    yield from _check_id(path, tag, item.get("id"), prefix)
    call_id = item.get("call_id")
    yield from check_length(ERROR_WORDING, (*path, "call_id"), call_id, 64)
    if call_id == "":
        message = (
            "Invalid '{at}': empty string. Expected a string with minimum length 1, but got an empty string instead."
        )
        yield ERROR_WORDING.finding("call-id-empty", (*path, "call_id"), message)
    if tag == "message":
        context = "a" if item.get("role") == "assistant" else "u"
        for part_path, part in object_items(item.get("content"), (*path, "content")):
            yield from _check_part(context, part_path, part)
    if tag in ("function_call_output", "custom_tool_call_output"):
        for part_path, part in object_items(item.get("output"), (*path, "output")):
            yield from _check_part("o", part_path, part)
    if tag == "reasoning" and list_of(item.get("content")) and item.get("encrypted_content"):
        message = "Invalid '{at}': array too long. Expected an array with maximum length 0, "
        message += f"but got an array with length {len(list_of(item.get('content')))} instead."
        yield ERROR_WORDING.finding("reasoning-content", (*path, "content"), message)
    for part_path, tool in object_items(item.get("tools"), (*path, "tools")) if tag != "mcp_list_tools" else []:
        yield from check_tool(part_path, tool)


def _check_id(path: JsonPath, tag: str, item_id: object, prefix: str) -> Findings:
    """Check the characters and the prefix of an item id."""
    if not isinstance(item_id, str):
        return
    id_path = (*path, "id")
    yield from check_length(ERROR_WORDING, id_path, item_id, 64)
    if not NAME.fullmatch(item_id):
        message = (
            f"Invalid '{{at}}': '{item_id}'. Expected an ID that contains letters, numbers, underscores, or dashes, "
        )
        yield ERROR_WORDING.finding("item-id", id_path, f"{message}but this value contained additional characters.")
    elif prefix != "-" and not item_id.startswith(prefix):
        message = f"Invalid '{{at}}': '{item_id}'. Expected an ID that begins with '{prefix}'."
        yield ERROR_WORDING.finding("item-id", id_path, message, "error" if tag in _CHECKED_PREFIXES else "warning")


def _check_part(context: str, path: JsonPath, part: JsonObject) -> Findings:
    """Check a content part; `context` is `u` (user), `a` (assistant) or `o` (tool output)."""
    tag = text_of(part.get("type"))
    allowed = [name for name, (contexts, _) in _PARTS.items() if context in contexts]
    if tag not in _PARTS:
        yield from _unknown_type_finding(path, tag, ERROR_WORDING.join_choices(allowed))
        return
    yield from ERROR_WORDING.check_fields(path, part, _PARTS[tag][1])
    if tag not in allowed:
        message = f"Invalid value: '{tag}'. Supported values are: {ERROR_WORDING.join_choices(allowed)}."
        yield ERROR_WORDING.finding("part-place", (*path, "type"), message)
    if media_match := _MEDIA_DATA_URL.match(text_of(part.get("file_data"))):
        message = "Invalid file data: '{at}'. Expected a base64-encoded data URL with a valid file MIME type (e.g. "
        message += "'data:text/plain;base64,SGVsbG8sIFdvcmxkIQ=='), but got unsupported MIME type "
        yield ERROR_WORDING.finding("file-type", (*path, "file_data"), f"{message}'{media_match[1]}'.")
    if _MEDIA_FILE_URL.match(text_of(part.get("file_url"))):
        message = "The file type you uploaded is not supported. Please try again with a pdf"
        yield ERROR_WORDING.finding("file-url-type", (*path, "file_url"), message)


def check_tool(path: JsonPath, tool: JsonObject) -> Findings:
    """Check one tool declaration and the tools of a namespace."""
    tag = text_of(tool.get("type"))
    if tag not in _TOOLS:
        yield from ERROR_WORDING.check_fields(path, tool, parse_fields("type!:string"))
        if tag:
            yield from _unknown_type_finding(path, tag, ERROR_WORDING.join_choices(_TOOLS))
        return
    yield from ERROR_WORDING.check_fields(path, tool, _TOOLS[tag][1])
    if tag in ("function", "custom", "namespace"):
        yield from check_name(ERROR_WORDING, (*path, "name"), tool.get("name"), 64 if tag == "namespace" else 128)
    if tag == "mcp" and not any(tool.get(name) for name in ("server_url", "connector_id", "tunnel_id")):
        message = "Missing required parameter: one of '{at}.server_url', '{at}.connector_id' or '{at}.tunnel_id'."
        yield ERROR_WORDING.finding("mcp-address", path, message)
    if value_at(tool, "format", "type") == "grammar":
        yield from ERROR_WORDING.check_fields((*path, "format"), tool.get("format"), _GRAMMAR)
    if tag == "namespace":
        if tool.get("tools") == []:
            message = (
                "Invalid '{at}': empty array. Expected an array with minimum length 1, but got an empty array instead."
            )
            yield ERROR_WORDING.finding("namespace-empty", (*path, "tools"), message)
        for member_path, member in object_items(tool.get("tools"), (*path, "tools")):
            yield from _check_function(member_path, member)
    yield from _check_function(path, tool)


def _check_function(path: JsonPath, tool: JsonObject) -> Findings:
    """Check the parameter schema of a function tool."""
    if tool.get("type") == "function":
        subject, strict = f"function '{text_of(tool.get('name'))}'", tool.get("strict") is True
        yield from check_schema(ERROR_WORDING, (*path, "parameters"), tool.get("parameters"), subject, strict=strict)


def _check_format(path: JsonPath, tool_format: JsonObject) -> Findings:
    """Check the output format in `text.format`."""
    yield from ERROR_WORDING.check_fields(path, tool_format or None, _FORMAT)
    if tool_format.get("type") != "json_schema":
        return
    yield from ERROR_WORDING.check_fields(path, tool_format, _JSON_SCHEMA)
    yield from check_name(ERROR_WORDING, (*path, "name"), tool_format.get("name"), 64)
    strict, subject = tool_format.get("strict") is True, f"response_format '{text_of(tool_format.get('name'))}'"
    yield from check_schema(ERROR_WORDING, (*path, "schema"), tool_format.get("schema"), subject, strict=strict)
