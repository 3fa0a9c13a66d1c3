"""The options of a `toolwire ask` run, and the agent and tools built from them.

The options are stored with the run, so that `toolwire runs resume` can build the same agent again.
"""

import os
import platform
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.agent import Agent
from toolwire.cli.inputs import BadInput
from toolwire.cli.output.terminal import print_line
from toolwire.codec.env_references import describe_unset
from toolwire.codec.suggestions import unknown_name
from toolwire.gateway.config import (
    Config,
    SearchSection,
    configured_secrets,
    load_config,
    runs_location,
    state_directory,
    user_file,
)
from toolwire.gateway.config.search import search_backend
from toolwire.gateway.providers.discovery import configured_providers
from toolwire.installation import require_extra
from toolwire.journal.runs import RunStore
from toolwire.runtime.calls.approval import Approver
from toolwire.runtime.mcp.config import may_be_tool_of
from toolwire.runtime.model import Model
from toolwire.runtime.policy import Policy, Rule, parse_rule
from toolwire.runtime.rule_checks import OWN_TOOLS, describe_unknown_argument, is_exact
from toolwire.runtime.run.limits import RunLimits
from toolwire.runtime.tool import SupportsStaticTools, Tool, Toolset, ToolSource
from toolwire.runtime.toolbox import Toolbox

if TYPE_CHECKING:
    from toolwire.runtime.tools.browser.toolset import Browser
    from toolwire.runtime.tools.web_search import SearchBackend

_FACT_KEY = "ask"
SIMULATED_NOTE = "no provider is configured: using the built-in simulator (run `toolwire doctor` for details)"


