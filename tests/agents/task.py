"""The task that every agent performs, and the scripted model that plays its calls step by step.

The model writes a file with difficult content, runs a command on it, reads it back, makes three parallel calls, and
then reports data that only the results contain. The step is derived from the history, so that a repeated request gets
the same response.
"""

import hashlib
import secrets
from base64 import b64decode
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tests.support.bodies.computer_use import white_png
from toolwire.canonical.content import OpaquePart, Text, ToolCall
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FreeformTool, FunctionTool
from toolwire.translation.compaction import COMPACTION, SUMMARY_INTRODUCTION, SUMMARY_PROMPT
from toolwire.upstream.simulator.prompt import read_prompt
from toolwire.upstream.simulator.provider_traits import PROVIDER_TRAITS, is_thinking_enabled
from toolwire.upstream.simulator.script import Script, ScriptedCall, ScriptedError, ScriptedTurn

PROMPT = "Kindly do what we agreed upon, then tell me what came of it."
FOLLOW_UP = "Go on with it, and tell me again."
DIFFICULT_TEXT = 'Grüße, "Welt"\n\t𝄞 \\ \\n </script> \u2028 日本 `$HOME` {"a": [1, 2.0]} %s\'\n'


FAILURE = "Not now, says the script."
FAILURES = (
    ScriptedTurn(error=ScriptedError(kind="rate_limit", message=FAILURE, retry_after=1)),
    ScriptedTurn(error=ScriptedError(kind="overloaded", message=FAILURE)),
    ScriptedTurn(text="Let me see what we", cut=3),
)
"""Rate limit, overload, and a stream that is cut off."""


SUMMARY_PROMPTS = (SUMMARY_PROMPT, "You are performing a CONTEXT CHECKPOINT COMPACTION")
"""Texts by which the gateway and Codex ask for a summary."""
SUMMARY_END = "calls were made."
SUMMARY_OPENINGS = (
    SUMMARY_INTRODUCTION,
    "Another language model started to solve this problem",  # Codex
    "This session is being continued from a previous conversation",  # Claude Code
)
"""The beginnings of the texts that stand for a compacted conversation."""


class Call(Struct, frozen=True):
    """A call with the agent's tool name, and its arguments, or the text of a free-text tool."""

    tool: str
    arguments: dict[str, object] | str


class Task(Struct, frozen=True):
    """The task in this folder, with words that occur only in its files."""

    folder: Path
    words: tuple[str, str, str]

    @property
    def note(self) -> Path:
        return self.folder / "note.txt"

    @property
    def digest(self) -> str:
        return hashlib.sha256(DIFFICULT_TEXT.encode()).hexdigest()

    @property
    def picture(self) -> Path:
        return self.folder / "picture.png"

    def secret_file(self, number: int) -> Path:
        return self.folder / f"secret-{number}.txt"

    @property
    def command(self) -> str:
        return f"sha256sum {self.note}"

    @property
    def restart_marker(self) -> Path:
        """Return the file that marks that the gateway may restart; it is renamed afterwards."""
        return self.folder.parent / "gateway" / "restart"

    @property
    def restarted_marker(self) -> Path:
        return self.restart_marker.with_name("restarted")

    @property
    def restart_command(self) -> str:
        """Return a command that waits until the gateway has restarted."""
        return f"touch {self.restart_marker}; while [ ! -e {self.restarted_marker} ]; do sleep 0.05; done"


def prepare_task(folder: Path) -> Task:
    task = Task(folder, (secrets.token_hex(8), secrets.token_hex(8), secrets.token_hex(8)))
    for number, word in enumerate(task.words):
        task.secret_file(number).write_text(f"{word}\n")
    task.picture.write_bytes(b64decode(white_png(16, 16)))
    return task


