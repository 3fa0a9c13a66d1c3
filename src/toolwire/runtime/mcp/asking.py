"""A server wants to know something of a person: its form, asked field by field, or handed on whole.

Nothing is answered by itself. What a person is shown says who asks, and has no signs that a terminal would obey.
"""

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable
from urllib.parse import urlsplit

import mcp_types as types

from toolwire.runtime.approval import Nobody, Person

from . import bounds

Value: TypeAlias = str | int | float | bool | list[str] | None
_TRIES = 3
_YES, _NO = "accept", "decline"


@runtime_checkable
class Filling(Protocol):
    """Who can be given a form as it is: `key` names the question. None if there is no answer."""

    async def fill(self, message: str, schema: Mapping[str, Any], key: str = "form") -> Mapping[str, Any] | None: ...


async def elicit(person: Person, server: str, params: types.ElicitRequestParams) -> types.ElicitResult:
    if isinstance(person, Nobody):
        return types.ElicitResult(action="decline")
    said = f"The MCP server {server} asks: {bounds.readable(params.message, bounds.QUESTION)}"
    if isinstance(params, types.ElicitRequestURLParams):
        return await _visit(person, said, params.url)
    schema = params.requested_schema
    fields = schema.get("properties")
    fields = fields if isinstance(fields, dict) else {}
    if len(fields) > bounds.QUESTIONS:
        return types.ElicitResult(action="decline")
    if isinstance(person, Filling):
        filled = await person.fill(said, schema)
        return types.ElicitResult(action="cancel") if filled is None else _accepted(dict(filled))
    return await _fields(person, said, fields, set(schema.get("required") or ()))


def _accepted(content: dict[str, Value]) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content=content)


async def _visit(person: Person, said: str, url: str) -> types.ElicitResult:
    """The address is told and never fetched: what happens there is between the person and the server."""
    parts = urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        return types.ElicitResult(action="decline")
    shown = bounds.readable(url, bounds.QUESTION)
    answer = await person.answer(f"{said}\nIt wants you to open {shown} (at {parts.hostname})", (_YES, _NO))
    if answer == _YES:
        return types.ElicitResult(action="accept")
    return types.ElicitResult(action="cancel" if answer is None else "decline")


async def _fields(person: Person, said: str, fields: Mapping[str, Any], required: set[str]) -> types.ElicitResult:
    if not fields:
        answer = await person.answer(said, (_YES, _NO))
        return _accepted({}) if answer == _YES else types.ElicitResult(action="decline" if answer else "cancel")
    content: dict[str, Value] = {}
    for name, raw in fields.items():
        field = raw if isinstance(raw, dict) else {}
        for _ in range(_TRIES):
            answer = await person.answer(_question(said, name, field, wanted=name in required), _choices(field))
            if answer is None:
                return types.ElicitResult(action="cancel")
            if answer == "" and ("default" in field or name not in required):
                if "default" in field:
                    content[name] = field["default"]
                break
            try:
                content[name] = _value(field, answer)
                break
            except ValueError:
                continue
        else:
            return types.ElicitResult(action="decline")
    return _accepted(content)


def _question(said: str, name: str, field: Mapping[str, Any], *, wanted: bool) -> str:
    label = bounds.readable(str(field.get("title") or name), 200)
    about = bounds.readable(str(field.get("description") or ""), 500)
    usual = (
        f" [{bounds.readable(str(field['default']), 200)}]" if "default" in field else "" if wanted else " (optional)"
    )
    return f"{said}\n{label}{': ' + about if about else ''}{usual}"


def _options(field: Mapping[str, Any]) -> list[str]:
    for listed in (field.get("oneOf"), field.get("anyOf")):
        if isinstance(listed, list):
            return [str(one["const"]) for one in listed if isinstance(one, dict) and "const" in one]
    return [str(one) for one in field.get("enum") or ()]


def _choices(field: Mapping[str, Any]) -> tuple[str, ...]:
    if field.get("type") == "boolean":
        return ("true", "false")
    # Of several, a person writes some, with commas between.
    return () if field.get("type") == "array" else tuple(bounds.readable(one, 200) for one in _options(field)[:100])


def _value(field: Mapping[str, Any], answer: str) -> Value:
    match field.get("type"):
        case "boolean":
            return {"true": True, "yes": True, "false": False, "no": False}[_one_of(answer.lower(), _BOOLEANS)]
        case "integer":
            return _within(field, int(answer))
        case "number":
            return _within(field, float(answer))
        case "array":
            items = field.get("items")
            options = _options(items if isinstance(items, dict) else {})
            return [_one_of(one.strip(), options) for one in answer.split(",") if one.strip()]
        case _:
            if not field.get("minLength", 0) <= len(answer) <= field.get("maxLength", len(answer)):
                raise ValueError(answer)
            return _one_of(answer, options) if (options := _options(field)) else answer


_BOOLEANS = ["true", "yes", "false", "no"]


def _one_of(answer: str, options: list[str]) -> str:
    if answer not in options:
        raise ValueError(answer)
    return answer


def _within(field: Mapping[str, Any], number: float) -> float:
    if not field.get("minimum", number) <= number <= field.get("maximum", number):
        raise ValueError(number)
    return number
