"""Request types of the official SDKs, rebuilt so that pydantic checks every level of a JSON body.

The published types reject little: `Iterable[...]` is validated only when iterated, TypedDicts ignore unknown keys,
unions contain pydantic models and open files beside JSON forms, and a union of thirty dictionaries reports one mistake
thirty times. The rebuilt types differ in exactly these four points.
"""

import functools
import operator
import os
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal, NotRequired, Required, get_args

from pydantic import BaseModel, ConfigDict, Discriminator, Tag, TypeAdapter
from typing_extensions import TypedDict, get_type_hints, is_typeddict

# Values that only Python callers can pass; they never occur in a JSON body.
_NON_JSON_TYPES = (typing.IO, os.PathLike)
_DISCRIMINATING_KEYS = ("type", "role")
_PLAIN_TAG = "plain"
_UNIONS = (typing.Union, types.UnionType)


def get_origin(annotation: Any) -> Any:
    # Typed loosely: Required, Annotated and Union are special forms, which the stub says it never returns.
    return typing.get_origin(annotation)


class RequestTypeBuilder:
    def __init__(self, *, unknown_fields: bool) -> None:
        self._config = ConfigDict(extra="ignore" if unknown_fields else "forbid")
        self._dictionaries: dict[Any, Any] = {}

    def adapter(self, annotation: Any) -> TypeAdapter[Any]:
        return TypeAdapter(self.rebuild(annotation))

    def rebuild(self, annotation: Any) -> Any:
        if is_typeddict(annotation):
            return self._dictionary(annotation)
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            return self.rebuild(arguments[0])
        if origin in (Required, NotRequired):
            return origin[self.rebuild(arguments[0])]
        if origin in (Iterable, Sequence, list):
            return list[self.rebuild(arguments[0])]  # type: ignore[misc]
        if origin is dict:
            return dict[arguments[0], self.rebuild(arguments[1])]  # type: ignore[misc, valid-type]
        if origin in _UNIONS:
            return self._union(arguments)
        return Any if annotation is object else annotation

    def _dictionary(self, annotation: Any) -> Any:
        if annotation not in self._dictionaries:
            hints = get_type_hints(annotation, include_extras=True)
            fields = {}
            for name, hint in hints.items():
                inner = get_args(hint)[0] if get_origin(hint) in (Required, NotRequired) else hint
                fields[name] = (Required if _is_required(annotation, name, hint) else NotRequired)[self.rebuild(inner)]
            make: Any = TypedDict
            rebuilt = make(annotation.__name__, fields)
            rebuilt.__pydantic_config__ = self._config
            self._dictionaries[annotation] = rebuilt
        return self._dictionaries[annotation]

    def _union(self, members: Iterable[Any]) -> Any:
        flat = [member for member in _flatten(members) if not _is_python_only(member)]
        dictionaries = [member for member in flat if is_typeddict(member)]
        rebuilt = [self.rebuild(member) for member in flat if not is_typeddict(member)]
        key = _discriminating_key(dictionaries)
        if key is None or any(get_origin(member) is dict for member in flat):
            return _union_of(rebuilt + [self.rebuild(member) for member in dictionaries])
        groups: dict[str, list[Any]] = {}
        for member in dictionaries:
            for tag in _tags(member, key):
                groups.setdefault(tag, []).append(self.rebuild(member))
        choices = [Annotated[_union_of(group), Tag(tag)] for tag, group in groups.items()]
        if rebuilt:
            choices.append(Annotated[_union_of(rebuilt), Tag(_PLAIN_TAG)])
        return Annotated[_union_of(choices), Discriminator(_chooser(key, frozenset(groups)))]


def _union_of(members: list[Any]) -> Any:
    return functools.reduce(operator.or_, members)


def _flatten(members: Iterable[Any]) -> list[Any]:
    flat: list[Any] = []
    for member in members:
        inner = get_args(member)[0] if get_origin(member) is Annotated else member
        flat += _flatten(get_args(inner)) if get_origin(inner) in _UNIONS else [inner]
    return flat


def _is_python_only(member: Any) -> bool:
    plain = get_origin(member) or member
    return plain in _NON_JSON_TYPES or (isinstance(plain, type) and issubclass(plain, BaseModel))


def _discriminating_key(dictionaries: list[Any]) -> str | None:
    if len(dictionaries) < 2:
        return None
    for key in _DISCRIMINATING_KEYS:
        if all(_literals(member, key) for member in dictionaries):
            return key
    return None


def _literals(member: Any, key: str) -> tuple[str, ...]:
    hint = get_type_hints(member).get(key)
    if hint is None:
        return ()
    choices = _flatten([hint])
    return tuple(value for choice in choices if get_origin(choice) is Literal for value in get_args(choice))


def _is_required(dictionary: Any, name: str, hint: Any) -> bool:
    # `__required_keys__` misses a Required that postponed evaluation left as text; the resolved hint has it.
    origin = get_origin(hint)
    return origin is Required or (origin is not NotRequired and name in dictionary.__required_keys__)


def _tags(member: Any, key: str) -> list[str]:
    hint = get_type_hints(member, include_extras=True)[key]
    optional = [] if _is_required(member, key, hint) else ["absent"]
    return [f"{key}={value}" for value in _literals(member, key)] + optional


def _chooser(key: str, tags: frozenset[str]) -> Callable[[Any], str | None]:
    def choose(value: Any) -> str | None:
        if not isinstance(value, dict):
            return _PLAIN_TAG
        tag = "absent" if value.get(key) is None else f"{key}={value[key]}"
        return tag if tag in tags else None

    return choose
