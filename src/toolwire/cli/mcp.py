"""`toolwire mcp`: list and call the configured MCP servers, and serve toolwire's own tools over MCP."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from msgspec import Struct

from toolwire.cli.groups import CommandGroup
from toolwire.cli.inputs import BadInput, config_option, report_bad_input
from toolwire.cli.output.run_output import truncate_line
from toolwire.cli.output.terminal import Column, Style, Table, json_option, print_json, print_line, show_progress
from toolwire.cli.values import complete_mcp_servers
from toolwire.installation import require_extra

if TYPE_CHECKING:
    from toolwire.gateway.config import Config
    from toolwire.journal.redaction import Redactor
    from toolwire.runtime.mcp.config import McpServerConfig
    from toolwire.runtime.mcp.server import ToolServer
    from toolwire.runtime.mcp.tool_runner import ToolRunner
    from toolwire.runtime.mcp.toolset import McpToolset
    from toolwire.runtime.tool import Tool, ToolOutput, ToolSource

_MAX_DESCRIPTION = 100


def _rule_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options --allow, --ask and --deny, which set permission rules, to a command."""
    for name, text in (("deny", "never run"), ("ask", "need approval"), ("allow", "run without approval")):
        option = click.option(f"--{name}", multiple=True, metavar="RULE", help=f"Calls that {text}.")
        command = option(command)
    return command


@click.group("mcp", cls=CommandGroup, short_help="List, call and serve MCP servers.")
def command() -> None:
    """List MCP servers, call their tools, or run an MCP server.

    Servers are configured in the [mcp.servers.NAME] sections of toolwire.toml, and only there.

    \b
    Examples:
      toolwire mcp list
      toolwire mcp call files read_file '{"path": "README.md"}'
    """
    import logging

    # Errors that matter are reported by toolwire itself, not by the SDK's log.
    logging.getLogger("mcp").addHandler(logging.NullHandler())


@command.command("list")
@config_option
@click.option("--tools/--no-tools", "tools", default=True, help="List their tools, too. Default: --tools.")
@json_option()
def list_servers(config_path: Path | None, *, tools: bool, as_json: bool) -> None:
    """Connect to every server and list its tools.

    Exit code 1: a server is not available.

    \b
    Examples:
      toolwire mcp list
      toolwire mcp list --no-tools --config toolwire.toml
    """

    async def describe_servers(toolsets: "list[McpToolset]") -> "list[_ServerReport]":
        """Connect to all servers, and describe them."""
        await asyncio.gather(*(toolset.open() for toolset in toolsets))
        return [await _describe_server(toolset) for toolset in toolsets]

    with report_bad_input(), require_extra("mcp", "MCP"):
        config = _load_config(config_path)
        disabled = [name for name, server in config.mcp.servers.items() if not server.enabled]
        with show_progress("connecting to the MCP servers"):
            reports = asyncio.run(_with_toolsets(config, describe_servers))
    reports = [*(_ServerReport(name, "disabled") for name in disabled), *reports]
    if as_json:
        print_json([_as_json(report, tools=tools) for report in reports])
    elif not reports:
        print_line("no MCP servers are configured: add an [mcp.servers.NAME] section")
    else:
        for report in reports:
            _print_server(report, tools=tools)
    # The error of a server that is down is also among its warnings, and was printed above.
    for text in [text for report in reports for text in report.warnings if not (report.error and report.error in text)]:
        print_line(("warning:", "warning"), f" {text}", indent=2, err=True)
    sys.exit(1 if any(report.state == "down" for report in reports) else 0)


class _ServerReport(Struct):
    """The state of an MCP server, and its tools."""

    name: str
    state: Literal["up", "down", "disabled"]
    version: str | None = None
    """The version of MCP that the server speaks."""
    error: str | None = None
    tools: tuple["Tool", ...] = ()
    warnings: tuple[str, ...] = ()


async def _describe_server(toolset: "McpToolset") -> _ServerReport:
    """Return the report of a server that is up or down."""
    if toolset.state != "up":
        return _ServerReport(toolset.name, "down", error=toolset.error, warnings=tuple(toolset.take_warnings()))
    listed, version = tuple(await toolset.tools()), await toolset.protocol_version()
    return _ServerReport(toolset.name, "up", version, tools=listed, warnings=tuple(toolset.take_warnings()))


def _as_json(report: _ServerReport, *, tools: bool) -> dict[str, Any]:
    """Return the report as JSON data."""
    listed = [{"name": tool.name, "description": tool.description} for tool in report.tools] if tools else []
    return {"name": report.name, "state": report.state, "version": report.version, "error": report.error} | (
        {"tools": listed} if tools else {}
    )


