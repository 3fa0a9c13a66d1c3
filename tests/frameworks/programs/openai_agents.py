"""The OpenAI Agents SDK over Responses or Chat Completions, streamed or not."""

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from task import Task, perform_tasks

import toolwire as tw

MODELS = {"openai-responses": OpenAIResponsesModel, "openai-chat": OpenAIChatCompletionsModel}


async def perform(task: Task) -> str:
    if task.in_process:
        http_client = tw.async_http_client(task.model, config=task.config)
        client = AsyncOpenAI(http_client=http_client, api_key="none", max_retries=0)
    else:
        client = AsyncOpenAI(base_url=f"{task.base_url}/v1", api_key="a-key", max_retries=0)
    model = MODELS[task.protocol](model=task.model, openai_client=client)
    agent = Agent(name="worker", model=model, tools=[function_tool(task.get_weather), function_tool(task.save_note)])
    async with client:
        if task.variant == "buffered":
            return str((await Runner.run(agent, task.prompt)).final_output)
        stream = Runner.run_streamed(agent, task.prompt)
        async for _ in stream.stream_events():
            pass
        return str(stream.final_output)


set_tracing_disabled(disabled=True)
perform_tasks(perform)
