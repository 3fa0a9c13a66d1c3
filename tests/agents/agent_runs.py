"""The command line, model name and tool calls of each agent."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from msgspec import Struct

from tests.agents.task import AWKWARD, FOLLOW_UP, PROMPT, Call, Task

Steps = Callable[[Task], list[list[Call]]]


class AgentRun(Struct, frozen=True, kw_only=True):
    """One agent configuration."""

    agent: str
    protocol: str
    model: str | None
    arguments: tuple[str, ...]
    steps: Steps
    note: str = ""
    sockets: Literal["not asked", "taken", "refused"] = "not asked"
    says: str = ""
    lacking: tuple[str, ...] = ()
    restarts: bool = False
    resumed: tuple[str, ...] = ()
    private: str = ""
    fails: int = 0

    @property
    def name(self) -> str:
        told = ", ".join(filter(None, (self.model, self.note)))
        return f"{self.agent} ({told})" if told else self.agent


def _claude(errand: Task) -> list[list[Call]]:
    def bash(command: str) -> Call:
        return Call("Bash", {"command": command, "description": "As agreed"})

    def reading(path: object) -> Call:
        return Call("Read", {"file_path": str(path)})

    return [
        [Call("Write", {"file_path": str(errand.note), "content": AWKWARD})],
        [bash(errand.command)],
        [reading(errand.note)],
        [bash(f"cat {errand.secret(0)}"), reading(errand.secret(1)), bash(f"cat {errand.secret(2)}")],
    ]


def _searching(errand: Task) -> list[list[Call]]:
    """Add a tool that Claude Code declares only after a search for it."""
    first, *others = _claude(errand)
    return [first, [Call("ToolSearch", {"query": "select:CronList"})], [Call("CronList", {})], *others]


def _surfing(errand: Task) -> list[list[Call]]:
    """Add a web search, for which Claude Code sends a separate request."""
    first, *others = _claude(errand)
    search = (
        [Call("ToolSearch", {"query": "select:WebSearch", "max_results": 5})],
        [Call("WebSearch", {"query": QUERY})],
    )
    return [first, *search, *others]


def _gemini(errand: Task) -> list[list[Call]]:
    def shell(command: str) -> Call:
        # Qwen Code sometimes loses the output of a command that exits at once.
        return Call("run_shell_command", {"command": f"sleep 0.5; {command}", "is_background": False})

    def reading(path: object) -> Call:
        return Call("read_file", {"file_path": str(path)})

    return [
        [Call("write_file", {"file_path": str(errand.note), "content": AWKWARD})],
        [shell(errand.command)],
        [reading(errand.note)],
        [reading(errand.secret(0)), shell(f"cat {errand.secret(1)}"), reading(errand.secret(2))],
    ]


def _opencode(errand: Task) -> list[list[Call]]:
    def bash(command: str) -> Call:
        return Call("bash", {"command": command, "description": "As agreed"})

    def reading(path: object) -> Call:
        return Call("read", {"filePath": str(path)})

    return [
        [Call("write", {"filePath": str(errand.note), "content": AWKWARD})],
        [bash(errand.command)],
        [reading(errand.note)],
        [bash(f"cat {errand.secret(0)}"), reading(errand.secret(1)), bash(f"cat {errand.secret(2)}")],
    ]


def write_calls(errand: Task) -> str:
    return f"cat > {errand.note} <<'END OF NOTE'\n{AWKWARD}END OF NOTE\n"


def _shell(command: str) -> Call:
    return Call("exec_command", {"cmd": command})


def _codex(errand: Task) -> list[list[Call]]:
    return [
        [_shell(write_calls(errand))],
        [_shell(errand.command)],
        [_shell(f"cat {errand.note}")],
        [_shell(f"cat {errand.secret(number)}") for number in range(3)],
    ]


def _outliving(errand: Task) -> list[list[Call]]:
    """Restart the gateway while Codex runs a command."""
    first, _, *others = _codex(errand)
    return [first, [_shell(f"{errand.restart}; {errand.command}")], *others]


def _asking(errand: Task) -> list[list[Call]]:
    """Add a tool of an MCP server, which Codex declares in a namespace."""
    *others, _ = _codex(errand)
    first, second, third = (str(errand.secret(number)) for number in range(3))
    return [*others, [_shell(f"cat {first}"), Call("read_out", {"path": second}), _shell(f"cat {third}")]]


def _discovering(errand: Task) -> list[list[Call]]:
    """Add the same tool after Codex discovered it; only some models get it at once."""
    first, *others = _asking(errand)
    return [first, [Call("tool_search", {"query": "read out a file"})], *others]


def _patching(errand: Task) -> list[list[Call]]:
    lines = "".join(f"+{line}\n" for line in AWKWARD.removesuffix("\n").split("\n"))
    patch = f"*** Begin Patch\n*** Add File: {errand.note.name}\n{lines}*** End Patch\n"
    return [[Call("apply_patch", patch)], *_codex(errand)[1:]]


def _script(*commands: str) -> Call:
    """Return a program for Codex's code mode."""
    runs = ", ".join(f"tools.exec_command({json.dumps({'cmd': command})})" for command in commands)
    return Call("exec", f"for (const done of await Promise.all([{runs}])) text(done.output);")


def _coding(errand: Task) -> list[list[Call]]:
    return [
        [_script(write_calls(errand))],
        [_script(errand.command)],
        [_script(f"cat {errand.note}")],
        [_script(*(f"cat {errand.secret(number)}" for number in range(3)))],
    ]


