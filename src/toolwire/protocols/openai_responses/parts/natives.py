"""The vendor's own calls that the client must answer (shell, patch, computer, tool search, approval), and the answers.

They are read by field name, not by shape: what has a canonical home is taken, all else is kept as it is.
"""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.canonical.content import (
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
from toolwire.codec.fields import Reader, escape
from toolwire.codec.kept import restore
from toolwire.codec.media import ERROR_MARK, data_url, summary
from toolwire.codec.turns import Placed
from toolwire.protocols.openai_responses.request.tools import decode_tools, encode_tool
from toolwire.protocols.openai_responses.wire import FAMILY, GUARDED, ISSUER, InputImage, Screenshot

from .calls import encode_caller, read_caller
from .content import decode_content
from .plan import ItemPlan

CALLS: dict[str, tuple[str, tuple[str, ...]]] = {
    "computer_call": ("computer", ("actions", "action")),
    "shell_call": ("shell", ("action",)),
    "local_shell_call": ("local_shell", ("action",)),
    "apply_patch_call": ("apply_patch", ("operation",)),
    "tool_search_call": ("tool_search", ("arguments",)),
    "mcp_approval_request": ("approve", ("arguments",)),
}
"""By type: the tool's name, and the field that holds what is asked."""

ANSWERS = {
    "computer_call": "computer_call_output",
    "shell_call": "shell_call_output",
    "local_shell_call": "local_shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "tool_search_call": "tool_search_output",
    "mcp_approval_request": "mcp_approval_response",
}

# Others take only objects as arguments.
_LISTED = '{"actions":%s}'
_FIELD = "openai-responses:name:arguments="
_WHOLE = "openai-responses:whole:"
_EMPTY = "openai-responses:empty:"
_NO_REASON = "openai-responses:absent:reason"
_NO_NAME = "openai-responses:absent:name"
_EXECUTION = "openai-responses:execution:client"
_APPROVED = "openai-responses:name:status=approve"
_FAILED = "openai-responses:name:status=status"

Members = dict[str, Raw]

_decode = msgspec.json.Decoder().decode
_read_screenshot = Reader[Screenshot](Screenshot, FAMILY).read


def _take(members: Members, name: str) -> str | None:
    """The field, if it is a string; else it stays with what is kept."""
    raw = members.get(name)
    if raw is None or bytes(raw)[:1] != b'"':
        return None
    del members[name]
    return str(_decode(raw))


def _kept(members: Members, *form: str) -> dict[str, Any]:
    members.pop("type", None)
    nulls = [name for name, raw in members.items() if bytes(raw) == b"null"]
    extras = {escape(name): raw for name, raw in members.items() if bytes(raw) != b"null"}
    return {
        "extras": {FAMILY: extras} if extras else None,
        "form": (*form, *(f"{FAMILY}:null:{escape(name)}" for name in nulls)),
    }


# ---- decode


def is_hosted(kind: str, members: Members) -> bool:
    """Whether the provider runs it, so that nobody has to answer."""
    if kind in ("tool_search_call", "tool_search_output"):
        return bool(_decode(members.get("execution", b"null")) != "client")
    if kind == "shell_call":
        environment = _decode(members.get("environment", b"null"))
        return isinstance(environment, dict) and environment.get("type") == "container_reference"
    return False


def decode_native_call(kind: str, members: Members) -> Message:
    name, fields = CALLS[kind]
    id, status, call_id = _take(members, "id"), _take(members, "status"), _take(members, "call_id")
    namespace = None
    form: list[str] = []
    if kind == "mcp_approval_request":
        call_id, namespace, said = id, _take(members, "server_label"), _take(members, "name")
        form += [] if said is not None else [_NO_NAME]
        name = name if said is None else said
    field = next((field for field in fields if field in members), fields[-1])
    text = _take(members, field) if kind == "mcp_approval_request" else None
    form.append(_FIELD + field)
    if text is None:
        raw = members.pop(field, None)
        text = "" if raw is None else str(raw, "utf-8")
        text = _LISTED % text if field == "actions" else text
        form.append(_WHOLE)
    caller = read_caller(members["caller"]) if "caller" in members else None
    if caller is not None:
        del members["caller"]
    if bytes(members.get("pending_safety_checks", b"")) == b"[]":
        form.append(_EMPTY + "pending_safety_checks")
        del members["pending_safety_checks"]
    if kind == "tool_search_call":
        form.append(_EXECUTION)
        members.pop("execution", None)
    checks = members.pop("pending_safety_checks", None)
    kept = _kept(members, *form)
    if checks is not None:
        kept["extras"] = {**(kept["extras"] or {}), GUARDED: {"pending_safety_checks": checks}}
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


def acknowledged(message: Message, seen: dict[str, set[str]]) -> Message:
    """A computer call without the guard on its safety checks, if a person has seen all of them: by call, their ids."""
    call = message.parts[0] if message.parts else None
    if not isinstance(call, ToolCall) or not call.extras or GUARDED not in call.extras:
        return message
    extras = dict(call.extras)
    guarded = extras.pop(GUARDED)
    if not check_ids(guarded) <= seen.get(call.id or "", set()):
        return message
    kept = {**extras, FAMILY: {**extras.get(FAMILY, {}), **guarded}}
    return replace(message, parts=(replace(call, extras=kept),))


def check_ids(members: Members) -> set[str]:
    """The safety checks that a call has open, or that its screenshot says were seen."""
    found = [_decode(raw) for name, raw in members.items() if name.endswith("_safety_checks")]
    checks = [one for said in found for one in (said if isinstance(said, list) else [said])]
    return {str(one.get("id") if isinstance(one, dict) else one) for one in checks}


def decode_native_result(kind: str, members: Members, path: str, calls: dict[str, str]) -> Message:
    """`calls` gives the call id of an old shell call by the id of its item, which its output names."""
    id, status, call_id = _take(members, "id"), _take(members, "status"), _take(members, "call_id")
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
            form.append(_FAILED)
            status = None if status == "failed" else status
        case "tool_search_output":
            content, loaded = _decode_loaded(members, path)
            form.append(_EXECUTION)
            members.pop("execution", None)
        case _:
            call_id, content = _take(members, "approval_request_id"), _decode_text(members, "reason")
            state = "denied" if bytes(members.get("approve", b"")) == b"false" else "ok"
            if content is None:
                content = (Text(text="Denied." if state == "denied" else "Approved.", at="/approve"),)
                form.append(_NO_REASON)
            if bytes(members.get("approve", b"")) in (b"true", b"false"):
                del members["approve"]
                form += [_APPROVED, "openai-responses:name:call_id=approval_request_id"]
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
        **_kept(members, *form),
    )
    parts: tuple[Part, ...] = (result, ToolChange(add=loaded, at="")) if loaded else (result,)
    return Message(role="user", parts=parts, id=id, status=status)


