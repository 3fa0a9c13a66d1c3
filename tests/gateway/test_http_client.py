"""SDK clients on any model, in process: buffered and streamed, synchronous and asynchronous."""

import asyncio
import json
import socket
from collections.abc import Callable, Generator
from typing import Any, TypeAlias

import anthropic
import openai
import pytest
from google import genai

import toolwire
from tests.support.deadlines import DEADLINE
from tests.support.servers.asgi import serve_app
from toolwire.gateway.config import Config, ProviderSection
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.script import parse_script

WEATHER: Any = {
    "name": "weather",
    "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
HELLO: Any = [{"role": "user", "content": "Hi"}]
PROMPT: Any = [{"role": "user", "content": 'weather {"city": "Oslo"}'}]


ToolLoop: TypeAlias = Generator[Any, Any, str]
"""A tool loop that yields the requests of an SDK, gets the responses, and returns the answer."""


def anthropic_loop(client: Any) -> ToolLoop:
    options: dict[str, Any] = {"model": "any", "max_tokens": 500, "tools": [WEATHER]}
    message = yield client.messages.create(messages=PROMPT, **options)
    (call,) = [block for block in message.content if block.type == "tool_use"]
    assert call.input == {"city": "Oslo"}
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "rain"}
    history = [*PROMPT, {"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
    message = yield client.messages.create(messages=history, **options)
    return str(message.content[0].text)


def chat_loop(client: Any) -> ToolLoop:
    function = {"name": "weather", "parameters": WEATHER["input_schema"]}
    options: dict[str, Any] = {"model": "any", "tools": [{"type": "function", "function": function}]}
    completion = yield client.chat.completions.create(messages=PROMPT, **options)
    message = completion.choices[0].message
    (call,) = message.tool_calls
    assert json.loads(call.function.arguments) == {"city": "Oslo"}
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    completion = yield client.chat.completions.create(messages=[*PROMPT, message, result], **options)
    return str(completion.choices[0].message.content)


def responses_loop(client: Any) -> ToolLoop:
    tool = {"type": "function", "name": "weather", "parameters": WEATHER["input_schema"], "strict": False}
    options: dict[str, Any] = {"model": "any", "tools": [tool], "store": False}
    response = yield client.responses.create(input=PROMPT, **options)
    (call,) = [item for item in response.output if item.type == "function_call"]
    assert json.loads(call.arguments) == {"city": "Oslo"}
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    response = yield client.responses.create(input=[*PROMPT, *response.output, result], **options)
    return str(response.output_text)


def google_loop(client: Any) -> ToolLoop:
    declaration = {"name": "weather", "parameters_json_schema": WEATHER["input_schema"]}
    options: dict[str, Any] = {"model": "any", "config": {"tools": [{"function_declarations": [declaration]}]}}
    prompt = {"role": "user", "parts": [{"text": PROMPT[0]["content"]}]}
    response = yield client.models.generate_content(contents=[prompt], **options)
    (call,) = response.function_calls
    assert call.args == {"city": "Oslo"}
    part = {"function_response": {"id": call.id, "name": "weather", "response": {"result": "rain"}}}
    history = [prompt, response.candidates[0].content, {"role": "user", "parts": [part]}]
    response = yield client.models.generate_content(contents=history, **options)
    return str(response.text)


def run_loop(loop: ToolLoop) -> str:
    """Run a loop with a synchronous client, whose requests are their responses."""
    response = None
    while True:
        try:
            response = loop.send(response)
        except StopIteration as end:
            return str(end.value)


async def run_loop_async(loop: ToolLoop) -> str:
    """Run a loop with an asynchronous client."""
    response = None
    while True:
        try:
            response = await loop.send(response)
        except StopIteration as end:
            return str(end.value)


SDKS: dict[str, tuple[Callable[[Any], ToolLoop], type[Any], type[Any]]] = {
    "anthropic": (anthropic_loop, anthropic.Anthropic, anthropic.AsyncAnthropic),
    "openai-chat": (chat_loop, openai.OpenAI, openai.AsyncOpenAI),
    "openai-responses": (responses_loop, openai.OpenAI, openai.AsyncOpenAI),
    "gemini": (google_loop, genai.Client, genai.Client),
}
MODELS = {
    "anthropic": "anthropic/claude-sonnet-4-5",
    "openai-responses": "openai/gpt-5.5",
    "gemini": "gemini/gemini-3-pro",
    "ollama": "ollama/qwen3:8b",
    "openrouter": "openrouter/anthropic/claude-sonnet-4.5",
}


@pytest.mark.parametrize(("sdk", "upstream"), [(sdk, name) for sdk in SDKS for name in MODELS if name != sdk])
def test_sdk_runs_a_tool_loop_on_other_models(sdk: str, upstream: str) -> None:
    loop, build, build_async = SDKS[sdk]
    with toolwire.http_client(MODELS[upstream]) as http_client:
        options: Any = {"httpx_client": http_client} if sdk == "gemini" else http_client
        client = build(api_key="none", **{"http_options" if sdk == "gemini" else "http_client": options})
        assert "rain" in run_loop(loop(client))

    async def run_async() -> str:
        async with toolwire.async_http_client(MODELS[upstream]) as http_client:
            if sdk == "gemini":
                google = build_async(api_key="none", http_options={"httpx_async_client": http_client})
                return await run_loop_async(loop(google.aio))
            return await run_loop_async(loop(build_async(api_key="none", http_client=http_client)))

    assert "rain" in asyncio.run(run_async())


def test_openai_and_google_sdks_run_on_an_anthropic_model() -> None:
    with openai.OpenAI(http_client=toolwire.http_client("anthropic/claude-sonnet-4-5"), api_key="none") as client:
        chunks = client.chat.completions.create(model="any", messages=HELLO, stream=True)
        assert "Hi" in "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert "Hi" in client.responses.create(model="any", input="Hi").output_text
    with toolwire.http_client("anthropic/claude-sonnet-4-5") as http_client:
        google = genai.Client(api_key="none", http_options={"httpx_client": http_client})  # type: ignore[arg-type]
        response = google.models.generate_content(model="any", contents="Hi")
        assert "Hi" in (response.text or "")


def test_asynchronous_clients_stream_from_any_loop() -> None:
    async def main() -> list[str]:
        http_client = toolwire.async_http_client("openai/gpt-5.5")
        async with anthropic.AsyncAnthropic(http_client=http_client, api_key="none") as client:

            async def ask(number: int) -> str:
                prompt: Any = [{"role": "user", "content": f"number {number}"}]
                async with client.messages.stream(model="any", max_tokens=500, messages=prompt) as stream:
                    return "".join([text async for text in stream.text_stream])

            return await asyncio.gather(*map(ask, range(5)))

    assert all(f"number {index}" in text for index, text in enumerate(asyncio.run(main())))


def test_errors_are_those_of_the_sdk_and_losses_are_in_the_headers() -> None:
    with openai.OpenAI(http_client=toolwire.http_client("anthropic/claude-sonnet-4-5"), api_key="none") as client:
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model="any", messages=HELLO, extra_body={"tools": 5})
        raw = client.chat.completions.with_raw_response.create(model="any", messages=HELLO, seed=7)
    assert "/seed" in raw.headers["toolwire-losses"]


def test_without_a_model_names_are_routed_and_unknown_ones_are_errors() -> None:
    with openai.OpenAI(http_client=toolwire.http_client(), api_key="none") as client:
        response = client.responses.create(model="gemini/gemini-3-pro", input="Hi")
        assert "gemini" in response.model
        names = [model.id for model in client.models.list()]
    assert names


def test_reader_that_leaves_frees_the_upstream() -> None:
    """A closed stream ends the exchange, and the next request is served."""
    script = {"turns": [{"text": "word " * 20_000}, {"text": "second"}]}
    simulator = Simulator(["openai-chat"], script=parse_script(json.dumps(script).encode(), "script", toml=False))
    with serve_app(simulator) as address:
        up = ProviderSection(protocol="openai-chat", base_url=address, api_key="k" * 20)
        http_client = toolwire.http_client("up/m", config=Config(providers={"up": up}))
        with anthropic.Anthropic(http_client=http_client, api_key="none") as client:
            with client.messages.stream(model="any", max_tokens=500, messages=PROMPT) as stream:
                next(iter(stream.text_stream))
            message = client.messages.create(model="any", max_tokens=500, messages=PROMPT)
    assert message.content[0].text == "second"  # type: ignore[union-attr]


def test_closed_client_stops_its_simulator() -> None:
    client: Any = toolwire.http_client("openai/gpt-5.5")
    assert client.get("/v1/models").status_code == 200
    address = client._transport._gateway._gateway.simulator_socket.getsockname()
    socket.create_connection(address, DEADLINE).close()
    client.close()
    with pytest.raises(ConnectionError):
        socket.create_connection(address, DEADLINE)
    with pytest.raises(toolwire.ToolwireError, match="closed"):
        toolwire_request_after_close(client)


def toolwire_request_after_close(client: Any) -> None:
    """Send a request past the client's own check, as an SDK that kept the transport could."""
    client._transport.handle_request(client.build_request("GET", "/v1/models"))
