"""Simulated hosts refuse what the real ones refuse, with their status, body and wording."""

import json
from typing import Any

import pytest

from tests.support.servers.asgi import http_client, serve_app
from toolwire.codec.hosts.registry import profile_named
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.hosts.host import SimulatedHost
from toolwire.upstream.simulator.hosts.refusals import HostRefusal

USER = {"role": "user", "content": "Hi"}
FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {}}}
TOOL = {"type": "function", "function": FUNCTION}
CALL = {"id": "a1B2c3D4e", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLING = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "a1B2c3D4e", "content": "done"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}


def chat(*messages: Any, **settings: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages) or [USER], **settings}


def refusal(host: str, body: dict[str, Any], protocol: str = "openai-chat") -> tuple[int, Any, str]:
    """Return status, body and violated fact."""
    with pytest.raises(HostRefusal) as caught:
        SimulatedHost(profile_named(host, protocol)).check_request(json.dumps(body).encode())
    return caught.value.status, json.loads(caught.value.body), caught.value.fact


DEVELOPER = {"role": "developer", "content": "Be brief."}
LATE = {"role": "system", "content": "Be brief."}
LISTED = {"role": "user", "content": [{"type": "text", "text": "Hi"}]}
FORCED = {"tools": [TOOL], "tool_choice": "required"}
MANY = {"tools": [{"type": "function", "function": FUNCTION | {"name": f"f{n}"}} for n in range(201)]}
ANTHROPIC_CALL = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
LOOSE = {"type": "object", "properties": {"x": {"description": "anything"}}}
REPLAYED = {"reasoning_content": "Hm."}


