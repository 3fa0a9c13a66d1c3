"""Sessions: conversations in the journal that runs continue, also after a restart, one run at a time."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.support.postgres import POSTGRES
from tests.support.protocols import ALL_PROTOCOLS
from tests.support.runtime.fork_server import run_forked
from tests.support.runtime.scripted_agent import ALLOW_ALL, ScriptedApprover
from toolwire import Agent, SessionInUse, ToolwireError, tool
from toolwire.canonical.content import Text
from toolwire.canonical.request import Request
from toolwire.journal.runs import RunStore
from toolwire.testing import ScriptedModel, call, fail, respond

PROVIDERS = {protocol: protocol for protocol in ALL_PROTOCOLS} | {"openai-responses": "openai"}


@tool
def pay(amount: int) -> str:
    return f"paid {amount}"


@pytest.fixture(params=["sqlite", POSTGRES])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.getfixturevalue("postgres_url")) if request.param == "postgres" else str(tmp_path / "runs.db")


def texts(request: Request) -> list[str]:
    return [part.text for message in request.messages for part in message.parts if isinstance(part, Text)]


def agent_with(*turns: object, journal: str, approver: ScriptedApprover | None = None) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(*turns)  # type: ignore[arg-type] # turns of a script
    return Agent(model, tools=[pay], policy=None if approver else ALLOW_ALL, journal=journal, approver=approver), model


def test_session_continues_in_another_process(journal: str) -> None:
    first, _ = agent_with("Hello Ada.", journal=journal)
    assert first.session("ada").run("I am Ada.").text == "Hello Ada."
    second, model = agent_with("You are Ada.", "Hello Bob.", journal=journal)
    assert second.session("ada").run("Who am I?").text == "You are Ada."
    assert second.session("bob").run("I am Bob.").text == "Hello Bob."
    assert [texts(request) for request in model.requests] == [
        ["I am Ada.", "Hello Ada.", "Who am I?"],
        ["I am Bob."],
    ]
    assert len(second.session("ada").messages) == 4
    assert [session.id for session in second.sessions()] == ["bob", "ada"]


@pytest.mark.parametrize("protocol", ALL_PROTOCOLS)
def test_conversation_with_calls_is_accepted_by_every_provider(protocol: str, tmp_path: Path) -> None:
    """The strict simulator rejects a history with calls without results, or results without calls."""
    model = f"{PROVIDERS[protocol]}/simulated"
    with Agent(model, tools=[pay], policy=ALLOW_ALL, journal=tmp_path / "runs.db") as agent:
        session = agent.session("ada")
        assert session.run('pay {"amount": 5}').text == "pay returned: paid 5"
        assert session.run('pay {"amount": 6}').text == "pay returned: paid 6"
        assert len(session.messages) == 8


def test_second_run_of_a_session_is_refused_while_the_first_is_running(journal: str) -> None:
    async def main() -> list[str]:
        started, may_end = asyncio.Event(), asyncio.Event()

        @tool(read_only=True)
        async def wait() -> str:
            started.set()
            await may_end.wait()
            return "ready"

        agent = Agent(ScriptedModel(call("wait"), "done", "again"), tools=[wait], journal=journal)
        session = agent.session("ada")
        running = session.run("Wait.")
        await started.wait()
        with pytest.raises(SessionInUse, match=r"session .ada. is in use: run \w+ has not ended"):
            await session.run("Too early.")
        with pytest.raises(SessionInUse, match="has not ended"):
            session.delete()
        may_end.set()
        return [(await running).text, (await session.run("Now.")).text, str(len(RunStore(journal).latest()))]

    assert asyncio.run(main()) == ["done", "again", "2"]


def test_two_runs_that_start_at_once_do_not_both_continue_a_session(tmp_path: Path) -> None:
    """Both read the session before either of them has changed it."""
    store = RunStore(tmp_path / "runs.db")
    stored = store.sessions.find("ada")
    assert store.sessions.enter(stored, "run_1", b"[]")
    assert not store.sessions.enter(stored, "run_2", b"[]")
    store.sessions.save("ada", "run_1", "agent", b"[]")
    read = store.sessions.find("ada")
    assert store.sessions.enter(read, "run_3", b"[]")
    store.sessions.save("ada", "run_3", "agent", b"[]")
    assert not store.sessions.enter(read, "run_4", b"[]")
    store.close()


def test_failed_request_leaves_no_trace_in_the_conversation(journal: str) -> None:
    agent, model = agent_with(fail("overloaded"), "Hello.", journal=journal)
    session = agent.session("ada")
    assert session.run("Hi", check=False).stopped == "failed"
    assert session.run("Hi again").text == "Hello."
    assert texts(model.requests[1]) == ["Hi again"]


def test_new_run_knows_the_effects_of_an_interrupted_one(journal: str) -> None:
    agent, model = agent_with(call("pay", amount=5), fail("server"), "You paid 5.", journal=journal)
    session = agent.session("ada")
    interrupted = session.run("Pay 5.", check=False)
    assert session.run("What did I pay?").text == "You paid 5."
    assert "paid 5" in str(model.requests[2].messages)
    with pytest.raises(ToolwireError, match="can't be resumed: session 'ada' has continued without it"):
        list(agent.resume(interrupted.id))


DYING_PROGRAM = """
import os, sys
from toolwire import Agent, Policy, tool
from toolwire.testing import ScriptedModel, call

