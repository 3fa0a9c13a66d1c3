"""Where invented texts came to stand: that is known when the whole is written."""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from toolwire.canonical.loss import Loss

from .fields import escape
from .losses import UNPLACED


def is_unplaced(loss: Loss) -> bool:
    """Whether it is of an invented text that may stand anywhere."""
    return loss.target is not None and loss.target.startswith(UNPLACED)


def placed(losses: list[Loss], value: Any) -> list[Loss]:
    """Say of each invented text where it came to stand; the same ones are in the order of the conversation."""
    texts = {loss.target for loss in losses if loss.target is not None and is_unplaced(loss)}
    places = {text: _places_of(text.removeprefix(UNPLACED), value, "") for text in texts}
    return [replace(loss, target=next(places[loss.target], "")) if loss.target in places else loss for loss in losses]


def _places_of(text: str, value: Any, path: str) -> Iterator[str]:
    if value == text:
        yield path
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _places_of(text, inner, f"{path}/{escape(name)}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _places_of(text, inner, f"{path}/{index}")
