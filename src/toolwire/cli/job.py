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
from toolwire.gateway.config import Config, SearchSection, read_config
from toolwire.gateway.providing import configured
from toolwire.gateway.recording import journal_path, secrets_of
from toolwire.gateway.seals import state_folder
from toolwire.journal.runs import Runs
from toolwire.runtime.approval import Person
from toolwire.runtime.caps import Caps
from toolwire.runtime.model import Model
from toolwire.runtime.policy import Policy
from toolwire.runtime.toolset import Offered, Tool

from .arguments import BadInput, needing
from .serve import USUAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolwire.runtime.tools.browser.toolset import Browser
    from toolwire.runtime.tools.web_search import SearchBackend

_FACT = "ask"
SIMULATED = "no provider is configured: a simulated model answers (toolwire doctor says more)"


class Job(Struct, frozen=True, kw_only=True, omit_defaults=True):
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
        return {"workspace": self.workspace, _FACT: msgspec.json.encode(self).decode()}


def job_of(facts: Mapping[str, str]) -> Job:
    if _FACT not in facts:
        raise BadInput("the run was not started by `toolwire ask`: only the program that did can take it up")
    return msgspec.json.decode(facts[_FACT], type=Job)


def config_of(path: Path | None) -> tuple[Config, Path | None]:
    """The configuration, and the file that it is from."""
    found = path or (USUAL if USUAL.exists() else None)
    return (Config(), None) if found is None else (read_config(found), found)


def runs_at(path: Path | None, config: Config) -> Runs:
    """Runs stand beside the journal of exchanges: those come and go by size, and these don't."""
    return Runs(path or journal_path(config, os.environ).with_name("runs.db"))


def without_sandbox(config: Config, note: Callable[[str], None], *, flag: bool) -> Config:
    """The configuration with the sandbox of commands turned off, if the flag says so. What is off is announced."""
    if flag:
        config = replace(config, tools=replace(config.tools, sandbox=False))
    if not config.tools.sandbox:
        note("commands run without a sandbox, with all of your rights")
    return config


def is_simulated(config: Config) -> bool:
    return not configured(config)


def agent_of(
    job: Job,
    config: Config,
    *,
    person: Person,
    runs: Runs | None = None,
    model: Model | None = None,
    tools: "Sequence[Offered] | None" = None,
) -> Agent:
    rules = config.policy
    offered = tools_of(job, config) if tools is None else tools
    return Agent(
        job.model if model is None else model,
        tools=offered,
        always=[one.name for one in offered if isinstance(one, Tool)],
        policy=Policy(allow=(*rules.allow, *job.allow), ask=rules.ask, deny=(*rules.deny, *job.deny)),
        instructions=_instructions(job),
        caps=Caps(turns=job.max_turns),
        person=person,
        journal=runs,
        thinking=job.thinking,
        code=job.code,
        name="ask",
        config=config,
        secrets=tuple(secrets_of(config, configured(config).values())),
    )


def tools_of(job: Job, config: Config) -> "list[Offered]":
    """The built-in ones, a browser if one is asked for, and those of the servers that are configured."""
    browser: list[Offered] = [] if job.browser is None else [browser_of(job.browser, job.hosts, config)]
    if not job.tools:
        return browser
    tools = built_in_tools(Path(job.workspace), config, [] if job.config is None else [Path(job.config)])
    if not config.mcp.servers:
        return [*browser, *tools]
    with needing("mcp"):
        from toolwire.runtime.mcp.toolset import toolsets

        taken = [tool.name for tool in tools]
        return [*browser, *tools, *toolsets(config.mcp.servers, taken=taken, folder=state_folder(os.environ) / "mcp")]


def browser_of(start: str, hosts: "Sequence[str]", config: Config) -> "Browser":
    """It may go where it starts, where it is told here, and where the configuration says; nowhere said is anywhere."""
    with needing("browser"):
        import playwright.async_api  # noqa: F401 - that it is there is to be known now
    from toolwire.runtime.tools.browser import BrowserSettings, Reach, Redaction, Size
    from toolwire.runtime.tools.browser.reach import Refused, place
    from toolwire.runtime.tools.browser.toolset import Browser

    section = config.browser
    if start and "://" not in start:
        start = f"https://{start}"
    named = (*section.hosts, *hosts, *([urlsplit(start).netloc.rpartition("@")[2]] if start else []))
    try:
        if start:
            place(start, ("http", "https"))
        settings = BrowserSettings(
            chromium=section.chromium,
            headless=section.headless,
            page=Size(section.width, section.height),
            device_scale=section.scale,
            reach=Reach(hosts=named or ("*",), resources=section.resources, private=section.private),
            redaction=Redaction(selectors=section.redact, areas=section.redact_areas),
            actions=frozenset(section.actions) or None,
            secrets=tuple(secrets_of(config, configured(config).values())),
            sensitive=section.sensitive,
        )
        return Browser(start or None, settings=settings)
    except Refused as refused:
        raise BadInput(f"the browser can't start at {start}: {refused}") from None
    except ValueError as error:
        raise BadInput(str(error)) from None


def require_browser(job: Job, config: Config) -> None:
    """That there is one, before a model is asked for anything. A replay needs none."""
    if job.browser is None:
        return
    with needing("browser"):
        from toolwire.runtime.tools.browser import NoChromium, find_chromium
    try:
        find_chromium(config.browser.chromium)
    except NoChromium as missing:
        raise BadInput(str(missing)) from None


def built_in_tools(workspace: Path, config: Config, protected: "Sequence[Path]" = ()) -> "list[Tool]":
    from toolwire.runtime.sandbox.shell import NO_SANDBOX
    from toolwire.runtime.tools.builtin import built_in

    section = config.tools
    return built_in(
        workspace,
        hidden=[state_folder(os.environ), *(Path(one).expanduser() for one in section.hidden)],
        readable=[Path(one).expanduser() for one in section.readable],
        network=section.network,
        fetchable=frozenset(section.fetchable),
        search=_search(config.search),
        protected=protected,
        sandbox=None if section.sandbox else NO_SANDBOX,
    )


def _search(section: SearchSection) -> "SearchBackend | None":
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


def _instructions(job: Job) -> str:
    text = Path(__file__).with_name("instructions.txt").read_text(encoding="utf-8")
    return text.format(workspace=job.workspace, today=time.strftime("%Y-%m-%d")).strip()
