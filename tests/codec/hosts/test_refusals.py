"""Settings that hosts refuse, in the words of real hosts."""

import json
from typing import Any

import pytest

from toolwire.canonical.errors import ApiError
from toolwire.codec.hosts.refusals import LIMIT_REFUSALS, RefusedSetting, find_refusals, omit_refused

CHAT = {
    "model": "m",
    "messages": [],
    "max_tokens": 5,
    "reasoning_effort": "high",
    "thinking": {"type": "enabled"},
    "store": False,
    "stream": True,
    "stream_options": {"include_usage": True},
    "parallel_tool_calls": False,
    "metadata": {"team": {}},
    "presence_penalty": 0,
    "response_format": {"type": "json_object"},
    "tools": [{"type": "function", "function": {"name": "a", "strict": True}}],
}
RESPONSES = {
    "model": "m",
    "input": "hi",
    "reasoning": {"effort": "high"},
    "include": ["reasoning.encrypted_content"],
    "text": {"verbosity": "low", "format": {"type": "text"}},
}
ANTHROPIC = {
    "model": "m",
    "max_tokens": 5,
    "messages": [],
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "high"},
    "context_management": {},
    "tools": [{"name": "a", "strict": True}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
}
GEMINI = {"contents": [], "generationConfig": {"thinkingConfig": {"thinkingLevel": "high"}, "maxOutputTokens": 5}}
OLLAMA = {"model": "m", "messages": [], "think": True}
BODIES: dict[str, dict[str, Any]] = {
    "openai-chat": CHAT,
    "openai-responses": RESPONSES,
    "anthropic": ANTHROPIC,
    "gemini": GEMINI,
    "ollama": OLLAMA,
}


def find(
    message: str, body: dict[str, Any], protocol: str = "openai-chat", **details: Any
) -> tuple[RefusedSetting, ...]:
    error = ApiError(kind="invalid_request", message=message, **({"status": 400} | details))
    return find_refusals(protocol, json.dumps(body).encode(), error)


def omit(body: dict[str, Any], *refusals: RefusedSetting) -> Any:
    return json.loads(omit_refused(json.dumps(body).encode(), refusals)[0])


@pytest.mark.parametrize(
    ("protocol", "message", "members"),
    [
        (
            "openai-chat",
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'.",
            ["max_tokens"],
        ),
        ("openai-chat", "Unrecognized request argument supplied: store", ["store"]),
        ("openai-chat", "Unrecognized request arguments supplied: store, metadata", ["store", "metadata"]),
        ("openai-chat", "Unknown parameter: 'reasoning_effort'.", ["reasoning_effort"]),
        ("openai-chat", "property 'store' is unsupported, did you mean 'stop'?", ["store"]),
        ("openai-chat", "body.store: property 'body.store' is unsupported", ["store"]),
        ("openai-chat", "Extra inputs are not permitted, field: 'metadata'", ["metadata"]),
        (
            "openai-chat",
            """[{"type":"extra_forbidden","loc":["body","store"],"input":{}},
            {"type":"extra_forbidden","loc":["body","stream_options","include_usage"]}]""",
            ["store", "stream_options/include_usage"],
        ),
        ("openai-chat", "[{'type': 'extra_forbidden', 'loc': ('body', 'metadata'), 'msg': 'x'}]", ["metadata"]),
        ("openai-chat", "Model grok-4 does not support parameter reasoningEffort.", ["reasoning_effort"]),
        ("openai-chat", "Model grok-4 does not support parameter presencePenalty.", ["presence_penalty"]),
        ("openai-chat", 'Invalid JSON payload received. Unknown name "store": Cannot find field.', ["store"]),
        (
            "openai-chat",
            "Tools with mixed values for 'strict' are not allowed.",
            ["tools/*/function/strict"],
        ),
        ("openai-chat", "`parallel_tool_calls` is not supported with this model", ["parallel_tool_calls"]),
        (
            "openai-responses",
            "Unsupported parameter: 'reasoning.effort' is not supported with this model.",
            ["reasoning", "include"],
        ),
        ("openai-responses", "Unknown parameter: 'text.verbosity'.", ["text/verbosity"]),
        ("anthropic", "This model does not support the effort parameter.", ["output_config/effort"]),
        ("anthropic", "adaptive thinking is not supported on this model", ["thinking", "output_config/effort"]),
        ("anthropic", "context_management: Extra inputs are not permitted", ["context_management"]),
        ("anthropic", "tools.0.custom.strict: Extra inputs are not permitted", ["tools/*/strict"]),
        (
            "anthropic",
            "tool_choice.disable_parallel_tool_use: Extra inputs are not permitted",
            ["tool_choice/disable_parallel_tool_use"],
        ),
        (
            "gemini",
            "Unknown name \"thinkingLevel\" at 'generation_config.thinking_config': Cannot find field.",
            ["generationConfig/thinkingConfig"],
        ),
        ("gemini", "Thinking level is not supported for this model.", ["generationConfig/thinkingConfig"]),
        ("ollama", '"qwen2.5-coder:7b" does not support thinking', ["think"]),
    ],
)
def test_wordings_of_hosts_name_the_setting(protocol: str, message: str, members: list[str]) -> None:
    assert [refusal.member for refusal in find(message, BODIES[protocol], protocol)] == members


