"""toolwire lets any agent use any model: tool calling in every vendor's protocol, with nothing lost silently."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .agent import Agent
    from .canonical.errors import DecodeError, LossRefused, ToolwireError
    from .canonical.loss import Loss
    from .cycle import (
        check,
        continue_request,
        format_tool_result,
        format_tool_results,
        format_tools,
        parse_tool_calls,
    )
    from .runtime.caps import Caps
    from .runtime.functions import tool
    from .runtime.policy import Policy
    from .runtime.run import RunFailed
    from .runtime.tools.browser.toolset import Browser
    from .runtime.toolset import Calling, ToolFault
    from .translation import Encoded, translate, translate_stream

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "Browser",
    "Calling",
    "Caps",
    "DecodeError",
    "Encoded",
    "Loss",
    "LossRefused",
    "Policy",
    "RunFailed",
    "ToolFault",
    "ToolwireError",
    "check",
    "continue_request",
    "format_tool_result",
    "format_tool_results",
    "format_tools",
    "parse_tool_calls",
    "tool",
    "translate",
    "translate_stream",
]

_HOMES = {
    "Agent": "agent",
    "Browser": "runtime.tools.browser.toolset",
    "Calling": "runtime.toolset",
    "Caps": "runtime.caps",
    "Policy": "runtime.policy",
    "RunFailed": "runtime.run",
    "ToolFault": "runtime.toolset",
    "tool": "runtime.functions",
    "DecodeError": "canonical.errors",
    "LossRefused": "canonical.errors",
    "ToolwireError": "canonical.errors",
    "Loss": "canonical.loss",
    "Encoded": "translation",
    "translate": "translation",
    "translate_stream": "translation",
    "check": "cycle",
    "continue_request": "cycle",
    "format_tool_result": "cycle",
    "format_tool_results": "cycle",
    "format_tools": "cycle",
    "parse_tool_calls": "cycle",
}


def __getattr__(name: str) -> Any:
    """Public names load their module when they are first used, so that importing toolwire costs nothing."""
    if (home := _HOMES.get(name)) is None:
        raise AttributeError(f"module 'toolwire' has no attribute {name!r}")
    return getattr(import_module(f"toolwire.{home}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
