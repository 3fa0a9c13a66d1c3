"""A scripted computer-use session in each vendor's format, with the simulator directly and through the gateway."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.support.bodies.computer_use import (
    COMPUTER_PROTOCOLS,
    SAFETY_DECISION,
    computer_calls_in,
    computer_request,
    computer_turn,
    response_parts,
)
from tests.support.gateway.setup import GatewaySetup, routed_model, serve_gateway
from tests.support.protocols import ANTHROPIC, GEMINI, INTERACTIONS, RESPONSES
from tests.support.sdk.clients import SDK_CLIENTS
from tests.support.servers.asgi import http_client, serve_app
from toolwire.canonical.content import ToolCall
from toolwire.canonical.fold import fold
from toolwire.codec.interface import ResponseContext, Route
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.script import Script, parse_script

TASK = """
[[turns]]
thinking = "What is there?"
actions = [{kind = "screenshot"}]

[[turns]]
thinking = "A form."
text = "I fill it in."
actions = [{kind = "click", x = 640, y = 400}, {kind = "type", text = "Oslo"}, {kind = "keys", keys = ["Enter"]}]

[[turns]]
thinking = "And now?"
actions = [{kind = "drag", path = [[128, 160], [384, 160]]}, {kind = "scroll", x = 640, y = 400, dy = 400}]

[[turns]]
text = "Done."
"""
DONE = [
    {"kind": "screenshot"},
    {"kind": "click", "x": 640, "y": 400},
    {"kind": "type", "text": "Oslo"},
    {"kind": "keys", "keys": ["Enter"]},
    {"kind": "drag", "path": [[128, 160], [384, 160]]},
    {"kind": "scroll", "x": 640, "y": 400, "dy": 400},
]
BUYING = """
[[turns]]
thinking = "A shop."
actions = [{kind = "click", x = 640, y = 400}]
checks = [{id = "sc_1", code = "irreversible", message = "It buys something."}]

[[turns]]
text = "Bought."
"""


def script(text: str) -> Script:
    return parse_script(text.encode(), "turns.toml")


def path_of(protocol: str, model: str, *, stream: bool) -> str:
    if protocol == GEMINI:
        return f"/v1beta/models/{model}:{'streamGenerateContent?alt=sse' if stream else 'generateContent'}"
    return {ANTHROPIC: "/v1/messages", RESPONSES: "/v1/responses", INTERACTIONS: "/v1beta/interactions"}[protocol]


def send_request(protocol: str, url: str, model: str, turns: list[Any], *, stream: bool) -> Any:
    # The newest Anthropic models accept only a toolset.
    toolset = {"type": "computer_toolset_20260801"} if protocol == ANTHROPIC else None
    body = computer_request(protocol, *turns, tool=toolset) | (
        {} if protocol == GEMINI else {"model": model, "stream": stream}
    )
    return http_client.post(url + path_of(protocol, model, stream=stream), json=body)


def response_body(protocol: str, data: bytes, *, stream: bool) -> Any:
    """Return the response body; a stream is folded."""
    if not stream:
        return json.loads(data)
    decoder = PROTOCOLS[protocol].stream_decoder(ResponseContext())
    response = fold(decoder.feed(data) + decoder.close())
    return json.loads(PROTOCOLS[protocol].encode_response(response, ResponseContext()).to_bytes())


def drive(protocol: str, url: str, model: str, *, stream: bool) -> list[Any]:
    """Run a client of this format until it has no more calls; return the actions in canonical form."""
    turns: list[Any] = []
    for _ in range(5):
        response = send_request(protocol, url, model, turns, stream=stream)
        assert response.status_code == 200, response.text
        body = response_body(protocol, response.content, stream=stream)
        if not computer_calls_in(protocol, body):
            break
        turns += computer_turn(protocol, computer_calls_in(protocol, body), response_parts(protocol, body))
    history = json.dumps(computer_request(protocol, *turns)).encode()
    messages = PROTOCOLS[protocol].decode_request(history, Route(model="gemini-3.8-flash")).messages
    uses = [part.screen for message in messages for part in message.parts if isinstance(part, ToolCall)]
    assert all(use is not None for use in uses), "every call is one of the client's own form"
    return [action for use in uses if use is not None for action in use.actions]


def plain(actions: list[Any]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(actions))


MODELS = {ANTHROPIC: "claude-opus-4-8", RESPONSES: "gpt-5.4", GEMINI: "gemini-3.8-flash"}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("protocol", COMPUTER_PROTOCOLS)
def test_script_is_played_in_the_declared_format(protocol: str, stream: bool) -> None:
    with serve_app(Simulator(script=script(TASK))) as url:
        model = MODELS.get(protocol, "gemini-3.8-flash")
        assert plain(drive(protocol, url, model, stream=stream)) == DONE


def test_calls_are_signed_without_scripted_thinking() -> None:
    """Google's models since version 3 always sign calls and reject unsigned ones."""
    silent = "".join(line for line in TASK.splitlines(keepends=True) if not line.startswith("thinking"))
    with serve_app(Simulator(script=script(silent))) as url:
        assert plain(drive(GEMINI, url, MODELS[GEMINI], stream=False)) == DONE


