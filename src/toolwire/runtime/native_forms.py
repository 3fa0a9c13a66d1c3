"""Vendors' own forms of built-in tools: the shell and patches, declared in the form that a model was trained on.

A form replaces the declaration of a tool. Its calls become calls of the tool before they are validated, so that policy,
approvals and records are the same in every form.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.content import ToolCall
from toolwire.canonical.tools import NativeTool
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


@runtime_checkable
class SupportsClientTools(Protocol):
    """A model that knows its vendor's own client-run tools."""

    def knows_client_tool(self, tool: NativeTool) -> bool:
        """Return whether the model and its host take the tool as its vendor declares it."""
        ...


class TurnForms(Struct, frozen=True):
    """The vendor's forms in use in one turn."""

    forms: Mapping[str, tuple[NativeForm, Tool]]
    """Each form and the tool that it stands for, by the name of its calls."""

    def adapt_call(self, call: ToolCall) -> ToolCall:
        """Return the call of our tool that a call of a vendor's tool stands for; other calls stay as they are.

        Arguments that don't fit stay too, and are rejected with the schema of our tool.
        """
        found = self.forms.get(call.name)
        if found is None or (found[0].call_kind is not None and call.native != found[0].call_kind):
            return call
        form, tool = found
        try:
            arguments = form.read_arguments(json.loads(call.arguments or "{}"))
        except (KeyError, TypeError, ValueError, RecursionError):
            return replace(call, name=tool.name)
        if tool.grammar is not None:
            return replace(call, name=tool.name, arguments=arguments, shape="freeform")
        return replace(call, name=tool.name, arguments=json.dumps(arguments, ensure_ascii=False))

    @property
    def notes(self) -> str:
        """Instructions for the model on the tools, for the system text."""
        return "\n".join(f"{name}: {tool.description} {form.note}".strip() for name, (form, tool) in self.forms.items())


NO_FORMS = TurnForms({})


def choose_forms(model: object, catalog: ToolCatalog) -> tuple[ToolCatalog, TurnForms]:
    """Return the tools with the vendor's declarations that the model knows, and the forms of these."""
    if not isinstance(model, SupportsClientTools):
        return catalog, NO_FORMS
    tools, forms = dict(catalog.tools), dict[str, tuple[NativeForm, Tool]]()
    for name, tool in catalog.tools.items():
        for form in tool.native_forms:
            is_free = form.call_name == name or form.call_name not in catalog.tools
            if is_free and form.call_name not in forms and model.knows_client_tool(form.declaration):
                tools[name] = replace(tool, native=form.declaration)
                forms[form.call_name] = (form, tool)
                break
    return replace(catalog, tools=tools), TurnForms(forms)


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
