"""What did not arrive as it was sent."""

from typing import Literal

from msgspec import Struct

LossKind = Literal["dropped", "approximated", "added"]


class Loss(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """`path` is a JSON pointer into the source body, exact to the field; for something invented it is where the need
    arose, and `target` is a pointer into what was made. `guarded`: refused under every policy."""

    kind: LossKind
    path: str
    reason: str
    target: str | None = None
    constraint: bool = False
