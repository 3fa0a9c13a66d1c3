"""What the Gemini API rejects, rule by rule, in its own words where they are known."""

import re
from typing import NamedTuple

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

# Models that want calls signed: Gemini 3 and later.
_SIGNING_MODELS = re.compile(r"gemini-(?:[3-9]|\d\d)")
_UNSIGNED_MESSAGE = (
    "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, "
    "and missing thought_signature may lead to degraded model performance. Additional data, function call "
    "`default_api:{name}` , position {position}. Please refer to "
    "https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
)


class _Request(NamedTuple):
    body: JsonObject
    model: str
    contents: list[tuple[JsonPath, JsonObject]]


def check_request(
    body: object, *, model: str | None = None, version: str | None = None, compatible: bool = False
) -> list[Finding]:
    """`model` is the one in the address, where known."""
    if not isinstance(body, dict):
        return [_finding("body", (), "Invalid JSON payload received.")]
    told = with_camel_case_keys(body)
    contents = told.get("contents")
    listed = [(("contents",), contents)] if isinstance(contents, dict) else object_items(contents, ("contents",))
    request = _Request(told, model or text_of(told.get("model")), [(path, object_of(one)) for path, one in listed])
    found = list(
        check_object((), body, REQUEST_FIELDS if not isinstance(contents, dict) else _REQUEST_WITH_SINGLE_CONTENT)
    )
    return found + [finding for rule in _RULES for finding in rule(request)]


def _check_shapes(request: _Request) -> Findings:
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
    bags = [tools] if isinstance(tools, dict) else list_of(tools)
    return any(list_of(with_camel_case_keys(bag).get("functionDeclarations")) for bag in bags)


def _check_contents(request: _Request) -> Findings:
    contents = request.body.get("contents")
    if contents == []:
        said = "* GenerateContentRequest.contents: contents is not specified"
        yield _finding("contents-empty", ("contents",), said)
    for path, content in request.contents:
        if text_of(content.get("role")) not in _ROLES:
            yield _finding("role", (*path, "role"), "Please use a valid role: user, model.")


def _check_cached_content(request: _Request) -> Findings:
    if request.body.get("cachedContent") is None:
        return
    for name in ("systemInstruction", "tools", "toolConfig"):
        if request.body.get(name) is not None:
            said = (
                "CachedContent can not be used with GenerateContent request setting system_instruction, tools or "
                "tool_config."
            )
            yield _finding("cache-and-more", (name,), said)


def _check_turns(request: _Request) -> Findings:
    """Calls after a user turn or results; results, one for each call, right after the calls."""
    open_calls = 0
    before = "user"
    for path, content in request.contents:
        calls, results = len(content_calls(content)), len(content_results(content))
        role = text_of(content.get("role")) or "user"
        if results:
            if not open_calls:
                said = "Please ensure that function response turn comes immediately after a function call turn."
                yield _finding("result-without-call", path, said)
            elif results != open_calls:
                said = (
                    "Please ensure that the number of function response parts is equal to the number of function call "
                    "parts of the function call turn."
                )
                yield _finding("result-count", path, said)
        if calls and before == "model":
            said = "Please ensure that function call turn comes immediately after a user turn or after a function "
            said += "response turn."
            yield _finding("call-after-model", path, said)
        open_calls = calls
        before = role


def _check_signatures(request: _Request) -> Findings:
    """Since the last words of the user each step's first call must be signed."""
    if not _SIGNING_MODELS.search(request.model):
        return
    last = max((number for number, (_, one) in enumerate(request.contents) if _is_user_text(one)), default=-1)
    for number, (path, content) in enumerate(request.contents):
        calls = content_calls(content)
        if number > last and calls and not text_of(calls[0].get("thoughtSignature")):
            name = text_of(object_of(calls[0]["functionCall"]).get("name"))
            yield _finding(
                "signature-missing",
                path,
                _UNSIGNED_MESSAGE.format(name=name, position=number + 1),
                _signature_level(calls[0]),
            )


def _signature_level(call: JsonObject) -> Level:
    return "warning" if is_dummy(call.get("thoughtSignature")) else "error"


def _is_user_text(content: JsonObject) -> bool:
    """Whether the user speaks, and does not only bring results."""
    return text_of(content.get("role")) in ("", "user") and not content_results(content)


def _check_ids(request: _Request) -> Findings:
    """An id that was issued comes back."""
    issued: list[object] = []
    for path, content in request.contents:
        if results := content_results(content):
            ids = [object_of(result["functionResponse"]).get("id") for result in results]
            known = [id for id in issued if id is not None]
            if known and sorted(map(str, ids)) != sorted(map(str, issued)):
                yield _finding(
                    "result-id", path, "The function responses do not have the ids of the function calls.", "warning"
                )
        issued = [object_of(call["functionCall"]).get("id") for call in content_calls(content)]


def _check_safety(request: _Request) -> Findings:
    """A decision that a person has to agree to is acknowledged in the result, by its id or else its place."""
    asked: list[JsonObject] = []
    for path, content in request.contents:
        results = [object_of(result["functionResponse"]) for result in content_results(content)]
        for call in asked:
            answers = [
                one for one in results if one.get("id") == call.get("id") and one.get("name") == call.get("name")
            ]
            for answer in answers:
                if said := acknowledgement_error(call.get("name"), call.get("args"), object_of(answer.get("response"))):
                    yield _finding("safety-decision", path, said)
        asked = [object_of(call["functionCall"]) for call in content_calls(content)]


_RULES = (
    _check_shapes,
    _check_contents,
    _check_cached_content,
    _check_turns,
    _check_signatures,
    _check_ids,
    _check_safety,
)
