"""The OpenAI Agents SDK over Responses or Chat Completions, streamed or not."""

import asyncio

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from task import ASKED, get_weather, save_note, tell

MODELS = {"openai-responses": OpenAIResponsesModel, "openai-chat": OpenAIChatCompletionsModel}


async def main() -> None:
    set_tracing_disabled(disabled=True)
    client = AsyncOpenAI(base_url=f"{ASKED['base_url']}/v1", api_key="a-key", max_retries=0)
    model = MODELS[ASKED["protocol"]](model=ASKED["model"], openai_client=client)
    agent = Agent(name="worker", model=model, tools=[function_tool(get_weather), function_tool(save_note)])
    if ASKED["stream"]:
        running = Runner.run_streamed(agent, ASKED["task"])
        async for _ in running.stream_events():
            pass
        tell(running.final_output)
    else:
        tell((await Runner.run(agent, ASKED["task"])).final_output)


asyncio.run(main())
