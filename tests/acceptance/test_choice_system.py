"""Tool choice, parallel calls and system messages (TC-1 to TC-10, SY-1 to SY-7)."""

from typing import Any

import pytest

import toolwire
from tests.support.bodies.minimal import (
    USER_MESSAGE,
    anthropic_request,
    anthropic_tool,
    chat_request,
    chat_tool,
    request_with_tools,
    responses_request,
    responses_tool,
    tool_cycle_request,
)
from tests.support.bodies.readers import content_text, declared_schemas, message_roles, responses_items
from tests.support.protocols import ALL_PROTOCOLS, ANTHROPIC, CHAT, GEMINI, INTERACTIONS, OLLAMA, OPENROUTER, RESPONSES
from tests.support.translation import has_loss_at, loss_kinds, loss_paths, translated_body

SEARCH: dict[str, Any] = {"type": "web_search_20250305", "name": "web_search"}
FETCH: dict[str, Any] = {"type": "web_fetch_20250910", "name": "web_fetch"}
REMINDER: dict[str, Any] = {"role": "system", "content": "Answer in French."}


def request_with_choice(protocol: str, choice: Any, **fields: Any) -> dict[str, Any]:
    """Build a request with two tools and this tool choice."""
    match protocol:
        case "anthropic":
            return anthropic_request(tools=[anthropic_tool("a"), anthropic_tool("b")], tool_choice=choice, **fields)
        case "openai-chat" | "openrouter":
            return chat_request(tools=[chat_tool("a"), chat_tool("b")], tool_choice=choice, **fields)
        case "gemini":
            return request_with_tools(
                GEMINI, {"a": None, "b": None}, toolConfig={"functionCallingConfig": choice}, **fields
            )
        case "gemini-interactions":
            return request_with_tools(
                protocol, {"a": None, "b": None}, generation_config={"tool_choice": choice}, **fields
            )
        case _:
            return responses_request(tools=[responses_tool("a"), responses_tool("b")], tool_choice=choice, **fields)


def test_tc_1_any_is_read_as_required() -> None:
    assert translated_body(request_with_choice(CHAT, "any"), CHAT, ANTHROPIC)["tool_choice"] == {"type": "any"}
    assert translated_body(request_with_choice(CHAT, "any"), CHAT, RESPONSES)["tool_choice"] == "required"
    translated = translated_body(request_with_choice(OPENROUTER, "any"), OPENROUTER, GEMINI)
    assert translated["toolConfig"] == {"functionCallingConfig": {"mode": "ANY"}}


@pytest.mark.parametrize(
    ("declared", "choice"),
    [
        ([], {"type": "auto", "disable_parallel_tool_use": True}),
        ([], {"type": "any"}),
        ([SEARCH, FETCH], {"type": "auto", "disable_parallel_tool_use": True}),
    ],
)
def test_tc_2_choice_and_parallel_flag_are_omitted_when_no_tool_remains(declared: list[Any], choice: Any) -> None:
    body = anthropic_request(tools=declared, tool_choice=choice)
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & translated_body(body, ANTHROPIC, CHAT).keys()
    assert not {"tools", "tool_choice"} & translated_body(body, ANTHROPIC, OLLAMA).keys()
    if not declared:  # Google has a search tool
        assert not {"tools", "toolConfig"} & translated_body(body, ANTHROPIC, GEMINI).keys()


