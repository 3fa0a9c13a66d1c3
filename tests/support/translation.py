"""Shortcuts for translating bodies and streams, and for their losses."""

from collections.abc import Iterable
from typing import Any, Literal

import toolwire
from tests.support.protocols import ROUTE_MODELS

BodyKind = Literal["request", "response", "error"]


def translate_body(
    body: Any, source: str, target: str, kind: BodyKind = "request", **options: Any
) -> toolwire.Translation:
    addressed = {"model": ROUTE_MODELS[source]} if source in ROUTE_MODELS and kind == "request" else {}
    return toolwire.translate(body, source=source, target=target, kind=kind, **addressed | options)


def translated_body(body: Any, source: str, target: str, kind: BodyKind = "request", **options: Any) -> Any:
    return translate_body(body, source, target, kind, **options).value


def loss_paths(body: Any, source: str, target: str, kind: BodyKind = "request", **options: Any) -> set[str]:
    """Return the source paths in the loss report."""
    return {loss.path for loss in translate_body(body, source, target, kind, **options).losses}


def loss_kinds(body: Any, source: str, target: str, kind: BodyKind = "request", **options: Any) -> dict[str, str]:
    """Return the kind of each loss by path."""
    return {loss.path: loss.kind for loss in translate_body(body, source, target, kind, **options).losses}


def has_loss_at(paths: set[str], path: str) -> bool:
    """Return whether a path or something inside it is reported; a loss of its parent does not count."""
    return any(reported == path or reported.startswith(path + "/") for reported in paths)


def translate_stream_bytes(wire: bytes | Iterable[bytes], source: str, target: str, request: Any = None) -> bytes:
    chunks = [wire] if isinstance(wire, bytes) else wire
    return b"".join(toolwire.translate_stream(chunks, source=source, target=target, request=request))
