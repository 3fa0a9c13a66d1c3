"""The sections of `toolwire.toml`, as types with defaults and ranges."""

from datetime import date
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from toolwire.canonical.errors import Strictness
from toolwire.codec.models.info import ModelInfo
from toolwire.runtime.mcp.config import McpSection
from toolwire.runtime.policy import Verdict
from toolwire.translation.compaction import SUMMARY_TOKENS
from toolwire.upstream.provider import ContextSize

Port = Annotated[int, Meta(ge=0, le=65535)]
Natural = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
PositiveFloat = Annotated[float, Meta(gt=0)]
NonNegativeFloat = Annotated[float, Meta(ge=0)]
Fraction = Annotated[float, Meta(gt=0, le=1)]


class Section(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A table of `toolwire.toml`; unknown keys are errors."""


class ServerSection(Section, frozen=True, kw_only=True):
    """`[server]`: the listening address, keys, allowed hosts and origins, and the form of log lines."""

    host: str = "127.0.0.1"
    port: Port = 4000
    keys: tuple[str, ...] = ()
    seal_keys: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    log: Literal["text", "json"] = "text"


class KeySection(Section, frozen=True, kw_only=True):
    """`[keys.NAME]`: a client's key: its secret as a hash, the models that it may use, and its limits."""

    hash: str
    admin: bool = False
    models: tuple[str, ...] = ()
    requests_per_minute: Positive | None = None
    tokens_per_minute: Positive | None = None
    dollars_per_day: PositiveFloat | None = None
    dollars_per_month: PositiveFloat | None = None
    unpriced: Literal["refuse", "allow"] = "refuse"
    expires: date | None = None

    @property
    def is_limited(self) -> bool:
        """Return whether requests have to be counted before they are sent."""
        limits = (self.requests_per_minute, self.tokens_per_minute, self.dollars_per_day, self.dollars_per_month)
        return limits != (None,) * len(limits)

    @property
    def limits_money(self) -> bool:
        """Return whether the key has a limit in dollars."""
        return self.dollars_per_day is not None or self.dollars_per_month is not None


class KeyCommandSection(Section, frozen=True, kw_only=True):
    """`api_key = {command = [...]}` of a provider: a program that prints a key which expires; times in seconds."""

    command: tuple[str, ...]
    ttl: PositiveFloat = 300.0
    timeout: PositiveFloat = 30.0


class ProviderSection(Section, frozen=True, kw_only=True):
    """`[providers.NAME]`: an upstream API, its credentials and its models."""

    protocol: str
    base_url: str = ""
    api_key: str | KeyCommandSection | None = None
    client_credential: str | None = None
    timeout: PositiveFloat = 600
    connect_timeout: PositiveFloat = 10
    first_byte_timeout: PositiveFloat | None = None
    headers: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)
    path: str | None = None
    models: tuple[str, ...] = ()
    default_model: str | None = None
    host: str | None = None
    region: str | None = None
    project: str | None = None
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    num_ctx: ContextSize | None = None
    tool_calling: Literal["native", "prompt", "auto"] = "auto"
    account: str | None = None
    proxy: str | None = None
    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None


class BackendSection(Section, frozen=True, kw_only=True):
    """An entry of `backends` of a route: a provider, the model's name there, and its share of the requests."""

    provider: str
    model: str | None = None
    weight: NonNegativeFloat = 1
    timeout: PositiveFloat | None = None
    context: Positive | None = None


class RouteSection(Section, frozen=True, kw_only=True):
    """`[[routes]]`: the backends and options for matching model names; the first match wins."""

    match: str = "*"
    backends: tuple[BackendSection, ...] = ()
    provider: str | None = None
    providers: tuple[str, ...] = ()
    model: str | None = None
    balance: Literal["order", "weight"] = "order"
    retry_invalid_calls: Annotated[int, Meta(ge=0, le=1)] = 0
    strict: Strictness = False
    repair: bool = True
    hosted_tools: Literal["drop", "function", "refuse"] = "drop"
    binary_results: Literal["native", "summary"] = "native"
    tools: tuple[str, ...] = ()
    tool_calls: Literal["hidden", "shown"] = "hidden"
    search_above: Natural = 40
    cache: Literal["auto", "off"] = "auto"
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    num_ctx: ContextSize | None = None
    tool_calling: Literal["native", "prompt", "auto"] | None = None
    compaction_prompt: str | None = None

    @property
    def backend_sections(self) -> tuple[BackendSection, ...]:
        """Return the backends in order, whichever of the three forms lists them."""
        names = self.providers or (() if self.provider is None else (self.provider,))
        return self.backends or tuple([BackendSection(provider=name) for name in names])


class CompactionSection(Section, frozen=True, kw_only=True):
    """`[compaction]`: how the gateway summarizes conversations; `tokens` is the length of a summary.

    With `native` false, providers that could manage the context themselves don't, so that any model can continue.
    """

    native: bool = True
    prompt: str | None = None
    tokens: Positive = SUMMARY_TOKENS