@pytest.mark.parametrize("source", [CHAT, RESPONSES])
def test_tc_3_the_parallel_flag_alone_makes_a_complete_choice(source: str) -> None:
    body = request_with_choice(source, "auto", parallel_tool_calls=False)
    del body["tool_choice"]
    translated = translated_body(body, source, ANTHROPIC)
    assert translated["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}


def test_tc_4_choice_and_flag_are_sent_in_one_place() -> None:
    translated = translated_body(request_with_choice(CHAT, "required", parallel_tool_calls=False), CHAT, ANTHROPIC)
    assert translated["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}
    assert "parallel_tool_calls" not in translated


@pytest.mark.parametrize("target", [CHAT, RESPONSES])
@pytest.mark.parametrize("choice", [{"type": "auto"}, {"type": "any"}, {"type": "tool", "name": "a"}])
def test_tc_5_the_parallel_switch_is_kept_in_both_directions(target: str, choice: dict[str, Any]) -> None:
    switched = {**choice, "disable_parallel_tool_use": True}
    translated = translated_body(request_with_choice(ANTHROPIC, switched), ANTHROPIC, target)
    assert translated["parallel_tool_calls"] is False
    assert translated_body(translated, target, ANTHROPIC)["tool_choice"] == switched


def test_tc_6_a_choice_follows_its_tool() -> None:
    body = anthropic_request(tools=[SEARCH, anthropic_tool()], tool_choice={"type": "tool", "name": "web_search"})
    with pytest.raises(toolwire.LossyTranslationError, match="/tools/0: web_search must be called"):
        translated_body(body, ANTHROPIC, CHAT)
    replaced = translated_body(body, ANTHROPIC, CHAT, hosted_tools="function")
    assert replaced["tool_choice"] == {"type": "function", "function": {"name": "google_web_search"}}
    long = "x" * 100
    forced = anthropic_request(tools=[anthropic_tool(long)], tool_choice={"type": "tool", "name": long})
    renamed = translated_body(forced, ANTHROPIC, CHAT)
    assert renamed["tool_choice"]["function"]["name"] == renamed["tools"][0]["function"]["name"]


@pytest.mark.parametrize("source", [CHAT, RESPONSES])
def test_tc_7_a_choice_among_some_tools_offers_only_these(source: str) -> None:
    chat_form = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "b"}}]}
    responses_form = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "b"}]}
    forms = {CHAT: {"type": "allowed_tools", "allowed_tools": chat_form}, RESPONSES: responses_form}
    body = request_with_choice(source, forms[source])
    assert list(declared_schemas(ANTHROPIC, translated_body(body, source, ANTHROPIC))) == ["b"]
    other = RESPONSES if source == CHAT else CHAT
    translated = translated_body(body, source, other)
    assert translated["tool_choice"] == forms[other]
    assert list(declared_schemas(other, translated)) == ["a", "b"]
    google = translated_body(body, source, GEMINI)
    assert google["toolConfig"]["functionCallingConfig"]["allowedFunctionNames"] == ["b"]
    assert list(declared_schemas(OLLAMA, translated_body(body, source, OLLAMA))) == ["b"]


CHOICES = [
    {ANTHROPIC: {"type": "auto"}, CHAT: "auto", RESPONSES: "auto", GEMINI: {"mode": "AUTO"}, INTERACTIONS: "auto"},
    {ANTHROPIC: {"type": "none"}, CHAT: "none", RESPONSES: "none", GEMINI: {"mode": "NONE"}, INTERACTIONS: "none"},
    {ANTHROPIC: {"type": "any"}, CHAT: "required", RESPONSES: "required", GEMINI: {"mode": "ANY"}, INTERACTIONS: "any"},
    {
        ANTHROPIC: {"type": "tool", "name": "b"},
        CHAT: {"type": "function", "function": {"name": "b"}},
        RESPONSES: {"type": "function", "name": "b"},
        GEMINI: {"mode": "ANY", "allowedFunctionNames": ["b"]},
        INTERACTIONS: {"allowed_tools": {"mode": "any", "tools": ["b"]}},
    },
]
CHOICE_PROTOCOLS = [protocol for protocol in ALL_PROTOCOLS if protocol != OLLAMA]


def choice_in(protocol: str, body: Any) -> Any:
    """Return the tool choice of a request."""
    match protocol:
        case "gemini":
            return body["toolConfig"]["functionCallingConfig"]
        case "gemini-interactions":
            return body["generation_config"]["tool_choice"]
        case _:
            return body["tool_choice"]


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize(("source", "target"), [(a, b) for a in CHOICE_PROTOCOLS for b in CHOICE_PROTOCOLS if a != b])
def test_tc_9_every_choice_is_mapped_exactly(source: str, target: str, choice: dict[str, Any]) -> None:
    choices = {**choice, OPENROUTER: choice[CHAT]}
    body = request_with_choice(source, choices[source])
    assert choice_in(target, translated_body(body, source, target)) == choices[target]
    offered = {"none": [], "any": ["a", "b"], "auto": ["a", "b"], "tool": ["b"]}[choice[ANTHROPIC]["type"]]
    translated = translated_body(body, source, OLLAMA)  # without a tool choice, only the chosen tools are sent
    assert list(declared_schemas(OLLAMA, translated)) == offered


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
def test_tc_10_settings_without_equivalent_are_reported(body: dict[str, Any], path: str) -> None:
    assert has_loss_at(loss_paths(body, CHAT, ANTHROPIC), path)


MID_CONVERSATION = anthropic_request(
    *tool_cycle_request(ANTHROPIC, "toolu_1")["messages"], REMINDER, {"role": "assistant", "content": "Oui."}
)


def test_sy_1_system_text_in_the_middle_keeps_its_position_in_chat() -> None:
    for target in (CHAT, OLLAMA, OPENROUTER):
        translated = translated_body(MID_CONVERSATION, ANTHROPIC, target)
        assert message_roles(translated) == ["user", "assistant", "tool", "system", "assistant"]
        assert translated["messages"][3]["content"] == "Answer in French."


