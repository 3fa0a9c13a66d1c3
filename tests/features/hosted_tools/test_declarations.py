"""Declarations of web search, fetch and code execution between vendors: mapped, forced, replaced or refused."""

import json
from typing import Any

import pytest

import toolwire as tw
from tests.support.protocols import ANTHROPIC, CHAT, RESPONSES
from toolwire.canonical.fold import unfold
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS

GEMINI, INTERACTIONS, OLLAMA, ROUTER = "gemini", "gemini-interactions", "ollama", "openrouter"
VENDORS = (ANTHROPIC, CHAT, RESPONSES, GEMINI, INTERACTIONS, OLLAMA, ROUTER)

# The declaration of each vendor; Chat and Ollama have no such tools.
DECLARED: dict[str, dict[str, Any]] = {
    ANTHROPIC: {
        "web_search": {"type": "web_search_20250305", "name": "web_search"},
        "web_fetch": {"type": "web_fetch_20250910", "name": "web_fetch"},
        "code_execution": {"type": "code_execution_20250825", "name": "code_execution"},
    },
    RESPONSES: {
        "web_search": {"type": "web_search"},
        "code_execution": {"type": "code_interpreter", "container": {"type": "auto"}},
    },
    GEMINI: {
        "web_search": {"googleSearch": {}},
        "web_fetch": {"urlContext": {}},
        "code_execution": {"codeExecution": {}},
    },
    INTERACTIONS: {
        "web_search": {"type": "google_search"},
        "web_fetch": {"type": "url_context"},
        "code_execution": {"type": "code_execution"},
    },
    ROUTER: {
        "web_search": {"type": "openrouter:web_search"},
        "web_fetch": {"type": "openrouter:web_fetch"},
    },
    CHAT: {},
    OLLAMA: {},
}
ALTERNATIVE_SPELLINGS: list[tuple[str, dict[str, Any], str]] = [
    (ANTHROPIC, {"type": "web_search_20260318", "name": "web_search"}, "web_search"),
    (RESPONSES, {"type": "web_search_preview"}, "web_search"),
    (RESPONSES, {"type": "web_search_2025_08_26"}, "web_search"),
    (GEMINI, {"google_search": {}}, "web_search"),
    (GEMINI, {"googleSearchRetrieval": {}}, "web_search"),
    (GEMINI, {"google_search_retrieval": {}}, "web_search"),
    (GEMINI, {"url_context": {}}, "web_fetch"),
    (GEMINI, {"code_execution": {}}, "code_execution"),
    (ROUTER, {"type": "web_search"}, "web_search"),
]
FUNCTION: dict[str, dict[str, Any]] = {
    ANTHROPIC: {"name": "f", "input_schema": {"type": "object", "properties": {}}},
    RESPONSES: {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": False},
    GEMINI: {"functionDeclarations": [{"name": "f"}]},
    INTERACTIONS: {"type": "function", "name": "f"},
    ROUTER: {"type": "function", "function": {"name": "f"}},
    CHAT: {"type": "function", "function": {"name": "f"}},
}
PAIRS = [
    (source, target, kind)
    for source in VENDORS
    for kind in DECLARED[source]
    for target in VENDORS
    if source != target and {source, target} != {CHAT, ROUTER}
]
MISSING = [pair for pair in PAIRS if pair[2] not in DECLARED[pair[1]]]


def build_request(protocol: str, tools: list[Any], **fields: Any) -> dict[str, Any]:
    """Build a minimal request with tools."""
    body: dict[str, Any]
    match protocol:
        case "gemini":
            body = {"contents": [{"role": "user", "parts": [{"text": "Go"}]}]}
        case "openai-responses" | "gemini-interactions":
            body = {"model": "m", "input": "Go"}
        case "anthropic":
            body = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": "Go"}]}
        case _:
            body = {"model": "m", "messages": [{"role": "user", "content": "Go"}]}
    return {**body, "tools": tools, **fields}


def translate(body: Any, source: str, target: str, **options: Any) -> tw.Translation:
    """Translate a request, with a Gemini 3 model if Gemini takes part."""
    return tw.translate(body, source, target, model="gemini-3-pro" if GEMINI in (source, target) else None, **options)


def function_names(tools: list[Any]) -> list[str]:
    """Return the names of the declared functions."""
    declarations = [declaration for tool in tools for declaration in tool.get("functionDeclarations", [tool])]
    return [declaration.get("function", declaration).get("name", "") for declaration in declarations]


@pytest.mark.parametrize(("source", "target", "kind"), PAIRS)
def test_shared_tools_are_declared_and_missing_ones_dropped(source: str, target: str, kind: str) -> None:
    translated = translate(build_request(source, [FUNCTION[source], DECLARED[source][kind]]), source, target)
    path = f"/tools/1/{next(iter(DECLARED[source][kind]))}" if source == GEMINI else "/tools/1"
    dropped = [loss.path for loss in translated.losses if loss.kind == "dropped" and loss.path.startswith("/tools/1")]
    if kind in DECLARED[target]:
        assert translated.value["tools"][1:] == [DECLARED[target][kind]]
        assert dropped == (["/tools/1/container"] if (source, kind) == (RESPONSES, "code_execution") else [])
    else:
        assert len(translated.value["tools"]) == 1
        assert dropped == [path]


@pytest.mark.parametrize("target", [ANTHROPIC, CHAT, GEMINI, INTERACTIONS, ROUTER])
@pytest.mark.parametrize("types", [[], ["web_search_preview"]])
def test_a_tool_that_the_choice_excludes_is_not_offered(target: str, types: list[str]) -> None:
    allowed = [{"type": "function", "name": "f"}, *({"type": type_name} for type_name in types)]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": allowed}
    body = build_request(RESPONSES, [FUNCTION[RESPONSES], {"type": "web_search_preview"}], tool_choice=choice)
    model = (
        "gemini-3-pro" if target == GEMINI else "gpt-5-search"
    )  # in Chat, only models with search in their name can search
    translated = tw.translate(body, RESPONSES, target, model=model)
    dropped = {loss.path: loss.reason for loss in translated.losses if loss.kind == "dropped"}
    offered = [translated.value["tools"][1:], translated.value.get("web_search_options")]
    if types:
        assert "/tools/1" not in dropped
        assert offered != [[], None]
    else:
        assert dropped["/tools/1"] == "excluded by the tool choice"
        assert offered == [[], None]


def test_function_names_do_not_clash_with_hosted_tools() -> None:
    config = {"functionCallingConfig": {"mode": "VALIDATED", "allowedFunctionNames": ["f"]}}
    translated = translate(
        build_request(GEMINI, [FUNCTION[GEMINI], {"googleSearch": {}}], toolConfig=config), GEMINI, ANTHROPIC
    )
    assert translated.value["tools"][1:] == [DECLARED[ANTHROPIC]["web_search"]]


@pytest.mark.parametrize(("source", "tool", "kind"), ALTERNATIVE_SPELLINGS)
def test_alternative_spellings_declare_the_same_tool(source: str, tool: Any, kind: str) -> None:
    translated = translate(build_request(source, [tool]), source, INTERACTIONS)
    assert translated.value["tools"] == [DECLARED[INTERACTIONS][kind]]


def test_two_searches_become_one_where_names_must_be_unique() -> None:
    body = build_request(RESPONSES, [{"type": "web_search"}, {"type": "web_search_preview"}])
    translated = translate(body, RESPONSES, ANTHROPIC)
    assert translated.value["tools"] == [DECLARED[ANTHROPIC]["web_search"]]
    assert [loss.path for loss in translated.losses if loss.kind == "dropped"] == ["/tools/1"]


@pytest.mark.parametrize(("source", "target", "kind"), [pair for pair in PAIRS if pair[2] != "code_execution"])
def test_client_functions_can_replace_missing_tools(source: str, target: str, kind: str) -> None:
    translated = translate(
        build_request(source, [FUNCTION[source], DECLARED[source][kind]]), source, target, hosted_tools="function"
    )
    if (target, kind) == (RESPONSES, "web_search"):  # a hosted tool exists
        assert translated.value["tools"][1] == DECLARED[target][kind]
        return
    assert function_names(translated.value["tools"]) == ["f", "google_web_search" if kind == "web_search" else kind]
    parameter = "query" if kind == "web_search" else "prompt"
    assert f'"{parameter}":{{"type":"string"}}' in translated.to_bytes().decode()


@pytest.mark.parametrize(("source", "target", "kind"), MISSING)
def test_missing_tools_can_be_refused(source: str, target: str, kind: str) -> None:
    with pytest.raises(tw.LossyTranslationError, match="the target has no"):
        translate(
            build_request(source, [FUNCTION[source], DECLARED[source][kind]]), source, target, hosted_tools="refuse"
        )


FORCED: dict[tuple[str, str], Any] = {
    (ANTHROPIC, "web_search"): {"type": "tool", "name": "web_search"},
    (ANTHROPIC, "web_fetch"): {"type": "tool", "name": "web_fetch"},
    (ANTHROPIC, "code_execution"): {"type": "tool", "name": "code_execution"},
    (RESPONSES, "web_search"): {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]},
    (RESPONSES, "code_execution"): {"type": "code_interpreter"},
    (ROUTER, "web_search"): {"type": "openrouter:web_search"},
    (ROUTER, "web_fetch"): {"type": "openrouter:web_fetch"},
}


