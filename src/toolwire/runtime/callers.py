"""Who may call a tool: the model itself, or a program that it wrote. It is no guard: what is called is validated and
decided on, whoever calls."""

from .toolset import Tool

DIRECT = "direct"


def takes_direct_calls(tool: Tool) -> bool:
    return tool.allowed_callers is None or DIRECT in tool.allowed_callers


def takes_calls_of_programs(tool: Tool) -> bool:
    """Each vendor has its own word for its programs: all but the model itself are meant."""
    return tool.allowed_callers is None or any(caller != DIRECT for caller in tool.allowed_callers)
