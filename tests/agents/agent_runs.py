"""The command line, model name and tool calls of each agent."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from msgspec import Struct

from tests.agents.task import DIFFICULT_TEXT, FOLLOW_UP, PROMPT, Call, Task

Steps = Callable[[Task], list[list[Call]]]


class AgentRun(Struct, frozen=True, kw_only=True):
    """One agent configuration and the steps that it performs."""

    agent: str
    protocol: str
    # The model name that the agent requests; some agents change their behavior with it.
    model: str | None
    arguments: tuple[str, ...]
    steps: Steps
    note: str = ""
    # How the gateway treats WebSockets; the agent uses one if it may.
    websocket: Literal["unused", "accepted", "refused"] = "unused"
    # Text that a tool result must also contain.
    expected_result: str = ""
    # Upstreams without such a tool; the agent gets an error instead.
    unsupported_upstreams: tuple[str, ...] = ()
    # Whether the gateway restarts during the run.
    restarts_gateway: bool = False
    # Arguments with which the agent resumes after the restart, if it answers before.
    resume_arguments: tuple[str, ...] = ()
    # A tool that only providers of the agent's protocol may receive.
    private_tool: str = ""
    # The number of steps that first fail, each in a different way; the agent must retry.
    failures: int = 0
    # Arguments of further runs, which continue the session one after the other.
    sequel: tuple[tuple[str, ...], ...] = ()
    # Whether the conversation is compacted meanwhile.
    compacts: bool = False
    # The dialect in which the upstream writes calls and thinking into its text; None if it sends them structured.
    dialect: str | None = None

    @property
    def name(self) -> str:
        details = ", ".join(filter(None, (self.model, self.note)))
        return f"{self.agent} ({details})" if details else self.agent


def _claude_steps(task: Task) -> list[list[Call]]:
    def bash(command: str) -> Call:
        return Call("Bash", {"command": command, "description": "As agreed"})

    def read_call(path: object) -> Call:
        return Call("Read", {"file_path": str(path)})

    return [
        [Call("Write", {"file_path": str(task.note), "content": DIFFICULT_TEXT})],
        [bash(task.command)],
        [read_call(task.note)],
        [bash(f"cat {task.secret_file(0)}"), read_call(task.secret_file(1)), bash(f"cat {task.secret_file(2)}")],
    ]


def _deferred_tool_steps(task: Task) -> list[list[Call]]:
    """Add a tool that Claude Code declares only after a search for it."""
    first, *others = _claude_steps(task)
    return [first, [Call("ToolSearch", {"query": "select:CronList"})], [Call("CronList", {})], *others]


def _web_search_steps(task: Task) -> list[list[Call]]:
    """Add a web search, for which Claude Code sends a separate request."""
    first, *others = _claude_steps(task)
    search = (
        [Call("ToolSearch", {"query": "select:WebSearch", "max_results": 5})],
        [Call("WebSearch", {"query": QUERY})],
    )
    return [first, *search, *others]


def _gemini_steps(task: Task) -> list[list[Call]]:
    def shell(command: str) -> Call:
        # Qwen Code sometimes loses the output of a command that exits at once.
        return Call("run_shell_command", {"command": f"sleep 0.5; {command}", "is_background": False})

    def read_call(path: object) -> Call:
        return Call("read_file", {"file_path": str(path)})

    return [
        [Call("write_file", {"file_path": str(task.note), "content": DIFFICULT_TEXT})],
        [shell(task.command)],
        [read_call(task.note)],
        [read_call(task.secret_file(0)), shell(f"cat {task.secret_file(1)}"), read_call(task.secret_file(2))],
    ]


def _opencode_steps(task: Task) -> list[list[Call]]:
    def bash(command: str) -> Call:
        return Call("bash", {"command": command, "description": "As agreed"})

    def read_call(path: object) -> Call:
        return Call("read", {"filePath": str(path)})

    return [
        [Call("write", {"filePath": str(task.note), "content": DIFFICULT_TEXT})],
        [bash(task.command)],
        [read_call(task.note)],
        [bash(f"cat {task.secret_file(0)}"), read_call(task.secret_file(1)), bash(f"cat {task.secret_file(2)}")],
    ]


def _write_command(task: Task) -> str:
    return f"cat > {task.note} <<'END OF NOTE'\n{DIFFICULT_TEXT}END OF NOTE\n"


def _shell(command: str) -> Call:
    return Call("exec_command", {"cmd": command})


def _codex_steps(task: Task) -> list[list[Call]]:
    return [
        [_shell(_write_command(task))],
        [_shell(task.command)],
        [_shell(f"cat {task.note}")],
        [_shell(f"cat {task.secret_file(number)}") for number in range(3)],
    ]


def _compaction_steps(task: Task) -> list[list[Call]]:
    """Add a command with so much output that Codex compacts the conversation before the next step."""
    first, second, *others = _codex_steps(task)
    return [first, second, [_shell("yes 'a line of the log' | head -c 60000")], *others]


def _restart_steps(task: Task) -> list[list[Call]]:
    """Restart the gateway while Codex runs a command."""
    first, _, *others = _codex_steps(task)
    return [first, [_shell(f"{task.restart_command}; {task.command}")], *others]


def _mcp_steps(task: Task) -> list[list[Call]]:
    """Add a tool of an MCP server, which Codex declares in a namespace."""
    *others, _ = _codex_steps(task)
    first, second, third = (str(task.secret_file(number)) for number in range(3))
    return [*others, [_shell(f"cat {first}"), Call("read_out", {"path": second}), _shell(f"cat {third}")]]


def _mcp_search_steps(task: Task) -> list[list[Call]]:
    """Add the same tool after Codex discovered it; only some models get it at once."""
    first, *others = _mcp_steps(task)
    return [first, [Call("tool_search", {"query": "read out a file"})], *others]


def _patch_steps(task: Task) -> list[list[Call]]:
    lines = "".join(f"+{line}\n" for line in DIFFICULT_TEXT.removesuffix("\n").split("\n"))
    patch = f"*** Begin Patch\n*** Add File: {task.note.name}\n{lines}*** End Patch\n"
    return [[Call("apply_patch", patch)], *_codex_steps(task)[1:]]


def _code_mode_call(*commands: str) -> Call:
    """Return a program for Codex's code mode."""
    runs = ", ".join(f"tools.exec_command({json.dumps({'cmd': command})})" for command in commands)
    return Call("exec", f"for (const done of await Promise.all([{runs}])) text(done.output);")