@pytest.mark.parametrize(("source", "target", "kind"), [pair for pair in PAIRS if (pair[0], pair[2]) in FORCED])
def test_a_forced_tool_is_forced_or_refused_by_name(source: str, target: str, kind: str) -> None:
    body = build_request(source, [FUNCTION[source], DECLARED[source][kind]], tool_choice=FORCED[source, kind])
    if kind not in DECLARED[target]:
        word = "code_" if kind == "code_execution" else kind
        with pytest.raises(tw.LossyTranslationError, match=f"/tools/1: {word}.* must be called"):
            translate(body, source, target)
    elif target in (GEMINI, INTERACTIONS):  # vendors that cannot force hosted tools
        assert any(loss.path.startswith("/tool_choice") for loss in translate(body, source, target).losses)
    else:
        assert translate(body, source, target).value["tool_choice"] == FORCED[target, kind]


def test_a_search_forced_by_its_old_name_is_the_declared_search() -> None:
    body = build_request(
        RESPONSES, [{"type": "web_search_preview"}], tool_choice={"type": "web_search_preview_2025_03_11"}
    )
    assert translate(body, RESPONSES, ANTHROPIC).value["tool_choice"] == FORCED[ANTHROPIC, "web_search"]


@pytest.mark.parametrize(("source", "kind"), [case for case in FORCED if case[1] != "code_execution"])
def test_a_forced_tool_that_a_function_replaces_forces_the_function(source: str, kind: str) -> None:
    body = build_request(source, [FUNCTION[source], DECLARED[source][kind]], tool_choice=FORCED[source, kind])
    name = "google_web_search" if kind == "web_search" else kind
    translated = translate(body, source, INTERACTIONS, hosted_tools="function").value
    assert translated["generation_config"]["tool_choice"] == {"allowed_tools": {"mode": "any", "tools": [name]}}


