"""Where a run stands: what was said, what the model asked for, and what was decided about it.

`step` gives a state before anything is executed. What was asked for can then be approved, denied, or answered by hand.
"""

import json
from collections.abc import Generator, Iterable
from typing import Any

from msgspec import Struct, field

from toolwire.canonical.content import Message, ToolCall
from toolwire.canonical.errors import ToolwireError
from toolwire.canonical.response import Usage

from .approval import Approval, Ask
from .events import StoppedBy
from .expanding import free_id
from .outputs import as_output
from .policy import NO_RULE, Rule, Verdict, rules_for
from .toolset import Arguments, Output, Tool
from .validate import Invalid, parse_input, read_arguments


class Origin(Struct, frozen=True):
    """The answer that calls came in: its id, the model as it was asked for, and what the model calls itself."""

    response: str = ""
    provider: str = ""
    version: str = ""


class Pending(Struct, kw_only=True):
    """A call that the model asked for. `refused`: why it can't be run, whoever allows it; `output`: it was answered by
    hand, or is not to be run. `by_code`: a program wants it, and can use data. `input` is the exact text of the
    arguments that run, None if there are no valid ones: the model's own, repaired, or `edited` by who approved them."""

    call: ToolCall
    id: str
    input: str | None = None
    edited: bool = False
    repairs: tuple[str, ...] = ()
    tool: Tool | None = None
    verdict: Verdict = "deny"
    by: str = ""
    refused: str = ""
    kind: str = ""
    approval: Approval | None = None
    output: Output | None = None
    by_code: bool = False

    @property
    def arguments(self) -> Arguments:
        """The arguments that run, read from `input` anew: changing what is returned here changes nothing."""
        return None if self.input is None or self.tool is None else parse_input(self.tool, self.input)

    @property
    def text(self) -> str:
        """The text that an approval is bound to."""
        return self.call.arguments if self.input is None else self.input

    @property
    def undecided(self) -> bool:
        return self.verdict == "ask" and self.approval is None and self.output is None


def identified(turn: int, calls: Iterable[ToolCall]) -> list[tuple[str, ToolCall]]:
    """Calls by ids that no other one of their turn has: some providers give none."""
    found: dict[str, ToolCall] = {}
    for place, call in enumerate(calls):
        found[free_id(call.id or f"call_{turn}_{place}", place, found)] = call
    return list(found.items())


class State(Struct, kw_only=True):
    """`rules` are those that a person added on the way; `stopped` is None while it can go on. `recent` are digests of
    the last turns' calls, by which a run that goes in circles is seen."""

    run: str
    messages: tuple[Message, ...] = ()
    turn: int = 0
    pending: list[Pending] = field(default_factory=list)
    text: str = ""
    usage: Usage | None = None
    calls: int = 0
    rules: tuple[Rule, ...] = ()
    stopped: StoppedBy | None = None
    why: str = ""
    recent: tuple[bytes, ...] = ()
    origin: Origin = Origin()
    began: float = 0.0
    working: Any = None

    def __await__(self) -> Generator[Any, None, "State"]:
        """In asynchronous code a state is ready when it was awaited."""
        working, self.working = self.working, None
        if working is not None:
            yield from working.__await__()
        return self

    @property
    def asks(self) -> list[Ask]:
        """What a person still has to decide."""
        return [self.ask(one) for one in self.pending if one.undecided]

    def ask(self, pending: Pending) -> Ask:
        call, tool = pending.call, pending.tool
        preview, allow, in_person = None, tuple[str, ...](), False
        if tool is not None:
            preview, in_person = tool.preview(pending.arguments), tool.in_person(pending.arguments)
            allow = rules_for(tool, pending.arguments) if pending.by == NO_RULE else ()
        return Ask(
            run=self.run,
            call_id=pending.id,
            tool=call.name,
            arguments=pending.text,
            why=pending.by,
            preview=preview,
            allow=allow,
            in_person=in_person,
        )

    def approve(self, call_id: str, by: str = "caller", *, arguments: Arguments = None) -> None:
        """Allow one call, as it stands now or with other `arguments`. The model is told which ones ran."""
        pending = self._waiting(call_id)
        if arguments is not None:
            self._edit(pending, arguments)
        pending.approval = Approval(answer="yes", binding=self.ask(pending).binding, by=by)

    def _edit(self, pending: Pending, arguments: Arguments) -> None:
        if pending.tool is None:
            raise ToolwireError(f"{pending.call.name} is no tool of this agent: no arguments can be given to it")
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        try:
            read_arguments(pending.tool, text)
        except Invalid as invalid:
            raise ToolwireError(str(invalid)) from None
        pending.input, pending.edited, pending.repairs = text, True, ()
        pending.refused = pending.kind = ""

    def deny(self, call_id: str, why: str = "", by: str = "caller") -> None:
        pending = self._waiting(call_id)
        pending.approval = Approval(answer="no", binding=self.ask(pending).binding, by=by, why=why)

    def answer(self, call_id: str, output: Any, *, is_error: bool = False) -> None:
        """Take a call over: this is its result, and nothing is run."""
        given = as_output(output)
        self._waiting(call_id).output = Output(
            content=given.content, structured=given.structured, is_error=is_error or given.is_error
        )

    def _waiting(self, call_id: str) -> Pending:
        for one in self.pending:
            if one.id == call_id:
                return one
        known = ", ".join(one.id for one in self.pending) or "none"
        raise ToolwireError(f"no call {call_id!r} is waiting; those that are: {known}")
