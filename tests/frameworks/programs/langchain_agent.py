"""LangChain's agent over Chat Completions or Responses, in process."""

import asyncio
from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from task import Task, perform_tasks

import toolwire as tw


async def perform(task: Task) -> str:
    with tw.http_client(task.model, config=task.config) as http_client:
        async with tw.async_http_client(task.model, config=task.config) as http_async_client:
            model = ChatOpenAI(
                model="any",
                api_key="none",
                http_client=http_client,
                http_async_client=http_async_client,
                use_responses_api=task.protocol == "openai-responses",
                streaming=task.variant == "streamed",
            )
            agent: Any = create_agent(model, tools=[tool(task.get_weather), tool(task.save_note)])
            request = {"messages": [{"role": "user", "content": task.prompt}]}
            if task.variant == "sync":
                state = await asyncio.to_thread(agent.invoke, request)
            else:
                state = await agent.ainvoke(request)
            return str(state["messages"][-1].text)


perform_tasks(perform)
