"""A call from outside any conversation, under the same rules as a model's: validated, authorised, bounded, recorded."""

import itertools
import json
import secrets
import time
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from toolwire.canonical.content import Text, ToolCall
from toolwire.journal.secrets import Redactor
from toolwire.runtime.approval import Approval, Nobody, Person
from toolwire.runtime.consider import Caller, consider
from toolwire.runtime.events import CallProgressed, RunEvent
from toolwire.runtime.execute import Executor
from toolwire.runtime.outputs import as_output
from toolwire.runtime.policy import Policy
from toolwire.runtime.state import Pending, State
from toolwire.runtime.steps import Remembered, Steps
from toolwire.runtime.toolbox import Toolbox
from toolwire.runtime.toolset import Arguments, Calling, Output, Tool


class Carrying:
    """The one way to a tool of this toolbox. `steps` keeps what was done, under the name `run`; `tell` is told."""

    def __init__(
        self,
        toolbox: Toolbox,
        policy: Policy,
        *,
        redactor: Redactor | None = None,
        steps: Steps | None = None,
        tell: Callable[[RunEvent], None] = lambda _: None,
    ) -> None:
        self._toolbox = toolbox
        self._policy = policy
        self._redactor = redactor or Redactor(())
        self._tell = tell
        self.steps = steps
        self.run = f"mcp_{time.strftime('%Y%m%d%H%M%S', time.gmtime())}_{secrets.token_hex(4)}"
        self.calls = 0

    async def __call__(
        self, name: str, arguments: Arguments, /, *, person: Person, progress: Callable[[str], None]
    ) -> Output:
        self.calls += 1
        return await self._carried(_call(f"call_{self.calls}", name, arguments), person, progress)

    async def _carried(
        self, call: ToolCall, person: Person, progress: Callable[[str], None], caller: Caller = "direct"
    ) -> Output:
        id = call.id or ""
        pending = consider(call, id, await self._toolbox.catalog(), self._policy, caller=caller)
        if pending.undecided:
            pending.approval = await self._approval(pending, person)
        gave = list[Output]()
        if pending.tool is not None:
            pending.tool = _overheard(pending.tool, gave)
        counts = itertools.count(1)

        def tell(event: RunEvent) -> None:
            self._tell(event)
            if isinstance(event, CallProgressed) and event.call_id == id:
                progress(event.text)

        async def inner(outer: Pending, tool: str, given: Arguments, number: str | None) -> Output:
            return await self._carried(
                _call(f"{outer.id}/{number or next(counts)}", tool, given), person, progress, "code"
            )

        executor = Executor(
            run=self.run,
            steps=Remembered() if self.steps is None else self.steps,
            person=person,
            parallel=1,
            redactor=self._redactor,
            tell=tell,
            inner=inner,
            recent=self._toolbox.recent,
            apart=self._toolbox.apart,
        )
        outcome = await executor.of_model("1", pending)
        if outcome is None:
            return Output(content=(Text(text="it waits for an approval, and here nothing waits"),), is_error=True)
        result = outcome.result
        failed = result.status != "ok"
        return Output(
            content=result.content or (),
            is_error=failed,
            kind=outcome.record.error,
            structured=None if failed or not gave else self._cleaned(gave[-1]),
        )

    async def _approval(self, pending: Pending, person: Person) -> Approval:
        ask = State(run=self.run).ask(pending)
        yes = await person.approve(ask) in ("yes", "always")
        why = f"{pending.by}, and nobody is there to ask" if isinstance(person, Nobody) else ""
        return Approval(answer="yes" if yes else "no", binding=ask.binding, by=person.name, why=why)

    def _cleaned(self, output: Output) -> object:
        """Structured content is bounded by the message that it came in; secrets are taken out of it as of text."""
        if output.structured is None:
            return None
        try:
            return msgspec.json.decode(self._redactor.data(msgspec.json.encode(output.structured)))
        except msgspec.DecodeError:
            return None


def _call(id: str, name: str, arguments: Arguments) -> ToolCall:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ToolCall(id=id, name=name, arguments=text)


def _overheard(tool: Tool, gave: list[Output]) -> Tool:
    """The record of a call has no structured content: it is listened to where it comes from."""

    async def run(arguments: Arguments, calling: Calling) -> Output:
        gave.append(as_output(await tool.run(arguments, calling)))
        return gave[-1]

    return replace(tool, run=run)
