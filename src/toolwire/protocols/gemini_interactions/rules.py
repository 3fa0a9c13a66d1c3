"""What the Interactions API rejects, rule by rule: from its types and documentation, as no refusal was recorded."""

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

# What no server that imitates the protocol takes either.
_UNIVERSAL_RULES = word_set("body input-missing call-missing")
_MODEL_FIELDS = ("generation_config", "cached_content")


class _Request(NamedTuple):
    body: JsonObject
    steps: list[tuple[JsonPath, JsonObject]]
    tools: list[tuple[JsonPath, JsonObject]]
    has_stored_state: bool  # earlier steps may be known to the server only


def check_request(
    body: object, *, model: str | None = None, version: str | None = None, compatible: bool = False
) -> list[Finding]:
    """`model` stands for one that the body leaves out; to a `compatible` server most rules are only warnings."""
    if not isinstance(body, dict):
        return [_finding("body", (), "Invalid JSON payload received: expected an object.")]
    body = body if model is None else {"model": model, **body}
    held = bool(body.get("previous_interaction_id"))
    request = _Request(body, request_steps(body), object_items(body.get("tools"), ("tools",)), held)
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
    body = request.body
    yield from check_fields(body)
    for path, step in request.steps:
        yield from check_step(path, step)
    for path, tool in request.tools:
        yield from check_tool(path, tool)
    said = body.get("input")
    if isinstance(said, dict):
        if text_of(said.get("type")) in CONTENT_FIELDS:
            yield from check_part(("input",), said)
        else:
            yield _finding("input-type", ("input",), "Invalid value at '{at}': one step is no list of steps.")
    elif isinstance(said, list) and not request.steps:
        yield from check_content(("input",), said, allow_results=True)


def _check_request_fields(request: _Request) -> Findings:
    body = request.body
    if "model" not in body and "agent" not in body:
        yield _finding("model-missing", ("model",), "Missing required field: one of 'model' or 'agent'.")
    if "model" in body and "agent" in body:
        yield _finding("model-and-agent", ("agent",), "Only one of 'model' and 'agent' may be set.")
    if body.get("input") in (None, "", []) and not request.has_stored_state and not body.get("continuation_token"):
        yield _finding("input-missing", ("input",), "Missing required field 'input'.")
    if body.get("background") is True and body.get("stream") is True:
        said = "A background interaction can't be streamed on creation: create it, then stream it by its id."
        yield _finding("background-stream", ("stream",), said)
    if body.get("store") is False and request.has_stored_state:
        said = "'previous_interaction_id' needs stored interactions."
        yield _finding("store-previous", ("previous_interaction_id",), said, "warning")
    for name in _MODEL_FIELDS:
        if "agent" in body and "model" not in body and name in body:
            yield _finding("agent-config", (name,), "'{at}' can't be set for an agent.")


def _check_calls(request: _Request) -> Findings:
    """Every call has its result before the user speaks again; every result its call, here or in what is stored."""
    asked: dict[str, JsonPath] = {}
    seen: set[str] = set()
    for path, step in request.steps:
        tag = text_of(step.get("type"))
        if tag == "function_call":
            name = text_of(step.get("id"))
            asked[name] = path
            seen.add(name)
            continue
        results = [(path, step)] if tag == "function_result" else object_items(step.get("content"), (*path, "content"))
        for at, result in results:
            if result.get("type") == "function_result":
                name = text_of(result.get("call_id"))
                if name not in seen and not request.has_stored_state:
                    said = f"No function call with id '{name}' precedes this result."
                    yield _finding("call-missing", (*at, "call_id"), said)
                asked.pop(name, None)
        if tag in ("user_input", *CONTENT_FIELDS):
            for name, at in asked.items():
                yield _finding("result-missing", at, f"Function call '{name}' has no result.")
            asked.clear()


def _check_safety(request: _Request) -> Findings:
    """A decision that a person has to agree to is acknowledged in the result, in its object or the text of one."""
    asked: dict[str, JsonObject] = {}
    for path, step in request.steps:
        if step.get("type") == "function_call":
            asked[text_of(step.get("id"))] = step
        elif step.get("type") == "function_result" and (call := asked.get(text_of(step.get("call_id")))) is not None:
            said = acknowledgement_error(call.get("name"), call.get("arguments"), _result_object(step.get("result")))
            if said is not None:
                yield _finding("safety-decision", path, said)


def _result_object(result: object) -> JsonObject:
    """All that a result says in objects."""
    found = dict(object_of(result))
    for one in (
        [result] if isinstance(result, str) else [text_of(object_of(part).get("text")) for part in list_of(result)]
    ):
        try:
            found |= object_of(msgspec.json.decode(one))
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue
    return found


def _check_hosted_results(request: _Request) -> Findings:
    """A result of Google's own tools belongs to a call before it."""
    seen: set[str] = set()
    for path, step in request.steps:
        tag = text_of(step.get("type"))
        if tag not in STEP_FIELDS or tag.startswith("function_"):
            continue
        if tag.endswith("_call"):
            seen.add(text_of(step.get("id")))
        elif tag.endswith("_result") and text_of(step.get("call_id")) not in seen and not request.has_stored_state:
            said = f"No call with id '{text_of(step.get('call_id'))}' precedes this result."
            yield _finding("built-in-call-missing", (*path, "call_id"), said)


def _check_tools(request: _Request) -> Findings:
    seen: set[str] = set()
    for path, tool in request.tools:
        name = text_of(tool.get("name"))
        if tool.get("type") == "function" and name:
            if name in seen:
                yield _finding("tool-name-duplicate", path, f"Duplicate function declaration found: {name}.")
            seen.add(name)


def _check_choice(request: _Request) -> Findings:
    choice = value_at(request.body, "generation_config", "tool_choice")
    at: JsonPath = ("generation_config", "tool_choice")
    if isinstance(choice, str) and choice not in ("auto", "any", "none", "validated"):
        said = f"Invalid value at '{{at}}': '{choice}' is none of 'auto', 'any', 'none', 'validated'."
        yield _finding("choice-value", at, said)
    if choice == "any" and not request.tools:
        yield _finding("choice-without-tools", at, "'{at}' is set, but there are no tools.")
    declared = {text_of(tool.get("name")) or text_of(tool.get("type")) for _, tool in request.tools}
    allowed = object_of(value_at(choice, "allowed_tools"))
    for index, name in enumerate(list_of(allowed.get("tools"))):
        if name not in declared:
            said = f"Allowed tool '{text_of(name)}' is not declared."
            yield _finding("choice-unknown", (*at, "allowed_tools", "tools", index), said)


_RULES = (
    _check_shapes,
    _check_request_fields,
    _check_calls,
    _check_safety,
    _check_hosted_results,
    _check_tools,
    _check_choice,
)
