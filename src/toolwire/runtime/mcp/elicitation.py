"""MCP elicitation in both directions: questions of servers to our user, and our questions to an MCP client's user.

Only the user answers. Prompts name the server that asks, and contain no terminal control characters.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable
from urllib.parse import urlsplit

import mcp_types as types

from toolwire.runtime.calls.approval import ApprovalAnswer, ApprovalRequest, Approver, NoApprover
from toolwire.runtime.mcp import limits

FieldValue: TypeAlias = str | int | float | bool | list[str] | None
_MAX_ATTEMPTS = 3
_ACCEPT, _DECLINE = "accept", "decline"


@runtime_checkable
class FormFiller(Protocol):
    """An approver that can present a complete form."""

    async def fill(self, message: str, schema: Mapping[str, Any], key: str = "form") -> Mapping[str, Any] | None:
        """Present a form and return its values; None if the user does not submit it. `key` identifies the question."""
        ...


async def elicit(approver: Approver, server: str, params: types.ElicitRequestParams) -> types.ElicitResult:
    """Ask the user a server's question: as a form, field by field, or as a URL to visit."""
    if isinstance(approver, NoApprover):
        return types.ElicitResult(action="decline")
    message = f"MCP server {server!r} asks: {limits.sanitize_text(params.message, limits.MAX_QUESTION_LENGTH)}"
    if isinstance(params, types.ElicitRequestURLParams):
        return await _request_url_visit(approver, message, params.url)
    schema = params.requested_schema
    fields = schema.get("properties")
    fields = fields if isinstance(fields, dict) else {}
    if len(fields) > limits.MAX_QUESTIONS:
        return types.ElicitResult(action="decline")
    if isinstance(approver, FormFiller):
        values = await approver.fill(message, schema)
        return types.ElicitResult(action="cancel") if values is None else _accept_result(dict(values))
    return await _request_fields(approver, message, fields, set(schema.get("required") or ()))


def _accept_result(content: dict[str, FieldValue]) -> types.ElicitResult:
    """Build the answer of a user who submitted the form with these values."""
    return types.ElicitResult(action="accept", content=content)


async def _request_url_visit(approver: Approver, message: str, url: str) -> types.ElicitResult:
    """Show a URL for the user to visit; toolwire itself never fetches it."""
    try:
        parts = urlsplit(url)
    except ValueError:  # brackets that are no IPv6 address
        return types.ElicitResult(action="decline")
    if parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        return types.ElicitResult(action="decline")
    visible_url = limits.sanitize_text(url, limits.MAX_QUESTION_LENGTH)
    answer = await approver.answer(
        f"{message}\nIt asks you to open {visible_url} (host: {parts.hostname})", (_ACCEPT, _DECLINE)
    )
    if answer == _ACCEPT:
        return types.ElicitResult(action="accept")
    return types.ElicitResult(action="cancel" if answer is None else "decline")


async def _request_fields(
    approver: Approver, message: str, fields: Mapping[str, Any], required: set[str]
) -> types.ElicitResult:
    """Ask for the fields of a form one by one, with a few attempts for each, and return the submitted form."""
    if not fields:
        answer = await approver.answer(message, (_ACCEPT, _DECLINE))
        return _accept_result({}) if answer == _ACCEPT else types.ElicitResult(action="decline" if answer else "cancel")
    content: dict[str, FieldValue] = {}
    for name, raw in fields.items():
        field = raw if isinstance(raw, dict) else {}
        for _ in range(_MAX_ATTEMPTS):
            answer = await approver.answer(
                _field_question(message, name, field, required=name in required), _prompt_choices(field)
            )
            if answer is None:
                return types.ElicitResult(action="cancel")
            if answer == "" and ("default" in field or name not in required):
                if "default" in field:
                    content[name] = field["default"]
                break
            try:
                content[name] = _parse_answer(field, answer)
                break
            except ValueError:
                continue
        else:
            return types.ElicitResult(action="decline")
    return _accept_result(content)


