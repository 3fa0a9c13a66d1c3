"""Checks of single fields, messages and tools of an Ollama request; `rules` combines them.

The server decodes a body into Go structs: it rejects wrong types with the message of Go's decoder, and ignores unknown
fields.
"""

from toolwire.codec.schema.dialect import Dialect
from toolwire.codec.validation import (
    ErrorWording,
    Findings,
    JsonObject,
    JsonPath,
    json_type,
    list_of,
    object_items,
    object_of,
    parse_fields,
    parse_shapes,
    text_of,
    value_at,
    word_set,
)

# Keywords of the server's schema structs; it drops others before the model sees them. Only `items` stays unchanged,
# but references in it cannot be resolved.
PARAMETERS_SCHEMA = Dialect(
    name="ollama",
    keywords=word_set("anyOf type items description enum properties required"),
    root_keywords=word_set("type $defs items required properties"),
    references="inlined",
    items_dialect=Dialect(name="ollama-items", unsupported_keywords=word_set("nullable"), references="inlined"),
)
# A format is compiled to a grammar. The compiler fails on boolean schemas and on `not`.
FORMAT_SCHEMA = Dialect(name="ollama-format", unsupported_keywords=word_set("not nullable"))


def _format_path(path: JsonPath) -> str:
    """Format a path as a Go struct field: `ChatRequest.messages.role`."""
    return ".".join(["ChatRequest", *(step for step in path if isinstance(step, str))])


ERROR_WORDING = ErrorWording(
    "ollama",
    format_path=_format_path,
    type_names={"boolean": "bool", "integer": "number"},
    missing_message="{at} is required",
    type_message="json: cannot unmarshal {got} into Go struct field {at} of type {types}",
    choice_message="{at}: {value} is none of {words}",
)

_REQUEST = parse_fields(
    "model:string messages:array tools:array stream:boolean options:object logprobs:boolean top_logprobs:integer "
    "keep_alive:string|number truncate:boolean shift:boolean format:string|object"
)
_MESSAGE = parse_fields(
    "role!:string content:string thinking:string images:array tool_calls:array tool_name:string tool_call_id:string"
)
_ROLES = ("system", "user", "assistant", "tool")
_CALL = parse_fields("id:string function!:object")
_CALL_FUNCTION = parse_fields("index:integer name!:string arguments:object")
_TOOL = parse_fields("type:string function!:object")
_FUNCTION = parse_fields("name!:string description:string parameters:object")
_PARAMETERS = parse_fields("type:string required:array properties:object")
_PROPERTY = parse_fields("type:string|array description:string enum:array anyOf:array properties:object required:array")
# Go type, then the options of that type; others are ignored.
_OPTIONS = parse_shapes(
    "integer - num_ctx:integer num_predict:integer num_keep:integer num_batch:integer num_gpu:integer "
    "num_thread:integer top_k:integer seed:integer repeat_last_n:integer",
    "float32 - temperature:number top_p:number min_p:number typical_p:number repeat_penalty:number "
    "presence_penalty:number frequency_penalty:number",
    "array - stop:array",
)
MAX_DEPTH = 100


def check_fields(body: JsonObject) -> Findings:
    """Check the types of top-level fields and options."""
    yield from ERROR_WORDING.check_fields((), body, _REQUEST)
    options = object_of(body.get("options"))
    for kind, (_, table) in _OPTIONS.items():
        for field in table:
            value = options.get(field.name)
            value_type = json_type(value)
            if value is None or value_type in field.types or (value_type == "integer" and "number" in field.types):
                continue
            message = f'option "{field.name}" must be of type {kind}'
            yield ERROR_WORDING.finding("option-type", ("options", field.name), message)


def check_message(path: JsonPath, message: JsonObject) -> Findings:
    """Check one message with its images and calls."""
    yield from ERROR_WORDING.check_fields(path, message, _MESSAGE)
    role = message.get("role")
    if isinstance(role, str) and role.lower() not in _ROLES:
        message_text = f"models know the roles {', '.join(_ROLES)}, not {role}"
        yield ERROR_WORDING.finding("role-unknown", (*path, "role"), message_text, "warning")
    for index, image in enumerate(list_of(message.get("images"))):
        yield from _check_image((*path, "images", index), image)
    for at, call in object_items(message.get("tool_calls"), (*path, "tool_calls")):
        yield from ERROR_WORDING.check_fields(at, call, _CALL)
        yield from ERROR_WORDING.check_fields((*at, "function"), object_of(call.get("function")), _CALL_FUNCTION)


def _go_type_error(value: object, kind: str) -> str:
    """Return the message of Go's decoder for a value of the wrong type."""
    value_type = ERROR_WORDING.type_names.get(json_type(value), json_type(value))
    return f"json: cannot unmarshal {value_type} into Go struct field {{at}} of type {kind}"


def _check_image(path: JsonPath, image: object) -> Findings:
    """Check that an image is padded base64 in the standard alphabet, as Go's decoder requires."""
    text = text_of(image)
    if not isinstance(image, str):
        yield ERROR_WORDING.finding("image-type", path, _go_type_error(image, "[]uint8"))
        return
    body = text.rstrip("=")
    bad_offset = next(
        (
            offset
            for offset, character in enumerate(body)
            if not (character.isascii() and (character.isalnum() or character in "+/"))
        ),
        None,
    )
    if bad_offset is None and len(text) % 4:
        bad_offset = len(text)
    if bad_offset is not None:
        yield ERROR_WORDING.finding("image-base64", path, f"illegal base64 data at input byte {bad_offset}")


def check_tool(path: JsonPath, tool: JsonObject) -> Findings:
    """Check one tool and the properties of its parameters."""
    yield from ERROR_WORDING.check_fields(path, tool, _TOOL)
    function = object_of(tool.get("function"))
    at = (*path, "function")
    yield from ERROR_WORDING.check_fields(at, function, _FUNCTION)
    yield from ERROR_WORDING.check_fields((*at, "parameters"), object_of(function.get("parameters")), _PARAMETERS)
    properties = object_of(value_at(function, "parameters", "properties"))
    pending: list[tuple[JsonPath, object]] = [
        ((*at, "parameters", "properties", name), schema) for name, schema in properties.items()
    ]
    while pending:
        schema_path, schema = pending.pop()
        if not isinstance(schema, dict):
            yield ERROR_WORDING.finding("property-type", schema_path, _go_type_error(schema, "api.ToolProperty"))
            continue
        if len(schema_path) > MAX_DEPTH:
            continue
        yield from ERROR_WORDING.check_fields(schema_path, schema, _PROPERTY)
        inner_properties = object_of(schema.get("properties"))
        pending += [
            ((*schema_path, "properties", name), inner_schema) for name, inner_schema in inner_properties.items()
        ]
        pending += [
            ((*schema_path, "anyOf", index), inner_schema)
            for index, inner_schema in enumerate(list_of(schema.get("anyOf")))
        ]
