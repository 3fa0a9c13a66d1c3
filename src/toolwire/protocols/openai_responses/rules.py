"""Rules of OpenAI's server for complete requests of the Responses API, with its messages where known."""

from typing import NamedTuple

import msgspec

from toolwire.codec.models import gpt
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
    check_fields,
    check_item,
    check_tool,
    item_type,
)
from toolwire.protocols.vendors.openai import check_count

_DISPLAY_FIELDS = ("display_width", "display_height", "environment")


def check_computer(items: list[tuple[JsonPath, JsonObject]], tools: list[tuple[JsonPath, JsonObject]]) -> Findings:
    """Check display settings, screenshots and acknowledged safety checks of computer use."""
    for path, tool in tools:
        if tool.get("type") == "computer_use_preview":
            for name in _DISPLAY_FIELDS:
                if tool.get(name) is None:
                    field_path = (*path, name)
                    yield ERROR_WORDING.finding("computer-display", field_path, "Missing required parameter: '{at}'.")
    pending: dict[str, list[str]] = {}
    for path, item in items:
        call_id = text_of(item.get("call_id"))
        if item.get("type") == "computer_call":
            pending[call_id] = _safety_check_ids(item.get("pending_safety_checks"))
        elif item.get("type") == "computer_call_output":
            output = object_of(item.get("output"))
            if not output.get("image_url") and not output.get("file_id"):
                field_path = (*path, "output", "image_url")
                yield ERROR_WORDING.finding("computer-screenshot", field_path, "Missing required parameter: '{at}'.")
            acknowledged = _safety_check_ids(item.get("acknowledged_safety_checks"))
            if unacknowledged := [check_id for check_id in pending.get(call_id, ()) if check_id not in acknowledged]:
                # The server's message, as reported by clients.
                message = f"Computer tool has unacknowledged safety check for {unacknowledged}"
                yield ERROR_WORDING.finding("computer-safety", path, message)


def _safety_check_ids(checks: object) -> list[str]:
    """Return the ids of a list of safety checks."""
    return [text_of(object_of(check).get("id")) for check in list_of(checks)]


_finding = ERROR_WORDING.finding

# Rules that servers compatible with the protocol enforce, too.
_UNIVERSAL_RULES = word_set("body input-missing output-missing call-missing")
# Calls that the client runs, and the items that return their output.
_OUTPUT_KINDS = {
    **{f"{kind}_call": f"{kind}_call_output" for kind in word_set("function computer shell local_shell apply_patch")},
    "custom_tool_call": "custom_tool_call_output",
    "tool_search_call": "tool_search_output",
}
_OUTPUTS = frozenset(_OUTPUT_KINDS.values())
# Items written by the client: no reasoning of the model leads to them.
_CLIENT_ITEMS = {*_OUTPUTS, *word_set("mcp_approval_response additional_tools configuration_update compaction_trigger")}
_NAMED_CHOICES = word_set("function custom mcp")
_FOREIGN_CHOICES = word_set("any tool allowed_function")


class _Request(NamedTuple):
    """A request with its items and tools located."""

    body: JsonObject
    model: str
    items: list[tuple[JsonPath, JsonObject]]
    tools: list[tuple[JsonPath, JsonObject]]
    has_stored_state: bool  # earlier items may be stored by the server


def check_request(
    body: object, *, model: str | None = None, version: str | None = None, compatible: bool = False
) -> list[Finding]:
    """Check a request against all rules.

    `model` overrides the model of the body. With `compatible`, most findings are warnings: servers that only
    imitate the protocol may accept them.
    """
    if not isinstance(body, dict):
        return [_finding("body", (), "We could not parse the JSON body of your request: expected an object.")]
    items = object_items(body.get("input"), ("input",))
    tools = object_items(body.get("tools"), ("tools",))
    has_stored_state = any(body.get(name) for name in ("previous_response_id", "conversation", "prompt"))
    has_stored_state = has_stored_state or any(item.get("type") == "item_reference" for _, item in items)
    request = _Request(body, model or text_of(body.get("model")), items, tools, has_stored_state)
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
    """Check the fields of the request, its items and its tools one by one."""
    yield from check_fields(request.body)
    for path, item in request.items:
        yield from check_item(path, item)
    for path, tool in request.tools:
        yield from check_tool(path, tool)


def _check_request_fields(request: _Request) -> Findings:
    """Check input, model and the references to stored state."""
    body = request.body
    if body.get("input") is None and not request.has_stored_state:
        message = "One of 'input' or 'previous_response_id' or 'prompt' or 'conversation' must be provided."
        yield _finding("input-missing", ("input",), message)
    if "model" not in body and not body.get("prompt"):
        yield _finding("model-missing", ("model",), "Missing required parameter: 'model'.")
    if body.get("previous_response_id") and body.get("conversation"):
        message = "Mutually exclusive parameters. Ensure you are only providing one of: "
        yield _finding("state-twice", ("conversation",), f"{message}'previous_response_id' or 'conversation'.")