class LimitsSection(Section, frozen=True, kw_only=True):
    """`[limits]`: sizes in bytes, times in seconds."""

    head: Positive = 64 * 1024
    body: Positive = 32 * 1024 * 1024
    bodies: Natural = 256 * 1024 * 1024
    messages: Natural = 100_000
    parts: Natural = 200_000
    tools: Natural = 10_000
    losses: Natural = 10_000
    values: Natural = 1_000_000
    answer: Positive = 64 * 1024 * 1024
    stream: Positive = 256 * 1024 * 1024
    streams: Natural = 1000
    receive: PositiveFloat = 60
    send: PositiveFloat = 60
    retries: Natural = 2
    failures: Positive = 5
    cooldown: NonNegativeFloat = 30
    heartbeat: PositiveFloat = 15
    exchanges: Natural = 10_000
    history: Natural = 128 * 1024 * 1024
    pauses: Natural = 5
    rounds: Natural = 25
    sockets: Natural = 1000
    socket_time: PositiveFloat = 3600
    key_share: Fraction = 0.5
    connections: Positive | None = None


class StateSection(Section, frozen=True, kw_only=True):
    """`[state]`: the store of responses and conversations; sizes in bytes, `ttl` in seconds.

    `url` is a PostgreSQL database in place of a file.
    """

    path: str | None = None
    url: str | None = None
    ttl: PositiveFloat = 30 * 24 * 3600
    rows: Natural = 100_000
    bytes: Natural = 1024 * 1024 * 1024
    queue: Natural = 64 * 1024 * 1024


class JournalSection(Section, frozen=True, kw_only=True):
    """`[journal]`: the record of exchanges; sizes in bytes."""

    enabled: bool = False
    path: str | None = None
    bodies: bool = False
    days: PositiveFloat = 30
    size: Positive = 256 * 1024 * 1024
    queue: Positive = 64 * 1024 * 1024


class ConsoleSection(Section, frozen=True, kw_only=True):
    """`[console]`: the page in the browser; `size` is in bytes."""

    enabled: bool = True
    bodies: bool = False
    exchanges: Natural = 5000
    size: Natural = 64 * 1024 * 1024


class PolicySection(Section, frozen=True, kw_only=True):
    """`[policy]`: the tool calls an agent may make, as rules for `parse_rule`."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    @property
    def rules_by_verdict(self) -> dict[Verdict, tuple[str, ...]]:
        """Return the rules (as text) of each verdict."""
        return {"allow": self.allow, "ask": self.ask, "deny": self.deny}


class SearchSection(Section, frozen=True, kw_only=True):
    """`[search]`: a web search service that answers in JSON, and the names of its result fields."""

    url: str | None = None
    api_key: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    results: str = "results"
    title: str = "title"
    link: str = "url"
    text: str = "content"
    timeout: PositiveFloat = 20


class ToolsSection(Section, frozen=True, kw_only=True):
    """`[tools]`: access of the built-in tools beyond the workspace, and files hidden within it.

    Without `sandbox`, commands run with all rights of the user.
    """

    network: bool = False
    sandbox: bool = True
    readable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    fetchable: tuple[str, ...] = ()


class BrowserSection(Section, frozen=True, kw_only=True):
    """`[browser]`: the agent's browser: allowed hosts, screen size in CSS pixels, and redaction."""

    chromium: str | None = None
    hosts: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    width: Positive = 1280
    height: Positive = 800
    scale: PositiveFloat = 1.0
    headless: bool = True
    actions: tuple[str, ...] = ()
    sensitive: str | None = None
    redact: tuple[str, ...] = ()
    redact_areas: tuple[tuple[int, int, int, int], ...] = ()


class SimulatorSection(Section, frozen=True, kw_only=True):
    """`[simulator]`: the built-in model, used if no provider is configured."""

    script: str | None = None
    pace: NonNegativeFloat = 0


class Config(Section, frozen=True, kw_only=True):
    """All of `toolwire.toml`: two keys at the top level, and the sections."""

    default_model: str | None = None
    aliases: dict[str, str] = field(default_factory=dict)
    server: ServerSection = ServerSection()
    keys: dict[str, KeySection] = field(default_factory=dict)
    providers: dict[str, ProviderSection] = field(default_factory=dict)
    models: dict[str, ModelInfo] = field(default_factory=dict)
    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)  # profiles of servers, by name
    routes: tuple[RouteSection, ...] = ()
    limits: LimitsSection = LimitsSection()
    compaction: CompactionSection = CompactionSection()
    journal: JournalSection = JournalSection()
    console: ConsoleSection = ConsoleSection()
    state: StateSection = StateSection()
    policy: PolicySection = PolicySection()
    tools: ToolsSection = ToolsSection()
    search: SearchSection = SearchSection()
    browser: BrowserSection = BrowserSection()
    simulator: SimulatorSection = SimulatorSection()
    mcp: McpSection = McpSection()

    @property
    def requires_key(self) -> bool:
        """Return whether clients need a key."""
        return bool(self.server.keys or self.keys)
