"""Web search, fetch and code execution between all vendors: declared, bounded, forced, replaced or refused."""

import json
from typing import Any

import pytest

import toolwire as tw
from tests.support.protocols import ANTHROPIC, CHAT, RESPONSES
from toolwire.canonical.fold import unfold
from toolwire.codec.interface import ResponseContext
from toolwire.protocols import PROTOCOLS

GEMINI, INTERACTIONS, OLLAMA, ROUTER = "gemini", "gemini-interactions", "ollama", "openrouter"
ALL = (ANTHROPIC, CHAT, RESPONSES, GEMINI, INTERACTIONS, OLLAMA, ROUTER)

# How each vendor declares its own; Chat and Ollama have no such tools.
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
OTHER_WORDS: list[tuple[str, dict[str, Any], str]] = [
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
    for source in ALL
    for kind in DECLARED[source]
    for target in ALL
    if source != target and {source, target} != {CHAT, ROUTER}
]
LACKING = [one for one in PAIRS if one[2] not in DECLARED[one[1]]]


def asking(protocol: str, tools: list[Any], **fields: Any) -> dict[str, Any]:
    said: dict[str, Any]
    match protocol:
        case "gemini":
            said = {"contents": [{"role": "user", "parts": [{"text": "Go"}]}]}
        case "openai-responses" | "gemini-interactions":
            said = {"model": "m", "input": "Go"}
        case "anthropic":
            said = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": "Go"}]}
        case _:
            said = {"model": "m", "messages": [{"role": "user", "content": "Go"}]}
    return {**said, "tools": tools, **fields}


def made_of(body: Any, source: str, target: str, **options: Any) -> tw.Translation:
    return tw.translate(body, source, target, model="gemini-3-pro" if GEMINI in (source, target) else None, **options)


def names(tools: list[Any]) -> list[str]:
    """The names of the functions that are declared."""
    found = [one for tool in tools for one in tool.get("functionDeclarations", [tool])]
    return [one.get("function", one).get("name", "") for one in found]


@pytest.mark.parametrize(("source", "target", "kind"), PAIRS)
def test_a_tool_that_both_have_is_declared_and_one_that_is_lacking_dropped(source: str, target: str, kind: str) -> None:
    made = made_of(asking(source, [FUNCTION[source], DECLARED[source][kind]]), source, target)
    place = f"/tools/1/{next(iter(DECLARED[source][kind]))}" if source == GEMINI else "/tools/1"
    dropped = [loss.path for loss in made.losses if loss.kind == "dropped" and loss.path.startswith("/tools/1")]
    if kind in DECLARED[target]:
        assert made.value["tools"][1:] == [DECLARED[target][kind]]
        assert dropped == (["/tools/1/container"] if (source, kind) == (RESPONSES, "code_execution") else [])
    else:
        assert len(made.value["tools"]) == 1
        assert dropped == [place]


@pytest.mark.parametrize("target", [ANTHROPIC, CHAT, GEMINI, INTERACTIONS, ROUTER])
@pytest.mark.parametrize("words", [[], ["web_search_preview"]])
def test_one_that_may_not_be_chosen_is_not_offered(target: str, words: list[str]) -> None:
    allowed = [{"type": "function", "name": "f"}, *({"type": word} for word in words)]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": allowed}
    body = asking(RESPONSES, [FUNCTION[RESPONSES], {"type": "web_search_preview"}], tool_choice=choice)
    model = (
        "gemini-3-pro" if target == GEMINI else "gpt-5-search"
    )  # Chat's only models with a search have it in their name
    made = tw.translate(body, RESPONSES, target, model=model)
    dropped = {loss.path: loss.reason for loss in made.losses if loss.kind == "dropped"}
    offered = [made.value["tools"][1:], made.value.get("web_search_options")]
    if words:
        assert "/tools/1" not in dropped
        assert offered != [[], None]
    else:
        assert dropped["/tools/1"] == "excluded by the tool choice"
        assert offered == [[], None]


def test_names_of_functions_leave_the_vendor_s_own_tools_alone() -> None:
    config = {"functionCallingConfig": {"mode": "VALIDATED", "allowedFunctionNames": ["f"]}}
    made = made_of(asking(GEMINI, [FUNCTION[GEMINI], {"googleSearch": {}}], toolConfig=config), GEMINI, ANTHROPIC)
    assert made.value["tools"][1:] == [DECLARED[ANTHROPIC]["web_search"]]


