"""Ollama servers that do not answer."""

import asyncio

from tests.support.servers.asgi import serve_app
from toolwire.gateway.providers.reachability import find_unreachable
from toolwire.upstream.provider import Provider
from toolwire.upstream.simulator.app import Simulator


def test_only_servers_that_do_not_answer_are_noted() -> None:
    with serve_app(Simulator()) as url:
        providers = {
            name: Provider(name=name, protocol=protocol, base_url=base_url)
            for name, protocol, base_url in (
                ("up", "ollama", url),
                ("ollama", "ollama", "http://127.0.0.1:9"),
                ("other", "anthropic", "http://127.0.0.1:9"),
            )
        }
        notes = asyncio.run(find_unreachable(providers))
    assert list(notes) == ["ollama"]
    expected = "ollama: no Ollama answers at http://127.0.0.1:9 (connection refused); start it, or change OLLAMA_HOST"
    assert notes["ollama"] == expected
