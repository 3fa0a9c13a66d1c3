"""What a test says to a model, and what it hears, whatever the SDK."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

API_KEY = "a-key"


@dataclass(frozen=True)
class ClientTool:
    name: str
    description: str
    schema: dict[str, Any]


WEATHER_TOOL = ClientTool(
    "get_weather",
    "The weather in a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


@dataclass(frozen=True)
class ReceivedCall:
    id: str | None
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class ReceivedResponse:
    """What the SDK's user sees of an answer. `pieces` is how many events a stream had; one for a whole answer."""

    text: str
    calls: tuple[ReceivedCall, ...] = ()
    thinking: str = ""
    event_count: int = 1


@dataclass
class SdkClient:
    """`error` is what the SDK raises where a request is refused. `options` has the last word on what is asked."""

    rejection: ClassVar[type[Exception]]

    base_url: str
    model: str
    stream: bool = False
    thinking: bool = False
    tools: tuple[ClientTool, ...] = (WEATHER_TOOL,)
    history: list[Any] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)

    def send_text(self, text: str) -> ReceivedResponse:
        raise NotImplementedError

    def send_results(self, calls: Sequence[ReceivedCall], outputs: Sequence[str]) -> ReceivedResponse:
        raise NotImplementedError


def flat_declarations(tools: Sequence[ClientTool]) -> list[dict[str, Any]]:
    return [{"type": "function", **_function(tool)} for tool in tools]


def nested_declarations(tools: Sequence[ClientTool]) -> list[dict[str, Any]]:
    return [{"type": "function", "function": _function(tool)} for tool in tools]


def _function(tool: ClientTool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.schema}
