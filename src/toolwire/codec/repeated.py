"""What comes again and again: an agent declares the same tools in every turn, which are decoded and written once."""

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool, Tool

from .plan import Plan
from .tools import ToolPlan

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

LIMIT_BYTES = 2 * 1024 * 1024
LIMIT_ONE = 256 * 1024


class Repeated(Generic[K, V]):
    """The values that were made lately, by what they were made of. When there are too many it starts anew."""

    def __init__(self) -> None:
        self._values: dict[K, V] = {}
        self._room = LIMIT_BYTES
        self.get = self._values.get

    def keep(self, key: K, value: V, size: int) -> None:
        """The value must not hold on to more than `size` bytes, or nearly so."""
        if size > LIMIT_ONE:
            return
        if size > self._room:
            self._values.clear()
            self._room = LIMIT_BYTES
        self._room -= size
        self._values[key] = value


class _Written(Struct):
    """Tools as they were written, and what was planned for them. While it has the tools, no others have their ids."""

    tools: tuple[Tool, ...]
    body: Raw
    planned: ToolPlan


class WrittenTools:
    """The declarations of a target, by the tools that they declare."""

    def __init__(self) -> None:
        self._written: Repeated[tuple[int | str, ...], _Written] = Repeated()

    def write(self, request: Request, plan: Plan, write: Callable[[], Any]) -> Any:
        """What `write` gives, if it was not written before. What has anything to be reported is written each time."""
        tools = request.tools
        if not tools or plan.report or not plan.tools.is_new or plan.loaded(request):
            return write()
        key: tuple[int | str, ...] = (plan.target.host.name, *map(id, tools))
        if (known := self._written.get(key)) is not None:
            plan.tools = known.planned.copy()
            return known.body
        body = write()
        if not plan.report and all(type(tool) is FunctionTool for tool in tools):
            raw = Raw(msgspec.json.encode(body))
            self._written.keep(key, _Written(tools, raw, plan.tools.copy()), 2 * len(bytes(raw)))
        return body