def _decode_text(members: Members, field: str) -> tuple[Part, ...] | None:
    text = _take(members, field)
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
    (media,) = decode_content([image], "", spoken=False)
    return (replace(media, at="/output"),)


def _decode_shell(members: Members) -> tuple[Part, ...] | None:
    raw = members.get("output")
    if raw is None or (text := _said(raw)) is None:
        return None
    del members["output"]
    unsaid = _unsaid(raw)
    form = (_WHOLE + str(raw, "utf-8"),)
    return (Text(text=text, at="/output", form=form, extras={FAMILY: unsaid} if unsaid else None),)


def _said(raw: Raw) -> str | None:
    """What came of some commands, readable; None if it is not in the shape that is known."""
    runs = _decode(raw)
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


def _unsaid(raw: Raw) -> dict[str, Raw]:
    """What the readable text of some commands leaves out, by its place."""
    found: dict[str, Any] = {}
    for index, run in enumerate(_decode(raw)):
        for name, value in run.items():
            if name == "outcome" and isinstance(value, dict):
                for word, said in value.items():
                    if word != "exit_code" and (word, said) not in (("type", "exit"), ("type", "timeout")):
                        found[f"{index}/outcome/{escape(word)}"] = said
            elif name not in ("stdout", "stderr") or not isinstance(value, str):
                found[f"{index}/{escape(name)}"] = value
    return {place: Raw(msgspec.json.encode(value)) for place, value in found.items()}


