"""Vendors' own forms of built-in tools: shell, files and patches, declared in the form that a model was trained on.

A form replaces the declaration of a tool, or of several: Anthropic's text editor has commands for three of ours. Its
calls become calls of these tools before they are validated, so that policy, approvals and records are the same in
every form.
"""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.content import ToolCall
from toolwire.canonical.tools import NativeTool
from toolwire.runtime.policy import Policy, is_denied
from toolwire.runtime.tool import Tool, ToolCatalog


class NativeForm(Struct, frozen=True):
    """A vendor's tool in place of one of ours."""

    declaration: NativeTool
    call_name: str
    """Name of its calls."""
    call_kind: str | None
    """The vendor's type of its calls; None for tool calls like any other."""
    read_arguments: Callable[[Any], Any]
    """Converts the arguments of a call; raises `KeyError`, `TypeError` or `ValueError` for those that don't fit."""
    note: str = ""
    """Instructions for the model on the tool, which a vendor's tool can't describe."""
    commands: frozenset[str] = frozenset()
    """Values of the argument `command` that select our tool; empty if all calls are for it."""
    all_commands: frozenset[str] = frozenset()
    """All commands of the vendor's tool. It is declared only if the agent has tools for all of them."""


@runtime_checkable
class SupportsClientTools(Protocol):
    """A model that knows its vendor's own client-run tools."""

    def knows_client_tool(self, tool: NativeTool) -> bool:
        """Return whether the model and its host take the tool as its vendor declares it."""
        ...


class TurnForms(Struct, frozen=True):
    """The vendor's forms in use in one turn."""

    forms: Mapping[str, Sequence[tuple[NativeForm, Tool]]]
    """The forms, each with our tool that it replaces, by the name in the vendor's calls."""

    def adapt_call(self, call: ToolCall) -> ToolCall:
        """Return the call of our tool that a call of a vendor's tool stands for; other calls stay as they are.

        Arguments that don't fit stay too, and are rejected with the schema of our tool.
        """
        found = self.forms.get(call.name, ())
        if not found or (found[0][0].call_kind is not None and call.native != found[0][0].call_kind):
            return call
        form, tool = found[0]
        try:
            value = json.loads(call.arguments or "{}")
            form, tool = next(
                (form, tool) for form, tool in found if not form.commands or value["command"] in form.commands
            )
            arguments = form.read_arguments(value)
        except (KeyError, TypeError, ValueError, RecursionError, StopIteration):
            return replace(call, name=tool.name)
        if tool.grammar is not None:
            return replace(call, name=tool.name, arguments=arguments, shape="freeform")
        return replace(call, name=tool.name, arguments=json.dumps(arguments, ensure_ascii=False))

    @property
    def notes(self) -> str:
        """Instructions for the model on the tools, for the system text."""
        return "\n".join(
            f"{' '.join((name, *sorted(form.commands)))}: {tool.description} {form.note}".strip()
            for name, found in self.forms.items()
            for form, tool in found
        )


NO_FORMS = TurnForms({})


def choose_forms(model: object, catalog: ToolCatalog, policy: Policy) -> tuple[ToolCatalog, TurnForms]:
    """Return the tools with the vendor's declarations that the model knows, and the forms of these."""
    if not isinstance(model, SupportsClientTools):
        return catalog, NO_FORMS
    known = dict[str, list[tuple[NativeForm, Tool]]]()
    for name, tool in catalog.tools.items():
        for form in tool.native_forms if not is_denied(policy, tool) else ():
            is_free = form.call_name == name or form.call_name not in catalog.tools
            is_new = form.call_name not in known or bool(form.commands)
            if is_free and is_new and model.knows_client_tool(form.declaration):
                known.setdefault(form.call_name, []).append((form, tool))
                break
    forms = {name: found for name, found in known.items() if _covers_commands(found)}
    declared = {tool.name: replace(tool, native=form.declaration) for found in forms.values() for form, tool in found}
    return replace(catalog, tools={**catalog.tools, **declared}), TurnForms(forms)


def _covers_commands(found: Sequence[tuple[NativeForm, Tool]]) -> bool:
    """Return whether the tools together stand for all commands of the vendor's tool."""
    return frozenset[str]().union(*(form.commands for form, _ in found)) == found[0][0].all_commands


def _declare(protocol: str, kind: str, body: dict[str, Any]) -> NativeTool:
    """Return the declaration of a vendor's tool that the client runs."""
    raw = Raw(msgspec.json.encode(body))
    return NativeTool(protocol=protocol, kind=kind, name=body.get("name"), body=raw, executor="client")


# ---- shell

_NEW_SHELL = "Each call runs in a new shell: its directory and variables are gone afterward."


def _read_shell_action(action: Any) -> Any:
    """Convert the action of OpenAI's `shell`, which may have several commands."""
    commands = action["commands"]
    if not commands or not all(isinstance(command, str) for command in commands):
        raise ValueError(commands)
    return {"command": "\n".join(commands)}


