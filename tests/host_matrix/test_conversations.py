"""Conversations with hosts: the answer of the first turn comes back in the second, with its reasoning and ids."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

import toolwire as tw
from tests.agents.recordings import read_recording
from tests.agents.task import PROMPT
from tests.host_matrix.cells import TARGETS, Target, recordings_for, serve_matrix
from tests.support.gateway.setup import GatewaySetup
from tests.support.servers.asgi import http_client

AGENTS = {
    "claude/sonnet_4_5": 'Bash {"command": "ls", "description": "List"}',
    "codex/gpt_5_5": 'exec_command {"cmd": "ls"}',
    "gemini/default_model": 'run_shell_command {"command": "ls", "is_background": false}',
    "opencode/openai_chat": 'bash {"command": "ls", "description": "List"}',
}
"""A call that the simulated model makes, for one agent of each protocol."""


@pytest.fixture(scope="module")
def setup() -> Iterator[GatewaySetup]:
    with serve_matrix() as serving:
        yield serving


def _send(setup: GatewaySetup, target: Target, protocol: str, body: dict[str, Any]) -> Any:
    """Return the response to a request, not streamed."""
    model = f"{target.name}/{target.model}"
    paths = {
        "anthropic": "/v1/messages",
        "openai-responses": "/v1/responses",
        "openai-chat": "/v1/chat/completions",
        "gemini": f"/v1beta/models/{model}:generateContent",
    }
    sent = body if protocol == "gemini" else body | {"model": model, "stream": False}
    sent.pop("stream_options", None)
    headers = {"anthropic-version": "2023-06-01", "x-api-key": "k"}
    response = http_client.post(setup.base_url + paths[protocol], json=sent, headers=headers)
    assert response.status_code == 200, (response.text, setup.upstream.exchanges[-1].request_body[:2000])
    return response.json()


def _pairs() -> Iterator[Any]:
    """Return a target of each profile with each agent, unless the request passes unchanged."""
    for target in TARGETS:
        for recording in AGENTS if target.name.endswith("-0") else ():
            if recording in recordings_for(target):
                yield pytest.param(target, recording, id=f"{target.name}-{recording}")


@pytest.mark.parametrize(("target", "recording"), list(_pairs()))
def test_answers_come_back_in_a_form_that_the_host_accepts(setup: GatewaySetup, target: Target, recording: str) -> None:
    protocol, _, (first, *_) = read_recording(recording)
    request = json.loads(json.dumps(first).replace(PROMPT, json.dumps(AGENTS[recording])[1:-1]))
    setup.reset()
    answer = _send(setup, target, protocol, request)
    calls = tw.parse_tool_calls(answer, protocol)
    assert [call["name"] for call in calls] == [AGENTS[recording].partition(" ")[0]]
    outputs = [{"id": call["id"], "output": "note.txt"} for call in calls]
    final = _send(setup, target, protocol, tw.continue_request(request, answer, outputs, protocol))
    assert "note.txt" in json.dumps(final)
    assert [exchange.status for exchange in setup.upstream.exchanges if exchange.request_body] == [200, 200]