# ---- items


def _check_calls(request: _Request) -> Findings:
    """Check that every call has an output, anywhere later, and every output an earlier or stored call."""
    calls: dict[str, tuple[JsonPath, str]] = {}
    answered: set[str] = set()
    shell_calls: dict[str, str] = {}  # item id of `local_shell_call` by call id
    for path, item in request.items:
        tag = item_type(item)
        call_id = text_of(item.get("id" if tag.startswith("local_shell_call") else "call_id"))
        if tag == "local_shell_call":
            # The SDK describes `call_id` of the call and `id` of the output in the same words, so accept either id.
            shell_calls[text_of(item.get("call_id"))] = call_id
        elif tag == "local_shell_call_output":
            call_id = shell_calls.get(call_id, call_id)
        if tag in _OUTPUT_KINDS and call_id:
            if call_id in calls:
                yield _finding("call-id-duplicate", path, f"Duplicate call_id {call_id}.", "warning")
            calls[call_id] = (path, tag if _needs_client_output(item) else "")
        elif tag in _OUTPUTS and call_id:
            # Observed: the output of a client tool search may be a function output, so only the id counts.
            if call_id in answered:
                yield _finding("output-duplicate", path, f"Duplicate output for call_id {call_id}.", "warning")
            elif call_id not in calls and not request.has_stored_state and item.get("execution") != "server":
                message = f"No tool call found for {tag.replace('_', ' ')} with call_id {call_id}."
                yield _finding("call-missing", path, message)
            answered.add(call_id)
    yield from _check_unanswered(calls, answered)


def _check_unanswered(calls: dict[str, tuple[JsonPath, str]], answered: set[str]) -> Findings:
    """Yield a finding for each call of a client's tool that has no output."""
    for call_id, (path, kind) in calls.items():
        if kind and call_id not in answered:
            yield _finding("output-missing", path, f"No tool output found for {kind.replace('_', ' ')} {call_id}.")


def _check_computer_items(request: _Request) -> Findings:
    """Check computer use in the items and tools."""
    yield from check_computer(request.items, request.tools)


def _needs_client_output(item: JsonObject) -> bool:
    """Return whether the client must send an output for this call."""
    if item.get("type") == "tool_search_call":
        return item.get("execution") == "client"
    return item.get("async") is not True and value_at(item, "environment", "type") != "container_reference"


def _check_reasoning(request: _Request) -> Findings:
    """Check that a reasoning item is followed by the item that it led to.

    If the reasoning is stored, the server matches that item by id.
    """
    following: JsonObject = {}
    stored = request.body.get("store") is not False
    for path, item in reversed(request.items):
        if item.get("type") != "reasoning":
            following = item
            continue
        tag = item_type(following)
        is_model_output = tag not in _CLIENT_ITEMS and (tag != "message" or following.get("role") == "assistant")
        is_identified = not stored or "id" in following
        if isinstance(item.get("id"), str) and not (following and is_model_output and is_identified):
            message = f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."
            yield _finding("reasoning-unpaired", path, message)


def _check_items(request: _Request) -> Findings:
    """Check item ids, the position of `compaction_trigger`, and approval responses."""
    seen: set[str] = set()
    approval_request_ids = {
        text_of(item.get("id")) for _, item in request.items if item.get("type") == "mcp_approval_request"
    }
    for index, (path, item) in enumerate(request.items):
        item_id, tag = text_of(item.get("id")), item_type(item)
        # `local_shell_call_output` repeats the id of its call.
        if item_id and item_id in seen and tag != "local_shell_call_output":
            message = f"Duplicate item found with id {item_id}. Remove duplicate items from your input and try again."
            yield _finding("item-duplicate", path, message)
        seen.add(item_id)
        if tag == "compaction_trigger" and index < len(request.items) - 1:
            yield _finding("trigger-last", path, "A compaction_trigger must be the last item of the input.")
        approval_id = text_of(item.get("approval_request_id"))
        if tag == "mcp_approval_response" and approval_id not in approval_request_ids and not request.has_stored_state:
            message = f"No approval request found with id {approval_id}."
            yield _finding("approval-unknown", path, message)


# ---- tools and settings


