"""Rules of the Interactions API for requests, from its types and documentation."""

from typing import NamedTuple

import msgspec

from toolwire.codec.validation import (
    Finding,
    Findings,
    JsonObject,
    JsonPath,
    list_of,
    object_items,
    object_of,
    text_of,
    value_at,
    word_set,
)
from toolwire.codec.wire.reader import decode_json
from toolwire.protocols.gemini_interactions.fields import (
    CONTENT_FIELDS,
    ERROR_WORDING,
    STEP_FIELDS,
    check_content,
    check_fields,
    check_part,
    check_step,
    check_tool,
    request_steps,
)
from toolwire.protocols.vendors.google.computer import acknowledgement_error

_finding = ERROR_WORDING.finding

# Rules that also hold for compatible servers.
_UNIVERSAL_RULES = word_set("body input-missing call-missing")
_MODEL_FIELDS = ("generation_config", "cached_content")


class _Request(NamedTuple):
    """A request prepared for the rules."""

    body: JsonObject
    steps: list[tuple[JsonPath, JsonObject]]
    tools: list[tuple[JsonPath, JsonObject]]
    has_stored_state: bool  # earlier steps may be stored by the server


def check_request(
    body: object, *, model: str | None = None, version: str | None = None, compatible: bool = False
) -> list[Finding]:
    """Return what the API would reject.

    `model` is used if the body has none. For a `compatible` server most findings are only warnings.
    """
    if not isinstance(body, dict):
        return [_finding("body", (), "Invalid JSON payload received: expected an object.")]
    body = body if model is None else {"model": model, **body}
    has_stored_state = bool(body.get("previous_interaction_id"))
    request = _Request(body, request_steps(body), object_items(body.get("tools"), ("tools",)), has_stored_state)
    findings = [finding for rule in _RULES for finding in rule(request)]
    if not compatible:
        return findings
    return [
        finding
        if finding.rule.removeprefix("gemini-interactions.") in _UNIVERSAL_RULES
        else msgspec.structs.replace(finding, level="warning")
        for finding in findings
    ]


def _check_shapes(request: _Request) -> Findings:
    """Check field names and types of steps, tools and input content."""
    body = request.body
    yield from check_fields(body)
    for path, step in request.steps:
        yield from check_step(path, step)
    for path, tool in request.tools:
        yield from check_tool(path, tool)
    input_value = body.get("input")
    if isinstance(input_value, dict):
        if text_of(input_value.get("type")) in CONTENT_FIELDS:
            yield from check_part(("input",), input_value)
        else:
            yield _finding("input-type", ("input",), "Invalid value at '{at}': one step is no list of steps.")
    elif isinstance(input_value, list) and not request.steps:
        yield from check_content(("input",), input_value, allow_results=True)


def _check_model(request: _Request) -> Findings:
    """Check that there is either a model or an agent."""
    body = request.body
    if "model" not in body and "agent" not in body:
        yield _finding("model-missing", ("model",), "Missing required field: one of 'model' or 'agent'.")
    if "model" in body and "agent" in body:
        yield _finding("model-and-agent", ("agent",), "Only one of 'model' and 'agent' may be set.")


def _check_request_fields(request: _Request) -> Findings:
    """Check the input, and fields that exclude each other."""
    body = request.body
    if body.get("input") in (None, "", []) and not request.has_stored_state and not body.get("continuation_token"):
        yield _finding("input-missing", ("input",), "Missing required field 'input'.")
    if body.get("background") is True and body.get("stream") is True:
        message = "A background interaction can't be streamed on creation: create it, then stream it by its id."
        yield _finding("background-stream", ("stream",), message)
    if body.get("store") is False and request.has_stored_state:
        message = "'previous_interaction_id' needs stored interactions."
        yield _finding("store-previous", ("previous_interaction_id",), message, "warning")
    if "agent" in body and "model" not in body:
        for name in _MODEL_FIELDS:
            if name in body:
                yield _finding("agent-config", (name,), "'{at}' can't be set for an agent.")