@pytest.fixture
def gateway_setup() -> Iterator[GatewaySetup]:
    with serve_gateway(Simulator(script=script(TASK))) as setup:
        yield setup


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("upstream", SDK_CLIENTS)
@pytest.mark.parametrize("client", COMPUTER_PROTOCOLS)
def test_every_client_format_works_on_every_upstream(
    gateway_setup: GatewaySetup, client: str, upstream: str, stream: bool
) -> None:
    assert plain(drive(client, gateway_setup.base_url, routed_model(upstream), stream=stream)) == DONE


@pytest.mark.parametrize(
    ("protocol", "refused"),
    [
        (RESPONSES, "Computer tool has unacknowledged safety check for ['sc_1']"),
        (GEMINI, "The safety decision from function call click must be acknowledged in the corresponding function"),
        (INTERACTIONS, "The safety decision from function call click must be acknowledged in the corresponding"),
    ],
)
def test_scripted_safety_check_must_be_acknowledged(protocol: str, refused: str) -> None:
    agreed: dict[str, Any] = {"safety_acknowledgement": "true"}
    if protocol == RESPONSES:
        agreed = {"acknowledged_safety_checks": [{"id": "sc_1"}]}
    with serve_app(Simulator(script=script(BUYING))) as url:
        model = MODELS.get(protocol, "gemini-3.8-flash")
        first = send_request(protocol, url, model, [], stream=False)
        calls, parts = computer_calls_in(protocol, first.json()), response_parts(protocol, first.json())
        silent = send_request(protocol, url, model, computer_turn(protocol, calls, parts), stream=False)
        assert silent.status_code == 400
        assert refused in silent.text
        response = send_request(protocol, url, model, computer_turn(protocol, calls, parts, **agreed), stream=False)
        assert (response.status_code, "Bought." in response.text) == (200, True)
        if protocol != RESPONSES:
            decision = (calls[0].get("functionCall") or {"args": calls[0].get("arguments")})["args"]["safety_decision"]
            assert decision | SAFETY_DECISION == decision


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_safety_check_unsupported_by_the_client_is_rejected(stream: bool) -> None:
    with serve_gateway(Simulator(script=script(BUYING))) as gateway_setup:
        response = send_request(ANTHROPIC, gateway_setup.base_url, routed_model(RESPONSES), [], stream=stream)
        assert "may not be dropped" in response.text
        assert '"tool_use"' not in response.text


@pytest.mark.parametrize("upstream", [GEMINI, INTERACTIONS])
def test_acknowledgement_reaches_a_call_in_stored_history(upstream: str) -> None:
    with serve_gateway(Simulator(script=script(BUYING))) as gateway_setup:
        first = send_request(RESPONSES, gateway_setup.base_url, routed_model(upstream), [], stream=False).json()
        (call,) = computer_calls_in(RESPONSES, first)
        _, output = computer_turn(RESPONSES, [call], acknowledged_safety_checks=call["pending_safety_checks"])
        body = {"model": routed_model(upstream), "tools": [{"type": "computer"}], "previous_response_id": first["id"]}
        response = http_client.post(f"{gateway_setup.base_url}/v1/responses", json=body | {"input": [output]})
        assert (response.status_code, "Bought." in response.text) == (200, True)


def test_scripted_computer_use_must_be_declared() -> None:
    with serve_app(Simulator(script=script(TASK))) as url:
        body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Go"}]}
        response = http_client.post(f"{url}/v1/messages", json=body)
        assert (response.status_code, "the request has no computer tool" in response.text) == (500, True)
