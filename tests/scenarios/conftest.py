"""One gateway and one upstream for all scenarios, since starting them takes longer than most tests."""

from collections.abc import Iterator

import pytest

from tests.support.gateway.setup import GatewaySetup, serve_gateway
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.script import parse_script

# Words that trigger a scripted reaction of the upstream; otherwise it responds by itself.
SCRIPT = b"""
[[turns]]
when = "too fast"
repeat = 0
error = {kind = "rate_limit", message = "Slow down.", retry_after = 33}

[[turns]]
when = "what is that"
repeat = 0
error = {kind = "not_found", message = "No such model."}

[[turns]]
when = "senseless"
repeat = 0
error = {kind = "invalid_request", message = "That makes no sense."}

[[turns]]
when = "for ever"
repeat = 0
text = "on and on "
endless = true
pace = 0.005

[[turns]]
when = "half of it"
repeat = 0
text = "at first this and then that"
cut = 4

[[turns]]
when = "think long"
repeat = 0
text = "at last"
delay = 3600
"""


@pytest.fixture(scope="session")
def shared_gateway() -> Iterator[GatewaySetup]:
    with serve_gateway(Simulator(require_key=True, script=parse_script(SCRIPT, "script"))) as gateway_setup:
        yield gateway_setup


@pytest.fixture
def gateway_setup(shared_gateway: GatewaySetup) -> GatewaySetup:
    shared_gateway.reset()
    return shared_gateway
