"""Scripts: exact turns and scripted failures."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import openai
import pytest
from msgspec import Raw

from tests.support.clock import Clock
from tests.support.deadlines import DEADLINE, wait_until
from tests.support.samples.text_calls import parse_text
from tests.support.sdk.clients import SDK_CLIENTS
from tests.support.servers.asgi import http_client, serve_app
from toolwire.translation.stages.tool_call_parsers.registry import DIALECTS
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.script import Script, ScriptError, parse_script


def script(text: str) -> Script:
    return parse_script(text.encode(), "turns.toml")


CHAT = {"model": "gpt-6-astra", "messages": [{"role": "user", "content": "Hi"}]}
TURNS = """
[[turns]]
when = "Play."
thinking = "Two of them."
text = "Let me see."
calls = [{name = "get_weather", arguments = {city = "Oslo"}}, {name = "get_weather", arguments = {city = "Rome"}}]

[[turns]]
when = "Play."
text = "Both are fine."
"""


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    """Serve a script that repeats the turns above and fails on request."""
    failing = "[[turns]]\nwhen = 'Fail.'\nrepeat = 0\nerror = {kind = 'invalid_request', message = 'Not today.'}\n"
    with serve_app(Simulator(script=script(TURNS * 2 * len(SDK_CLIENTS) + failing))) as url:
        yield url


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("protocol", SDK_CLIENTS)
def test_turns_are_played_in_every_protocol(base_url: str, protocol: str, stream: bool) -> None:
    kind, model = SDK_CLIENTS[protocol]
    talk = kind(base_url, model, stream=stream, thinking=True)
    first = talk.send_text("Play.")
    assert (first.thinking, first.text) == ("Two of them.", "Let me see.")
    assert [call.arguments["city"] for call in first.calls] == ["Oslo", "Rome"]
    assert talk.send_results(first.calls, ["1", "2"]).text == "Both are fine."
    assert "And now?" in talk.send_text("And now?").text, "where no turn matches, the model answers by itself"


def chat(url: str, text: str = "Hi", **more: Any) -> httpx.Response:
    body = {**CHAT, "messages": [{"role": "user", "content": text}], **more}
    return http_client.post(f"{url}/v1/chat/completions", json=body)


def response_text(answer: httpx.Response) -> str:
    text: str = answer.json()["choices"][0]["message"]["content"]
    return text


def test_turns_match_user_text_and_repeat() -> None:
    turns = """
    turns = [
        {when = "red", text = "a rose", repeat = 2},
        {when = "blue", text = "the sea", repeat = 0},
        {text = "once"},
    ]
    """
    with serve_app(Simulator(["openai-chat"], script=script(turns))) as url:
        prompts = ["blue?", "red?", "green?", "red?", "blue?"]
        assert [response_text(chat(url, text)) for text in prompts] == [
            "the sea",
            "a rose",
            "once",
            "a rose",
            "the sea",
        ]
        assert "red!" in response_text(chat(url, "red!"))


def test_turns_match_the_number_of_replies() -> None:
    played = script("".join(f"[[turns]]\nafter = {n}\nrepeat = 0\ntext = 'answer {n}'\n" for n in (1, 0)))
    with serve_app(Simulator(script=played)) as url:
        messages = [{"role": "user", "content": "Hi"}]
        texts = []
        for _ in range(3):
            body = {"model": "gpt-6-astra", "messages": messages}
            completion = http_client.post(f"{url}/v1/chat/completions", json=body).json()
            assert http_client.post(f"{url}/v1/chat/completions", json=body).json()["choices"] == completion["choices"]
            texts.append(completion["choices"][0]["message"]["content"])
            messages += [{"role": "assistant", "content": texts[-1]}, {"role": "user", "content": "And?"}]
    assert texts[:2] == ["answer 0", "answer 1"]
    assert "simulated" in texts[2]


def test_scripted_arguments_need_not_be_json() -> None:
    turns = """turns = [{calls = [{name = "f", arguments = '{"a": '}]}]"""
    with serve_app(Simulator(["openai-chat"], script=script(turns))) as url:
        (call,) = chat(url).json()["choices"][0]["message"]["tool_calls"]
        assert call["function"]["arguments"] == '{"a": '


def test_script_in_json() -> None:
    played = parse_script(b'{"turns": [{"text": "Hello."}]}', "turns.json", toml=False)
    with serve_app(Simulator(["openai-chat"], script=played)) as url:
        assert response_text(chat(url)) == "Hello."


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[turns]]\ntext = 'a'\ntxet = 'b'", ["txet", "turns[0]"]),
        ("[[turns]]\ncalls = [{name = 'f', argments = {}}]", ["argments", "turns[0].calls[0]"]),
        ("turns = 5", ["turns"]),
        ("[[turns]]\nerror = {kind = 'strange'}", ["strange", "turns[0].error.kind"]),
        ("[[turns]", ["turns.toml"]),
        ("[[turns]]\ndialect = 'herms'", ["herms", "hermes"]),
    ],
)
def test_script_errors_name_the_location(text: str, words: list[str]) -> None:
    with pytest.raises(ScriptError) as raised:
        script(text)
    assert all(word in str(raised.value) for word in ["turns.toml", *words]), raised.value


# ---- failures


def test_scripted_error_sets_the_status() -> None:
    turns = "turns = [{error = {kind = 'rate_limit', message = 'Slowly.', retry_after = 7}}, {error = {status = 418}}]"
    with serve_app(Simulator(["openai-chat"], script=script(turns))) as url:
        first, second = chat(url), chat(url)
    assert (first.status_code, first.headers["retry-after"]) == (429, "7")
    assert first.json()["error"]["message"] == "Slowly."
    assert second.status_code == 418


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("protocol", SDK_CLIENTS)
def test_scripted_error_raises_the_sdk_error_class(base_url: str, protocol: str, stream: bool) -> None:
    kind, model = SDK_CLIENTS[protocol]
    with pytest.raises(kind.rejection, match="Not today"):
        kind(base_url, model, stream=stream).send_text("Fail.")


def test_error_after_text_breaks_the_stream() -> None:
    turns = "turns = [{text = 'One two three', error = {kind = 'overloaded', message = 'Too much.'}, repeat = 2}]"
    with serve_app(Simulator(["anthropic"], script=script(turns))) as url:
        body = {"model": "m", "max_tokens": 99, "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
        wire = http_client.post(f"{url}/v1/messages", json=body).text
        assert "three" in wire
        assert "overloaded_error" in wire
        assert "message_stop" not in wire
        with (
            anthropic.Anthropic(base_url=url, api_key="k", max_retries=0, timeout=DEADLINE) as client,
            pytest.raises(anthropic.APIStatusError),
        ):
            client.messages.create(model="m", max_tokens=99, messages=[{"role": "user", "content": "Hi"}])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_cut_closes_the_connection(stream: bool) -> None:
    with serve_app(Simulator(["openai-chat"], script=script("turns = [{text = 'One two three', cut = 2}]"))) as url:
        with pytest.raises(httpx.RemoteProtocolError):
            chat(url, stream=stream)
        assert "Hi" in response_text(chat(url))


def test_cut_stream_raises_in_the_sdk() -> None:
    with (
        serve_app(Simulator(["openai-chat"], script=script("turns = [{text = 'One two three', cut = 2}]"))) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0, timeout=DEADLINE) as client,
    ):
        stream = client.chat.completions.create(**CHAT, stream=True)  # type: ignore[call-overload]
        with pytest.raises(openai.APIConnectionError):
            list(stream)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_garbage_is_sent_verbatim(stream: bool) -> None:
    turns = "turns = [{text = 'One two three', garbage = '<html>Bad Gateway</html>'}]"
    with serve_app(Simulator(["openai-chat"], script=script(turns))) as url:
        answer = chat(url, stream=stream)
    assert answer.text.endswith("<html>Bad Gateway</html>")
    assert ("One" in answer.text) == stream


def test_turn_with_delay_and_pace(clock: Clock) -> None:
    app = Simulator(["openai-chat"], script=script("turns = [{text = 'a b c', delay = 200, pace = 100}]"))
    asked = [{"type": "http.request", "body": json.dumps({**CHAT, "stream": True}).encode()}]
    times: list[float] = []

    async def receive() -> Any:
        if not asked:
            await asyncio.Event().wait()
        return asked.pop()

    async def send(message: Any) -> None:
        if b'"content":' in message.get("body", b""):
            times.append(asyncio.get_running_loop().time())

    async def work() -> float:
        began = asyncio.get_running_loop().time()
        scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": []}
        await clock.advance_until_done(app(scope, receive, send))
        return began

    began = asyncio.run(work())
    assert times[0] - began >= 200
    assert times[-1] - times[0] >= 200, "two pauses between three pieces"


def test_endless_stream_ends_when_the_client_disconnects() -> None:
    class Watched(Simulator):
        running = 0

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            self.running += scope["type"] == "http"
            try:
                await super().__call__(scope, receive, send)
            finally:
                self.running -= scope["type"] == "http"

    app = Watched(["openai-chat"], script=script("turns = [{text = 'la la', endless = true}]"))
    with serve_app(app) as url:
        with http_client.stream("POST", f"{url}/v1/chat/completions", json={**CHAT, "stream": True}) as answer:
            lines = (line for line in answer.iter_lines() if line)
            heard = [json.loads(next(lines).removeprefix("data: ")) for _ in range(50)]
            assert app.running == 1
        assert heard[-1]["choices"][0]["delta"]["content"] == "la"
        wait_until(lambda: app.running == 0)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("protocol", ["openai-chat", "ollama"])
def test_a_turn_can_be_written_in_any_dialect(protocol: str, dialect: str) -> None:
    turns = f"""[[turns]]
    dialect = "{dialect}"
    thinking = "I look."
    [[turns.calls]]
    name = "get_weather"
    arguments = {{city = "Oslo"}}
    [[turns.calls]]
    name = "get_weather"
    arguments = {{city = "Rome"}}
    """
    kind, model = SDK_CLIENTS[protocol]
    with serve_app(Simulator([protocol], script=script(turns))) as url:
        reply = kind(url, model, stream=True, thinking=False).send_text("Hi")
    assert (reply.calls, reply.thinking) == ((), "")
    tools = {"get_weather": Raw(b'{"properties": {"city": {"type": "string"}}}')}
    reasoning, *calls = parse_text(reply.text, tools, calls=dialect)
    assert (reasoning.kind, reasoning.text) == ("reasoning", "I look.")
    assert [(call.kind, json.loads(call.text)["city"]) for call in calls] == [("call", "Oslo"), ("call", "Rome")]


def test_the_model_can_write_all_its_calls_as_text() -> None:
    tool = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}}
    with serve_app(Simulator(["openai-chat"], dialect="hermes")) as url:
        text = response_text(chat(url, "Use get_time {}", tools=[tool]))
    assert text == '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
    with pytest.raises(ValueError, match="unknown dialect 'herms'"):
        Simulator(dialect="herms")