@pytest.mark.parametrize(
    ("host", "body", "status", "words"),
    [
        ("deepseek", chat(DEVELOPER, USER), 400, "messages[0].role: unknown variant `developer`, expected one of"),
        ("deepseek", chat(LISTED), 422, "messages[0]: invalid type: sequence, expected a string"),
        ("deepseek", chat({"role": "user", "content": [IMAGE]}), 400, "unknown variant `image_url`, expected `text`"),
        ("deepseek", chat(USER, CALLING), 400, "(insufficient tool messages following tool_calls message)"),
        ("deepseek", chat(USER, {"role": "assistant", "content": None}), 400, "content or tool_calls must be set"),
        ("deepseek", chat(model="deepseek-v4-pro", **FORCED), 400, "Thinking mode does not support this tool_choice"),
        (
            "deepseek",
            chat(USER, CALLING, RESULT, model="deepseek-v4-pro"),
            400,
            "The `reasoning_content` in the thinking mode must be passed back to the API.",
        ),
        ("deepseek", chat(tools=[{"type": "custom", "custom": {"name": "f"}}]), 400, "unknown variant `custom`"),
        (
            "deepseek",
            chat(response_format={"type": "json_schema", "json_schema": {}}),
            400,
            "This response_format type is unavailable now",
        ),
        ("deepseek", chat(response_format={"type": "json_object"}), 400, "Prompt must contain the word 'json'"),
        ("mistral", chat(max_completion_tokens=9), 422, '"loc": ["body", "max_completion_tokens"]'),
        ("mistral", chat(stream=True, stream_options={"include_usage": True}), 422, "extra_forbidden"),
        (
            "mistral",
            chat(USER, CALLING | REPLAYED, RESULT),
            422,
            '["body", "messages", "1", "assistant", "reasoning_content"]',
        ),
        ("mistral", chat(USER, CALLING, RESULT, USER), 400, "Unexpected role 'user' after role 'tool'"),
        ("mistral", chat(USER, {"role": "assistant", "content": "Hi"}), 400, "Expected last role User or Tool"),
        (
            "mistral",
            chat(USER, CALLING | {"tool_calls": [CALL | {"id": "call_1"}]}, RESULT | {"tool_call_id": "call_1"}),
            400,
            "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.",
        ),
        ("groq", chat(store=False), 400, "property 'store' is unsupported"),
        (
            "groq",
            chat(USER, CALLING | REPLAYED, RESULT),
            400,
            "for 'role:assistant' the following must be satisfied[('messages.1' : property 'reasoning_content'",
        ),
        ("groq", chat(**MANY), 400, "'tools' : maximum number of items is 128"),
        ("groq", chat(model="qwen/qwen3-32b", reasoning_effort="high"), 400, "must be one of none or default"),
        ("moonshot", chat(USER, CALLING, RESULT, model="kimi-k2.6"), 400, "reasoning_content is missing in assistant"),
        (
            "moonshot",
            chat(USER, CALLING | {"reasoning_content": ""}, RESULT, model="kimi-k2.6"),
            400,
            "tool call message at index 1",
        ),
        ("moonshot", chat(model="kimi-k2.6", **FORCED), 400, "tool_choice 'required' is incompatible with thinking"),
        (
            "moonshot",
            chat(tools=[{"type": "function", "function": {"name": "f"}}]),
            400,
            "type is required and must be",
        ),
        (
            "moonshot",
            chat(tools=[{"type": "function", "function": {"name": "f", "parameters": LOOSE}}]),
            400,
            "At path 'properties.x': type is not defined",
        ),
        ("zai", chat(LATE), 400, "The messages parameter is illegal. Please check the documentation."),
        ("dashscope", chat(DEVELOPER, USER), 400, "developer is not one of ['system', 'assistant', 'user', 'tool'"),
        ("dashscope", chat(model="qwen3.8-max", **FORCED), 400, "set to required or object in thinking mode"),
        ("dashscope", chat(model="qwen3-32b"), 400, "enable_thinking must be set to false for non-streaming calls"),
        ("dashscope", chat(tools=[]), 400, "[] is too short - 'tools'"),
        ("xai", chat(reasoning_effort="high", model="grok-4"), 400, "does not support parameter reasoningEffort"),
        ("xai", chat(USER, CALLING | {"content": None}, RESULT), 400, "must have at least one content element"),
        ("xai", chat(**MANY), 400, "201 tools have been provided but the maximum is 200."),
        ("vllm", chat(USER, LATE), 400, "System message must be at the beginning."),
        ("vllm", chat(DEVELOPER, USER), 400, "Unexpected message role."),
        ("vllm", chat(tool_choice="auto"), 400, "When using `tool_choice`, `tools` must be set."),
        ("vllm", chat(stream_options={"include_usage": True}), 400, "can only be defined when `stream=True`"),
        ("llamacpp", chat(USER, LATE), 500, "System message must be at the beginning."),
        (
            "lmstudio",
            chat(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "f"}}),
            400,
            "Invalid tool_choice type: 'object'. Supported string values: none, auto, required",
        ),
        ("ollama", chat(model="llama3", reasoning_effort="high"), 400, '\\"llama3\\" does not support thinking'),
        ("azure", chat(thinking={"type": "enabled"}), 400, "Unrecognized request argument supplied: thinking"),
        ("azure", chat(model="gpt-5", max_tokens=9), 400, "Use 'max_completion_tokens' instead."),
        ("cerebras", chat(USER, CALLING | REPLAYED, RESULT), 400, "messages.1.assistant.reasoning_content: property"),
        ("minimax", chat(USER, LATE), 400, "chat content has invalid message role: system (2013)"),
        ("minimax", chat(LATE, LATE, USER), 400, "invalid chat setting (2013)"),
        ("gemini", chat(store=False), 400, 'Unknown name \\"store\\": Cannot find field.'),
        ("openrouter", chat(user="u" * 150), 400, "user"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_chat_requests_are_refused(host: str, body: dict[str, Any], status: int, words: str) -> None:
    found_status, answer, _ = refusal(host, body)
    assert found_status == status
    assert words in json.dumps(answer)


@pytest.mark.parametrize(
    ("host", "protocol", "body", "words"),
    [
        (
            "deepseek",
            "anthropic",
            {"messages": [USER, LATE]},
            "unknown variant `system`, expected `user` or `assistant`",
        ),
        ("minimax", "anthropic", {"messages": [USER, LATE]}, "invalid message role: system (2013)"),
        (
            "copilot",
            "anthropic",
            {"messages": [USER], "tools": [{"type": "web_search_20250305", "name": "web_search"}]},
            "The use of the web search tool is not supported.",
        ),
        ("zai", "anthropic", {"messages": [USER], "metadata": {"user_id": "u" * 150}}, "between 6 and 128 characters"),
        (
            "llamacpp",
            "openai-responses",
            {"input": [{"type": "reasoning", "summary": [], "content": None}]},
            "item['content'] is not an array",
        ),
        ("lmstudio", "openai-responses", {"input": "Hi", "text": {"verbosity": "low"}}, "Required"),
        (
            "deepseek",
            "anthropic",
            {"messages": [USER], "tools": [{"type": "custom", "name": "f", "input_schema": {"type": "object"}}]},
            "unknown variant `custom`",
        ),
        (
            "ollama",
            "anthropic",
            {"messages": [USER, {"role": "assistant", "content": [ANTHROPIC_CALL]}, USER]},
            "did not have response messages: c1",
        ),
        ("vllm", "openai-responses", {"input": "Hi", "tools": [{"type": "custom", "name": "f"}]}, "'function'"),
        (
            "openai",
            "openai-responses",
            {"input": [{"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}]},
            "did not have response messages: c1",
        ),
    ],
)
def test_other_forms_are_refused(host: str, protocol: str, body: dict[str, Any], words: str) -> None:
    assert words in json.dumps(refusal(host, {"model": "m", **body}, protocol)[1])


@pytest.mark.parametrize(
    ("host", "body", "answer"),
    [
        ("xai", chat(USER, CALLING | {"content": None}, RESULT), {"code": "Client specified an invalid argument"}),
        ("mistral", chat(USER, CALLING, RESULT, USER), {"object": "error", "code": "3230"}),
        ("lmstudio", chat(USER, LATE), {}),
    ],
)
def test_errors_have_the_shape_of_the_host(host: str, body: dict[str, Any], answer: dict[str, Any]) -> None:
    found = refusal(host, body)[1]
    assert answer.items() <= found.items()
    assert isinstance(found.get("error", ""), str)


def test_plain_requests_are_accepted_by_every_host() -> None:
    for host in ("deepseek", "mistral", "groq", "moonshot", "zai", "dashscope", "xai", "vllm", "minimax", "generic"):
        body = chat({"role": "system", "content": "Be brief."}, USER, tools=[TOOL], max_tokens=100, stream=True)
        SimulatedHost(profile_named(host)).check_request(json.dumps(body).encode())


def test_results_of_a_tool_search_are_results() -> None:
    items = [
        {"type": "tool_search_call", "call_id": "c1", "execution": "client", "arguments": {}},
        {"type": "tool_search_output", "call_id": "c1", "execution": "client", "tools": []},
    ]
    body = {"model": "m", "input": [USER, *items]}
    SimulatedHost(profile_named("openai", "openai-responses")).check_request(json.dumps(body).encode())


def test_server_answers_with_the_refusal() -> None:
    with serve_app(Simulator(("openai-chat",), profiles=[profile_named("deepseek")])) as url:
        refused = http_client.post(f"{url}/v1/chat/completions", json=chat(LISTED))
        accepted = http_client.post(f"{url}/v1/chat/completions", json=chat())
    assert refused.status_code == 422
    assert refused.json()["error"]["code"] == "invalid_request_error"
    assert accepted.status_code == 200
