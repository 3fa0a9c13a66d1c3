"""Requests of real agents, translated for a host, are valid for the packages that the host's vendor publishes."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import toolwire as tw
from tests.agents.recordings import read_recording
from tests.host_matrix.cells import MODELS, RECORDINGS, WEB_SEARCHES

JUDGE = Path(__file__).with_name("judge.py")
JUDGED_HOSTS = ["mistral", "groq", "cerebras", "zai"]


def verdicts(python: Path, host: str, bodies: list[dict[str, Any]]) -> list[str | None]:
    lines = "".join(json.dumps(body) + "\n" for body in bodies)
    done = subprocess.run([python, JUDGE, host], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def agent_requests(host: str) -> dict[str, dict[str, Any]]:
    """Return the requests of all agents for every model of a host.

    Z.ai ignores fields of Chat clients that its package lacks, so these pass.
    """
    requests = {}
    for recording in RECORDINGS:
        protocol, _, bodies = read_recording(recording)
        if recording in WEB_SEARCHES or (protocol == "openai-chat" and host == "zai"):
            continue
        for model in MODELS[host]:
            for turn, body in enumerate(bodies):
                translation = tw.translate(body, protocol, "openai-chat", model=model, host=host)
                requests[f"{recording} {model} {turn}"] = json.loads(translation.to_bytes())
    return requests


@pytest.mark.parametrize("host", JUDGED_HOSTS)
def test_requests_of_agents_are_valid(vendor_python: Path, host: str) -> None:
    requests = agent_requests(host)
    refusals = dict(zip(requests, verdicts(vendor_python, host, list(requests.values())), strict=True))
    assert requests
    assert {name: refusal for name, refusal in refusals.items() if refusal is not None} == {}


@pytest.mark.parametrize("host", JUDGED_HOSTS)
def test_judge_refuses_an_unknown_field(vendor_python: Path, host: str) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    assert verdicts(vendor_python, host, [body]) == [None]
    assert verdicts(vendor_python, host, [body | {"prompt_cache_breakpoint": {}}]) != [None]
