"""What the Gemini server says of an object, a tool or a setting by itself; `rules` is the whole.

Names are taken in either spelling, as the server does; tables have them in camelCase.
"""

import re
from functools import cache

from toolwire.codec.check import (
    Fields,
    Findings,
    Level,
    Object,
    Path,
    Voice,
    dig,
    fields,
    kind_of,
    list_of,
    members,
    misfits,
    number_of,
    object_of,
    text_of,
    words,
)


def _place(path: Path) -> str:
    """As the server names places: `contents[0].parts[1].function_call`."""
    said = ""
    for step in path:
        said += f"[{step}]" if isinstance(step, int) else f".{snake(step)}" if said else snake(step)
    return said


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda match: "_" + match[1].lower(), name)


@cache
def camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)


def spelled(value: object) -> Object:
    """An object with its names in camelCase."""
    return {camel(name): inner for name, inner in object_of(value).items()}


VOICE = Voice(
    "gemini",
    place=_place,
    types={"object": "TYPE_MESSAGE", "string": "TYPE_STRING", "integer": "TYPE_INT32", "number": "TYPE_FLOAT"},
    missing="* GenerateContentRequest.{at}: must be specified",
    type="Invalid value at '{at}' ({types}), {got}",
    word="Invalid value at '{at}', \"{value}\"",
)
_found = VOICE.found

REQUEST = fields(
    "contents!:array systemInstruction:object tools:array|object toolConfig:object safetySettings:array "
    "generationConfig:object cachedContent:string labels:object serviceTier:string store:boolean "
    "continuationToken:string modelArmorConfig:object generationOutputConfig:object model:string"
)
CONTENT = fields("parts:array role:string")
PART = fields(
    "text:string inlineData:object fileData:object functionCall:object functionResponse:object executableCode:object "
    "codeExecutionResult:object toolCall:object toolResponse:object thought:boolean thoughtSignature:string "
    "videoMetadata:object mediaResolution:object mediaProcessing:string partMetadata:object "
    "audioTranscription:object speechMetadata:object"
)
DATA = words(
    "text inlineData fileData functionCall functionResponse executableCode codeExecutionResult toolCall toolResponse"
)
_INNER: dict[str, Fields] = {
    "inlineData": fields("mimeType:string data:string displayName:string"),
    "fileData": fields("fileUri:string mimeType:string displayName:string"),
    "functionCall": fields("id:string name!:string args:object partialArgs:array willContinue:boolean"),
    "functionResponse": fields(
        "id:string name!:string response:object parts:array scheduling~SILENT|WHEN_IDLE|INTERRUPT willContinue:boolean"
    ),
    "executableCode": fields("language:string code:string id:string"),
    "codeExecutionResult": fields("outcome:string output:string id:string"),
    "toolCall": fields("id:string toolType:string args:object"),
    "toolResponse": fields("id:string toolType:string response:object"),
}
_DECLARATION = fields(
    "name!:string description:string parameters:object parametersJsonSchema:object response:object "
    "responseJsonSchema:object behavior:string|integer"
)
_TOOL_CONFIG = fields("functionCallingConfig:object retrievalConfig:object includeServerSideToolInvocations:boolean")
_CALLING = fields("mode:string|integer allowedFunctionNames:array streamFunctionCallArguments:boolean")
_MODES = words("AUTO ANY NONE VALIDATED MODE_UNSPECIFIED")
_GENERATION = fields(
    "temperature:number topP:number topK:number candidateCount:integer maxOutputTokens:integer stopSequences:array "
    "seed:integer presencePenalty:number frequencyPenalty:number responseLogprobs:boolean logprobs:integer "
    "responseMimeType:string responseSchema:object responseJsonSchema:object responseFormat:array "
    "responseModalities:array mediaResolution:string|integer speechConfig:object thinkingConfig:object "
    "imageConfig:object enableEnhancedCivicAnswers:boolean audioTranscriptionConfig:object translationConfig:object "
    "routingConfig:object modelSelectionConfig:object audioTimestamp:boolean modelConfig:object"
)
_THINKING = fields("includeThoughts:boolean thinkingBudget:integer thinkingLevel:string|integer")
_BUILT_IN = words(
    "functionDeclarations googleSearch urlContext codeExecution fileSearch googleMaps computerUse mcpServers "
    "googleSearchRetrieval retrieval enterpriseWebSearch parallelAiSearch exaAiSearch"
)
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
NAME = (
    "Invalid function name. Must start with a letter or an underscore. Must be alphanumeric (a-z, A-Z, 0-9), "
    "underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 128."
)
_WARM = 2.0


def check_object(path: Path, value: object, table: Fields) -> Findings:
    """Unknown names, and known ones of another type."""
    if not isinstance(value, dict):
        return
    known = {field.name for field in table}
    for name in value:
        if camel(name) not in known:
            where = f" at '{_place(path)}'" if path else ""
            said = f'Invalid JSON payload received. Unknown name "{name}"{where}: Cannot find field.'
            yield _found("field-unknown", (*path, name), said)
    names = {camel(name): name for name in value}
    for kind, field, found in misfits(spelled(value), table):
        at = (*path, names.get(field.name, field.name))
        if kind == "missing":
            yield _found("field-missing", at, "* GenerateContentRequest.{at}: must be specified")
        elif kind == "type":
            yield _found("field-type", at, f"Invalid value at '{{at}}', {kind_of(found)}")
        else:
            yield _found("field-word", at, f"Invalid value at '{{at}}', \"{text_of(found)}\"", "warning")


