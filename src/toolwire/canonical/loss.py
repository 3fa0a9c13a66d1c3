"""The record of a value that a translation dropped, changed or added."""

from typing import Literal

from msgspec import Struct

LossKind = Literal["dropped", "approximated", "added"]


class Loss(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One difference between the source and its translation."""

    kind: LossKind
    path: str  # JSON pointer into the source body, exact to the field; for an added value, where it became necessary
    reason: str
    target: str | None = None  # JSON pointer to an added value in the translated body
    constraint: bool = False  # a safety limit: refused under every loss policy
