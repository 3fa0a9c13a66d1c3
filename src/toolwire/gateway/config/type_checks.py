"""Checks of a document against the types of the configuration, which find the key that is wrong.

`msgspec` converts a valid document. Its errors name no key in a table of tables, so this module looks for the problem.
"""

from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

from msgspec import inspect

from toolwire.codec.suggestions import suggest
from toolwire.gateway.config.errors import KeyProblem, UnknownKey, format_place, format_table
from toolwire.gateway.config.positions import KeyPath

_TYPE_NAMES: dict[type, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    dict: "a table",
    list: "an array",
    date: "a date (YYYY-MM-DD)",
}
_VALUE_TYPES: tuple[tuple[type[inspect.Type], tuple[type, ...]], ...] = (
    (inspect.BoolType, (bool,)),
    (inspect.IntType, (int,)),
    (inspect.FloatType, (float, int)),
    (inspect.StrType, (str,)),
    (inspect.DateType, (date,)),
    (inspect.DictType, (dict,)),
    (inspect.StructType, (dict,)),
    (inspect.VarTupleType, (list,)),
    (inspect.TupleType, (list,)),
)


def find_problems(value: Any, kind: inspect.Type, path: KeyPath = ()) -> Iterator[KeyProblem]:
    """Yield a problem for each unknown key, missing key, and value of the wrong type or out of its range."""
    match kind:
        case inspect.AnyType():
            pass
        case inspect.UnionType(types=kinds):
            fitting = [candidate for candidate in kinds if _has_type(value, candidate)]
            if len(fitting) == 1:
                yield from find_problems(value, fitting[0], path)
            elif value not in _literals(kind):
                yield _mismatch(value, kind, path)
        case inspect.LiteralType(values=values):
            if value not in values:
                yield _mismatch(value, kind, path)
        case _ if not _has_type(value, kind):
            yield _mismatch(value, kind, path)
        case inspect.StructType():
            yield from _find_in_table(value, kind, path)
        case inspect.IntType() | inspect.FloatType():
            if not _in_range(value, kind):
                yield KeyProblem(path, f"expected {_describe(kind)}, got {value}")
        case _:
            yield from _find_in_members(value, kind, path)


def _find_in_members(value: Any, kind: inspect.Type, path: KeyPath) -> Iterator[KeyProblem]:
    """Yield the problems of a table with any keys, or of an array."""
    match kind:
        case inspect.DictType(value_type=member):
            for name, inner in value.items():
                yield from find_problems(inner, member, (*path, name))
        case inspect.VarTupleType(item_type=item):
            for index, inner in enumerate(value):
                yield from find_problems(inner, item, (*path, index))
        case inspect.TupleType(item_types=items):
            if len(value) != len(items):
                yield KeyProblem(path, f"expected {len(items)} values, got {len(value)}")
            for index, (inner, item) in enumerate(zip(value, items, strict=False)):
                yield from find_problems(inner, item, (*path, index))
        case _:
            pass


def _find_in_table(table: Mapping[str, Any], kind: inspect.StructType, path: KeyPath) -> Iterator[KeyProblem]:
    """Yield the problems of a table with fixed keys."""
    fields = {field.name: field for field in kind.fields}
    for name, value in table.items():
        if name in fields:
            yield from find_problems(value, fields[name].type, (*path, name))
        else:
            yield unknown_key((*path, name), fields, is_table=not path and isinstance(value, dict | list))
    for name, field in fields.items():
        if field.required and name not in table:
            message = f'missing key "{name}" {format_place(path)}'
            yield KeyProblem(path, message, at_key=True, names_key=True)


def unknown_key(path: KeyPath, known: Mapping[str, Any], *, is_table: bool = False) -> UnknownKey:
    """Return the problem of a key that its table doesn't have, with the nearest known ones."""
    name = path[-1]
    what = f"unknown table {format_table(path)}" if is_table else f'unknown key "{name}" {format_place(path[:-1])}'
    hint = suggest(str(name), known)
    return UnknownKey(path, f"{what}{hint and f' ({hint})'}", at_key=True, names_key=True)


def _has_type(value: Any, kind: inspect.Type) -> bool:
    """Return whether a value has the right type, ignoring its range and members."""
    accepted = next((types for cls, types in _VALUE_TYPES if isinstance(kind, cls)), ())
    return isinstance(value, accepted) and (not isinstance(value, bool) or bool in accepted)


def _in_range(value: float, kind: inspect.IntType | inspect.FloatType) -> bool:
    """Return whether a number is in its range; NaN is in none."""
    return (
        (kind.ge is None or value >= kind.ge)
        and (kind.gt is None or value > kind.gt)
        and (kind.le is None or value <= kind.le)
    )


def _mismatch(value: Any, kind: inspect.Type, path: KeyPath) -> KeyProblem:
    """Return the problem of a value of the wrong type. It quotes a string only if fixed strings are expected."""
    if isinstance(value, dict) and isinstance(kind, inspect.VarTupleType):
        return KeyProblem(path, f"expected an array of tables: write {format_table((*path, 0))}", at_key=True)
    words = [word for word in _literals(kind) if isinstance(word, str)]
    if isinstance(value, str) and words:
        hint = suggest(value, words)
        return KeyProblem(path, f"expected {_describe(kind)}, got {value!r}{hint and f' ({hint})'}")
    got = (
        str(value).lower()
        if isinstance(value, bool)
        else next((name for cls, name in _TYPE_NAMES.items() if isinstance(value, cls)), "a date or time")
    )
    return KeyProblem(path, f"expected {_describe(kind)}, got {got}")


def _literals(kind: inspect.Type) -> list[Any]:
    """Return the fixed values that a type accepts."""
    if isinstance(kind, inspect.UnionType):
        return [value for candidate in kind.types for value in _literals(candidate)]
    return list(kind.values) if isinstance(kind, inspect.LiteralType) else []


def _describe(kind: inspect.Type) -> str:
    """Describe the values that a type accepts."""
    match kind:
        case inspect.UnionType(types=kinds):
            return " or ".join(_describe(one) for one in kinds if not isinstance(one, inspect.NoneType))
        case inspect.LiteralType(values=values):
            return " or ".join(f'"{value}"' if isinstance(value, str) else str(value) for value in values)
        case inspect.IntType() | inspect.FloatType():
            return _describe_number(kind)
        case _:
            accepted = next((types for cls, types in _VALUE_TYPES if isinstance(kind, cls)), (object,))
            return _TYPE_NAMES.get(accepted[0], "a value")


def _describe_number(kind: inspect.IntType | inspect.FloatType) -> str:
    """Describe a number and its range."""
    noun = "an integer" if isinstance(kind, inspect.IntType) else "a number"
    if kind.gt is not None:
        return f"{noun} greater than {kind.gt}" + ("" if kind.le is None else f" and at most {kind.le}")
    if kind.ge is not None:
        return f"{noun} of at least {kind.ge}" if kind.le is None else f"{noun} from {kind.ge} to {kind.le}"
    return noun