@pytest.mark.parametrize(("source", "tool", "kind"), OTHER_WORDS)
def test_other_words_for_the_same(source: str, tool: Any, kind: str) -> None:
    made = made_of(asking(source, [tool]), source, INTERACTIONS)
    assert made.value["tools"] == [DECLARED[INTERACTIONS][kind]]


def test_two_searches_are_one_where_names_are_unique() -> None:
    body = asking(RESPONSES, [{"type": "web_search"}, {"type": "web_search_preview"}])
    made = made_of(body, RESPONSES, ANTHROPIC)
    assert made.value["tools"] == [DECLARED[ANTHROPIC]["web_search"]]
    assert [loss.path for loss in made.losses if loss.kind == "dropped"] == ["/tools/1"]


@pytest.mark.parametrize(("source", "target", "kind"), [one for one in PAIRS if one[2] != "code_execution"])
def test_functions_that_the_client_runs_take_its_place(source: str, target: str, kind: str) -> None:
    made = made_of(asking(source, [FUNCTION[source], DECLARED[source][kind]]), source, target, hosted_tools="function")
    if (target, kind) == (RESPONSES, "web_search"):  # the matrix has it as the provider's own
        assert made.value["tools"][1] == DECLARED[target][kind]
        return
    assert names(made.value["tools"]) == ["f", "google_web_search" if kind == "web_search" else kind]
    parameter = "query" if kind == "web_search" else "prompt"
    assert f'"{parameter}":{{"type":"string"}}' in made.to_bytes().decode()


@pytest.mark.parametrize(("source", "target", "kind"), LACKING)
def test_what_is_lacking_can_always_be_refused(source: str, target: str, kind: str) -> None:
    with pytest.raises(tw.LossyTranslationError, match="the target has no"):
        made_of(asking(source, [FUNCTION[source], DECLARED[source][kind]]), source, target, hosted_tools="refuse")


FORCED: dict[tuple[str, str], Any] = {
    (ANTHROPIC, "web_search"): {"type": "tool", "name": "web_search"},
    (ANTHROPIC, "web_fetch"): {"type": "tool", "name": "web_fetch"},
    (ANTHROPIC, "code_execution"): {"type": "tool", "name": "code_execution"},
    (RESPONSES, "web_search"): {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]},
    (RESPONSES, "code_execution"): {"type": "code_interpreter"},
    (ROUTER, "web_search"): {"type": "openrouter:web_search"},
    (ROUTER, "web_fetch"): {"type": "openrouter:web_fetch"},
}


@pytest.mark.parametrize(("source", "target", "kind"), [one for one in PAIRS if (one[0], one[2]) in FORCED])
def test_a_forced_tool_is_forced_or_refused_by_name(source: str, target: str, kind: str) -> None:
    body = asking(source, [FUNCTION[source], DECLARED[source][kind]], tool_choice=FORCED[source, kind])
    if kind not in DECLARED[target]:
        word = "code_" if kind == "code_execution" else kind
        with pytest.raises(tw.LossyTranslationError, match=f"/tools/1: {word}.* must be called"):
            made_of(body, source, target)
    elif target in (GEMINI, INTERACTIONS):  # who can't force their own
        assert any(loss.path.startswith("/tool_choice") for loss in made_of(body, source, target).losses)
    else:
        assert made_of(body, source, target).value["tool_choice"] == FORCED[target, kind]


def test_a_search_forced_by_its_old_word_is_the_search_that_is_declared() -> None:
    body = asking(RESPONSES, [{"type": "web_search_preview"}], tool_choice={"type": "web_search_preview_2025_03_11"})
    assert made_of(body, RESPONSES, ANTHROPIC).value["tool_choice"] == FORCED[ANTHROPIC, "web_search"]


@pytest.mark.parametrize(("source", "kind"), [one for one in FORCED if one[1] != "code_execution"])
def test_a_forced_tool_that_a_function_replaces_forces_the_function(source: str, kind: str) -> None:
    body = asking(source, [FUNCTION[source], DECLARED[source][kind]], tool_choice=FORCED[source, kind])
    name = "google_web_search" if kind == "web_search" else kind
    made = made_of(body, source, INTERACTIONS, hosted_tools="function").value
    assert made["generation_config"]["tool_choice"] == {"allowed_tools": {"mode": "any", "tools": [name]}}


