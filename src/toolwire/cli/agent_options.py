"""What an agent of the command line is started with: kept with the run, so that the same one can take it up again."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.agent import Agent
from toolwire.cli.inputs import DEFAULT_CONFIG, BadInput, require_extra
from toolwire.gateway.config import (
    Config,
    SearchSection,
    configured_secrets,
    journal_path,
    read_config,
    state_directory,
)
from toolwire.gateway.providers.discovery import configured_providers
from toolwire.journal.runs import RunStore
from toolwire.runtime.calls.approval import Approver
from toolwire.runtime.model import Model
from toolwire.runtime.policy import Policy
from toolwire.runtime.run.limits import RunLimits
from toolwire.runtime.tool import Tool, ToolSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolwire.runtime.tools.browser.toolset import Browser
    from toolwire.runtime.tools.web_search import SearchBackend

_FACT_KEY = "ask"
SIMULATED_NOTE = "no provider is configured: a simulated model answers (toolwire doctor says more)"


class AgentJob(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`later`: what would be asked waits, where nobody is there. `browser` is the page that one starts at, or empty.
    What was only said about who answers is not kept."""

    workspace: str
    model: str | None = None
    config: str | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    max_turns: int = 50
    thinking: Literal["minimal", "low", "medium", "high"] | None = None
    tools: bool = True
    code: bool = False
    later: bool = False
    browser: str | None = None
    hosts: tuple[str, ...] = ()

    @property
    def facts(self) -> dict[str, str]:
        return {"workspace": self.workspace, _FACT_KEY: msgspec.json.encode(self).decode()}


def decode_job(facts: Mapping[str, str]) -> AgentJob:
    if _FACT_KEY not in facts:
        raise BadInput("the run was not started by `toolwire ask`: only the program that did can take it up")
    return msgspec.json.decode(facts[_FACT_KEY], type=AgentJob)


def load_config(path: Path | None) -> tuple[Config, Path | None]:
    """The configuration, and the file that it is from."""
    found = path or (DEFAULT_CONFIG if DEFAULT_CONFIG.exists() else None)
    return (Config(), None) if found is None else (read_config(found), found)


def open_runs(path: Path | None, config: Config) -> RunStore:
    """Runs stand beside the journal of exchanges: those come and go by size, and these don't."""
    return RunStore(path or journal_path(config, os.environ).with_name("runs.db"))


def apply_sandbox_flag(config: Config, write_note: Callable[[str], None], *, no_sandbox: bool) -> Config:
    """The configuration with the sandbox of commands turned off, if the flag says so. What is off is announced."""
    if no_sandbox:
        config = replace(config, tools=replace(config.tools, sandbox=False))
    if not config.tools.sandbox:
        write_note("commands run without a sandbox, with all of your rights")
    return config


def uses_simulator(config: Config) -> bool:
    return not configured_providers(config)


def build_agent(
    job: AgentJob,
    config: Config,
    *,
    approver: Approver,
    runs: RunStore | None = None,
    model: Model | None = None,
    tools: "Sequence[ToolSource] | None" = None,
) -> Agent:
    rules = config.policy
    offered = build_tools(job, config) if tools is None else tools
    return Agent(
        job.model if model is None else model,
        tools=offered,
        always_offered=[one.name for one in offered if isinstance(one, Tool)],
        policy=Policy(allow=(*rules.allow, *job.allow), ask=rules.ask, deny=(*rules.deny, *job.deny)),
        instructions=_render_instructions(job),
        limits=RunLimits(turns=job.max_turns),
        approver=approver,
        journal=runs,
        thinking=job.thinking,
        code=job.code,
        name="ask",
        config=config,
        secrets=tuple(configured_secrets(config, configured_providers(config).values())),
    )


