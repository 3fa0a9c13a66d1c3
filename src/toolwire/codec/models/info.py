"""A model's limits, features and prices. Everything that depends on a model reads them here.

The source of a fact is the user's configuration, the provider's list of models, or the model's name. Sources are merged
field by field; the first one that knows a fact wins.
"""

from typing import Literal

from msgspec import Struct
from msgspec.structs import asdict


class PriceTier(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prices of a request whose input has more than `above` tokens; they hold for all of its tokens."""

    above: int  # input tokens above which the tier holds
    input: float | None = None  # None: as without the tier
    output: float | None = None  # None: as without the tier
    cache_read: float | None = None  # None: as without the tier
    cache_write: float | None = None  # None: as without the tier


class Prices(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Prices in US dollars per million tokens, and per thousand searches."""

    input: float  # per million input tokens
    output: float  # per million output tokens
    cache_read: float | None = None  # None: the price of input
    cache_write: float | None = None  # None: the price of input
    searches: float | None = None  # per thousand; None: free
    tiers: tuple[PriceTier, ...] = ()  # for long prompts, ascending


class ModelInfo(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Facts about a model. None means unknown; an empty tuple means that the model has none."""

    context: int | None = None  # tokens of prompt and answer together
    output: int | None = None  # greatest output limit that a request may set
    thinking: Literal["never", "optional", "always"] | None = None
    adaptive: bool | None = None  # decides by itself how much to think, without a budget
    efforts: tuple[str, ...] | None = None  # accepted effort levels
    budget: tuple[int, ...] | None = None  # least and greatest thinking budget in tokens
    sampling: bool | None = None  # accepts `temperature`, `top_p` and `top_k`
    vision: bool | None = None  # accepts images
    audio: bool | None = None  # accepts audio
    tools: bool | None = None  # can call tools
    structured_output: Literal["never", "without_tools", "always"] | None = None  # enforces a schema for its answer
    prices: Prices | None = None


UNKNOWN_MODEL = ModelInfo()


def merge_info(*sources: ModelInfo) -> ModelInfo:
    """Merge facts from several sources; for each field the first source that knows it wins."""
    merged: dict[str, object] = {}
    for source in reversed(sources):
        merged |= known_facts(source)
    return ModelInfo(**merged)  # type: ignore[arg-type]


def known_facts(info: ModelInfo) -> dict[str, object]:
    """Return the fields that are known, by name."""
    return {name: value for name, value in asdict(info).items() if value is not None}
