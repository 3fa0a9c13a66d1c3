"""The simulator with each official SDK over a real connection."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.sdk.clients import SDK_CLIENTS, SdkClient
from tests.support.servers.asgi import serve_app
from toolwire.upstream.simulator.app import Simulator

PROTOCOLS = list(SDK_CLIENTS)
SENSELESS = 'Call get_weather {"city": "Oslo"} and get_weather {"city": "Rome"}, please.'


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with serve_app(Simulator()) as url:
        yield url


def client(protocol: str, base_url: str, **options: Any) -> Any:
    kind, model = SDK_CLIENTS[protocol]
    return kind(base_url, options.pop("model", model), **options)


@pytest.mark.parametrize("thinking", [False, True], ids=["plain", "thinking"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tool_cycle_of_two_turns(base_url: str, protocol: str, stream: bool, thinking: bool) -> None:
    talk: SdkClient = client(protocol, base_url, stream=stream, thinking=thinking)
    first = talk.send_text(SENSELESS)
    assert [(call.name, call.arguments) for call in first.calls] == [
        ("get_weather", {"city": "Oslo"}),
        ("get_weather", {"city": "Rome"}),
    ]
    assert bool(first.thinking) == thinking
    second = talk.send_results(first.calls, ["snow, 40 cm", "29 degrees"])
    assert second.calls == ()
    assert "snow, 40 cm" in second.text
    assert "29 degrees" in second.text
    if stream:
        assert second.event_count > 4
    third = talk.send_text('get_weather {"city": "Lima"}')
    (call,) = third.calls
    assert call.arguments == {"city": "Lima"}
    assert call.id is None or call.id not in {one.id for one in first.calls}
    assert "drizzle" in talk.send_results([call], ["drizzle"]).text
