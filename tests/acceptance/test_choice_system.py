"""Tool choice, parallel flags and system messages: TC-1 to TC-10, SY-1 to SY-6."""

from typing import Any

import pytest

from tests.bodies import (
    GO,
    anthropic_request,
    anthropic_tool,
    chat_request,
    chat_tool,
    responses_request,
    responses_tool,
    turn,
)
from tests.wire import (
    ANTHROPIC,
    CHAT,
    PAIRS,
    RESPONSES,
    items,
    lost,
    named,
    roles,
    text_of,
    tools,
    translated,
)

SEARCH: dict[str, Any] = {"type": "web_search_20250305", "name": "web_search"}
REMINDER: dict[str, Any] = {"role": "system", "content": "Answer in French."}


def choosing(protocol: str, choice: Any, **fields: Any) -> dict[str, Any]:
    """A request with two tools and this tool choice."""
    match protocol:
        case "anthropic":
            return anthropic_request(tools=[anthropic_tool("a"), anthropic_tool("b")], tool_choice=choice, **fields)
        case "openai-chat":
            return chat_request(tools=[chat_tool("a"), chat_tool("b")], tool_choice=choice, **fields)
        case _:
            return responses_request(tools=[responses_tool("a"), responses_tool("b")], tool_choice=choice, **fields)


def test_tc_1_any_is_read_as_required() -> None:
    assert translated(choosing(CHAT, "any"), CHAT, ANTHROPIC)["tool_choice"] == {"type": "any"}
    assert translated(choosing(CHAT, "any"), CHAT, RESPONSES)["tool_choice"] == "required"


@pytest.mark.parametrize("declared", [[], [SEARCH]])
@pytest.mark.parametrize("choice", [{"type": "auto", "disable_parallel_tool_use": True}, {"type": "any"}])
def test_tc_2_choice_and_parallel_flag_are_left_out_when_no_tool_is_left(declared: list[Any], choice: Any) -> None:
    made = translated(anthropic_request(tools=declared, tool_choice=choice), ANTHROPIC, CHAT)
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & made.keys()


@pytest.mark.parametrize("source", [CHAT, RESPONSES])
def test_tc_3_the_parallel_flag_alone_makes_a_whole_choice(source: str) -> None:
    body = choosing(source, "auto", parallel_tool_calls=False)
    del body["tool_choice"]
    made = translated(body, source, ANTHROPIC)
    assert made["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}


def test_tc_4_choice_and_flag_stand_in_one_place() -> None:
    made = translated(choosing(CHAT, "required", parallel_tool_calls=False), CHAT, ANTHROPIC)
    assert made["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}
    assert "parallel_tool_calls" not in made


@pytest.mark.parametrize("target", [CHAT, RESPONSES])
@pytest.mark.parametrize("choice", [{"type": "auto"}, {"type": "any"}, {"type": "tool", "name": "a"}])
def test_tc_5_the_parallel_switch_is_kept_both_ways(target: str, choice: dict[str, Any]) -> None:
    switched = {**choice, "disable_parallel_tool_use": True}
    made = translated(choosing(ANTHROPIC, switched), ANTHROPIC, target)
    assert made["parallel_tool_calls"] is False
    assert translated(made, target, ANTHROPIC)["tool_choice"] == switched


def test_tc_6_a_choice_goes_with_its_tool() -> None:
    body = anthropic_request(tools=[SEARCH, anthropic_tool()], tool_choice={"type": "tool", "name": "web_search"})
    made = translated(body, ANTHROPIC, CHAT)
    assert "web_search" not in str(made.get("tool_choice"))
    assert named(lost(body, ANTHROPIC, CHAT), "/tool_choice")
    long = "x" * 100
    forced = anthropic_request(tools=[anthropic_tool(long)], tool_choice={"type": "tool", "name": long})
    renamed = translated(forced, ANTHROPIC, CHAT)
    assert renamed["tool_choice"]["function"]["name"] == renamed["tools"][0]["function"]["name"]


@pytest.mark.parametrize("source", [CHAT, RESPONSES])
def test_tc_7_a_choice_among_some_tools_offers_only_these(source: str) -> None:
    chat_form = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "b"}}]}
    responses_form = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "b"}]}
    forms = {CHAT: {"type": "allowed_tools", "allowed_tools": chat_form}, RESPONSES: responses_form}
    body = choosing(source, forms[source])
    assert list(tools(ANTHROPIC, translated(body, source, ANTHROPIC))) == ["b"]
    other = RESPONSES if source == CHAT else CHAT
    made = translated(body, source, other)
    assert made["tool_choice"] == forms[other]
    assert list(tools(other, made)) == ["a", "b"]


