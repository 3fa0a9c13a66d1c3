"""What the Chat Completions server says of a field, message, part or tool by itself; `rules` is the whole."""

import re

from toolwire.codec.check import (
    Fields,
    Findings,
    Level,
    Object,
    Path,
    dig,
    fields,
    list_of,
    members,
    number_of,
    object_of,
    shapes,
    text_of,
    words,
)
from toolwire.protocols.openai import check_length, check_schema, openai_voice

VOICE = openai_voice("openai-chat")

KNOWN = {
    "Request": words("audio logit_bias modalities prediction"),
    "Sampling": words("max_tokens"),
    # Of `service_tier` an upstream's own word may be told: "standard".
    "Response": words("system_fingerprint"),
    "ResponseStart": words("system_fingerprint"),
    "ResponseEnd": words("system_fingerprint"),
    "Candidate": words("logprobs"),
    "Stopped": words("logprobs"),
    "PartDelta": words("logprobs"),
    "Notice": words("logprobs"),
    "Usage": words("prompt_tokens_details/audio_tokens completion_tokens_details/audio_tokens")
    | words(
        "completion_tokens_details/accepted_prediction_tokens completion_tokens_details/rejected_prediction_tokens"
    ),
}
"""What OpenAI itself has of the fields that are kept for this family, by canonical type."""