def build_tools(job: AgentJob, config: Config) -> "list[ToolSource]":
    """The built-in ones, a browser if one is asked for, and those of the servers that are configured."""
    browser: list[ToolSource] = [] if job.browser is None else [build_browser(job.browser, job.hosts, config)]
    if not job.tools:
        return browser
    tools = built_in_tools(Path(job.workspace), config, [] if job.config is None else [Path(job.config)])
    if not config.mcp.servers:
        return [*browser, *tools]
    with require_extra("mcp"):
        from toolwire.runtime.mcp.toolset import build_toolsets

        taken = [tool.name for tool in tools]
        return [
            *browser,
            *tools,
            *build_toolsets(config.mcp.servers, reserved=taken, token_folder=state_directory(os.environ) / "mcp"),
        ]


def build_browser(start_url: str, hosts: "Sequence[str]", config: Config) -> "Browser":
    """It may go where it starts, where it is told here, and where the configuration says; nowhere said is anywhere."""
    with require_extra("browser"):
        import playwright.async_api  # noqa: F401 - that it is there is to be known now
    from toolwire.runtime.tools.browser import BrowserSettings, NetworkPolicy, Redaction, Size
    from toolwire.runtime.tools.browser.network_policy import ActionRefused, parse_host_port
    from toolwire.runtime.tools.browser.toolset import Browser

    section = config.browser
    if start_url and "://" not in start_url:
        start_url = f"https://{start_url}"
    named = (*section.hosts, *hosts, *([urlsplit(start_url).netloc.rpartition("@")[2]] if start_url else []))
    try:
        if start_url:
            parse_host_port(start_url, ("http", "https"))
        settings = BrowserSettings(
            chromium=section.chromium,
            headless=section.headless,
            page_size=Size(section.width, section.height),
            device_scale=section.scale,
            network_policy=NetworkPolicy(
                hosts=named or ("*",), resource_hosts=section.resources, private_hosts=section.private
            ),
            redaction=Redaction(selectors=section.redact, areas=section.redact_areas),
            actions=frozenset(section.actions) or None,
            secrets=tuple(configured_secrets(config, configured_providers(config).values())),
            sensitive=section.sensitive,
        )
        return Browser(start_url or None, settings=settings)
    except ActionRefused as refused:
        raise BadInput(f"the browser can't start at {start_url}: {refused}") from None
    except ValueError as error:
        raise BadInput(str(error)) from None


def require_browser(job: AgentJob, config: Config) -> None:
    """That there is one, before a model is asked for anything. A replay needs none."""
    if job.browser is None:
        return
    with require_extra("browser"):
        from toolwire.runtime.tools.browser import ChromiumNotFound, find_chromium
    try:
        find_chromium(config.browser.chromium)
    except ChromiumNotFound as missing:
        raise BadInput(str(missing)) from None


def built_in_tools(workspace: Path, config: Config, protected: "Sequence[Path]" = ()) -> "list[Tool]":
    from toolwire.runtime.sandbox.bubblewrap import NO_SANDBOX
    from toolwire.runtime.tools.builtin import built_in_tools

    section = config.tools
    return built_in_tools(
        workspace,
        hidden=[state_directory(os.environ), *(Path(one).expanduser() for one in section.hidden)],
        readable=[Path(one).expanduser() for one in section.readable],
        network=section.network,
        fetchable=frozenset(section.fetchable),
        search=_search_backend(config.search),
        protected=protected,
        sandbox=None if section.sandbox else NO_SANDBOX,
    )


def _search_backend(section: SearchSection) -> "SearchBackend | None":
    if section.url is None:
        return None
    from toolwire.runtime.tools.web_search import JsonSearch

    return JsonSearch(
        url=section.url.replace("{key}", quote(section.api_key or "", safe="")),
        headers=section.headers,
        results=section.results,
        title=section.title,
        link=section.link,
        text=section.text,
        seconds=section.timeout,
    )


def _render_instructions(job: AgentJob) -> str:
    text = Path(__file__).with_name("instructions.txt").read_text(encoding="utf-8")
    return text.format(workspace=job.workspace, today=time.strftime("%Y-%m-%d")).strip()
