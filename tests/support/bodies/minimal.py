"""Minimal valid bodies and streams of Anthropic and OpenAI, and builders for any protocol."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from tests.support.bodies.google import (
    gemini_call,
    gemini_request,
    gemini_response,
    gemini_result,
    gemini_stream,
    gemini_tool,
    gemini_turn,
    interactions_call,
    interactions_request,
    interactions_response,
    interactions_result,
    interactions_stream,
    interactions_text,
    interactions_tool,
    interactions_turn,
)
from tests.support.bodies.ollama import (
    ollama_assistant,
    ollama_call,
    ollama_request,
    ollama_response,
    ollama_result,
    ollama_stream,
    ollama_turn,
)

Body = dict[str, Any]

CITY_SCHEMA: Body = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CITY_ARGUMENTS = '{"city":"Paris"}'
USER_MESSAGE: Body = {"role": "user", "content": "Go on."}
PNG_BASE64 = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def anthropic_request(*messages: Body, **fields: Any) -> Body:
    return {"model": "claude-sonnet-4-5", "max_tokens": 1024, "messages": list(messages or (USER_MESSAGE,)), **fields}


def anthropic_call(call_id: str, name: str = "get_weather", arguments: Any = None) -> Body:
    return {
        "type": "tool_use",
        "id": call_id,
        "name": name,
        "input": {"city": "Paris"} if arguments is None else arguments,
    }


def anthropic_result(call_id: str, content: Any = "18C", **fields: Any) -> Body:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


def anthropic_turn(calls: Sequence[Body], results: Sequence[Body], **fields: Any) -> Body:
    assistant = {"role": "assistant", "content": list(calls)}
    return anthropic_request(USER_MESSAGE, assistant, {"role": "user", "content": list(results)}, **fields)


def anthropic_response(*content: Body, stop_reason: str = "tool_use", **fields: Any) -> Body:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": list(content),
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 7},
        **fields,
    }


def anthropic_tool(name: str = "get_weather", schema: Any = None, **fields: Any) -> Body:
    return {
        "name": name,
        "description": "Weather.",
        "input_schema": CITY_SCHEMA if schema is None else schema,
        **fields,
    }


def anthropic_events(*events: Body) -> bytes:
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)


def anthropic_block(index: int, start: Body, *deltas: Body) -> list[Body]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def anthropic_call_block(index: int, call_id: str, *fragments: str, name: str = "get_weather") -> list[Body]:
    deltas = [{"type": "input_json_delta", "partial_json": fragment} for fragment in fragments or (CITY_ARGUMENTS,)]
    return anthropic_block(index, {"type": "tool_use", "id": call_id, "name": name, "input": {}}, *deltas)


def anthropic_text_block(index: int, *fragments: str) -> list[Body]:
    deltas = [{"type": "text_delta", "text": fragment} for fragment in fragments]
    return anthropic_block(index, {"type": "text", "text": ""}, *deltas)


def anthropic_stream(*events: Body, stop_reason: str = "tool_use", usage: Body | None = None) -> bytes:
    message = {**anthropic_response(), "stop_reason": None, "usage": {"input_tokens": 9, "output_tokens": 1}}
    return anthropic_events(
        {"type": "message_start", "message": message},
        *events,
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop_reason, "stop_sequence": None},
            "usage": usage or {"output_tokens": 7},
        },
        {"type": "message_stop"},
    )


def chat_request(*messages: Body, **fields: Any) -> Body:
    return {"model": "gpt-4o", "messages": list(messages or (USER_MESSAGE,)), **fields}


def chat_call(call_id: str, name: str = "get_weather", arguments: Any = CITY_ARGUMENTS) -> Body:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def chat_assistant(*calls: Body, **fields: Any) -> Body:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **fields}


def chat_result(call_id: str, content: Any = "18C") -> Body:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def chat_turn(calls: Sequence[Body], results: Sequence[Body], **fields: Any) -> Body:
    return chat_request(USER_MESSAGE, chat_assistant(*calls), *results, **fields)


def chat_response(message: Body, finish_reason: str = "tool_calls", **fields: Any) -> Body:
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-4o",
        "choices": [choice],
        "usage": {"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16},
        **fields,
    }


def chat_tool(name: str = "get_weather", schema: Any = None, **fields: Any) -> Body:
    function = {
        "name": name,
        "description": "Weather.",
        "parameters": CITY_SCHEMA if schema is None else schema,
        **fields,
    }
    return {"type": "function", "function": function}


def chat_chunk(delta: Body, finish_reason: str | None = None, **fields: Any) -> Body:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    envelope = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
    return {**envelope, "choices": [choice], **fields}


def chat_events(*chunks: Body, done: bool = True) -> bytes:
    wire = b"".join(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks)
    return wire + (b"data: [DONE]\n\n" if done else b"")


def chat_stream(*deltas: Body, finish_reason: str = "tool_calls", usage: Body | None = None) -> bytes:
    chunks = [chat_chunk(delta) for delta in ({"role": "assistant", "content": None}, *deltas)]
    counted = [{**chat_chunk({}), "choices": [], "usage": usage}] if usage else []
    return chat_events(*chunks, chat_chunk({}, finish_reason), *counted)


def chat_fragment(index: int | None, arguments: str | None = None, **fields: Any) -> Body:
    """Return a delta with one fragment of a call; `id` and `name` start the call."""
    name = fields.pop("name", None)
    function = {"name": name} if name is not None else {}
    if arguments is not None:
        function["arguments"] = arguments
    opening = {"type": "function"} if name else {}
    at = {} if index is None else {"index": index}
    return {"tool_calls": [{**at, **fields, **opening, "function": function}]}


def responses_request(*items: Body, **fields: Any) -> Body:
    return {"model": "gpt-5", "input": list(items or (USER_MESSAGE,)), **fields}


def responses_call(call_id: str, name: str = "get_weather", arguments: Any = CITY_ARGUMENTS, **fields: Any) -> Body:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **fields}


def responses_output(call_id: str, output: Any = "18C") -> Body:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def responses_turn(calls: Sequence[Body], outputs: Sequence[Body], **fields: Any) -> Body:
    return responses_request(USER_MESSAGE, *calls, *outputs, **fields)


def responses_message(text: str) -> Body:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}


def responses_response(*output: Body, status: str = "completed", **fields: Any) -> Body:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": status,
        "model": "gpt-5",
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        **fields,
    }


def responses_tool(name: str = "get_weather", schema: Any = None, **fields: Any) -> Body:
    parameters = CITY_SCHEMA if schema is None else schema
    return {
        "type": "function",
        "name": name,
        "description": "Weather.",
        "parameters": parameters,
        "strict": False,
        **fields,
    }


RESPONSES_USAGE: Body = {
    "input_tokens": 9,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 16,
}


def responses_events(*events: Body) -> bytes:
    numbered = [{"type": event["type"], "sequence_number": n, **event} for n, event in enumerate(events)]
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in numbered)


def responses_stream(*events: Body, output: Sequence[Body] = (), status: str = "completed", **fields: Any) -> bytes:
    start = responses_response(status="in_progress")
    end = responses_response(*output, status=status, usage=RESPONSES_USAGE, **fields)
    return responses_events(
        {"type": "response.created", "response": start},
        *events,
        {"type": f"response.{status}", "response": end},
    )


def responses_item_events(index: int, item: Body) -> Iterator[Body]:
    """Return the events of one output item, from added to done, with its text in one delta."""
    at = {"item_id": item["id"], "output_index": index}
    empty_fields = {"arguments": "", "input": "", "content": [], "summary": []}
    started = {key: empty_fields.get(key, value) for key, value in item.items()}
    yield {
        "type": "response.output_item.added",
        "output_index": index,
        "item": {**started, "status": "in_progress"},
    }
    match item["type"]:
        case "function_call":
            yield {"type": "response.function_call_arguments.delta", **at, "delta": item["arguments"]}
            yield {"type": "response.function_call_arguments.done", **at, "arguments": item["arguments"]}
        case "custom_tool_call":
            yield {"type": "response.custom_tool_call_input.delta", **at, "delta": item["input"]}
            yield {"type": "response.custom_tool_call_input.done", **at, "input": item["input"]}
        case "message":
            for position, part in enumerate(item["content"]):
                position_fields = {**at, "content_index": position}
                yield {"type": "response.content_part.added", **position_fields, "part": {**part, "text": ""}}
                yield {"type": "response.output_text.delta", **position_fields, "delta": part["text"], "logprobs": []}
                yield {"type": "response.output_text.done", **position_fields, "text": part["text"], "logprobs": []}
                yield {"type": "response.content_part.done", **position_fields, "part": part}
        case "reasoning":
            for position, part in enumerate(item["summary"]):
                position_fields = {**at, "summary_index": position}
                yield {"type": "response.reasoning_summary_part.added", **position_fields, "part": {**part, "text": ""}}
                yield {"type": "response.reasoning_summary_text.delta", **position_fields, "delta": part["text"]}
                yield {"type": "response.reasoning_summary_text.done", **position_fields, "text": part["text"]}
                yield {"type": "response.reasoning_summary_part.done", **position_fields, "part": part}
        case _:
            pass
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def tool_cycle_request(protocol: str, *ids: str, **fields: Any) -> Body:
    """Return a request whose history holds one call per id, each with `result N`, in order."""
    answers = [(call_id, f"result {position}") for position, call_id in enumerate(ids)]
    match protocol:
        case "anthropic":
            results = [anthropic_result(*answer) for answer in answers]
            return anthropic_turn([anthropic_call(call_id) for call_id in ids], results, **fields)
        case "openai-chat" | "openrouter":
            results = [chat_result(*answer) for answer in answers]
            return chat_turn([chat_call(call_id) for call_id in ids], results, **fields)
        case "openai-responses":
            results = [responses_output(*answer) for answer in answers]
            return responses_turn([responses_call(call_id) for call_id in ids], results, **fields)
        case "gemini":
            results = [gemini_result(*answer) for answer in answers]
            return gemini_turn([gemini_call(call_id) for call_id in ids], results, **fields)
        case "gemini-interactions":
            results = [interactions_result(*answer) for answer in answers]
            return interactions_turn([interactions_call(call_id) for call_id in ids], results, **fields)
        case _:
            results = [ollama_result(*answer) for answer in answers]
            return ollama_turn([ollama_call(call_id) for call_id in ids], results, **fields)


def request_with_arguments(protocol: str, text: str) -> Body:
    """Return a request with one answered call that has these arguments as JSON text."""
    match protocol:
        case "anthropic":
            call = anthropic_call("call_1", arguments=json.loads(text))
            return anthropic_turn([call], [anthropic_result("call_1")])
        case "openai-chat" | "openrouter":
            return chat_turn([chat_call("call_1", arguments=text)], [chat_result("call_1")])
        case "openai-responses":
            return responses_turn([responses_call("call_1", arguments=text)], [responses_output("call_1")])
        case "gemini":
            call = gemini_call("call_1", arguments=json.loads(text))
            return gemini_turn([call], [gemini_result("call_1")])
        case "gemini-interactions":
            call = interactions_call("call_1", arguments=json.loads(text))
            return interactions_turn([call], [interactions_result("call_1")])
        case _:
            call = ollama_call("call_1", arguments=json.loads(text))
            return ollama_turn([call], [ollama_result("call_1")])


def request_with_schemas(protocol: str, *schemas: Body) -> Body:
    """Return a request that declares `tool_0`, `tool_1` and so on with these schemas."""
    return request_with_tools(protocol, {f"tool_{n}": schema for n, schema in enumerate(schemas)})


def request_with_tools(protocol: str, tools: dict[str, Any], **fields: Any) -> Body:
    """Return a request that declares tools by name; a schema of None means the default schema."""
    match protocol:
        case "anthropic":
            return anthropic_request(tools=[anthropic_tool(*tool) for tool in tools.items()], **fields)
        case "openai-chat" | "openrouter":
            return chat_request(tools=[chat_tool(*tool) for tool in tools.items()], **fields)
        case "openai-responses":
            return responses_request(tools=[responses_tool(*tool) for tool in tools.items()], **fields)
        case "gemini":
            declared = [gemini_tool(*tool) for tool in tools.items()]
            return gemini_request(tools=[{"functionDeclarations": declared}], **fields)
        case "gemini-interactions":
            return interactions_request(tools=[interactions_tool(*tool) for tool in tools.items()], **fields)
        case _:
            return ollama_request(tools=[chat_tool(*tool) for tool in tools.items()], **fields)


def response_body(protocol: str, text: str, *calls: tuple[str, str]) -> Body:
    """Return a response with a text, if not empty, and calls of `get_weather`, given as (id, city)."""
    decoded_calls = [(call_id, "get_weather", {"city": city}) for call_id, city in calls]
    encoded_calls = [(call_id, name, json.dumps(arguments)) for call_id, name, arguments in decoded_calls]
    match protocol:
        case "anthropic":
            text_blocks = [{"type": "text", "text": text}] if text else []
            stop = "tool_use" if calls else "end_turn"
            return anthropic_response(
                *text_blocks, *(anthropic_call(*call) for call in decoded_calls), stop_reason=stop
            )
        case "openai-chat" | "openrouter":
            message: Body = {"role": "assistant", "content": text or None}
            if calls:
                message["tool_calls"] = [chat_call(*call) for call in encoded_calls]
            return chat_response(message, "tool_calls" if calls else "stop")
        case "openai-responses":
            output = [responses_message(text)] if text else []
            calling = [responses_call(*call, id=f"fc_{n}", status="completed") for n, call in enumerate(encoded_calls)]
            return responses_response(*output, *calling, usage=RESPONSES_USAGE)
        case "gemini":
            return gemini_response(*([{"text": text}] if text else []), *(gemini_call(*call) for call in decoded_calls))
        case "gemini-interactions":
            steps = [interactions_text(text)] if text else []
            return interactions_response(*steps, *(interactions_call(*call) for call in decoded_calls))
        case _:
            return ollama_response(
                ollama_assistant(*(ollama_call(*call) for call in decoded_calls), content=text)
                if calls
                else {"role": "assistant", "content": text}
            )


def response_stream(protocol: str, text: str, *calls: tuple[str, str]) -> bytes:
    """Return the same response as a stream, with each call in as few events as the protocol allows."""
    decoded_calls = [(call_id, "get_weather", {"city": city}) for call_id, city in calls]
    encoded_calls = [(call_id, json.dumps(arguments)) for call_id, _, arguments in decoded_calls]
    match protocol:
        case "anthropic":
            blocks = anthropic_text_block(0, text) if text else []
            for at, (call_id, arguments) in enumerate(encoded_calls, 1 if text else 0):
                blocks += anthropic_call_block(at, call_id, arguments)
            return anthropic_stream(*blocks, stop_reason="tool_use" if calls else "end_turn")
        case "openai-chat" | "openrouter":
            fragments = [
                chat_fragment(at, arguments, id=call_id, name="get_weather")
                for at, (call_id, arguments) in enumerate(encoded_calls)
            ]
            text_blocks = [{"content": text}] if text else []
            return chat_stream(*text_blocks, *fragments, finish_reason="tool_calls" if calls else "stop")
        case "openai-responses":
            output = response_body(protocol, text, *calls)["output"]
            events = [event for at, item in enumerate(output) for event in responses_item_events(at, item)]
            return responses_stream(*events, output=output)
        case "gemini":
            return gemini_stream(*([{"text": text}] if text else []), *(gemini_call(*call) for call in decoded_calls))
        case "gemini-interactions":
            return interactions_stream(*response_body(protocol, text, *calls)["steps"])
        case _:
            lines = [{"role": "assistant", "content": text}] if text else []
            return ollama_stream(*lines, *(ollama_assistant(ollama_call(*call)) for call in decoded_calls))
