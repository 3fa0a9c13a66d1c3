"""A conversation with tools through each official SDK, all driven alike: say something, answer its calls, look.

Each keeps the history as its SDK's users do, with what the SDK gave back. `history` is open to a test that wants to
break it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

import anthropic
import ollama
import openai
import openrouter
from google import genai
from google.genai._gaos.lib import compat_errors

KEY = "a-key"


@dataclass(frozen=True)
class Tool:
    name: str
    about: str
    schema: dict[str, Any]


WEATHER = Tool(
    "get_weather",
    "The weather in a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


@dataclass(frozen=True)
class Called:
    id: str | None
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Heard:
    """What the SDK's user sees of an answer. `pieces` is how many events a stream had; one for a whole answer."""

    text: str
    calls: tuple[Called, ...] = ()
    thinking: str = ""
    pieces: int = 1


@dataclass
class Client:
    """`error` is what the SDK raises where a request is refused. `options` has the last word on what is asked."""

    error: ClassVar[type[Exception]]

    base_url: str
    model: str
    stream: bool = False
    thinking: bool = False
    tools: tuple[Tool, ...] = (WEATHER,)
    history: list[Any] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)

    def say(self, text: str) -> Heard:
        raise NotImplementedError

    def answer(self, calls: Sequence[Called], outputs: Sequence[str]) -> Heard:
        raise NotImplementedError


