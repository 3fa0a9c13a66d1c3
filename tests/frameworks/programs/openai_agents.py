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
from task import TASK, get_weather, save_note, write_result

MODELS = {"openai-responses": OpenAIResponsesModel, "openai-chat": OpenAIChatCompletionsModel}


async def main() -> None:
    set_tracing_disabled(disabled=True)
    client = AsyncOpenAI(base_url=f"{TASK['base_url']}/v1", api_key="a-key", max_retries=0)
    model = MODELS[TASK["protocol"]](model=TASK["model"], openai_client=client)
    agent = Agent(name="worker", model=model, tools=[function_tool(get_weather), function_tool(save_note)])
    if TASK["stream"]:
        stream = Runner.run_streamed(agent, TASK["task"])
        async for _ in stream.stream_events():
            pass
        write_result(stream.final_output)
    else:
        write_result((await Runner.run(agent, TASK["task"])).final_output)


asyncio.run(main())
