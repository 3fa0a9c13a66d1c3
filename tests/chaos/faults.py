"""Faults of the product, injected on purpose to show that the judge finds them: `ARGUMENTS='--fault NAME'`."""

from collections.abc import Callable
from typing import Any


def _disable_fencing() -> None:
    """Let a process that lost its lease write steps, so that nothing stops it from going on."""
    from toolwire.journal.run_database import PostgresRunDatabase
    from toolwire.journal.runs import RunStepLog

    for name in ("begin_step", "finish_step"):
        setattr(PostgresRunDatabase, name, getattr(PostgresRunDatabase, name).replace("AND token = :token", ""))
    RunStepLog.is_cancelled = lambda self: False  # type: ignore[method-assign]


def _repeat_calls() -> None:
    """Run a call that was under way again, as if every tool were idempotent."""
    from toolwire.runtime.calls import executor

    executor._may_run_again = lambda tool: True


def _hide_doubt() -> None:
    """Report a call that was under way as done."""
    from toolwire.canonical.content import Text
    from toolwire.runtime.calls import executor
    from toolwire.runtime.tool import ToolOutput

    error_output = executor._error_output

    def hide(text: str, kind: str) -> ToolOutput:
        return ToolOutput(content=(Text(text="done"),)) if kind == "in_doubt" else error_output(text, kind)

    executor._error_output = hide


def _never_adopt() -> None:
    """Treat every lease as valid."""
    from toolwire.journal.runs import RunStore

    def seconds_left(self: Any, encoded_holder: Any, token: str | None, until: float | None) -> float:
        return 0.0 if token is None else 1.0

    RunStore._lease_seconds_left = seconds_left  # type: ignore[method-assign]


def _forget_responses() -> None:
    """Acknowledge responses that are not stored."""
    from toolwire.gateway.state.conversations import PendingResponse

    async def flush(self: Any) -> None:
        self.take_staged_rows()

    PendingResponse.flush = flush  # type: ignore[method-assign]


def _commit_asynchronously() -> None:
    """Acknowledge commits that PostgreSQL has not written yet (`synchronous_commit = off`)."""
    import psycopg

    connect = psycopg.connect

    def connect_carelessly(*arguments: Any, options: str = "", **settings: Any) -> Any:
        return connect(*arguments, options=f"{options} -c synchronous_commit=off", **settings)

    setattr(psycopg, "connect", connect_carelessly)  # noqa: B010 - the type is that of an overloaded method


def _miss_dead_gateways() -> None:
    """Take a background response for alive, although its gateway was killed."""
    from toolwire.gateway.state import background_jobs

    background_jobs._DEAD_AFTER = float("inf")


def _book_twice() -> None:
    """Book the usage of each request twice."""
    from toolwire.gateway.keys import ledger

    add_usage = ledger._add_usage

    def add_twice(connection: Any, rows: Any) -> None:
        rows = list(rows)
        add_usage(connection, rows)
        add_usage(connection, rows)

    ledger._add_usage = add_twice


def _drop_reservations() -> None:
    """Keep no reservation, so that a killed request costs nothing."""
    from toolwire.gateway.keys import ledger

    ledger.UsageLedger.reserve = lambda self, section, reservation: None  # type: ignore[method-assign]


def _ignore_budgets() -> None:
    """Let every request pass the limits of money."""
    from toolwire.gateway.keys import ledger

    ledger._check_money = lambda *_: None


def _end_cut_streams() -> None:
    """End a stream that the provider broke off as if it were complete."""
    from toolwire.canonical.events import CandidateEnd, ResponseEnd
    from toolwire.canonical.response import Stop
    from toolwire.translation.stream import StreamTranslator

    def end_well(self: StreamTranslator, error: Any) -> bytes:
        return self.inject(CandidateEnd(stop=Stop(reason="end_turn")), ResponseEnd()) + self.end()

    StreamTranslator.fail = end_well  # type: ignore[method-assign]


FAULTS: dict[str, Callable[[], None]] = {
    "disable-fencing": _disable_fencing,
    "repeat-calls": _repeat_calls,
    "hide-doubt": _hide_doubt,
    "never-adopt": _never_adopt,
    "forget-responses": _forget_responses,
    "commit-asynchronously": _commit_asynchronously,
    "miss-dead-gateways": _miss_dead_gateways,
    "book-twice": _book_twice,
    "drop-reservations": _drop_reservations,
    "ignore-budgets": _ignore_budgets,
    "end-cut-streams": _end_cut_streams,
}


def inject(name: str) -> None:
    """Inject a fault into this process; without a name, none."""
    if name:
        FAULTS[name]()
