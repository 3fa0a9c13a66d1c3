"""Requests with half a character, as JavaScript agents cut it, through the gateway."""

import pytest

from tests.support.gateway.in_process import (
    PROTOCOL_NAMES,
    one_provider_config,
    question_request,
    run_async,
    run_gateway,
)
from tests.support.servers.simulated_hosts import HostUpstream
from tests.support.servers.upstream import serve_upstream


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_half_a_character_is_replaced_and_the_request_sent(protocol: str) -> None:
    async def work() -> None:
        host = HostUpstream()
        async with serve_upstream(host) as origin, run_gateway(one_provider_config(origin)) as gateway:
            path, body = question_request(protocol, stream=True, text="CUT")
            response = await gateway.post(path, body.replace(b"CUT", rb"cut \ud83d"))
            assert response.status == 200
            await response.read(1_000_000)
        assert "cut \ufffd" in str(host.bodies[0]["messages"])

    run_async(work())
