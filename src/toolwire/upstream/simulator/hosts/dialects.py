"""Answers in the dialect of a host: reasoning, call ids, usage and finish words as its server writes them.

The codec writes the vendor's form. A dialect rewrites its JSON: the complete body, or each chunk of a stream.
"""

import hashlib
import re
from collections.abc import Callable
from typing import Any

import msgspec

from toolwire.codec.hosts.profile import HostProfile

Json = dict[str, Any]

_DATA = b"data: "
_REASONING = "reasoning_content"
_ALPHANUMERIC = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def host_call_id(id: str, profile: HostProfile) -> str:
    """Return a call id of the form that the host issues, the same for the same id."""
    rules = profile.tools
    if len(id) <= rules.id_limit and re.fullmatch(rules.id_pattern, id):
        return id
    number = int.from_bytes(hashlib.blake2s(id.encode()).digest())
    characters = []
    for _ in range(rules.id_limit):
        number, index = divmod(number, len(_ALPHANUMERIC))
        characters.append(_ALPHANUMERIC[index])
    return "".join(characters)


class ChatDialect:
    """Rewrites the Chat answers of one response to a host's dialect."""

    def __init__(self, profile: HostProfile) -> None:
        self._profile = profile
        self._is_thinking = False

    def adapt_body(self, body: bytes) -> bytes:
        """Rewrite a complete response."""
        answer = msgspec.json.decode(body, type=Json)
        for choice in answer.get("choices", ()):
            self._adapt_message(choice.get("message") or {})
            _adapt_finish(choice, self._profile)
        _adapt_usage(answer, self._profile)
        return msgspec.json.encode(answer)

    def adapt_stream(self, data: bytes) -> bytes:
        """Rewrite the frames of a stream; `[DONE]` and comments stay."""
        return b"".join(self._adapt_frame(frame) for frame in data.splitlines(keepends=True))

    def _adapt_frame(self, line: bytes) -> bytes:
        """Rewrite one line of a stream."""
        if not line.startswith(_DATA) or not line[len(_DATA) :].startswith(b"{"):
            return line
        chunk = msgspec.json.decode(line[len(_DATA) :], type=Json)
        for choice in chunk.get("choices", ()):
            self._adapt_message(choice.get("delta") or {}, streamed=True)
            _adapt_finish(choice, self._profile)
        _adapt_usage(chunk, self._profile)
        _add_chunk_usage(chunk, self._profile)
        return _DATA + msgspec.json.encode(chunk) + b"\n"

    def _adapt_message(self, message: Json, *, streamed: bool = False) -> None:
        """Rewrite reasoning and call ids of a message or delta."""
        for call in message.get("tool_calls") or ():
            if isinstance(call.get("id"), str):
                call["id"] = host_call_id(call["id"], self._profile)
        text = message.pop(_REASONING, None)
        fields = self._profile.reasoning.fields
        field = fields[0] if fields else _REASONING
        if field != "content":
            message |= {} if text is None else {field: text}
        elif self._profile.name == "minimax":
            self._add_tags(message, text, streamed=streamed)
        elif text is not None:
            # Mistral's parts: `{type: "thinking", thinking: [{type: "text", text}]}`.
            thought = {"type": "thinking", "thinking": [{"type": "text", "text": text}], "closed": True}
            content = message.get("content")
            message["content"] = [thought, *([{"type": "text", "text": content}] if content else [])]

    def _add_tags(self, message: Json, text: str | None, *, streamed: bool) -> None:
        """Write reasoning between `<think>` tags in the content."""
        content = message.get("content") or ""
        if text is not None:
            opening = "" if self._is_thinking else "<think>"
            self._is_thinking = streamed
            message["content"] = f"{opening}{text}" if streamed else f"<think>{text}</think>{content}"
        elif self._is_thinking and (content or message.get("tool_calls")):
            self._is_thinking = False
            message["content"] = f"</think>{content}"


def _adapt_finish(choice: Json, profile: HostProfile) -> None:
    """Rewrite the finish reason: Mistral's models end with `model_length` at their limit."""
    if profile.name == "mistral" and choice.get("finish_reason") == "length":
        choice["finish_reason"] = "model_length"


def _deepseek_usage(usage: Json, answer: Json) -> None:
    """Add the cache counts of DeepSeek."""
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    usage["prompt_cache_hit_tokens"] = cached
    usage["prompt_cache_miss_tokens"] = usage.get("prompt_tokens", 0) - cached


def _xai_usage(usage: Json, answer: Json) -> None:
    """Exclude reasoning tokens from the completion, as xAI counts them."""
    reasoning = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens", 0)
    usage["completion_tokens"] = usage.get("completion_tokens", 0) - reasoning


def _llamacpp_usage(usage: Json, answer: Json) -> None:
    """Add the timings of llama.cpp."""
    answer["timings"] = {"prompt_n": usage.get("prompt_tokens", 0), "predicted_n": usage.get("completion_tokens", 0)}


_USAGE: dict[str, Callable[[Json, Json], None]] = {
    "deepseek": _deepseek_usage,
    "xai": _xai_usage,
    "llamacpp": _llamacpp_usage,
}


def _adapt_usage(answer: Json, profile: HostProfile) -> None:
    """Rewrite the usage of a response or chunk."""
    usage, adapt = answer.get("usage"), _USAGE.get(profile.name)
    if adapt is not None and isinstance(usage, dict):
        adapt(usage, answer)


def _add_chunk_usage(chunk: Json, profile: HostProfile) -> None:
    """Repeat the usage of a chunk where the host has another place for it in streams."""
    usage = chunk.get("usage")
    if profile.name == "groq" and isinstance(usage, dict):
        chunk["x_groq"] = {"id": chunk.get("id"), "usage": usage}
