"""Native calls that the client runs (shell, patch, computer, tool search, MCP approval) and their outputs.

They are decoded by field name, not by shape: fields with a canonical meaning are taken, all others stay extras.
"""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.content import (
    Caller,
    FileId,
    Inline,
    Media,
    Message,
    Part,
    Text,
    ToolCall,
    ToolChange,
    ToolResult,
    Url,
)
from toolwire.canonical.tools import FreeformTool, FunctionTool, Tool, ToolGroup, ToolRef
from toolwire.codec.encoding.media import ERROR_MARK, data_url, media_summary
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.wire.extras import restore_extras
from toolwire.codec.wire.reader import Reader, decode_json, escape_pointer
from toolwire.protocols.openai_responses.parts.calls import encode_caller, read_caller
from toolwire.protocols.openai_responses.parts.content import decode_content
from toolwire.protocols.openai_responses.parts.plan import ItemPlan
from toolwire.protocols.openai_responses.tools import decode_tools, encode_tool
from toolwire.protocols.openai_responses.wire import CONSTRAINT_FAMILY, FAMILY, ISSUER, InputImage, ScreenshotShape

NATIVE_CALLS: dict[str, tuple[str, tuple[str, ...]]] = {
    "computer_call": ("computer", ("actions", "action")),
    "shell_call": ("shell", ("action",)),
    "local_shell_call": ("local_shell", ("action",)),
    "apply_patch_call": ("apply_patch", ("operation",)),
    "tool_search_call": ("tool_search", ("arguments",)),
    "mcp_approval_request": ("approve", ("arguments",)),
}
"""Tool name and argument fields by item type."""

NATIVE_RESULTS = {
    "computer_call": "computer_call_output",
    "shell_call": "shell_call_output",
    "local_shell_call": "local_shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "tool_search_call": "tool_search_output",
    "mcp_approval_request": "mcp_approval_response",
}
"""Output item type by call item type."""

# Arguments of other protocols must be objects.
_ACTIONS_TEMPLATE = '{"actions":%s}'
_APPROVAL_REQUEST = "mcp_approval_request"
_ARGUMENTS_FIELD = "openai-responses:name:arguments="
_RAW_FORM = "openai-responses:raw:"
_EMPTY_FORM = "openai-responses:empty:"
_NO_REASON = "openai-responses:absent:reason"
_NO_NAME = "openai-responses:absent:name"
_CLIENT_EXECUTION = "openai-responses:execution:client"
_APPROVAL_FORM = "openai-responses:name:status=approve"
_FAILED_FORM = "openai-responses:name:status=status"

Members = dict[str, Raw]

_read_screenshot = Reader[ScreenshotShape](ScreenshotShape, FAMILY).read


def _take_string(members: Members, name: str) -> str | None:
    """Remove a string field from `members` and return it; None, removing nothing, for other values."""
    raw = members.get(name)
    if raw is None or bytes(raw)[:1] != b'"':
        return None
    del members[name]
    return str(decode_json(raw))


def _take_source(members: Members, name: str) -> str:
    """Remove a field from `members` and return its JSON text; an empty string if it is absent."""
    raw = members.pop(name, None)
    return "" if raw is None else str(raw, "utf-8")


def _take_caller(members: Members) -> Caller | None:
    """Remove a valid `caller` (the model or its program) from `members` and return it; None without one."""
    caller = read_caller(members["caller"]) if "caller" in members else None
    if caller is not None:
        del members["caller"]
    return caller


def _extras_and_form(members: Members, *wire_form: str) -> dict[str, Any]:
    """Return the `extras` argument with the remaining members, and the `wire_form` argument."""
    members.pop("type", None)
    nulls = [name for name, raw in members.items() if bytes(raw) == b"null"]
    extras = {escape_pointer(name): raw for name, raw in members.items() if bytes(raw) != b"null"}
    return {
        "extras": {FAMILY: extras} if extras else None,
        "wire_form": (*wire_form, *(f"{FAMILY}:null:{escape_pointer(name)}" for name in nulls)),
    }


# ---- decode


def is_hosted(kind: str, members: Members) -> bool:
    """Return whether the provider runs the call, so that the client need not answer it."""
    if kind in ("tool_search_call", "tool_search_output"):
        return bool(decode_json(members.get("execution", b"null")) != "client")
    if kind == "shell_call":
        environment = decode_json(members.get("environment", b"null"))
        return isinstance(environment, dict) and environment.get("type") == "container_reference"
    return False


