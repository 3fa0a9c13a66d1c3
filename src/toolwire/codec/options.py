"""Checks of options that programs pass, whose errors say what to write instead."""

from collections.abc import Sequence
from typing import Any

from msgspec import StructMeta

from toolwire.codec.suggestions import suggest


class OptionsMeta(StructMeta):
    """Metaclass of structs that programs construct: an unknown keyword is an error with the nearest known ones."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Construct the struct; raise `TypeError` for an unknown keyword."""
        known = self.__struct_fields__
        for name in options:
            if name not in known:
                hint = suggest(name, known, f"use {', '.join(known)}")
                raise TypeError(f"{self.__name__}({name}=...) is unknown; {hint}")
        return super().__call__(*args, **options)


def require(option: str, value: object, expected: str, *, valid: bool) -> None:
    """Raise `TypeError` for an option that is not valid, with what is expected instead."""
    if not valid:
        raise TypeError(f"{option}={value!r:.100} is invalid: use {expected}")


def require_bool(option: str, value: object) -> None:
    """Raise `TypeError` for an option that is neither True nor False: any text would count as true."""
    require(option, value, "True or False", valid=isinstance(value, bool))


def require_text(option: str, value: object) -> None:
    """Raise `TypeError` for an option that is no text."""
    require(option, value, "a string", valid=isinstance(value, str))


def require_texts(**options: object) -> None:
    """Raise `TypeError` for an option that is neither a string nor None."""
    for option, value in options.items():
        require(option, value, "a string", valid=isinstance(value, str | None))


def require_integer(option: str, value: Any, least: int) -> None:
    """Raise `TypeError` for an option that is no integer, and `ValueError` for one that is too small."""
    require(option, value, "an integer", valid=isinstance(value, int) and not isinstance(value, bool))
    if value < least:
        raise ValueError(f"{option}={value} is invalid: use at least {least}")


def require_positive(option: str, value: Any) -> None:
    """Raise `TypeError` for an option that is no number, and `ValueError` for one that is not positive."""
    require(option, value, "a number", valid=isinstance(value, int | float) and not isinstance(value, bool))
    if not value > 0:
        raise ValueError(f"{option}={value} is invalid: use a positive number")


def require_choice(option: str, value: object, choices: Sequence[str | bool | None]) -> None:
    """Raise `ValueError` for an option that is none of its choices, with the nearest one."""
    if value in choices:
        return
    texts = [choice for choice in choices if isinstance(choice, str)]
    hint = suggest(value, texts) if isinstance(value, str) else ""
    raise ValueError(f"{option}={value!r:.100} is unknown; {hint or 'use one of ' + ', '.join(map(repr, choices))}")