def check_content(path: Path, value: object) -> Findings:
    yield from check_object(path, value, CONTENT)
    for at, part in members(object_of(value).get("parts"), (*path, "parts")):
        yield from _check_part(at, part)


def _check_part(path: Path, part: Object) -> Findings:
    yield from check_object(path, part, PART)
    told = spelled(part)
    data = [name for name in told if name in DATA and told[name] is not None]
    if len(data) > 1:
        said = f"Invalid value at '{_place(path)}' (oneof), oneof field 'data' is already set."
        yield _found("part-data", path, said)
    elif not data and told.keys() <= {"thought"}:
        said = "* GenerateContentRequest.{at}.data: required oneof field 'data' must have one initialized field"
        yield _found("part-data", path, said)
    for name in part:
        if (table := _INNER.get(camel(name))) is not None:
            yield from check_object((*path, name), part[name], table)
    for name in ("functionCall", "functionResponse"):
        if isinstance(inner := told.get(name), dict) and inner.get("name") == "":
            at = (*path, name, "name")
            yield _found("name-empty", at, "* GenerateContentRequest.{at}: Name cannot be empty.")


def check_tools(value: object) -> Findings:
    path: Path = ("tools",)
    bags = [(path, value)] if isinstance(value, dict) else members(value, path)
    seen: set[str] = set()
    for at, bag in bags:
        yield from check_object(
            at, bag, tuple(field for name in sorted(_BUILT_IN) for field in fields(f"{name}:object|array"))
        )
        for name in object_of(bag):
            if camel(name) == "functionDeclarations":
                for place, declaration in members(object_of(bag)[name], (*at, name)):
                    yield from _check_declaration(place, declaration, seen)


def _check_declaration(path: Path, declaration: Object, seen: set[str]) -> Findings:
    yield from check_object(path, declaration, _DECLARATION)
    told = spelled(declaration)
    name = text_of(told.get("name"))
    if "name" in told and not _NAME.fullmatch(name):
        yield _found("tool-name", (*path, "name"), "* GenerateContentRequest.{at}: " + NAME)
    if name in seen:
        yield _found("tool-twice", (*path, "name"), f"Duplicate function declaration found: {name}")
    seen.add(name)
    for one, other in (("parameters", "parametersJsonSchema"), ("response", "responseJsonSchema")):
        if told.get(one) is not None and told.get(other) is not None:
            said = f"* GenerateContentRequest.{{at}}: only one of {snake(one)} and {snake(other)} may be set"
            yield _found("schema-twice", path, said)


def check_config(value: object, *, functions: bool, tools: bool) -> Findings:
    path: Path = ("toolConfig",)
    yield from check_object(path, value, _TOOL_CONFIG)
    calling = spelled(value).get("functionCallingConfig")
    if not isinstance(calling, dict):
        return
    at = (*path, "functionCallingConfig")
    yield from check_object(at, calling, _CALLING)
    told = spelled(calling)
    mode = told.get("mode")
    if isinstance(mode, str) and mode not in _MODES:
        yield _found("choice-mode", (*at, "mode"), f"Invalid value at '{{at}}', \"{mode}\"")
    if not functions and mode is not None:
        # Beside tools of Google's own some models let it pass.
        level: Level = "warning" if tools else "error"
        yield _found(
            "choice-without-functions", at, "Function calling config is set without function_declarations", level
        )
    if mode in ("AUTO", "NONE") and list_of(told.get("allowedFunctionNames")):
        said = "Allowed function names should only be set when the function calling mode is ANY or VALIDATED."
        yield _found("choice-names", (*at, "allowedFunctionNames"), said)


def check_generation(value: object) -> Findings:
    path: Path = ("generationConfig",)
    yield from check_object(path, value, _GENERATION)
    told = spelled(value)
    warmth = number_of(told.get("temperature"))
    if warmth is not None and not 0 <= warmth <= _WARM:
        said = f"Unable to submit request because it has a temperature value of {warmth:g} but the supported range "
        said += "is from 0 (inclusive) to 2.0001 (exclusive). Update the value and try again."
        yield _found("temperature", (*path, "temperature"), said)
    if isinstance(thinking := told.get("thinkingConfig"), dict):
        at = (*path, "thinkingConfig")
        yield from check_object(at, thinking, _THINKING)
        both = spelled(thinking)
        if both.get("thinkingLevel") is not None and both.get("thinkingBudget") is not None:
            said = "You can only set only one of thinking budget and thinking level."
            yield _found("thinking-twice", at, said)
    if told.get("responseSchema") is not None and told.get("responseJsonSchema") is not None:
        yield _found("schema-twice", path, "only one of response_schema and response_json_schema may be set")


def calls_of(content: object) -> list[Object]:
    return _inner(content, "functionCall")


def results_of(content: object) -> list[Object]:
    return _inner(content, "functionResponse")


def _inner(content: object, name: str) -> list[Object]:
    parts = [spelled(part) for _, part in members(dig(content, "parts"), ())]
    return [part for part in parts if isinstance(part.get(name), dict)]