def decode_native_call(kind: str, members: Members) -> Message:
    """Decode a native call of the item type `kind` that the client runs."""
    if kind == _APPROVAL_REQUEST:
        return _decode_approval_request(members)
    name, fields = NATIVE_CALLS[kind]
    id, status, call_id = _take_string(members, "id"), _take_string(members, "status"), _take_string(members, "call_id")
    field = next((field for field in fields if field in members), fields[-1])
    form = [_ARGUMENTS_FIELD + field, _RAW_FORM]
    arguments = _take_source(members, field)
    if field == "actions":
        arguments = _ACTIONS_TEMPLATE % arguments
    caller = _take_caller(members)
    if bytes(members.get("pending_safety_checks", b"")) == b"[]":
        form.append(_EMPTY_FORM + "pending_safety_checks")
        del members["pending_safety_checks"]
    if kind == "tool_search_call":
        form.append(_CLIENT_EXECUTION)
        members.pop("execution", None)
    checks = members.pop("pending_safety_checks", None)
    extras_and_form = _extras_and_form(members, *form)
    if checks is not None:
        constraint = {CONSTRAINT_FAMILY: {"pending_safety_checks": checks}}
        extras_and_form["extras"] = {**(extras_and_form["extras"] or {}), **constraint}
    call = ToolCall(
        id=call_id,
        name=name,
        arguments=arguments,
        native=kind,
        caller=caller,
        complete=status != "incomplete",
        at="",
        **extras_and_form,
    )
    return Message(role="assistant", parts=(call,), id=id, status=status)


def _decode_approval_request(members: Members) -> Message:
    """Decode an MCP approval request as a call, whose id is the item id."""
    call_id, status = _take_string(members, "id"), _take_string(members, "status")
    server, name = _take_string(members, "server_label"), _take_string(members, "name")
    form = [_NO_NAME] if name is None else []
    form += [_ARGUMENTS_FIELD + "arguments", "openai-responses:name:id=id"]
    arguments = _take_string(members, "arguments")
    if arguments is None:
        arguments = _take_source(members, "arguments")
        form.append(_RAW_FORM)
    call = ToolCall(
        id=call_id,
        name=NATIVE_CALLS[_APPROVAL_REQUEST][0] if name is None else name,
        arguments=arguments,
        namespace=server,
        native=_APPROVAL_REQUEST,
        caller=_take_caller(members),
        complete=status != "incomplete",
        at="",
        **_extras_and_form(members, *form),
    )
    return Message(role="assistant", parts=(call,), status=status)


def release_acknowledged_checks(message: Message, acknowledged_ids: dict[str, set[str]]) -> Message:
    """Return a computer call whose safety checks are no constraint any more, if all are acknowledged.

    They become extras. `acknowledged_ids` holds the ids of acknowledged checks by call id.
    """
    call = message.parts[0] if message.parts else None
    if not isinstance(call, ToolCall) or not call.extras or CONSTRAINT_FAMILY not in call.extras:
        return message
    extras = dict(call.extras)
    checks = extras.pop(CONSTRAINT_FAMILY)
    if not safety_check_ids(checks) <= acknowledged_ids.get(call.id or "", set()):
        return message
    released = {**extras, FAMILY: {**extras.get(FAMILY, {}), **checks}}
    return replace(message, parts=(replace(call, extras=released),))


def safety_check_ids(members: Members) -> set[str]:
    """Return the ids of pending or acknowledged safety checks."""
    values = [decode_json(raw) for name, raw in members.items() if name.endswith("_safety_checks")]
    checks = [check for value in values for check in (value if isinstance(value, list) else [value])]
    return {str(check.get("id") if isinstance(check, dict) else check) for check in checks}


