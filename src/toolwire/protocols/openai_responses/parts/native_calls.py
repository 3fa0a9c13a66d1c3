"""The vendor's own calls that the client must answer (shell, patch, computer, tool search, approval), and the answers.

They are read by field name, not by shape: what has a canonical home is taken, all else is kept as it is.
"""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.content import FileId, Inline, Media, Message, Part, Text, ToolCall, ToolChange, ToolResult, Url
from toolwire.canonical.tools import FreeformTool, FunctionTool, Tool, ToolGroup, ToolRef
from toolwire.codec.encoding.media import ERROR_MARK, data_url, media_summary
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.wire.extras import restore_extras
from toolwire.codec.wire.reader import Reader, escape_pointer
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
"""By type: the tool's name, and the field that holds what is asked."""

NATIVE_RESULTS = {
    "computer_call": "computer_call_output",
    "shell_call": "shell_call_output",
    "local_shell_call": "local_shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "tool_search_call": "tool_search_output",
    "mcp_approval_request": "mcp_approval_response",
}

# Others take only objects as arguments.
_ACTIONS_TEMPLATE = '{"actions":%s}'
_ARGUMENTS_FIELD = "openai-responses:name:arguments="
_RAW_FORM = "openai-responses:whole:"
_EMPTY_FORM = "openai-responses:empty:"
_NO_REASON = "openai-responses:absent:reason"
_NO_NAME = "openai-responses:absent:name"
_CLIENT_EXECUTION = "openai-responses:execution:client"
_APPROVAL_FORM = "openai-responses:name:status=approve"
_FAILED_FORM = "openai-responses:name:status=status"

Members = dict[str, Raw]

_decode_json = msgspec.json.Decoder().decode
_read_screenshot = Reader[ScreenshotShape](ScreenshotShape, FAMILY).read


def _take_string(members: Members, name: str) -> str | None:
    """The field, if it is a string; else it stays with what is kept."""
    raw = members.get(name)
    if raw is None or bytes(raw)[:1] != b'"':
        return None
    del members[name]
    return str(_decode_json(raw))


def _extras_and_form(members: Members, *wire_form: str) -> dict[str, Any]:
    members.pop("type", None)
    nulls = [name for name, raw in members.items() if bytes(raw) == b"null"]
    extras = {escape_pointer(name): raw for name, raw in members.items() if bytes(raw) != b"null"}
    return {
        "extras": {FAMILY: extras} if extras else None,
        "wire_form": (*wire_form, *(f"{FAMILY}:null:{escape_pointer(name)}" for name in nulls)),
    }


# ---- decode


def is_hosted(kind: str, members: Members) -> bool:
    """Whether the provider runs it, so that nobody has to answer."""
    if kind in ("tool_search_call", "tool_search_output"):
        return bool(_decode_json(members.get("execution", b"null")) != "client")
    if kind == "shell_call":
        environment = _decode_json(members.get("environment", b"null"))
        return isinstance(environment, dict) and environment.get("type") == "container_reference"
    return False


def decode_native_call(kind: str, members: Members) -> Message:
    name, fields = NATIVE_CALLS[kind]
    id, status, call_id = _take_string(members, "id"), _take_string(members, "status"), _take_string(members, "call_id")
    namespace = None
    form: list[str] = []
    if kind == "mcp_approval_request":
        call_id, namespace, said = id, _take_string(members, "server_label"), _take_string(members, "name")
        form += [] if said is not None else [_NO_NAME]
        name = name if said is None else said
    field = next((field for field in fields if field in members), fields[-1])
    text = _take_string(members, field) if kind == "mcp_approval_request" else None
    form.append(_ARGUMENTS_FIELD + field)
    if text is None:
        raw = members.pop(field, None)
        text = "" if raw is None else str(raw, "utf-8")
        text = _ACTIONS_TEMPLATE % text if field == "actions" else text
        form.append(_RAW_FORM)
    caller = read_caller(members["caller"]) if "caller" in members else None
    if caller is not None:
        del members["caller"]
    if bytes(members.get("pending_safety_checks", b"")) == b"[]":
        form.append(_EMPTY_FORM + "pending_safety_checks")
        del members["pending_safety_checks"]
    if kind == "tool_search_call":
        form.append(_CLIENT_EXECUTION)
        members.pop("execution", None)
    checks = members.pop("pending_safety_checks", None)
    kept = _extras_and_form(members, *form)
    if checks is not None:
        kept["extras"] = {**(kept["extras"] or {}), CONSTRAINT_FAMILY: {"pending_safety_checks": checks}}
    complete = status != "incomplete"
    call = ToolCall(
        id=call_id,
        name=name,
        arguments=text,
        namespace=namespace,
        native=kind,
        caller=caller,
        complete=complete,
        at="",
        **kept,
    )
    if kind == "mcp_approval_request":
        id = None  # it is the call's own
    return Message(role="assistant", parts=(call,), id=id, status=status)


