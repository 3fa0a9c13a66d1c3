"""Check single fields, messages, parts and tools as OpenAI's server validates them.

Rules over several parts of a request are in `rules`.
"""

import re

from toolwire.codec.validation import (
    Fields,
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
from toolwire.protocols.vendors.openai import check_count, check_length, check_name, check_schema, openai_error_wording

ERROR_WORDING = openai_error_wording("openai-chat")

SHARED_FIELDS = {
    "Request": word_set("audio logit_bias modalities prediction"),
    "Sampling": word_set("max_tokens"),
    # `service_tier` is not shared: other providers use values of their own, such as "standard".
    "Response": word_set("system_fingerprint"),
    "ResponseStart": word_set("system_fingerprint"),
    "ResponseEnd": word_set("system_fingerprint"),
    "Candidate": word_set("logprobs"),
    "CandidateEnd": word_set("logprobs"),
    "PartDelta": word_set("logprobs"),
    "Notice": word_set("logprobs"),
    "Usage": word_set("prompt_tokens_details/audio_tokens completion_tokens_details/audio_tokens")
    | word_set(
        "completion_tokens_details/accepted_prediction_tokens completion_tokens_details/rejected_prediction_tokens"
    ),
}
"""Extras of this family that OpenAI itself defines, by canonical type."""

REQUEST_FIELDS = parse_fields(
    "model!:string messages!:array tools:array functions:array parallel_tool_calls:boolean stop:string|array "
    "tool_choice:string|object function_call:string|object max_completion_tokens:integer max_tokens:integer "
    "temperature:number top_p:number frequency_penalty:number presence_penalty:number seed:integer n:integer "
    "logit_bias:object logprobs:boolean top_logprobs:integer response_format:object stream:boolean "
    "reasoning_effort~none|minimal|low|medium|high|xhigh|max verbosity~low|medium|high modalities:array "
    "audio:object prediction:object stream_options:object store:boolean metadata:object prompt_cache_key:string "
    "service_tier~auto|default|flex|scale|priority|fast safety_identifier:string web_search_options:object "
    "moderation:object prompt_cache_options:object prompt_cache_retention:string user:string"
)
_RANGES = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "frequency_penalty": (-2, 2),
    "presence_penalty": (-2, 2),
    "top_logprobs": (0, 20),
    "n": (1, 128),
}
_LENGTHS = {"prompt_cache_key": 64, "safety_identifier": 128}
_ROLES = word_set("system developer user assistant tool function")
_MESSAGES = parse_shapes(
    "system,developer,user - content!:string|array name:string",
    "assistant - content:string|array refusal:string tool_calls:array function_call:object audio:object",
    "tool - content!:string|array tool_call_id!:string",
    "function - name!:string content:string",
)
# Part type, initials of the roles that may send it, fields.
_PARTS = parse_shapes(
    "text sduat text!:string",
    "image_url u image_url!:object",
    "input_audio u input_audio!:object",
    "file u file!:object",
    "refusal a refusal!:string",
)
_CONTENT_FIELDS = ("content", "tool_calls", "function_call", "audio")
_PART_FIELDS = parse_shapes(
    "image_url - url!:string detail~auto|low|high|original",
    "input_audio - data!:string format!=wav|mp3",
    "file - file_id:string file_data:string filename:string",
)
_TOOLS = parse_shapes(
    "function - name!:string description:string parameters:object strict:boolean",
    "custom - name!:string description:string format:object",
)
_CALLS = parse_shapes("function - name!:string arguments!:string", "custom - name!:string input!:string")
_GRAMMAR = parse_fields("syntax!=lark|regex definition!:string")
_FORMAT = parse_fields("type!~text|json_object|json_schema json_schema:object")
_JSON_SCHEMA = parse_fields("name!:string schema:object strict:boolean description:string")
# Fields of other protocols are errors. Other unknown fields may belong to a newer API version.
_FOREIGN_FIELDS = word_set(
    "max_output_tokens input instructions previous_response_id stop_sequences top_k system thinking text include "
    "reasoning truncation output_config mcp_servers contents"
)
_FOREIGN_TAGS = word_set(
    "tool_use tool_result thinking image document input_text output_text input_image input_file function_call "
    "function_call_output namespace mcp file_search web_search code_interpreter image_generation computer shell"
)


def check_fields(body: JsonObject) -> Findings:
    """Check types, ranges and lengths of the body's fields."""
    yield from ERROR_WORDING.check_fields((), body, REQUEST_FIELDS)
    for name in sorted(_FOREIGN_FIELDS & body.keys()):
        yield ERROR_WORDING.finding("field-foreign", (name,), f"Unrecognized request argument supplied: {name}")
    for name, (minimum, maximum) in _RANGES.items():
        value = number_of(body.get(name))
        if value is not None and not minimum <= value <= maximum:
            side, sign, limit = (
                ("below minimum", ">=", minimum) if value < minimum else ("above maximum", "<=", maximum)
            )
            message = f"Invalid '{name}': number {side} value. Expected a value {sign} {limit}."
            yield ERROR_WORDING.finding("field-range", (name,), message)
    for name, max_length in _LENGTHS.items():
        yield from check_length(ERROR_WORDING, (name,), body.get(name), max_length)
    yield from check_count(ERROR_WORDING, ("stop",), len(list_of(body.get("stop"))), 4)
    for name, label in object_of(body.get("metadata")).items():
        yield from check_length(ERROR_WORDING, ("metadata", name), name, 64)
        yield from check_length(ERROR_WORDING, ("metadata", name), label, 512)
    if len(object_of(body.get("metadata"))) > 16:
        message = "Invalid 'metadata': too many properties. Expected an object with at most 16 properties."
        yield ERROR_WORDING.finding("field-long", ("metadata",), message)
    yield from _check_format(object_of(body.get("response_format")))


