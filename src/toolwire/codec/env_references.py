"""References to environment variables in settings: `env:NAME` stands for the value of the variable."""

from collections.abc import Iterator
from typing import Any

ENV_PREFIX = "env:"


def variable_name(value: Any) -> str | None:
    """Return the name of the environment variable that a value refers to, or None."""
    return value.removeprefix(ENV_PREFIX) if isinstance(value, str) and value.startswith(ENV_PREFIX) else None


def unset_variables(settings: Any) -> Iterator[str]:
    """Yield the names in the references that are left in settings: their variables are not set."""
    if isinstance(settings, dict):
        for inner in settings.values():
            yield from unset_variables(inner)
    elif isinstance(settings, list | tuple):
        for inner in settings:
            yield from unset_variables(inner)
    elif (name := variable_name(settings)) is not None:
        yield name


def describe_unset(settings: Any) -> str | None:
    """Return which variables of settings are not set, as the reason why these can't be used; None if all are."""
    names = list(dict.fromkeys(unset_variables(settings)))
    if not names:
        return None
    if len(names) == 1:
        return f"environment variable {names[0]} is not set"
    return f"environment variables {', '.join(names[:-1])} and {names[-1]} are not set"
