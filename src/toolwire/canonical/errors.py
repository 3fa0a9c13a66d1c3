"""What can go wrong: a provider's error as data, and our own exceptions, whose type says whose fault it is."""

from typing import TYPE_CHECKING, Literal

from toolwire.canonical.node import Node

if TYPE_CHECKING:
    from toolwire.canonical.loss import Loss

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
    """An error as a provider told it. `raw` is the vendor's own word for `kind`."""

    kind: ErrorKind
    message: str
    status: int | None = None
    code: str | None = None
    param: str | None = None
    raw: str | None = None
    request_id: str | None = None
    retry_after: float | None = None


class ToolwireError(Exception):
    """Anything that toolwire itself refuses to do."""


class DecodeError(ToolwireError):
    """The input is not what its protocol allows: the sender's fault."""

    def __init__(self, protocol: str, path: str, expected: str, got: str) -> None:
        super().__init__(f"{protocol}: {path or 'the body'}: expected {expected}, got {got}")
        self.protocol = protocol
        self.path = path
        self.expected = expected
        self.got = got

    def __reduce__(self) -> tuple[type["DecodeError"], tuple[str, str, str, str]]:
        """Exceptions are otherwise rebuilt from their message, in whatever process they are sent to."""
        return type(self), (self.protocol, self.path, self.expected, self.got)


class LossyTranslationError(ToolwireError):
    """The target can't say this, and it may not be dropped."""

    def __init__(self, losses: "list[Loss]", target: str) -> None:
        first = losses[0]
        more = f" (and {len(losses) - 1} more)" if len(losses) > 1 else ""
        super().__init__(f"{target} can't carry {first.path or 'the body'}: {first.reason}{more}")
        self.losses = losses
        self.target = target

    def __reduce__(self) -> "tuple[type[LossyTranslationError], tuple[list[Loss], str]]":
        """As in `DecodeError`."""
        return type(self), (self.losses, self.target)
