"""A screen driven by a script: in each vendor's form on the strict simulator, natively and through the gateway."""

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


def asked(protocol: str, url: str, model: str, said: list[Any], *, stream: bool) -> Any:
    # Only a toolset is taken by the newest of Anthropic's models.
    toolset = {"type": "computer_toolset_20260801"} if protocol == ANTHROPIC else None
    body = computer_request(protocol, *said, tool=toolset) | (
        {} if protocol == GEMINI else {"model": model, "stream": stream}
    )
    return http_client.post(url + path_of(protocol, model, stream=stream), json=body)


def answered(protocol: str, data: bytes, *, stream: bool) -> Any:
    """The answer's body; of a stream, the one that it tells."""
    if not stream:
        return json.loads(data)
    decoder = PROTOCOLS[protocol].stream_decoder(ResponseContext())
    told = fold(decoder.feed(data) + decoder.close())
    return json.loads(PROTOCOLS[protocol].encode_response(told, ResponseContext()).to_bytes())


def drive(protocol: str, url: str, model: str, *, stream: bool) -> list[Any]:
    """What a client of this form does until nothing is asked of it any more, in common words."""
    said: list[Any] = []
    for _ in range(5):
        answer = asked(protocol, url, model, said, stream=stream)
        assert answer.status_code == 200, answer.text
        whole = answered(protocol, answer.content, stream=stream)
        if not computer_calls_in(protocol, whole):
            break
        said += computer_turn(protocol, computer_calls_in(protocol, whole), response_parts(protocol, whole))
    history = json.dumps(computer_request(protocol, *said)).encode()
    messages = PROTOCOLS[protocol].decode_request(history, Route(model="gemini-3.8-flash")).messages
    uses = [part.screen for one in messages for part in one.parts if isinstance(part, ToolCall)]
    assert all(use is not None for use in uses), "every call is one of the client's own form"
    return [action for use in uses if use is not None for action in use.actions]


def plain(actions: list[Any]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(actions))


MODELS = {ANTHROPIC: "claude-opus-4-8", RESPONSES: "gpt-5.4", GEMINI: "gemini-3.8-flash"}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("protocol", COMPUTER_PROTOCOLS)
def test_a_script_is_played_in_the_form_that_is_declared(protocol: str, stream: bool) -> None:
    with serve_app(Simulator(script=script(TASK))) as url:
        model = MODELS.get(protocol, "gemini-3.8-flash")
        assert plain(drive(protocol, url, model, stream=stream)) == DONE


def test_calls_are_signed_where_a_script_says_no_thinking() -> None:
    """Google's models since 3 always sign them, and take none back without."""
    silent = "".join(line for line in TASK.splitlines(keepends=True) if not line.startswith("thinking"))
    with serve_app(Simulator(script=script(silent))) as url:
        assert plain(drive(GEMINI, url, MODELS[GEMINI], stream=False)) == DONE


@pytest.fixture
def place() -> Iterator[GatewaySetup]:
    with serve_gateway(Simulator(script=script(TASK))) as found:
        yield found


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("upstream", SDK_CLIENTS)
@pytest.mark.parametrize("client", COMPUTER_PROTOCOLS)
def test_every_form_on_every_upstream(place: GatewaySetup, client: str, upstream: str, stream: bool) -> None:
    assert plain(drive(client, place.base_url, routed_model(upstream), stream=stream)) == DONE


@pytest.mark.parametrize(
    ("protocol", "refused"),
    [
        (RESPONSES, "Computer tool has unacknowledged safety check for ['sc_1']"),
        (GEMINI, "The safety decision from function call click must be acknowledged in the corresponding function"),
        (INTERACTIONS, "The safety decision from function call click must be acknowledged in the corresponding"),
    ],
)
def test_a_check_is_played_and_must_be_acknowledged(protocol: str, refused: str) -> None:
    agreed: dict[str, Any] = {"safety_acknowledgement": "true"}
    if protocol == RESPONSES:
        agreed = {"acknowledged_safety_checks": [{"id": "sc_1"}]}
    with serve_app(Simulator(script=script(BUYING))) as url:
        model = MODELS.get(protocol, "gemini-3.8-flash")
        first = asked(protocol, url, model, [], stream=False)
        calls, told = computer_calls_in(protocol, first.json()), response_parts(protocol, first.json())
        silent = asked(protocol, url, model, computer_turn(protocol, calls, told), stream=False)
        assert silent.status_code == 400
        assert refused in silent.text
        answer = asked(protocol, url, model, computer_turn(protocol, calls, told, **agreed), stream=False)
        assert (answer.status_code, "Bought." in answer.text) == (200, True)
        if protocol != RESPONSES:
            decision = (calls[0].get("functionCall") or {"args": calls[0].get("arguments")})["args"]["safety_decision"]
            assert decision | SAFETY_DECISION == decision


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_through_the_gateway_a_check_that_a_client_has_no_words_for_is_refused(stream: bool) -> None:
    with serve_gateway(Simulator(script=script(BUYING))) as place:
        answer = asked(ANTHROPIC, place.base_url, routed_model(RESPONSES), [], stream=stream)
        assert "may not be dropped" in answer.text
        assert '"tool_use"' not in answer.text


@pytest.mark.parametrize("upstream", [GEMINI, INTERACTIONS])
def test_an_agreement_reaches_a_call_that_is_only_remembered(upstream: str) -> None:
    with serve_gateway(Simulator(script=script(BUYING))) as place:
        first = asked(RESPONSES, place.base_url, routed_model(upstream), [], stream=False).json()
        (call,) = computer_calls_in(RESPONSES, first)
        _, output = computer_turn(RESPONSES, [call], acknowledged_safety_checks=call["pending_safety_checks"])
        body = {"model": routed_model(upstream), "tools": [{"type": "computer"}], "previous_response_id": first["id"]}
        answer = http_client.post(f"{place.base_url}/v1/responses", json=body | {"input": [output]})
        assert (answer.status_code, "Bought." in answer.text) == (200, True)


def test_what_a_script_drives_must_be_declared() -> None:
    with serve_app(Simulator(script=script(TASK))) as url:
        body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Go"}]}
        answer = http_client.post(f"{url}/v1/messages", json=body)
        assert (answer.status_code, "the request has no computer tool" in answer.text) == (500, True)
