"""Vendors' own tools that the client runs (shell, editor, memory, patch), declared as functions at other targets.

Their parameters are public. Anthropic's calls of them are calls of functions anyway; OpenAI has a call type for each,
to which the calls of the response are mapped back.
"""

from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from toolwire.canonical.tools import FunctionTool, NativeTool, Tool
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.wire.reader import decode_json, decode_members

TOOL_SEARCH = "tool_search"


class _FunctionForm(NamedTuple):
    """The function that stands for a tool: its description and parameters."""

    description: str
    parameters: Raw


def _schema(required: str, **properties: Any) -> Raw:
    """Return the schema of an object; `required` are names separated by spaces."""
    schema = {"type": "object", "properties": properties} | ({"required": required.split()} if required else {})
    return Raw(msgspec.json.encode(schema))


def _text(description: str, *words: str) -> dict[str, Any]:
    """Return the schema of a string, limited to `words` if there are any."""
    return {"type": "string", "description": description} | ({"enum": words} if words else {})


def _integer(description: str) -> dict[str, Any]:
    """Return the schema of an integer."""
    return {"type": "integer", "description": description}


def _array(kind: str, description: str) -> dict[str, Any]:
    """Return the schema of an array of elements of one type."""
    return {"type": "array", "items": {"type": kind}, "description": description}


_EDITS: dict[str, Any] = {
    "path": _text("Path of the file or directory."),
    "view_range": _array("integer", "For view: first and last line, counted from 1; -1 is the end of the file."),
    "file_text": _text("For create: the content of the file."),
    "old_str": _text("For str_replace: the text to replace, which must occur exactly once."),
    "new_str": _text("For str_replace: the replacement."),
    "insert_line": _integer("For insert: the line after which to insert; 0 is the start of the file."),
    "insert_text": _text("For insert: the text to insert."),
}
_EDITOR = _schema("command path", command=_text("The operation.", "view", "create", "str_replace", "insert"), **_EDITS)
_MEMORY = _schema(
    "command",
    command=_text("The operation.", "view", "create", "str_replace", "insert", "delete", "rename"),
    **_EDITS,
    old_path=_text("For rename: the present path."),
    new_path=_text("For rename: the new path."),
)
_BASH = _schema(
    "",
    command=_text("The command to run; required unless restart is true."),
    restart={"type": "boolean", "description": "Restart the shell."},
)
_SHELL = _schema(
    "commands",
    commands=_array("string", "Commands to run, each in a shell of its own."),
    timeout_ms=_integer("Time limit in milliseconds."),
    max_output_length=_integer("Limit of the output in characters."),
)
_LOCAL_SHELL = _schema(
    "type command env",
    type=_text("The kind of action.", "exec"),
    command=_array("string", "The program and its arguments."),
    env={"type": "object", "properties": {}, "description": "Environment variables to set; may be empty."},
    timeout_ms=_integer("Time limit in milliseconds."),
    working_directory=_text("The directory to run in."),
)
_PATCH = _schema(
    "type path",
    type=_text("The operation.", "create_file", "update_file", "delete_file"),
    path=_text("Path of the file."),
    diff=_text("For create_file and update_file: the change in V4A diff format, without file headers."),
)

_FUNCTION_FORMS: dict[tuple[str, str], _FunctionForm] = {
    ("anthropic", "bash"): _FunctionForm("Run a command in a persistent bash session.", _BASH),
    ("anthropic", "text_editor"): _FunctionForm("View, create and edit text files.", _EDITOR),
    ("anthropic", "memory"): _FunctionForm("Read and change the files below /memories, which persist.", _MEMORY),
    ("openai-responses", "shell"): _FunctionForm("Run shell commands.", _SHELL),
    ("openai-responses", "local_shell"): _FunctionForm("Run a program on the user's machine.", _LOCAL_SHELL),
    ("openai-responses", "apply_patch"): _FunctionForm("Create, update or delete a file.", _PATCH),
}
"""Functions by protocol and kind of the tool."""


def function_form(tool: NativeTool) -> FunctionTool | None:
    """Return a vendor's client-run shell, editor, memory or patch tool in the form of a function; None for others."""
    if (form := _FUNCTION_FORMS.get((tool.protocol, tool.kind))) is None:
        return None
    return FunctionTool(
        name=tool.name or tool.kind, description=form.description, parameters=form.parameters, cache=tool.cache
    )


def client_function(tool: Tool, index: int, plan: EncodingPlan) -> FunctionTool | None:
    """Return the function that stands for a vendor's own tool at another target; None for tools without one."""
    if not isinstance(tool, NativeTool) or tool.executor != "client":
        return None
    function = _tool_search_function(tool) if tool.kind == TOOL_SEARCH else function_form(tool)
    if function is None:
        return None
    plan.report.approximated(("tools", index), "", f"declared as the function {function.name}, run by the client")
    if tool.protocol == "openai-responses":
        plan.tools.map_to_native_call(function.name, f"{tool.kind}_call")
    return function


def _tool_search_function(tool: NativeTool) -> FunctionTool:
    """Return a function in place of OpenAI's client-side `tool_search`, since tools that it finds need a call."""
    members = decode_members(tool.body)
    description = decode_json(members.get("description", b"null"))
    return FunctionTool(
        name=TOOL_SEARCH,
        description=description if isinstance(description, str) else None,
        parameters=members.get("parameters"),
    )
