"""`toolwire mcp`: servers of the configuration, their tools, and toolwire as a server itself."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .arguments import BadInput, needing, refusing_bad_input
from .serve import USUAL

if TYPE_CHECKING:
    from toolwire.gateway.config import Config
    from toolwire.journal.secrets import Redactor
    from toolwire.runtime.mcp.carrying import Carrying
    from toolwire.runtime.mcp.serving import Served
    from toolwire.runtime.mcp.settings import Server
    from toolwire.runtime.mcp.toolset import McpToolset
    from toolwire.runtime.toolset import Output, Tool

_config = click.option(
    "--config", "path", type=click.Path(path_type=Path), metavar="FILE", help=f"Default: {USUAL}, if there."
)


def _rules(command: Callable[..., None]) -> Callable[..., None]:
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
@_config
@click.option("--tools/--no-tools", "tools", default=True, help="List their tools too.")
def list_servers(path: Path | None, *, tools: bool) -> None:
    """Connect to every server, and say what it has."""

    async def work(toolsets: "list[McpToolset]") -> bool:
        await asyncio.gather(*(one.open() for one in toolsets))
        for one in toolsets:
            await _told(one, tools=tools)
        return all(one.state == "up" for one in toolsets)

    with refusing_bad_input(), needing("mcp"):
        config = _read(path)
        for name, server in config.mcp.servers.items():
            if not server.enabled:
                click.echo(f"{name}: switched off")
        if not config.mcp.servers:
            click.echo("there are no MCP servers in the configuration: [mcp.servers.NAME]")
        sys.exit(0 if asyncio.run(_with(config, work)) else 1)


async def _told(toolset: "McpToolset", *, tools: bool) -> None:
    if toolset.state == "up":
        listed = await toolset.tools()
        click.echo(f"{toolset.name}: up, {await toolset.version()}, {len(listed)} tools")
        for tool in listed if tools else ():
            click.echo(f"  {tool.name}  {' '.join(tool.description.split())[:100]}")
    else:
        click.echo(f"{toolset.name}: down: {toolset.why}")
    for text in toolset.warned():
        click.echo(text, err=True)


@command.command("call")
@click.argument("server")
@click.argument("tool")
@click.argument("arguments", default="{}", metavar="JSON")
@_config
def call(server: str, tool: str, arguments: str, path: Path | None) -> None:
    """Call one tool of one server, which whoever types it thereby allows. Its result is written to stdout."""

    async def work(toolsets: "list[McpToolset]") -> "Output":
        return await _called(toolsets[0], tool, arguments)

    with refusing_bad_input(), needing("mcp"):
        config = _read(path)
        known = [name for name, one in config.mcp.servers.items() if one.enabled]
        if server not in known:
            raise BadInput(f"there is no MCP server {server!r}: choose from {', '.join(known) or 'none'}")
        output = asyncio.run(_with(config, work, only=server))
    _write(output)
    sys.exit(1 if output.is_error else 0)


async def _called(toolset: "McpToolset", tool: str, arguments: str) -> "Output":
    from toolwire.runtime.approval import Consenting
    from toolwire.runtime.mcp.carrying import Carrying
    from toolwire.runtime.policy import Policy
    from toolwire.runtime.toolbox import Toolbox

    await toolset.open()
    if toolset.state != "up":
        raise BadInput(f"{toolset.name} is down: {toolset.why}")
    name = tool if toolset.names.origin(tool) else toolset.names.name(toolset.name, tool)
    carry = Carrying(Toolbox([toolset]), Policy())
    return await carry(name, arguments, person=Consenting(), progress=lambda text: click.echo(text, err=True))


def _write(output: "Output") -> None:
    import msgspec

    from toolwire.canonical.content import Text

    for part in output.content:
        click.echo(part.text if isinstance(part, Text) else msgspec.json.encode(part).decode())


@command.command("serve")
@_config
@click.option("--http", metavar="HOST:PORT", help="Serve streamable HTTP at /mcp; else stdin and stdout are used.")
@click.option(
    "--workspace",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=Path(),
    help="Where the built-in tools work. Default: the current folder.",
)
@click.option("--servers-only", is_flag=True, help="Leave the built-in tools out.")
@_rules
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
    with refusing_bad_input(), needing("mcp"):
        from toolwire.runtime.policy import Policy

        config = _read(path)
        said = config.policy
        policy = Policy(allow=(*said.allow, *allow), ask=(*said.ask, *ask), deny=(*said.deny, *deny))
        host, port = _address(http) if http is not None else ("", 0)
        tools = [] if servers_only else _built_in(workspace, config)
        asyncio.run(_serving(config, policy, tools, (host, port) if http is not None else None))


def _built_in(workspace: Path, config: "Config") -> "list[Tool]":
    with needing("runtime"):
        from .job import built_in_tools

        return built_in_tools(workspace, config)


async def _serving(config: "Config", policy: Any, tools: "list[Tool]", address: tuple[str, int] | None) -> None:
    from toolwire.runtime.mcp.carrying import Carrying
    from toolwire.runtime.mcp.serving import Served, serve_stdio
    from toolwire.runtime.toolbox import Toolbox

    toolsets = _toolsets(config, taken=[tool.name for tool in tools])
    await asyncio.gather(*(one.open() for one in toolsets))
    toolbox = Toolbox([*tools, *toolsets])

    async def offered() -> "list[Tool]":
        catalog = await toolbox.catalog()
        for text in toolbox.warned():
            click.echo(text, err=True)
        return list(catalog.tools.values())

    carrying = Carrying(toolbox, policy, redactor=_redactor(config))
    served = Served(offered, carrying)
    tasks = set[asyncio.Task[None]]()

    def changed() -> None:
        task = asyncio.get_running_loop().create_task(served.changed())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    for one in toolsets:
        one.on_change = changed
    try:
        with _kept(config, carrying):
            await (serve_stdio(served) if address is None else _serve_http(served, config, *address))
    finally:
        served.close()
        await toolbox.close()


def _redactor(config: "Config") -> "Redactor":
    from toolwire.gateway.providing import configured
    from toolwire.gateway.recording import secrets_of
    from toolwire.journal.secrets import Redactor

    return Redactor(secrets_of(config, configured(config).values()))


@contextlib.contextmanager
def _kept(config: "Config", carrying: "Carrying") -> Iterator[None]:
    """What was called is kept as a run, beside those of agents."""
    import msgspec

    from toolwire.agent import About
    from toolwire.runtime.events import RunEnded

    from .job import runs_at

    runs = runs_at(None, config)
    about = About(agent="mcp serve", model="", messages=())
    carrying.steps = held = runs.begin(carrying.run, msgspec.json.encode(about))
    try:
        yield
    finally:
        ended = RunEnded(run=carrying.run, stopped="finished", calls=carrying.calls)
        held.end(msgspec.json.encode(ended))


async def _serve_http(served: "Served", config: "Config", host: str, port: int) -> None:
    import uvicorn

    from toolwire.gateway.auth import Gate, is_loopback
    from toolwire.gateway.providing import listening
    from toolwire.runtime.mcp.serving import http_app

    server = config.server
    if not server.keys and not is_loopback(host):
        raise BadInput(f"{host} is not this machine alone: server.keys must have a key")
    gate = Gate(server.keys, server.hosts, server.origins)

    def refuse(headers: dict[bytes, bytes], query: bytes) -> int | None:
        if gate.stranger(headers) is not None:
            return 403
        # Not from the address, which others write down.
        return 401 if gate.admit(headers, b"") is None else None

    listener = listening(host, port)
    name = f"[{host}]" if ":" in host else host
    click.echo(f"http://{name}:{listener.getsockname()[1]}/mcp", err=True)
    await uvicorn.Server(uvicorn.Config(http_app(served, refuse), log_level="warning")).serve(sockets=[listener])


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise BadInput(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


@command.command("login")
@click.argument("server")
@_config
def login(server: str, path: Path | None) -> None:
    """Sign in to a server that wants it, in a browser."""

    async def browse(url: str) -> None:
        import webbrowser

        click.echo(f"Sign in at {url}", err=True)
        webbrowser.open(url)

    async def work(toolsets: "list[McpToolset]") -> str:
        await toolsets[0].open()
        return toolsets[0].why

    with refusing_bad_input(), needing("mcp"):
        config = _read(path)
        if (settings := config.mcp.servers.get(server)) is None or settings.url is None:
            raise BadInput(f"there is no MCP server {server!r} with an address")
        if why := asyncio.run(_with(config, work, only=server, browse=browse)):
            raise BadInput(f"{server}: {why}")
        click.echo(f"{server}: signed in")


@command.command("logout")
@click.argument("server")
@_config
def logout(server: str, path: Path | None) -> None:
    """Forget the tokens of a server."""
    with refusing_bad_input(), needing("mcp"):
        from toolwire.runtime.mcp.oauth import TokenFile

        settings = _read(path).mcp.servers.get(server)
        held = settings is not None and TokenFile(_folder(), server, settings.url or "").forget()
        click.echo(f"{server}: {'forgotten' if held else 'there was nothing'}")


@command.command("import")
@click.argument("file", type=click.File("rb"))
def import_servers(file: Any) -> None:
    """Turn the mcpServers JSON of another tool into sections for toolwire.toml, on stdout."""
    with refusing_bad_input():
        from toolwire.runtime.mcp.settings import as_toml, imported

        servers, left = imported(file.read())
        click.echo(as_toml(servers), nl=False)
        for text in left:
            click.echo(text, err=True)


def _read(path: Path | None) -> "Config":
    from toolwire.gateway.config import Config, read_config

    if path is None:
        return read_config(USUAL) if USUAL.exists() else Config()
    return read_config(path)


def _folder() -> Path:
    import os

    from toolwire.gateway.seals import state_folder

    return state_folder(os.environ) / "mcp"


def _toolsets(config: "Config", taken: list[str], only: str | None = None, browse: Any = None) -> "list[McpToolset]":
    from toolwire.runtime.mcp.toolset import toolsets

    servers: dict[str, Server] = config.mcp.servers
    wanted = {name: server for name, server in servers.items() if only in (None, name)}
    return toolsets(wanted, taken=taken, folder=_folder(), browse=browse)


async def _with(config: "Config", work: Callable[..., Any], only: str | None = None, browse: Any = None) -> Any:
    async with _opened(_toolsets(config, [], only, browse)) as toolsets:
        return await work(toolsets)


@contextlib.asynccontextmanager
async def _opened(toolsets: "list[McpToolset]") -> "AsyncGenerator[list[McpToolset]]":
    try:
        yield toolsets
    finally:
        await asyncio.gather(*(one.close() for one in toolsets))
