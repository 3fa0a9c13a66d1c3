"""The same task on the same page, by models of any vendor, in the vendor's own format or in another's."""

import asyncio
import json
from typing import Any

import pytest

from tests.runtime.tools.browser.chromium.form_task import (
    ALLOWED,
    DONE,
    INJECTED_ORDERS,
    RESULT,
    STEPS,
    provider_config,
    run_task,
    serve_form,
    serve_gateway_for,
    serve_model,
    task_turns,
)
from tests.support.servers.sites import Site
from toolwire.agent import Agent
from toolwire.canonical.computer import Navigate, ReadText, SafetyCheck
from toolwire.canonical.content import Media, Text, ToolResult
from toolwire.gateway.config import Config
from toolwire.runtime.calls.approval import ApprovalAnswer, ApprovalRequest, AutoApprover
from toolwire.runtime.run.result import Run
from toolwire.runtime.tools.browser.toolset import Browser
from toolwire.upstream.simulator.script import ScriptedTurn

# Whose form it is, a model that gets it, and what it is told that it has.
FORMS = [
    ("anthropic", "claude-opus-4-8", "computer_20251124"),
    ("anthropic", "claude-opus-6", "browser_toolset_20260801"),
    ("openai-responses", "gpt-5.5", '{"type": "computer"}'),
    ("openai-responses", "computer-use-preview", "computer_use_preview"),
    ("gemini", "gemini-2.5-computer-use-preview-10-2025", "computerUse"),
    ("gemini", "gemini-3.8-flash", "computerUse"),
    ("gemini-interactions", "gemini-3.8-flash", "computer_use"),
    ("openai-chat", "gpt-5.5", '"function"'),
]
# Whose form the client speaks, and whose the model.
CROSSED = [
    ("anthropic", "claude-opus-6", "openai-responses"),
    ("anthropic", "claude-opus-4-8", "gemini"),
    ("openai-responses", "gpt-5.5", "gemini"),
    ("openai-responses", "gpt-5.5", "anthropic"),
    ("gemini", "gemini-3.8-flash", "anthropic"),
    ("gemini", "gemini-3.8-flash", "openai-responses"),
    ("gemini-interactions", "gemini-3.8-flash", "openai-chat"),
]
CHECK = SafetyCheck(id="sc_1", code="irreversible", message="It sends an order.")
CHECKING = [
    ("openai-responses", "gpt-5.5", "acknowledged_safety_checks"),
    ("gemini", "gemini-3.8-flash", "safety_acknowledgement"),
    ("gemini-interactions", "gemini-3.8-flash", "safety_acknowledgement"),
]