@pytest.mark.parametrize(("source", "target", "kind"), [pair for pair in MISSING if pair[0] == ANTHROPIC])
def test_a_forced_call_without_any_available_tool_is_refused(source: str, target: str, kind: str) -> None:
    alone = build_request(source, [DECLARED[source][kind]], tool_choice={"type": "any"})
    with pytest.raises(tw.LossyTranslationError, match="must be called"):
        translate(alone, source, target)
    beside = build_request(source, [FUNCTION[source], DECLARED[source][kind]], tool_choice={"type": "any"})
    assert len(translate(beside, source, target).value["tools"]) == 1


# ---- limits

OSLO = {"type": "approximate", "city": "Oslo", "country": "NO"}
SITES = ["a.test"]
LIMITS: dict[str, tuple[dict[str, Any], list[tuple[str, dict[str, Any], set[str]]]]] = {
    ANTHROPIC: (
        {"max_uses": 2, "allowed_domains": SITES, "user_location": OSLO},
        [
            (RESPONSES, {"filters": {"allowed_domains": SITES}, "user_location": OSLO}, {"max_uses"}),
            (ROUTER, {"parameters": {"max_uses": 2, "allowed_domains": SITES, "user_location": OSLO}}, set()),
        ],
    ),
    RESPONSES: (
        {"filters": {"allowed_domains": SITES}, "user_location": OSLO, "search_context_size": "low"},
        [
            (ANTHROPIC, {"allowed_domains": SITES, "user_location": OSLO}, {"search_context_size"}),
            (
                ROUTER,
                {"parameters": {"allowed_domains": SITES, "user_location": OSLO, "search_context_size": "low"}},
                set(),
            ),
        ],
    ),
    ROUTER: (
        {"parameters": {"max_uses": 2, "allowed_domains": SITES, "search_context_size": "low", "engine": "exa"}},
        [
            (ANTHROPIC, {"max_uses": 2, "allowed_domains": SITES}, {"search_context_size", "engine"}),
            (RESPONSES, {"filters": {"allowed_domains": SITES}, "search_context_size": "low"}, {"max_uses", "engine"}),
        ],
    ),
}