def _read_exec_action(action: Any) -> Any:
    """Convert the action of OpenAI's older `local_shell`, a program with its arguments."""
    program = action["command"]
    if (
        action.get("user")
        or not isinstance(program, list)
        or not program
        or not all(isinstance(word, str) for word in program)
    ):
        raise ValueError(action)
    if len(program) == 3 and program[0] in ("bash", "sh") and program[1] in ("-c", "-lc"):
        command = program[2]  # so that policy rules match the commands themselves
    else:
        command = shlex.join(program)
    if environment := action.get("env"):
        assignments = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
        command = f"export {' '.join(assignments)}; {command}"
    directory = action.get("working_directory")
    return {"command": command} if directory is None else {"command": command, "directory": directory}


def _read_bash_input(value: Any) -> Any:
    """Convert the input of Anthropic's `bash`. A restart has nothing to do, since each shell is new."""
    return {"command": "true" if value.get("restart") and "command" not in value else value["command"]}


SHELL_FORMS = (
    NativeForm(
        _declare("openai-responses", "shell", {"type": "shell", "environment": {"type": "local"}}),
        "shell",
        "shell_call",
        _read_shell_action,
        _NEW_SHELL,
    ),
    NativeForm(
        _declare("openai-responses", "local_shell", {"type": "local_shell"}),
        "local_shell",
        "local_shell_call",
        _read_exec_action,
        _NEW_SHELL,
    ),
    NativeForm(
        _declare("anthropic", "bash", {"type": "bash_20250124", "name": "bash"}),
        "bash",
        None,
        _read_bash_input,
        _NEW_SHELL,
    ),
)

# ---- patches

_PATCH_HEADERS = {"create_file": "Add", "update_file": "Update", "delete_file": "Delete"}


def _read_patch_operation(operation: Any) -> Any:
    """Convert the operation of OpenAI's `apply_patch` to a patch in the format of the tool."""
    kind, path = operation["type"], operation["path"]
    if "\n" in path or "\r" in path:
        raise ValueError(path)
    diff = "" if kind == "delete_file" else operation["diff"].rstrip("\n") + "\n"
    return f"*** Begin Patch\n*** {_PATCH_HEADERS[kind]} File: {path}\n{diff}*** End Patch"


PATCH_FORMS = (
    NativeForm(
        _declare("openai-responses", "apply_patch", {"type": "apply_patch"}),
        "apply_patch",
        "apply_patch_call",
        _read_patch_operation,
    ),
)

# ---- files

# The commands and their input: platform.claude.com/docs/en/agents-and-tools/tool-use/text-editor-tool. `undo_edit` is
# gone since `text_editor_20250429`, and type and name are those of the SDK's `ToolTextEditor20250728Param`.
_EDITOR_NAME = "str_replace_based_edit_tool"
_EDITOR = _declare("anthropic", "text_editor", {"type": "text_editor_20250728", "name": _EDITOR_NAME})
_EDITOR_COMMANDS = frozenset({"view", "create", "str_replace", "insert"})


def _editor_form(read_arguments: Callable[[Any], Any], *commands: str, note: str = "") -> tuple[NativeForm, ...]:
    """Return the forms of one built-in tool: calls of Anthropic's text editor with these commands become its calls."""
    form = NativeForm(
        _EDITOR, _EDITOR_NAME, None, read_arguments, note, frozenset(commands), all_commands=_EDITOR_COMMANDS
    )
    return (form,)


def _read_view(value: Any) -> Any:
    """Convert a `view` of a file or directory; the last line -1 is the end of the file."""
    view: dict[str, Any] = {"absolute_path": value["path"], "line_numbers": True}
    if (lines := value.get("view_range")) is not None:
        first, last = lines
        if last != -1 and last < first:
            raise ValueError(lines)
        view |= {"offset": first - 1} | ({} if last == -1 else {"limit": last - first + 1})
    return view


def _read_create(value: Any) -> Any:
    """Convert a `create`."""
    return {"file_path": value["path"], "content": value["file_text"]}


def _read_edit(value: Any) -> Any:
    """Convert a `str_replace` or an `insert`, whose text older tools called `new_str`."""
    if value["command"] == "insert":
        text = value["insert_text"] if "insert_text" in value else value["new_str"]
        return {"file_path": value["path"], "old_string": "", "new_string": text, "after_line": value["insert_line"]}
    if not value["old_str"]:
        raise ValueError(value)
    return {"file_path": value["path"], "old_string": value["old_str"], "new_string": value.get("new_str", "")}


VIEW_FORMS = _editor_form(_read_view, "view", note="offset=N is view_range=[N + 1, -1].")
CREATE_FORMS = _editor_form(_read_create, "create")
EDIT_FORMS = _editor_form(_read_edit, "str_replace", "insert")
