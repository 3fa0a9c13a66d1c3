"""Instructor's parallel calls as pydantic models, over Chat Completions, in process."""

from collections.abc import Iterable
from typing import Any

import instructor
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel
from task import Task, perform_tasks

import toolwire as tw

TURNS = 2


class get_weather(BaseModel):  # noqa: N801 - the name of the tool
    """Return the weather in a city."""

    city: str


class save_note(BaseModel):  # noqa: N801 - the name of the tool
    """Save a note."""

    text: str
    number: int


ToolCalls = Iterable[get_weather | save_note]


def answer_calls(task: Task, messages: list[Any], calls: list[Any], message: Any) -> None:
    """Perform the calls of a response, and add the response and their results to the conversation."""
    tool_calls = [sent.model_dump(exclude_none=True) for sent in message.tool_calls]
    messages.append({"role": "assistant", "content": message.content, "tool_calls": tool_calls})
    for call, sent in zip(calls, message.tool_calls, strict=True):
        result = getattr(task, type(call).__name__)(**call.model_dump())
        messages.append({"role": "tool", "tool_call_id": sent.id, "content": result})


def options(messages: list[Any]) -> dict[str, Any]:
    """Return the arguments of a request for calls."""
    return {"model": "any", "messages": messages, "response_model": ToolCalls, "tool_choice": "auto"}


def perform_sync(task: Task) -> str:
    """Perform a task with the synchronous client."""
    messages: list[Any] = [{"role": "user", "content": task.prompt}]
    with OpenAI(http_client=tw.http_client(task.model, config=task.config), api_key="none") as client:
        patched, responses = instructor.from_openai(client, mode=instructor.Mode.PARALLEL_TOOLS), list[Any]()
        patched.on("completion:response", responses.append)
        for _ in range(TURNS):
            calls = patched.chat.completions.create(**options(messages))
            answer_calls(task, messages, [*calls], responses[-1].choices[0].message)
        answer = client.chat.completions.create(model="any", messages=messages)
        return str(answer.choices[0].message.content)


async def perform(task: Task) -> str:
    if task.variant == "sync":
        return perform_sync(task)
    messages: list[Any] = [{"role": "user", "content": task.prompt}]
    async with AsyncOpenAI(http_client=tw.async_http_client(task.model, config=task.config), api_key="none") as client:
        patched, responses = instructor.from_openai(client, mode=instructor.Mode.PARALLEL_TOOLS), list[Any]()
        patched.on("completion:response", responses.append)
        for _ in range(TURNS):
            calls = await patched.chat.completions.create(**options(messages))
            answer_calls(task, messages, [*calls], responses[-1].choices[0].message)
        answer = await client.chat.completions.create(model="any", messages=messages)
        return str(answer.choices[0].message.content)


perform_tasks(perform)