@pytest.mark.parametrize("target", [target for target in ALL_PROTOCOLS if target != ANTHROPIC])
def test_sy_2_system_text_is_never_dropped(target: str) -> None:
    assert str(translated_body(MID_CONVERSATION, ANTHROPIC, target)).count("Answer in French.") == 1


def test_sy_3_system_text_in_the_middle_is_a_developer_item_in_responses() -> None:
    items = responses_items(translated_body(MID_CONVERSATION, ANTHROPIC, RESPONSES))
    (developer_item,) = [item for item in items if "Answer in French." in str(item.get("content"))]
    assert (developer_item["role"], items.index(developer_item)) == ("developer", 3)


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("source", [CHAT, RESPONSES])
def test_sy_4_leading_system_text_is_lifted_and_later_text_is_placed_legally(source: str, role: str) -> None:
    messages = [{"role": role, "content": "Be brief."}, USER_MESSAGE, {"role": role, "content": "Answer in French."}]
    body = chat_request(*messages) if source == CHAT else responses_request(*messages)
    translated = translated_body(body, source, ANTHROPIC)
    assert content_text(translated["system"]) == "Be brief."
    reminder = "<system-reminder>\nAnswer in French.\n</system-reminder>"
    assert [content_text(message["content"]) for message in translated["messages"]] == ["Go on.", reminder]
    assert message_roles(translated) == ["user", "user"]


def test_sy_5_null_instructions_are_no_instructions() -> None:
    body = responses_request(instructions=None)
    assert translated_body(body, RESPONSES, RESPONSES) == body
    assert "system" not in translated_body(body, RESPONSES, ANTHROPIC)
    assert message_roles(translated_body(body, RESPONSES, CHAT)) == ["user"]


def test_sy_6_system_blocks_with_cache_marks_lose_only_the_marks() -> None:
    blocks = [
        {"type": "text", "text": "Be brief."},
        {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}},
    ]
    body = anthropic_request(system=blocks, model="gpt-6")
    translated = translated_body(body, ANTHROPIC, CHAT)
    assert "cache_control" not in str(translated)
    assert translated["messages"][0]["content"] == [
        {"type": "text", "text": "Be brief."},
        {"type": "text", "text": "Be kind.", "prompt_cache_breakpoint": {"mode": "explicit"}},
    ]
    for target in (RESPONSES, GEMINI, INTERACTIONS, OLLAMA):
        flat = translated_body(body, ANTHROPIC, target)
        assert "cache_control" not in str(flat)
        assert "Be brief." in str(flat)
        assert "Be kind." in str(flat)
        assert loss_kinds(body, ANTHROPIC, target)["/system/1/cache_control"] == "dropped"


MID_CONVERSATION_REQUESTS = {
    protocol: chat_request(
        {"role": "system", "content": "Be brief."}, USER_MESSAGE, REMINDER, {"role": "user", "content": "And?"}
    )
    for protocol in (CHAT, OLLAMA, OPENROUTER)
}
MID_CONVERSATION_REQUESTS[RESPONSES] = responses_request(
    USER_MESSAGE, {**REMINDER, "role": "developer"}, {"role": "user", "content": "And?"}, instructions="Be brief."
)
MID_CONVERSATION_REQUESTS[ANTHROPIC] = anthropic_request(
    USER_MESSAGE, REMINDER, {"role": "user", "content": "And?"}, system="Be brief."
)


@pytest.mark.parametrize("source", list(MID_CONVERSATION_REQUESTS))
def test_sy_7_system_text_is_an_instruction_or_a_reminder(source: str) -> None:
    body = MID_CONVERSATION_REQUESTS[source]
    reminder = "<system-reminder>\nAnswer in French.\n</system-reminder>"
    translated = translated_body(body, source, GEMINI)
    assert translated["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert [(content["role"], content["parts"]) for content in translated["contents"]] == [
        ("user", [{"text": "Go on."}]),
        ("user", [{"text": reminder}]),
        ("user", [{"text": "And?"}]),
    ]
    interaction = translated_body(body, source, INTERACTIONS)
    assert interaction["system_instruction"] == "Be brief."
    assert [content_text(step["content"]) for step in interaction["input"]] == ["Go on.", reminder, "And?"]
    path = "/input/1/role" if source == RESPONSES else "/messages/1/role" if source == ANTHROPIC else "/messages/2/role"
    assert loss_kinds(body, source, GEMINI)[path] == "approximated"
