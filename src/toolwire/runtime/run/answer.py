"""The answer of a run: requested as text, by a response format or by a tool, then converted, continued or corrected."""

import msgspec
from msgspec.structs import replace

from toolwire.canonical.content import Message, Text
from toolwire.canonical.errors import ToolwireError
from toolwire.canonical.tools import OutputFormat
from toolwire.canonical.tools import Tool as Declared
from toolwire.runtime.calls.executor import CallOutcome
from toolwire.runtime.model import Model
from toolwire.runtime.run.output import OUTPUT_TOOL, InvalidOutput
from toolwire.runtime.run.settings import RunSettings
from toolwire.runtime.run.state import PendingCall, RunState
from toolwire.runtime.run.step_log import StepLog
from toolwire.runtime.tool import ToolCatalog

_CONTINUE_PROMPT = "Your answer was cut off by the output limit. Continue it exactly where it stopped."


class AnswerCollector:
    """Obtains the answer that ends a run, in the type that the agent requires."""

    def __init__(self, settings: RunSettings, step_log: StepLog) -> None:
        """Collect the answer of one agent."""
        self._settings = settings
        self._step_log = step_log
        self.response_format: OutputFormat | None = None
        """The format to request in this turn."""
        self.has_tool = False
        """Whether the model answers in this turn by the tool `final_answer`."""

    def declare(
        self, model: Model, catalog: ToolCatalog, declarations: tuple[Declared, ...]
    ) -> tuple[ToolCatalog, tuple[Declared, ...]]:
        """Request the output type in this turn; return the tools with `final_answer` where the model needs it."""
        self.response_format, self.has_tool = None, False
        output = self._settings.output
        if output is None:
            return catalog, declarations
        accepts_format = getattr(model, "accepts_output_format", None)
        response_format = output.response_format()
        if accepts_format is None or accepts_format(response_format, has_tools=bool(declarations)):
            self.response_format = response_format
            return catalog, declarations
        if OUTPUT_TOOL in catalog.tools:
            raise ToolwireError(f"a tool of an agent with an output type can't have the name {OUTPUT_TOOL!r}")
        self.has_tool, tool = True, output.tool()
        catalog = replace(catalog, tools={**catalog.tools, OUTPUT_TOOL: tool})
        return catalog, (*declarations, tool.declaration())

    def is_answer(self, name: str) -> bool:
        """Return whether a call of a tool gives the answer."""
        return self.has_tool and name == OUTPUT_TOOL

    def continue_text(self, state: RunState) -> bool:
        """Ask the model to continue an answer that reached its own output limit; return False if that is not possible.

        A limit that the user set stops the run instead.
        """
        is_limited = self._settings.model.get("max_tokens") is not None
        if is_limited or not state.text or state.continuations >= self._settings.limits.continuations:
            return False
        state.continuations += 1
        state.text_before = state.text
        self._add_prompt(state, _CONTINUE_PROMPT)
        return True

    def take_text(self, state: RunState) -> None:
        """Stop the run with the text of the last response as its answer, or ask the model to correct it."""
        error = self._set_output(state, state.text)
        if error is not None and state.stopped is None:
            instruction = f"Call {OUTPUT_TOOL} with it." if self.has_tool else "Answer with the corrected JSON only."
            self._add_prompt(state, f"The answer does not match the required type: {error}\n{instruction}")

    def take_call(self, state: RunState, pending: PendingCall, outcome: CallOutcome) -> None:
        """Stop the run with the answer in a call of `final_answer`, if it was accepted."""
        if outcome.result.status == "ok":
            state.text = pending.arguments_text
            self._set_output(state, state.text)
        else:
            self._count_error(state, outcome.record.summary)

    def _set_output(self, state: RunState, text: str) -> str | None:
        """Stop the run with an answer; if it is invalid, count and return the error."""
        output = self._settings.output
        try:
            state.output = text if output is None else output.parse(text)
        except InvalidOutput as error:
            self._count_error(state, str(error))
            return str(error)
        state.stopped = "finished"
        return None

    def _count_error(self, state: RunState, error: str) -> None:
        """Count an invalid answer, and stop the run if there are too many."""
        state.output_errors += 1
        if state.output_errors > self._settings.output_retries:
            state.stopped, state.reason = "output", f"the answer does not match the output type: {error}"

    def _add_prompt(self, state: RunState, text: str) -> None:
        """Add a prompt written by toolwire, and record it, so that a later run can continue the conversation."""
        state.messages += (Message(role="user", parts=(Text(text=text),)),)
        self._step_log.begin(f"prompt/{state.turn}", b"")
        self._step_log.finish(f"prompt/{state.turn}", msgspec.json.encode(text))
