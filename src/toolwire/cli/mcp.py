"""`toolwire mcp`: servers of the configuration, their tools, and toolwire as a server itself."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolwire.cli.inputs import DEFAULT_CONFIG, BadInput, report_bad_input, require_extra

if TYPE_CHECKING:
    from toolwire.gateway.config import Config
    from toolwire.journal.redaction import Redactor
    from toolwire.runtime.mcp.config import McpServerConfig
    from toolwire.runtime.mcp.server import ToolServer
    from toolwire.runtime.mcp.tool_runner import ToolRunner
    from toolwire.runtime.mcp.toolset import McpToolset
    from toolwire.runtime.tool import Tool, ToolOutput

_config_option = click.option(
    "--config", "path", type=click.Path(path_type=Path), metavar="FILE", help=f"Default: {DEFAULT_CONFIG}, if there."
)


def _rule_options(command: Callable[..., None]) -> Callable[..., None]:
    for name, text in (("deny", "are never run"), ("ask", "are asked for"), ("allow", "are run without asking")):
        option = click.option(f"--{name}", multiple=True, metavar="RULE", help=f"Calls that {text}.")
        command = option(command)
    return command


@click.group("mcp", short_help="MCP servers: list them, call them, and be one.")
def command() -> None:
    """MCP servers come from [mcp.servers.NAME] of toolwire.toml, and from nowhere else."""
    import logging

    # What the SDK logs is told in words of ours where it matters.
    logging.getLogger("mcp").addHandler(logging.NullHandler())


@command.command("list")
@_config_option
@click.option("--tools/--no-tools", "tools", default=True, help="List their tools too.")
def list_servers(path: Path | None, *, tools: bool) -> None:
    """Connect to every server, and say what it has."""

    async def work(toolsets: "list[McpToolset]") -> bool:
        await asyncio.gather(*(one.open() for one in toolsets))
        for one in toolsets:
            await _print_server(one, tools=tools)
        return all(one.state == "up" for one in toolsets)

    with report_bad_input(), require_extra("mcp"):
        config = _load_config(path)
        for name, server in config.mcp.servers.items():
            if not server.enabled:
                click.echo(f"{name}: switched off")
        if not config.mcp.servers:
            click.echo("there are no MCP servers in the configuration: [mcp.servers.NAME]")
        sys.exit(0 if asyncio.run(_with_toolsets(config, work)) else 1)


async def _print_server(toolset: "McpToolset", *, tools: bool) -> None:
    if toolset.state == "up":
        listed = await toolset.tools()
        click.echo(f"{toolset.name}: up, {await toolset.protocol_version()}, {len(listed)} tools")
        for tool in listed if tools else ():
            click.echo(f"  {tool.name}  {' '.join(tool.description.split())[:100]}")
    else:
        click.echo(f"{toolset.name}: down: {toolset.error}")
    for text in toolset.take_warnings():
        click.echo(text, err=True)


@command.command("call")
@click.argument("server")
@click.argument("tool")
@click.argument("arguments", default="{}", metavar="JSON")
@_config_option
def call(server: str, tool: str, arguments: str, path: Path | None) -> None:
    """Call one tool of one server, which whoever types it thereby allows. Its result is written to stdout."""

    async def work(toolsets: "list[McpToolset]") -> "ToolOutput":
        return await _call_tool(toolsets[0], tool, arguments)

    with report_bad_input(), require_extra("mcp"):
        config = _load_config(path)
        known = [name for name, one in config.mcp.servers.items() if one.enabled]
        if server not in known:
            raise BadInput(f"there is no MCP server {server!r}: choose from {', '.join(known) or 'none'}")
        output = asyncio.run(_with_toolsets(config, work, server_name=server))
    _print_output(output)
    sys.exit(1 if output.is_error else 0)


async def _call_tool(toolset: "McpToolset", tool: str, arguments: str) -> "ToolOutput":
    from toolwire.runtime.calls.approval import AutoApprover
    from toolwire.runtime.mcp.tool_runner import ToolRunner
    from toolwire.runtime.policy import Policy
    from toolwire.runtime.toolbox import Toolbox

    await toolset.open()
    if toolset.state != "up":
        raise BadInput(f"{toolset.name} is down: {toolset.error}")
    name = tool if toolset.tool_names.origin(tool) else toolset.tool_names.name_for(toolset.name, tool)
    carry = ToolRunner(Toolbox([toolset]), Policy())
    return await carry(name, arguments, approver=AutoApprover(), on_progress=lambda text: click.echo(text, err=True))


def _print_output(output: "ToolOutput") -> None:
    import msgspec

    from toolwire.canonical.content import Text

    for part in output.content:
        click.echo(part.text if isinstance(part, Text) else msgspec.json.encode(part).decode())


@command.command("serve")
@_config_option
@click.option("--http", metavar="HOST:PORT", help="Serve streamable HTTP at /mcp; else stdin and stdout are used.")
@click.option(
    "--workspace",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=Path(),
    help="Where the built-in tools work. Default: the current folder.",
)
@click.option("--servers-only", is_flag=True, help="Leave the built-in tools out.")
@_rule_options
def serve(
    path: Path | None,
    http: str | None,
    workspace: Path,
    *,
    servers_only: bool,
    allow: tuple[str, ...],
    ask: tuple[str, ...],
    deny: tuple[str, ...],
) -> None:
    """Be an MCP server: the built-in tools and those of all configured servers, under these rules. What has to be asked
    is asked through the client, and denied where the client can't ask."""
    with report_bad_input(), require_extra("mcp"):
        from toolwire.runtime.policy import Policy

        config = _load_config(path)
        said = config.policy
        policy = Policy(allow=(*said.allow, *allow), ask=(*said.ask, *ask), deny=(*said.deny, *deny))
        host, port = _parse_address(http) if http is not None else ("", 0)
        tools = [] if servers_only else _builtin_tools(workspace, config)
        asyncio.run(_run_server(config, policy, tools, (host, port) if http is not None else None))


