"""The wording of messages that new users met: each is produced by the command or the function that users call."""

import base64
import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.json import encode as json_encode

import toolwire
from tests.support.deadlines import DEADLINE, wait_until
from tests.support.gateway.in_process import run_async, run_gateway
from tests.support.mcp.scripted_server import PNG
from tests.support.runtime.cli_process import (
    calls_turn,
    run_toolwire,
    shell_call,
    start_toolwire,
    text_reply,
    write_script,
)
from toolwire.cli.output.run_output import format_usage
from toolwire.gateway.emulation.programs import PROGRAM_DIALECTS

REQUEST = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
TRANSLATE = ("translate", "--from", "anthropic", "--to", "gemini")
SERVERS = '[mcp.servers.math]\ncommand = "true"\n[mcp.servers.broken]\ncommand = "nonexistent-prog"\n'
TWO_PROVIDERS = "".join(
    f'[providers.{name}]\nprotocol = "openai-chat"\nbase_url = "http://127.0.0.1:1"\n' for name in ("one", "two")
)


def command(*arguments: str, stdin: str = "", config: str = "") -> Callable[[Path], str]:
    """Return a function that runs the command, and returns all of its output."""

    def run(folder: Path) -> str:
        if config:
            (folder / "toolwire.toml").write_text(config, encoding="utf-8")
        done = run_toolwire(folder, *arguments, stdin=stdin)
        return done.out + done.err

    return run


def get(path: str) -> Callable[[Path], str]:
    """Return a function that sends a request to a gateway, and returns the body of its response."""

    def run(_: Path) -> str:
        bodies: list[str] = []

        async def send() -> None:
            async with run_gateway(TWO_PROVIDERS) as gateway:
                bodies.append((await gateway.get(path))[1].decode())

        run_async(send())
        return bodies[0]

    return run


def ask_with(name: str, arguments: dict[str, str]) -> Callable[[Path], str]:
    """Return a function that runs an agent whose model makes one call."""

    def run(folder: Path) -> str:
        write_script(folder, calls_turn((name, arguments)), text_reply("Done."))
        return run_toolwire(folder, "ask", "go", "--allow", "google_web_search").err

    return run


def cancel_run(folder: Path) -> str:
    write_script(folder, calls_turn(shell_call("touch begun; sleep 1000")), text_reply("Done."))
    process = start_toolwire(folder, "ask", "wait", "--allow", "run_shell_command")
    wait_until((folder / "begun").exists)
    process.send_signal(signal.SIGINT)
    return process.communicate(timeout=DEADLINE)[1]


def show_pictures(folder: Path) -> str:
    (folder / "a.png").write_bytes(base64.b64decode(PNG))
    write_script(folder, calls_turn(("read_file", {"absolute_path": "a.png"})), text_reply("Done."))
    run_toolwire(folder, "ask", "go")
    return run_toolwire(folder, "runs", "show", "last", "--pictures", "seen").out


def losses_of(member: dict[str, object], target: str = "gemini") -> Callable[[Path], str]:
    def run(_: Path) -> str:
        translation = toolwire.translate(json.dumps(REQUEST | member), "anthropic", target)
        return "\n".join(map(str, translation.losses))

    return run


CACHE_MARK = {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]}
MESSAGES: list[tuple[Callable[[Path], str], str]] = [
    (command(*TRANSLATE, stdin="{a"), "invalid JSON at byte 1: "),
    (command(*TRANSLATE, stdin="{"), "invalid JSON: unexpected end of input"),
    (get("/v1/nothing"), "not found: /v1/nothing"),
    (get("/v1/chat/completions"), "method not allowed: use POST"),
    (ask_with("write_file", {"file_path": "a", "content": "b"}), "denied: no approver available"),
    (cancel_run, "cancelled (Ctrl-C)"),
    (cancel_run, "stopping... press Ctrl-C again to kill"),
    (lambda _: format_usage(None), "token usage not reported"),
    (command("check", "--protocol", "openai"), "unknown protocol 'openai'"),
    (
        command("ask", "x", "--allow", "write_file("),
        "invalid rule 'write_file(': expected TOOL or TOOL(ARG=PATTERN, ...)",
    ),
    (command("mcp", "call", "x", "y"), "unknown MCP server 'x': none are configured"),
    (command("mcp", "login", "math", config=SERVERS), "'math' is a local (stdio) server; login needs one with a url"),
    (
        command("ask", "hi", config=SERVERS),
        "MCP server 'broken' failed to start: command not found: nonexistent-prog",
    ),
    (
        ask_with("google_web_search", {"query": "x"}),
        "web search is not configured: set [search] url in toolwire.toml",
    ),
    (ask_with("read_file", {"absolute_path": "nope.txt"}), "file not found: nope.txt"),
    (show_pictures, "1 picture: seen/index.html"),
    (
        command("ask", "hi", config=TWO_PROVIDERS),
        "no model given: use one/MODEL, two/MODEL; set a default with --model, TOOLWIRE_MODEL or default_model",
    ),
    (command("ask", "hi"), "using the built-in simulator (run `toolwire doctor` for details)"),
    (command("doctor"), "providers: none configured; using the built-in simulator"),
    (command("doctor", config=TWO_PROVIDERS), "check base_url and your network connection"),
    (command("protocols"), "Features carried over (mapped or approximated) / features of the source"),
    (
        losses_of({"messages": [CACHE_MARK], "tools": []}, "gemini-interactions"),
        "the target caches automatically",
    ),
    (losses_of({"inference_geo": "us"}), "no equivalent in the target protocol"),
    (
        lambda _: str(json_encode(PROGRAM_DIALECTS["openai-responses"].encode_program_result("call_1", None))),
        "the program timed out waiting to be resumed",
    ),
    (command("ask", "--help"), "Run an agent with tools on PROMPT in this folder."),
    (command("mcp", "call", "--help"), "Call a tool directly, without approval."),
    (command("journal", "replay", "--help"), "Include fields that always differ: ids, times, signatures."),
]


@pytest.mark.parametrize(("produce", "message"), MESSAGES, ids=[message for _, message in MESSAGES])
def test_message(produce: Callable[[Path], str], message: str, tmp_path: Path) -> None:
    shown = " ".join(produce(tmp_path).split())
    assert " ".join(message.split()) in shown
