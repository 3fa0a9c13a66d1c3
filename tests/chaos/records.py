"""The evidence of a chaos run: what clients, providers, agents and the database know at its end."""

from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["complete", "cut", "error", "false end"]
"""`false end`: the connection ended properly, but the response was not complete."""


@dataclass
class Answer:
    """A request, and its response as the client got it."""

    tag: str
    key: str
    client: str
    """The protocol of the client."""
    provider: str
    kind: str
    outcome: Outcome = "cut"
    status: int = 0
    text: str = ""
    id: str = ""
    is_stored: bool = False
    """Whether the client may rely on the response by its id."""
    lineage: tuple[str, ...] = ()
    """The tags of the responses that it continues, in order."""
    conversation: str = ""
    error: str = ""
    exchange: str = ""
    """The id of the exchange, which is that of its reservation."""
    gateway: str = ""
    """The address of the gateway that served it."""
    ended_at: float = 0.0
    """The time of its end, in seconds since the epoch."""
    running_at: float = 0.0
    """The last time that a background response was known to be in progress; it may have ended any time after it."""


@dataclass
class Background:
    """A background response whose id was acknowledged."""

    answer: Answer
    statuses: list[str] = field(default_factory=list)
    """The statuses that the client saw, without repetitions."""


@dataclass(frozen=True)
class Served:
    """A request as the simulated provider counted it."""

    tags: tuple[str, ...]
    """The tags of all prompts in it; the last one is that of the request."""
    path: str
    status: int = 0
    is_complete: bool = False
    text: str = ""
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True)
class Effect:
    """A line that a tool wrote."""

    run: str
    call: str
    tool: str
    entry: str


@dataclass(frozen=True)
class CallReport:
    """A call as a run reports it."""

    tool: str
    entry: str
    error: str
    """Empty for success, `in_doubt`, or another code; `unfinished` without an outcome."""


@dataclass(frozen=True)
class RunReport:
    """A run at the end."""

    run: str
    stopped: str
    """Empty if it has not ended."""
    reason: str
    plan: tuple[tuple[str, str], ...]
    """Tool and entry of each call that the model was to make."""
    calls: tuple[CallReport, ...]


@dataclass(frozen=True)
class Adoption:
    """A run whose worker was killed or paused, and the seconds until another process held it or it ended."""

    run: str
    worker: str
    cause: str
    seconds: float | None
    """None if nobody took it over."""
    waited: float = 0.0
    """Seconds of these in which the lease had expired, a worker was ready, and PostgreSQL could be reached."""


@dataclass(frozen=True)
class LedgerRow:
    """The usage of a key at a provider, as the gateways booked it."""

    key: str
    provider: str
    requests: int
    input_tokens: int
    output_tokens: int
    nanodollars: int


@dataclass
class Evidence:
    """Everything that is judged."""

    answers: list[Answer] = field(default_factory=list)
    backgrounds: list[Background] = field(default_factory=list)
    served: list[Served] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    runs: list[RunReport] = field(default_factory=list)
    adoptions: list[Adoption] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    """Acknowledged responses that a replica could not read or continue, with its reason."""
    reads: int = 0
    """The number of times that an acknowledged response was read or continued at the end."""
    ledger: list[LedgerRow] = field(default_factory=list)
    unsettled: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Key and nanodollars of reservations without an end, by exchange."""
    kills: list[tuple[str, float]] = field(default_factory=list)
    """The addresses of gateways that were killed, and when."""
    listed_unsettled: int = 0
    """The number of them that `toolwire usage` lists."""
    exits: list[str] = field(default_factory=list)
    """The programs that ended although nobody killed them."""
    logs: dict[str, str] = field(default_factory=dict)
