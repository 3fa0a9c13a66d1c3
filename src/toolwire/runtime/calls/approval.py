"""Approval of tool calls by a user.

An approval is bound to the run, call id, tool and exact argument text. It covers no other call, and a call whose
arguments change needs a new one.
"""

import hashlib
import hmac
from typing import Literal, Protocol

import msgspec
from msgspec import Struct

ApprovalAnswer = Literal["yes", "no", "always", "later"]
"""An approver's answer: `always` approves all later calls of this tool in the run; `later` pauses the run."""

NO_APPROVER = "nobody"
"""`Approver.name` where no user can be asked."""


def approval_digest(run: str, call_id: str, tool: str, arguments: str) -> str:
    """Compute the hex digest that binds an approval to one call with exactly these arguments."""
    # As a JSON list, no two different calls can encode to the same text.
    return hashlib.sha256(msgspec.json.encode([run, call_id, tool, arguments])).hexdigest()


class ApprovalRequest(Struct, frozen=True, kw_only=True):
    """A request to approve one call."""

    run: str
    call_id: str
    tool: str
    arguments: str
    """Exact argument text."""
    reason: str
    """The rule or default that requires approval."""
    preview: str | None = None
    """Description of the call's effect."""
    suggested_rules: tuple[str, ...] = ()
    """Rules that would allow such calls without asking; empty if none can."""
    requires_human: bool = False
    """Neither `--yes` nor an earlier approval may approve the call."""

    @property
    def digest(self) -> str:
        """Digest of the call; the approval must carry the same."""
        return approval_digest(self.run, self.call_id, self.tool, self.arguments)


class Approval(Struct, frozen=True, kw_only=True):
    """A decision on one call."""

    answer: Literal["yes", "no"]
    digest: str
    """`approval_digest` of the call."""
    decided_by: str
    """Name of the approver, such as `person` or `--yes`."""
    reason: str = ""

    def covers(self, run: str, call_id: str, tool: str, arguments: str) -> bool:
        """Return True if this approves exactly the given call."""
        same = hmac.compare_digest(self.digest, approval_digest(run, call_id, tool, arguments))
        return self.answer == "yes" and same

    @property
    def summary(self) -> str:
        """The decision in words, such as `approved by --yes`."""
        if self.decided_by == NO_APPROVER and self.answer == "no":
            return "denied: no approver available"
        return f"{'approved' if self.answer == 'yes' else 'denied'} by {self.decided_by}"


class Approver(Protocol):
    """Asks the user to approve calls and to answer questions of tools."""

    name: str
    """Recorded as `Approval.decided_by`."""

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Ask whether a call may run."""
        ...

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        """Ask a question; None if the user gives no answer."""
        ...


class NoApprover:
    """Denies every request, for processes without a user to ask."""

    name = NO_APPROVER

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Deny the call."""
        return "no"

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        """Return None, since there is no user to answer."""
        return None


class AutoApprover:
    """Approves every request, as with `--yes`.

    Questions, and requests that require a human, go to the fallback approver.
    """

    name = "--yes"

    def __init__(self, fallback: Approver | None = None) -> None:
        self._fallback = fallback or NoApprover()

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Approve the call, unless only a person may: then ask the fallback."""
        self.name = self._fallback.name if request.requires_human else "--yes"
        return await self._fallback.approve(request) if request.requires_human else "yes"

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        """Pass the question to the fallback approver."""
        return await self._fallback.answer(question, choices)
