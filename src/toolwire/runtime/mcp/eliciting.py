"""The person at the other end of an MCP client, asked with its own forms."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import mcp_types as types

from toolwire.runtime.approval import Answer, Ask

Form: TypeAlias = Callable[[str, types.ElicitRequestFormParams], Awaitable[types.ElicitResult]]
"""Puts a form before the client's user; the text names the question among those of one call."""


class Eliciting:
    name = "the client's user"

    def __init__(self, form: Form) -> None:
        self._form = form
        self._asked = 0

    async def approve(self, ask: Ask) -> Answer:
        """Ask with the complete call: a form has no way to show the rest of a shortened one."""
        shown = f"\n{ask.preview}" if ask.preview else ""
        message = f"Allow {ask.tool} with {ask.arguments}? ({ask.why}){shown}"
        return "yes" if await self.answer(message, ("yes", "no")) == "yes" else "no"

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        field: dict[str, Any] = {"type": "string", **({"enum": list(choices)} if choices else {})}
        schema = {"type": "object", "properties": {"answer": field}, "required": ["answer"]}
        self._asked += 1
        filled = await self.fill(question, schema, f"question_{self._asked}")
        answer = None if filled is None else filled.get("answer")
        return answer if isinstance(answer, str) and (not choices or answer in choices) else None

    async def fill(self, message: str, schema: Mapping[str, Any], key: str = "form") -> Mapping[str, Any] | None:
        params = types.ElicitRequestFormParams(message=message, requested_schema=dict(schema))
        result = await self._form(key, params)
        return (result.content or {}) if result.action == "accept" else None