def _print_server(report: _ServerReport, *, tools: bool) -> None:
    """Print the state of a server, and its tools."""
    styles: dict[str, Style] = {"up": "good", "down": "problem", "disabled": "muted"}
    detail = f": {report.error}" if report.error else ""
    if report.state == "up":
        detail = f", {report.version}, {len(report.tools)} tool{'' if len(report.tools) == 1 else 's'}"
    print_line((report.name, "strong"), ": ", (report.state, styles[report.state]), detail, indent=2)
    if tools and report.tools:
        table = Table(Column("  tool"), Column("description", is_flexible=True))
        table.print_rows(
            (("  " + tool.name, "accent"), truncate_line(tool.description, _MAX_DESCRIPTION)) for tool in report.tools
        )


@command.command("call")
@click.argument("server", shell_complete=complete_mcp_servers)
@click.argument("tool")
@click.argument("arguments", default="{}", metavar="[JSON]")
@config_option
def call(server: str, tool: str, arguments: str, config_path: Path | None) -> None:
    """Call a tool directly, without approval.

    TOOL is a tool of SERVER, JSON its arguments; by default, none. The result is written to stdout. Exit code 1: the
    call failed.

    \b
    Examples:
      toolwire mcp call files read_file '{"path": "README.md"}'
    """

    async def call_tool(toolsets: "list[McpToolset]") -> "ToolOutput":
        """Call the requested tool on the only toolset."""
        return await _call_tool(toolsets[0], tool, arguments)

    from toolwire.codec.suggestions import unknown_name

    with report_bad_input(), require_extra("mcp", "MCP"):
        config = _load_config(config_path)
        enabled = [name for name, settings in config.mcp.servers.items() if settings.enabled]
        if server not in enabled:
            raise BadInput(unknown_name("MCP server", server, enabled))
        output = asyncio.run(_with_toolsets(config, call_tool, server_name=server))
    _print_output(output)
    sys.exit(1 if output.is_error else 0)


async def _call_tool(toolset: "McpToolset", tool: str, arguments: str) -> "ToolOutput":
    """Open a toolset and call one of its tools, by its own name or by the name offered to models."""
    from toolwire.runtime.calls.approval import AutoApprover
    from toolwire.runtime.mcp.tool_runner import ToolRunner
    from toolwire.runtime.policy import Policy
    from toolwire.runtime.toolbox import Toolbox

    await toolset.open()
    if toolset.state != "up":
        raise BadInput(f"{toolset.name} is down: {toolset.error}")
    name = tool if toolset.tool_names.origin(tool) else toolset.tool_names.name_for(toolset.name, tool)
    run_tool = ToolRunner(Toolbox([toolset]), Policy())
    return await run_tool(name, arguments, approver=AutoApprover(), on_progress=lambda text: click.echo(text, err=True))


def _print_output(output: "ToolOutput") -> None:
    """Print the parts of a result: text as it is, anything else as JSON."""
    import msgspec

    from toolwire.canonical.content import Text

    for part in output.content:
        click.echo(part.text if isinstance(part, Text) else msgspec.json.encode(part).decode())


@command.command("serve")
@config_option
@click.option("--http", metavar="HOST:PORT", help="Serve streamable HTTP at /mcp. Default: stdin and stdout.")
@click.option(
    "--workspace",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=Path(),
    metavar="DIR",
    help="Folder the built-in tools work in. Default: this one.",
)
@click.option("--servers-only", is_flag=True, help="Do not serve the built-in tools.")
@click.option(
    "--module",
    "modules",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Also serve the tools of this Python file: its @tool functions, agents and toolsets.",
)
@_rule_options
def serve(
    config_path: Path | None,
    http: str | None,
    workspace: Path,
    *,
    servers_only: bool,
    modules: tuple[Path, ...],
    allow: tuple[str, ...],
    ask: tuple[str, ...],
    deny: tuple[str, ...],
) -> None:
    """Run an MCP server.

    It serves the built-in tools, those of all configured servers, and those of the Python files, under the given rules.
    Approvals are requested from the client by elicitation, and denied if the client does not support it.

    \b
    Examples:
      toolwire mcp serve --allow read_file
      toolwire mcp serve --http 127.0.0.1:4100 --servers-only
      toolwire mcp serve --module tools.py --servers-only --allow '*'
    """
    with report_bad_input(), require_extra("mcp", "MCP"):
        from toolwire.gateway.config import load_config
        from toolwire.runtime.policy import Policy

        loaded = load_config(config_path)
        config = loaded.config
        rules = config.policy
        policy = Policy(allow=(*rules.allow, *allow), ask=(*rules.ask, *ask), deny=(*rules.deny, *deny))
        address = None if http is None else _checked_address(http, config)
        from toolwire.cli.agent_options import built_in_tools, check_rules
        from toolwire.cli.tool_modules import load_tools

        tools = [] if servers_only else built_in_tools(workspace, config, [file.path for file in loaded.files])
        sources = [*tools, *(source for path in modules for source in load_tools(path))]
        check_rules({"--allow": allow, "--ask": ask, "--deny": deny}, sources, config.mcp.servers)
        if address is None and sys.stdin.isatty():
            note = "serving MCP on stdin and stdout, for a client that starts this command; --http serves HTTP"
            print_line(note, err=True)
        asyncio.run(_run_server(config, policy, sources, address))


