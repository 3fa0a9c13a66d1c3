"""What a test says to a model, and what it hears, whatever the SDK."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

KEY = "a-key"


@dataclass(frozen=True)
class Tool:
    name: str
    about: str
    schema: dict[str, Any]


WEATHER = Tool(
    "get_weather",
    "The weather in a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


@dataclass(frozen=True)
class Called:
    id: str | None
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Heard:
    """What the SDK's user sees of an answer. `pieces` is how many events a stream had; one for a whole answer."""

    text: str
    calls: tuple[Called, ...] = ()
    thinking: str = ""
    pieces: int = 1


@dataclass
class Client:
    """`error` is what the SDK raises where a request is refused. `options` has the last word on what is asked."""

    error: ClassVar[type[Exception]]

    base_url: str
    model: str
    stream: bool = False
    thinking: bool = False
    tools: tuple[Tool, ...] = (WEATHER,)
    history: list[Any] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)

    def say(self, text: str) -> Heard:
        raise NotImplementedError

    def answer(self, calls: Sequence[Called], outputs: Sequence[str]) -> Heard:
        raise NotImplementedError


def flat(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    return [{"type": "function", **_function(tool)} for tool in tools]


def nested(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    return [{"type": "function", "function": _function(tool)} for tool in tools]


def _function(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.about, "parameters": tool.schema}