CHOICES = [
    {ANTHROPIC: {"type": "auto"}, CHAT: "auto", RESPONSES: "auto"},
    {ANTHROPIC: {"type": "none"}, CHAT: "none", RESPONSES: "none"},
    {ANTHROPIC: {"type": "any"}, CHAT: "required", RESPONSES: "required"},
    {
        ANTHROPIC: {"type": "tool", "name": "b"},
        CHAT: {"type": "function", "function": {"name": "b"}},
        RESPONSES: {"type": "function", "name": "b"},
    },
]


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_tc_9_every_choice_is_mapped_exactly(source: str, target: str, choice: dict[str, Any]) -> None:
    assert translated(choosing(source, choice[source]), source, target)["tool_choice"] == choice[target]


AUDIO = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (chat_request(n=2), "/n"),
        (chat_request(seed=7), "/seed"),
        (chat_request(top_p=0.5, temperature=0.1), "/top_p"),
        (chat_request(response_format={"type": "json_object"}), "/response_format"),
        (
            chat_request({"role": "user", "content": [{"type": "text", "text": "Hear"}, AUDIO]}),
            "/messages/0/content/1",
        ),
    ],
)
def test_tc_10_what_has_no_counterpart_is_reported_never_dropped_silently(body: dict[str, Any], path: str) -> None:
    assert named(lost(body, CHAT, ANTHROPIC), path)


MID_CONVERSATION = anthropic_request(
    *turn(ANTHROPIC, "toolu_1")["messages"], REMINDER, {"role": "assistant", "content": "Oui."}
)


def test_sy_1_system_text_in_the_middle_keeps_its_place_in_chat() -> None:
    made = translated(MID_CONVERSATION, ANTHROPIC, CHAT)
    at = next(n for n, message in enumerate(made["messages"]) if "Answer in French." in str(message["content"]))
    assert made["messages"][at]["role"] in ("developer", "system", "user")
    assert roles(made)[:at] == ["user", "assistant", "tool"]


@pytest.mark.parametrize("target", [CHAT, RESPONSES])
def test_sy_2_system_text_is_never_dropped(target: str) -> None:
    assert str(translated(MID_CONVERSATION, ANTHROPIC, target)).count("Answer in French.") == 1


def test_sy_3_system_text_in_the_middle_is_a_developer_item_of_responses() -> None:
    made = items(translated(MID_CONVERSATION, ANTHROPIC, RESPONSES))
    (said,) = [item for item in made if "Answer in French." in str(item.get("content"))]
    assert said["role"] in ("developer", "system")


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("source", [CHAT, RESPONSES])
def test_sy_4_leading_system_text_is_lifted_and_later_text_is_placed_legally(source: str, role: str) -> None:
    messages = [{"role": role, "content": "Be brief."}, GO, {"role": role, "content": "Answer in French."}]
    body = chat_request(*messages) if source == CHAT else responses_request(*messages)
    made = translated(body, source, ANTHROPIC)
    assert text_of(made["system"]) == "Be brief."
    assert "Answer in French." in str(made["messages"])
    assert roles(made)[0] == "user"
    assert "developer" not in roles(made)


def test_sy_5_null_instructions_are_no_instructions() -> None:
    body = responses_request(instructions=None)
    assert translated(body, RESPONSES, RESPONSES) == body
    assert "system" not in translated(body, RESPONSES, ANTHROPIC)
    assert roles(translated(body, RESPONSES, CHAT)) == ["user"]


def test_sy_6_system_blocks_with_cache_marks_lose_only_the_marks() -> None:
    blocks = [
        {"type": "text", "text": "Be brief."},
        {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}},
    ]
    body = anthropic_request(system=blocks)
    made = translated(body, ANTHROPIC, CHAT)
    assert "cache_control" not in str(made)
    said = "".join(text_of(message["content"]) for message in made["messages"] if message["role"] != "user")
    assert "Be brief." in said
    assert "Be kind." in said
    marks = lost(body, ANTHROPIC, CHAT)
    assert "prompt_cache_breakpoint" in str(made) or named(marks, "/system/1/cache_control")
