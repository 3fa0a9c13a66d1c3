"""Extras that one answer after the other has: what was found out about them is kept with them."""

from typing import Any

from msgspec import Raw

from toolwire.canonical.node import Extras, Node
from toolwire.canonical.response import Response, Usage


class SharedExtras(dict[str, dict[str, Raw]]):
    """The extras of answers that a server tells alike: these of the answer itself, always the same ones of its usage,
    and no others. As all extras are, they are only read.

    `found`: what they come to, by who asked and what for.
    """

    def __init__(self, extras: Extras, form: tuple[str, ...], usage: Usage) -> None:
        super().__init__(extras)
        self._form = form
        self._usage_extras, self._usage_form = usage.extras, usage.form
        self.found: dict[Any, Any] = {}

    def are_all_of(self, root: Node) -> bool:
        """Whether the answer still is as it was read, but for its words."""
        if type(root) is not Response or root.form is not self._form or (usage := root.usage) is None:
            return False
        if usage.extras is not self._usage_extras or usage.form is not self._usage_form:
            return False
        for candidate in root.candidates:
            if not candidate.plain:
                return False
        return root.error is None and root.continuation is None