def _flat(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    return [{"type": "function", **_function(tool)} for tool in tools]


def _nested(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    return [{"type": "function", "function": _function(tool)} for tool in tools]


def _function(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.about, "parameters": tool.schema}


# One client for each address, kept open as in a long-lived program: most of its cost is reading certificates.


@cache
def _anthropic(base_url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=base_url, api_key=KEY, max_retries=0)


@cache
def _openai(base_url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{base_url}/v1", api_key=KEY, max_retries=0)


@cache
def _google(base_url: str) -> genai.Client:
    return genai.Client(api_key=KEY, http_options={"base_url": base_url, "retry_options": {"attempts": 1}})


@cache
def _ollama(base_url: str) -> ollama.Client:
    return ollama.Client(host=base_url)


@cache
def _openrouter(base_url: str) -> openrouter.OpenRouter:
    return openrouter.OpenRouter(api_key=KEY, server_url=f"{base_url}/api/v1")


class Anthropic(Client):
    error = anthropic.BadRequestError

    def say(self, text: str) -> Heard:
        self.history.append({"role": "user", "content": text})
        return self._ask()

    def answer(self, calls: Sequence[Called], outputs: Sequence[str]) -> Heard:
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": output}
            for call, output in zip(calls, outputs, strict=True)
        ]
        self.history.append({"role": "user", "content": results})
        return self._ask()

    def _ask(self) -> Heard:
        options: dict[str, Any] = {"model": self.model, "max_tokens": 2000, "messages": self.history}
        if self.tools:
            options["tools"] = [
                {"name": tool.name, "description": tool.about, "input_schema": tool.schema} for tool in self.tools
            ]
        if self.thinking:
            options["thinking"] = {"type": "adaptive", "display": "summarized"}
        options |= self.options
        pieces = 1
        client = _anthropic(self.base_url)
        if self.stream:
            with client.messages.stream(**options) as stream:
                pieces = len([event for event in stream if event.type == "content_block_delta"])
                message = stream.get_final_message()
        else:
            message = client.messages.create(**options)
        blocks = [block.model_dump(exclude_none=True) for block in message.content]
        self.history.append({"role": "assistant", "content": blocks})
        return Heard(
            text="".join(block["text"] for block in blocks if block["type"] == "text"),
            calls=tuple(Called(b["id"], b["name"], b["input"]) for b in blocks if b["type"] == "tool_use"),
            thinking="".join(block["thinking"] for block in blocks if block["type"] == "thinking"),
            pieces=pieces,
        )


class OpenaiChat(Client):
    error = openai.BadRequestError

    def say(self, text: str) -> Heard:
        self.history.append({"role": "user", "content": text})
        return self._ask()

    def answer(self, calls: Sequence[Called], outputs: Sequence[str]) -> Heard:
        for call, output in zip(calls, outputs, strict=True):
            self.history.append({"role": "tool", "tool_call_id": call.id, "content": output})
        return self._ask()

    def _ask(self) -> Heard:
        options: dict[str, Any] = {"model": self.model, "messages": self.history}
        if self.tools:
            options["tools"] = _nested(self.tools)
        if self.thinking:
            options["reasoning_effort"] = "high"
        options |= self.options
        pieces = 1
        client = _openai(self.base_url)
        if self.stream:
            with client.chat.completions.stream(**options) as stream:
                pieces = len([event for event in stream if event.type == "chunk"])
                message = stream.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(**options).choices[0].message
        said = message.model_dump(exclude_none=True)
        for call in said.get("tool_calls", ()):
            call["function"].pop("parsed_arguments", None)
            call.pop("index", None)
        said.pop("parsed", None)
        self.history.append(said)
        return Heard(
            text=message.content or "",
            calls=tuple(
                Called(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
                for call in said.get("tool_calls", ())
            ),
            thinking=said.get("reasoning_content", ""),
            pieces=pieces,
        )


class OpenaiResponses(Client):
    error = openai.BadRequestError

    def say(self, text: str) -> Heard:
        self.history.append({"role": "user", "content": text})
        return self._ask()

    def answer(self, calls: Sequence[Called], outputs: Sequence[str]) -> Heard:
        for call, output in zip(calls, outputs, strict=True):
            self.history.append({"type": "function_call_output", "call_id": call.id, "output": output})
        return self._ask()

    def _ask(self) -> Heard:
        options: dict[str, Any] = {"model": self.model, "input": self.history, "store": False}
        if self.tools:
            options["tools"] = [{**tool, "strict": False} for tool in _flat(self.tools)]
        if self.thinking:
            options["reasoning"] = {"effort": "high", "summary": "auto"}
        options |= self.options
        pieces = 1
        client = _openai(self.base_url)
        if self.stream:
            with client.responses.stream(**options) as stream:
                pieces = len([event for event in stream if event.type.endswith(".delta")])
                response: Any = stream.get_final_response()
        else:
            response = client.responses.create(**options)
        items = [item.model_dump(exclude_none=True) for item in response.output]
        for item in items:
            item.pop("parsed_arguments", None)
            for part in item.get("content", ()):
                part.pop("parsed", None)
        self.history += items
        return Heard(
            text=response.output_text,
            calls=tuple(
                Called(item["call_id"], item["name"], json.loads(item["arguments"]))
                for item in items
                if item["type"] == "function_call"
            ),
            thinking="".join(
                part["text"] for item in items if item["type"] == "reasoning" for part in item.get("summary", ())
            ),
            pieces=pieces,
        )


class Gemini(Client):
    error = genai.errors.ClientError

    def say(self, text: str) -> Heard:
        self.history.append({"role": "user", "parts": [{"text": text}]})
        return self._ask()

    def answer(self, calls: Sequence[Called], outputs: Sequence[str]) -> Heard:
        parts = [
            {"function_response": {"id": call.id, "name": call.name, "response": {"output": output}}}
            for call, output in zip(calls, outputs, strict=True)
        ]
        self.history.append({"role": "user", "parts": parts})
        return self._ask()

    def _ask(self) -> Heard:
        config: dict[str, Any] = {}
        if self.tools:
            declared = [
                {"name": tool.name, "description": tool.about, "parameters_json_schema": tool.schema}
                for tool in self.tools
            ]
            config["tools"] = [{"function_declarations": declared}]
        if self.thinking:
            config["thinking_config"] = {"include_thoughts": True}
        config |= self.options
        asked: dict[str, Any] = {"model": self.model, "contents": self.history, "config": config}
        client = _google(self.base_url)
        if self.stream:
            chunks = list(client.models.generate_content_stream(**asked))
        else:
            chunks = [client.models.generate_content(**asked)]
        parts = [
            part
            for chunk in chunks
            for candidate in chunk.candidates or ()
            for part in (candidate.content.parts if candidate.content else None) or ()
        ]
        self.history.append({"role": "model", "parts": parts})
        return Heard(
            text="".join(part.text or "" for part in parts if not part.thought),
            calls=tuple(
                Called(part.function_call.id, part.function_call.name or "", dict(part.function_call.args or {}))
                for part in parts
                if part.function_call is not None
            ),
            thinking="".join(part.text or "" for part in parts if part.thought),
            pieces=len(chunks),
        )


class GeminiInteractions(Client):
    error = compat_errors.BadRequestError

    def say(self, text: str) -> Heard:
        self.history.append({"type": "user_input", "content": [{"type": "text", "text": text}]})
        return self._ask()

    def answer(self, calls: Sequence[Called], outputs: Sequence[str]) -> Heard:
        for call, output in zip(calls, outputs, strict=True):
            self.history.append({"type": "function_result", "call_id": call.id, "name": call.name, "result": output})
        return self._ask()

    def _ask(self) -> Heard:
        asked: dict[str, Any] = {"model": self.model, "input": self.history, "store": False}
        if self.tools:
            asked["tools"] = _flat(self.tools)
        if self.thinking:
            asked["generation_config"] = {"thinking_level": "high", "thinking_summaries": "auto"}
        asked |= self.options
        pieces = 1
        client = _google(self.base_url)
        if self.stream:
            events = [event.model_dump(exclude_none=True) for event in client.interactions.create(**asked, stream=True)]
            steps, pieces = _steps(events), len([event for event in events if event["event_type"] == "step.delta"])
        else:
            interaction = client.interactions.create(**asked)
            steps = [step.model_dump(exclude_none=True) for step in interaction.steps or ()]
        self.history += steps
        return Heard(
            text="".join(p["text"] for step in steps if step["type"] == "model_output" for p in step["content"]),
            calls=tuple(
                Called(step["id"], step["name"], step["arguments"]) for step in steps if step["type"] == "function_call"
            ),
            thinking="".join(
                part["text"] for step in steps if step["type"] == "thought" for part in step.get("summary") or ()
            ),
            pieces=pieces,
        )


def _steps(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The SDK has no accumulator for interactions: its users join deltas themselves."""
    steps: list[dict[str, Any]] = []
    arguments: dict[int, str] = {}
    for event in events:
        if event["event_type"] == "step.start":
            steps.append(event["step"])
        elif event["event_type"] == "step.delta":
            step, delta = steps[event["index"]], event["delta"]
            match delta["type"]:
                case "text":
                    step.setdefault("content", []).append({"type": "text", "text": delta["text"]})
                case "thought_summary":
                    step.setdefault("summary", []).append(delta["content"])
                case "thought_signature":
                    step["signature"] = delta["signature"]
                case "arguments_delta":
                    arguments[event["index"]] = arguments.get(event["index"], "") + delta["arguments"]
                case _:
                    raise AssertionError(delta)
    for index, text in arguments.items():
        steps[index]["arguments"] = json.loads(text)
    return steps


class Ollama(Client):
    error = ollama.ResponseError

    def say(self, text: str) -> Heard:
        self.history.append({"role": "user", "content": text})
        return self._ask()

    def answer(self, calls: Sequence[Called], outputs: Sequence[str]) -> Heard:
        for call, output in zip(calls, outputs, strict=True):
            self.history.append({"role": "tool", "tool_name": call.name, "content": output})
        return self._ask()

    def _ask(self) -> Heard:
        asked: dict[str, Any] = {"model": self.model, "messages": self.history}
        if self.tools:
            asked["tools"] = _nested(self.tools)
        if self.thinking:
            asked["think"] = True
        asked |= self.options
        client = _ollama(self.base_url)
        answers = list(client.chat(**asked, stream=True)) if self.stream else [client.chat(**asked, stream=False)]
        said = [answer.message for answer in answers]
        calls = [call for message in said for call in message.tool_calls or ()]
        whole: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(message.content or "" for message in said),
            "thinking": "".join(message.thinking or "" for message in said),
            "tool_calls": [call.model_dump() for call in calls],
        }
        self.history.append(whole)
        return Heard(
            text=whole["content"],
            calls=tuple(Called(None, call.function.name, dict(call.function.arguments)) for call in calls),
            thinking=whole["thinking"],
            pieces=len(answers),
        )


class Openrouter(Client):
    error = openrouter.errors.BadRequestResponseError

    def say(self, text: str) -> Heard:
        self.history.append({"role": "user", "content": text})
        return self._ask()

    def answer(self, calls: Sequence[Called], outputs: Sequence[str]) -> Heard:
        for call, output in zip(calls, outputs, strict=True):
            self.history.append({"role": "tool", "tool_call_id": call.id, "content": output})
        return self._ask()

    def _ask(self) -> Heard:
        asked: dict[str, Any] = {"model": self.model, "messages": self.history}
        if self.tools:
            asked["tools"] = _nested(self.tools)
        if self.thinking:
            asked["reasoning"] = {"effort": "high"}
        asked |= self.options
        client = _openrouter(self.base_url)
        if self.stream:
            chunks = [chunk.model_dump(by_alias=True) for chunk in client.chat.send(**asked, stream=True)]
            said, pieces = (
                _joined([chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]),
                len(chunks),
            )
        else:
            answer = client.chat.send(**asked, stream=False)
            said, pieces = answer.model_dump(by_alias=True)["choices"][0]["message"], 1
        said = {name: value for name, value in said.items() if value}
        self.history.append({"role": "assistant", **said})
        return Heard(
            text=said.get("content", ""),
            calls=tuple(
                Called(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
                for call in said.get("tool_calls", ())
            ),
            thinking=said.get("reasoning", ""),
            pieces=pieces,
        )


def _joined(deltas: list[dict[str, Any]]) -> dict[str, Any]:
    """A message from the deltas of a stream, as its documentation tells users to join them."""
    said: dict[str, Any] = {"content": "", "reasoning": ""}
    calls: dict[int, dict[str, Any]] = {}
    details: dict[tuple[int, str], dict[str, Any]] = {}
    for delta in deltas:
        said["content"] += delta.get("content") or ""
        said["reasoning"] += delta.get("reasoning") or ""
        for call in delta.get("tool_calls") or ():
            found = calls.setdefault(
                call["index"], {"id": call.get("id"), "type": "function", "function": {"arguments": ""}}
            )
            function = call.get("function") or {}
            found["function"]["arguments"] += function.get("arguments") or ""
            if function.get("name"):
                found["function"]["name"] = function["name"]
        for entry in delta.get("reasoning_details") or ():
            whole = details.setdefault((entry["index"], entry["type"]), {})
            for name, value in entry.items():
                grows = name in ("text", "summary", "data") and isinstance(value, str)
                whole[name] = whole.get(name, "") + value if grows else value or whole.get(name)
    said["tool_calls"] = list(calls.values())
    said["reasoning_details"] = list(details.values())
    return said


CLIENTS: dict[str, tuple[type[Client], str]] = {
    "anthropic": (Anthropic, "claude-opus-5-5"),
    "openai-chat": (OpenaiChat, "deepseek-chat"),
    "openai-responses": (OpenaiResponses, "gpt-6-astra"),
    "gemini": (Gemini, "gemini-3-pro"),
    "gemini-interactions": (GeminiInteractions, "gemini-3-pro"),
    "ollama": (Ollama, "qwen3:latest"),
    "openrouter": (Openrouter, "anthropic/claude-opus-5.5"),
}