async def _run_server(
    config: "Config", policy: Any, sources: "list[ToolSource]", address: tuple[str, int] | None
) -> None:
    """Serve the tools, over HTTP at `address` or else over stdio, until the client or the user ends it."""
    from toolwire.runtime.mcp.server import ToolServer, serve_stdio
    from toolwire.runtime.mcp.tool_runner import ToolRunner
    from toolwire.runtime.rule_checks import check_arguments, find_unused_restrictions
    from toolwire.runtime.tool import SupportsChangeNotice
    from toolwire.runtime.toolbox import Toolbox

    static_toolbox = Toolbox(sources)
    toolsets = _build_toolsets(config, reserved_names=static_toolbox.static_names)
    toolbox = Toolbox([*sources, *toolsets])
    printed = set[str]()

    async def list_tools() -> "list[Tool]":
        """Return all tools that are available now, and print the warnings of their servers."""
        catalog = await toolbox.catalog()
        unused = find_unused_restrictions(policy, catalog.tools.values()) if toolbox.lists_all_tools else ()
        warnings = [*toolbox.take_warnings(), *(text for text in unused if text not in printed)]
        printed.update(warnings)
        for text in warnings:
            click.echo(text, err=True)
        return list(catalog.tools.values())

    check_arguments(policy, {tool.name: tool for tool in await list_tools()})
    runner = ToolRunner(toolbox, policy, redactor=_build_redactor(config))
    server = ToolServer(list_tools, runner)
    tasks = set[asyncio.Task[None]]()

    def notify_changed() -> None:
        """Tell the clients in the background that the tool list changed."""
        task = asyncio.get_running_loop().create_task(server.notify_changed())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    for source in (*sources, *toolsets):
        if isinstance(source, SupportsChangeNotice):
            source.on_change = notify_changed
    try:
        with _record_calls(config, runner):
            await (serve_stdio(server) if address is None else _serve_http(server, config, *address))
    finally:
        server.close()
        await toolbox.close()


def _build_redactor(config: "Config") -> "Redactor":
    """Return a redactor of the configured secrets."""
    from toolwire.gateway.config import build_redactor
    from toolwire.gateway.providers.discovery import configured_providers

    return build_redactor(config, configured_providers(config).values())


@contextlib.contextmanager
def _record_calls(config: "Config", runner: "ToolRunner") -> Iterator[None]:
    """Record the calls as one run, in the same store as the runs of agents."""
    import msgspec

    from toolwire.cli.agent_options import open_runs
    from toolwire.runtime.run.events import RunEnded
    from toolwire.runtime.run.settings import RunMetadata

    runs = open_runs(None, config)
    metadata = RunMetadata(agent="mcp serve", model="", messages=())
    runner.step_log = step_log = runs.begin(runner.run_id, msgspec.json.encode(metadata))
    try:
        yield
    finally:
        end_event = RunEnded(run=runner.run_id, stopped="finished", calls=runner.call_count)
        step_log.end(msgspec.json.encode(end_event))


async def _serve_http(tool_server: "ToolServer", config: "Config", host: str, port: int) -> None:
    """Serve streamable HTTP at /mcp, with the keys, hosts and origins of the gateway's configuration."""
    import uvicorn

    from toolwire.gateway.providers.discovery import open_listener
    from toolwire.gateway.server.auth import build_authenticator
    from toolwire.runtime.mcp.server import http_app

    authenticator = build_authenticator(config, host)

    def refuse(headers: dict[bytes, bytes], query: bytes) -> int | None:
        """Return the HTTP status to refuse a request with; None if the request is allowed."""
        if authenticator.rejection_reason(headers) is not None:
            return 403
        # Keys in the query are not accepted: URLs end up in logs.
        return 401 if authenticator.authenticate(headers, b"") is None else None

    listener = open_listener(host, port)
    host_name = f"[{host}]" if ":" in host else host
    click.echo(f"http://{host_name}:{listener.getsockname()[1]}/mcp", err=True)
    await uvicorn.Server(uvicorn.Config(http_app(tool_server, refuse), log_level="warning")).serve(sockets=[listener])


def _checked_address(text: str, config: "Config") -> tuple[str, int]:
    """Parse `HOST:PORT`; raise `ConfigError` if other machines could connect without a key."""
    from toolwire.gateway.server.auth import build_authenticator

    host, port = _parse_address(text)
    build_authenticator(config, host)
    return host, port


