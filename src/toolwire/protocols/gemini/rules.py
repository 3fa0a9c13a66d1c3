"""Rules of the Gemini API for requests, with its own error messages where they are known."""

from typing import NamedTuple

from toolwire.codec.models.gemini import signs_calls
from toolwire.codec.validation import (
    Finding,
    Findings,
    JsonObject,
    JsonPath,
    Level,
    list_of,
    object_items,
    object_of,
    text_of,
)
from toolwire.protocols.gemini.fields import (
    ERROR_WORDING,
    REQUEST_FIELDS,
    check_config,
    check_content,
    check_generation,
    check_object,
    check_tools,
    content_calls,
    content_results,
    with_camel_case_keys,
)
from toolwire.protocols.gemini.parts.signatures import is_dummy
from toolwire.protocols.vendors.google.computer import acknowledgement_error

_finding = ERROR_WORDING.finding
_ROLES = ("user", "model", "function", "")
_REQUEST_WITH_SINGLE_CONTENT = (REQUEST_FIELDS[0]._replace(types=("array", "object")), *REQUEST_FIELDS[1:])

# Gemini 3 and later require signed calls.
_UNSIGNED_MESSAGE = (
    "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, "
    "and missing thought_signature may lead to degraded model performance. Additional data, function call "
    "`default_api:{name}` , position {position}. Please refer to "
    "https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
)


class _Request(NamedTuple):
    """A request prepared for the rules."""

    body: JsonObject  # with its names in camelCase
    model: str
    contents: list[tuple[JsonPath, JsonObject]]


def check_request(
    body: object, *, model: str | None = None, version: str | None = None, compatible: bool = False
) -> list[Finding]:
    """Return what the Gemini API would reject; `model` is the one in the path, if known."""
    if not isinstance(body, dict):
        return [_finding("body", (), "Invalid JSON payload received.")]
    fields = with_camel_case_keys(body)
    contents = fields.get("contents")
    located = [(("contents",), contents)] if isinstance(contents, dict) else object_items(contents, ("contents",))
    request = _Request(
        fields, model or text_of(fields.get("model")), [(path, object_of(content)) for path, content in located]
    )
    findings = list(
        check_object((), body, REQUEST_FIELDS if not isinstance(contents, dict) else _REQUEST_WITH_SINGLE_CONTENT)
    )
    return findings + [finding for rule in _RULES for finding in rule(request)]


def _check_shapes(request: _Request) -> Findings:
    """Check field names and types of contents, tools and settings."""
    body = request.body
    yield from check_content(("systemInstruction",), body.get("systemInstruction"))
    for path, content in request.contents:
        yield from check_content(path, content)
    yield from check_tools(body.get("tools"))
    if "toolConfig" in body:
        tools = body.get("tools")
        yield from check_config(body["toolConfig"], has_functions=_has_functions(tools), has_tools=bool(tools))
    if "generationConfig" in body:
        yield from check_generation(body["generationConfig"])


def _has_functions(tools: object) -> bool:
    """Check whether any tool declares functions."""
    bags = [tools] if isinstance(tools, dict) else list_of(tools)
    return any(list_of(with_camel_case_keys(bag).get("functionDeclarations")) for bag in bags)


def _check_contents(request: _Request) -> Findings:
    """Check that there are contents, and that their roles are valid."""
    contents = request.body.get("contents")
    if contents == []:
        message = "* GenerateContentRequest.contents: contents is not specified"
        yield _finding("contents-empty", ("contents",), message)
    for path, content in request.contents:
        if text_of(content.get("role")) not in _ROLES:
            yield _finding("role", (*path, "role"), "Please use a valid role: user, model.")


def _check_cached_content(request: _Request) -> Findings:
    """Check that cached content is not combined with fields that it already holds."""
    if request.body.get("cachedContent") is None:
        return
    for name in ("systemInstruction", "tools", "toolConfig"):
        if request.body.get(name) is not None:
            message = (
                "CachedContent can not be used with GenerateContent request setting system_instruction, tools or "
                "tool_config."
            )
            yield _finding("cache-and-more", (name,), message)


def _check_turns(request: _Request) -> Findings:
    """Check the order of calls and results, and that each call has one result."""
    open_calls = 0
    previous_role = "user"
    for path, content in request.contents:
        calls, results = len(content_calls(content)), len(content_results(content))
        role = text_of(content.get("role")) or "user"
        if results:
            if not open_calls:
                message = "Please ensure that function response turn comes immediately after a function call turn."
                yield _finding("result-without-call", path, message)
            elif results != open_calls:
                message = (
                    "Please ensure that the number of function response parts is equal to the number of function call "
                    "parts of the function call turn."
                )
                yield _finding("result-count", path, message)
        if calls and previous_role == "model":
            message = "Please ensure that function call turn comes immediately after a user turn or after a function "
            message += "response turn."
            yield _finding("call-after-model", path, message)
        open_calls = calls
        previous_role = role


def _check_signatures(request: _Request) -> Findings:
    """Check that the first call of each step since the last user text is signed."""
    if not signs_calls(request.model):
        return
    last_user_text = max(
        (number for number, (_, content) in enumerate(request.contents) if _is_user_text(content)), default=-1
    )
    for number, (path, content) in enumerate(request.contents):
        calls = content_calls(content)
        if number > last_user_text and calls and not text_of(calls[0].get("thoughtSignature")):
            name = text_of(object_of(calls[0]["functionCall"]).get("name"))
            yield _finding(
                "signature-missing",
                path,
                _UNSIGNED_MESSAGE.format(name=name, position=number + 1),
                _signature_level(calls[0]),
            )


def _signature_level(call: JsonObject) -> Level:
    """Return the level for an unsigned call; a placeholder signature is only a warning."""
    return "warning" if is_dummy(call.get("thoughtSignature")) else "error"


def _is_user_text(content: JsonObject) -> bool:
    """Check for a user turn that is not only results."""
    return text_of(content.get("role")) in ("", "user") and not content_results(content)


def _check_ids(request: _Request) -> Findings:
    """Check that results repeat the ids of their calls."""
    call_ids: list[object] = []
    for path, content in request.contents:
        if results := content_results(content):
            result_ids = [object_of(result["functionResponse"]).get("id") for result in results]
            issued_ids = [id for id in call_ids if id is not None]
            if issued_ids and sorted(map(str, result_ids)) != sorted(map(str, call_ids)):
                yield _finding(
                    "result-id", path, "The function responses do not have the ids of the function calls.", "warning"
                )
        call_ids = [object_of(call["functionCall"]).get("id") for call in content_calls(content)]


def _check_safety(request: _Request) -> Findings:
    """Check that a result acknowledges a safety decision of its call that requires confirmation."""
    calls: list[JsonObject] = []
    for path, content in request.contents:
        results = [object_of(result["functionResponse"]) for result in content_results(content)]
        for call in calls:
            matching = [
                result
                for result in results
                if result.get("id") == call.get("id") and result.get("name") == call.get("name")
            ]
            for result in matching:
                if message := acknowledgement_error(
                    call.get("name"), call.get("args"), object_of(result.get("response"))
                ):
                    yield _finding("safety-decision", path, message)
        calls = [object_of(call["functionCall"]) for call in content_calls(content)]


_RULES = (
    _check_shapes,
    _check_contents,
    _check_cached_content,
    _check_turns,
    _check_signatures,
    _check_ids,
    _check_safety,
)