class TaskScript(Script):
    """A script that plays the steps for requests with the required tools; others get the simulator's response.

    It responds without calls after `pause` calls, until the user continues. The first `failures` steps fail. With a
    `dialect`, calls and thinking are written into the text.
    """

    def __init__(
        self, steps: list[list[Call]], pause: int | None = None, failures: int = 0, dialect: str | None = None
    ) -> None:
        self._steps = steps
        self._pause = pause
        self._dialect = dialect
        self.failures = list(FAILURES[:failures])
        # The last calls and the reasoning before them, by the number of earlier calls.
        self.calls_by_step: dict[int, tuple[ScriptedCall, ...]] = {}
        self.reasoning_by_step: dict[int, str] = {}
        # The number of calls before a compaction, by what stands for them in the history.
        self.compacted: dict[str, int] = {}
        self._issued = 0

    def next_turn(self, request: Request, protocol: str) -> ScriptedTurn | None:
        count = sum(isinstance(part, ToolCall) for message in request.messages for part in message.parts)
        if (compaction := find_compaction(request)) is not None:
            count += self.compacted.setdefault(compaction, self._issued)
        if any(_has_text(request, prompt) for prompt in SUMMARY_PROMPTS):
            return ScriptedTurn(text=f"{count} {SUMMARY_END}")
        step = [] if count == self._pause and not _has_text(request, FOLLOW_UP) else self._step(count)
        # An upstream without namespaces gets the last part of the name, after the namespace.
        tools = {tool.name.rpartition("__")[2]: tool for tool in read_prompt(request).tools}
        if not step or not {call.tool for call in step} <= tools.keys():
            return None
        if self.failures and count not in self.calls_by_step:
            self.calls_by_step[count] = ()
            return self._failed_turn(step, tools)
        self._issued = max(self._issued, count + len(step))
        self.calls_by_step[count] = calls = tuple(_scripted_call(call, tools[call.tool]) for call in step)
        if _is_thinking(protocol, request):
            self.reasoning_by_step[count] = f"{count} calls are made."
        return ScriptedTurn(thinking=self.reasoning_by_step.get(count), calls=calls, dialect=self._dialect)

    def _failed_turn(self, step: list[Call], tools: dict[str, FunctionTool | FreeformTool]) -> ScriptedTurn:
        failure = self.failures.pop(0)
        calls = tuple(_scripted_call(call, tools[call.tool]) for call in step)
        return failure if failure.error is not None else replace(failure, calls=calls)

    @property
    def calls(self) -> list[tuple[str, dict[str, object] | str | None]]:
        """Return names and arguments of all calls since the last compaction, in order."""
        calls = [call for count, step in sorted(self.calls_by_step.items()) for call in step if count >= self.first]
        return [(call.name, call.arguments if call.input is None else call.input) for call in calls]

    @property
    def first(self) -> int:
        """Return the number of calls before the last compaction."""
        return max(self.compacted.values(), default=0)

    @property
    def reasoning(self) -> set[str]:
        """Return the reasoning since the last compaction."""
        return {text for count, text in self.reasoning_by_step.items() if count >= self.first}

    def _step(self, call_count: int) -> list[Call]:
        """Return the step that follows after this many calls."""
        for step in self._steps:
            if call_count <= 0:
                return step
            call_count -= len(step)
        return []


def find_compaction(request: Request) -> str | None:
    """Return what stands for a compacted conversation in the history; None if nothing does."""
    found = None
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, OpaquePart) and part.kind == COMPACTION:
                found = bytes(part.body).decode()
            elif isinstance(part, Text):  # possibly joined with other texts of the user
                starts = [start for opening in SUMMARY_OPENINGS if (start := part.text.find(opening)) >= 0]
                found = part.text[max(starts) :].partition(SUMMARY_END)[0] if starts else found
    return found


def _is_thinking(protocol: str, request: Request) -> bool:
    """Return whether the model thinks by default: models with unsigned reasoning, such as DeepSeek's and Qwen's, do."""
    unspecified = request.thinking is None or (request.thinking.enabled is None and request.thinking.effort is None)
    return is_thinking_enabled(protocol, request) or (unspecified and PROVIDER_TRAITS[protocol].signed_part is None)


def _has_text(request: Request, words: str) -> bool:
    return any(words in part.text for message in request.messages for part in message.parts if isinstance(part, Text))


def _scripted_call(call: Call, tool: FunctionTool | FreeformTool) -> ScriptedCall:
    """Return the call for this upstream; one without free-text tools got a function in its place."""
    if isinstance(tool, FreeformTool) and isinstance(call.arguments, str):
        return ScriptedCall(name=tool.name, namespace=tool.namespace, input=call.arguments)
    arguments = {"input": call.arguments} if isinstance(call.arguments, str) else call.arguments
    return ScriptedCall(name=tool.name, namespace=tool.namespace, arguments=arguments)