def _builtin_tools(workspace: Path, config: "Config") -> "list[Tool]":
    with require_extra("runtime"):
        from toolwire.cli.agent_options import built_in_tools

        return built_in_tools(workspace, config)


async def _run_server(config: "Config", policy: Any, tools: "list[Tool]", address: tuple[str, int] | None) -> None:
    from toolwire.runtime.mcp.server import ToolServer, serve_stdio
    from toolwire.runtime.mcp.tool_runner import ToolRunner
    from toolwire.runtime.toolbox import Toolbox

    toolsets = _build_toolsets(config, reserved_names=[tool.name for tool in tools])
    await asyncio.gather(*(one.open() for one in toolsets))
    toolbox = Toolbox([*tools, *toolsets])

    async def offered() -> "list[Tool]":
        catalog = await toolbox.catalog()
        for text in toolbox.take_warnings():
            click.echo(text, err=True)
        return list(catalog.tools.values())

    carrying = ToolRunner(toolbox, policy, redactor=_build_redactor(config))
    served = ToolServer(offered, carrying)
    tasks = set[asyncio.Task[None]]()

    def changed() -> None:
        task = asyncio.get_running_loop().create_task(served.notify_changed())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    for one in toolsets:
        one.on_change = changed
    try:
        with _record_calls(config, carrying):
            await (serve_stdio(served) if address is None else _serve_http(served, config, *address))
    finally:
        served.close()
        await toolbox.close()


def _build_redactor(config: "Config") -> "Redactor":
    from toolwire.gateway.config import configured_secrets
    from toolwire.gateway.providers.discovery import configured_providers
    from toolwire.journal.redaction import Redactor

    return Redactor(configured_secrets(config, configured_providers(config).values()))


@contextlib.contextmanager
def _record_calls(config: "Config", runner: "ToolRunner") -> Iterator[None]:
    """What was called is kept as a run, beside those of agents."""
    import msgspec

    from toolwire.agent import RunMetadata
    from toolwire.cli.agent_options import open_runs
    from toolwire.runtime.run.events import RunEnded

    runs = open_runs(None, config)
    about = RunMetadata(agent="mcp serve", model="", messages=())
    runner.step_log = held = runs.begin(runner.run_id, msgspec.json.encode(about))
    try:
        yield
    finally:
        ended = RunEnded(run=runner.run_id, stopped="finished", calls=runner.call_count)
        held.end(msgspec.json.encode(ended))


