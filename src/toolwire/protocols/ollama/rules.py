"""What Ollama's server rejects, rule by rule, in its own words where they are known."""

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
    """`model` overrides the body's; no server imitates this one."""
    if not isinstance(body, dict):
        return [_finding("body", (), "missing request body")]
    return [finding for rule in _RULES for finding in rule(body, model or text_of(body.get("model")))]


def _check_shapes(body: JsonObject, model: str) -> Findings:
    yield from check_fields(body)
    for path, message in object_items(body.get("messages"), ("messages",)):
        yield from check_message(path, message)
    for path, tool in object_items(body.get("tools"), ("tools",)):
        yield from check_tool(path, tool)


def _check_model(body: JsonObject, model: str) -> Findings:
    if not model:
        yield _finding("model", ("model",), "model is required")


def _check_think(body: JsonObject, model: str) -> Findings:
    think = body.get("think")
    if think is None or isinstance(think, bool):
        return
    if isinstance(think, str) and think in _THINK_LEVELS:
        return
    if isinstance(think, str):
        said = f'invalid think value: "{think}" (must be "high", "medium", "low", "max", true, or false)'
    else:
        said = "think must be a boolean or a string"
    yield _finding("think", ("think",), said)


def _check_counts(body: JsonObject, model: str) -> Findings:
    most = number_of(body.get("top_logprobs"))
    if most is not None and not 0 <= most <= 20:
        yield _finding("top-logprobs", ("top_logprobs",), "top_logprobs must be between 0 and 20")


def _check_format(body: JsonObject, model: str) -> Findings:
    asked = body.get("format")
    if isinstance(asked, str) and asked not in ("", "json"):
        said = f'invalid format: "{asked}"; expected "json" or a valid JSON Schema object'
        yield _finding("format", ("format",), said)


def _check_pairing(body: JsonObject, model: str) -> Findings:
    """The server checks no pairs: what is wrong with them only the model sees."""
    asked: dict[str, int] = {}
    for path, message in object_items(body.get("messages"), ("messages",)):
        if text_of(message.get("role")).lower() != "tool":
            names = [
                text_of(value_at(call, "function", "name")) for _, call in object_items(message.get("tool_calls"), ())
            ]
            asked = {name: names.count(name) for name in names}
            continue
        name = text_of(message.get("tool_name"))
        if not asked:
            yield _finding("result-without-call", path, "no message before this result calls a tool", "warning")
        elif not name and not message.get("tool_call_id"):
            yield _finding("result-nameless", path, "a result without tool_name is known by its order only", "warning")
        elif asked.get(name, 0) > 1 and not message.get("tool_call_id"):
            said = f"{name} was called more than once: its results are known by their order only"
            yield _finding("result-ambiguous", path, said, "warning")


def _check_lost_keywords(body: JsonObject, model: str) -> Findings:
    """Keywords of a schema that the server drops before the model sees them."""
    for path, tool in object_items(body.get("tools"), ("tools",)):
        parameters = object_of(value_at(tool, "function", "parameters"))
        at = (*path, "function", "parameters")
        waiting: list[tuple[JsonPath, JsonObject, bool]] = [(at, parameters, True)]
        seen = 0
        while waiting and seen < 1000:
            place, schema, root = waiting.pop()
            seen += 1
            for keyword in schema:
                if not PARAMETERS_SCHEMA.supports(keyword, root=root):
                    said = f"the server drops {keyword} before the model sees it"
                    yield _finding("schema-keyword", (*place, keyword), said, "warning")
            for name, inner in object_of(schema.get("properties")).items():
                waiting.append(((*place, "properties", name), object_of(inner), False))
            for index, inner in enumerate(list_of(schema.get("anyOf"))):
                waiting.append(((*place, "anyOf", index), object_of(inner), False))


_RULES = (_check_shapes, _check_model, _check_think, _check_counts, _check_format, _check_pairing, _check_lost_keywords)