def decode_native_result(kind: str, members: Members, path: str, calls: dict[str, str]) -> Message:
    """Decode the output of a native call.

    `calls` maps item ids of `local_shell_call` to call ids: its output refers to the item.
    """
    id, status, call_id = _take_string(members, "id"), _take_string(members, "status"), _take_string(members, "call_id")
    form: list[str] = []
    state: Literal["ok", "error", "denied"] = "ok"
    content: tuple[Part, ...] | None = None
    loaded: tuple[Tool, ...] = ()
    match kind:
        case "computer_call_output":
            content = _decode_screenshot(members)
        case "shell_call_output":
            content = _decode_shell(members)
        case "local_shell_call_output":
            content, call_id = _decode_text(members, "output"), calls.get(id or "", id)
        case "apply_patch_call_output":
            content, state = _decode_text(members, "output"), "error" if status == "failed" else "ok"
            form.append(_FAILED_FORM)
            status = None if status == "failed" else status
        case "tool_search_output":
            content, loaded = _decode_loaded_tools(members, path)
            form.append(_CLIENT_EXECUTION)
            members.pop("execution", None)
        case _:
            call_id = _take_string(members, "approval_request_id")
            content, state = _decode_approval(members, form)
    caller = _take_caller(members)
    result = ToolResult(
        call_id=call_id,
        content=content,
        status=state,
        native=kind,
        caller=caller,
        at="",
        **_extras_and_form(members, *form),
    )
    parts: tuple[Part, ...] = (result, ToolChange(add=loaded, at="")) if loaded else (result,)
    return Message(role="user", parts=parts, id=id, status=status)


def _decode_approval(members: Members, form: list[str]) -> tuple[tuple[Part, ...], Literal["ok", "denied"]]:
    """Decode an MCP approval response; return its reason as content, and the decision.

    Wire-form tokens are appended to `form`.
    """
    approve = bytes(members.get("approve", b""))
    content = _decode_text(members, "reason")
    if content is None:
        content = (Text(text="Denied." if approve == b"false" else "Approved.", at="/approve"),)
        form.append(_NO_REASON)
    if approve in (b"true", b"false"):
        del members["approve"]
        form += [_APPROVAL_FORM, "openai-responses:name:call_id=approval_request_id"]
    return content, "denied" if approve == b"false" else "ok"


def _decode_text(members: Members, field: str) -> tuple[Part, ...] | None:
    """Remove a text field from `members` and return it as content; None if there is none."""
    text = _take_string(members, field)
    return None if text is None else (Text(text=text, at="/" + field),)


def _decode_screenshot(members: Members) -> tuple[Part, ...] | None:
    """Remove the screenshot from `members` and return it as content; None if the output is something else."""
    raw = members.get("output")
    if raw is None or bytes(raw)[:1] != b"{":
        return None
    shape = _read_screenshot(raw)
    if shape.type != "computer_screenshot":
        return None
    del members["output"]
    image = InputImage(image_url=shape.image_url, file_id=shape.file_id, unknown=shape.unknown, nulls=shape.nulls)
    (media,) = decode_content([image], "", is_output=False)
    return (replace(media, at="/output"),)


def _decode_shell(members: Members) -> tuple[Part, ...] | None:
    """Remove the shell output from `members` and return it as readable text; None if it is not valid."""
    raw = members.get("output")
    if raw is None or (text := _shell_output_text(raw)) is None:
        return None
    del members["output"]
    extras = _shell_output_extras(raw)
    form = (_RAW_FORM + str(raw, "utf-8"),)
    return (Text(text=text, at="/output", wire_form=form, extras={FAMILY: extras} if extras else None),)


def _shell_output_text(raw: Raw) -> str | None:
    """Return the readable output of shell commands; None if its shape is unknown."""
    runs = decode_json(raw)
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
        return None
    lines = []
    for run in runs:
        lines += [text for name in ("stdout", "stderr") if isinstance(text := run.get(name), str) and text]
        outcome = run.get("outcome")
        if isinstance(outcome, dict) and outcome.get("type") == "timeout":
            lines.append("[timed out]")
        elif isinstance(outcome, dict) and outcome.get("exit_code"):
            lines.append(f"[exit code {outcome['exit_code']}]")
    return "\n".join(lines)


def _shell_output_extras(raw: Raw) -> dict[str, Raw]:
    """Return, by pointer, the fields of shell output that its readable text omits."""
    extras: dict[str, Any] = {}
    for index, run in enumerate(decode_json(raw)):
        for name, value in run.items():
            if name == "outcome" and isinstance(value, dict):
                for key, detail in value.items():
                    if key != "exit_code" and (key, detail) not in (("type", "exit"), ("type", "timeout")):
                        extras[f"{index}/outcome/{escape_pointer(key)}"] = detail
            elif name not in ("stdout", "stderr") or not isinstance(value, str):
                extras[f"{index}/{escape_pointer(name)}"] = value
    return {pointer: Raw(msgspec.json.encode(value)) for pointer, value in extras.items()}


