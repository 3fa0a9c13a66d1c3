"""Requests of the real agents, recorded and reduced to fixtures: `make record-agents`.

Each agent runs the task on the simulated model of its protocol. The fixture keeps its first request with tools, and the
one with the results of its first calls, one of which reads a picture. Long prose is shortened; structure, fields and
settings stay exact.
"""

import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from msgspec.structs import replace

from tests.agents.agent_runs import RUNS, AgentRun, Steps
from tests.agents.execution import run_agent
from tests.agents.installation import install_agents, versions
from tests.agents.task import Call, Task
from toolwire.codec.interface import Route
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.simulator.prompt import read_prompt

FOLDER = Path(__file__).parents[1] / "fixtures" / "agents"
VARIANTS = {
    "claude (toolwire)": "claude/unknown_model",
    "claude (claude-sonnet-4-5)": "claude/sonnet_4_5",
    "claude (toolwire, deferred tool)": "claude/deferred_tool",
    "claude (toolwire, web search)": "claude/web_search",
    "claude (claude-sonnet-4-5, web search)": "claude/forced_web_search",
    "codex (toolwire, MCP)": "codex/unknown_model",
    "codex (gpt-5.5)": "codex/gpt_5_5",
    "codex (gpt-6.1-sol)": "codex/code_mode",
    "gemini": "gemini/default_model",
    "gemini (toolwire)": "gemini/unknown_model",
    "opencode (toolwire, anthropic)": "opencode/anthropic",
    "opencode (toolwire, openai-chat)": "opencode/openai_chat",
    "opencode (toolwire, openai-responses)": "opencode/openai_responses",
    "opencode (toolwire, gemini)": "opencode/gemini",
    "qwen (toolwire, openai-chat)": "qwen/openai_chat",
    "qwen (toolwire, anthropic)": "qwen/anthropic",
    "qwen (toolwire, gemini)": "qwen/gemini",
}
"""The fixture of each recorded run."""

