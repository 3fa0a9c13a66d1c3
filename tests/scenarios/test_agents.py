"""One multi-step task on every protocol, with the same calls, tool effects and answer."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.asgi import serve_app
from toolwire import Agent, Policy, tool
from toolwire.gateway.config import Config, ProviderSection
from toolwire.runtime.run.events import CallRecord
from toolwire.upstream.simulator.app import Simulator
from toolwire.upstream.simulator.script import parse_script

PROTOCOLS = ["anthropic", "openai-chat", "openai-responses", "gemini", "gemini-interactions", "ollama", "openrouter"]
AWKWARD = 'a "quoted" line\n\tüñí ☃ \\n {"json": [1]}\n'
SCRIPT: dict[str, Any] = {
    "turns": [
        {
            "thinking": "First I write three files.",
            "text": "Writing.",
            "calls": [{"name": "write", "arguments": {"name": f"{n}.txt", "text": f"{n} {AWKWARD}"}} for n in range(3)],
        },
        {"thinking": "One of these fails.", "calls": [{"name": "read", "arguments": {"name": "none.txt"}}]},
        {
            "calls": [
                {"name": "read", "arguments": {"name": "1.txt"}},
                {"name": "rea", "arguments": {}},
                {"name": "write", "arguments": {"name": "4.txt"}},
            ]
        },
        {"thinking": "Enough.", "text": "All is written."},
    ]
}


def work(protocol: str, folder: Path) -> tuple[Any, list[CallRecord], dict[str, str]]:
    @tool
    def write(name: str, text: str) -> str:
        (folder / name).write_text(text, encoding="utf-8")
        return f"wrote {name}"

    @tool(read_only=True)
    def read(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8")

    script = parse_script(json.dumps(SCRIPT).encode(), "script", toml=False)
    with serve_app(Simulator([protocol], script=script)) as address:
        up = ProviderSection(protocol=protocol, base_url=address, api_key="k" * 20)
        config = Config(providers={"up": up})
        with Agent(
            "up/some-model",
            tools=[write, read],
            policy=Policy(allow=["write"]),
            instructions="You keep files.",
            effort="low",
            config=config,
        ) as agent:
            run = agent.run("Write three files.")
    assert run.stopped == "finished", run.reason
    files = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.iterdir())}
    return run, run.calls, files


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_task_has_the_same_effects_on_every_protocol(protocol: str, tmp_path: Path) -> None:
    run, calls, files = work(protocol, tmp_path)
    assert files == {f"{n}.txt": f"{n} {AWKWARD}" for n in range(3)}
    assert run.text == "All is written."
    assert run.turns == 4
    assert [(call.tool, call.error) for call in calls[:4]] == [("write", "")] * 3 + [("read", "crash")]
    assert sorted((call.tool, call.error) for call in calls[4:]) == [
        ("rea", "unknown_tool"),
        ("read", ""),
        ("write", "schema"),
    ]
    read = next(call for call in calls if call.tool == "read" and not call.error)
    assert read.summary == f"1 {AWKWARD}"
    assert len({call.call_id for call in calls}) == 7
    assert run.usage.output_tokens
