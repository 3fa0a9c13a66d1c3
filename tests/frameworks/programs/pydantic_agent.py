"""Pydantic AI's agent with the model class of each protocol, through the gateway or in process."""

import asyncio
from typing import Any

from anthropic import AsyncAnthropic
from google import genai
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from task import Task, perform_tasks

import toolwire as tw


def gateway_model(task: Task) -> Any:
    """Return the model that a server offers."""
    root, name = task.base_url, task.model
    match task.protocol:
        case "anthropic":
            return AnthropicModel(name, provider=AnthropicProvider(base_url=root, api_key="a-key"))
        case "gemini":
            return GoogleModel(name, provider=GoogleProvider(base_url=root, api_key="a-key"))
        case protocol:
            model = OpenAIChatModel if protocol == "openai-chat" else OpenAIResponsesModel
            return model(name, provider=OpenAIProvider(base_url=f"{root}/v1", api_key="a-key"))


def in_process_model(task: Task, http_client: Any) -> Any:
    """Return the model that an HTTP client of this process reaches."""
    match task.protocol:
        case "anthropic":
            anthropic = AsyncAnthropic(http_client=http_client, api_key="none")
            return AnthropicModel("any", provider=AnthropicProvider(anthropic_client=anthropic))
        case "gemini":
            google = genai.Client(http_options={"httpx_async_client": http_client}, api_key="none")
            return GoogleModel("any", provider=GoogleProvider(client=google))
        case protocol:
            model = OpenAIChatModel if protocol == "openai-chat" else OpenAIResponsesModel
            openai = AsyncOpenAI(http_client=http_client, api_key="none")
            return model("any", provider=OpenAIProvider(openai_client=openai))


async def run_agent(task: Task, model: Any) -> str:
    agent = Agent(model, tools=[task.get_weather, task.save_note])
    match task.variant:
        case "sync":
            return str((await asyncio.to_thread(agent.run_sync, task.prompt)).output)
        case "streamed":
            async with agent.run_stream(task.prompt) as stream:
                return str(await stream.get_output())
        case _:
            return str((await agent.run(task.prompt)).output)


async def perform(task: Task) -> str:
    if not task.in_process:
        return await run_agent(task, gateway_model(task))
    async with tw.async_http_client(task.model, config=task.config) as http_client:
        return await run_agent(task, in_process_model(task, http_client))


perform_tasks(perform)