def _decode_loaded_tools(members: Members, path: str) -> tuple[tuple[Part, ...] | None, tuple[Tool, ...]]:
    """Return the tools that a tool search loaded, as references and as declarations."""
    raw = members.get("tools")
    if raw is None or bytes(raw)[:1] != b"[":
        return None, ()
    tools = decode_tools(msgspec.json.decode(raw, type=list[Raw]), f"{path}/tools")
    del members["tools"]
    references = [ref for index, tool in enumerate(tools) for ref in _tool_references(tool, f"/tools/{index}")]
    return tuple(references), tools


def _tool_references(tool: Tool, at: str) -> Iterator[ToolRef]:
    """Return references to a tool; for a group, to each of its tools."""
    if isinstance(tool, ToolGroup):
        for index, member in enumerate(tool.tools):
            kind: Literal["function", "freeform"] = "freeform" if isinstance(member, FreeformTool) else "function"
            yield ToolRef(name=member.name, namespace=tool.name, kind=kind, at=f"{at}/tools/{index}")
    elif isinstance(tool, FunctionTool | FreeformTool):
        yield ToolRef(name=tool.name, kind="freeform" if isinstance(tool, FreeformTool) else "function", at=at)
    else:
        yield ToolRef(name=tool.name or "", kind="native", at=at)


# ---- encode


def encode_native_call(part: ToolCall, located_part: LocatedPart, plan: ItemPlan, message: Message) -> Any:
    """Encode a native call as an item with the id and status of `message`."""
    kind = part.native or ""
    item: dict[str, Any] = {"type": kind}
    if kind == _APPROVAL_REQUEST:
        item |= _approval_request_fields(part, message)
    else:
        item |= {} if message.id is None else {"id": message.id}
        if part.id is not None:
            plan.calls[part.id] = kind, part.name
            item["call_id"] = part.id
    item |= _encode_arguments(part, kind, plan)
    if message.status is not None:
        item["status"] = message.status
    if kind == "tool_search_call":
        item["execution"] = "client"
    if (caller := encode_caller(part, located_part, plan)) is not UNSET:
        item["caller"] = caller
    for token in part.wire_form:
        if token.startswith(_EMPTY_FORM):
            item[token[len(_EMPTY_FORM) :]] = []
    return restore_extras(restore_extras(item, part, FAMILY), part, CONSTRAINT_FAMILY)


def _approval_request_fields(part: ToolCall, message: Message) -> dict[str, Any]:
    """Return the fields of an MCP approval request: id, server and tool name."""
    fields: dict[str, Any] = {}
    id = part.id if message.id is None else message.id
    if id is not None:
        fields["id"] = id
    if part.namespace is not None:
        fields["server_label"] = part.namespace
    if _NO_NAME not in part.wire_form:
        fields["name"] = part.name
    return fields


def _encode_arguments(part: ToolCall, kind: str, plan: ItemPlan) -> dict[str, Any]:
    """Return the fields with the arguments of a native call; text that is not JSON becomes `{"_raw": ...}`."""
    field = next(
        (token[len(_ARGUMENTS_FIELD) :] for token in part.wire_form if token.startswith(_ARGUMENTS_FIELD)),
        NATIVE_CALLS[kind][1][-1],
    )
    if kind == _APPROVAL_REQUEST and _RAW_FORM not in part.wire_form:
        return {field: part.arguments}
    if not part.arguments:
        return {}
    prefix, suffix = _ACTIONS_TEMPLATE.split("%s") if field == "actions" else ("", "")
    arguments = part.arguments.removeprefix(prefix).removesuffix(suffix)
    return {field: Raw(arguments.encode()) if plan.same_protocol or _is_json(arguments) else {"_raw": arguments}}