@tool
def die():
    os._exit(9)

agent = Agent(ScriptedModel(call("die")), tools=[die], policy=Policy(allow=["*"]), journal=sys.argv[1])
agent.session("ada").run("Die.")
"""


def test_killed_process_leaves_a_session_that_continues(tmp_path: Path) -> None:
    journal = str(tmp_path / "runs.db")
    done = run_forked(DYING_PROGRAM, journal, folder=tmp_path, environment=os.environ)
    assert (done.returncode, done.stderr) == (9, "")
    agent, model = agent_with("I am back.", journal=journal)
    assert agent.session("ada").run("Hello?").text == "I am back."
    assert "in doubt" in str(model.requests[0].messages[-2])


def test_waiting_run_is_resumed_with_its_conversation(journal: str) -> None:
    first, _ = agent_with("Hello.", call("pay", amount=5), journal=journal, approver=ScriptedApprover("later"))
    first.session("ada").run("Hi.")
    assert first.session("ada").run("Pay 5.").stopped == "waiting"
    with pytest.raises(SessionInUse, match=r"waits for an approval: continue it with agent.session\('ada'\).resume\("):
        first.session("ada").run("And now?")
    second, model = agent_with("Paid.", "Bye.", journal=journal, approver=ScriptedApprover("yes"))
    stream = second.session("ada").resume()
    assert [*stream]
    assert (stream.run.text, stream.run.calls[0].summary) == ("Paid.", "paid 5")
    assert texts(model.requests[0]) == ["Hi.", "Hello.", "Pay 5."]
    assert second.session("ada").run("Thanks.").text == "Bye."
    assert texts(model.requests[1])[-2:] == ["Paid.", "Thanks."]
    with pytest.raises(ToolwireError, match="session 'ada' has no run to resume"):
        second.session("ada").resume()


def test_deleted_session_is_gone_with_its_runs(journal: str) -> None:
    helper = Agent(ScriptedModel("ok"), name="helper", journal=journal)
    model = ScriptedModel(respond(call("helper", task="Help.")), "done", "other", "new")
    agent = Agent(model, tools=[helper], policy=ALLOW_ALL, journal=journal)
    agent.session("ada").run("Hi.")
    other = agent.session("bob").run("Hi.")
    agent.session("ada").delete()
    store = RunStore(journal)
    assert [run.id for run in store.latest()] == [other.id]
    store.close()
    assert [session.id for session in agent.sessions()] == ["bob"]
    agent.session("ada").run("Hi.")
    assert len(model.requests[-1].messages) == 1


def test_sessions_need_a_journal_and_an_id(tmp_path: Path) -> None:
    with pytest.raises(ToolwireError, match=r"sessions need a journal: use Agent\(..., journal='runs.db'\)"):
        Agent(ScriptedModel("unused")).session("ada")
    agent = Agent(ScriptedModel("unused"), journal=tmp_path / "runs.db")
    with pytest.raises(ToolwireError, match="invalid session id ''"):
        agent.session("")
    with pytest.raises(ToolwireError, match="pass either `session` or `history`"):
        agent.run("Hi", session="ada", history=agent.start("Hi").messages)