_PLACEHOLDER = "DeferredToolPlaceholder"
QUERY = "tool calling between vendors"
_CLAUDE = ("-p", PROMPT, "--dangerously-skip-permissions")
_SOCKETS = ("-c", "model_providers.toolwire.supports_websockets=true")
_CODEX_FREELY = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
_CODEX = ("exec", *_CODEX_FREELY, PROMPT)
_CODEX_AGAIN = ("exec", "resume", "--last", *_CODEX_FREELY, FOLLOW_UP)
_CLERK = (
    "-c",
    f"mcp_servers.clerk.command={json.dumps(sys.executable)}",
    "-c",
    f"mcp_servers.clerk.args={json.dumps([str(Path(__file__).with_name('file_server.py'))])}",
)
_YOLO = ("-p", PROMPT, "--yolo")
_OPENCODE = ("run", PROMPT)

RUNS = [
    AgentRun(
        agent="claude",
        protocol="anthropic",
        model="toolwire",
        arguments=_CLAUDE,
        steps=_claude,
        private=_PLACEHOLDER,
    ),
    AgentRun(
        agent="claude",
        protocol="anthropic",
        model="toolwire",
        arguments=_CLAUDE,
        steps=_searching,
        note="deferred tool",
        private=_PLACEHOLDER,
    ),
    AgentRun(
        agent="claude",
        protocol="anthropic",
        model="toolwire",
        arguments=_CLAUDE,
        steps=_surfing,
        note="web search",
        says=f'Web search results for query: "{QUERY}"',
        lacking=("openai-chat", "ollama"),  # its request for a search offers nothing else
    ),
    AgentRun(agent="claude", protocol="anthropic", model="claude-sonnet-4-5", arguments=_CLAUDE, steps=_claude),
    AgentRun(
        agent="claude",
        protocol="anthropic",
        model="claude-sonnet-4-5",
        arguments=_CLAUDE,
        steps=_surfing,
        note="web search",
        says=f'Web search results for query: "{QUERY}"',
        lacking=("openai-chat", "ollama"),
    ),
    AgentRun(agent="codex", protocol="openai-responses", model="toolwire", arguments=_CODEX, steps=_codex),
    AgentRun(agent="codex", protocol="openai-responses", model="gpt-5.5", arguments=_CODEX, steps=_patching),
    AgentRun(agent="codex", protocol="openai-responses", model="gpt-6.1-sol", arguments=_CODEX, steps=_coding),
    AgentRun(
        agent="codex",
        protocol="openai-responses",
        model="toolwire",
        arguments=(*_CLERK, *_CODEX),
        steps=_asking,
        note="MCP",
    ),
    AgentRun(
        agent="codex",
        protocol="openai-responses",
        model="gpt-5.5",
        arguments=(*_CLERK, *_CODEX),
        steps=_discovering,
        note="MCP behind a search",
    ),
    AgentRun(
        agent="codex",
        protocol="openai-responses",
        model="toolwire",
        arguments=(*_SOCKETS, *_CODEX),
        steps=_codex,
        note="websocket",
        sockets="taken",
    ),
    AgentRun(
        agent="codex",
        protocol="openai-responses",
        model="toolwire",
        arguments=(*_SOCKETS, *_CODEX),
        steps=_codex,
        note="websocket refused",
        sockets="refused",
    ),
    AgentRun(
        agent="codex",
        protocol="openai-responses",
        model="toolwire",
        arguments=_CODEX,
        steps=_codex,
        note="gateway restarted, resumed",
        restarts=True,
        resumed=_CODEX_AGAIN,
    ),
    AgentRun(
        agent="codex",
        protocol="openai-responses",
        model="toolwire",
        arguments=(*_SOCKETS, *_CODEX),
        steps=_outliving,
        note="websocket, gateway restarted meanwhile",
        sockets="taken",
        restarts=True,
    ),
    AgentRun(
        agent="codex",
        protocol="openai-responses",
        model="toolwire",
        arguments=(*_SOCKETS, *_CODEX),
        steps=_codex,
        note="websocket, gateway restarted, resumed",
        sockets="taken",
        restarts=True,
        resumed=(*_SOCKETS, *_CODEX_AGAIN),
    ),
    AgentRun(agent="gemini", protocol="gemini", model=None, arguments=_YOLO, steps=_gemini),
    AgentRun(agent="gemini", protocol="gemini", model="toolwire", arguments=_YOLO, steps=_gemini),
    *(
        AgentRun(
            agent="opencode", protocol=protocol, model="toolwire", arguments=_OPENCODE, steps=_opencode, note=protocol
        )
        for protocol in ("anthropic", "openai-chat", "openai-responses", "gemini")
    ),
    *(
        AgentRun(agent="qwen", protocol=protocol, model="toolwire", arguments=_YOLO, steps=_gemini, note=protocol)
        for protocol in ("openai-chat", "anthropic", "gemini")
    ),
    *(
        AgentRun(
            agent=agent,
            protocol=protocol,
            model="toolwire",
            arguments=arguments,
            steps=steps,
            note="failing upstream",
            fails=fails,
        )
        for agent, protocol, arguments, steps, fails in (
            ("claude", "anthropic", _CLAUDE, _claude, 3),
            ("codex", "openai-responses", _CODEX, _codex, 3),
            ("gemini", "gemini", _YOLO, _gemini, 3),
            ("opencode", "openai-chat", _OPENCODE, _opencode, 3),
            ("qwen", "openai-chat", _YOLO, _gemini, 2),  # a stream that breaks off is the end of it
        )
    ),
]