def _decode_loaded(members: Members, path: str) -> tuple[tuple[Part, ...] | None, tuple[Tool, ...]]:
    raw = members.get("tools")
    if raw is None or bytes(raw)[:1] != b"[":
        return None, ()
    tools = decode_tools(msgspec.json.decode(raw, type=list[Raw]), f"{path}/tools")
    del members["tools"]
    return tuple(one for index, tool in enumerate(tools) for one in _references(tool, f"/tools/{index}")), tools


def _references(tool: Tool, at: str) -> Iterator[ToolRef]:
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


def encode_native_call(part: ToolCall, placed: Placed, plan: ItemPlan, message: Message) -> Any:
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
        out |= {} if _NO_NAME in part.form else {"name": part.name}
    field = next((token[len(_FIELD) :] for token in part.form if token.startswith(_FIELD)), CALLS[kind][1][-1])
    if kind == "mcp_approval_request" and _WHOLE not in part.form:
        out[field] = part.arguments
    elif part.arguments:
        before, after = _LISTED.split("%s") if field == "actions" else ("", "")
        said = part.arguments.removeprefix(before).removesuffix(after)
        out[field] = Raw(said.encode()) if plan.home or _is_json(said) else {"_raw": said}
    if message.status is not None:
        out["status"] = message.status
    if kind == "tool_search_call":
        out["execution"] = "client"
    if (caller := encode_caller(part, placed, plan)) is not UNSET:
        out["caller"] = caller
    for token in part.form:
        if token.startswith(_EMPTY):
            out[token[len(_EMPTY) :]] = []
    return restore(restore(out, part, FAMILY), part, GUARDED)


def _is_json(text: str) -> bool:
    """Another provider's model may not keep to it."""
    try:
        _decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def encode_native_result(part: ToolResult, placed: Placed, plan: ItemPlan, message: Message) -> Any:
    kind = ANSWERS.get(part.native or "", part.native or "")
    out: dict[str, Any] = {"type": kind}
    if message.id is not None:
        out["id"] = message.id
    if part.call_id is not None:
        name = {"mcp_approval_response": "approval_request_id", "local_shell_call_output": "id"}.get(kind, "call_id")
        out.setdefault(name, part.call_id)
    if message.status is not None:
        out["status"] = message.status
    _encode_answer(part, out, placed, plan, message)
    if (caller := encode_caller(part, placed, plan)) is not UNSET:
        out["caller"] = caller
    return restore(out, part, FAMILY)


def _encode_answer(part: ToolResult, out: dict[str, Any], placed: Placed, plan: ItemPlan, message: Message) -> None:
    """What each kind of answer calls its content."""
    kind, text = out["type"], _text(part)
    match kind:
        case "computer_call_output":
            if part.content and isinstance(media := part.content[0], Media):
                out["output"] = _encode_screenshot(media)
        case "shell_call_output":
            if text is not None:
                out["output"] = _encode_shell(part, text)
        case "apply_patch_call_output":
            if message.status is None and (part.status != "ok" or not plan.home):
                out["status"] = "completed" if part.status == "ok" else "failed"
            if text is not None:
                out["output"] = text
        case "tool_search_output":
            out["execution"] = "client"
            changes = [one for one in message.parts if isinstance(one, ToolChange)]
            if part.content is not None or changes:
                tools = [tool for change in changes for tool in change.add]
                out["tools"] = [encode_tool(tool, placed.trail, plan) for tool in tools]
        case "mcp_approval_response":
            if not plan.home or _APPROVED in part.form:
                out["approve"] = part.status == "ok"
            if text is not None and _NO_REASON not in part.form and (plan.home or part.status != "ok"):
                out["reason"] = text
        case _:
            if text is not None:
                marked = part.status != "ok" and not plan.home
                out["output"] = ERROR_MARK + text if marked else text


def _text(part: ToolResult) -> str | None:
    if part.content is None:
        return None
    texts = [
        one.text if isinstance(one, Text) else summary(one) for one in part.content if isinstance(one, Text | Media)
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
    return restore(out, media, FAMILY)


def _encode_shell(part: ToolResult, text: str) -> Any:
    for one in part.content or ():
        for token in one.form:
            if token.startswith(_WHOLE):
                raw = Raw(token[len(_WHOLE) :].encode())
                if _said(raw) == text:
                    return raw
    exit_code = 0 if part.status == "ok" else 1
    return [{"stdout": text, "stderr": "", "outcome": {"type": "exit", "exit_code": exit_code}}]
