"""The interface that tests use to drive each SDK in the same way."""

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
    """A response as the SDK's user sees it; `pieces` counts stream events, and is 1 without streaming."""

    text: str
    calls: tuple[ReceivedCall, ...] = ()
    thinking: str = ""
    event_count: int = 1


@dataclass
class SdkClient:
    """A conversation through one SDK.

    `error` is the exception that the SDK raises for a rejected request. `options` override the request.
    """

    rejection: ClassVar[type[Exception]]

    base_url: str
    model: str
    stream: bool = False
    thinking: bool = False
    tools: tuple[ClientTool, ...] = (WEATHER_TOOL,)
    history: list[Any] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)

    def send_text(self, text: str) -> ReceivedResponse:
        self.history.append(self.text_message(text))
        return self._request()

    def send_results(self, calls: Sequence[ReceivedCall], outputs: Sequence[str]) -> ReceivedResponse:
        self.history += [self.result_message(call, output) for call, output in zip(calls, outputs, strict=True)]
        return self._request()

    def text_message(self, text: str) -> dict[str, Any]:
        return {"role": "user", "content": text}

    def result_message(self, call: ReceivedCall, output: str) -> dict[str, Any]:
        raise NotImplementedError

    def _request(self) -> ReceivedResponse:
        raise NotImplementedError


def flat_declarations(tools: Sequence[ClientTool]) -> list[dict[str, Any]]:
    return [{"type": "function", **_function(tool)} for tool in tools]


def nested_declarations(tools: Sequence[ClientTool]) -> list[dict[str, Any]]:
    return [{"type": "function", "function": _function(tool)} for tool in tools]


def _function(tool: ClientTool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.schema}
