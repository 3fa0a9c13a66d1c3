"""Hosted tools of an agent: run by the provider where it has them and the policy allows it, by toolwire elsewhere."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.runtime.scripted_agent import ScriptedModel, model_call, model_turn, text_turn
from tests.support.servers.asgi import serve_app
from toolwire import (
    Agent,
    CallEnded,
    CallStarted,
    CodeExecution,
    Denied,
    Hooks,
    Policy,
    ProposedCall,
    RunContext,
    TextDelta,
    ToolOutput,
    ToolwireError,
    TurnStarted,
    WebFetch,
    WebSearch,
    tool,
)
from toolwire.canonical.content import Citation, Text
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool, HostedTool, NativeTool
from toolwire.codec.interface import Target
from toolwire.gateway.config import Config, ProviderSection, SearchSection
from toolwire.journal.runs import RunStore
from toolwire.protocols import PROTOCOLS
from toolwire.runtime.run.events import RunWarning
from toolwire.runtime.run.recorded_run import read_turns
from toolwire.runtime.tool import ToolSource
from toolwire.runtime.toolbox import DuplicateToolName
from toolwire.runtime.tools.web_search import SearchResult
from toolwire.translation.hosted_support import HostedSupport, find_hosted_support
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.script import parse_script

MODELS = {
    "anthropic": "claude-sonnet-5",
    "openai-chat": "gpt-5-search-api",
    "openai-responses": "gpt-5.4",
    "gemini": "gemini-3-pro",
    "gemini-interactions": "gemini-3-pro",
    "ollama": "qwen3:8b",
    "openrouter": "openai/gpt-6-astra",
}
LACKS = {
    "openai-chat": {"web_fetch", "code_execution"},
    "openai-responses": {"web_fetch"},
    "ollama": {"web_search", "web_fetch", "code_execution"},
    "openrouter": {"code_execution"},
}
ALLOWED = Policy(allow=["web_search", "web_fetch", "code_execution"])
SEARCH = 'web_search {"query": "rain"}'


class Pages:
    """A search service."""

    async def search(self, query: str) -> list[SearchResult]:
        return [
            SearchResult(title=f"All about {query}", url="https://a.test/rain", snippet="wet"),
            SearchResult(title="More", url="https://docs.b.test/rain", snippet="wetter"),
        ]


@tool(read_only=True)
def weather(city: str) -> str:
    """Return the weather of a city."""
    return "rain"


@contextmanager
def serve(protocol: str, script: str | None = None, **simulator: Any) -> Iterator[Config]:
    parsed = None if script is None else parse_script(script.encode(), "script")
    with serve_app(Simulator([protocol], script=parsed, **simulator)) as address:
        yield Config(providers={"up": ProviderSection(protocol=protocol, base_url=address, api_key="k" * 20)})


@pytest.mark.parametrize("protocol", MODELS)
def test_same_code_works_on_every_protocol(protocol: str, tmp_path: Path) -> None:
    tools: list[ToolSource] = [WebSearch(backend=Pages()), WebFetch(), CodeExecution(), weather]
    with (
        serve(protocol) as config,
        Agent(
            f"up/{MODELS[protocol]}", tools=tools, policy=ALLOWED, config=config, journal=tmp_path / "runs.db"
        ) as agent,
    ):
        stream = agent.stream(SEARCH)
        events = [event for event in stream if isinstance(event, CallStarted | CallEnded | TextDelta)]
        searched = stream.run
        computed = agent.run('code_execution {"code": "print(6 * 7)"}', history=searched.messages)
        # The strict simulator accepts the history with the provider's calls, signatures and encrypted results.
        asked = agent.run('weather {"city": "Oslo"}', history=computed.messages)

    assert asked.text == "weather returned: rain"
    locus = "local" if "web_search" in LACKS.get(protocol, ()) else "provider"
    (record,) = searched.calls
    assert (record.tool, record.locus, record.error) == ("web_search", locus, "")
    assert record.sources
    assert record.end >= record.start > 0
    (citation, *_) = searched.citations
    assert citation.url == record.sources[0].url
    assert searched.text[citation.start : citation.end]
    begin, end = [event for event in events if not isinstance(event, TextDelta)]
    assert isinstance(begin, CallStarted)
    assert isinstance(end, CallEnded)
    assert begin.call_id == end.call_id

    (computation,) = computed.calls
    is_ours = "code_execution" in LACKS.get(protocol, ())
    assert (computation.tool, computation.locus) == ("code_execution", "sandbox" if is_ours else "provider")
    assert computation.arguments == {"code": "print(6 * 7)"}
    assert computation.summary.strip() == ("42" if is_ours else "simulated output of 1 lines of code")

    with closing(RunStore(tmp_path / "runs.db")) as store:
        (turn, *_) = read_turns(store.steps(searched.id))
    (journaled,) = turn.calls.values()
    assert journaled.outcome is not None
    assert journaled.outcome.record == record


@pytest.mark.parametrize("protocol", ["anthropic", "gemini", "gemini-interactions", "openai-responses"])
def test_calls_of_the_provider_go_back_as_they_were(protocol: str) -> None:
    codec, model = PROTOCOLS[protocol], MODELS[protocol]
    with serve(protocol) as config:
        agent = Agent(f"up/{model}", tools=[WebSearch(), CodeExecution(), weather], policy=ALLOWED, config=config)
        with agent:
            run = agent.run(f'{SEARCH} code_execution {{"code": "1"}}')
    encoded = codec.encode_request(Request(origin="", model=model, messages=run.messages), Target(model=model))
    request = codec.decode_request(encoded.to_bytes(), encoded.route)
    kinds = {part.use.kind for message in request.messages for part in message.parts if getattr(part, "use", None)}  # type: ignore[union-attr]
    assert kinds == {"web_search", "code_execution"}


@pytest.mark.parametrize("protocol", MODELS)
def test_hooks_see_calls_wherever_they_run(protocol: str) -> None:
    seen: list[tuple[str, ProposedCall, str]] = []

    def before(_: RunContext, call: ProposedCall) -> None:
        seen.append(("before", call, ""))

    def after(_: RunContext, call: ProposedCall, output: ToolOutput) -> None:
        seen.append(("after", call, "".join(part.text for part in output.content if isinstance(part, Text))))

    hooks = [Hooks(before_tool=before, after_tool=after)]
    tools: list[ToolSource] = [WebSearch(backend=Pages()), CodeExecution()]
    with (
        serve(protocol) as config,
        Agent(f"up/{MODELS[protocol]}", tools=tools, policy=ALLOWED, config=config, hooks=hooks) as agent,
    ):
        (search,) = agent.run(SEARCH).calls
        (program,) = agent.run('code_execution {"code": "print(6 * 7)"}').calls
    assert [name for name, _, _ in seen] == ["before", "after"] * 2
    assert [call.id for _, call, _ in seen] == [*[search.call_id] * 2, *[program.call_id] * 2]
    searched, found, computed, result = seen
    assert searched[1] == found[1]
    # Chat, OpenRouter, and Gemini without functions show the pages only, not the query.
    query = {} if protocol in ("openai-chat", "openrouter", "gemini") else {"query": "rain"}
    assert (searched[1].tool, searched[1].arguments, searched[1].locus) == ("web_search", query, search.locus)
    assert search.sources[0].url is not None
    assert search.sources[0].url in found[2]
    assert (computed[1].tool, computed[1].arguments) == ("code_execution", {"code": "print(6 * 7)"})
    assert result[1].locus == program.locus
    assert result[2].strip() == program.summary.strip()


@pytest.mark.parametrize("protocol", [name for name in MODELS if name != "ollama"])
@pytest.mark.parametrize("hook", ["before_tool", "after_tool"])
def test_hook_that_denies_a_call_of_the_provider_stops_the_run(protocol: str, hook: str, tmp_path: Path) -> None:
    def deny(*_: Any) -> None:
        raise Denied("no searches about rain")

    with (
        serve(protocol) as config,
        Agent(
            f"up/{MODELS[protocol]}",
            tools=[WebSearch()],
            policy=ALLOWED,
            config=config,
            hooks=[Hooks(**{hook: deny})],
            journal=tmp_path / "runs.db",
        ) as agent,
    ):
        run = agent.run(SEARCH, check=False)
        again = agent.resume(run.id)
        assert [event.recorded for event in again if isinstance(event, TurnStarted)] == [False]
    assert (run.stopped, run.reason, run.ok) == ("denied", "no searches about rain", False)
    assert again.run.stopped == "denied", "the journal has no response, so the hooks check the next one"


def test_hook_cannot_change_what_the_provider_ran() -> None:
    hooks = [Hooks(before_tool=lambda _, call: {"query": "snow"}, after_tool=lambda *_: "nothing")]
    with (
        serve("anthropic") as config,
        Agent("up/claude-sonnet-5", tools=[WebSearch()], policy=ALLOWED, config=config, hooks=hooks) as agent,
    ):
        stream = agent.stream(SEARCH)
        warnings = [event.text for event in stream if isinstance(event, RunWarning)]
    assert warnings == [
        f"a hook changed {part} of web_search, which the provider runs itself: the change was ignored"
        for part in ("the arguments", "the result")
    ]
    (record,) = stream.run.calls
    assert (record.arguments, record.error) == ({"query": "rain"}, "")
    assert record.sources


def test_policy_decides_whether_the_provider_runs_a_tool() -> None:
    class Model(ScriptedModel):
        def hosted_support(self, tool: NativeTool, *, has_functions: bool) -> HostedSupport:
            return HostedSupport()

    def declared(policy: Policy, **options: Any) -> list[type]:
        model = Model(text_turn("done"))
        Agent(model, tools=[WebSearch(backend=Pages(), **options)], policy=policy).run("Search.")
        return [type(one) for one in model.requests[0].tools or ()]

    assert declared(Policy(allow=["web_*"])) == [NativeTool]
    assert declared(Policy()) == [FunctionTool]
    assert declared(Policy(allow=["web_search"], ask=["web_search(query=*secret*)"])) == [FunctionTool]
    assert declared(Policy(allow=["web_search(query=*)"])) == [FunctionTool]
    assert declared(Policy(allow=["*"], deny=["web_search"])) == []
    assert declared(Policy(allow=["*"]), run_by="toolwire") == [FunctionTool]


def test_reasons_for_a_tool_that_is_left_out() -> None:
    stream = Agent(ScriptedModel(text_turn("a")), tools=[WebSearch(), WebFetch(run_by="provider")]).stream("Search.")
    warnings = [event.text for event in stream if isinstance(event, RunWarning)]
    search, fetch = warnings
    assert search == (
        "web_search was left out: the model has no hosted tools; and toolwire can't run it: it has no search service: "
        "pass WebSearch(backend=...) or set [search] url"
    )
    assert fetch == "web_fetch was left out: the model has no hosted tools"


def test_tool_that_the_policy_restricts_says_which_rule_to_add() -> None:
    with serve("anthropic") as config, Agent("up/claude-sonnet-5", tools=[WebSearch()], config=config) as agent:
        stream = agent.stream("Hello.")
        (warning,) = [event.text for event in stream if isinstance(event, RunWarning)]
    assert "no rule allows every call of it" in warning
    assert "Policy(allow=['web_search'])" in warning


def test_warning_is_given_once_in_a_run() -> None:
    model = ScriptedModel(model_turn(model_call("weather", {"city": "Oslo"})), text_turn("done"))
    stream = Agent(model, tools=[WebSearch(), weather]).stream("Search.")
    assert len([event for event in stream if isinstance(event, RunWarning)]) == 1


def test_service_of_the_configuration_searches_where_the_provider_can_not() -> None:
    config = Config(search=SearchSection(url="http://search.test/?q={query}"))
    model = ScriptedModel(text_turn("done"))
    Agent(model, tools=[WebSearch()], config=config).run("Search.")
    (declared,) = model.requests[0].tools or ()
    assert isinstance(declared, FunctionTool)
    assert declared.name == "web_search"


def test_filters_and_limits_hold_for_the_tools_of_toolwire() -> None:
    search = WebSearch(backend=Pages(), allowed_domains=("b.test",), max_uses=1)
    fetch = WebFetch(blocked_domains=("a.test",))
    model = ScriptedModel(
        model_turn(model_call("web_search", {"query": "rain"}, id="1")),
        model_turn(model_call("web_search", {"query": "snow"}, id="2")),
        model_turn(model_call("web_fetch", {"prompt": "read https://www.a.test/x"}, id="3")),
        text_turn("done"),
    )
    run = Agent(model, tools=[search, fetch], policy=ALLOWED).run("Search.")
    found, limited, fetched = run.calls
    assert [page.url for page in found.sources] == ["https://docs.b.test/rain"]
    assert limited.error == "limit"
    assert fetched.error == "fetch"
    assert "not allowed" in fetched.summary


@pytest.mark.parametrize("domain", ["https://a.test", "a.test/path", ""])
def test_domains_are_checked(domain: str) -> None:
    with pytest.raises(ToolwireError, match="is not a domain"):
        WebSearch(allowed_domains=(domain,))


def test_two_tools_with_one_name_are_refused() -> None:
    @tool(name="web_search")
    def search(query: str) -> str:
        return query

    with pytest.raises(DuplicateToolName):
        Agent(tools=[WebSearch(), search])


def test_answer_continues_after_a_pause_of_the_provider() -> None:
    script = """
    [[turns]]
    stop = "paused"
    text = "Let me look. "
    calls = [{name = "web_search", arguments = {query = "rain"}}]
    [[turns]]
    text = "It rains."
    """
    with (
        serve("anthropic", script) as config,
        Agent("up/claude-sonnet-5", tools=[WebSearch()], policy=ALLOWED, config=config) as agent,
    ):
        run = agent.run("Rain?")
    assert run.text == "Let me look. It rains."
    assert [record.tool for record in run.calls] == ["web_search"]
    assert run.turns == 2


def support(protocol: str, model: str, tool: HostedTool, *, has_functions: bool = False) -> HostedSupport:
    native = NativeTool(protocol="", kind=tool.kind, name=tool.kind, body=b"{}", hosted=tool)  # type: ignore[arg-type]
    return find_hosted_support(PROTOCOLS[protocol], Target(model=model), native, has_functions=has_functions)


def test_support_depends_on_model_functions_and_filters() -> None:
    search, fetch = HostedTool(kind="web_search"), HostedTool(kind="web_fetch")
    assert support("gemini", "gemini-2.5-flash", search).unsupported is None
    assert "together with functions" in (
        support("gemini", "gemini-2.5-flash", search, has_functions=True).unsupported or ""
    )
    assert support("gemini", "gemini-3-pro", search, has_functions=True).unsupported is None
    assert support("openai-chat", "gpt-5.5", search).unsupported is not None
    assert (
        support("openai-responses", "gpt-5.5", fetch, has_functions=True).unsupported
        == "the target has no web_fetch tool"
    )
    filtered = HostedTool(kind="web_search", allowed_domains=("a.test",))
    assert support("gemini", "gemini-3-pro", filtered).unsupported is not None
    assert support("anthropic", "claude-sonnet-5", filtered).unsupported is None
    limited = HostedTool(kind="web_search", max_uses=3)
    assert support("openai-responses", "gpt-5.5", limited).lost_options == ("max_uses",)
    assert support("anthropic", "claude-sonnet-5", limited) == HostedSupport()


def test_positions_of_citations_are_those_in_the_answer() -> None:
    """Anthropic cites complete blocks, others give positions within the text that cites."""
    first = Text(text="It rains. ", annotations=(Citation(url="https://a.test"),))
    second = Text(text="It snows.", annotations=(Citation(url="https://b.test", start=3, end=8),))
    run = Agent(ScriptedModel(model_turn(first, second))).run("Weather?")
    assert [(run.text[one.start : one.end], one.url) for one in run.citations] == [
        ("It rains. ", "https://a.test"),
        ("snows", "https://b.test"),
    ]
