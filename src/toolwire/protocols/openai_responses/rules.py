"""What the Responses API rejects of computer use.

What the Responses API rejects, rule by rule, in its own words where they are known.
"""

import re
from typing import NamedTuple

import msgspec

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
    word_set,
)
from toolwire.protocols.openai_responses.fields import (
    ERROR_WORDING,
    check_count,
    check_fields,
    check_item,
    check_tool,
    item_type,
)

_SIZED = ("display_width", "display_height", "environment")


def check_computer(items: list[tuple[JsonPath, JsonObject]], tools: list[tuple[JsonPath, JsonObject]]) -> Findings:
    for path, tool in tools:
        if tool.get("type") == "computer_use_preview":
            for name in _SIZED:
                if tool.get(name) is None:
                    at = (*path, name)
                    yield ERROR_WORDING.finding("computer-display", at, "Missing required parameter: '{at}'.")
    pending: dict[str, list[str]] = {}
    for path, item in items:
        id = text_of(item.get("call_id"))
        if item.get("type") == "computer_call":
            pending[id] = _safety_check_ids(item.get("pending_safety_checks"))
        elif item.get("type") == "computer_call_output":
            output = object_of(item.get("output"))
            if not output.get("image_url") and not output.get("file_id"):
                at = (*path, "output", "image_url")
                yield ERROR_WORDING.finding("computer-screenshot", at, "Missing required parameter: '{at}'.")
            seen = _safety_check_ids(item.get("acknowledged_safety_checks"))
            if left := [one for one in pending.get(id, ()) if one not in seen]:
                # In its words, as clients met them.
                said = f"Computer tool has unacknowledged safety check for {left}"
                yield ERROR_WORDING.finding("computer-safety", path, said)


def _safety_check_ids(checks: object) -> list[str]:
    return [text_of(object_of(one).get("id")) for one in list_of(checks)]


_finding = ERROR_WORDING.finding

# What no server that imitates the protocol takes either.
_UNIVERSAL_RULES = word_set("body input-missing output-missing call-missing")
# Calls that the client answers, and the items that answer them.
_OUTPUT_KINDS = {
    **{f"{kind}_call": f"{kind}_call_output" for kind in word_set("function computer shell local_shell apply_patch")},
    "custom_tool_call": "custom_tool_call_output",
    "tool_search_call": "tool_search_output",
}
_OUTPUTS = frozenset(_OUTPUT_KINDS.values())
# Items of the client, which nothing that the model said can have led to.
_CLIENT_ITEMS = {*_OUTPUTS, *word_set("mcp_approval_response additional_tools configuration_update compaction_trigger")}
_NAMED_CHOICES = word_set("function custom mcp")
_FOREIGN_CHOICES = word_set("any tool allowed_function")

# Models that are known to refuse; an unknown name is never held against a body.
_MODELS_WITHOUT_SAMPLING = re.compile(r"(o1|o3|o4-mini|gpt-5)(-mini|-nano|-pro)?(-20\d\d.*)?$")
_MODELS_WITHOUT_EFFORT = re.compile(r"gpt-4|gpt-3")
_EFFORTS = {
    re.compile(r"(o1|o3|o3-mini|o4-mini)(-20\d\d.*)?$"): ("low", "medium", "high"),
    re.compile(r"(gpt-5|gpt-5-mini|gpt-5-nano)(-20\d\d.*)?$"): ("minimal", "low", "medium", "high"),
}
_MODELS_WITHOUT_TOOL_SEARCH = re.compile(r"gpt-4|gpt-3|o1|o3|o4|gpt-5(-(?!codex)|$)|gpt-5\.[123](-|$)")


class _Request(NamedTuple):
    body: JsonObject
    model: str
    items: list[tuple[JsonPath, JsonObject]]
    tools: list[tuple[JsonPath, JsonObject]]
    has_stored_state: bool  # earlier items may be known to the server only


def check_request(
    body: object, *, model: str | None = None, version: str | None = None, compatible: bool = False
) -> list[Finding]:
    """`model` overrides the body's; to a `compatible` server most rules are only warnings."""
    if not isinstance(body, dict):
        return [_finding("body", (), "We could not parse the JSON body of your request: expected an object.")]
    items = object_items(body.get("input"), ("input",))
    tools = object_items(body.get("tools"), ("tools",))
    held = any(body.get(name) for name in ("previous_response_id", "conversation", "prompt"))
    held = held or any(item.get("type") == "item_reference" for _, item in items)
    request = _Request(body, model or text_of(body.get("model")), items, tools, held)
    findings = [finding for rule in _RULES for finding in rule(request)]
    if not compatible:
        return findings
    return [
        finding
        if finding.rule.removeprefix("openai-responses.") in _UNIVERSAL_RULES
        else msgspec.structs.replace(finding, level="warning")
        for finding in findings
    ]


