"""A WebSocket client that behaves like Codex: it sends only new input items, with `store` off."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.support.deadlines import DEADLINE
from tests.support.gateway.setup import GatewaySetup, routed_model
from tests.support.sdk.clients import WEATHER_TOOL

BETA_HEADERS = {"openai-beta": "responses_websockets=2026-02-06"}
WEATHER_FUNCTION: Any = {
    "type": "function",
    "name": WEATHER_TOOL.name,
    "description": WEATHER_TOOL.description,
    "parameters": WEATHER_TOOL.schema,
    "strict": False,
}
TERMINAL_EVENTS = ("response.completed", "response.incomplete", "response.failed", "error")


class CodexConnection:
    def __init__(self, connection: ClientConnection, model: str | None) -> None:
        self.connection = connection
        self._model = model

    def send(self, input_items: Any, previous: str | None = None, **more: Any) -> None:
        frame: dict[str, Any] = {
            "type": "response.create",
            "model": self._model,
            "input": [user_item(input_items)] if isinstance(input_items, str) else input_items,
            "tools": [WEATHER_FUNCTION],
            "reasoning": {"effort": "high", "summary": "auto"},
            "include": ["reasoning.encrypted_content"],
            "store": False,
            "previous_response_id": previous,
        } | more
        self.connection.send(json.dumps({name: value for name, value in frame.items() if value is not None}))

    def event(self) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(self.connection.recv(timeout=DEADLINE))
        return event

    def events(self) -> list[dict[str, Any]]:
        """Receive all events up to the one that ends a response."""
        events = [self.event()]
        while events[-1]["type"] not in TERMINAL_EVENTS:
            events.append(self.event())
        return events

    def create_response(self, input_items: Any, previous: str | None = None, **more: Any) -> dict[str, Any]:
        """Send a request and return the response."""
        self.send(input_items, previous, **more)
        last = self.events()[-1]
        assert last["type"] == "response.completed", last
        answer: dict[str, Any] = last["response"]
        return answer

    def create_rejected(self, input_items: Any, previous: str | None = None, **more: Any) -> dict[str, Any]:
        """Send a request and return the error."""
        self.send(input_items, previous, **more)
        (error,) = self.events()
        assert error["type"] == "error", error
        return error


def user_item(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def output_text(response: dict[str, Any]) -> str:
    items = [item for item in response["output"] if item["type"] == "message"]
    return "".join(part["text"] for item in items for part in item["content"])


def function_outputs_for(response: dict[str, Any], result: str) -> list[dict[str, Any]]:
    calls = [item for item in response["output"] if item["type"] == "function_call"]
    assert [call["name"] for call in calls] == ["get_weather"]
    return [{"type": "function_call_output", "call_id": call["call_id"], "output": result} for call in calls]


@contextmanager
def open_connection(
    setup: GatewaySetup, upstream: str | None, key: str = "any", query: str = ""
) -> Iterator[CodexConnection]:
    url = setup.base_url.replace("http://", "ws://") + "/v1/responses" + query
    headers = BETA_HEADERS | {"authorization": f"Bearer {key}"}
    with connect(url, additional_headers=headers, max_size=None) as connection:
        yield CodexConnection(connection, None if upstream is None else routed_model(upstream))