def _is_json(text: str) -> bool:
    """Return whether the text is valid JSON, which other providers' models may fail to write."""
    try:
        decode_json(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def encode_native_result(part: ToolResult, located_part: LocatedPart, plan: ItemPlan, message: Message) -> Any:
    """Encode the output of a native call."""
    kind = NATIVE_RESULTS.get(part.native or "", part.native or "")
    item: dict[str, Any] = {"type": kind}
    if message.id is not None:
        item["id"] = message.id
    if part.call_id is not None:
        name = {"mcp_approval_response": "approval_request_id", "local_shell_call_output": "id"}.get(kind, "call_id")
        item.setdefault(name, part.call_id)
    if message.status is not None:
        item["status"] = message.status
    item |= _encode_result_content(part, kind, located_part, plan, message)
    if (caller := encode_caller(part, located_part, plan)) is not UNSET:
        item["caller"] = caller
    return restore_extras(item, part, FAMILY)


def _encode_result_content(
    part: ToolResult, kind: str, located_part: LocatedPart, plan: ItemPlan, message: Message
) -> dict[str, Any]:
    """Return the content of a result as fields of its item type."""
    text = _result_text(part)
    match kind:
        case "computer_call_output":
            screenshot = part.content[0] if part.content else None
            return {"output": _encode_screenshot(screenshot)} if isinstance(screenshot, Media) else {}
        case "shell_call_output":
            return {} if text is None else {"output": _encode_shell(part, text)}
        case "apply_patch_call_output":
            return _encode_patch_result(part, text, plan, message)
        case "tool_search_output":
            return _encode_search_result(part, located_part, plan, message)
        case "mcp_approval_response":
            return _encode_approval(part, text, plan)
        case _:
            is_marked = part.status != "ok" and not plan.same_protocol
            return {} if text is None else {"output": ERROR_MARK + text if is_marked else text}


def _encode_patch_result(part: ToolResult, text: str | None, plan: ItemPlan, message: Message) -> dict[str, Any]:
    """Return the output and status fields of an `apply_patch` result."""
    fields: dict[str, Any] = {}
    if message.status is None and (part.status != "ok" or not plan.same_protocol):
        fields["status"] = "completed" if part.status == "ok" else "failed"
    if text is not None:
        fields["output"] = text
    return fields


def _encode_search_result(
    part: ToolResult, located_part: LocatedPart, plan: ItemPlan, message: Message
) -> dict[str, Any]:
    """Return the fields with the tools that a client's tool search loaded.

    The tools are a tool change in the same message.
    """
    changes = [change for change in message.parts if isinstance(change, ToolChange)]
    if part.content is None and not changes:
        return {"execution": "client"}
    tools = [tool for change in changes for tool in change.add]
    return {"execution": "client", "tools": [encode_tool(tool, located_part.path, plan) for tool in tools]}


def _encode_approval(part: ToolResult, text: str | None, plan: ItemPlan) -> dict[str, Any]:
    """Return the decision and reason fields of an MCP approval response."""
    fields: dict[str, Any] = {}
    if not plan.same_protocol or _APPROVAL_FORM in part.wire_form:
        fields["approve"] = part.status == "ok"
    if text is not None and _NO_REASON not in part.wire_form and (plan.same_protocol or part.status != "ok"):
        fields["reason"] = text
    return fields


def _result_text(part: ToolResult) -> str | None:
    """Return the text of a result, with media summarized; None if it has no content."""
    if part.content is None:
        return None
    texts = [
        block.text if isinstance(block, Text) else media_summary(block)
        for block in part.content
        if isinstance(block, Text | Media)
    ]
    return "\n".join(texts)


def _encode_screenshot(media: Media) -> dict[str, Any]:
    """Encode a screenshot as the output of a computer call."""
    screenshot: dict[str, Any] = {"type": "computer_screenshot"}
    source = media.source
    if isinstance(source, Url) and source.url:
        screenshot["image_url"] = source.url
    elif isinstance(source, Inline):
        screenshot["image_url"] = data_url(source.data, media.media_type)
    elif isinstance(source, FileId) and source.issuer == ISSUER:
        screenshot["file_id"] = source.id
    return restore_extras(screenshot, media, FAMILY)


def _encode_shell(part: ToolResult, text: str) -> Any:
    """Encode shell output: the original if its text is unchanged, else the text as output of one command."""
    for content_part in part.content or ():
        for token in content_part.wire_form:
            if token.startswith(_RAW_FORM):
                raw = Raw(token[len(_RAW_FORM) :].encode())
                if _shell_output_text(raw) == text:
                    return raw
    exit_code = 0 if part.status == "ok" else 1
    return [{"stdout": text, "stderr": "", "outcome": {"type": "exit", "exit_code": exit_code}}]