def _check_calls(request: _Request) -> Findings:
    """Check that each call has a result before the next user input, and each result a call."""
    open_calls: dict[str, JsonPath] = {}
    call_ids: set[str] = set()
    for path, step in request.steps:
        tag = text_of(step.get("type"))
        if tag == "function_call":
            call_id = text_of(step.get("id"))
            open_calls[call_id] = path
            call_ids.add(call_id)
            continue
        results = [(path, step)] if tag == "function_result" else object_items(step.get("content"), (*path, "content"))
        for at, result in results:
            if result.get("type") == "function_result":
                call_id = text_of(result.get("call_id"))
                if call_id not in call_ids and not request.has_stored_state:
                    message = f"No function call with id '{call_id}' precedes this result."
                    yield _finding("call-missing", (*at, "call_id"), message)
                open_calls.pop(call_id, None)
        if tag in ("user_input", *CONTENT_FIELDS):
            for call_id, at in open_calls.items():
                yield _finding("result-missing", at, f"Function call '{call_id}' has no result.")
            open_calls.clear()


def _check_safety(request: _Request) -> Findings:
    """Check that a result acknowledges a safety decision of its call that requires confirmation."""
    calls: dict[str, JsonObject] = {}
    for path, step in request.steps:
        if step.get("type") == "function_call":
            calls[text_of(step.get("id"))] = step
        elif step.get("type") == "function_result" and (call := calls.get(text_of(step.get("call_id")))) is not None:
            message = acknowledgement_error(call.get("name"), call.get("arguments"), _result_object(step.get("result")))
            if message is not None:
                yield _finding("safety-decision", path, message)


def _result_object(result: object) -> JsonObject:
    """Merge all objects in a result, including objects given as text."""
    members = dict(object_of(result))
    for text in (
        [result] if isinstance(result, str) else [text_of(object_of(part).get("text")) for part in list_of(result)]
    ):
        try:
            members |= object_of(decode_json(text))
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue
    return members


def _check_hosted_results(request: _Request) -> Findings:
    """Check that each result of a hosted tool follows its call."""
    call_ids: set[str] = set()
    for path, step in request.steps:
        tag = text_of(step.get("type"))
        if tag not in STEP_FIELDS or tag.startswith("function_"):
            continue
        if tag.endswith("_call"):
            call_ids.add(text_of(step.get("id")))
        elif tag.endswith("_result") and text_of(step.get("call_id")) not in call_ids and not request.has_stored_state:
            message = f"No call with id '{text_of(step.get('call_id'))}' precedes this result."
            yield _finding("built-in-call-missing", (*path, "call_id"), message)


def _check_tools(request: _Request) -> Findings:
    """Check for duplicate function names."""
    names: set[str] = set()
    for path, tool in request.tools:
        name = text_of(tool.get("name"))
        if tool.get("type") == "function" and name:
            if name in names:
                yield _finding("tool-name-duplicate", path, f"Duplicate function declaration found: {name}.")
            names.add(name)


def _check_choice(request: _Request) -> Findings:
    """Check the tool choice against the declared tools."""
    choice = value_at(request.body, "generation_config", "tool_choice")
    at: JsonPath = ("generation_config", "tool_choice")
    if isinstance(choice, str) and choice not in ("auto", "any", "none", "validated"):
        message = f"Invalid value at '{{at}}': '{choice}' is none of 'auto', 'any', 'none', 'validated'."
        yield _finding("choice-value", at, message)
    if choice == "any" and not request.tools:
        yield _finding("choice-without-tools", at, "'{at}' is set, but there are no tools.")
    declared = {text_of(tool.get("name")) or text_of(tool.get("type")) for _, tool in request.tools}
    allowed = object_of(value_at(choice, "allowed_tools"))
    for index, name in enumerate(list_of(allowed.get("tools"))):
        if not isinstance(name, str) or name not in declared:
            message = f"Allowed tool '{text_of(name)}' is not declared."
            yield _finding("choice-unknown", (*at, "allowed_tools", "tools", index), message)


_RULES = (
    _check_shapes,
    _check_model,
    _check_request_fields,
    _check_calls,
    _check_safety,
    _check_hosted_results,
    _check_tools,
    _check_choice,
)