@pytest.mark.parametrize(("source", "target", "kind"), [one for one in LACKING if one[0] == ANTHROPIC])
def test_a_call_that_only_a_lacking_tool_could_be_is_refused(source: str, target: str, kind: str) -> None:
    alone = asking(source, [DECLARED[source][kind]], tool_choice={"type": "any"})
    with pytest.raises(tw.LossyTranslationError, match="must be called"):
        made_of(alone, source, target)
    beside = asking(source, [FUNCTION[source], DECLARED[source][kind]], tool_choice={"type": "any"})
    assert len(made_of(beside, source, target).value["tools"]) == 1


# ---- what bounds them

OSLO = {"type": "approximate", "city": "Oslo", "country": "NO"}
SITES = ["a.test"]
BOUNDS: dict[str, tuple[dict[str, Any], list[tuple[str, dict[str, Any], set[str]]]]] = {
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
    ("source", "bounds", "target", "kept", "lost"),
    [(source, bounds, *rest) for source, (bounds, targets) in BOUNDS.items() for rest in targets],
)
def test_bounds_that_both_have_are_kept_and_others_reported(
    *, source: str, bounds: Any, target: str, kept: Any, lost: set[str]
) -> None:
    made = made_of(asking(source, [{**DECLARED[source]["web_search"], **bounds}]), source, target)
    assert made.value["tools"] == [{**DECLARED[target]["web_search"], **kept}]
    assert {loss.path.rpartition("/")[2] for loss in made.losses if loss.path.startswith("/tools")} == lost


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
def test_a_filter_that_can_t_be_kept_is_refused(source: str, tool: Any, path: str, target: str) -> None:
    with pytest.raises(tw.LossyTranslationError, match=path):
        made_of(asking(source, [tool]), source, target)


@pytest.mark.parametrize(("source", "tool", "path"), FILTERED)
def test_a_filter_goes_with_the_tool_that_it_bounds(source: str, tool: Any, path: str) -> None:
    made = made_of(asking(source, [tool, FUNCTION[source]]), source, OLLAMA)
    assert [loss.path for loss in made.losses if loss.kind == "dropped"] == ["/tools/0"]
    with pytest.raises(tw.LossyTranslationError, match="cannot enforce its restrictions"):
        made_of(asking(source, [tool, FUNCTION[source]]), source, OLLAMA, hosted_tools="function")


FOR_PROGRAMS = [
    (RESPONSES, {"type": "code_interpreter", "container": {"type": "auto"}, "allowed_callers": ["programmatic"]}),
    (ANTHROPIC, {**DECLARED[ANTHROPIC]["web_search"], "allowed_callers": ["code_execution_20250825"]}),
]


@pytest.mark.parametrize(("source", "tool"), FOR_PROGRAMS)
def test_one_that_only_programs_may_call_is_refused_where_the_model_could(source: str, tool: dict[str, Any]) -> None:
    other = RESPONSES if source == ANTHROPIC else ANTHROPIC
    for target in (other, GEMINI, INTERACTIONS):
        with pytest.raises(tw.LossyTranslationError, match="/tools/0/allowed_callers/0"):
            made_of(asking(source, [tool]), source, target)
        also_direct = {**tool, "allowed_callers": ["direct", *tool["allowed_callers"]]}
        assert made_of(asking(source, [also_direct]), source, target).value["tools"]


def test_nor_may_a_function_stand_in_for_it() -> None:
    _, tool = FOR_PROGRAMS[1]
    with pytest.raises(tw.LossyTranslationError, match="/tools/0"):
        made_of(asking(ANTHROPIC, [tool]), ANTHROPIC, OLLAMA, hosted_tools="function")


def test_excluded_domains_of_vertex_go_where_they_can_be_kept() -> None:
    body = asking(GEMINI, [{"googleSearch": {"excludeDomains": SITES}}])
    assert made_of(body, GEMINI, ANTHROPIC).value["tools"][0]["blocked_domains"] == SITES
    with pytest.raises(tw.LossyTranslationError, match="/tools/0/googleSearch/excludeDomains/0"):
        made_of(body, GEMINI, RESPONSES)


# ---- where it is no tool

CHAT_SEARCH = {
    "search_context_size": "low",
    "user_location": {"type": "approximate", "approximate": {"city": "Oslo", "country": "NO"}},
}


@pytest.mark.parametrize("tools", [None, [], [FUNCTION[ROUTER]]])
def test_the_search_field_of_chat_comes_home(tools: Any) -> None:
    body = asking(CHAT, tools, web_search_options=CHAT_SEARCH)
    if tools is None:
        del body["tools"]
    made = tw.translate(body, CHAT, CHAT)
    assert (made.value, made.losses) == (body, [])


