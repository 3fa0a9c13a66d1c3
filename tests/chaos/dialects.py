"""The requests that the clients send, and the responses that they read; nothing of toolwire's code is used."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

Body = dict[str, Any]
_OUTPUT_LIMIT = 400


@dataclass(frozen=True)
class Reading:
    """A response as a client or the provider's own count sees it."""

    text: str
    is_complete: bool
    """Whether the protocol says that the response has ended well."""
    input_tokens: int = 0
    output_tokens: int = 0
    id: str = ""


@dataclass(frozen=True)
class Dialect:
    """A protocol: its path and body for a prompt, and the reader of its events."""

    name: str
    path: Callable[[str, bool], str]
    body: Callable[[str, str], Body]
    read: Callable[[list[Body]], Reading]
    """Reads the events of a stream; a complete body is its only event."""

    def read_stream(self, data: bytes) -> Reading:
        """Read a stream as received, which may be cut off."""
        return self.read([*_parse_events(data)])

    def read_body(self, data: bytes) -> Reading:
        """Read a complete body."""
        try:
            return self.read([json.loads(data)])
        except ValueError:
            return Reading("", is_complete=False)


def _parse_events(data: bytes) -> Iterable[Body]:
    """Yield the JSON payloads of an event stream or of JSON lines."""
    for line in data.decode(errors="replace").splitlines(keepends=True):
        payload = line.removeprefix("data:").strip()
        if not line.endswith("\n") or not payload.startswith(("{", "[DONE]")):
            continue
        yield {"done_marker": True} if payload == "[DONE]" else json.loads(payload)


def _read_anthropic(events: list[Body]) -> Reading:
    texts, tokens, id, ended = [], [0, 0], "", False
    for event in events:
        message = event if event.get("type") == "message" else event.get("message", {})
        id = message.get("id", id)
        usage = message.get("usage") or event.get("usage") or {}
        tokens = [usage.get("input_tokens", tokens[0]), usage.get("output_tokens", tokens[1])]
        texts += [block.get("text", "") for block in message.get("content", ())]
        texts.append(event.get("delta", {}).get("text", ""))
        ended = ended or event.get("type") == "message_stop" or bool(message.get("stop_reason"))
    return Reading("".join(texts), ended, tokens[0], tokens[1], id)


def _read_chat(events: list[Body]) -> Reading:
    texts, usage, id, ended, is_stream = [], Body(), "", False, False
    for event in events:
        id = event.get("id", id)
        usage = event.get("usage") or usage
        is_stream = is_stream or event.get("object") == "chat.completion.chunk"
        for choice in event.get("choices", ()):
            texts.append((choice.get("message") or choice.get("delta") or {}).get("content") or "")
            ended = ended or (not is_stream and bool(choice.get("finish_reason")))
        ended = ended or "done_marker" in event
    return Reading("".join(texts), ended, usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0), id)


def _read_responses(events: list[Body]) -> Reading:
    response, deltas = Body(), []
    for event in events:
        response = event if event.get("object") == "response" else event.get("response", response)
        deltas.append(event.get("delta", "") if event.get("type") == "response.output_text.delta" else "")
    items = [part for item in response.get("output", ()) for part in item.get("content", ())]
    text = "".join(deltas) if len(events) > 1 else "".join(part.get("text", "") for part in items)
    usage = response.get("usage") or {}
    ended = response.get("status") == "completed"
    return Reading(text, ended, usage.get("input_tokens", 0), usage.get("output_tokens", 0), response.get("id", ""))


def _read_gemini(events: list[Body]) -> Reading:
    texts, usage, ended = [], Body(), False
    for event in events:
        usage = event.get("usageMetadata", usage)
        for candidate in event.get("candidates", ()):
            texts += [part.get("text", "") for part in candidate.get("content", {}).get("parts", ())]
            ended = ended or candidate.get("finishReason") == "STOP"
    output = usage.get("candidatesTokenCount", 0) + usage.get("thoughtsTokenCount", 0)
    return Reading("".join(texts), ended, usage.get("promptTokenCount", 0), output)


def _read_ollama(events: list[Body]) -> Reading:
    last = events[-1] if events else {}
    text = "".join(event.get("message", {}).get("content", "") for event in events)
    return Reading(text, last.get("done") is True, last.get("prompt_eval_count", 0), last.get("eval_count", 0))


def _messages(prompt: str) -> list[Body]:
    return [{"role": "user", "content": prompt}]


def _chat_body(model: str, prompt: str) -> Body:
    return {"model": model, "max_tokens": _OUTPUT_LIMIT, "messages": _messages(prompt)}


def _gemini_body(model: str, prompt: str) -> Body:
    contents = [{"role": "user", "parts": [{"text": prompt}]}]
    return {"contents": contents, "generationConfig": {"maxOutputTokens": _OUTPUT_LIMIT}}


DIALECTS = {
    dialect.name: dialect
    for dialect in (
        Dialect("anthropic", lambda model, stream: "/v1/messages", _chat_body, _read_anthropic),
        Dialect("openai-chat", lambda model, stream: "/v1/chat/completions", _chat_body, _read_chat),
        Dialect(
            "openai-responses",
            lambda model, stream: "/v1/responses",
            lambda model, prompt: {"model": model, "max_output_tokens": _OUTPUT_LIMIT, "input": prompt},
            _read_responses,
        ),
        Dialect(
            "gemini",
            lambda model, stream: (
                f"/v1beta/models/{model}:" + ("streamGenerateContent?alt=sse" if stream else "generateContent")
            ),
            _gemini_body,
            _read_gemini,
        ),
        Dialect(
            "ollama",
            lambda model, stream: "/api/chat",
            lambda model, prompt: {
                "model": model,
                "messages": _messages(prompt),
                "options": {"num_predict": _OUTPUT_LIMIT},
            },
            _read_ollama,
        ),
    )
}
"""The protocols of the clients; all but the last are also those of the providers."""


def request_body(dialect: Dialect, model: str, prompt: str, *, stream: bool, **fields: Any) -> Body:
    """Return the body of a request; Gemini names the mode in its path.

    Chat clients request usage, because providers do not report it for streams otherwise.
    """
    mode = {} if dialect.name == "gemini" else Body(stream=stream)
    if dialect.name == "openai-chat" and stream:
        mode["stream_options"] = {"include_usage": True}
    return {**dialect.body(model, prompt), **mode, **fields}
