"""Approvals of runs on workers: the answers are in the journal, where `toolwire runs approve` puts them."""

from toolwire.journal.runs import RunStepLog
from toolwire.runtime.calls.approval import ApprovalAnswer, ApprovalRequest


class StoredApprover:
    """Answers with the stored decisions, and postpones calls without one."""

    def __init__(self, lease: RunStepLog) -> None:
        self._lease = lease
        self.name = "person"
        self._postponed = set[str]()

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Return the stored decision on exactly this call; without one, the run waits."""
        decision = self._lease.decision(request.digest)
        if decision is None:
            self._postponed.add(request.digest)
            return "later"
        self.name = decision.decided_by
        return "yes" if decision.answer == "yes" else "no"

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        """Return None, since no user is there to answer."""
        return None

    @property
    def has_new_decision(self) -> bool:
        """Whether a decision on a postponed call was stored meanwhile."""
        return any(self._lease.decision(digest) is not None for digest in self._postponed)