@pytest.mark.parametrize(
    ("source", "limits", "target", "expected", "lost"),
    [(source, limits, *case) for source, (limits, cases) in LIMITS.items() for case in cases],
)
def test_shared_limits_are_kept_and_others_reported(
    *, source: str, limits: Any, target: str, expected: Any, lost: set[str]
) -> None:
    translated = translate(build_request(source, [{**DECLARED[source]["web_search"], **limits}]), source, target)
    assert translated.value["tools"] == [{**DECLARED[target]["web_search"], **expected}]
    assert {loss.path.rpartition("/")[2] for loss in translated.losses if loss.path.startswith("/tools")} == lost


FILTERED: list[tuple[str, dict[str, Any], str]] = [
    (ANTHROPIC, {**DECLARED[ANTHROPIC]["web_search"], "allowed_domains": SITES}, "/tools/0/allowed_domains/0"),
    (ANTHROPIC, {**DECLARED[ANTHROPIC]["web_fetch"], "blocked_domains": SITES}, "/tools/0/blocked_domains/0"),
    (RESPONSES, {"type": "web_search", "filters": {"allowed_domains": SITES}}, "/tools/0/filters/allowed_domains/0"),
    (
        ROUTER,
        {"type": "openrouter:web_search", "parameters": {"excluded_domains": SITES}},
        "/tools/0/parameters/excluded_domains/0",
    ),
]


@pytest.mark.parametrize("target", [GEMINI, INTERACTIONS])
@pytest.mark.parametrize(("source", "tool", "path"), FILTERED)
def test_an_unsupported_domain_filter_is_refused(source: str, tool: Any, path: str, target: str) -> None:
    with pytest.raises(tw.LossyTranslationError, match=path):
        translate(build_request(source, [tool]), source, target)


