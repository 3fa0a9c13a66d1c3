"""The budget of a run: its usage, including that of its sub-agents, and its limits."""

from collections.abc import Callable

from msgspec import Struct

from toolwire.canonical.response import Usage, add_usage, tokens_used
from toolwire.runtime.run.events import RunEvent, StopCause
from toolwire.runtime.run.limits import RunLimits


class Budget:
    """The usage of a run, and its limits. A sub-agent also respects those of the runs that called it."""

    def __init__(self, limits: RunLimits, parent: "Budget | None" = None) -> None:
        self.usage: Usage | None = None
        """Usage of the run, including calls that have ended."""
        self._limits = limits
        self._parent = parent
        self._nested: list[Budget] = []  # of running calls, whose usage is not part of `usage` yet

    def nest(self, limits: RunLimits) -> "Budget":
        """Return the budget for a sub-agent's run, which a call of this run starts."""
        nested = Budget(limits, self)
        self._nested.append(nested)
        return nested

    def settle(self, usage: Usage | None) -> None:
        """Set the usage after calls have ended, including the usage of the runs that they started."""
        self.usage = usage
        self._nested.clear()

    @property
    def has_cost_limit(self) -> bool:
        """True if this run or one that called it has a limit on money."""
        return self._limits.cost is not None or (self._parent is not None and self._parent.has_cost_limit)

    @property
    def total(self) -> Usage | None:
        """Usage of this run and of the runs that its calls have started."""
        total = self.usage
        for nested in self._nested:
            total = add_usage(total, nested.total)
        return total

    @property
    def remaining_tokens(self) -> int | None:
        """Tokens that the run may still use; None if no limit applies."""
        remaining = None if self._parent is None else self._parent.remaining_tokens
        if self._limits.tokens is None:
            return remaining
        own = max(0, self._limits.tokens - tokens_used(self.total))
        return own if remaining is None else min(own, remaining)

    def exceeded(self) -> tuple[StopCause, str] | None:
        """Return the stop cause and its details if a limit of this run, or of one that called it, is reached."""
        limits, usage = self._limits, self.total or Usage()
        estimated = " (estimated)" if usage.estimated else ""
        if limits.requests is not None and (usage.requests or 0) >= limits.requests:
            return "requests", f"the limit of {limits.requests} model requests was reached"
        if limits.tokens is not None and tokens_used(usage) >= limits.tokens:
            return "tokens", f"{tokens_used(usage)} of {limits.tokens} tokens were used{estimated}"
        if limits.cost is not None and (usage.cost or 0.0) >= limits.cost:
            return "cost", f"{usage.cost or 0.0:.4g} of {limits.cost:g} US dollars were spent{estimated}"
        return None if self._parent is None else self._parent.exceeded()


class ParentRun(Struct, frozen=True, kw_only=True):
    """The run that calls a sub-agent. Usage and events of the sub-agent count as its own, and its limits apply."""

    budget: Budget
    on_event: Callable[[RunEvent], None]
    """Emits an event of the call."""
    add_usage: Callable[[Usage | None], None]
    """Adds usage to the outcome of the call, whether or not the call succeeds."""