def _parse_address(text: str) -> tuple[str, int]:
    """Split `HOST:PORT` into host and port, or raise `BadInput`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise BadInput(f"invalid address {text!r}: expected HOST:PORT")
    return host.strip("[]"), int(port)


@command.command("login")
@click.argument("server", shell_complete=complete_mcp_servers)
@config_option
def login(server: str, config_path: Path | None) -> None:
    """Sign in to a server with OAuth, in a browser.

    \b
    Examples:
      toolwire mcp login tracker
    """

    async def open_browser(url: str) -> None:
        """Print the sign-in URL and open it in the browser."""
        import webbrowser

        click.echo(f"Sign in at {url}", err=True)
        webbrowser.open(url)

    async def open_toolset(toolsets: "list[McpToolset]") -> str:
        """Connect to the server, which starts the sign-in; return the error, or "" on success."""
        await toolsets[0].open()
        return toolsets[0].error

    from toolwire.codec.suggestions import unknown_name

    with report_bad_input(), require_extra("mcp", "MCP"):
        config = _load_config(config_path)
        if (settings := config.mcp.servers.get(server)) is None:
            raise BadInput(unknown_name("MCP server", server, config.mcp.servers))
        if settings.url is None:
            raise BadInput(f"{server!r} is a local (stdio) server; login needs one with a url")
        if error := asyncio.run(_with_toolsets(config, open_toolset, server_name=server, browse=open_browser)):
            raise BadInput(f"{server}: {error}")
        click.echo(f"{server}: signed in")


@command.command("logout")
@click.argument("server", shell_complete=complete_mcp_servers)
@config_option
def logout(server: str, config_path: Path | None) -> None:
    """Delete the stored tokens of a server.

    \b
    Examples:
      toolwire mcp logout tracker
    """
    with report_bad_input(), require_extra("mcp", "MCP"):
        from toolwire.codec.suggestions import unknown_name
        from toolwire.runtime.mcp.oauth import TokenFile

        servers = _load_config(config_path).mcp.servers
        if (settings := servers.get(server)) is None:
            raise BadInput(unknown_name("MCP server", server, servers))
        cleared = TokenFile(_token_folder(), server, settings.url or "").clear()
        click.echo(f"{server}: {'signed out' if cleared else 'no tokens stored'}")


@command.command("import")
@click.argument("file", type=click.File("rb"))
def import_servers(file: Any) -> None:
    """Convert another tool's mcpServers JSON to sections of toolwire.toml, on stdout.

    \b
    Examples:
      toolwire mcp import ~/.cursor/mcp.json >> toolwire.toml
    """
    with report_bad_input():
        from toolwire.runtime.mcp.config import as_toml, parse_mcp_servers

        servers, warnings = parse_mcp_servers(file.read())
        if not servers:
            raise BadInput("there are no servers in mcpServers or servers" + "".join(f"; {text}" for text in warnings))
        click.echo(as_toml(servers), nl=False)
        for text in warnings:
            click.echo(text, err=True)


def _load_config(config_path: Path | None) -> "Config":
    """Load the configuration."""
    from toolwire.gateway.config import load_config

    return load_config(config_path).config


def _token_folder() -> Path:
    """Return the folder that holds the OAuth tokens."""
    import os

    from toolwire.gateway.config import state_directory

    return state_directory(os.environ) / "mcp"


def _build_toolsets(
    config: "Config", reserved_names: list[str], server_name: str | None = None, browse: Any = None
) -> "list[McpToolset]":
    """Build the toolsets of the configured servers, or only of `server_name`."""
    from toolwire.gateway.in_process import open_model
    from toolwire.runtime.mcp.toolset import build_toolsets

    servers: dict[str, McpServerConfig] = config.mcp.servers
    selected = {name: server for name, server in servers.items() if server_name in (None, name)}
    return build_toolsets(
        selected,
        reserved=reserved_names,
        token_folder=_token_folder(),
        open_browser=browse,
        open_model=partial(open_model, config=config),
    )


async def _with_toolsets(
    config: "Config", action: Callable[..., Any], server_name: str | None = None, browse: Any = None
) -> Any:
    """Build the toolsets, run `action` on them, and close them."""
    async with _toolset_scope(_build_toolsets(config, [], server_name, browse)) as toolsets:
        return await action(toolsets)


@contextlib.asynccontextmanager
async def _toolset_scope(toolsets: "list[McpToolset]") -> "AsyncGenerator[list[McpToolset]]":
    """Yield the toolsets, and close them at the end."""
    try:
        yield toolsets
    finally:
        await asyncio.gather(*(toolset.close() for toolset in toolsets))
