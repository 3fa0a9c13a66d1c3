"""Streams through the official SDKs: SSE decoders, event types and accumulators.

The Python accumulators tolerate errors that the TypeScript ones and the vendors' tool runners do not. These rules are
checked here on the decoded events, so that every official client can read a stream that folds.
"""

import warnings
from functools import cache
from typing import Any, Literal, cast

import anthropic
import httpx2
import openai
from anthropic import not_given
from anthropic.lib.streaming import BetaMessageStream
from anthropic.types.beta import BetaRawMessageStreamEvent
from openai import omit
from openai.lib.streaming.chat import ChatCompletionStream
from openai.lib.streaming.responses import ResponseStream
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import Choice, ChoiceDelta, ChoiceDeltaToolCall
from openai.types.responses import ResponseStreamEvent

from tests.support.deadlines import DEADLINE
from tests.support.sdk.summaries import Summary, summary

TERMINAL_RESPONSES_EVENTS = ("response.completed", "response.incomplete", "response.failed")


class _CallFragment(ChoiceDeltaToolCall):
    # The published delta type only has function calls; the accumulator also joins the text of custom calls.
    type: Literal["function", "custom"] | None = None  # type: ignore[assignment]


class _Delta(ChoiceDelta):
    tool_calls: list[_CallFragment] | None = None  # type: ignore[assignment]


class _Choice(Choice):
    delta: _Delta


class _Chunk(ChatCompletionChunk):
    choices: list[_Choice]  # type: ignore[assignment]


EVENTS: dict[str, Any] = {
    "anthropic": BetaRawMessageStreamEvent,
    "openai-chat": _Chunk,
    "openai-responses": ResponseStreamEvent,
}


class InvalidStream(ValueError):
    """A stream that an official client would not read to its end."""


def fold_stream(protocol: str, wire: bytes, *, tolerant: bool = False) -> Summary:
    """Fold a raw stream as the vendor's SDK does; raise the SDK's error or `InvalidStream`.

    `tolerant` skips checks beyond those of the Python SDK, for servers that imitate a protocol.
    """
    return summary(protocol, fold_body(protocol, wire, tolerant=tolerant))


def fold_body(protocol: str, wire: bytes, *, tolerant: bool = False) -> dict[str, Any]:
    """Return the complete response body that the SDK's accumulator builds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the accumulators serialise what they never validated, and warn of it
        if not tolerant:
            _CHECKS[protocol](list(_raw_stream(protocol, EVENTS[protocol], wire, strict=True)))
        return _FOLDS[protocol](wire)


def _raw_stream(protocol: str, event_type: Any, wire: bytes, *, strict: bool = False) -> Any:
    """Iterate over a stream with the SDK's reader; `strict` validates each event, which the SDK does not by default."""
    response = httpx2.Response(
        200,
        headers={"content-type": "text/event-stream"},
        content=wire,
        request=httpx2.Request("POST", "https://api.invalid/"),
    )
    if protocol == "anthropic":
        return anthropic.Stream(cast_to=event_type, response=response, client=_anthropic_client(strict))
    return openai.Stream(cast_to=event_type, response=response, client=_openai_client(strict))


@cache
def _anthropic_client(strict: bool) -> anthropic.Anthropic:
    return anthropic.Anthropic(api_key="unused", _strict_response_validation=strict, timeout=DEADLINE)


@cache
def _openai_client(strict: bool) -> openai.OpenAI:
    return openai.OpenAI(api_key="unused", _strict_response_validation=strict, timeout=DEADLINE)


def _fold_anthropic(wire: bytes) -> dict[str, Any]:
    raw = _raw_stream("anthropic", BetaRawMessageStreamEvent, wire)
    stream: Any = BetaMessageStream(raw, output_format=not_given)
    return _plain(stream.get_final_message())


def _fold_chat(wire: bytes) -> dict[str, Any]:
    raw = _raw_stream("openai-chat", ChatCompletionChunk, wire)
    stream: Any = ChatCompletionStream(raw_stream=raw, response_format=omit, input_tools=omit)
    return _plain(stream.until_done().current_completion_snapshot)


def _fold_responses(wire: bytes) -> dict[str, Any]:
    raw = _raw_stream("openai-responses", ResponseStreamEvent, wire)
    stream: Any = ResponseStream(raw_stream=raw, text_format=omit, input_tools=omit, starting_after=None)
    final: Any = None
    for event in stream:
        if event.type == "error":
            raise InvalidStream(f"error event: {event.message}")
        if event.type in TERMINAL_RESPONSES_EVENTS:
            final = event.response
    if final is None:
        raise InvalidStream("no terminal event")
    return _plain(final)


def _plain(model: Any) -> dict[str, Any]:
    plain: dict[str, Any] = model.to_dict(mode="json", warnings=False)
    return plain


