"""Settings of model requests, as keywords of an agent and of a single run."""

from collections.abc import Sequence
from typing import Literal, TypedDict

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


def merge_settings(*layers: ModelSettings) -> ModelSettings:
    """Return the settings of several layers, of which later ones win; raise `TypeError` for an unknown setting."""
    merged = ModelSettings()
    known = tuple(ModelSettings.__annotations__)
    for layer in layers:
        for name in layer:
            if name not in known:
                raise TypeError(f"unknown setting {name!r}; {suggest(name, known, 'use one of ' + ', '.join(known))}")
        merged.update(layer)
    return merged


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