async def _serve_http(tool_server: "ToolServer", config: "Config", host: str, port: int) -> None:
    import uvicorn

    from toolwire.gateway.providers.discovery import open_listener
    from toolwire.gateway.server.auth import Authenticator, is_loopback
    from toolwire.runtime.mcp.server import http_app

    server = config.server
    if not server.keys and not is_loopback(host):
        raise BadInput(f"{host} is not this machine alone: server.keys must have a key")
    gate = Authenticator(server.keys, server.hosts, server.origins)

    def refuse(headers: dict[bytes, bytes], query: bytes) -> int | None:
        if gate.rejection_reason(headers) is not None:
            return 403
        # Not from the address, which others write down.
        return 401 if gate.authenticate(headers, b"") is None else None

    listener = open_listener(host, port)
    name = f"[{host}]" if ":" in host else host
    click.echo(f"http://{name}:{listener.getsockname()[1]}/mcp", err=True)
    await uvicorn.Server(uvicorn.Config(http_app(tool_server, refuse), log_level="warning")).serve(sockets=[listener])


def _parse_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise BadInput(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


@command.command("login")
@click.argument("server")
@_config_option
def login(server: str, path: Path | None) -> None:
    """Sign in to a server that wants it, in a browser."""

    async def browse(url: str) -> None:
        import webbrowser

        click.echo(f"Sign in at {url}", err=True)
        webbrowser.open(url)

    async def work(toolsets: "list[McpToolset]") -> str:
        await toolsets[0].open()
        return toolsets[0].error

    with report_bad_input(), require_extra("mcp"):
        config = _load_config(path)
        if (settings := config.mcp.servers.get(server)) is None or settings.url is None:
            raise BadInput(f"there is no MCP server {server!r} with an address")
        if why := asyncio.run(_with_toolsets(config, work, server_name=server, browse=browse)):
            raise BadInput(f"{server}: {why}")
        click.echo(f"{server}: signed in")


@command.command("logout")
@click.argument("server")
@_config_option
def logout(server: str, path: Path | None) -> None:
    """Forget the tokens of a server."""
    with report_bad_input(), require_extra("mcp"):
        from toolwire.runtime.mcp.oauth import TokenFile

        settings = _load_config(path).mcp.servers.get(server)
        held = settings is not None and TokenFile(_token_folder(), server, settings.url or "").clear()
        click.echo(f"{server}: {'forgotten' if held else 'there was nothing'}")


@command.command("import")
@click.argument("file", type=click.File("rb"))
def import_servers(file: Any) -> None:
    """Turn the mcpServers JSON of another tool into sections for toolwire.toml, on stdout."""
    with report_bad_input():
        from toolwire.runtime.mcp.config import as_toml, parse_mcp_servers

        servers, left = parse_mcp_servers(file.read())
        click.echo(as_toml(servers), nl=False)
        for text in left:
            click.echo(text, err=True)


def _load_config(path: Path | None) -> "Config":
    from toolwire.gateway.config import Config, read_config

    if path is None:
        return read_config(DEFAULT_CONFIG) if DEFAULT_CONFIG.exists() else Config()
    return read_config(path)


def _token_folder() -> Path:
    import os

    from toolwire.gateway.config import state_directory

    return state_directory(os.environ) / "mcp"


def _build_toolsets(
    config: "Config", reserved_names: list[str], server_name: str | None = None, browse: Any = None
) -> "list[McpToolset]":
    from toolwire.runtime.mcp.toolset import build_toolsets

    servers: dict[str, McpServerConfig] = config.mcp.servers
    wanted = {name: server for name, server in servers.items() if server_name in (None, name)}
    return build_toolsets(wanted, reserved=reserved_names, token_folder=_token_folder(), open_browser=browse)


async def _with_toolsets(
    config: "Config", action: Callable[..., Any], server_name: str | None = None, browse: Any = None
) -> Any:
    async with _toolset_scope(_build_toolsets(config, [], server_name, browse)) as toolsets:
        return await action(toolsets)


@contextlib.asynccontextmanager
async def _toolset_scope(toolsets: "list[McpToolset]") -> "AsyncGenerator[list[McpToolset]]":
    try:
        yield toolsets
    finally:
        await asyncio.gather(*(one.close() for one in toolsets))
