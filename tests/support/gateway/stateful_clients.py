"""Clients that rely on state stored by the gateway, and a gateway that can be restarted."""

from pathlib import Path
from typing import Any

import openai
from google import genai

from tests.support.deadlines import DEADLINE
from tests.support.gateway.setup import GatewaySetup, routed_model, serve_gateway
from tests.support.sdk.clients import WEATHER_TOOL
from toolwire.upstream.simulator.app import Simulator

CLIENT_KEYS = ("the-key-of-somebody", "the-key-of-another")
SYSTEM_PROMPT = "You are told this anew each time."


class RestartableGateway:
    """A gateway that can be restarted with the same state file."""

    def __init__(self, state: Path, simulator: Simulator | None = None) -> None:
        self._simulator = simulator or Simulator()
        self._more = f'[server]\nkeys = {list(CLIENT_KEYS)}\n[state]\npath = "{state}"\n'.replace("'", '"')
        self._now: Any = None
        self.setup: GatewaySetup

    def start(self) -> GatewaySetup:
        self.stop()
        self._now = serve_gateway(self._simulator, self._more)
        self.setup = self._now.__enter__()
        return self.setup

    def stop(self) -> None:
        if self._now is not None:
            self._now.__exit__(None, None, None)
        self._now = None


WEATHER_FUNCTION: Any = {
    "type": "function",
    "name": WEATHER_TOOL.name,
    "description": WEATHER_TOOL.description,
    "parameters": WEATHER_TOOL.schema,
}


def openai_client(setup: GatewaySetup, key: str = CLIENT_KEYS[0]) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{setup.base_url}/v1", api_key=key, max_retries=0, timeout=DEADLINE)


def google_client(setup: GatewaySetup, key: str = CLIENT_KEYS[0]) -> genai.Client:
    return genai.Client(api_key=key, http_options={"base_url": setup.base_url, "retry_options": {"attempts": 1}})


def create_response(
    setup: GatewaySetup,
    upstream: str,
    input_items: Any,
    *,
    stream: bool = False,
    key: str = CLIENT_KEYS[0],
    **overrides: Any,
) -> Any:
    options: dict[str, Any] = {
        "model": routed_model(upstream),
        "input": input_items,
        "instructions": SYSTEM_PROMPT,
        "tools": [WEATHER_FUNCTION | {"strict": False}],
        "reasoning": {"effort": "high", "summary": "auto"},
    } | overrides
    with openai_client(setup, key) as client:
        if not stream:
            return client.responses.create(**options)
        with client.responses.stream(**options) as events:
            for _ in events:
                pass
            return events.get_final_response()


def create_interaction(
    setup: GatewaySetup,
    upstream: str,
    input_items: Any,
    *,
    stream: bool = False,
    key: str = CLIENT_KEYS[0],
    **overrides: Any,
) -> Any:
    with google_client(setup, key) as client:
        options: dict[str, Any] = {
            "model": routed_model(upstream),
            "input": input_items,
            "system_instruction": SYSTEM_PROMPT,
            "tools": [WEATHER_FUNCTION],
            "generation_config": {"thinking_level": "high", "thinking_summaries": "auto"},
        } | overrides
        if not stream:
            return client.interactions.create(**options)
        ids = [
            event.interaction.id
            for event in client.interactions.create(stream=True, **options)
            if event.event_type == "interaction.completed"
        ]
        return client.interactions.get(ids[0])


def function_results_for(interaction: Any, result: str) -> list[dict[str, Any]]:
    calls = [step for step in interaction.steps if step.type == "function_call"]
    assert [call.name for call in calls] == ["get_weather"]
    return [{"type": "function_result", "call_id": call.id, "name": call.name, "result": result} for call in calls]
