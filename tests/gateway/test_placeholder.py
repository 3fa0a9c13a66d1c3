"""Claude Code's placeholder through the gateway: its own search, a search that the gateway runs, and a mark to move."""

import json
from typing import Any

import pytest

from tests.bodies import anthropic_request, anthropic_tool
from tests.gateway.running import in_front_of, run, running
from tests.gateway.test_exchange import Script
from tests.gateway.test_repairs import MARKED, sent
from tests.gateway.test_searching import REGEX, UPSTREAMS, answer, asked, call, declared, told, wired
from tests.protocols.anthropic.test_placeholder import NAME, PLACEHOLDER, searched
from tests.upstream.sockets import upstream
from toolwire.canonical.content import Text

DONE = answer(Text(text="Done."), reason="end_turn")


@pytest.mark.parametrize("protocol", [*UPSTREAMS, "openai-responses"])
def test_beside_the_clients_own_search_it_is_dropped_and_reported(protocol: str) -> None:
    async def work() -> None:
        script = Script(wired(protocol, DONE, stream=False))
        async with upstream(script) as origin, running(in_front_of(origin, protocol)) as gateway:
            got = await gateway.post("/v1/messages", json.dumps(searched("CronList")).encode())
            assert got.status == 200
            losses = json.loads(got.headers["toolwire-losses"])["losses"]
            assert ("dropped", "/tools/2") in [(one["kind"], one["path"]) for one in losses]
            (body,) = script.bodies
            assert declared(protocol, body) == ["ToolSearch", "CronList"]

    run(work())


@pytest.mark.parametrize("protocol", UPSTREAMS)
def test_a_search_that_the_gateway_runs_does_not_find_it(protocol: str) -> None:
    async def work() -> None:
        look = answer(call("tool_search", pattern="(?i)placeholder|pay"))
        script = Script(*(wired(protocol, one, stream=False) for one in (look, DONE)))
        async with upstream(script) as origin, running(in_front_of(origin, protocol)) as gateway:
            path, body = asked("anthropic", search=REGEX)
            request: dict[str, Any] = json.loads(body)
            request["tools"].append(PLACEHOLDER)
            got, _ = await told(gateway, "anthropic", path, json.dumps(request).encode(), stream=False)
            found = got["content"][1]["content"]["tool_references"]
            assert [one["tool_name"] for one in found] == ["pay_invoice"]
            assert [NAME in declared(protocol, one) for one in script.bodies] == [False, False]

    run(work())


def test_a_mark_that_is_moved_does_not_end_up_on_it() -> None:
    async def work() -> None:
        mended, lost = await sent(anthropic_request(tools=[anthropic_tool("now"), MARKED, PLACEHOLDER]))
        assert ["cache_control" in tool for tool in mended["tools"]] == [True, False, False]
        assert lost == ["/tools/1/cache_control"]

    run(work())