_REQUEST = fields(
    "model!:string messages!:array tools:array functions:array parallel_tool_calls:boolean stop:string|array "
    "tool_choice:string|object function_call:string|object max_completion_tokens:integer max_tokens:integer "
    "temperature:number top_p:number frequency_penalty:number presence_penalty:number seed:integer n:integer "
    "logit_bias:object logprobs:boolean top_logprobs:integer response_format:object stream:boolean "
    "reasoning_effort~none|minimal|low|medium|high|xhigh|max verbosity~low|medium|high modalities:array "
    "audio:object prediction:object stream_options:object store:boolean metadata:object prompt_cache_key:string "
    "service_tier~auto|default|flex|scale|priority|fast safety_identifier:string web_search_options:object"
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
_ROLES = words("system developer user assistant tool function")
_MESSAGES = shapes(
    "system,developer,user - content!:string|array name:string",
    "assistant - content:string|array refusal:string tool_calls:array function_call:object audio:object",
    "tool - content!:string|array tool_call_id!:string",
    "function - name!:string content:string",
)
# Part type, who may say it (system, developer, user, assistant, tool), fields.
_PARTS = shapes(
    "text sduat text!:string",
    "image_url u image_url!:object",
    "input_audio u input_audio!:object",
    "file u file!:object",
    "refusal a refusal!:string",
)
_ANYTHING_SAID = ("content", "tool_calls", "function_call", "audio")
_PART_FIELDS = shapes(
    "image_url - url!:string detail~auto|low|high|original",
    "input_audio - data!:string format!=wav|mp3",
    "file - file_id:string file_data:string filename:string",
)
_TOOLS = shapes(
    "function - name!:string description:string parameters:object strict:boolean",
    "custom - name!:string description:string format:object",
)
_CALLS = shapes("function - name!:string arguments!:string", "custom - name!:string input!:string")
_GRAMMAR = fields("syntax!=lark|regex definition!:string")
_FORMAT = fields("type!~text|json_object|json_schema json_schema:object")
_JSON_SCHEMA = fields("name!:string schema:object strict:boolean description:string")
_NAME = re.compile("[a-zA-Z0-9_-]+")
# Words of other protocols, refused for certain. Other unknown words may be a newer wire's: a warning at most.
_FOREIGN_FIELDS = words(
    "max_output_tokens input instructions previous_response_id stop_sequences top_k system thinking text include "
    "reasoning truncation output_config mcp_servers contents"
)
_FOREIGN_TAGS = words(
    "tool_use tool_result thinking image document input_text output_text input_image input_file function_call "
    "function_call_output namespace mcp file_search web_search code_interpreter image_generation computer shell"
)


def check_fields(body: Object) -> Findings:
    yield from VOICE.fit((), body, _REQUEST)
    for name in sorted(_FOREIGN_FIELDS & body.keys()):
        yield VOICE.found("field-foreign", (name,), f"Unrecognized request argument supplied: {name}")
    for name, (least, most) in _RANGES.items():
        value = number_of(body.get(name))
        if value is not None and not least <= value <= most:
            side, sign, limit = ("below minimum", ">=", least) if value < least else ("above maximum", "<=", most)
            said = f"Invalid '{name}': number {side} value. Expected a value {sign} {limit}."
            yield VOICE.found("field-range", (name,), said)
    for name, longest in _LENGTHS.items():
        yield from check_length(VOICE, (name,), body.get(name), longest)
    yield from check_count(("stop",), body.get("stop"), 4)
    for name, label in object_of(body.get("metadata")).items():
        yield from check_length(VOICE, ("metadata", name), name, 64)
        yield from check_length(VOICE, ("metadata", name), label, 512)
    if len(object_of(body.get("metadata"))) > 16:
        said = "Invalid 'metadata': too many properties. Expected an object with at most 16 properties."
        yield VOICE.found("field-long", ("metadata",), said)
    yield from _check_format(object_of(body.get("response_format")))


def check_count(path: Path, value: object, most: int) -> Findings:
    count = len(list_of(value))
    if count > most:
        said = f"Invalid '{{at}}': array too long. Expected an array with maximum length {most}, "
        yield VOICE.found("field-long", path, f"{said}but got an array with length {count} instead.")


def check_name(path: Path, name: object) -> Findings:
    yield from check_length(VOICE, path, name, 64)
    if isinstance(name, str) and not _NAME.fullmatch(name):
        said = "Invalid '{at}': string does not match pattern. Expected a string that matches the pattern "
        yield VOICE.found("name-pattern", path, said + "'^[a-zA-Z0-9_-]+$'.")


def check_message(path: Path, message: Object) -> Findings:
    role = message.get("role")
    if "role" not in message or not isinstance(role, str) or role not in _ROLES:
        yield from VOICE.fit(path, message, fields("role!=" + "|".join(sorted(_ROLES))))
        return
    yield from VOICE.fit(path, message, _MESSAGES[role][1])
    if role == "assistant" and all(message.get(name) is None for name in _ANYTHING_SAID):
        said = "Invalid value for 'content': expected a string, got null."
        yield VOICE.found("content-null", (*path, "content"), said)
    if message.get("tool_calls") == []:
        said = "Invalid '{at}': empty array. Expected an array with minimum length 1, but got an empty array instead."
        yield VOICE.found("tool-calls-empty", (*path, "tool_calls"), said)
    for place, part in members(message.get("content"), (*path, "content")):
        yield from _check_part(role, place, part)
    for place, call in members(message.get("tool_calls"), (*path, "tool_calls")):
        yield from _check_tagged(place, call, _CALLS, "id!:string")
        yield from check_length(VOICE, (*place, "id"), call.get("id"), 40)


def _check_part(role: str, path: Path, part: Object) -> Findings:
    tag, message = text_of(part.get("type")), path[:2]
    if tag not in _PARTS:
        said = f"Invalid value: '{tag}'. Supported values are: {VOICE.listed(_PARTS)}."
        yield VOICE.found("tag-unknown", (*path, "type"), said, "error" if tag in _FOREIGN_TAGS else "warning")
        return
    roles, table = _PARTS[tag]
    yield from VOICE.fit(path, part, table)
    if tag in _PART_FIELDS:
        yield from VOICE.fit((*path, tag), part.get(tag), _PART_FIELDS[tag][1])
    if role[0] not in roles and tag == "image_url":
        said = "Invalid '{at}'. Image URLs are only allowed for messages with role 'user', but this message with "
        yield VOICE.found("part-role", message, f"{said}role '{role}' contains an image URL.")
    elif role[0] not in roles:
        said = "Invalid '{at}'. Content blocks are expected to be either text or image_url type."
        yield VOICE.found("part-role", message, said)
    kind = re.match("data:((?:audio|video)/[^;,]+)", text_of(dig(part, "file", "file_data")))
    if kind:
        said = "Invalid file data: '{at}'. Expected a base64-encoded data URL with an application/pdf MIME type, "
        at = (*path, "file", "file_data")
        yield VOICE.found("file-type", at, f"{said}but got unsupported MIME type '{kind[1]}'.")


def _check_tagged(path: Path, value: Object, table: dict[str, tuple[str, Fields]], also: str = "") -> Findings:
    """A tool or a call: its type names the field that holds the rest."""
    tag = text_of(value.get("type"))
    yield from VOICE.fit(path, value, fields(f"type!:string {also}"))
    if tag in table:
        yield from VOICE.fit(path, value, fields(f"{tag}!:object"))
        yield from VOICE.fit((*path, tag), value.get(tag), table[tag][1])
        yield from check_name((*path, tag, "name"), dig(value, tag, "name"))
    elif tag:
        said = f"Invalid value: '{tag}'. Supported values are: {VOICE.listed(table)}."
        level: Level = "error" if tag in _FOREIGN_TAGS else "warning"
        yield VOICE.found("tag-unknown", (*path, "type"), said, level)


def check_tool(path: Path, tool: Object) -> Findings:
    yield from _check_tagged(path, tool, _TOOLS)
    grammar = dig(tool, "custom", "format", "grammar")
    yield from VOICE.fit((*path, "custom", "format", "grammar"), grammar, _GRAMMAR)
    function = object_of(tool.get("function"))
    schema, strict = function.get("parameters"), function.get("strict") is True
    of = f"function '{text_of(function.get('name'))}'"
    yield from check_schema(VOICE, (*path, "function", "parameters"), schema, of, strict=strict)


def _check_format(response_format: Object) -> Findings:
    at = ("response_format", "json_schema")
    given = response_format.get("json_schema")
    yield from VOICE.fit(at[:1], response_format or None, _FORMAT)
    if response_format.get("type") == "json_schema" and given is None:
        yield VOICE.found("field-missing", at, "Missing required parameter: '{at}'.")
    yield from VOICE.fit(at, given, _JSON_SCHEMA)
    yield from check_name((*at, "name"), dig(given, "name"))
    strict, of = dig(given, "strict") is True, f"response_format '{text_of(dig(given, 'name'))}'"
    yield from check_schema(VOICE, (*at, "schema"), dig(given, "schema"), of, strict=strict)