@pytest.mark.parametrize(
    ("protocol", "message"),
    [
        ("openai-chat", "Thinking mode does not support this tool_choice"),
        ("openai-chat", "tool_choice 'required' is incompatible with thinking enabled"),
        (
            "openai-chat",
            "The tool_choice parameter does not support being set to required or object in thinking mode",
        ),
        ("openai-chat", "parameter.enable_thinking must be set to false for non-streaming calls"),
        ("openai-chat", "The reasoning_content in the thinking mode must be passed back to the API."),
        ("openai-chat", "max_tokens is too large: 5"),
        ("openai-chat", "Unsupported value: 'temperature' does not support 0.2 with this model."),
        ("openai-chat", "messages[0].role: unknown variant developer, expected one of system, user"),
        ("openai-chat", "'messages.2' : property 'metadata' is unsupported"),
        ("openai-chat", "Unknown parameter: 'tools'."),
        ("openai-chat", "Unknown parameter: 'response_format'."),
        ("openai-chat", "Unknown parameter: 'absent'."),
        ("openai-chat", "'tools' : maximum number of items is 128"),
        ("anthropic", "Thinking may not be enabled when tool_choice forces tool use."),
        ("anthropic", "max_tokens: Extra inputs are not permitted"),
        ("ollama", '"gemma" does not support tools'),
    ],
)
def test_other_errors_name_no_setting(protocol: str, message: str) -> None:
    assert find(message, BODIES[protocol], protocol) == ()


def test_parameter_of_the_error_names_the_setting() -> None:
    message = "Encrypted content is not supported with this model."
    assert [refusal.member for refusal in find(message, RESPONSES, "openai-responses", param="include")] == ["include"]
    assert find(message, RESPONSES, "openai-responses", param="messages[1].content") == ()


@pytest.mark.parametrize("status", [401, 404, 429, 500])
def test_only_refusals_are_read(status: int) -> None:
    assert find("Unknown parameter: 'store'.", CHAT, status=status) == ()


def test_members_that_imitate_a_refusal_are_not_believed() -> None:
    body = CHAT | {"x'. Unknown parameter: 'metadata": 1}
    assert find("Unknown parameter: 'x'. Unknown parameter: 'metadata'.", body) == ()


def test_refused_value_is_left_out_only_with_that_value() -> None:
    (refusal,) = find("reasoning_effort must be one of none or default", CHAT)
    assert "reasoning_effort" not in omit(CHAT, refusal)
    assert omit(CHAT | {"reasoning_effort": "none"}, refusal)["reasoning_effort"] == "none"


def test_output_limit_is_sent_under_its_other_name() -> None:
    (refusal,) = find("Unknown parameter: 'max_tokens'.", CHAT)
    sent = omit(CHAT, refusal)
    assert (sent["max_completion_tokens"], "max_tokens" in sent) == (5, False)
    assert omit(CHAT | {"max_completion_tokens": 7}, refusal)["max_completion_tokens"] == 7


def test_nested_settings_leave_the_rest_of_their_object() -> None:
    sent = omit(RESPONSES, RefusedSetting("text/verbosity"), RefusedSetting("reasoning/effort"))
    assert sent == {name: value for name, value in RESPONSES.items() if name != "reasoning"} | {
        "text": {"format": {"type": "text"}}
    }
    assert omit(CHAT, RefusedSetting("tools/*/function/strict"))["tools"] == [
        {"type": "function", "function": {"name": "a"}}
    ]


def test_body_without_the_setting_is_unchanged() -> None:
    body = b'{ "model": "m" }'
    assert omit_refused(
        body, (RefusedSetting("store"), RefusedSetting("tools/*/strict"), RefusedSetting("text/verbosity"))
    ) == (body, [])


def test_number_of_refusals_is_limited() -> None:
    names = [f"x{index}" for index in range(2 * LIMIT_REFUSALS)]
    message = f"Unrecognized request arguments supplied: {', '.join(names)}"
    assert len(find(message, dict.fromkeys(names, 1))) == LIMIT_REFUSALS


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"model": "m"}'])
def test_any_body_and_message_are_accepted(body: bytes) -> None:
    for text in ("", "a" * 100_000, "does not support thinking " * 9999, "Unknown parameter: " + "x, " * 9999):
        assert find_refusals("openai-chat", body, ApiError(kind="invalid_request", message=text, status=400)) == ()
