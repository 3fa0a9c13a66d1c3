"""A server wants to know something of a person: its form, asked field by field, or handed on whole.

Nothing is answered by itself. What a person is shown says who asks, and has no signs that a terminal would obey.

The person at the other end of an MCP client, asked with its own forms.
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
    """Who can be given a form as it is: `key` names the question. None if there is no answer."""

    async def fill(self, message: str, schema: Mapping[str, Any], key: str = "form") -> Mapping[str, Any] | None: ...


async def elicit(approver: Approver, server: str, params: types.ElicitRequestParams) -> types.ElicitResult:
    if isinstance(approver, NoApprover):
        return types.ElicitResult(action="decline")
    said = f"The MCP server {server} asks: {limits.sanitize_text(params.message, limits.MAX_QUESTION_LENGTH)}"
    if isinstance(params, types.ElicitRequestURLParams):
        return await _request_url_visit(approver, said, params.url)
    schema = params.requested_schema
    fields = schema.get("properties")
    fields = fields if isinstance(fields, dict) else {}
    if len(fields) > limits.MAX_QUESTIONS:
        return types.ElicitResult(action="decline")
    if isinstance(approver, FormFiller):
        filled = await approver.fill(said, schema)
        return types.ElicitResult(action="cancel") if filled is None else _accept_result(dict(filled))
    return await _request_fields(approver, said, fields, set(schema.get("required") or ()))


def _accept_result(content: dict[str, FieldValue]) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content=content)


async def _request_url_visit(approver: Approver, message: str, url: str) -> types.ElicitResult:
    """The address is told and never fetched: what happens there is between the person and the server."""
    try:
        parts = urlsplit(url)
    except ValueError:  # brackets that are no IPv6 address
        return types.ElicitResult(action="decline")
    if parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        return types.ElicitResult(action="decline")
    shown = limits.sanitize_text(url, limits.MAX_QUESTION_LENGTH)
    answer = await approver.answer(
        f"{message}\nIt wants you to open {shown} (at {parts.hostname})", (_ACCEPT, _DECLINE)
    )
    if answer == _ACCEPT:
        return types.ElicitResult(action="accept")
    return types.ElicitResult(action="cancel" if answer is None else "decline")


async def _request_fields(
    approver: Approver, message: str, fields: Mapping[str, Any], required: set[str]
) -> types.ElicitResult:
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
    label = limits.sanitize_text(str(field.get("title") or name), 200)
    about = limits.sanitize_text(str(field.get("description") or ""), 500)
    usual = (
        f" [{limits.sanitize_text(str(field['default']), 200)}]"
        if "default" in field
        else ""
        if required
        else " (optional)"
    )
    return f"{message}\n{label}{': ' + about if about else ''}{usual}"


def _allowed_values(field: Mapping[str, Any]) -> list[str]:
    for listed in (field.get("oneOf"), field.get("anyOf")):
        if isinstance(listed, list):
            return [str(one["const"]) for one in listed if isinstance(one, dict) and "const" in one]
    return [str(one) for one in field.get("enum") or ()]


def _prompt_choices(field: Mapping[str, Any]) -> tuple[str, ...]:
    if field.get("type") == "boolean":
        return ("true", "false")
    # Of several, a person writes some, with commas between.
    return (
        ()
        if field.get("type") == "array"
        else tuple(limits.sanitize_text(one, 200) for one in _allowed_values(field)[:100])
    )


def _parse_answer(field: Mapping[str, Any], answer: str) -> FieldValue:
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
            return [_require_option(one.strip(), options) for one in answer.split(",") if one.strip()]
        case _:
            if not field.get("minLength", 0) <= len(answer) <= field.get("maxLength", len(answer)):
                raise ValueError(answer)
            return _require_option(answer, options) if (options := _allowed_values(field)) else answer


_BOOLEANS = ["true", "yes", "false", "no"]


def _require_option(answer: str, options: list[str]) -> str:
    if answer not in options:
        raise ValueError(answer)
    return answer


def _require_in_range(field: Mapping[str, Any], number: float) -> float:
    if not field.get("minimum", number) <= number <= field.get("maximum", number):
        raise ValueError(number)
    return number


FormSender: TypeAlias = Callable[[str, types.ElicitRequestFormParams], Awaitable[types.ElicitResult]]
"""Puts a form before the client's user; the text names the question among those of one call."""


class ElicitationApprover:
    name = "the client's user"

    def __init__(self, send_form: FormSender) -> None:
        self._send_form = send_form
        self._question_count = 0

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Ask with the complete call: a form has no way to show the rest of a shortened one."""
        shown = f"\n{request.preview}" if request.preview else ""
        message = f"Allow {request.tool} with {request.arguments}? ({request.reason}){shown}"
        return "yes" if await self.answer(message, ("yes", "no")) == "yes" else "no"

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        field: dict[str, Any] = {"type": "string", **({"enum": list(choices)} if choices else {})}
        schema = {"type": "object", "properties": {"answer": field}, "required": ["answer"]}
        self._question_count += 1
        filled = await self.fill(question, schema, f"question_{self._question_count}")
        answer = None if filled is None else filled.get("answer")
        return answer if isinstance(answer, str) and (not choices or answer in choices) else None

    async def fill(self, message: str, schema: Mapping[str, Any], key: str = "form") -> Mapping[str, Any] | None:
        params = types.ElicitRequestFormParams(message=message, requested_schema=dict(schema))
        result = await self._send_form(key, params)
        return (result.content or {}) if result.action == "accept" else None
