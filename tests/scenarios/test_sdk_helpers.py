"""Tool loops, stream accumulators and typed output of the official SDKs, on upstreams of every other protocol."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from pydantic import BaseModel

from tests.support.deadlines import DEADLINE
from tests.support.gateway.setup import GatewaySetup, routed_model, serve_gateway
from tests.support.gateway.tool_loop_task import (
    EXPECTED_CALLS,
    NOTE_RESULT,
    TASK,
    TaskTools,
    assign_task,
    check_upstream_history,
    task_simulator,
)
from tests.support.sdk.clients import API_KEY, SDK_CLIENTS


@pytest.fixture(scope="module")
def only_task() -> Iterator[GatewaySetup]:
    with serve_gateway(task_simulator()) as gateway_setup:
        yield gateway_setup


@pytest.fixture
def task(only_task: GatewaySetup) -> GatewaySetup:
    return assign_task(only_task)


class Weather(BaseModel):
    city: str


class Note(BaseModel):
    text: str
    number: int


class Verdict(BaseModel):
    better: str
    degrees: int
    sure: bool


def anthropic_tool_runner(base_url: str, model: str, tools: TaskTools) -> str:
    with anthropic.Anthropic(base_url=base_url, api_key=API_KEY, max_retries=0, timeout=DEADLINE) as client:
        runner = client.beta.messages.tool_runner(
            model=model,
            max_tokens=2000,
            tools=[anthropic.beta_tool(tools.get_weather), anthropic.beta_tool(tools.save_note)],
            messages=[{"role": "user", "content": TASK}],
        )
        return "".join(block.text for block in runner.until_done().content if block.type == "text")


def anthropic_streaming_tool_runner(base_url: str, model: str, tools: TaskTools) -> str:
    with anthropic.Anthropic(base_url=base_url, api_key=API_KEY, max_retries=0, timeout=DEADLINE) as client:
        runner = client.beta.messages.tool_runner(
            model=model,
            max_tokens=2000,
            tools=[anthropic.beta_tool(tools.get_weather), anthropic.beta_tool(tools.save_note)],
            messages=[{"role": "user", "content": TASK}],
            stream=True,
        )
        text = ""
        for stream in runner:
            text = "".join(event.text for event in stream if event.type == "text")
        return text


DECLARED = [
    openai.pydantic_function_tool(Weather, name="get_weather"),
    openai.pydantic_function_tool(Note, name="save_note"),
]


def openai_responses_stream(base_url: str, model: str, tools: TaskTools) -> str:
    history: list[Any] = [{"role": "user", "content": TASK}]
    with openai.OpenAI(base_url=f"{base_url}/v1", api_key=API_KEY, max_retries=0, timeout=DEADLINE) as client:
        while True:
            with client.responses.stream(model=model, input=history, tools=DECLARED, store=False) as stream:
                text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
                response = stream.get_final_response()
            if not (results := _answers(tools, response)):
                assert text == response.output_text
                return text
            history += [*response.output, *results]


def openai_responses_parse(base_url: str, model: str, tools: TaskTools) -> Any:
    history: list[Any] = [{"role": "user", "content": TASK}]
    with openai.OpenAI(base_url=f"{base_url}/v1", api_key=API_KEY, max_retries=0, timeout=DEADLINE) as client:
        while True:
            response = client.responses.parse(
                model=model, input=history, tools=DECLARED, text_format=Verdict, store=False
            )
            if not (results := _answers(tools, response)):
                return response.output_parsed
            history += [*response.output, *results]


def _answers(tools: TaskTools, response: Any) -> list[Any]:
    return [
        {
            "type": "function_call_output",
            "call_id": item.call_id,
            "output": _run(tools, item.name, item.parsed_arguments),
        }
        for item in response.output
        if item.type == "function_call"
    ]


def openai_chat_stream(base_url: str, model: str, tools: TaskTools) -> str:
    history: list[Any] = [{"role": "user", "content": TASK}]
    with openai.OpenAI(base_url=f"{base_url}/v1", api_key=API_KEY, max_retries=0, timeout=DEADLINE) as client:
        while True:
            with client.chat.completions.stream(model=model, messages=history, tools=DECLARED) as stream:
                text = "".join(event.delta for event in stream if event.type == "content.delta")
                message = stream.get_final_completion().choices[0].message
            if not message.tool_calls:
                assert text == message.content
                return text
            history += [message.to_dict(), *_results(tools, message)]


def openai_chat_parse(base_url: str, model: str, tools: TaskTools) -> Any:
    history: list[Any] = [{"role": "user", "content": TASK}]
    with openai.OpenAI(base_url=f"{base_url}/v1", api_key=API_KEY, max_retries=0, timeout=DEADLINE) as client:
        while True:
            completion = client.chat.completions.parse(
                model=model, messages=history, tools=DECLARED, response_format=Verdict
            )
            message = completion.choices[0].message
            if not message.tool_calls:
                return message.parsed
            history += [message.to_dict(), *_results(tools, message)]


def _results(tools: TaskTools, message: Any) -> list[Any]:
    return [
        {
            "role": "tool",
            "tool_call_id": call.id,
            "content": _run(tools, call.function.name, call.function.parsed_arguments),
        }
        for call in message.tool_calls
    ]


def _run(tools: TaskTools, name: str, arguments: Any) -> str:
    """Run the tool with arguments that the SDK parsed into the declared type."""
    assert isinstance(arguments, {"get_weather": Weather, "save_note": Note}[name])
    output: str = getattr(tools, name)(**arguments.model_dump())
    return output


def google_function_calling(base_url: str, model: str, tools: TaskTools) -> str:
    with genai.Client(api_key=API_KEY, http_options={"base_url": base_url}) as client:
        config: Any = {"tools": [tools.get_weather, tools.save_note]}
        return client.models.generate_content(model=model, contents=TASK, config=config).text or ""


def google_streaming_function_calling(base_url: str, model: str, tools: TaskTools) -> str:
    with genai.Client(api_key=API_KEY, http_options={"base_url": base_url}) as client:
        config: Any = {"tools": [tools.get_weather, tools.save_note]}
        chunks = client.models.generate_content_stream(model=model, contents=TASK, config=config)
        return "".join(chunk.text or "" for chunk in chunks)


HELPERS: dict[str, tuple[Callable[[str, str, TaskTools], str], str]] = {
    "anthropic tool runner": (anthropic_tool_runner, "anthropic"),
    "anthropic tool runner, streamed": (anthropic_streaming_tool_runner, "anthropic"),
    "openai responses.stream": (openai_responses_stream, "openai-responses"),
    "openai chat.completions.stream": (openai_chat_stream, "openai-chat"),
    "google function calling": (google_function_calling, "gemini"),
    "google function calling, streamed": (google_streaming_function_calling, "gemini"),
}
PARSERS: dict[str, tuple[Callable[[str, str, TaskTools], Any], str]] = {
    "openai responses.parse": (openai_responses_parse, "openai-responses"),
    "openai chat.completions.parse": (openai_chat_parse, "openai-chat"),
}


def abroad(helpers: Mapping[str, tuple[Any, str]]) -> list[tuple[str, str]]:
    return [
        (name, upstream) for name, (_, protocol) in helpers.items() for upstream in SDK_CLIENTS if upstream != protocol
    ]


@pytest.mark.parametrize(("helper", "upstream"), abroad(HELPERS))
def test_sdk_tool_loop_runs_three_steps(task: GatewaySetup, helper: str, upstream: str) -> None:
    tools = TaskTools()
    text = HELPERS[helper][0](task.base_url, routed_model(upstream), tools)
    assert tools.calls == EXPECTED_CALLS
    assert NOTE_RESULT in text
    check_upstream_history(task, upstream)


@pytest.mark.parametrize(("parser", "upstream"), abroad(PARSERS))
def test_sdk_tool_loop_returns_a_typed_result(task: GatewaySetup, parser: str, upstream: str) -> None:
    tools = TaskTools()
    verdict = PARSERS[parser][0](task.base_url, routed_model(upstream), tools)
    assert tools.calls == EXPECTED_CALLS
    assert isinstance(verdict, Verdict)
    check_upstream_history(task, upstream)
