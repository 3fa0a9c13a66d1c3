"""Checks of single fields, steps, content and tools of an Interactions request; `rules` combines them."""

import re
from base64 import b64decode

from toolwire.codec.validation import (
    ErrorWording,
    Findings,
    JsonObject,
    JsonPath,
    list_of,
    number_of,
    object_items,
    object_of,
    parse_fields,
    parse_shapes,
    text_of,
    value_at,
)


def _format_path(path: JsonPath) -> str:
    """Format a path as the server does: `input[0].content`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


ERROR_WORDING = ErrorWording(
    "gemini-interactions",
    format_path=_format_path,
    type_names={
        "string": "a string",
        "integer": "an integer",
        "number": "a number",
        "boolean": "a boolean",
        "array": "a list",
        "object": "an object",
    },
    missing_message="Missing required field '{at}'.",
    type_message="Invalid value at '{at}': expected {types}, got {got}.",
    choice_message="Invalid value at '{at}': '{value}' is none of {words}.",
)
_finding = ERROR_WORDING.finding

_REQUEST = parse_fields(
    "model:string agent:string agent_config:object input:string|object|array system_instruction:string tools:array "
    "generation_config:object response_format:object|array response_mime_type:string response_modalities:array "
    "cached_content:string previous_interaction_id:string store:boolean background:boolean stream:boolean "
    "continuation_token:string environment:string|object service_tier~flex|standard|priority|deferred "
    "safety_settings:array labels:object webhook_config:object"
)
_GENERATION = parse_fields(
    "max_output_tokens:integer seed:integer stop_sequences:array thinking_level~minimal|low|medium|high "
    "thinking_summaries~auto|none tool_choice:string|object speech_config:array|object transcription_config:object "
    "video_config:object image_config:object temperature:number top_p:number"
)
_RANGES = {"temperature": (0, 2), "top_p": (0, 1), "max_output_tokens": (1, None)}
_CHOICE = parse_fields("allowed_tools:object")
_ALLOWED = parse_fields("mode~auto|any|none|validated tools:array")
_AGENT = parse_fields("type!~deep-research|antigravity|code-mender|dynamic")
CONTENT_FIELDS = parse_shapes(
    "text text text!:string annotations:array",
    "image media data:string uri:string mime_type:string resolution~low|medium|high|ultra_high",
    "audio media data:string uri:string mime_type:string channels:integer sample_rate:integer",
    "document media data:string uri:string mime_type:string",
    "video media data:string uri:string mime_type:string name:string resolution~low|medium|high|ultra_high",
)
# Step type, speaker, fields.
STEP_FIELDS = parse_shapes(
    "user_input user content:array",
    "model_output model content:array error:object",
    "thought model signature:string summary:array",
    "function_call model id!:string name!:string arguments!:object signature:string",
    "function_result user call_id!:string result!:string|object|array name:string is_error:boolean",
    "code_execution_call model id!:string arguments!:object signature:string",
    "code_execution_result model call_id!:string result!:string|array is_error:boolean signature:string",
    "google_search_call model id!:string arguments!:object search_type:string signature:string",
    "google_search_result model call_id!:string result!:array is_error:boolean signature:string",
    "url_context_call model id!:string arguments!:object signature:string",
    "url_context_result model call_id!:string result!:array is_error:boolean signature:string",
    "google_maps_call model id!:string arguments:object signature:string",
    "google_maps_result model call_id!:string result!:array signature:string",
    "retrieval_call model id!:string arguments!:object retrieval_type:string signature:string",
    "retrieval_result model call_id!:string is_error:boolean signature:string",
    "file_search_call,processing_call model id!:string signature:string",
    "file_search_result,processing_result model call_id!:string signature:string",
    "mcp_server_tool_call model id!:string name!:string server_name!:string arguments!:object",
    "mcp_server_tool_result model call_id!:string result!:string|object|array name:string server_name:string",
)
_TOOLS = parse_shapes(
    "function f name!:string description:string parameters:object",
    "code_execution,url_context t type!:string",
    "google_search t search_types:array",
    "file_search t file_search_store_names:array top_k:integer metadata_filter:string",
    "google_maps t latitude:number longitude:number enable_widget:boolean",
    "computer_use t environment~browser|mobile|desktop excluded_predefined_functions:array "
    "enable_prompt_injection_detection:boolean disabled_safety_policies:array",
    "mcp_server t name:string url:string headers:object allowed_tools:array",
    "retrieval t retrieval_types:array",
)
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
_LABEL = re.compile(r"[\w-]{0,63}")


def check_fields(body: JsonObject) -> Findings:
    """Check the top-level fields, generation config and labels."""
    yield from ERROR_WORDING.check_fields((), body, _REQUEST)
    for name in sorted(body.keys() - {field.name for field in _REQUEST}):
        yield _finding("field-unknown", (name,), "Unknown field '{at}'.", "warning")
    config = object_of(body.get("generation_config"))
    at: JsonPath = ("generation_config",)
    yield from ERROR_WORDING.check_fields(at, config, _GENERATION)
    for name, (minimum, maximum) in _RANGES.items():
        number = number_of(config.get(name))
        if number is not None and (number < minimum or (maximum is not None and number > maximum)):
            yield _finding("field-range", (*at, name), "Invalid value at '{at}': out of range.")
    yield from ERROR_WORDING.check_fields((*at, "tool_choice"), config.get("tool_choice"), _CHOICE)
    yield from ERROR_WORDING.check_fields(
        (*at, "tool_choice", "allowed_tools"), value_at(config, "tool_choice", "allowed_tools"), _ALLOWED
    )
    yield from ERROR_WORDING.check_fields(("agent_config",), body.get("agent_config"), _AGENT)
    for name, value in object_of(body.get("labels")).items():
        if not (isinstance(value, str) and _LABEL.fullmatch(value) and _LABEL.fullmatch(name) and name[:1].isalpha()):
            yield _finding("label", ("labels", name), "Invalid label '{at}'.")


def check_content(path: JsonPath, content: object, *, allow_results: bool = False) -> Findings:
    """Check a list of content objects; `allow_results`: function results may be among them."""
    for index, part in enumerate(list_of(content)):
        at = (*path, index)
        tag = value_at(part, "type")
        if not isinstance(part, dict) or not isinstance(tag, str):
            yield _finding("content-type", at, "Invalid value at '{at}': content must have a type.")
        elif tag == "function_result" and allow_results:
            yield from check_step(at, part)
        elif tag in STEP_FIELDS:
            yield _finding("content-is-step", at, f"Invalid value at '{{at}}': '{tag}' is a step, not content.")
        elif tag not in CONTENT_FIELDS:
            yield _finding("content-unknown", at, f"Invalid value at '{{at}}': unknown content '{tag}'.", "warning")
        else:
            yield from check_part(at, part)


def check_part(at: JsonPath, part: JsonObject) -> Findings:
    """Check one content object."""
    kind, table = CONTENT_FIELDS[text_of(part.get("type"))]
    yield from ERROR_WORDING.check_fields(at, part, table)
    if kind == "media" and "data" not in part and "uri" not in part:
        yield _finding("media-source", at, "Invalid value at '{at}': one of data or uri is required.")


def check_step(path: JsonPath, step: JsonObject) -> Findings:
    """Check one step with its content and signature."""
    tag = text_of(step.get("type"))
    if not tag:
        yield _finding("step-type", path, "Invalid value at '{at}': a step must have a type.")
        return
    if tag in CONTENT_FIELDS:
        yield _finding(
            "step-is-content", path, f"Invalid value at '{{at}}': '{tag}' is content, not a step.", "warning"
        )
        return
    if tag not in STEP_FIELDS:
        yield _finding("step-unknown", path, f"Invalid value at '{{at}}': unknown step '{tag}'.", "warning")
        return
    yield from ERROR_WORDING.check_fields(path, step, STEP_FIELDS[tag][1])
    yield from check_content((*path, "content"), step.get("content"), allow_results=tag == "user_input")
    yield from check_content((*path, "summary"), step.get("summary"))
    if tag in ("function_result", "code_execution_result"):
        yield from check_content((*path, "result"), step.get("result"))
    signature = step.get("signature")
    if isinstance(signature, str) and not _is_base64(signature):
        yield _finding("signature", (*path, "signature"), "Invalid value at '{at}': Base64 decoding failed.")


def _is_base64(text: str) -> bool:
    """Check for base64 in either alphabet."""
    try:
        b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except ValueError:
        return False
    return True


def check_tool(path: JsonPath, tool: JsonObject) -> Findings:
    """Check one tool declaration."""
    kind = text_of(tool.get("type"))
    if not kind:
        yield _finding("tool-type", path, "Invalid value at '{at}': a tool must have a type.")
    elif kind not in _TOOLS:
        yield _finding("tool-unknown", path, f"Invalid value at '{{at}}': unknown tool '{kind}'.", "warning")
    else:
        yield from ERROR_WORDING.check_fields(path, tool, _TOOLS[kind][1])
    name = tool.get("name")
    if kind == "function" and isinstance(name, str) and not _NAME.fullmatch(name):
        message = (
            "Invalid function name at '{at}': it must start with a letter or an underscore, and hold letters, digits, "
        )
        yield _finding("tool-name", (*path, "name"), message + "underscores, dots, colons and dashes only.")


def request_steps(body: JsonObject) -> list[tuple[JsonPath, JsonObject]]:
    """Return the steps of a request with their paths; an empty list if its input is content, not steps."""
    steps = object_items(body.get("input"), ("input",))
    return [] if steps and text_of(steps[0][1].get("type")) in CONTENT_FIELDS else steps
