"""Having calls decided on: by what was decided before, or by asking a person, one question after the other."""

import asyncio
from typing import Literal

import msgspec
from msgspec import Struct

from toolwire.journal.runs import decode_entry

from .approval import Answer, Approval, Ask, Person
from .policy import Rule
from .state import Pending, State
from .steps import Steps
from .toolset import Postponed


class Decided(Struct, frozen=True):
    """An approval as it is kept. `always`: the tool need not ask again in this run, as long as its definition has this
    digest."""

    approval: Approval
    always: bool = False
    definition: str = ""


class Deciding:
    """For one run."""

    def __init__(self, steps: Steps, person: Person) -> None:
        self._steps = steps
        self._person = person
        self._asking = asyncio.Lock()

    async def decide(self, state: State, pending: Pending) -> None:
        """A call that stays undecided is one of which somebody will be asked later."""
        ask, name = state.ask(pending), f"approval/{state.turn}/{pending.id}"
        async with self._asking:  # what is said of one call can be meant for the next
            if (known := self._steps.outcome(name)) is not None:
                decided: Decided | None = decode_entry(known, Decided, f"the step {name}")
            elif not ask.in_person and _covered(state.rules, pending):
                pending.approval = Approval(answer="yes", binding=ask.binding, by="always for this run")
                return
            else:
                decided = await self._asked(name, ask, "" if pending.tool is None else pending.tool.digest)
            if decided is None:
                return
            pending.approval = decided.approval
            rule = Rule("allow", pending.call.name, definition=decided.definition)
            if decided.always and rule not in state.rules:
                state.rules += (rule,)
                self._steps.finish(_always(state), msgspec.json.encode(state.rules))

    async def _asked(self, name: str, ask: Ask, definition: str) -> Decided | None:
        self._steps.begin(name, msgspec.json.encode(ask))
        answer: Answer = await self._person.approve(ask)
        if answer == "later":
            return None
        said: Literal["yes", "no"] = "no" if answer == "no" else "yes"
        why = "" if self._person.name != "nobody" else f"{ask.why}, and nobody is there to ask"
        approval = Approval(answer=said, binding=ask.binding, by=self._person.name, why=why)
        decided = Decided(approval, always=answer == "always", definition=definition)
        self._steps.finish(name, msgspec.json.encode(decided))
        return decided

    def recall(self, state: State) -> None:
        """What was said of this turn for all of the run: of what a tool called, nobody is asked again."""
        if (known := self._steps.outcome(_always(state))) is not None:
            state.rules = decode_entry(known, tuple[Rule, ...], f"the step {_always(state)}")


def wait_or_deny(state: State, outer: Pending, pending: Pending) -> None:
    """Somebody will be asked later: only a tool that can be taken up again can wait for that."""
    if outer.tool is not None and outer.tool.resumable:
        raise Postponed
    why = f"the answer is to come later, and {outer.call.name} can't wait for it"
    pending.approval = Approval(answer="no", binding=state.ask(pending).binding, by="nobody", why=why)


def _always(state: State) -> str:
    return f"always/{state.turn}"


def _covered(rules: tuple[Rule, ...], pending: Pending) -> bool:
    tool = pending.tool
    return tool is not None and any(rule.verdict == "allow" and rule.matches(tool, {}) for rule in rules)