def _check_shapes(request: _Request) -> Findings:
    yield from check_fields(request.body)
    for path, item in request.items:
        yield from check_item(path, item)
    for path, tool in request.tools:
        yield from check_tool(path, tool)


def _check_request_fields(request: _Request) -> Findings:
    body = request.body
    if body.get("input") is None and not request.has_stored_state:
        said = "One of 'input' or 'previous_response_id' or 'prompt' or 'conversation' must be provided."
        yield _finding("input-missing", ("input",), said)
    if "model" not in body and not body.get("prompt"):
        yield _finding("model-missing", ("model",), "Missing required parameter: 'model'.")
    if body.get("previous_response_id") and body.get("conversation"):
        said = "Mutually exclusive parameters. Ensure you are only providing one of: "
        yield _finding("state-twice", ("conversation",), f"{said}'previous_response_id' or 'conversation'.")


# ---- items


def _check_calls(request: _Request) -> Findings:
    """Every call has its output, anywhere later; every output its call, earlier or in what the server holds."""
    asked: dict[str, tuple[JsonPath, str]] = {}
    answered: set[str] = set()
    for path, item in request.items:
        tag = item_type(item)
        # The old local shell pairs by the id of the call's item.
        name = text_of(item.get("id" if tag.startswith("local_shell_call") else "call_id"))
        if tag in _OUTPUT_KINDS and name:
            if name in asked:
                yield _finding("call-id-duplicate", path, f"Duplicate call_id {name}.", "warning")
            asked[name] = (path, tag if _needs_client_output(item) else "")
        elif tag in _OUTPUTS and name:
            # Recorded: a client's tool search may be answered by a function's output, so only the id counts.
            if name in answered:
                yield _finding("output-duplicate", path, f"Duplicate output for call_id {name}.", "warning")
            elif name not in asked and not request.has_stored_state and item.get("execution") != "server":
                said = f"No tool call found for {tag.replace('_', ' ')} with call_id {name}."
                yield _finding("call-missing", path, said)
            answered.add(name)
    for name, (path, kind) in asked.items():
        if kind and name not in answered:
            yield _finding("output-missing", path, f"No tool output found for {kind.replace('_', ' ')} {name}.")


def _check_computer_items(request: _Request) -> Findings:
    yield from check_computer(request.items, request.tools)


def _needs_client_output(item: JsonObject) -> bool:
    if item.get("type") == "tool_search_call":
        return item.get("execution") == "client"
    return item.get("async") is not True and value_at(item, "environment", "type") != "container_reference"


def _check_reasoning(request: _Request) -> Findings:
    """What followed a reasoning item in the answer follows it here; stored reasoning knows that item by its id."""
    following: JsonObject = {}
    stored = request.body.get("store") is not False
    for path, item in reversed(request.items):
        if item.get("type") != "reasoning":
            following = item
            continue
        tag = item_type(following)
        led_to_it = tag not in _CLIENT_ITEMS and (tag != "message" or following.get("role") == "assistant")
        named = not stored or "id" in following
        if isinstance(item.get("id"), str) and not (following and led_to_it and named):
            said = f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."
            yield _finding("reasoning-unpaired", path, said)


def _check_items(request: _Request) -> Findings:
    seen: set[str] = set()
    requests = {text_of(item.get("id")) for _, item in request.items if item.get("type") == "mcp_approval_request"}
    for index, (path, item) in enumerate(request.items):
        name, tag = text_of(item.get("id")), item_type(item)
        # The local shell's output repeats the id of its call.
        if name and name in seen and tag != "local_shell_call_output":
            said = f"Duplicate item found with id {name}. Remove duplicate items from your input and try again."
            yield _finding("item-duplicate", path, said)
        seen.add(name)
        if tag == "compaction_trigger" and index < len(request.items) - 1:
            yield _finding("trigger-last", path, "A compaction_trigger must be the last item of the input.")
        answered = text_of(item.get("approval_request_id"))
        if tag == "mcp_approval_response" and answered not in requests and not request.has_stored_state:
            said = f"No approval request found with id {answered}."
            yield _finding("approval-unknown", path, said)


# ---- tools and settings