@pytest.mark.parametrize(("source", "tool", "path"), FILTERED)
def test_a_domain_filter_is_dropped_with_its_tool(source: str, tool: Any, path: str) -> None:
    translated = translate(build_request(source, [tool, FUNCTION[source]]), source, OLLAMA)
    assert [loss.path for loss in translated.losses if loss.kind == "dropped"] == ["/tools/0"]
    with pytest.raises(tw.LossyTranslationError, match="cannot enforce its restrictions"):
        translate(build_request(source, [tool, FUNCTION[source]]), source, OLLAMA, hosted_tools="function")


PROGRAM_TOOLS = [
    (RESPONSES, {"type": "code_interpreter", "container": {"type": "auto"}, "allowed_callers": ["programmatic"]}),
    (ANTHROPIC, {**DECLARED[ANTHROPIC]["web_search"], "allowed_callers": ["code_execution_20250825"]}),
]


@pytest.mark.parametrize(("source", "tool"), PROGRAM_TOOLS)
def test_a_tool_for_programs_only_is_refused_where_the_model_could_call_it(source: str, tool: dict[str, Any]) -> None:
    other = RESPONSES if source == ANTHROPIC else ANTHROPIC
    for target in (other, GEMINI, INTERACTIONS):
        with pytest.raises(tw.LossyTranslationError, match="/tools/0/allowed_callers/0"):
            translate(build_request(source, [tool]), source, target)
        also_direct = {**tool, "allowed_callers": ["direct", *tool["allowed_callers"]]}
        assert translate(build_request(source, [also_direct]), source, target).value["tools"]


def test_no_function_replaces_a_tool_for_programs_only() -> None:
    _, tool = PROGRAM_TOOLS[1]
    with pytest.raises(tw.LossyTranslationError, match="/tools/0"):
        translate(build_request(ANTHROPIC, [tool]), ANTHROPIC, OLLAMA, hosted_tools="function")


def test_excluded_domains_of_vertex_are_kept_where_supported() -> None:
    body = build_request(GEMINI, [{"googleSearch": {"excludeDomains": SITES}}])
    assert translate(body, GEMINI, ANTHROPIC).value["tools"][0]["blocked_domains"] == SITES
    with pytest.raises(tw.LossyTranslationError, match="/tools/0/googleSearch/excludeDomains/0"):
        translate(body, GEMINI, RESPONSES)


# ---- search as a field or a plugin

CHAT_SEARCH = {
    "search_context_size": "low",
    "user_location": {"type": "approximate", "approximate": {"city": "Oslo", "country": "NO"}},
}


@pytest.mark.parametrize("tools", [None, [], [FUNCTION[ROUTER]]])
def test_the_search_field_of_chat_is_unchanged_within_chat(tools: Any) -> None:
    body = build_request(CHAT, tools, web_search_options=CHAT_SEARCH)
    if tools is None:
        del body["tools"]
    translated = tw.translate(body, CHAT, CHAT)
    assert (translated.value, translated.losses) == (body, [])


def test_the_search_field_of_chat_becomes_a_search_tool() -> None:
    body = build_request(CHAT, [], web_search_options=CHAT_SEARCH)
    translated = tw.translate(body, CHAT, RESPONSES)
    assert translated.value["tools"] == [{"type": "web_search", "search_context_size": "low", "user_location": OSLO}]
    assert translated.losses == []
    with pytest.raises(tw.LossyTranslationError, match="/web_search_options"):
        tw.translate(body, CHAT, OLLAMA)
    lost = tw.translate({**body, "tools": [FUNCTION[CHAT]]}, CHAT, OLLAMA).losses
    assert [(loss.kind, loss.path) for loss in lost] == [("dropped", "/web_search_options")]


def test_a_search_tool_becomes_the_search_field_for_search_models() -> None:
    search = {"type": "web_search", "search_context_size": "low", "user_location": OSLO}
    body = {**build_request(RESPONSES, [search]), "model": "gpt-4o-search-preview"}
    translated = tw.translate(body, RESPONSES, CHAT)
    assert translated.value["web_search_options"] == CHAT_SEARCH
    assert "tools" not in translated.value
    assert translated.losses == []
    with pytest.raises(tw.LossyTranslationError, match="/tools/0: web_search is the only tool"):
        tw.translate({**body, "model": "gpt-4o"}, RESPONSES, CHAT)


