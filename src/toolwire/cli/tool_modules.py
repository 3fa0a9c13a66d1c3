"""The tools that a Python file defines, for `toolwire mcp serve --module`."""

import contextlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from toolwire.cli.inputs import BadInput

if TYPE_CHECKING:
    from toolwire.runtime.tool import ToolSource


def load_tools(path: Path) -> "list[ToolSource]":
    """Run a Python file, and return its public `@tool` functions, `Tool` objects, agents and toolsets in order.

    Raises `BadInput` if the file fails or has none.
    """
    from toolwire.runtime.function_tool import is_tool_function
    from toolwire.runtime.tool import Tool, Toolset

    name = f"toolwire_module_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadInput(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # types of a module are resolved by its name
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        # Over stdio, stdout belongs to the protocol.
        with contextlib.redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except Exception as error:
        raise BadInput(f"{path}: {type(error).__name__}: {error}") from error
    found = {
        id(value): value
        for key, value in vars(module).items()
        if not key.startswith("_")
        and not isinstance(value, type)
        and (isinstance(value, Tool | Toolset) or hasattr(value, "as_tool") or is_tool_function(value))
    }
    if not found:
        raise BadInput(f"{path}: no tools: mark functions with @toolwire.tool")
    return list(found.values())
