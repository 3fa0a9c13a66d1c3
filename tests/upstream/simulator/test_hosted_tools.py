"""Hosted tools of the simulated model: each vendor shows calls, results and citations in its own way."""

import json
from typing import Any

import pytest
from msgspec import Raw

from toolwire.canonical.content import Message, OpaquePart, Part, Text, ToolCall, ToolResult
from toolwire.canonical.request import Request
from toolwire.canonical.response import Response
from toolwire.canonical.tools import FunctionTool, HostedKind, HostedTool, NativeTool
from toolwire.codec.interface import ResponseContext, Target
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.simulator.model import generate_reply
from toolwire.upstream.simulator.response_builder import ResponseBuilder, chunk_response
from toolwire.upstream.simulator.script import parse_script
from toolwire.upstream.simulator.validation import SignatureKey, decode_valid_request

MODELS = {
    "anthropic": "claude-sonnet-5",
    "openai-chat": "gpt-5-search-api",
    "openai-responses": "gpt-5.4",
    "gemini": "gemini-3-pro",
    "gemini-interactions": "gemini-3-pro",
    "openrouter": "openai/gpt-6-astra",
}


def ask(protocol: str, kind: HostedKind, text: str, *, functions: bool = False, **options: Any) -> Response:
    """Return the response as a client of the protocol decodes it, after the strict checks of the request."""
    hosted = HostedTool(kind=kind, **options)
    tool = NativeTool(protocol="", kind=kind, name=kind, body=Raw(b"{}"), hosted=hosted)
    request = Request(
        origin="",
        model=MODELS[protocol],
        messages=(Message(role="user", parts=(Text(text=text),)),),
        tools=(tool, FunctionTool(name="get_weather")) if functions else (tool,),
    )
    codec = PROTOCOLS[protocol]
    encoded = codec.encode_request(request, Target(model=MODELS[protocol]))
    decoded = decode_valid_request(codec, encoded.to_bytes(), encoded.route)
    built = ResponseBuilder(decoded, protocol, SignatureKey()).build(generate_reply(decoded, protocol))
    body = codec.encode_response(built, ResponseContext(request=decoded)).to_bytes()
    return codec.decode_response(body, ResponseContext())


def parts_of(response: Response) -> list[Part]:
    (candidate,) = response.candidates
    return [part for message in candidate.messages for part in message.parts]


def hosted_parts(response: Response) -> list[Part]:
    return [
        part
        for part in parts_of(response)
        if (isinstance(part, ToolCall | ToolResult) and part.executor == "server") or isinstance(part, OpaquePart)
    ]


def cited_urls(response: Response) -> list[str | None]:
    texts = [part for part in parts_of(response) if isinstance(part, Text)]
    return [citation.url for text in texts for citation in text.annotations or ()]


@pytest.mark.parametrize("protocol", MODELS)
def test_search_is_cited_and_shown_as_the_vendor_does(protocol: str) -> None:
    response = ask(protocol, "web_search", 'web_search {"query": "rain"}')
    (url,) = cited_urls(response)
    assert url is not None
    assert url.startswith("https://example.com/")
    assert (response.candidates[0].stop or Text).reason == "end_turn"  # type: ignore[union-attr]
    shown = hosted_parts(response)
    assert len(shown) == {"anthropic": 2, "gemini-interactions": 2, "openai-responses": 1}.get(protocol, 0)
    if shown:
        first, last = shown[0], shown[-1]
        assert first.use is not None  # type: ignore[union-attr]
        assert first.use.queries == ("rain",)  # type: ignore[union-attr]
        assert [page.url for page in last.use.pages] == [url]  # type: ignore[union-attr]


def test_gemini_shows_searches_only_beside_functions() -> None:
    assert hosted_parts(ask("gemini", "web_search", 'web_search {"query": "rain"}')) == []
    call, result = hosted_parts(ask("gemini", "web_search", 'web_search {"query": "rain"}', functions=True))
    assert isinstance(call, ToolCall)
    assert isinstance(result, ToolResult)


@pytest.mark.parametrize("protocol", ["anthropic", "openai-responses", "gemini", "gemini-interactions"])
def test_programs_are_shown_with_their_output(protocol: str) -> None:
    shown = hosted_parts(ask(protocol, "code_execution", 'code_execution {"code": "print(1)\\nprint(2)"}'))
    assert shown[0].use.code == "print(1)\nprint(2)"  # type: ignore[union-attr]
    assert "2 lines" in (shown[-1].use.output or "")  # type: ignore[union-attr]


@pytest.mark.parametrize("text", ["Search the web for rain.", "web_search for rain", "Do not use web_search."])
def test_hosted_tool_is_used_only_if_its_arguments_are_given(text: str) -> None:
    assert hosted_parts(ask("anthropic", "web_search", text)) == []


def test_search_stays_in_the_allowed_domains() -> None:
    text = 'web_search {"query": "rain"}'
    (url,) = cited_urls(ask("anthropic", "web_search", text, allowed_domains=("met.no",)))
    assert (url or "").startswith("https://met.no/")


def test_client_call_in_the_same_turn_stays_a_call_of_the_client() -> None:
    text = 'web_search {"query": "rain"} and get_weather {"city": "Oslo"}'
    response = ask("anthropic", "web_search", text, functions=True)
    calls = [part for part in parts_of(response) if isinstance(part, ToolCall)]
    assert [(call.name, call.executor) for call in calls] == [("web_search", "server"), ("get_weather", "client")]
    assert (response.candidates[0].stop or Text).reason == "tool_use"  # type: ignore[union-attr]


def test_script_plays_hosted_calls() -> None:
    turn = {"calls": [{"name": "web_search", "arguments": {"query": "rain"}}], "stop": "paused"}
    script = parse_script(json.dumps({"turns": [turn]}).encode(), "script", toml=False)
    hosted = HostedTool(kind="web_search")
    tool = NativeTool(protocol="anthropic", kind="web_search", name="web_search", body=Raw(b"{}"), hosted=hosted)
    request = Request(
        origin="", model="claude-sonnet-5", messages=(Message(role="user", parts=(Text(text="hi"),)),), tools=(tool,)
    )
    played = script.next_turn(request, "anthropic")
    assert played is not None
    response = ResponseBuilder(request, "anthropic", SignatureKey()).build(played.to_reply())
    assert [type(part) for part in parts_of(response)] == [ToolCall, ToolResult]
    assert (response.candidates[0].stop or Text).reason == "paused"  # type: ignore[union-attr]


def test_stream_cites_after_the_text() -> None:
    events = [
        event
        for group in chunk_response(ask("gemini", "web_search", 'web_search {"query": "rain"}'))
        for event in group
    ]
    deltas = [event for event in events if getattr(event, "text", "") or getattr(event, "annotation", None)]
    assert deltas[0].text  # type: ignore[union-attr]
    assert deltas[-1].annotation is not None  # type: ignore[union-attr]
