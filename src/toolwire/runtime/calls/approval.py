"""Asking a person: whether a call may be run, or what only they know.

An answer counts for one call: the run, the call's id, the tool and the exact text of the arguments are bound together,
so that it can't be used for another, and a call that changed must be asked again.
"""

import hashlib
import hmac
from typing import Literal, Protocol

import msgspec
from msgspec import Struct

ApprovalAnswer = Literal["yes", "no", "always", "later"]
"""`always`: this tool need not ask again in this run. `later`: the run waits."""


def approval_digest(run: str, call_id: str, tool: str, arguments: str) -> str:
    """What an approval is for. The list is written so that no two calls give the same text."""
    return hashlib.sha256(msgspec.json.encode([run, call_id, tool, arguments])).hexdigest()


class ApprovalRequest(Struct, frozen=True, kw_only=True):
    """A call that a person is to decide on. `why` says which rule wants that; `preview` is what would change; `allow`
    are the rules that would spare them the question, if any can. `in_person`: no flag may answer for them."""

    run: str
    call_id: str
    tool: str
    arguments: str
    reason: str
    preview: str | None = None
    suggested_rules: tuple[str, ...] = ()
    requires_human: bool = False

    @property
    def digest(self) -> str:
        return approval_digest(self.run, self.call_id, self.tool, self.arguments)


class Approval(Struct, frozen=True, kw_only=True):
    """What was decided, for which call, and by whom: a person, a rule, `--yes`, or nobody."""

    answer: Literal["yes", "no"]
    digest: str
    decided_by: str
    reason: str = ""

    def covers(self, run: str, call_id: str, tool: str, arguments: str) -> bool:
        same = hmac.compare_digest(self.digest, approval_digest(run, call_id, tool, arguments))
        return self.answer == "yes" and same


class Approver(Protocol):
    """Who can be asked. `name` stands in the record; `answer` gives None if there is none."""

    name: str

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer: ...
    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None: ...


class NoApprover:
    """No terminal: what would be asked is denied."""

    name = "nobody"

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        return "no"

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        return None


class AutoApprover:
    """`--yes`: asks are answered with yes; questions, and what only a person may answer, still go to somebody else."""

    name = "--yes"

    def __init__(self, fallback: Approver | None = None) -> None:
        self._fallback = fallback or NoApprover()

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.name = self._fallback.name if request.requires_human else "--yes"
        return await self._fallback.approve(request) if request.requires_human else "yes"

    async def answer(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        return await self._fallback.answer(question, choices)
