"""Runs without a complete answer raise and report their stop cause."""

import asyncio
import contextlib
import gc
from pathlib import Path
from typing import Any

import pytest

import toolwire as tw
from tests.support.deadlines import run_event_loop
from tests.support.runtime.scripted_agent import (
    ALLOW_ALL,
    ScriptedApprover,
    ScriptedModel,
    add,
    model_call,
    model_turn,
    text_turn,
)
from tests.support.servers.asgi import serve_app
from toolwire import Agent, Policy, RunFailed, RunLimits
from toolwire.canonical.errors import ApiError
from toolwire.canonical.response import Response, StopReason, Usage
from toolwire.gateway.config import Config, LimitsSection, ProviderSection
from toolwire.journal.runs import RunStore
from toolwire.journal.store import JournalError
from toolwire.runtime.run.result import Run

BROKEN = Response(origin="", error=ApiError(kind="server", message="the provider broke off"))


async def refuse(scope: Any, receive: Any, send: Any) -> None:
    """A provider that rejects every key."""
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    body = b'{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}'
    await send({"type": "http.response.body", "body": body})


def test_provider_error_fails_the_run_with_its_message() -> None:
    """`print(agent.run(...).text)` printed an empty line after a 401."""
    with serve_app(refuse) as url:
        provider = ProviderSection(protocol="anthropic", base_url=url, api_key="k-123456789")
        config = Config(providers={"up": provider}, limits=LimitsSection(retries=0))
        with Agent("up/claude", config=config) as agent:
            with pytest.raises(RunFailed, match="up rejected the configured API key: invalid API key") as caught:
                agent.run("go")
            run = agent.run("go", check=False)
    assert isinstance(caught.value, tw.ToolwireError)
    assert (caught.value.run.stopped, caught.value.run.ok, caught.value.run.text) == ("failed", False, "")
    assert (run.stopped, run.ok) == ("failed", False)
    assert "invalid API key" in run.reason
    with pytest.raises(RunFailed):
        run.raise_for_failure()


@pytest.mark.parametrize(
    ("turns", "caps", "stopped"),
    [
        ([BROKEN], RunLimits(), "failed"),
        ([model_turn(model_call("add", {"a": 1, "b": 1}))], RunLimits(turns=1), "turns"),
        ([model_turn(model_call("add", {"a": 1, "b": 1}), usage=Usage(input_tokens=9))], RunLimits(tokens=1), "tokens"),
        ([model_turn(stop="max_tokens")], RunLimits(), "length"),
        ([model_turn(stop="filtered")], RunLimits(), "filtered"),
    ],
)
def test_provider_error_or_limit_fails_the_run(turns: list[Response], caps: RunLimits, stopped: str) -> None:
    with pytest.raises(RunFailed) as caught:
        Agent(ScriptedModel(*turns), tools=[add], policy=ALLOW_ALL, limits=caps).run("go")
    assert caught.value.run.stopped == stopped
    assert caught.value.run.reason in str(caught.value)

    async def work() -> None:
        with pytest.raises(RunFailed):
            await Agent(ScriptedModel(*turns), tools=[add], policy=ALLOW_ALL, limits=caps).run("go")
        run = await Agent(ScriptedModel(*turns), tools=[add], policy=ALLOW_ALL, limits=caps).run("go", check=False)
        assert (run.stopped, run.ok) == (stopped, False)

    asyncio.run(work())


@pytest.mark.parametrize(("reason", "stopped", "ok"), [("end_turn", "finished", True), ("refusal", "refused", False)])
def test_stop_by_the_model_is_no_failure(reason: StopReason, stopped: str, ok: bool) -> None:
    run = Agent(ScriptedModel(model_turn(stop=reason))).run("go")
    assert (run.stopped, run.ok) == (stopped, ok)


def test_denied_or_waiting_call_is_no_failure() -> None:
    model = ScriptedModel(model_turn(model_call("add", {"a": 1, "b": 1})), text_turn("It was denied."))
    assert Agent(model, tools=[add], policy=Policy(deny=["add"])).run("go").ok
    model = ScriptedModel(model_turn(model_call("add", {"a": 1, "b": 1})))
    assert Agent(model, tools=[add], approver=ScriptedApprover("later")).run("go").stopped == "waiting"


def test_call_that_fails_while_its_run_is_cancelled_leaves_no_unretrieved_exception(tmp_path: Path) -> None:
    """A worker cancels the task of a run whose lease is lost, when the call can no longer record its outcome."""

    async def work(steps: int) -> list[Any]:
        loop, problems = asyncio.get_running_loop(), list[Any]()
        loop.set_exception_handler(lambda _, context: problems.append(context))
        store = RunStore(tmp_path / f"runs-{steps}.db")

        async def cancel() -> None:
            await run_event_loop(steps)
            task.cancel()

        @tw.tool
        async def stop() -> None:
            store.close()
            cancellations.append(asyncio.create_task(cancel()))

        agent = Agent(ScriptedModel(model_turn(model_call("stop"))), tools=[stop], policy=ALLOW_ALL, journal=store)

        async def follow() -> None:
            async for _ in agent.stream("go"):
                pass

        cancellations, task = list[Any](), asyncio.create_task(follow())
        with contextlib.suppress(JournalError, asyncio.CancelledError):
            await task
        await asyncio.wait(cancellations)
        gc.collect()
        return problems

    gc.collect()
    gc.freeze()  # what other tests loaded is not looked through again
    assert [asyncio.run(work(steps)) for steps in range(12)] == [[]] * 12


@pytest.mark.parametrize("begun", [True, False])
def test_run_of_a_cancelled_task_is_cancelled(begun: bool) -> None:
    """`run.stopped` raised "the run has not ended"."""

    async def work() -> None:
        started, runs = asyncio.Event(), list[Run[str]]()

        @tw.tool
        async def wait() -> None:
            started.set()
            await asyncio.Event().wait()

        agent = Agent(ScriptedModel(model_turn(model_call("wait"))), tools=[wait], policy=ALLOW_ALL)

        async def follow() -> None:
            runs.append(agent.run("go"))
            if not begun:  # the next `await` is cancelled, so that the run never starts
                task.cancel()
            await runs[0]

        task = asyncio.create_task(follow())
        if begun:
            await started.wait()
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (run,) = runs
        assert (run.stopped, run.ok) == ("cancelled", False)
        assert run.text == ""

    asyncio.run(work())
