"""The built-in tools."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolwire.runtime.tools.builtin import built_in_tools

__all__ = ["built_in_tools"]


def __getattr__(name: str) -> Any:
    """Import `built_in_tools` on first use, because its dependencies are optional."""
    if name != "built_in_tools":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from toolwire.runtime.tools.builtin import built_in_tools  # noqa: PLC0415 - as above

    return built_in_tools