def _check_tools(request: _Request) -> Findings:
    """Check the number, names and callers of tools."""
    functions = [tool for _, tool in request.tools if tool.get("type") in ("function", "custom")]
    yield from check_count(ERROR_WORDING, ("tools",), len(functions), 128)
    has_programs = any(tool.get("type") == "programmatic_tool_calling" for _, tool in request.tools)
    seen: set[tuple[str, str]] = set()
    for path, tool in request.tools:
        if not has_programs and "programmatic" in list_of(tool.get("allowed_callers")):
            message = "'programmatic' in '{at}' needs a tool of type 'programmatic_tool_calling'."
            yield _finding("callers-without-programs", (*path, "allowed_callers"), message, "warning")
        key = (text_of(tool.get("type")), text_of(tool.get("name")) or text_of(tool.get("server_label")))
        if key[1] and key in seen:
            yield _finding("tool-name-duplicate", path, f"Tool '{key[1]}' is declared twice.", "warning")
        seen.add(key)
        if key[0] == "tool_search" and gpt.lacks_tool_search(request.model):
            message = f"Hosted tool 'tool_search' is not supported with {request.model}."
            yield _finding("tool-model", path, message)


def _check_choice(request: _Request) -> Findings:
    """Check that the tool choice is valid and names declared tools."""
    choice, path = request.body.get("tool_choice"), ("tool_choice",)
    tools = _declared_tools(request)
    has_prompt = bool(request.body.get("prompt"))  # a stored prompt may declare tools
    if isinstance(choice, str):
        if choice not in ("none", "auto", "required"):
            message = f"Invalid value: '{choice}'. Supported values are: 'none', 'auto', and 'required'."
            yield _finding("choice-value", path, message)
        if choice == "required" and not tools and not has_prompt:
            message = "Tool choice 'required' must be specified with 'tools' parameter."
            yield _finding("choice-without-tools", path, message)
        return
    chosen: list[tuple[JsonPath, JsonObject]] = [(path, object_of(choice))] if choice else []
    chosen += object_items(value_at(choice, "tools"), (*path, "tools"))
    known = {
        (text_of(tool.get("type")), text_of(tool[key]))
        for tool in tools
        for key in ("name", "server_label")
        if isinstance(tool.get(key), str)
    }
    for reference_path, reference in chosen:
        yield from _check_chosen_tool(reference_path, reference, None if has_prompt else known)


def _declared_tools(request: _Request) -> list[JsonObject]:
    """Return all tools: those of the request, of its items and of namespaces."""
    added = [tool for _, item in request.items for _, tool in object_items(item.get("tools"), ())]
    tools = [tool for _, tool in request.tools] + added
    return tools + [member for tool in tools for _, member in object_items(tool.get("tools"), ())]


def _check_chosen_tool(path: JsonPath, reference: JsonObject, known: set[tuple[str, str]] | None) -> Findings:
    """Check one tool of a tool choice; `known` are the declared (type, name) pairs, None if unknown."""
    kind, key = text_of(reference.get("type")), "server_label" if reference.get("type") == "mcp" else "name"
    name = reference.get(key)
    if kind in _FOREIGN_CHOICES or not kind:
        message = f"Invalid value: '{kind}'. Supported values are: 'allowed_tools', 'function', 'mcp', and 'custom'."
        yield _finding("choice-value", (*path, "type"), message)
    elif kind in _NAMED_CHOICES and not isinstance(name, str):
        yield _finding("field-missing", (*path, key), "Missing required parameter: '{at}'.")
    elif kind in _NAMED_CHOICES and known is not None and (kind, name) not in known:
        yield _finding("choice-unknown", path, f"Tool choice '{kind}' not found in 'tools' parameter.")


def _check_json_mode(request: _Request) -> Findings:
    """Check that JSON mode is mentioned in the input, as the server requires."""
    if value_at(request.body, "text", "format", "type") != "json_object" or request.has_stored_state:
        return
    texts = [text_of(request.body.get("input")), text_of(request.body.get("instructions"))]
    for _, item in request.items:
        texts += [text_of(item.get("content")), text_of(item.get("output"))]
        texts += [text_of(part.get("text")) for _, part in object_items(item.get("content"), ())]
    if not any("json" in text.lower() for text in texts):
        message = "Response input messages must contain the word 'json' in some form to use 'text.format' of type "
        yield _finding("json-mode", ("input",), f"{message}'json_object'.")


def _check_model(request: _Request) -> Findings:
    """Check settings that the model rejects."""
    body, effort, model = request.body, value_at(request.body, "reasoning", "effort"), gpt.gpt_info(request.model)
    unsupported = "Unsupported parameter: '{at}' is not supported with this model."
    for name in ("temperature", "top_p"):
        if number_of(body.get(name)) not in (None, 1) and gpt.refuses_sampling(model, request.model, effort):
            yield _finding("sampling-model", (name,), unsupported)
    if effort is not None and model.efforts == ():
        yield _finding("effort-model", ("reasoning", "effort"), unsupported)
    elif effort is not None and model.efforts is not None and effort not in model.efforts:
        message = f"Unsupported value: '{text_of(effort)}' is not supported with the '{request.model}' model. "
        message += f"Supported values are: {ERROR_WORDING.join_choices(model.efforts)}."
        yield _finding("effort-model", ("reasoning", "effort"), message)


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
