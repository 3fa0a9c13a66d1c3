"""Settings of model requests, as keywords of an agent and of a single run."""

import math
from collections.abc import Sequence
from typing import Any, Literal, TypedDict, get_args

from msgspec.structs import replace

from toolwire.canonical.errors import ToolwireError
from toolwire.canonical.tools import Sampling, Thinking, ToolChoice, ToolRef
from toolwire.codec.suggestions import suggest

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

_CHOICE_MODES: dict[str, Literal["auto", "none", "required"]] = {
    "auto": "auto",
    "none": "none",
    "required": "required",
}


class ModelSettings(TypedDict, total=False):
    """Keywords of `Agent`, `run` and `stream` that shape the model's responses."""

    temperature: float | None
    top_p: float | None
    max_tokens: int | None
    """The output limit of each response."""
    stop: str | Sequence[str] | None
    """Sequences that end a response."""
    seed: int | None
    effort: Effort | None
    """The reasoning effort."""
    tool_choice: str | None
    """`auto`, `none`, `required` or the name of a tool. A forced choice applies to the first turn only."""
    parallel: bool
    """Let the model call several tools in one turn, and run them concurrently."""


SETTING_NAMES = tuple(ModelSettings.__annotations__)


def merge_settings(*layers: ModelSettings) -> ModelSettings:
    """Merge layers of settings; later layers override earlier ones.

    Raises `TypeError` for an unknown setting or a value of the wrong type, `ValueError` for other invalid values.
    """
    merged = ModelSettings()
    for layer in layers:
        for name in layer:
            if name not in SETTING_NAMES:
                hint = suggest(name, SETTING_NAMES, "use one of " + ", ".join(SETTING_NAMES))
                raise TypeError(f"unknown setting {name!r}; {hint}")
        merged.update(layer)
    _check_settings(merged)
    return merged


# The widest range that any provider accepts. Encoders fit a value to their target, and report that.
_RANGES: dict[str, tuple[float, float]] = {"temperature": (0, 2), "top_p": (0, 1)}


def _check_settings(settings: ModelSettings) -> None:
    """Raise `TypeError` or `ValueError` for a setting that no provider accepts."""
    for name, (least, greatest) in _RANGES.items():
        value: Any = settings.get(name)
        if value is not None and (not _is_number(value) or not least <= value <= greatest):
            kind = ValueError if _is_number(value) else TypeError
            raise kind(f"{name}={value!r} is invalid: use a number from {least} to {greatest}")
    for name in ("max_tokens", "seed"):
        value = settings.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise TypeError(f"{name}={value!r} is invalid: use an integer")
    max_tokens = settings.get("max_tokens")
    if max_tokens is not None and max_tokens < 1:
        raise ValueError(f"max_tokens={max_tokens} is invalid: use at least 1, or None for the limit of the model")
    _check_words(settings)


def _check_words(settings: ModelSettings) -> None:
    """Raise `TypeError` or `ValueError` for an invalid setting among those that are not numbers."""
    effort: Any = settings.get("effort")
    efforts = get_args(Effort)
    if effort is not None and effort not in efforts:
        hint = suggest(effort, efforts) if isinstance(effort, str) else ""
        raise ValueError(f"effort={effort!r} is unknown; {hint or 'use one of ' + ', '.join(efforts)}")
    stop: Any = settings.get("stop")
    if stop is not None and not (
        isinstance(stop, Sequence) and stop and all(isinstance(one, str) and one for one in stop)
    ):
        raise TypeError(f"stop={stop!r} is invalid: use a non-empty string or a list of them")
    choice: Any = settings.get("tool_choice")
    if choice is not None and not isinstance(choice, str):
        raise TypeError(f"tool_choice={choice!r} is invalid: use 'auto', 'none', 'required' or the name of a tool")
    parallel: Any = settings.get("parallel", True)
    if not isinstance(parallel, bool):
        raise TypeError(f"parallel={parallel!r} is invalid: use True or False")


def _is_number(value: object) -> bool:
    """Return True for a finite number; False for a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def sampling_of(settings: ModelSettings) -> Sampling | None:
    """Return the sampling parameters among the settings; None if none is set."""
    stop = settings.get("stop")
    sampling = Sampling(
        max_tokens=settings.get("max_tokens"),
        temperature=settings.get("temperature"),
        top_p=settings.get("top_p"),
        stop=None if stop is None else (stop,) if isinstance(stop, str) else tuple(stop),
        seed=settings.get("seed"),
    )
    return None if sampling == Sampling() else sampling


def thinking_of(settings: ModelSettings) -> Thinking | None:
    """Return the reasoning settings; None without an effort."""
    effort = settings.get("effort")
    return None if effort is None else Thinking(enabled=effort != "none", effort=effort)


def tool_choice_of(settings: ModelSettings, tool_names: Sequence[str], *, is_first_turn: bool) -> ToolChoice | None:
    """Return the tool choice of a turn; None if nothing restricts it.

    A model that must call a tool in every turn would never answer, so a forced choice holds for the first turn only.
    """
    if not tool_names:
        return None
    parallel = None if settings.get("parallel", True) else False
    choice = settings.get("tool_choice")
    if choice is None or (choice != "none" and not is_first_turn):
        return None if parallel is None else ToolChoice(parallel=parallel)
    if choice in tool_names:
        return ToolChoice(mode="named", names=(ToolRef(name=choice),), parallel=parallel)
    if (mode := _CHOICE_MODES.get(choice)) is not None:
        return ToolChoice(mode=mode, parallel=parallel)
    known = f"the tools are {', '.join(tool_names)}"
    raise ToolwireError(f"tool_choice names the unknown tool {choice!r}; {suggest(choice, tool_names, known)}")


def require_tool(choice: ToolChoice | None) -> ToolChoice:
    """Return a tool choice that forces a call, if it leaves the model free to answer in text."""
    if choice is None or choice.mode is None or choice.mode == "auto":
        return replace(choice or ToolChoice(), mode="required")
    return choice
