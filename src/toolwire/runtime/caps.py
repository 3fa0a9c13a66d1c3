"""Where a run stops by itself."""

from msgspec import Struct


class Caps(Struct, frozen=True, kw_only=True):
    """`turns` of the model, `seconds` in all, `tokens` in and out, `repeats` of one call with the same arguments in a
    row, `parallel` calls at once; None is no cap. `history` is about how many tokens of conversation go to the model:
    the oldest turns of a longer one are left out."""

    turns: int = 50
    seconds: float | None = 1800.0
    tokens: int | None = None
    repeats: int = 3
    parallel: int = 8
    history: int | None = None