class FixedApprover:
    """An approver that always gives the same answer, and records the requests."""

    name = "somebody"

    def __init__(self, says: ApprovalAnswer) -> None:
        self.says = says
        self.asked: list[ApprovalRequest] = []

    async def approve(self, ask: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(ask)
        return self.says

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        return None


def results(run: Run) -> list[ToolResult]:
    return [part for message in run.messages for part in message.parts if isinstance(part, ToolResult)]


def result_text(result: ToolResult) -> str:
    return "".join(part.text for part in result.content or () if isinstance(part, Text))


def submitted_requests(site: Site) -> list[str]:
    return [asked for asked in site.requests if "/done" in asked]


def assert_finished(run: Run) -> None:
    assert (run.stopped, run.text, run.reason) == ("finished", "It is done.", "")
    assert [one.status for one in results(run)] == ["ok"] * len(results(run))
    assert all(any(isinstance(part, Media) for part in one.content or ()) for one in results(run))


@pytest.mark.parametrize(("protocol", "name", "declared"), FORMS)
def test_task_in_native_vendor_format(protocol: str, name: str, declared: str) -> None:
    with serve_form() as site, serve_model(protocol, *task_turns()) as upstream:
        run = run_task(provider_config(protocol, upstream.url, name), site, name)
        assert_finished(run)
        assert submitted_requests(site) == [DONE]
        assert declared in json.dumps(upstream.bodies[0]["tools"])
        assert len(upstream.bodies) == len(STEPS) + 1
        assert sum(RESULT in result_text(one) for one in results(run)) == (0 if _only_looks(protocol, name) else 1)


def _only_looks(protocol: str, name: str) -> bool:
    """Return turns without a read action, which the format lacks: they take a screenshot instead."""
    return protocol.startswith(("gemini", "openai-responses")) or name == "claude-opus-4-8"


@pytest.mark.parametrize(("client", "name", "upstream"), CROSSED)
def test_task_in_another_vendor_format(client: str, name: str, upstream: str) -> None:
    with (
        serve_form() as site,
        serve_model(upstream, *task_turns()) as asked,
        serve_gateway_for(upstream, asked.url) as url,
    ):
        run = run_task(provider_config(client, url, name), site, name)
        assert_finished(run)
        assert submitted_requests(site) == [DONE]
        assert len(asked.bodies) == len(STEPS) + 1


@pytest.mark.parametrize(("protocol", "name", "acknowledged"), CHECKING)
@pytest.mark.parametrize(
    "person", [None, AutoApprover(), FixedApprover("no")], ids=["nobody", "--yes", "somebody says no"]
)
def test_safety_check_is_not_acknowledged_without_a_person(
    protocol: str, name: str, acknowledged: str, person: Any
) -> None:
    with serve_form() as site, serve_model(protocol, *task_turns(checks=(CHECK,))) as upstream:
        run = run_task(provider_config(protocol, upstream.url, name), site, name, person=person, check=False)
        assert submitted_requests(site) == []
        assert [one.status for one in results(run)].count("denied") == 1
        # The provider accepts no other request of this conversation.
        assert run.stopped == "failed"
        assert "acknowledged" in run.reason
        assert acknowledged not in json.dumps(upstream.bodies)


@pytest.mark.parametrize(("protocol", "name", "acknowledged"), CHECKING)
def test_approved_safety_check_is_acknowledged(protocol: str, name: str, acknowledged: str) -> None:
    person = FixedApprover("always")
    with serve_form() as site, serve_model(protocol, *task_turns(checks=(CHECK,))) as upstream:
        run = run_task(provider_config(protocol, upstream.url, name), site, name, person=person)
        assert_finished(run)
        assert submitted_requests(site) == [DONE]
        (ask,) = person.asked
        assert ask.requires_human
        assert "It sends an order." in ask.reason
        assert acknowledged in json.dumps(upstream.bodies[-1])


def test_earlier_always_does_not_acknowledge_a_safety_check() -> None:
    class OnceAlways(FixedApprover):
        async def approve(self, ask: ApprovalRequest) -> ApprovalAnswer:
            self.asked.append(ask)
            return "no" if ask.requires_human else "always"

    person = OnceAlways("no")
    with serve_form() as site, serve_model("openai-responses", *task_turns(checks=(CHECK,))) as upstream:
        config = provider_config("openai-responses", upstream.url, "gpt-5.5")
        run_task(config, site, "gpt-5.5", person=person, policy=None, check=False)
        assert submitted_requests(site) == []
        assert [ask.requires_human for ask in person.asked] == [False, True]


@pytest.mark.parametrize(("client", "name", "upstream"), [("openai-responses", "gpt-5.5", "gemini")])
def test_safety_check_is_translated_to_an_approval(client: str, name: str, upstream: str) -> None:
    person = FixedApprover("yes")
    with (
        serve_form() as site,
        serve_model(upstream, *task_turns(checks=(CHECK,))) as asked,
        serve_gateway_for(upstream, asked.url) as url,
    ):
        assert_finished(run_task(provider_config(client, url, name), site, name, person=person))
        assert submitted_requests(site) == [DONE]
        assert "It sends an order." in person.asked[0].reason
        assert "safety_acknowledgement" in json.dumps(asked.bodies[-1])


@pytest.mark.parametrize(("protocol", "name", "_"), FORMS)
def test_instructions_in_a_page_have_no_effect(protocol: str, name: str, _: str) -> None:
    """Even if the model obeys, the action is not allowed, and page text appears only in results."""
    obeying = ScriptedTurn(actions=(Navigate(url="http://evil.example/"),))
    script = (ScriptedTurn(actions=(ReadText(),)), obeying, *task_turns())
    with serve_form(with_dialog=True) as site, serve_model(protocol, *script) as upstream:
        run = run_task(provider_config(protocol, upstream.url, name), site, name)
        assert run.stopped == "finished"
        assert submitted_requests(site) == [DONE]
        assert [result_text(one).count("is not an allowed host") for one in results(run) if one.status != "ok"] == [1]
        told = [body for body in upstream.bodies if INJECTED_ORDERS in json.dumps(body)]
        assert len(told) == len(upstream.bodies) - 1
        for body in told:
            assert [text for text in prompt_texts(body) if INJECTED_ORDERS in text] == []


def prompt_texts(body: dict[str, Any]) -> list[str]:
    """Return the user and system text of a request, in any format."""
    found: list[Any] = [
        body.get(name) for name in ("system", "instructions", "systemInstruction", "system_instruction")
    ]
    for turn in [*body.get("messages", ()), *body.get("input", ()), *body.get("contents", ())]:
        if turn.get("role", turn.get("type")) not in ("user", "user_input", "system", "developer"):
            continue
        said = turn.get("content", turn.get("parts"))
        parts = said if isinstance(said, list) else [{"text": said}]
        found += [part for part in parts if part.get("type") != "tool_result" and "functionResponse" not in part]
    return [json.dumps(one) for one in found if one]


def test_actions_without_rule_are_not_performed() -> None:
    with serve_form() as site, serve_model("anthropic", *task_turns()) as upstream:
        run = run_task(provider_config("anthropic", upstream.url, "claude-opus-6"), site, "claude-opus-6", policy=None)
        statuses = [one.status for one in results(run)]
        assert statuses == ["ok", "denied", "denied", "denied", "denied", "ok", "denied", "ok"]
        assert submitted_requests(site) == []


def test_typed_address_needs_approval() -> None:
    """In a format with one call per key, no rule about URLs sees the address."""
    person, name = FixedApprover("no"), "claude-opus-4-8"
    with serve_form() as site:
        said = (ScriptedTurn(actions=(Navigate(url=f"{site.root}/elsewhere"),)), ScriptedTurn(text="It is done."))
        with serve_model("anthropic", *said) as upstream:
            run = run_task(provider_config("anthropic", upstream.url, name), site, name, person=person)
        assert [one.status for one in results(run)] == ["ok", "ok", "error"]
        assert [ask.reason for ask in person.asked] == [f"it opens {site.root}/elsewhere"]
        assert "GET /elsewhere" not in site.requests
        person.says = "yes"
        with serve_model("anthropic", *said) as upstream:
            assert_finished(run_task(provider_config("anthropic", upstream.url, name), site, name, person=person))
        assert "GET /elsewhere" in site.requests


def test_each_run_has_its_own_browser() -> None:
    async def twice(config: Config, site: Site) -> None:
        browser = Browser(site.root, hosts=[site.name])
        async with Agent("up/gpt-5.5", tools=[browser], config=config, policy=ALLOWED) as agent:
            for _ in range(2):
                assert_finished(await agent.run("Send the form."))
                assert browser._sessions == {}

    with serve_form() as site, serve_model("openai-responses", *task_turns(), *task_turns()) as upstream:
        asyncio.run(twice(provider_config("openai-responses", upstream.url, "gpt-5.5"), site))
        assert submitted_requests(site) == [DONE, DONE]  # in the same page the name would be there twice
