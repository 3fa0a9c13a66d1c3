"""Runs that come to no answer: they raise, and say how they ended."""

import asyncio
from typing import Any

import pytest

import toolwire as tw
from tests.runtime.playing import Played, call, says, turn
from tests.runtime.test_loop import ALL, Asked, add
from tests.upstream.serving import served
from toolwire import Agent, Caps, Policy, RunFailed
from toolwire.canonical.errors import ApiError
from toolwire.canonical.response import Response, StopReason, Usage
from toolwire.gateway.config import Config, LimitsSection, ProviderSection

BROKEN = Response(origin="", error=ApiError(kind="server", message="the provider broke off"))


async def refuse(scope: Any, receive: Any, send: Any) -> None:
    """A provider that knows no key."""
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    body = b'{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}'
    await send({"type": "http.response.body", "body": body})


def test_r_3_a_provider_that_refuses_fails_the_run_with_its_own_words() -> None:
    """R-3: `print(agent.run(...).text)` printed an empty line after a 401."""
    with served(refuse) as url:
        provider = ProviderSection(protocol="anthropic", base_url=url, api_key="k-123456789")
        config = Config(providers={"up": provider}, limits=LimitsSection(retries=0))
        with Agent("up/claude", config=config) as agent:
            with pytest.raises(RunFailed, match="invalid x-api-key") as caught:
                agent.run("go")
            run = agent.run("go", check=False)
    assert isinstance(caught.value, tw.ToolwireError)
    assert (caught.value.run.stopped, caught.value.run.ok, caught.value.run.text) == ("failed", False, "")
    assert (run.stopped, run.ok) == ("failed", False)
    assert "invalid x-api-key" in run.why
    with pytest.raises(RunFailed):
        run.raise_for_failure()


@pytest.mark.parametrize(
    ("turns", "caps", "stopped"),
    [
        ([BROKEN], Caps(), "failed"),
        ([turn(call("add", {"a": 1, "b": 1}))], Caps(turns=1), "steps"),
        ([turn(call("add", {"a": 1, "b": 1}), usage=Usage(input_tokens=9))], Caps(tokens=1), "tokens"),
        ([turn(stop="max_tokens")], Caps(), "length"),
        ([turn(stop="filtered")], Caps(), "filtered"),
    ],
)
def test_r_3_the_provider_or_a_limit_fails_a_run(turns: list[Response], caps: Caps, stopped: str) -> None:
    with pytest.raises(RunFailed) as caught:
        Agent(Played(*turns), tools=[add], policy=ALL, caps=caps).run("go")
    assert caught.value.run.stopped == stopped
    assert caught.value.run.why in str(caught.value)

    async def work() -> None:
        with pytest.raises(RunFailed):
            await Agent(Played(*turns), tools=[add], policy=ALL, caps=caps).run("go")
        run = await Agent(Played(*turns), tools=[add], policy=ALL, caps=caps).run("go", check=False)
        assert (run.stopped, run.ok) == (stopped, False)

    asyncio.run(work())


@pytest.mark.parametrize(("reason", "stopped", "ok"), [("end_turn", "finished", True), ("refusal", "refused", False)])
def test_r_3_a_stop_by_the_model_is_no_failure(reason: StopReason, stopped: str, ok: bool) -> None:
    run = Agent(Played(turn(stop=reason))).run("go")
    assert (run.stopped, run.ok) == (stopped, ok)


def test_r_3_a_denied_or_waiting_call_is_no_failure() -> None:
    model = Played(turn(call("add", {"a": 1, "b": 1})), says("It was denied."))
    assert Agent(model, tools=[add], policy=Policy(deny=["add"])).run("go").ok
    model = Played(turn(call("add", {"a": 1, "b": 1})))
    assert Agent(model, tools=[add], person=Asked("later")).run("go").stopped == "waiting"


@pytest.mark.parametrize("begun", [True, False])
def test_r_11_a_run_whose_task_was_cancelled_says_so(begun: bool) -> None:
    """R-11: `run.stopped` raised "the run has not ended"."""

    async def work() -> None:
        started = asyncio.Event()

        @tw.tool
        async def wait() -> None:
            started.set()
            await asyncio.Event().wait()

        run = Agent(Played(turn(call("wait"))), tools=[wait], policy=ALL).run("go")

        async def follow() -> None:
            await run

        task = asyncio.create_task(follow())
        if begun:
            await started.wait()
        else:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (run.stopped, run.ok) == ("cancelled", False)
        assert run.text == ""

    asyncio.run(work())
