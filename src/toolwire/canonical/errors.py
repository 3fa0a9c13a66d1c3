"""Provider errors as data, losses of a translation, and the exceptions that toolwire raises.

The type of an exception tells whether the sender's input or the requested target is at fault.
"""

import re
from typing import Literal

from msgspec import Struct

from toolwire.canonical.node import Node

LossKind = Literal["dropped", "approximated", "added"]
Severity = Literal["error", "warning", "info"]
Direction = Literal["request", "response"]
Strictness = bool | Literal["error"]
"""The losses to refuse besides constraints: none, all but those of severity `info`, or those of severity `error`."""


class Loss(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One difference between the source and its translation."""

    severity: Severity  # content or behavior changed; a setting without counterpart; or of no consequence
    kind: LossKind
    path: str  # JSON pointer into the source body, exact to the field; for an added value, where it became necessary
    reason: str
    direction: Direction  # of the body that `path` points into; errors are responses
    target: str | None = None  # JSON pointer to an added value in the translated body
    constraint: bool = False  # a safety limit: refused whatever the strictness

    def __str__(self) -> str:
        """Describe the loss in one line."""
        location = " -> ".join(filter(None, (self.path or "body", self.target)))
        return " ".join(f"{self.severity} {self.kind} {location}: {self.reason}".split())


def counted_losses(losses: "list[Loss]") -> "list[Loss]":
    """Return the losses that logs, metrics and headers count: all but those of severity `info`."""
    return [loss for loss in losses if loss.severity != "info"]


ErrorKind = Literal[
    "invalid_request",
    "authentication",
    "billing",
    "permission",
    "not_found",
    "conflict",
    "too_large",
    "rate_limit",
    "context_length",
    "server",
    "timeout",
    "overloaded",
    "other",
]


class ApiError(Node, frozen=True):
    """An error as reported by a provider."""

    kind: ErrorKind
    message: str
    status: int | None = None
    code: str | None = None
    param: str | None = None
    raw: str | None = None  # the vendor's own word for `kind`
    request_id: str | None = None
    retry_after: float | None = None


_JSON_SYNTAX_ERROR = re.compile(r"JSON is malformed: (?P<problem>.*) \(byte (?P<offset>\d+)\)")


class ToolwireError(Exception):
    """Base class of all errors that toolwire raises itself."""


class DecodeError(ToolwireError):
    """Input that violates its protocol; the sender is at fault."""

    def __init__(self, protocol: str, path: str, expected: str, got: str) -> None:
        super().__init__(f"{protocol}: {path or 'the body'}: {_describe_problem(expected, got)}")
        self.protocol = protocol
        self.path = path
        self.expected = expected
        self.got = got

    def __reduce__(self) -> tuple[type["DecodeError"], tuple[str, str, str, str]]:
        """Return class and arguments for pickle, since exceptions otherwise rebuild from their message alone."""
        return type(self), (self.protocol, self.path, self.expected, self.got)


def _describe_problem(expected: str, got: str) -> str:
    """Return the message text for a violation; syntax errors of msgspec's JSON decoder get their position first."""
    if expected != "JSON":
        return f"expected {expected}, got {got}"
    if (error := _JSON_SYNTAX_ERROR.fullmatch(got)) is not None:
        return f"invalid JSON at byte {error['offset']}: {error['problem']}"
    return "invalid JSON: unexpected end of input" if got == "Input data was truncated" else f"invalid JSON: {got}"


class LossyTranslationError(ToolwireError):
    """A translation refused because the target cannot express part of it.

    `losses` are those that were refused, and `all_losses` also those that would have been accepted.
    """

    def __init__(self, losses: "list[Loss]", target: str, all_losses: "list[Loss] | None" = None) -> None:
        first = losses[0]
        suffix = f" (and {len(losses) - 1} more)" if len(losses) > 1 else ""
        super().__init__(f"cannot translate to {target}: {first.path or 'the body'}: {first.reason}{suffix}")
        self.losses = losses
        self.target = target
        self.all_losses = losses if all_losses is None else all_losses

    def __reduce__(self) -> "tuple[type[LossyTranslationError], tuple[list[Loss], str, list[Loss]]]":
        """Return class and arguments for pickle, as in `DecodeError`."""
        return type(self), (self.losses, self.target, self.all_losses)
