"""Checks of single objects, tools and settings of a Gemini request; `rules` combines them.

The server accepts both spellings of field names; the tables here use camelCase.
"""

import re
from functools import cache

from toolwire.codec.validation import (
    ErrorWording,
    Fields,
    Findings,
    JsonObject,
    JsonPath,
    Level,
    field_errors,
    json_type,
    list_of,
    number_of,
    object_items,
    object_of,
    parse_fields,
    text_of,
    value_at,
    word_set,
)


def _format_path(path: JsonPath) -> str:
    """Format a path as the server does: `contents[0].parts[1].function_call`."""
    formatted = ""
    for step in path:
        formatted += (
            f"[{step}]" if isinstance(step, int) else f".{to_snake_case(step)}" if formatted else to_snake_case(step)
        )
    return formatted


def to_snake_case(name: str) -> str:
    """Convert a camelCase name to snake_case."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda match: "_" + match[1].lower(), name)


@cache
def to_camel_case(name: str) -> str:
    """Convert a snake_case name to camelCase."""
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)


def with_camel_case_keys(value: object) -> JsonObject:
    """Return a copy of an object with its names in camelCase."""
    return {to_camel_case(name): inner for name, inner in object_of(value).items()}


ERROR_WORDING = ErrorWording(
    "gemini",
    format_path=_format_path,
    type_names={"object": "TYPE_MESSAGE", "string": "TYPE_STRING", "integer": "TYPE_INT32", "number": "TYPE_FLOAT"},
    missing_message="* GenerateContentRequest.{at}: must be specified",
    type_message="Invalid value at '{at}' ({types}), {got}",
    choice_message="Invalid value at '{at}', \"{value}\"",
)
_finding = ERROR_WORDING.finding

REQUEST_FIELDS = parse_fields(
    "contents!:array systemInstruction:object tools:array|object toolConfig:object safetySettings:array "
    "generationConfig:object cachedContent:string labels:object serviceTier:string store:boolean "
    "continuationToken:string modelArmorConfig:object generationOutputConfig:object model:string"
)
CONTENT_FIELDS = parse_fields("parts:array role:string")
PART_FIELDS = parse_fields(
    "text:string inlineData:object fileData:object functionCall:object functionResponse:object executableCode:object "
    "codeExecutionResult:object toolCall:object toolResponse:object thought:boolean thoughtSignature:string "
    "videoMetadata:object mediaResolution:object mediaProcessing:string partMetadata:object "
    "audioTranscription:object speechMetadata:object"
)
DATA_FIELDS = word_set(
    "text inlineData fileData functionCall functionResponse executableCode codeExecutionResult toolCall toolResponse"
)
_INNER_FIELDS: dict[str, Fields] = {
    "inlineData": parse_fields("mimeType:string data:string displayName:string"),
    "fileData": parse_fields("fileUri:string mimeType:string displayName:string"),
    "functionCall": parse_fields("id:string name!:string args:object partialArgs:array willContinue:boolean"),
    "functionResponse": parse_fields(
        "id:string name!:string response:object parts:array scheduling~SILENT|WHEN_IDLE|INTERRUPT willContinue:boolean"
    ),
    "executableCode": parse_fields("language:string code:string id:string"),
    "codeExecutionResult": parse_fields("outcome:string output:string id:string"),
    "toolCall": parse_fields("id:string toolType:string args:object"),
    "toolResponse": parse_fields("id:string toolType:string response:object"),
}
_DECLARATION = parse_fields(
    "name!:string description:string parameters:object parametersJsonSchema:object response:object "
    "responseJsonSchema:object behavior:string|integer"
)
_TOOL_CONFIG = parse_fields(
    "functionCallingConfig:object retrievalConfig:object includeServerSideToolInvocations:boolean"
)
_CALLING = parse_fields("mode:string|integer allowedFunctionNames:array streamFunctionCallArguments:boolean")
_MODES = word_set("AUTO ANY NONE VALIDATED MODE_UNSPECIFIED")
_GENERATION = parse_fields(
    "temperature:number topP:number topK:number candidateCount:integer maxOutputTokens:integer stopSequences:array "
    "seed:integer presencePenalty:number frequencyPenalty:number responseLogprobs:boolean logprobs:integer "
    "responseMimeType:string responseSchema:object responseJsonSchema:object responseFormat:array "
    "responseModalities:array mediaResolution:string|integer speechConfig:object thinkingConfig:object "
    "imageConfig:object enableEnhancedCivicAnswers:boolean audioTranscriptionConfig:object translationConfig:object "
    "routingConfig:object modelSelectionConfig:object audioTimestamp:boolean modelConfig:object"
)
_THINKING = parse_fields("includeThoughts:boolean thinkingBudget:integer thinkingLevel:string|integer")
_BUILT_IN = word_set(
    "functionDeclarations googleSearch urlContext codeExecution fileSearch googleMaps computerUse mcpServers "
    "googleSearchRetrieval retrieval enterpriseWebSearch parallelAiSearch exaAiSearch"
)
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
NAME_MESSAGE = (
    "Invalid function name. Must start with a letter or an underscore. Must be alphanumeric (a-z, A-Z, 0-9), "
    "underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 128."
)
_MAX_TEMPERATURE = 2.0


def check_object(path: JsonPath, value: object, table: Fields) -> Findings:
    """Yield findings for unknown fields and for known fields of the wrong type."""
    if not isinstance(value, dict):
        return
    known_names = {field.name for field in table}
    for name in value:
        if to_camel_case(name) not in known_names:
            location = f" at '{_format_path(path)}'" if path else ""
            message = f'Invalid JSON payload received. Unknown name "{name}"{location}: Cannot find field.'
            yield _finding("field-unknown", (*path, name), message)
    names = {to_camel_case(name): name for name in value}
    for kind, field, field_value in field_errors(with_camel_case_keys(value), table):
        at = (*path, names.get(field.name, field.name))
        if kind == "missing":
            yield _finding("field-missing", at, "* GenerateContentRequest.{at}: must be specified")
        elif kind == "type":
            yield _finding("field-type", at, f"Invalid value at '{{at}}', {json_type(field_value)}")
        else:
            yield _finding("field-word", at, f"Invalid value at '{{at}}', \"{text_of(field_value)}\"", "warning")


def check_content(path: JsonPath, value: object) -> Findings:
    """Check one content and its parts."""
    yield from check_object(path, value, CONTENT_FIELDS)
    for at, part in object_items(object_of(value).get("parts"), (*path, "parts")):
        yield from _check_part(at, part)


def _check_part(path: JsonPath, part: JsonObject) -> Findings:
    """Check the fields of a part, and that exactly one data field is set."""
    yield from check_object(path, part, PART_FIELDS)
    fields = with_camel_case_keys(part)
    data = [name for name in fields if name in DATA_FIELDS and fields[name] is not None]
    if len(data) > 1:
        message = f"Invalid value at '{_format_path(path)}' (oneof), oneof field 'data' is already set."
        yield _finding("part-data", path, message)
    elif not data and fields.keys() <= {"thought"}:
        message = "* GenerateContentRequest.{at}.data: required oneof field 'data' must have one initialized field"
        yield _finding("part-data", path, message)
    for name in part:
        if (table := _INNER_FIELDS.get(to_camel_case(name))) is not None:
            yield from check_object((*path, name), part[name], table)
    for name in ("functionCall", "functionResponse"):
        if isinstance(inner := fields.get(name), dict) and inner.get("name") == "":
            at = (*path, name, "name")
            yield _finding("name-empty", at, "* GenerateContentRequest.{at}: Name cannot be empty.")


def check_tools(value: object) -> Findings:
    """Check the `tools` list and its function declarations."""
    root: JsonPath = ("tools",)
    bags = [(root, value)] if isinstance(value, dict) else object_items(value, root)
    names: set[str] = set()
    for at, bag in bags:
        yield from check_object(
            at, bag, tuple(field for name in sorted(_BUILT_IN) for field in parse_fields(f"{name}:object|array"))
        )
        for name in object_of(bag):
            if to_camel_case(name) == "functionDeclarations":
                for path, declaration in object_items(object_of(bag)[name], (*at, name)):
                    yield from _check_declaration(path, declaration, names)


def _check_declaration(path: JsonPath, declaration: JsonObject, names: set[str]) -> Findings:
    """Check one function declaration: its name, duplicates and schemas."""
    yield from check_object(path, declaration, _DECLARATION)
    fields = with_camel_case_keys(declaration)
    name = text_of(fields.get("name"))
    if "name" in fields and not _NAME.fullmatch(name):
        yield _finding("tool-name", (*path, "name"), "* GenerateContentRequest.{at}: " + NAME_MESSAGE)
    if name in names:
        yield _finding("tool-twice", (*path, "name"), f"Duplicate function declaration found: {name}")
    names.add(name)
    for openapi, json_schema in (("parameters", "parametersJsonSchema"), ("response", "responseJsonSchema")):
        if fields.get(openapi) is not None and fields.get(json_schema) is not None:
            message = (
                f"* GenerateContentRequest.{{at}}: "
                f"only one of {to_snake_case(openapi)} and {to_snake_case(json_schema)} may be set"
            )
            yield _finding("schema-twice", path, message)


def check_config(value: object, *, has_functions: bool, has_tools: bool) -> Findings:
    """Check `toolConfig` and its function calling mode against the declared tools."""
    path: JsonPath = ("toolConfig",)
    yield from check_object(path, value, _TOOL_CONFIG)
    calling = with_camel_case_keys(value).get("functionCallingConfig")
    if not isinstance(calling, dict):
        return
    at = (*path, "functionCallingConfig")
    yield from check_object(at, calling, _CALLING)
    fields = with_camel_case_keys(calling)
    mode = fields.get("mode")
    if isinstance(mode, str) and mode not in _MODES:
        yield _finding("choice-mode", (*at, "mode"), f"Invalid value at '{{at}}', \"{mode}\"")
    if not has_functions and mode is not None:
        # Some models accept it when hosted tools are declared.
        level: Level = "warning" if has_tools else "error"
        yield _finding(
            "choice-without-functions", at, "Function calling config is set without function_declarations", level
        )
    if mode in ("AUTO", "NONE") and list_of(fields.get("allowedFunctionNames")):
        message = "Allowed function names should only be set when the function calling mode is ANY or VALIDATED."
        yield _finding("choice-names", (*at, "allowedFunctionNames"), message)


def check_generation(value: object) -> Findings:
    """Check `generationConfig`: temperature range, thinking and schemas."""
    path: JsonPath = ("generationConfig",)
    yield from check_object(path, value, _GENERATION)
    fields = with_camel_case_keys(value)
    temperature = number_of(fields.get("temperature"))
    if temperature is not None and not 0 <= temperature <= _MAX_TEMPERATURE:
        message = (
            f"Unable to submit request because it has a temperature value of {temperature:g} but the supported range "
        )
        message += "is from 0 (inclusive) to 2.0001 (exclusive). Update the value and try again."
        yield _finding("temperature", (*path, "temperature"), message)
    if isinstance(thinking := fields.get("thinkingConfig"), dict):
        at = (*path, "thinkingConfig")
        yield from check_object(at, thinking, _THINKING)
        thinking_fields = with_camel_case_keys(thinking)
        if thinking_fields.get("thinkingLevel") is not None and thinking_fields.get("thinkingBudget") is not None:
            message = "You can only set only one of thinking budget and thinking level."
            yield _finding("thinking-twice", at, message)
    if fields.get("responseSchema") is not None and fields.get("responseJsonSchema") is not None:
        yield _finding("schema-twice", path, "only one of response_schema and response_json_schema may be set")


def content_calls(content: object) -> list[JsonObject]:
    """Return the parts of a content that hold a `functionCall`."""
    return _part_members(content, "functionCall")


def content_results(content: object) -> list[JsonObject]:
    """Return the parts of a content that hold a `functionResponse`."""
    return _part_members(content, "functionResponse")


def _part_members(content: object, name: str) -> list[JsonObject]:
    """Return the parts of a content, with camelCase keys, in which the field `name` is an object."""
    parts = [with_camel_case_keys(part) for _, part in object_items(value_at(content, "parts"), ())]
    return [part for part in parts if isinstance(part.get(name), dict)]
