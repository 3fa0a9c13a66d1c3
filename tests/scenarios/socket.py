"""A websocket client that speaks as Codex does: it says only what is new, and nothing is to be stored."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.patience import PATIENCE
from tests.scenarios.watching import Place, model_of
from tests.upstream.clients import WEATHER

BETA = {"openai-beta": "responses_websockets=2026-02-06"}
FUNCTION: Any = {
    "type": "function",
    "name": WEATHER.name,
    "description": WEATHER.about,
    "parameters": WEATHER.schema,
    "strict": False,
}
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


class Socket:
    def __init__(self, connection: ClientConnection, model: str | None) -> None:
        self.connection = connection
        self._model = model

    def send(self, said: Any, previous: str | None = None, **more: Any) -> None:
        frame: dict[str, Any] = {
            "type": "response.create",
            "model": self._model,
            "input": [user(said)] if isinstance(said, str) else said,
            "tools": [FUNCTION],
            "reasoning": {"effort": "high", "summary": "auto"},
            "include": ["reasoning.encrypted_content"],
            "store": False,
            "previous_response_id": previous,
        } | more
        self.connection.send(json.dumps({name: value for name, value in frame.items() if value is not None}))

    def event(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.connection.recv(timeout=PATIENCE))
        return found

    def events(self) -> list[dict[str, Any]]:
        """All events up to the one that ends an answer."""
        found = [self.event()]
        while found[-1]["type"] not in ENDS:
            found.append(self.event())
        return found

    def ask(self, said: Any, previous: str | None = None, **more: Any) -> dict[str, Any]:
        """The answer."""
        self.send(said, previous, **more)
        last = self.events()[-1]
        assert last["type"] == "response.completed", last
        answer: dict[str, Any] = last["response"]
        return answer

    def refused(self, said: Any, previous: str | None = None, **more: Any) -> dict[str, Any]:
        """The error in place of an answer."""
        self.send(said, previous, **more)
        (error,) = self.events()
        assert error["type"] == "error", error
        return error


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def text_of(answer: dict[str, Any]) -> str:
    items = [item for item in answer["output"] if item["type"] == "message"]
    return "".join(part["text"] for item in items for part in item["content"])


def outputs_for(answer: dict[str, Any], result: str) -> list[dict[str, Any]]:
    calls = [item for item in answer["output"] if item["type"] == "function_call"]
    assert [call["name"] for call in calls] == ["get_weather"]
    return [{"type": "function_call_output", "call_id": call["call_id"], "output": result} for call in calls]


@contextmanager
def opened(place: Place, upstream: str | None, key: str = "any", query: str = "") -> Iterator[Socket]:
    url = place.base_url.replace("http://", "ws://") + "/v1/responses" + query
    headers = BETA | {"authorization": f"Bearer {key}"}
    with connect(url, additional_headers=headers, max_size=None) as connection:
        yield Socket(connection, None if upstream is None else model_of(upstream))
