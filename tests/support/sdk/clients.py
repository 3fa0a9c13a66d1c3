"""A tool conversation through each official SDK, with one interface: send text, send results, inspect.

Each client keeps the history as users of its SDK do, with the objects that the SDK returned. Tests may modify `history`
to break it.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import anthropic
import ollama

from tests.support.deadlines import DEADLINE
from tests.support.sdk.client_interface import (
    API_KEY,
    WEATHER_TOOL,
    ClientTool,
    ReceivedCall,
    ReceivedResponse,
    SdkClient,
    nested_declarations,
)
from tests.support.sdk.google_clients import Gemini, GeminiInteractions
from tests.support.sdk.openai_clients import OpenaiChat, OpenaiResponses, Openrouter

__all__ = ["API_KEY", "SDK_CLIENTS", "WEATHER_TOOL", "ClientTool", "ReceivedCall", "ReceivedResponse", "SdkClient"]

# One client per URL, kept open as in a long-running program: most of its cost is loading certificates.


@cache
def _anthropic(base_url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=base_url, api_key=API_KEY, max_retries=0, timeout=DEADLINE)


@cache
def _ollama(base_url: str) -> ollama.Client:
    return ollama.Client(host=base_url)


class Anthropic(SdkClient):
    rejection = anthropic.BadRequestError

    def send_results(self, calls: Sequence[ReceivedCall], outputs: Sequence[str]) -> ReceivedResponse:
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": output}
            for call, output in zip(calls, outputs, strict=True)
        ]
        self.history.append({"role": "user", "content": results})
        return self._request()

    def _client(self) -> Any:
        return _anthropic(self.base_url)

    def _request(self) -> ReceivedResponse:
        options: dict[str, Any] = {"model": self.model, "max_tokens": 2000, "messages": self.history}
        if self.tools:
            options["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.schema} for tool in self.tools
            ]
        if self.thinking:
            options["thinking"] = {"type": "adaptive", "display": "summarized"}
        options |= self.options
        pieces = 1
        client = self._client()
        if self.stream:
            with client.messages.stream(**options) as stream:
                pieces = len([event for event in stream if event.type == "content_block_delta"])
                message = stream.get_final_message()
        else:
            message = client.messages.create(**options)
        blocks = [block.model_dump(exclude_none=True) for block in message.content]
        self.history.append({"role": "assistant", "content": blocks})
        return ReceivedResponse(
            text="".join(block["text"] for block in blocks if block["type"] == "text"),
            calls=tuple(ReceivedCall(b["id"], b["name"], b["input"]) for b in blocks if b["type"] == "tool_use"),
            thinking="".join(block["thinking"] for block in blocks if block["type"] == "thinking"),
            event_count=pieces,
        )


class Ollama(SdkClient):
    rejection = ollama.ResponseError

    def result_message(self, call: ReceivedCall, output: str) -> dict[str, Any]:
        return {"role": "tool", "tool_name": call.name, "content": output}

    def _request(self) -> ReceivedResponse:
        options: dict[str, Any] = {"model": self.model, "messages": self.history}
        if self.tools:
            options["tools"] = nested_declarations(self.tools)
        if self.thinking:
            options["think"] = True
        options |= self.options
        client = _ollama(self.base_url)
        answers = list(client.chat(**options, stream=True)) if self.stream else [client.chat(**options, stream=False)]
        messages = [answer.message for answer in answers]
        calls = [call for message in messages for call in message.tool_calls or ()]
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(message.content or "" for message in messages),
            "thinking": "".join(message.thinking or "" for message in messages),
            "tool_calls": [call.model_dump() for call in calls],
        }
        self.history.append(message)
        return ReceivedResponse(
            text=message["content"],
            calls=tuple(ReceivedCall(None, call.function.name, dict(call.function.arguments)) for call in calls),
            thinking=message["thinking"],
            event_count=len(answers),
        )


SDK_CLIENTS: dict[str, tuple[type[SdkClient], str]] = {
    "anthropic": (Anthropic, "claude-opus-5-5"),
    "openai-chat": (OpenaiChat, "deepseek-chat"),
    "openai-responses": (OpenaiResponses, "gpt-6-astra"),
    "gemini": (Gemini, "gemini-3-pro"),
    "gemini-interactions": (GeminiInteractions, "gemini-3-pro"),
    "ollama": (Ollama, "qwen3:latest"),
    "openrouter": (Openrouter, "anthropic/claude-opus-5.5"),
}