_PICTURE_TOOLS = {
    "claude": ("Read", "file_path"),
    "codex": ("view_image", "path"),
    "gemini": ("read_file", "file_path"),
    "opencode": ("read", "filePath"),
    "qwen": ("read_file", "file_path"),
}
_PROSE_LIMIT = 160
# Values with a length or form that servers check.
_EXACT_MEMBERS = {"user_id", "definition", "signature", "thoughtSignature", "encrypted_content", "data", "image_url"}
_EXACT_MEMBERS |= {"url", "arguments", "input"}
_ENCLOSING_TAG = re.compile(r"<(?P<name>[\w-]+)>.*(?P<end>\n</(?P=name)>)\s*$", re.DOTALL)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
# Ids of the simulator end in a MAC by which every protocol recognizes its calls.
_CALL_ID = re.compile(r"\b((?:call_)?[0-9a-f]{12}000[0-9a-f])[0-9a-f]{8}\b")
_REPLACEMENTS = (
    (re.compile(r"/tmp/toolwire-task-\w+/work"), "/work"),
    (re.compile(r"-tmp-toolwire-task-\w+-work"), "-work"),
    (re.compile(r"/tmp/toolwire-task-\w+"), "/task"),
    (re.compile(r"/tmp/[\w./-]+"), "/tmp/agent"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "0123456789abcdef" * 4),
    (re.compile(r"\b20\d\d-\d\d-\d\d\b"), "2026-01-01"),
    (re.compile(r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, \w+ \d+, 20\d\d"), "Thursday, January 1, 2026"),
    (re.compile(r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \w{3} \d\d 20\d\d"), "Thu Jan 01 2026"),
    (re.compile(r"Linux \d+\.\d+\.[\w.-]+"), "Linux 6.1.0"),
    (re.compile(r"(cc_version=)[\w.]+"), r"\g<1>2.1.0.0a0"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:9100"),
)


@cache
def read_recording(name: str) -> tuple[str, str, list[dict[str, Any]]]:
    """Return protocol, path and request bodies of a fixture, such as `claude/web_search`."""
    recording = json.loads((FOLDER / f"{name}.json").read_bytes())
    bodies = [recording["first"]]
    if "changes" in recording:
        bodies.append(recording["first"] | recording["changes"])
    return recording["protocol"], recording["path"], bodies


def _with_picture(run: AgentRun) -> AgentRun:
    """Add a call that reads a picture to the first calls of a run."""
    tool, member = _PICTURE_TOOLS[run.agent]
    if run.model == "gpt-6.1-sol" or run.note == "web search":  # a program; another request
        return run

    def steps(task: Task, previous: Steps = run.steps) -> list[list[Call]]:
        first, *others = previous(task)
        return [[*first, Call(tool, {member: str(task.picture)})], *others]

    return replace(run, steps=steps)


def _task_requests(record: Path, run: AgentRun) -> Iterable[tuple[str, dict[str, Any]]]:
    """Return path and body of each request that declares tools; for a web search, of the forced one."""
    codec = PROTOCOLS[run.protocol]
    for request in sorted(record.glob("client-*-request.json")):
        path = request.with_name(request.name.replace("request.json", "address")).read_text().partition("\n")[0]
        address = codec.surface.match(path)
        if address is None or address.counts_tokens:
            continue
        content = request.read_bytes()
        body = json.loads(content)
        tools = read_prompt(codec.decode_request(content, Route(model=address.model, stream=address.stream))).tools
        if "tool_choice" in body if run.note == "web search" else tools:
            yield path, body


def _shorten(value: Any, member: str = "") -> Any:
    """Return the value with long prose cut after some words."""
    match value:
        case dict():
            return {name: _shorten(inner, name) for name, inner in value.items()}
        case list():
            return [_shorten(inner, member) for inner in value]
        case str() if len(value) > _PROSE_LIMIT and member not in _EXACT_MEMBERS:
            tag = _ENCLOSING_TAG.match(value)
            return f"{value[:_PROSE_LIMIT].rstrip()} [...]{'' if tag is None else tag['end']}"
        case _:
            return value


def _scrub(text: str) -> str:
    """Return the text without paths, dates, versions and ids of one machine and session."""
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    for number, found in enumerate(dict.fromkeys(_UUID.findall(text)), 1):
        text = text.replace(found, f"00000000-0000-4000-8000-{number:012}")
    return text


def write_recording(record: Path, run: AgentRun) -> Path:
    """Write the fixture of a recorded run; return its file."""
    (path, first), *others = _task_requests(record, run)
    recording: dict[str, Any] = {"protocol": run.protocol, "path": path, "first": first}
    if others:
        # A deferred tool is found by the second calls, and reported beside their results.
        second = others[1 if run.note == "deferred tool" else 0][1]
        assert first.keys() <= second.keys()
        recording["changes"] = {name: value for name, value in second.items() if first.get(name) != value}
    file = FOLDER / f"{VARIANTS[run.name]}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    text = _scrub(json.dumps(recording, ensure_ascii=False))
    if run.protocol != "anthropic":
        text = _CALL_ID.sub(r"\g<1>0a1b2c3d", text)
    file.write_text(json.dumps(_shorten(json.loads(text)), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return file


@click.command()
@click.option(
    "--cache", type=click.Path(path_type=Path), required=True, help="Folder in which the agents are installed."
)
@click.option("--run", "wanted", multiple=True, help="Record only runs whose name contains this text.")
def main(cache: Path, wanted: tuple[str, ...]) -> None:
    """Record the requests of each agent as fixtures."""
    path = install_agents(cache.resolve())
    click.echo(", ".join(f"{name} {version}" for name, version in versions(cache).items()))
    for run in RUNS:
        if run.name not in VARIANTS or (wanted and not any(text in run.name for text in wanted)):
            continue
        with TemporaryDirectory() as folder:
            cell = run_agent(_with_picture(run), run.protocol, path, Path(folder))
            click.echo(f"{write_recording(Path(folder), run)}  {'; '.join(cell.faults) or 'done'}")


if __name__ == "__main__":
    main()
