"""Clients of Google's SDK for both of its protocols."""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from google import genai
from google.genai._gaos.lib import compat_errors

from tests.support.sdk.client_interface import API_KEY, ReceivedCall, ReceivedResponse, SdkClient, flat_declarations


@cache
def _google(base_url: str) -> genai.Client:
    return genai.Client(api_key=API_KEY, http_options={"base_url": base_url, "retry_options": {"attempts": 1}})


class Gemini(SdkClient):
    rejection = genai.errors.ClientError

    def text_message(self, text: str) -> dict[str, Any]:
        return {"role": "user", "parts": [{"text": text}]}

    def send_results(self, calls: Sequence[ReceivedCall], outputs: Sequence[str]) -> ReceivedResponse:
        parts = [
            {"function_response": {"id": call.id, "name": call.name, "response": {"output": output}}}
            for call, output in zip(calls, outputs, strict=True)
        ]
        self.history.append({"role": "user", "parts": parts})
        return self._request()

    def _client(self) -> genai.Client:
        return _google(self.base_url)

    def _request(self) -> ReceivedResponse:
        config: dict[str, Any] = {}
        if self.tools:
            declared = [
                {"name": tool.name, "description": tool.description, "parameters_json_schema": tool.schema}
                for tool in self.tools
            ]
            config["tools"] = [{"function_declarations": declared}]
        if self.thinking:
            config["thinking_config"] = {"include_thoughts": True}
        config |= self.options
        options: dict[str, Any] = {"model": self.model, "contents": self.history, "config": config}
        client = self._client()
        if self.stream:
            chunks = list(client.models.generate_content_stream(**options))
        else:
            chunks = [client.models.generate_content(**options)]
        parts = [
            part
            for chunk in chunks
            for candidate in chunk.candidates or ()
            for part in (candidate.content.parts if candidate.content else None) or ()
        ]
        self.history.append({"role": "model", "parts": parts})
        return ReceivedResponse(
            text="".join(part.text or "" for part in parts if not part.thought),
            calls=tuple(
                ReceivedCall(part.function_call.id, part.function_call.name or "", dict(part.function_call.args or {}))
                for part in parts
                if part.function_call is not None
            ),
            thinking="".join(part.text or "" for part in parts if part.thought),
            event_count=len(chunks),
        )


class GeminiInteractions(SdkClient):
    rejection = compat_errors.BadRequestError

    def text_message(self, text: str) -> dict[str, Any]:
        return {"type": "user_input", "content": [{"type": "text", "text": text}]}

    def result_message(self, call: ReceivedCall, output: str) -> dict[str, Any]:
        return {"type": "function_result", "call_id": call.id, "name": call.name, "result": output}

    def _request(self) -> ReceivedResponse:
        options: dict[str, Any] = {"model": self.model, "input": self.history, "store": False}
        if self.tools:
            options["tools"] = flat_declarations(self.tools)
        if self.thinking:
            options["generation_config"] = {"thinking_level": "high", "thinking_summaries": "auto"}
        options |= self.options
        pieces = 1
        client = _google(self.base_url)
        if self.stream:
            events = [
                event.model_dump(exclude_none=True) for event in client.interactions.create(**options, stream=True)
            ]
            steps, pieces = _steps(events), len([event for event in events if event["event_type"] == "step.delta"])
        else:
            interaction = client.interactions.create(**options)
            steps = [step.model_dump(exclude_none=True) for step in interaction.steps or ()]
        self.history += steps
        return ReceivedResponse(
            text="".join(p["text"] for step in steps if step["type"] == "model_output" for p in step["content"]),
            calls=tuple(
                ReceivedCall(step["id"], step["name"], step["arguments"])
                for step in steps
                if step["type"] == "function_call"
            ),
            thinking="".join(
                part["text"] for step in steps if step["type"] == "thought" for part in step.get("summary") or ()
            ),
            event_count=pieces,
        )


def _steps(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join deltas into steps; the SDK has no accumulator for interactions."""
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