def _check_tools(request: _Request) -> Findings:
    functions = [tool for _, tool in request.tools if tool.get("type") in ("function", "custom")]
    yield from check_count(("tools",), len(functions), 128)
    has_programs = any(tool.get("type") == "programmatic_tool_calling" for _, tool in request.tools)
    seen: set[tuple[str, str]] = set()
    for path, tool in request.tools:
        if not has_programs and "programmatic" in list_of(tool.get("allowed_callers")):
            said = "'programmatic' in '{at}' needs a tool of type 'programmatic_tool_calling'."
            yield _finding("callers-without-programs", (*path, "allowed_callers"), said, "warning")
        key = (text_of(tool.get("type")), text_of(tool.get("name")) or text_of(tool.get("server_label")))
        if key[1] and key in seen:
            yield _finding("tool-name-duplicate", path, f"Tool '{key[1]}' is declared twice.", "warning")
        seen.add(key)
        if key[0] == "tool_search" and _MODELS_WITHOUT_TOOL_SEARCH.match(request.model):
            said = f"Hosted tool 'tool_search' is not supported with {request.model}."
            yield _finding("tool-model", path, said)


def _check_choice(request: _Request) -> Findings:
    choice, at = request.body.get("tool_choice"), ("tool_choice",)
    added = [tool for _, item in request.items for _, tool in object_items(item.get("tools"), ())]
    tools = [tool for _, tool in request.tools] + added
    tools += [member for tool in tools for _, member in object_items(tool.get("tools"), ())]
    if isinstance(choice, str):
        if choice not in ("none", "auto", "required"):
            said = f"Invalid value: '{choice}'. Supported values are: 'none', 'auto', and 'required'."
            yield _finding("choice-value", at, said)
        if choice == "required" and not tools and not request.body.get("prompt"):
            said = "Tool choice 'required' must be specified with 'tools' parameter."
            yield _finding("choice-without-tools", at, said)
        return
    chosen: list[tuple[JsonPath, JsonObject]] = [(at, object_of(choice))] if choice else []
    chosen += object_items(value_at(choice, "tools"), (*at, "tools"))
    known = [(tool.get("type"), tool.get(name)) for tool in tools for name in ("name", "server_label")]
    for path, part in chosen:
        kind, named = text_of(part.get("type")), "server_label" if part.get("type") == "mcp" else "name"
        if kind in _FOREIGN_CHOICES or not kind:
            said = f"Invalid value: '{kind}'. Supported values are: 'allowed_tools', 'function', 'mcp', and 'custom'."
            yield _finding("choice-value", (*path, "type"), said)
        elif kind in _NAMED_CHOICES and not isinstance(part.get(named), str):
            yield _finding("field-missing", (*path, named), "Missing required parameter: '{at}'.")
        elif kind in _NAMED_CHOICES and (kind, part.get(named)) not in known and not request.body.get("prompt"):
            yield _finding("choice-unknown", path, f"Tool choice '{kind}' not found in 'tools' parameter.")


def _check_json_mode(request: _Request) -> Findings:
    if value_at(request.body, "text", "format", "type") != "json_object" or request.has_stored_state:
        return
    texts = [text_of(request.body.get("input")), text_of(request.body.get("instructions"))]
    for _, item in request.items:
        texts += [text_of(item.get("content")), text_of(item.get("output"))]
        texts += [text_of(part.get("text")) for _, part in object_items(item.get("content"), ())]
    if not any("json" in text.lower() for text in texts):
        said = "Response input messages must contain the word 'json' in some form to use 'text.format' of type "
        yield _finding("json-mode", ("input",), f"{said}'json_object'.")


def _check_model(request: _Request) -> Findings:
    body, effort = request.body, value_at(request.body, "reasoning", "effort")
    refused = "Unsupported parameter: '{at}' is not supported with this model."
    for name in ("temperature", "top_p"):
        if number_of(body.get(name)) not in (None, 1) and _MODELS_WITHOUT_SAMPLING.match(request.model):
            yield _finding("sampling-model", (name,), refused)
    if effort is not None and _MODELS_WITHOUT_EFFORT.match(request.model):
        yield _finding("effort-model", ("reasoning", "effort"), refused)
    for models, known in _EFFORTS.items():
        if effort is not None and effort not in known and models.match(request.model):
            said = f"Unsupported value: '{text_of(effort)}' is not supported with the '{request.model}' model. "
            said += f"Supported values are: {ERROR_WORDING.join_choices(known)}."
            yield _finding("effort-model", ("reasoning", "effort"), said)


_RULES = (
    _check_shapes,
    _check_request_fields,
    _check_calls,
    _check_computer_items,
    _check_reasoning,
    _check_items,
    _check_tools,
    _check_choice,
    _check_json_mode,
    _check_model,
)
