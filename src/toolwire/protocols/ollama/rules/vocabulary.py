"""What Ollama's server says of a field, message or tool by itself; `rules` is the whole.

It decodes a body into Go structs: a value of another type is refused in the words of Go's decoder, and what the structs
don't know is ignored.
"""

from toolwire.codec.check import (
    Findings,
    Object,
    Path,
    Voice,
    dig,
    fields,
    kind_of,
    list_of,
    members,
    object_of,
    shapes,
    text_of,
    words,
)
from toolwire.codec.schema.dialect import Dialect

# What the server's structs have of a schema: it drops the rest before the model sees it. Items alone stay as they are,
# but nothing can resolve a reference in them.
PARAMETERS = Dialect(
    name="ollama",
    keeps=words("anyOf type items description enum properties required"),
    root=words("type $defs items required properties"),
    references="inlined",
    items=Dialect(name="ollama-items", lacks=words("nullable"), references="inlined"),
)
# A format is compiled to a grammar. The compiler fails on schemas that are `true` or `false`, and on `not`.
FORMAT = Dialect(name="ollama-format", lacks=words("not nullable"))


def _place(path: Path) -> str:
    return ".".join(["ChatRequest", *(step for step in path if isinstance(step, str))])


VOICE = Voice(
    "ollama",
    place=_place,
    types={"boolean": "bool", "integer": "number"},
    missing="{at} is required",
    type="json: cannot unmarshal {got} into Go struct field {at} of type {types}",
    word="{at}: {value} is none of {words}",
)

_REQUEST = fields(
    "model:string messages:array tools:array stream:boolean options:object logprobs:boolean top_logprobs:integer "
    "keep_alive:string|number truncate:boolean shift:boolean format:string|object"
)
_MESSAGE = fields(
    "role!:string content:string thinking:string images:array tool_calls:array tool_name:string tool_call_id:string"
)
_ROLES = ("system", "user", "assistant", "tool")
_CALL = fields("id:string function!:object")
_CALLED = fields("index:integer name!:string arguments:object")
_TOOL = fields("type:string function!:object")
_FUNCTION = fields("name!:string description:string parameters:object")
_PARAMETERS = fields("type:string required:array properties:object")
_PROPERTY = fields("type:string|array description:string enum:array anyOf:array properties:object required:array")
# Kind, then the options of that kind; others are ignored.
_OPTIONS = shapes(
    "integer - num_ctx:integer num_predict:integer num_keep:integer num_batch:integer num_gpu:integer "
    "num_thread:integer top_k:integer seed:integer repeat_last_n:integer",
    "float32 - temperature:number top_p:number min_p:number typical_p:number repeat_penalty:number "
    "presence_penalty:number frequency_penalty:number",
    "array - stop:array",
)
LIMIT_DEPTH = 100


def check_fields(body: Object) -> Findings:
    yield from VOICE.fit((), body, _REQUEST)
    options = object_of(body.get("options"))
    for kind, (_, table) in _OPTIONS.items():
        for field in table:
            value = options.get(field.name)
            found = kind_of(value)
            if value is None or found in field.types or (found == "integer" and "number" in field.types):
                continue
            said = f'option "{field.name}" must be of type {kind}'
            yield VOICE.found("option-type", ("options", field.name), said)


def check_message(path: Path, message: Object) -> Findings:
    yield from VOICE.fit(path, message, _MESSAGE)
    role = message.get("role")
    if isinstance(role, str) and role.lower() not in _ROLES:
        said = f"models know the roles {', '.join(_ROLES)}, not {role}"
        yield VOICE.found("role-unknown", (*path, "role"), said, "warning")
    for index, image in enumerate(list_of(message.get("images"))):
        yield from _check_image((*path, "images", index), image)
    for at, call in members(message.get("tool_calls"), (*path, "tool_calls")):
        yield from VOICE.fit(at, call, _CALL)
        yield from VOICE.fit((*at, "function"), object_of(call.get("function")), _CALLED)


def _misread(value: object, kind: str) -> str:
    found = VOICE.types.get(kind_of(value), kind_of(value))
    return f"json: cannot unmarshal {found} into Go struct field {{at}} of type {kind}"


def _check_image(path: Path, image: object) -> Findings:
    """Bytes, which Go writes as base64 in its usual alphabet, padded."""
    text = text_of(image)
    if not isinstance(image, str):
        yield VOICE.found("image-type", path, _misread(image, "[]uint8"))
        return
    body = text.rstrip("=")
    wrong = next(
        (place for place, sign in enumerate(body) if not (sign.isascii() and (sign.isalnum() or sign in "+/"))), None
    )
    if wrong is None and len(text) % 4:
        wrong = len(text)
    if wrong is not None:
        yield VOICE.found("image-base64", path, f"illegal base64 data at input byte {wrong}")


def check_tool(path: Path, tool: Object) -> Findings:
    yield from VOICE.fit(path, tool, _TOOL)
    function = object_of(tool.get("function"))
    at = (*path, "function")
    yield from VOICE.fit(at, function, _FUNCTION)
    yield from VOICE.fit((*at, "parameters"), object_of(function.get("parameters")), _PARAMETERS)
    named = object_of(dig(function, "parameters", "properties"))
    waiting: list[tuple[Path, object]] = [((*at, "parameters", "properties", name), one) for name, one in named.items()]
    while waiting:
        place, one = waiting.pop()
        if not isinstance(one, dict):
            yield VOICE.found("property-type", place, _misread(one, "api.ToolProperty"))
            continue
        if len(place) > LIMIT_DEPTH:
            continue
        yield from VOICE.fit(place, one, _PROPERTY)
        inner = object_of(one.get("properties"))
        waiting += [((*place, "properties", name), part) for name, part in inner.items()]
        waiting += [((*place, "anyOf", index), part) for index, part in enumerate(list_of(one.get("anyOf")))]