def test_search_and_fetch_plugins_become_tools() -> None:
    web = {"id": "web", "max_results": 3, "include_domains": SITES}
    plugins = [web, {"id": "web-fetch"}, {"id": "moderation"}, {"id": "web", "enabled": False}]
    body = build_request(ROUTER, [FUNCTION[ROUTER]], plugins=plugins)
    assert tw.translate(body, ROUTER, ROUTER).value == body
    translated = tw.translate(body, ROUTER, ANTHROPIC)
    assert translated.value["tools"][1:] == [
        {**DECLARED[ANTHROPIC]["web_search"], "allowed_domains": SITES},
        DECLARED[ANTHROPIC]["web_fetch"],
    ]
    lost = {loss.path for loss in translated.losses if loss.path.startswith("/plugins")}
    assert lost == {"/plugins/0/max_results", "/plugins/2", "/plugins/3"}


# ---- replacement functions through a complete turn

_FUNCTION = {"name": "google_web_search", "arguments": '{"query":"Oslo"}'}
_CALL_MESSAGE = {"content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": _FUNCTION}]}
_CHOICE = {"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", **_CALL_MESSAGE}}
_ARGUMENTS = {"query": "Oslo"}
_PART = {"functionCall": {"name": "google_web_search", "args": _ARGUMENTS}}
RESPONSE_BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [_CHOICE]},
    ROUTER: {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [_CHOICE]},
    GEMINI: {"candidates": [{"content": {"role": "model", "parts": [_PART]}, "finishReason": "STOP"}]},
    INTERACTIONS: {
        "id": "i",
        "status": "requires_action",
        "steps": [{"type": "function_call", "id": "c", "name": "google_web_search", "arguments": _ARGUMENTS}],
    },
    OLLAMA: {
        "model": "m",
        "created_at": "2026-01-01T00:00:00Z",
        "message": {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "google_web_search", "arguments": _ARGUMENTS}}],
        },
        "done": True,
        "done_reason": "stop",
    },
}


@pytest.mark.parametrize("target", RESPONSE_BODIES)
def test_calls_of_replacement_functions_are_restored_as_hosted_calls(target: str) -> None:
    request = build_request(ANTHROPIC, [DECLARED[ANTHROPIC]["web_search"]])
    call = {"type": "tool_use", "id": "toolu_1", "name": "web_search", "input": _ARGUMENTS}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "It rains."}
    turns = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    body = {**request, "messages": [*request["messages"], *turns]}
    encoded = translate(body, ANTHROPIC, target, hosted_tools="function").to_bytes().decode()
    assert '"google_web_search"' in encoded
    assert '"web_search"' not in encoded
    (restored,) = _response_content(target, request, hosted_tools="function")
    assert (restored["type"], restored["name"], restored["input"]) == ("tool_use", "web_search", _ARGUMENTS)
    (call,) = _response_content(target, request)
    assert call["name"] == "google_web_search", "without the option, a function of that name is not replaced"


def _response_content(target: str, request: Any, **options: Any) -> Any:
    """Return the content of the translated response, after checking that the stream agrees."""
    content = tw.translate(RESPONSE_BODIES[target], target, ANTHROPIC, "response", request=request, **options).value[
        "content"
    ]
    codec = PROTOCOLS[target]
    encoder = codec.stream_encoder(ResponseContext())
    response = codec.decode_response(json.dumps(RESPONSE_BODIES[target]).encode(), ResponseContext())
    wire = encoder.encode(list(unfold(response))) + encoder.close()
    streamed = b"".join(tw.translate_stream([wire], target, ANTHROPIC, request, **options)).decode()
    assert [block["name"] in streamed for block in content] == [True]
    return content