def release_acknowledged_checks(message: Message, acknowledged_ids: dict[str, set[str]]) -> Message:
    """A computer call without the guard on its safety checks, if a person has seen all of them: by call, their ids."""
    call = message.parts[0] if message.parts else None
    if not isinstance(call, ToolCall) or not call.extras or CONSTRAINT_FAMILY not in call.extras:
        return message
    extras = dict(call.extras)
    guarded = extras.pop(CONSTRAINT_FAMILY)
    if not safety_check_ids(guarded) <= acknowledged_ids.get(call.id or "", set()):
        return message
    kept = {**extras, FAMILY: {**extras.get(FAMILY, {}), **guarded}}
    return replace(message, parts=(replace(call, extras=kept),))


def safety_check_ids(members: Members) -> set[str]:
    """The safety checks that a call has open, or that its screenshot says were seen."""
    found = [_decode_json(raw) for name, raw in members.items() if name.endswith("_safety_checks")]
    checks = [one for said in found for one in (said if isinstance(said, list) else [said])]
    return {str(one.get("id") if isinstance(one, dict) else one) for one in checks}


def decode_native_result(kind: str, members: Members, path: str, calls: dict[str, str]) -> Message:
    """`calls` gives the call id of an old shell call by the id of its item, which its output names."""
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
            call_id, content = _take_string(members, "approval_request_id"), _decode_text(members, "reason")
            state = "denied" if bytes(members.get("approve", b"")) == b"false" else "ok"
            if content is None:
                content = (Text(text="Denied." if state == "denied" else "Approved.", at="/approve"),)
                form.append(_NO_REASON)
            if bytes(members.get("approve", b"")) in (b"true", b"false"):
                del members["approve"]
                form += [_APPROVAL_FORM, "openai-responses:name:call_id=approval_request_id"]
    caller = read_caller(members["caller"]) if "caller" in members else None
    if caller is not None:
        del members["caller"]
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


def _decode_text(members: Members, field: str) -> tuple[Part, ...] | None:
    text = _take_string(members, field)
    return None if text is None else (Text(text=text, at="/" + field),)


def _decode_screenshot(members: Members) -> tuple[Part, ...] | None:
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
    raw = members.get("output")
    if raw is None or (text := _shell_output_text(raw)) is None:
        return None
    del members["output"]
    unsaid = _shell_output_extras(raw)
    form = (_RAW_FORM + str(raw, "utf-8"),)
    return (Text(text=text, at="/output", wire_form=form, extras={FAMILY: unsaid} if unsaid else None),)


def _shell_output_text(raw: Raw) -> str | None:
    """What came of some commands, readable; None if it is not in the shape that is known."""
    runs = _decode_json(raw)
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
    """What the readable text of some commands leaves out, by its place."""
    found: dict[str, Any] = {}
    for index, run in enumerate(_decode_json(raw)):
        for name, value in run.items():
            if name == "outcome" and isinstance(value, dict):
                for word, said in value.items():
                    if word != "exit_code" and (word, said) not in (("type", "exit"), ("type", "timeout")):
                        found[f"{index}/outcome/{escape_pointer(word)}"] = said
            elif name not in ("stdout", "stderr") or not isinstance(value, str):
                found[f"{index}/{escape_pointer(name)}"] = value
    return {place: Raw(msgspec.json.encode(value)) for place, value in found.items()}


def _decode_loaded_tools(members: Members, path: str) -> tuple[tuple[Part, ...] | None, tuple[Tool, ...]]:
    raw = members.get("tools")
    if raw is None or bytes(raw)[:1] != b"[":
        return None, ()
    tools = decode_tools(msgspec.json.decode(raw, type=list[Raw]), f"{path}/tools")
    del members["tools"]
    return tuple(one for index, tool in enumerate(tools) for one in _tool_references(tool, f"/tools/{index}")), tools