class AgentJob(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options of one run, stored with it."""

    # The directory that the tools work in.
    workspace: str
    model: str | None = None
    # The path of the configuration file of the folder, or of the one that the user named.
    config: str | None = None
    # Whether the user named it, with `--config` or `TOOLWIRE_CONFIG`.
    config_named: bool = False
    # Policy rules, in addition to those of the configuration.
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    max_turns: int = 50
    thinking: Literal["minimal", "low", "medium", "high"] | None = None
    # Whether the built-in tools and those of the MCP servers are offered.
    tools: bool = True
    # Whether the model may write programs that call the tools.
    code: bool = False
    # Whether a worker that runs the job approves every call.
    yes: bool = False
    # Whether approvals are postponed, instead of denied, when there is no terminal to ask at.
    later: bool = False
    # The start page of the browser; empty for a blank page, None for no browser.
    browser: str | None = None
    # Hosts that the browser may visit in addition to the start page's.
    hosts: tuple[str, ...] = ()

    @property
    def facts(self) -> dict[str, str]:
        """Return the options as text by name, to store with the run; `decode_job` reads them."""
        return {"workspace": self.workspace, _FACT_KEY: msgspec.json.encode(self).decode()}


def decode_job(facts: Mapping[str, str]) -> AgentJob:
    """Read the options of a run from the texts stored with it (`AgentJob.facts`)."""
    if _FACT_KEY not in facts:
        raise BadInput("the run was not started by `toolwire ask`: only the program that started it can resume it")
    return msgspec.json.decode(facts[_FACT_KEY], type=AgentJob)


def open_runs(path: Path | None, config: Config) -> RunStore:
    """Open the store of runs, by default next to the journal or in the shared database; it is not pruned by size."""
    return RunStore(path or runs_location(config, os.environ))


def apply_sandbox_flag(config: Config, write_note: Callable[[str], None], *, no_sandbox: bool) -> Config:
    """Turn the sandbox off if `no_sandbox` is set, and warn whenever commands run without one."""
    if no_sandbox:
        config = replace(config, tools=replace(config.tools, sandbox=False))
    if not config.tools.sandbox:
        write_note("commands run without a sandbox, with all of your permissions")
    return config


def uses_simulator(config: Config) -> bool:
    """Return whether no provider is configured, so that the built-in simulator is used."""
    return not configured_providers(config)


def model_note(name: str | None, config: Config) -> str | None:
    """Return a note that the simulator answers, or the default model for a model that no provider has."""
    from toolwire.gateway.errors import RouteNotFound
    from toolwire.gateway.exchange.routing import Router

    if uses_simulator(config):
        return SIMULATED_NOTE
    if not name:
        return None
    try:
        match = Router(configured_providers(config), config.routes, config.default_model, config.aliases).route(name)
    except RouteNotFound:
        return None  # opening the model reports it
    if not match.is_default:
        return None
    backend = match.backends[0]
    return f"no provider has the model {name!r}: default_model answers, {backend.provider.name}/{backend.model}"


def original_config(job: AgentJob, config: Config) -> Config:
    """Read the configuration file that the run was started with, which has to be trusted unless it was named."""
    if job.config is None:
        return config
    file = Path(job.config)
    return (load_config(file) if job.config_named else load_config(project=file)).config


def ask_queue() -> str:
    """Return the queue of detached `toolwire ask` runs: workers of this machine, which has the workspace."""
    return f"ask@{platform.node()}"


def build_agent(
    job: AgentJob,
    config: Config,
    *,
    approver: Approver | None,
    runs: RunStore | None = None,
    model: Model | None = None,
    tools: "Sequence[ToolSource] | None" = None,
) -> Agent:
    """Build the agent for a job. `model` and `tools` replace those that the job names, for a replay."""
    rules = config.policy
    tool_sources = build_tools(job, config) if tools is None else tools
    if tools is None:
        check_rules({"--allow": job.allow, "--deny": job.deny}, tool_sources, config.mcp.servers if job.tools else ())
    return Agent(
        job.model if model is None else model,
        tools=tool_sources,
        always_offered=[source.name for source in tool_sources if isinstance(source, Tool)],
        policy=Policy(allow=(*rules.allow, *job.allow), ask=rules.ask, deny=(*rules.deny, *job.deny)),
        instructions=_render_instructions(job),
        limits=RunLimits(turns=job.max_turns),
        approver=approver,
        journal=runs,
        effort=job.thinking,
        code=job.code,
        name="ask",
        config=config,
        secrets=tuple(configured_secrets(config, configured_providers(config).values())),
    )


def check_rules(
    rules: Mapping[str, Sequence[str]], tool_sources: "Sequence[ToolSource]", servers: Collection[str] = ()
) -> None:
    """Raise `BadInput` for a rule of the command line that can never apply, and would be silently ignored.

    The tools of the MCP `servers` are not known before these run, so any name that they may have may be right.
    """
    tools = [tool for source in tool_sources for tool in _static_tools(source)]
    names = [tool.name for tool in tools]
    unlisted = {source.name for source in tool_sources if isinstance(source, Toolset) and not _static_tools(source)}
    if not (names or servers) or not unlisted.issubset(servers):
        return
    for option, texts in rules.items():
        for text in texts:
            rule = parse_rule("allow", text)
            if not _may_apply(rule, names, servers):
                raise BadInput(f"{option} {text}: {unknown_name('tool', rule.tool, names or OWN_TOOLS)}")
            problem = describe_unknown_argument(rule, tools) if is_exact(rule) or not servers else None
            if problem is not None:
                raise BadInput(f"{option} {text}: {problem}")


def _may_apply(rule: Rule, names: Sequence[str], servers: Collection[str]) -> bool:
    """Return False if a rule applies to no known tool, and to none that a server may have."""
    if any(fnmatchcase(name, rule.tool) for name in (*names, *OWN_TOOLS)):
        return True
    return bool(servers) and (not is_exact(rule) or any(may_be_tool_of(rule.tool, server) for server in servers))


def _static_tools(source: ToolSource) -> "Sequence[Tool]":
    """Return the tools of a source that are known before a run."""
    match source:
        case Tool():
            return [source]
        case SupportsStaticTools():
            return source.static_tools()
        case Toolset():
            return ()
        case _:
            return list(Toolbox([source]).static_tools.values())


def build_tools(job: AgentJob, config: Config) -> "list[ToolSource]":
    """Build the built-in tools, the browser if the job has one, and the configured MCP servers' toolsets."""
    browser: list[ToolSource] = [] if job.browser is None else [build_browser(job.browser, job.hosts, config)]
    if not job.tools:
        return browser
    tools = built_in_tools(Path(job.workspace), config, [] if job.config is None else [Path(job.config).resolve()])
    if not config.mcp.servers:
        return [*browser, *tools]
    with require_extra("mcp", "MCP"):
        from toolwire.gateway.in_process import open_model
        from toolwire.runtime.mcp.toolset import build_toolsets

        reserved_names = [tool.name for tool in tools]
        return [
            *browser,
            *tools,
            *build_toolsets(
                config.mcp.servers,
                reserved=reserved_names,
                token_folder=state_directory(os.environ) / "mcp",
                open_model=partial(open_model, config=config),
            ),
        ]


def build_browser(start_url: str, hosts: "Sequence[str]", config: Config) -> "Browser":
    """Build the browser toolset.

    It may visit the host of the start page, the given hosts and the configured hosts; any host if none are named.
    """
    with require_extra("browser", "the browser"):
        import playwright.async_api  # noqa: F401 - fail now if it is not installed
    from toolwire.runtime.tools.browser import BrowserSettings, NetworkPolicy, Redaction, Size
    from toolwire.runtime.tools.browser.network_policy import ActionRefused, parse_host_port
    from toolwire.runtime.tools.browser.toolset import Browser

    section = config.browser
    if start_url and "://" not in start_url:
        start_url = f"https://{start_url}"
    allowed_hosts = (*section.hosts, *hosts, *([urlsplit(start_url).netloc.rpartition("@")[2]] if start_url else []))
    try:
        if start_url:
            parse_host_port(start_url, ("http", "https"))
        settings = BrowserSettings(
            chromium=section.chromium,
            headless=section.headless,
            page_size=Size(section.width, section.height),
            device_scale=section.scale,
            network_policy=NetworkPolicy(
                hosts=allowed_hosts or ("*",), resource_hosts=section.resources, private_hosts=section.private
            ),
            redaction=Redaction(selectors=section.redact, areas=section.redact_areas),
            actions=frozenset(section.actions) or None,
            secrets=tuple(configured_secrets(config, configured_providers(config).values())),
            sensitive=section.sensitive,
        )
        return Browser(start_url or None, settings=settings)
    except ActionRefused as refusal:
        raise BadInput(f"the browser can't open {start_url}: {refusal}") from None
    except ValueError as error:
        raise BadInput(str(error)) from None


def require_browser(job: AgentJob, config: Config) -> None:
    """Raise `BadInput` if the job needs a browser and Chromium is not installed."""
    if job.browser is None:
        return
    with require_extra("browser", "the browser"):
        from toolwire.runtime.tools.browser import ChromiumNotFound, find_chromium
    try:
        find_chromium(config.browser.chromium)
    except ChromiumNotFound as missing:
        raise BadInput(str(missing)) from None


def built_in_tools(workspace: Path, config: Config, protected: "Sequence[Path]" = ()) -> "list[Tool]":
    """Build the built-in tools for a workspace, as the configuration sets them."""
    from toolwire.runtime.sandbox.bubblewrap import NO_SANDBOX
    from toolwire.runtime.tools.builtin import built_in_tools

    section = config.tools
    return built_in_tools(
        workspace,
        hidden=[
            state_directory(os.environ),
            user_file(os.environ).parent,
            *(Path(path).expanduser() for path in section.hidden),
        ],
        readable=[Path(path).expanduser() for path in section.readable],
        network=section.network,
        fetchable=frozenset(section.fetchable),
        search=_search_backend(config.search),
        protected=protected,
        sandbox=None if section.sandbox else NO_SANDBOX,
    )


def _search_backend(section: SearchSection) -> "SearchBackend | None":
    """Return the configured web search service, if there is one and its settings are complete."""
    if (reason := describe_unset(msgspec.structs.asdict(section))) is not None:
        print_line((f"web search can't be used: {reason}", "warning"), err=True)
        return None
    return search_backend(section)


def _render_instructions(job: AgentJob) -> str:
    """Return the system prompt, with the workspace and today's date filled in."""
    text = Path(__file__).with_name("instructions.txt").read_text(encoding="utf-8")
    return text.format(workspace=job.workspace, today=time.strftime("%Y-%m-%d")).strip()
