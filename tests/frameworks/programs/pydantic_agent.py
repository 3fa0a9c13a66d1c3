"""Pydantic AI's agent with the model class of each protocol, streamed or not."""

import asyncio
from collections.abc import Callable
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from task import TASK, get_weather, save_note, write_result

ROOT, NAME = TASK["base_url"], TASK["model"]


def openai() -> OpenAIProvider:
    return OpenAIProvider(base_url=f"{ROOT}/v1", api_key="a-key")


MODELS: dict[str, Callable[[], Any]] = {
    "anthropic": lambda: AnthropicModel(NAME, provider=AnthropicProvider(base_url=ROOT, api_key="a-key")),
    "openai-chat": lambda: OpenAIChatModel(NAME, provider=openai()),
    "openai-responses": lambda: OpenAIResponsesModel(NAME, provider=openai()),
    "gemini": lambda: GoogleModel(NAME, provider=GoogleProvider(base_url=ROOT, api_key="a-key")),
}


async def main() -> None:
    agent = Agent(MODELS[TASK["protocol"]](), tools=[get_weather, save_note])
    if TASK["stream"]:
        async with agent.run_stream(TASK["task"]) as stream:
            write_result(await stream.get_output())
    else:
        write_result((await agent.run(TASK["task"])).output)


asyncio.run(main())