def test_the_search_field_of_chat_is_a_search() -> None:
    body = asking(CHAT, [], web_search_options=CHAT_SEARCH)
    made = tw.translate(body, CHAT, RESPONSES)
    assert made.value["tools"] == [{"type": "web_search", "search_context_size": "low", "user_location": OSLO}]
    assert made.losses == []
    with pytest.raises(tw.LossyTranslationError, match="/web_search_options"):
        tw.translate(body, CHAT, OLLAMA)
    lost = tw.translate({**body, "tools": [FUNCTION[CHAT]]}, CHAT, OLLAMA).losses
    assert [(loss.kind, loss.path) for loss in lost] == [("dropped", "/web_search_options")]


def test_a_search_is_that_field_for_models_that_have_it() -> None:
    search = {"type": "web_search", "search_context_size": "low", "user_location": OSLO}
    body = {**asking(RESPONSES, [search]), "model": "gpt-4o-search-preview"}
    made = tw.translate(body, RESPONSES, CHAT)
    assert made.value["web_search_options"] == CHAT_SEARCH
    assert "tools" not in made.value
    assert made.losses == []
    with pytest.raises(tw.LossyTranslationError, match="/tools/0: web_search is the only tool"):
        tw.translate({**body, "model": "gpt-4o"}, RESPONSES, CHAT)


def test_plugins_that_search_and_fetch_are_tools_elsewhere() -> None:
    web = {"id": "web", "max_results": 3, "include_domains": SITES}
    plugins = [web, {"id": "web-fetch"}, {"id": "moderation"}, {"id": "web", "enabled": False}]
    body = asking(ROUTER, [FUNCTION[ROUTER]], plugins=plugins)
    assert tw.translate(body, ROUTER, ROUTER).value == body
    made = tw.translate(body, ROUTER, ANTHROPIC)
    assert made.value["tools"][1:] == [
        {**DECLARED[ANTHROPIC]["web_search"], "allowed_domains": SITES},
        DECLARED[ANTHROPIC]["web_fetch"],
    ]
    lost = {loss.path for loss in made.losses if loss.path.startswith("/plugins")}
    assert lost == {"/plugins/0/max_results", "/plugins/2", "/plugins/3"}


# ---- the functions in their place, through a whole turn

_FUNCTION = {"name": "google_web_search", "arguments": '{"query":"Oslo"}'}
_CALLED = {"content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": _FUNCTION}]}
_CHOICE = {"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", **_CALLED}}
_ARGUMENTS = {"query": "Oslo"}
_PART = {"functionCall": {"name": "google_web_search", "args": _ARGUMENTS}}
ANSWERS: dict[str, dict[str, Any]] = {
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


@pytest.mark.parametrize("target", ANSWERS)
def test_calls_and_results_go_along_and_are_raised_again(target: str) -> None:
    asked = asking(ANTHROPIC, [DECLARED[ANTHROPIC]["web_search"]])
    call = {"type": "tool_use", "id": "toolu_1", "name": "web_search", "input": _ARGUMENTS}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "It rains."}
    turns = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    body = {**asked, "messages": [*asked["messages"], *turns]}
    sent = made_of(body, ANTHROPIC, target, hosted_tools="function").to_bytes().decode()
    assert '"google_web_search"' in sent
    assert '"web_search"' not in sent
    (raised,) = _answered(target, asked, hosted_tools="function")
    assert (raised["type"], raised["name"], raised["input"]) == ("tool_use", "web_search", _ARGUMENTS)
    (own,) = _answered(target, asked)
    assert own["name"] == "google_web_search", "a tool of that name that nobody put in"


def _answered(target: str, asked: Any, **options: Any) -> Any:
    """The content of the answer, which is the same when it is streamed."""
    content = tw.translate(ANSWERS[target], target, ANTHROPIC, "response", request=asked, **options).value["content"]
    codec = PROTOCOLS[target]
    encoder = codec.stream_encoder(ResponseContext())
    answer = codec.decode_response(json.dumps(ANSWERS[target]).encode(), ResponseContext())
    wire = encoder.encode(list(unfold(answer))) + encoder.close()
    told = b"".join(tw.translate_stream([wire], target, ANTHROPIC, asked, **options)).decode()
    assert [block["name"] in told for block in content] == [True]
    return content
