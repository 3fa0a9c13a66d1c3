"""Rules of the Ollama server for requests, with its own error messages where they are known."""

from toolwire.codec.validation import (
    Finding,
    Findings,
    JsonObject,
    JsonPath,
    list_of,
    number_of,
    object_items,
    object_of,
    text_of,
    value_at,
)
from toolwire.protocols.ollama.fields import ERROR_WORDING, PARAMETERS_SCHEMA, check_fields, check_message, check_tool

_finding = ERROR_WORDING.finding

_THINK_LEVELS = ("high", "medium", "low", "max")


def check_request(
    body: object, *, model: str | None = None, version: str | None = None, compatible: bool = False
) -> list[Finding]:
    """Return what the server would reject; `model` overrides that of the body."""
    if not isinstance(body, dict):
        return [_finding("body", (), "missing request body")]
    return [finding for rule in _RULES for finding in rule(body, model or text_of(body.get("model")))]


def _check_shapes(body: JsonObject, model: str) -> Findings:
    """Check fields, messages and tools."""
    yield from check_fields(body)
    for path, message in object_items(body.get("messages"), ("messages",)):
        yield from check_message(path, message)
    for path, tool in object_items(body.get("tools"), ("tools",)):
        yield from check_tool(path, tool)


def _check_model(body: JsonObject, model: str) -> Findings:
    """Check that there is a model."""
    if not model:
        yield _finding("model", ("model",), "model is required")


def _check_think(body: JsonObject, model: str) -> Findings:
    """Check the value of `think`."""
    think = body.get("think")
    if think is None or isinstance(think, bool):
        return
    if isinstance(think, str) and think in _THINK_LEVELS:
        return
    if isinstance(think, str):
        message = f'invalid think value: "{think}" (must be "high", "medium", "low", "max", true, or false)'
    else:
        message = "think must be a boolean or a string"
    yield _finding("think", ("think",), message)


def _check_counts(body: JsonObject, model: str) -> Findings:
    """Check the range of `top_logprobs`."""
    top_logprobs = number_of(body.get("top_logprobs"))
    if top_logprobs is not None and not 0 <= top_logprobs <= 20:
        yield _finding("top-logprobs", ("top_logprobs",), "top_logprobs must be between 0 and 20")


def _check_format(body: JsonObject, model: str) -> Findings:
    """Check the value of `format`."""
    output_format = body.get("format")
    if isinstance(output_format, str) and output_format not in ("", "json"):
        message = f'invalid format: "{output_format}"; expected "json" or a valid JSON Schema object'
        yield _finding("format", ("format",), message)


def _check_pairing(body: JsonObject, model: str) -> Findings:
    """Warn about results whose call is missing or known only by order; the server itself checks neither."""
    call_counts: dict[str, int] = {}
    for path, message in object_items(body.get("messages"), ("messages",)):
        if text_of(message.get("role")).lower() != "tool":
            names = [
                text_of(value_at(call, "function", "name")) for _, call in object_items(message.get("tool_calls"), ())
            ]
            call_counts = {name: names.count(name) for name in names}
            continue
        name = text_of(message.get("tool_name"))
        if not call_counts:
            yield _finding("result-without-call", path, "no message before this result calls a tool", "warning")
        elif not name and not message.get("tool_call_id"):
            yield _finding("result-nameless", path, "a result without tool_name is known by its order only", "warning")
        elif call_counts.get(name, 0) > 1 and not message.get("tool_call_id"):
            warning = f"{name} was called more than once: its results are known by their order only"
            yield _finding("result-ambiguous", path, warning, "warning")


def _check_lost_keywords(body: JsonObject, model: str) -> Findings:
    """Warn about schema keywords that the server drops before the model sees them."""
    for path, tool in object_items(body.get("tools"), ("tools",)):
        parameters = object_of(value_at(tool, "function", "parameters"))
        at = (*path, "function", "parameters")
        pending: list[tuple[JsonPath, JsonObject, bool]] = [(at, parameters, True)]
        visited = 0
        while pending and visited < 1000:
            schema_path, schema, root = pending.pop()
            visited += 1
            for keyword in schema:
                if not PARAMETERS_SCHEMA.supports(keyword, root=root):
                    message = f"the server drops {keyword} before the model sees it"
                    yield _finding("schema-keyword", (*schema_path, keyword), message, "warning")
            for name, inner in object_of(schema.get("properties")).items():
                pending.append(((*schema_path, "properties", name), object_of(inner), False))
            for index, inner in enumerate(list_of(schema.get("anyOf"))):
                pending.append(((*schema_path, "anyOf", index), object_of(inner), False))


_RULES = (_check_shapes, _check_model, _check_think, _check_counts, _check_format, _check_pairing, _check_lost_keywords)
