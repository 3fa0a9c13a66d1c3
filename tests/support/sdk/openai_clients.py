"""Clients of the OpenAI SDK and of the OpenRouter SDK, which uses Chat Completions."""

import json
from functools import cache
from typing import Any

import openai
import openrouter

from tests.support.deadlines import DEADLINE
from tests.support.sdk.client_interface import (
    API_KEY,
    ReceivedCall,
    ReceivedResponse,
    SdkClient,
    flat_declarations,
    nested_declarations,
)


@cache
def _openai(base_url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{base_url}/v1", api_key=API_KEY, max_retries=0, timeout=DEADLINE)


@cache
def _openrouter(base_url: str) -> openrouter.OpenRouter:
    return openrouter.OpenRouter(api_key=API_KEY, server_url=f"{base_url}/api/v1")


class OpenaiChat(SdkClient):
    rejection = openai.BadRequestError

    def result_message(self, call: ReceivedCall, output: str) -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": call.id, "content": output}

    def _request(self) -> ReceivedResponse:
        options: dict[str, Any] = {"model": self.model, "messages": self.history}
        if self.tools:
            options["tools"] = nested_declarations(self.tools)
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
        message_fields = message.model_dump(exclude_none=True)
        for call in message_fields.get("tool_calls", ()):
            call["function"].pop("parsed_arguments", None)
            call.pop("index", None)
        message_fields.pop("parsed", None)
        self.history.append(message_fields)
        return ReceivedResponse(
            text=message.content or "",
            calls=tuple(
                ReceivedCall(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
                for call in message_fields.get("tool_calls", ())
            ),
            thinking=message_fields.get("reasoning_content", ""),
            event_count=pieces,
        )


class OpenaiResponses(SdkClient):
    rejection = openai.BadRequestError

    def result_message(self, call: ReceivedCall, output: str) -> dict[str, Any]:
        return {"type": "function_call_output", "call_id": call.id, "output": output}

    def _request(self) -> ReceivedResponse:
        options: dict[str, Any] = {"model": self.model, "input": self.history, "store": False}
        if self.tools:
            options["tools"] = [{**tool, "strict": False} for tool in flat_declarations(self.tools)]
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
        return ReceivedResponse(
            text=response.output_text,
            calls=tuple(
                ReceivedCall(item["call_id"], item["name"], json.loads(item["arguments"]))
                for item in items
                if item["type"] == "function_call"
            ),
            thinking="".join(
                part["text"] for item in items if item["type"] == "reasoning" for part in item.get("summary", ())
            ),
            event_count=pieces,
        )


class Openrouter(SdkClient):
    rejection = openrouter.errors.BadRequestResponseError

    def result_message(self, call: ReceivedCall, output: str) -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": call.id, "content": output}

    def _request(self) -> ReceivedResponse:
        options: dict[str, Any] = {"model": self.model, "messages": self.history}
        if self.tools:
            options["tools"] = nested_declarations(self.tools)
        if self.thinking:
            options["reasoning"] = {"effort": "high"}
        options |= self.options
        client = _openrouter(self.base_url)
        if self.stream:
            chunks = [chunk.model_dump(by_alias=True) for chunk in client.chat.send(**options, stream=True)]
            message_fields, pieces = (
                _join_deltas([chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]),
                len(chunks),
            )
        else:
            answer = client.chat.send(**options, stream=False)
            message_fields, pieces = answer.model_dump(by_alias=True)["choices"][0]["message"], 1
        message_fields = {name: value for name, value in message_fields.items() if value}
        self.history.append({"role": "assistant", **message_fields})
        return ReceivedResponse(
            text=message_fields.get("content", ""),
            calls=tuple(
                ReceivedCall(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
                for call in message_fields.get("tool_calls", ())
            ),
            thinking=message_fields.get("reasoning", ""),
            event_count=pieces,
        )


def _join_deltas(deltas: list[dict[str, Any]]) -> dict[str, Any]:
    """Join the deltas of a stream into a message, as the vendor documents."""
    message_fields: dict[str, Any] = {"content": "", "reasoning": ""}
    calls: dict[int, dict[str, Any]] = {}
    details: dict[tuple[int, str], dict[str, Any]] = {}
    for delta in deltas:
        message_fields["content"] += delta.get("content") or ""
        message_fields["reasoning"] += delta.get("reasoning") or ""
        for call in delta.get("tool_calls") or ():
            joined = calls.setdefault(
                call["index"], {"id": call.get("id"), "type": "function", "function": {"arguments": ""}}
            )
            function = call.get("function") or {}
            joined["function"]["arguments"] += function.get("arguments") or ""
            if function.get("name"):
                joined["function"]["name"] = function["name"]
        for entry in delta.get("reasoning_details") or ():
            detail = details.setdefault((entry["index"], entry["type"]), {})
            for name, value in entry.items():
                grows = name in ("text", "summary", "data") and isinstance(value, str)
                detail[name] = detail.get(name, "") + value if grows else value or detail.get(name)
    message_fields["tool_calls"] = list(calls.values())
    message_fields["reasoning_details"] = list(details.values())
    return message_fields