def _field_question(message: str, name: str, field: Mapping[str, Any], *, required: bool) -> str:
    """Build the prompt for one field: the message, then label, description and default."""
    label = limits.sanitize_text(str(field.get("title") or name), 200)
    description = limits.sanitize_text(str(field.get("description") or ""), 500)
    suffix = "" if required else " (optional)"
    if "default" in field:
        suffix = f" [{limits.sanitize_text(str(field['default']), 200)}]"
    return f"{message}\n{label}{': ' + description if description else ''}{suffix}"


def _allowed_values(field: Mapping[str, Any]) -> list[str]:
    """Return the values of an enumeration; empty if the field takes any."""
    for options in (field.get("oneOf"), field.get("anyOf")):
        if isinstance(options, list):
            return [str(option["const"]) for option in options if isinstance(option, dict) and "const" in option]
    return [str(value) for value in field.get("enum") or ()]


def _prompt_choices(field: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the choices to prompt with; empty for free text and for multiple choice."""
    if field.get("type") == "boolean":
        return ("true", "false")
    if field.get("type") == "array":  # the user writes several values, separated by commas
        return ()
    return tuple(limits.sanitize_text(value, 200) for value in _allowed_values(field)[:100])


def _parse_answer(field: Mapping[str, Any], answer: str) -> FieldValue:
    """Convert an answer to the type of the field; raise `ValueError` if it does not fit."""
    match field.get("type"):
        case "boolean":
            return {"true": True, "yes": True, "false": False, "no": False}[_require_option(answer.lower(), _BOOLEANS)]
        case "integer":
            return _require_in_range(field, int(answer))
        case "number":
            return _require_in_range(field, float(answer))
        case "array":
            items = field.get("items")
            options = _allowed_values(items if isinstance(items, dict) else {})
            return [_require_option(item.strip(), options) for item in answer.split(",") if item.strip()]
        case _:
            if not field.get("minLength", 0) <= len(answer) <= field.get("maxLength", len(answer)):
                raise ValueError(answer)
            return _require_option(answer, options) if (options := _allowed_values(field)) else answer


_BOOLEANS = ["true", "yes", "false", "no"]


def _require_option(answer: str, options: list[str]) -> str:
    """Return the answer if it is one of the options; raise `ValueError` if not."""
    if answer not in options:
        raise ValueError(answer)
    return answer


def _require_in_range(field: Mapping[str, Any], number: float) -> float:
    """Return the number if it is within the field's bounds; raise `ValueError` if not."""
    if not field.get("minimum", number) <= number <= field.get("maximum", number):
        raise ValueError(number)
    return number


FormSender: TypeAlias = Callable[[str, types.ElicitRequestFormParams], Awaitable[types.ElicitResult]]
"""Sends a form to the client's user; the first argument is unique among the questions of one call."""


class ElicitationApprover:
    """Asks the user of an MCP client, with elicitation forms."""

    name = "the client's user"

    def __init__(self, send_form: FormSender) -> None:
        self._send_form = send_form
        self._question_count = 0

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Ask for approval, with the complete arguments: a form can't expand shortened ones."""
        preview = f"\n{request.preview}" if request.preview else ""
        message = f"Allow {request.tool} with {request.arguments}? ({request.reason}){preview}"
        return "yes" if await self.answer(message, ("yes", "no")) == "yes" else "no"

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        """Ask a question with a form of one field; None if the user does not submit it."""
        field: dict[str, Any] = {"type": "string", **({"enum": list(choices)} if choices else {})}
        schema = {"type": "object", "properties": {"answer": field}, "required": ["answer"]}
        self._question_count += 1
        values = await self.fill(question, schema, f"question_{self._question_count}")
        answer = None if values is None else values.get("answer")
        return answer if isinstance(answer, str) and (not choices or answer in choices) else None

    async def fill(self, message: str, schema: Mapping[str, Any], key: str = "form") -> Mapping[str, Any] | None:
        """Present a form in the client, and return its values; None if the user does not submit it."""
        params = types.ElicitRequestFormParams(message=message, requested_schema=dict(schema))
        result = await self._send_form(key, params)
        return (result.content or {}) if result.action == "accept" else None
