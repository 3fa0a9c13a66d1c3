"""A client that uses one vendor's SDK and computer tool, with a model of another vendor."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import httpx
import pytest

from tests.runtime.tools.browser.chromium.form_task import (
    DONE,
    RESULT,
    STEPS,
    RecordingSimulator,
    serve_form,
    serve_model,
    task_turns,
)
from tests.runtime.tools.browser.chromium.vendor_clients import (
    Anthropic,
    AnthropicSingle,
    Client,
    Gemini,
    GeminiEarlier,
    Openai,
    open_page,
)
from tests.support.gateway.in_process import build_silent_app, one_provider_config
from tests.support.servers.asgi import serve_app
from toolwire.canonical.computer import SafetyCheck
from toolwire.upstream.provider import Origin
from toolwire.upstream.simulator.script import ScriptedTurn

MODELS = {"anthropic": "claude-opus-6", "openai-responses": "gpt-5.5", "gemini": "gemini-3.8-flash"}
STATE = """({
  name: document.getElementById("name").value,
  handle: tens(handle.offsetLeft),
  list: tens(list.scrollTop),
  told: told.textContent,
})"""
FINAL = {"name": "Ada L.", "handle": 400, "list": 300, "told": RESULT}
CHECK = SafetyCheck(id="sc_1", code="irreversible", message="It sends an order.")

# Expected losses of a conversation, of the tool, the calls and their results. The browser state becomes text. Of
# several calls that were one to the model, only the last screenshot is kept.
STATES = {f"approximated /messages/{turn}/content/0/content/1" for turn in (2, 6, 8, 10, 12)}
FIRST = "approximated /messages/4/content/{}/content/1"
SIZE = {"dropped /tools/0/display_width_px", "dropped /tools/0/display_height_px"}
ADDRESSES = {f"dropped /contents/{turn}/parts/0/functionResponse/response" for turn in (2, 4, 6, 8, 10, 12)}
ADDRESSES |= {"dropped /contents/4/parts/1/functionResponse/response", "dropped /tools/0/computerUse/environment"}
CROSSED: list[tuple[type[Client], str, set[str]]] = [
    (Anthropic, "openai-responses", STATES | {FIRST.format(2)}
     | {f"dropped /messages/4/content/{call}/content/{part}" for call in (0, 1) for part in (0, 1)}),
    (Anthropic, "gemini", STATES | {FIRST.format(call) for call in (0, 1, 2)}),
    (AnthropicSingle, "openai-responses", SIZE | {f"dropped /messages/4/content/{call}/content/0" for call in (0, 1)}),
    (AnthropicSingle, "gemini", SIZE),
    (Openai, "anthropic", set()),
    (Openai, "gemini", set()),
    (Gemini, "anthropic", set()),
    (Gemini, "openai-responses", ADDRESSES | {
        "dropped /contents/4/parts/2/functionResponse/response",
        "dropped /contents/4/parts/0/functionResponse/parts/0",
        "dropped /contents/4/parts/1/functionResponse/parts/0"}),
    # It has no action for typing alone, so it clicks at the pointer first.
    (GeminiEarlier, "anthropic", {"approximated /content/1/input"}),
    (GeminiEarlier, "openai-responses", ADDRESSES | {"dropped /contents/4/parts/0/functionResponse/parts/0"}),
]  # fmt: skip
ABOUT_THE_SCREEN = re.compile(
    r"\w+ (/messages/|/contents/\d+/parts/\d+/f|/tools/0/|/content/\d+/|/candidates/"
    r"|/(output|previous_response_id)/\d+/(actions|output))"
)


@contextmanager
def upstream(protocol: str, *said: ScriptedTurn) -> Iterator[tuple[str, RecordingSimulator]]:
    """Serve a gateway in front of a strict simulator under its own name."""
    with serve_model(protocol, *said) as asked:
        host, port = asked.url.removeprefix("http://").split(":")
        config = (
            one_provider_config(Origin("http", host, int(port)), protocol, timeout=30)
            + f'model = "{MODELS[protocol]}"\n'
        )
        app = build_silent_app(config)
        with serve_app(app) as url:
            yield url, asked
        app.close()


class Exchanges:
    """The exchanges of a client with the gateway, and the reported losses."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.ids: list[str] = []

    def __call__(self, answer: Any) -> None:
        self.ids.append(answer.headers["toolwire-exchange"])

    def lost(self) -> set[str]:
        found: set[str] = set()
        for id in self.ids:
            told = httpx.get(f"{self.url}/toolwire/exchanges/{id}/losses", headers={"x-api-key": "key"})
            found |= {f"{loss['kind']} {loss['path']}" for loss in told.json().get("losses", ())}
        return found


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("client", "protocol", "lost"), CROSSED)
def test_page_state_equals_native_client_run(
    client: type[Client], protocol: str, lost: set[str], *, stream: bool
) -> None:
    with serve_form() as site, upstream(protocol, *task_turns()) as (url, asked), open_page(site.root) as page:
        exchanges = Exchanges(url)
        assert client(url, page, exchanges, stream=stream).work() == "It is done."
        page.wait_for_function("told.textContent")
        assert page.evaluate(STATE) == FINAL
        assert [line for line in site.requests if "/done" in line] == [DONE]
        assert len(asked.bodies) == len(STEPS) + 1
        assert {loss for loss in exchanges.lost() if ABOUT_THE_SCREEN.match(loss)} == lost


@pytest.mark.parametrize("client", [Anthropic, Openai, Gemini])
def test_native_client_run_has_the_expected_state(client: type[Client]) -> None:
    """The same clients, with models of their own vendors."""
    protocol = {Anthropic: "anthropic", Openai: "openai-responses", Gemini: "gemini"}[client]
    with serve_form() as site, upstream(protocol, *task_turns()) as (url, _), open_page(site.root) as page:
        exchanges = Exchanges(url)
        assert client(url, page, exchanges, stream=False).work() == "It is done."
        page.wait_for_function("told.textContent")
        assert page.evaluate(STATE) == FINAL
        assert exchanges.lost() == set()


@pytest.mark.parametrize(
    ("client", "protocol", "acknowledged"),
    [(Openai, "gemini", "safety_acknowledgement"), (Gemini, "openai-responses", "acknowledged_safety_checks")],
)
def test_check_approved_in_the_client_is_acknowledged(client: type[Client], protocol: str, acknowledged: str) -> None:
    with (
        serve_form() as site,
        upstream(protocol, *task_turns(checks=(CHECK,))) as (url, asked),
        open_page(site.root) as page,
    ):
        assert client(url, page, lambda _: None, stream=False, agrees=True).work() == "It is done."
        assert acknowledged in json.dumps(asked.bodies[-1])
        assert acknowledged not in json.dumps(asked.bodies[4])


@pytest.mark.parametrize("protocol", ["openai-responses", "gemini"])
def test_check_without_client_support_stops_the_run(protocol: str) -> None:
    with (
        serve_form() as site,
        upstream(protocol, *task_turns(checks=(CHECK,))) as (url, _),
        open_page(site.root) as page,
    ):
        with pytest.raises(anthropic.APIStatusError, match="may not be dropped"):
            Anthropic(url, page, lambda _: None, stream=False).work()
        assert [line for line in site.requests if "/done" in line] == []