def _check_anthropic(events: list[Any]) -> None:
    _require(bool(events) and events[0].type == "message_start", 'no "message_start" at the beginning')
    _require(events[-1].type == "message_stop", 'no "message_stop" at the end')
    _require([event.type for event in events].count("message_start") == 1, 'a second "message_start"')
    block_count, block_open, stop_seen = 0, False, False
    for event in events:
        match event.type:
            case "content_block_start":
                _require(not block_open, f"block {event.index} starts inside another")
                _require(event.index == block_count, f"block {event.index} starts where {block_count} is next")
                block_count, block_open = block_count + 1, True
            case "content_block_delta":
                _require(
                    block_open and event.index == block_count - 1, f"delta for block {event.index}, not the open one"
                )
            case "content_block_stop":
                _require(
                    block_open and event.index == block_count - 1, f"stop of block {event.index}, not the open one"
                )
                block_open = False
            case "message_delta":
                _require(not block_open, "message_delta inside a block")
                stop_seen = event.delta.stop_reason is not None
            case _:
                pass
    _require(stop_seen, "no stop_reason")


def _check_chat(chunks: list[Any]) -> None:
    _require(bool(chunks), "no chunk")
    roles: dict[int, int] = {}
    finished: set[int] = set()
    calls: dict[tuple[int, int], dict[str, Any]] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            _require(choice.index not in finished or _is_idle(choice.delta), "content after finish_reason")
            roles[choice.index] = roles.get(choice.index, 0) + bool(choice.delta.role)
            if choice.finish_reason:
                finished.add(choice.index)
            for fragment in choice.delta.tool_calls or ():
                key = (choice.index, fragment.index)
                if key not in calls:
                    _require(fragment.index == sum(c == choice.index for c, _ in calls), "a gap in the call indices")
                    calls[key] = fragment.to_dict()
                    _require(bool(fragment.id and fragment.type), "a call opens without id or type")
                    _require(_has_function_name(calls[key]), "a call opens without a name")
                else:
                    _require(not _repeats_identity(fragment), "id or name sent twice: the SDK joins them")
    _require(all(count == 1 for count in roles.values()), "role must be said once per choice")
    _require(finished == set(roles), "a choice without finish_reason")


def _is_idle(delta: Any) -> bool:
    return not any(delta.to_dict().values())


def _has_function_name(fragment: dict[str, Any]) -> bool:
    callee = fragment.get("function") or fragment.get("custom") or {}
    return bool(callee.get("name"))


def _repeats_identity(fragment: Any) -> bool:
    return bool(fragment.id or (fragment.function and fragment.function.name))


def _check_responses(events: list[Any]) -> None:
    if events and events[-1].type == "error":
        return
    _require(bool(events) and events[-1].type in TERMINAL_RESPONSES_EVENTS, "no terminal event at the end")
    numbers = [event.sequence_number for event in events]
    _require(numbers == list(range(numbers[0], numbers[0] + len(numbers))), "sequence_number has a gap")
    texts: dict[tuple[int, str, int], str] = {}
    items: dict[int, Any] = {}
    for event in events:
        match event.type:
            case "response.output_text.delta" | "response.refusal.delta" | "response.reasoning_text.delta":
                _append(texts, (event.output_index, "content", event.content_index), event.delta)
            case "response.reasoning_summary_text.delta":
                _append(texts, (event.output_index, "summary", event.summary_index), event.delta)
            case "response.function_call_arguments.delta" | "response.mcp_call_arguments.delta":
                _append(texts, (event.output_index, "arguments", 0), event.delta)
            case "response.custom_tool_call_input.delta":
                _append(texts, (event.output_index, "input", 0), event.delta)
            case "response.code_interpreter_call_code.delta":
                _append(texts, (event.output_index, "code", 0), event.delta)
            case "response.output_item.done":
                items[event.output_index] = event.item.to_dict()
            case _:
                pass
    for (index, field, position), text in texts.items():
        if index in items:
            _require(
                _item_text(items[index], field, position) == text, f"deltas of item {index} differ from the done item"
            )
    _require(sorted(items) == list(range(len(items))), "output_index has a gap")
    final = events[-1].response.to_dict().get("output")
    if final is not None and events[-1].type == "response.completed":
        streamed = [_comparable(items[index]) for index in sorted(items)]
        _require([_comparable(item) for item in final] == streamed, "completed output differs from the done items")


def _comparable(item: dict[str, Any]) -> dict[str, Any]:
    # The vendor encrypts again for the terminal event: same content, different bytes.
    return {key: value for key, value in item.items() if key != "encrypted_content"}


def _append(texts: dict[tuple[int, str, int], str], key: tuple[int, str, int], delta: str) -> None:
    texts[key] = texts.get(key, "") + delta


def _item_text(item: dict[str, Any], field: str, position: int) -> str | None:
    value = item.get(field)
    if isinstance(value, list):
        part = value[position]
        return cast("str", part["refusal"] if part["type"] == "refusal" else part["text"])
    return cast("str | None", value)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidStream(message)


_FOLDS = {"anthropic": _fold_anthropic, "openai-chat": _fold_chat, "openai-responses": _fold_responses}
_CHECKS = {"anthropic": _check_anthropic, "openai-chat": _check_chat, "openai-responses": _check_responses}
