"""What the Interactions API rejects, rule by rule: from its types and documentation, as no refusal was recorded."""

from typing import NamedTuple

import msgspec

from toolwire.codec.check import Finding, Findings, Object, Path, dig, list_of, members, object_of, text_of, words
from toolwire.protocols.google_safety import unacknowledged

from .vocabulary import (
    CONTENT,
    STEPS,
    VOICE,
    check_content,
    check_fields,
    check_part,
    check_step,
    check_tool,
    steps_of,
)

_found = VOICE.found

# What no server that imitates the protocol takes either.
_EVERYWHERE = words("body input-missing call-missing")
_MODEL_ONLY = ("generation_config", "cached_content")


class _Request(NamedTuple):
    body: Object
    steps: list[tuple[Path, Object]]
    tools: list[tuple[Path, Object]]
    held: bool  # earlier steps may be known to the server only


def check_request(
    body: object, *, model: str | None = None, version: str | None = None, compatible: bool = False
) -> list[Finding]:
    """`model` stands for one that the body leaves out; to a `compatible` server most rules are only warnings."""
    if not isinstance(body, dict):
        return [_found("body", (), "Invalid JSON payload received: expected an object.")]
    body = body if model is None else {"model": model, **body}
    held = bool(body.get("previous_interaction_id"))
    request = _Request(body, steps_of(body), members(body.get("tools"), ("tools",)), held)
    findings = [finding for rule in _RULES for finding in rule(request)]
    if not compatible:
        return findings
    return [
        finding
        if finding.rule.removeprefix("gemini-interactions.") in _EVERYWHERE
        else msgspec.structs.replace(finding, level="warning")
        for finding in findings
    ]


def _shapes(request: _Request) -> Findings:
    body = request.body
    yield from check_fields(body)
    for path, step in request.steps:
        yield from check_step(path, step)
    for path, tool in request.tools:
        yield from check_tool(path, tool)
    said = body.get("input")
    if isinstance(said, dict):
        if text_of(said.get("type")) in CONTENT:
            yield from check_part(("input",), said)
        else:
            yield _found("input-type", ("input",), "Invalid value at '{at}': one step is no list of steps.")
    elif isinstance(said, list) and not request.steps:
        yield from check_content(("input",), said, results=True)


def _request(request: _Request) -> Findings:
    body = request.body
    if "model" not in body and "agent" not in body:
        yield _found("model-missing", ("model",), "Missing required field: one of 'model' or 'agent'.")
    if "model" in body and "agent" in body:
        yield _found("model-and-agent", ("agent",), "Only one of 'model' and 'agent' may be set.")
    if body.get("input") in (None, "", []) and not request.held and not body.get("continuation_token"):
        yield _found("input-missing", ("input",), "Missing required field 'input'.")
    if body.get("background") is True and body.get("stream") is True:
        said = "A background interaction can't be streamed on creation: create it, then stream it by its id."
        yield _found("background-stream", ("stream",), said)
    if body.get("store") is False and request.held:
        said = "'previous_interaction_id' needs stored interactions."
        yield _found("store-previous", ("previous_interaction_id",), said, "warning")
    for name in _MODEL_ONLY:
        if "agent" in body and "model" not in body and name in body:
            yield _found("agent-config", (name,), "'{at}' can't be set for an agent.")


def _calls(request: _Request) -> Findings:
    """Every call has its result before the user speaks again; every result its call, here or in what is stored."""
    asked: dict[str, Path] = {}
    seen: set[str] = set()
    for path, step in request.steps:
        tag = text_of(step.get("type"))
        if tag == "function_call":
            name = text_of(step.get("id"))
            asked[name] = path
            seen.add(name)
            continue
        results = [(path, step)] if tag == "function_result" else members(step.get("content"), (*path, "content"))
        for at, result in results:
            if result.get("type") == "function_result":
                name = text_of(result.get("call_id"))
                if name not in seen and not request.held:
                    said = f"No function call with id '{name}' precedes this result."
                    yield _found("call-missing", (*at, "call_id"), said)
                asked.pop(name, None)
        if tag in ("user_input", *CONTENT):
            for name, at in asked.items():
                yield _found("result-missing", at, f"Function call '{name}' has no result.")
            asked.clear()


def _safety(request: _Request) -> Findings:
    """A decision that a person has to agree to is acknowledged in the result, in its object or the text of one."""
    asked: dict[str, Object] = {}
    for path, step in request.steps:
        if step.get("type") == "function_call":
            asked[text_of(step.get("id"))] = step
        elif step.get("type") == "function_result" and (call := asked.get(text_of(step.get("call_id")))) is not None:
            said = unacknowledged(call.get("name"), call.get("arguments"), _told(step.get("result")))
            if said is not None:
                yield _found("safety-decision", path, said)


def _told(result: object) -> Object:
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


def _built_in(request: _Request) -> Findings:
    """A result of Google's own tools belongs to a call before it."""
    seen: set[str] = set()
    for path, step in request.steps:
        tag = text_of(step.get("type"))
        if tag not in STEPS or tag.startswith("function_"):
            continue
        if tag.endswith("_call"):
            seen.add(text_of(step.get("id")))
        elif tag.endswith("_result") and text_of(step.get("call_id")) not in seen and not request.held:
            said = f"No call with id '{text_of(step.get('call_id'))}' precedes this result."
            yield _found("built-in-call-missing", (*path, "call_id"), said)


def _tools(request: _Request) -> Findings:
    seen: set[str] = set()
    for path, tool in request.tools:
        name = text_of(tool.get("name"))
        if tool.get("type") == "function" and name:
            if name in seen:
                yield _found("tool-name-duplicate", path, f"Duplicate function declaration found: {name}.")
            seen.add(name)


def _choice(request: _Request) -> Findings:
    choice = dig(request.body, "generation_config", "tool_choice")
    at: Path = ("generation_config", "tool_choice")
    if isinstance(choice, str) and choice not in ("auto", "any", "none", "validated"):
        said = f"Invalid value at '{{at}}': '{choice}' is none of 'auto', 'any', 'none', 'validated'."
        yield _found("choice-value", at, said)
    if choice == "any" and not request.tools:
        yield _found("choice-without-tools", at, "'{at}' is set, but there are no tools.")
    declared = {text_of(tool.get("name")) or text_of(tool.get("type")) for _, tool in request.tools}
    allowed = object_of(dig(choice, "allowed_tools"))
    for index, name in enumerate(list_of(allowed.get("tools"))):
        if name not in declared:
            said = f"Allowed tool '{text_of(name)}' is not declared."
            yield _found("choice-unknown", (*at, "allowed_tools", "tools", index), said)


_RULES = (_shapes, _request, _calls, _safety, _built_in, _tools, _choice)