def _tool_references(tool: Tool, at: str) -> Iterator[ToolRef]:
    """The tools by name; those of a group each, for a group can't be called."""
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
    kind = part.native or ""
    out: dict[str, Any] = {"type": kind}
    own = part.id if message.id is None and kind == "mcp_approval_request" else message.id
    if own is not None:
        out["id"] = own
    if part.id is not None and kind != "mcp_approval_request":
        plan.calls[part.id] = kind, part.name
        out["call_id"] = part.id
    if kind == "mcp_approval_request":
        out |= {} if part.namespace is None else {"server_label": part.namespace}
        out |= {} if _NO_NAME in part.wire_form else {"name": part.name}
    field = next(
        (token[len(_ARGUMENTS_FIELD) :] for token in part.wire_form if token.startswith(_ARGUMENTS_FIELD)),
        NATIVE_CALLS[kind][1][-1],
    )
    if kind == "mcp_approval_request" and _RAW_FORM not in part.wire_form:
        out[field] = part.arguments
    elif part.arguments:
        before, after = _ACTIONS_TEMPLATE.split("%s") if field == "actions" else ("", "")
        said = part.arguments.removeprefix(before).removesuffix(after)
        out[field] = Raw(said.encode()) if plan.same_protocol or _is_json(said) else {"_raw": said}
    if message.status is not None:
        out["status"] = message.status
    if kind == "tool_search_call":
        out["execution"] = "client"
    if (caller := encode_caller(part, located_part, plan)) is not UNSET:
        out["caller"] = caller
    for token in part.wire_form:
        if token.startswith(_EMPTY_FORM):
            out[token[len(_EMPTY_FORM) :]] = []
    return restore_extras(restore_extras(out, part, FAMILY), part, CONSTRAINT_FAMILY)


def _is_json(text: str) -> bool:
    """Another provider's model may not keep to it."""
    try:
        _decode_json(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def encode_native_result(part: ToolResult, located_part: LocatedPart, plan: ItemPlan, message: Message) -> Any:
    kind = NATIVE_RESULTS.get(part.native or "", part.native or "")
    out: dict[str, Any] = {"type": kind}
    if message.id is not None:
        out["id"] = message.id
    if part.call_id is not None:
        name = {"mcp_approval_response": "approval_request_id", "local_shell_call_output": "id"}.get(kind, "call_id")
        out.setdefault(name, part.call_id)
    if message.status is not None:
        out["status"] = message.status
    _encode_result_content(part, out, located_part, plan, message)
    if (caller := encode_caller(part, located_part, plan)) is not UNSET:
        out["caller"] = caller
    return restore_extras(out, part, FAMILY)


def _encode_result_content(
    part: ToolResult, out: dict[str, Any], located_part: LocatedPart, plan: ItemPlan, message: Message
) -> None:
    """What each kind of answer calls its content."""
    kind, text = out["type"], _result_text(part)
    match kind:
        case "computer_call_output":
            if part.content and isinstance(media := part.content[0], Media):
                out["output"] = _encode_screenshot(media)
        case "shell_call_output":
            if text is not None:
                out["output"] = _encode_shell(part, text)
        case "apply_patch_call_output":
            if message.status is None and (part.status != "ok" or not plan.same_protocol):
                out["status"] = "completed" if part.status == "ok" else "failed"
            if text is not None:
                out["output"] = text
        case "tool_search_output":
            out["execution"] = "client"
            changes = [one for one in message.parts if isinstance(one, ToolChange)]
            if part.content is not None or changes:
                tools = [tool for change in changes for tool in change.add]
                out["tools"] = [encode_tool(tool, located_part.path, plan) for tool in tools]
        case "mcp_approval_response":
            if not plan.same_protocol or _APPROVAL_FORM in part.wire_form:
                out["approve"] = part.status == "ok"
            if text is not None and _NO_REASON not in part.wire_form and (plan.same_protocol or part.status != "ok"):
                out["reason"] = text
        case _:
            if text is not None:
                marked = part.status != "ok" and not plan.same_protocol
                out["output"] = ERROR_MARK + text if marked else text


def _result_text(part: ToolResult) -> str | None:
    if part.content is None:
        return None
    texts = [
        one.text if isinstance(one, Text) else media_summary(one)
        for one in part.content
        if isinstance(one, Text | Media)
    ]
    return "\n".join(texts)


def _encode_screenshot(media: Media) -> dict[str, Any]:
    out: dict[str, Any] = {"type": "computer_screenshot"}
    source = media.source
    if isinstance(source, Url) and source.url:
        out["image_url"] = source.url
    elif isinstance(source, Inline):
        out["image_url"] = data_url(source.data, media.media_type)
    elif isinstance(source, FileId) and source.issuer == ISSUER:
        out["file_id"] = source.id
    return restore_extras(out, media, FAMILY)


def _encode_shell(part: ToolResult, text: str) -> Any:
    for one in part.content or ():
        for token in one.wire_form:
            if token.startswith(_RAW_FORM):
                raw = Raw(token[len(_RAW_FORM) :].encode())
                if _shell_output_text(raw) == text:
                    return raw
    exit_code = 0 if part.status == "ok" else 1
    return [{"stdout": text, "stderr": "", "outcome": {"type": "exit", "exit_code": exit_code}}]