def _code_mode_steps(task: Task) -> list[list[Call]]:
    return [
        [_code_mode_call(_write_command(task))],
        [_code_mode_call(task.command)],
        [_code_mode_call(f"cat {task.note}")],
        [_code_mode_call(*(f"cat {task.secret_file(number)}" for number in range(3)))],
    ]


_PLACEHOLDER = "DeferredToolPlaceholder"
QUERY = "tool calling between vendors"
_CLAUDE = ("-p", PROMPT, "--dangerously-skip-permissions")
_WEBSOCKET = ("-c", "model_providers.toolwire.supports_websockets=true")
_CODEX_UNSANDBOXED = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
_CODEX = ("exec", *_CODEX_UNSANDBOXED, PROMPT)
_CODEX_RESUME = ("exec", "resume", "--last", *_CODEX_UNSANDBOXED, FOLLOW_UP)
_MCP_SERVER = (
    "-c",
    f"mcp_servers.clerk.command={json.dumps(sys.executable)}",
    "-c",
    f"mcp_servers.clerk.args={json.dumps([str(Path(__file__).with_name('file_server.py'))])}",
)
# More than Codex's own prompt, and less than that with the output of one long command.
_COMPACT_LIMIT = ("-c", "model_auto_compact_token_limit=11500")
# Codex leaves compaction to a provider of this name, and does it itself for others.
_REMOTE_COMPACTION = ("-c", 'model_providers.toolwire.name="OpenAI"')
_CLAUDE_SEQUEL = tuple([("--continue", "-p", text, *_CLAUDE[2:]) for text in ("/compact", FOLLOW_UP)])
_YOLO = ("-p", PROMPT, "--yolo")
_OPENCODE = ("run", PROMPT)