def check_message(path: JsonPath, message: JsonObject) -> Findings:
    """Check one message."""
    role = message.get("role")
    if "role" not in message or not isinstance(role, str) or role not in _ROLES:
        yield from ERROR_WORDING.check_fields(path, message, parse_fields("role!=" + "|".join(sorted(_ROLES))))
        return
    yield from ERROR_WORDING.check_fields(path, message, _MESSAGES[role][1])
    if role == "assistant" and all(message.get(name) is None for name in _CONTENT_FIELDS):
        text = "Invalid value for 'content': expected a string, got null."
        yield ERROR_WORDING.finding("content-null", (*path, "content"), text)
    if message.get("tool_calls") == []:
        text = "Invalid '{at}': empty array. Expected an array with minimum length 1, but got an empty array instead."
        yield ERROR_WORDING.finding("tool-calls-empty", (*path, "tool_calls"), text)
    for item_path, part in object_items(message.get("content"), (*path, "content")):
        yield from _check_part(role, item_path, part)
    for item_path, call in object_items(message.get("tool_calls"), (*path, "tool_calls")):
        yield from _check_tagged(item_path, call, _CALLS, "id!:string")
        yield from check_length(ERROR_WORDING, (*item_path, "id"), call.get("id"), 40)


def _check_part(role: str, path: JsonPath, part: JsonObject) -> Findings:
    """Check one content part of a message."""
    tag, message_path = text_of(part.get("type")), path[:2]
    if tag not in _PARTS:
        text = f"Invalid value: '{tag}'. Supported values are: {ERROR_WORDING.join_choices(_PARTS)}."
        yield ERROR_WORDING.finding(
            "tag-unknown", (*path, "type"), text, "error" if tag in _FOREIGN_TAGS else "warning"
        )
        return
    roles, table = _PARTS[tag]
    yield from ERROR_WORDING.check_fields(path, part, table)
    if tag in _PART_FIELDS:
        yield from ERROR_WORDING.check_fields((*path, tag), part.get(tag), _PART_FIELDS[tag][1])
    if role[0] not in roles and tag == "image_url":
        text = "Invalid '{at}'. Image URLs are only allowed for messages with role 'user', but this message with "
        yield ERROR_WORDING.finding("part-role", message_path, f"{text}role '{role}' contains an image URL.")
    elif role[0] not in roles:
        text = "Invalid '{at}'. Content blocks are expected to be either text or image_url type."
        yield ERROR_WORDING.finding("part-role", message_path, text)
    kind = re.match("data:((?:audio|video)/[^;,]+)", text_of(value_at(part, "file", "file_data")))
    if kind:
        text = "Invalid file data: '{at}'. Expected a base64-encoded data URL with an application/pdf MIME type, "
        at = (*path, "file", "file_data")
        yield ERROR_WORDING.finding("file-type", at, f"{text}but got unsupported MIME type '{kind[1]}'.")


def _check_tagged(
    path: JsonPath, value: JsonObject, table: dict[str, tuple[str, Fields]], suffix: str = ""
) -> Findings:
    """Check a tool or call, whose `type` names the field that holds its members.

    `table` maps each type to that field and its expected members.
    """
    tag = text_of(value.get("type"))
    yield from ERROR_WORDING.check_fields(path, value, parse_fields(f"type!:string {suffix}"))
    if tag in table:
        yield from ERROR_WORDING.check_fields(path, value, parse_fields(f"{tag}!:object"))
        yield from ERROR_WORDING.check_fields((*path, tag), value.get(tag), table[tag][1])
        yield from check_name(ERROR_WORDING, (*path, tag, "name"), value_at(value, tag, "name"), 64)
    elif tag:
        message = f"Invalid value: '{tag}'. Supported values are: {ERROR_WORDING.join_choices(table)}."
        level: Level = "error" if tag in _FOREIGN_TAGS else "warning"
        yield ERROR_WORDING.finding("tag-unknown", (*path, "type"), message, level)


def check_tool(path: JsonPath, tool: JsonObject) -> Findings:
    """Check one tool declaration."""
    yield from _check_tagged(path, tool, _TOOLS)
    grammar = value_at(tool, "custom", "format", "grammar")
    yield from ERROR_WORDING.check_fields((*path, "custom", "format", "grammar"), grammar, _GRAMMAR)
    function = object_of(tool.get("function"))
    schema, strict = function.get("parameters"), function.get("strict") is True
    context = f"function '{text_of(function.get('name'))}'"
    yield from check_schema(ERROR_WORDING, (*path, "function", "parameters"), schema, context, strict=strict)


def _check_format(response_format: JsonObject) -> Findings:
    """Check `response_format`."""
    at = ("response_format", "json_schema")
    json_schema = response_format.get("json_schema")
    yield from ERROR_WORDING.check_fields(at[:1], response_format or None, _FORMAT)
    if response_format.get("type") == "json_schema" and json_schema is None:
        yield ERROR_WORDING.finding("field-missing", at, "Missing required parameter: '{at}'.")
    yield from ERROR_WORDING.check_fields(at, json_schema, _JSON_SCHEMA)
    yield from check_name(ERROR_WORDING, (*at, "name"), value_at(json_schema, "name"), 64)
    strict, context = (
        value_at(json_schema, "strict") is True,
        f"response_format '{text_of(value_at(json_schema, 'name'))}'",
    )
    yield from check_schema(ERROR_WORDING, (*at, "schema"), value_at(json_schema, "schema"), context, strict=strict)
