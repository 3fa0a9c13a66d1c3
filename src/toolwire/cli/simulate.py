"""`toolwire simulate`: serve a simulated model for tests, without a key or a network."""

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolwire.cli.inputs import BadInput, NumberOption, report_bad_input
from toolwire.cli.output.terminal import end_interrupted_line
from toolwire.cli.values import ProtocolName, complete_hosts

if TYPE_CHECKING:
    from toolwire.codec.hosts.profile import AddressFacts, HostProfile
    from toolwire.upstream.simulator.script import Script

ALL = "all"
_GREETING = {"messages": [{"role": "user", "content": "Hi"}]}
# The path of each protocol, and a minimal request.
_EXAMPLE_REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "anthropic": ("/v1/messages", {"model": "claude-opus-5-5", "max_tokens": 100, **_GREETING}),
    "openai-chat": ("/v1/chat/completions", {"model": "gpt-6-astra", **_GREETING}),
    "openai-responses": ("/v1/responses", {"model": "gpt-6-astra", "input": "Hi"}),
    "gemini": ("/v1beta/models/gemini-3-pro:generateContent", {"contents": [{"parts": [{"text": "Hi"}]}]}),
    "gemini-interactions": ("/v1beta/interactions", {"model": "gemini-3-pro", "input": "Hi"}),
    "ollama": ("/api/chat", {"model": "qwen3:latest", "stream": False, **_GREETING}),
    "openrouter": ("/api/v1/chat/completions", {"model": "openai/gpt-6-astra", **_GREETING}),
}


@click.command("simulate", short_help="Serve a simulated model.")
@click.argument("name", metavar="PROTOCOL", type=ProtocolName(ALL))
@click.option(
    "--port", cls=NumberOption, type=click.IntRange(0, 65535), required=True, metavar="N", help="0 picks a free port."
)
@click.option("--host", default="127.0.0.1", metavar="HOST", help="Address to listen on. Default: 127.0.0.1.")
@click.option("--script", type=click.Path(path_type=Path), metavar="FILE", help="Scripted turns, in TOML or JSON.")
@click.option(
    "--pace",
    cls=NumberOption,
    type=click.FloatRange(min=0),
    default=0,
    metavar="SECONDS",
    help="Delay between stream chunks.",
)
@click.option(
    "--profile",
    metavar="HOST",
    shell_complete=complete_hosts,
    help="Refuse what this host refuses, in its wording: deepseek, mistral, ...",
)
@click.option("--require-key", is_flag=True, help="Reject requests without a key. Any key is accepted.")
@click.option(
    "--account", default="", metavar="NAME", help="Refuse signatures and encrypted reasoning of other accounts."
)
@click.option("--dialect", metavar="NAME", help="Write calls and thinking as text, in this dialect.")
def command(
    *,
    name: str,
    port: int,
    host: str,
    script: Path | None,
    pace: float,
    profile: str | None,
    require_key: bool,
    account: str,
    dialect: str | None,
) -> None:
    """Serve a simulated model that speaks PROTOCOL, or all protocols at once.

    The model calls a tool when the last user message names it, answers from tool results, streams, and rejects what
    the provider would reject. It runs until Ctrl-C.

    With --profile, it is as strict as that host: roles, content, fields, limits, efforts, tools and their ids, with the
    host's status, wording and answers. `toolwire hosts` lists them.

    \b
    Examples:
      toolwire simulate anthropic --port 9101
      toolwire simulate all --port 9101 --script turns.toml
      toolwire simulate openai-chat --port 9101 --profile deepseek
    """
    import uvicorn

    from toolwire.upstream.simulator.app import Simulator

    profiles = () if profile is None else _find_profiles(profile, name)
    names = tuple(found.protocol for found in profiles) or (() if name == ALL else (name,))
    turns = _load_script(script)
    try:
        app = Simulator(
            names,
            script=turns,
            pace=pace,
            require_key=require_key,
            profiles=profiles,
            dialect=dialect,
            account=account,
        )
    except ValueError as error:
        raise BadInput(f"--dialect: {error}") from None
    with report_bad_input():
        from toolwire.gateway.providers.discovery import open_listener

        listener = open_listener(host, port)
    base_url = f"http://{host}:{listener.getsockname()[1]}"
    click.echo(f"{name} at {base_url}")
    addresses = {found.protocol: found.address for found in profiles}
    for protocol in names or _EXAMPLE_REQUESTS:
        path, body = _example_request(protocol, addresses.get(protocol))
        click.echo(f"curl {base_url}{path} -H 'content-type: application/json' -d '{json.dumps(body)}'")
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False, timeout_graceful_shutdown=2))
    # uvicorn may raise the signal that stopped it again, as KeyboardInterrupt.
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listener])
    end_interrupted_line()
    click.echo("stopped", err=True)


def _example_request(protocol: str, address: "AddressFacts | None") -> tuple[str, dict[str, Any]]:
    """Return the path of a protocol, or of the platform that serves it, and a minimal request."""
    path, body = _EXAMPLE_REQUESTS[protocol]
    if address is None or not address.path:
        return path, body
    model = body.get("model", "gemini-3-pro")
    version = {"anthropic_version": address.version} if address.version else {}
    moved = {name: value for name, value in body.items() if name not in address.moved}
    return address.path.format(project="my-project", region="global", model=model), version | moved


def _find_profiles(host: str, protocol: str) -> "tuple[HostProfile, ...]":
    """Return the profiles of a host for a protocol or all, or raise `BadInput` if there are none."""
    from toolwire.codec.hosts.registry import HOST_NAMES, host_profiles
    from toolwire.codec.suggestions import unknown_name
    from toolwire.upstream.simulator.hosts.host import CHECKED_PROTOCOLS

    if host not in HOST_NAMES:
        raise BadInput(unknown_name("host", host, HOST_NAMES))
    profiles = {name: found for name, found in host_profiles(host).items() if name in CHECKED_PROTOCOLS}
    if protocol not in (ALL, *profiles):
        raise BadInput(f"no profile of {host} for {protocol}; it has one for {', '.join(profiles)}")
    return tuple(profiles.values()) if protocol == ALL else (profiles[protocol],)


def _load_script(path: Path | None) -> "Script | None":
    """Load the script, or raise `BadInput` if it is invalid."""
    from toolwire.upstream.simulator.script import ScriptError, load_script

    try:
        return None if path is None else load_script(path)
    except ScriptError as error:
        raise BadInput(str(error)) from None