RUNS = [
    AgentRun(
        agent="claude",
        protocol="anthropic",
        model="toolwire",
        arguments=_CLAUDE,
        steps=_claude_steps,
        private_tool=_PLACEHOLDER,
    ),
    AgentRun(
        agent="claude",
        protocol="anthropic",
        model="toolwire",
        arguments=_CLAUDE,
        steps=_deferred_tool_steps,
        note="deferred tool",
        private_tool=_PLACEHOLDER,
    ),
    AgentRun(
        agent="claude",
        protocol="anthropic",
        model="toolwire",
        arguments=_CLAUDE,
        steps=_web_search_steps,
        note="web search",
        expected_result=f'Web search results for query: "{QUERY}"',
        unsupported_upstreams=("openai-chat", "ollama"),  # its search request declares no other tool
    ),
    AgentRun(agent="claude", protocol="anthropic", model="claude-sonnet-4-5", arguments=_CLAUDE, steps=_claude_steps),
    AgentRun(
        agent="claude",
        protocol="anthropic",
        model="claude-sonnet-4-5",
        arguments=_CLAUDE,
        steps=_web_search_steps,
        note="web search",
        expected_result=f'Web search results for query: "{QUERY}"',
        unsupported_upstreams=("openai-chat", "ollama"),
    ),
    AgentRun(agent="codex", protocol="openai-responses", model="toolwire", arguments=_CODEX, steps=_codex_steps),
    AgentRun(agent="codex", protocol="openai-responses", model="gpt-5.5", arguments=_CODEX, steps=_patch_steps),
    AgentRun(agent="codex", protocol="openai-responses", model="gpt-6.1-sol", arguments=_CODEX, steps=_code_mode_steps),
    AgentRun(
        agent="codex",
        protocol="openai-responses",
        model="toolwire",
        arguments=(*_MCP_SERVER, *_CODEX),
        steps=_mcp_steps,
        note="MCP",
    ),
    AgentRun(
        agent="codex",
        protocol="openai-responses",
        model="gpt-5.5",
        arguments=(*_MCP_SERVER, *_CODEX),
        steps=_mcp_search_steps,
        note="MCP behind a search",
    ),
    AgentRun(
        agent="claude",
        protocol="anthropic",
        model="toolwire",
        arguments=_CLAUDE,
        steps=_claude_steps,
        note="compaction",
        sequel=_CLAUDE_SEQUEL,
        compacts=True,
        private_tool=_PLACEHOLDER,
    ),
    *(
        AgentRun(
            agent="codex",
            protocol="openai-responses",
            model="toolwire",
            arguments=(*_COMPACT_LIMIT, *options, *_CODEX),
            steps=_compaction_steps,
            note=note,
            websocket="accepted" if options[-2:] == _WEBSOCKET else "unused",
            compacts=True,
        )
        for note, options in (
            ("compaction", ()),
            ("compaction by the API", _REMOTE_COMPACTION),
            ("compaction by the API, websocket", (*_REMOTE_COMPACTION, *_WEBSOCKET)),
        )
    ),
    AgentRun(
        agent="codex",
        protocol="openai-responses",
        model="toolwire",
        arguments=(*_WEBSOCKET, *_CODEX),
        steps=_codex_steps,
        note="websocket",
        websocket="accepted",
    ),
    AgentRun(
        agent="codex",
        protocol="openai-responses",
        model="toolwire",
        arguments=(*_WEBSOCKET, *_CODEX),
        steps=_codex_steps,
        note="websocket refused",
        websocket="refused",
    ),
    AgentRun(
        agent="codex",
        protocol="openai-responses",
        model="toolwire",
        arguments=_CODEX,
        steps=_codex_steps,
        note="gateway restarted, resumed",
        restarts_gateway=True,
        resume_arguments=_CODEX_RESUME,
    ),
    AgentRun(
        agent="codex",
        protocol="openai-responses",
        model="toolwire",
        arguments=(*_WEBSOCKET, *_CODEX),
        steps=_restart_steps,
        note="websocket, gateway restarted meanwhile",
        websocket="accepted",
        restarts_gateway=True,
    ),
    AgentRun(
        agent="codex",
        protocol="openai-responses",
        model="toolwire",
        arguments=(*_WEBSOCKET, *_CODEX),
        steps=_codex_steps,
        note="websocket, gateway restarted, resumed",
        websocket="accepted",
        restarts_gateway=True,
        resume_arguments=(*_WEBSOCKET, *_CODEX_RESUME),
    ),
    AgentRun(agent="gemini", protocol="gemini", model=None, arguments=_YOLO, steps=_gemini_steps),
    AgentRun(agent="gemini", protocol="gemini", model="toolwire", arguments=_YOLO, steps=_gemini_steps),
    *(
        AgentRun(
            agent="opencode",
            protocol=protocol,
            model="toolwire",
            arguments=_OPENCODE,
            steps=_opencode_steps,
            note=protocol,
        )
        for protocol in ("anthropic", "openai-chat", "openai-responses", "gemini")
    ),
    *(
        AgentRun(agent="qwen", protocol=protocol, model="toolwire", arguments=_YOLO, steps=_gemini_steps, note=protocol)
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
            failures=failures,
        )
        for agent, protocol, arguments, steps, failures in (
            ("claude", "anthropic", _CLAUDE, _claude_steps, 3),
            ("codex", "openai-responses", _CODEX, _codex_steps, 3),
            ("gemini", "gemini", _YOLO, _gemini_steps, 3),
            ("opencode", "openai-chat", _OPENCODE, _opencode_steps, 3),
            ("qwen", "openai-chat", _YOLO, _gemini_steps, 2),  # it does not retry a stream that is cut off
        )
    ),
]

TEXT_CALL_DIALECTS = ("qwen3_coder", "dsml", "kimi_k2", "json_bare", "harmony", "hermes")
"""The dialects that are reported most often, in this order."""
TEXT_CALL_UPSTREAMS = ("openai-chat", "ollama")

TEXT_CALL_RUNS = [
    AgentRun(agent=agent, protocol=protocol, model="toolwire", arguments=arguments, steps=steps, dialect=dialect)
    for agent, protocol, arguments, steps in (
        ("claude", "anthropic", _CLAUDE, _claude_steps),
        ("codex", "openai-responses", _CODEX, _codex_steps),
        ("gemini", "gemini", _YOLO, _gemini_steps),
        ("opencode", "openai-chat", _OPENCODE, _opencode_steps),
        ("qwen", "openai-chat", _YOLO, _gemini_steps),
    )
    for dialect in TEXT_CALL_DIALECTS
]
