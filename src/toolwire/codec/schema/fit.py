"""A schema as a target takes it, or as it is where the target takes all of it."""

from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from toolwire.codec.losses import Report, Trail

from .changes import Change, Unfit
from .dialect import Dialect
from .rewriter import LIMIT_DEPTH, Rewriter
from .values import TYPES

_LIMIT_REMEMBERED = 32_768


class Fitted(NamedTuple):
    """`unfit`: why the dialect can't say it at all; the schema is then as it was."""

    schema: Raw
    changes: tuple[Change, ...] = ()
    unfit: str | None = None


def fit(schema: Raw, dialect: Dialect) -> Fitted:
    """Agents declare the same tools in every request, so what short schemas became is remembered."""
    text = bytes(schema)
    found = _remembered(text, dialect) if len(text) <= _LIMIT_REMEMBERED else _fit(text, dialect)
    return found if found.changes else found._replace(schema=schema)


def fitted(schema: Raw, dialect: Dialect, report: Report, trail: Trail, field: str) -> Raw:
    """The schema for the target, its changes reported."""
    found = fit(schema, dialect)
    report.rewritten(trail, field, found.changes)
    return found.schema


def fitted_strictly(schema: Raw, dialect: Dialect, report: Report, trail: Trail, field: str) -> tuple[Raw, bool]:
    """The schema of what is to be held to it strictly, and whether the target can do so."""
    found = fit(schema, dialect)
    if found.unfit is not None:
        report.approximated(trail, "strict", f"the target can't be strict with this schema: {found.unfit}")
        return schema, False
    report.rewritten(trail, field, found.changes)
    return found.schema, True


def _fit(text: bytes, dialect: Dialect) -> Fitted:
    tree: Any = None
    try:
        tree = msgspec.json.decode(text)
        if not dialect.closed and not dialect.typed and _is_plain(tree, dialect):
            return Fitted(Raw(text))
        rewriter = Rewriter(tree, dialect)
        made = rewriter.rewrite()
        changes = tuple(rewriter.changes)
        return Fitted(Raw(msgspec.json.encode(made)) if changes else Raw(text), changes)
    except Unfit as unfit:
        return Fitted(Raw(text), (), str(unfit))
    except RecursionError:
        return Fitted(Raw(b'{"type":"object"}'), (Change("dropped", "", "too deep"),), "too deep")


def _is_plain(tree: Any, dialect: Dialect) -> bool:
    """Whether a schema says only what every dialect takes: most do, and need no rewriter."""
    level, root = [tree], dialect.root is not None
    for _ in range(LIMIT_DEPTH):
        below: list[Any] = []
        for node in level:
            if type(node) is not dict:
                return False
            for key, value in node.items():
                if key == "properties" and type(value) is dict:
                    below += value.values()
                elif key == "items" and not root:
                    below.append(value)
                elif key == "required" and type(value) is list:
                    if not all(type(name) is str for name in value) or len(set(value)) < len(value):
                        return False
                elif type(value) is not str or not (
                    (key == "type" and value in TYPES) or (key == "description" and not root)
                ):
                    return False
        level, root = below, False
        if not level:
            return True
    return False


_remembered = lru_cache(maxsize=512)(_fit)
