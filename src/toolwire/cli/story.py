"""A kept run as it is told: in a line, on a page, as JSON; never with its secrets."""

import difflib
import os
import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from toolwire.agent import About
from toolwire.canonical.content import Media, Message, Part, Text
from toolwire.codec.pictures import size_of
from toolwire.gateway.config import Config
from toolwire.gateway.providing import configured
from toolwire.gateway.recording import secrets_of
from toolwire.journal.runs import KeptRun, Runs, decode_entry
from toolwire.journal.secrets import Redactor
from toolwire.runtime.approval import Ask
from toolwire.runtime.events import RunEnded
from toolwire.runtime.recorded import RecordedCall, RecordedTurn, turns_of
from toolwire.runtime.replaying import Compared

from .printable import in_one_line, shown, spelled
from .view import tokens

_MOST_OF_A_RESULT = 2000
_MOST_DIFFERING = 40


class Story:
    """One run. `state`: running, waiting, interrupted (its process is gone), or how it ended."""

    def __init__(self, runs: Runs, kept: KeptRun, redactor: Redactor) -> None:
        self.id = kept.id
        self.at = kept.at
        self.redactor = redactor
        self.about = decode_entry(kept.about, About, f"the run {kept.id}")
        self.ended = None if kept.ended is None else decode_entry(kept.ended, RunEnded, f"the end of the run {kept.id}")
        self._runs = runs

    @cached_property
    def state(self) -> str:
        if self.ended is not None:
            return self.ended.stopped
        return "running" if self._runs.is_held(self.id) else "interrupted"

    @cached_property
    def turns(self) -> list[RecordedTurn]:
        return turns_of(self._runs.steps(self.id))

    @property
    def waiting(self) -> list[Ask]:
        """What nobody decided yet."""
        calls = [call for turn in self.turns for call in turn.calls.values() if call.is_waiting]
        return [call.ask for call in calls if call.ask is not None]

    @property
    def in_doubt(self) -> list[str]:
        """Calls that were under way when the run ended."""
        return [
            id for turn in self.turns for id, call in turn.calls.items() if call.outcome is None and call.is_in_doubt
        ]

    @property
    def prompt(self) -> str:
        return text_of(self.about.messages[-1]) if self.about.messages else ""


def text_of(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Text))


def _redactor(config: Config) -> Redactor:
    return Redactor(tuple(secrets_of(config, configured(config).values())))


def story_of(runs: Runs, config: Config, run: str) -> Story:
    return Story(runs, runs.find(run), _redactor(config))


def stories(runs: Runs, config: Config, count: int, workspace: Path | None) -> Iterator[Story]:
    """The latest ones, the newest first."""
    redactor, folder = _redactor(config), None if workspace is None else os.path.realpath(workspace)
    for kept in runs.latest(count if folder is None else 1000):
        story = Story(runs, kept, redactor)
        if folder in (None, story.about.facts.get("workspace")) and count > 0:
            count -= 1
            yield story


# ---- in a line


def summary(story: Story) -> dict[str, Any]:
    return {
        "id": story.id,
        "at": story.at,
        "state": story.state,
        "model": story.about.model,
        "workspace": story.about.facts.get("workspace", ""),
        "prompt": in_one_line(story.redactor.text(story.prompt), 200),
    }


def headed(story: Story) -> str:
    prompt = in_one_line(story.redactor.text(story.prompt), 60)
    return f"{story.id}  {moment(story.at)}  {story.state:<11}  {in_one_line(story.about.model, 40)}  {prompt}"


def moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


# ---- as JSON


def arguments_of(text: str) -> dict[str, Any]:
    """What a call was given, if that can be read."""
    try:
        read = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    return read if isinstance(read, dict) else {}


def readable(story: Story) -> dict[str, Any]:
    """All of it, as JSON data without secrets."""
    whole = summary(story) | {
        "prompt": story.prompt,
        "turns": [_turn(turn) for turn in story.turns],
        "waiting": [msgspec.to_builtins(ask) for ask in story.waiting],
        "in_doubt": story.in_doubt,
        "ended": None if story.ended is None else msgspec.to_builtins(story.ended),
    }
    return {name: _cleaned(value, story.redactor) for name, value in whole.items()}


def _cleaned(value: Any, redactor: Redactor) -> Any:
    match value:
        case dict():
            return {name: _cleaned(one, redactor) for name, one in value.items()}
        case list() | tuple():
            return [_cleaned(one, redactor) for one in value]
        case str():
            return redactor.text(value)
        case _:
            return value


def _turn(turn: RecordedTurn) -> dict[str, Any]:
    usage = None if turn.response is None else turn.response.usage
    return {
        "turn": turn.number,
        "begun": turn.begun,
        "finished": turn.finished,
        "text": "".join(map(text_of, turn.said)),
        "usage": None if usage is None else msgspec.to_builtins(usage),
        "calls": [_call(id, name, arguments, turn.calls.get(id)) for id, name, arguments in calls_of(turn)],
    }


def calls_of(turn: RecordedTurn) -> list[tuple[str, str, str]]:
    """Those that the model asked for, and those that tools made of them."""
    asked = [(id, call.name, call.arguments) for id, call in turn.proposed]
    known = {id for id, _, _ in asked}
    return asked + [(id, *_made(one)) for id, one in turn.calls.items() if id not in known]


def _made(call: RecordedCall) -> tuple[str, str]:
    found = call.intent or call.ask
    return ("", "") if found is None else (found.tool, found.arguments)


def _call(id: str, name: str, arguments: str, call: RecordedCall | None) -> dict[str, Any]:
    told: dict[str, Any] = {"id": id, "tool": name, "arguments": arguments, "state": state_of(call)}
    if call is not None and call.decided is not None:
        told["decided"] = msgspec.to_builtins(call.decided)
    if call is not None and call.outcome is not None:
        outcome = call.outcome
        told |= {"record": msgspec.to_builtins(outcome.record), "status": outcome.result.status}
        told["result"] = content_of(outcome.result.content)
    return told


def state_of(call: RecordedCall | None) -> str:
    if call is None:
        return "not run"
    if call.is_in_doubt:
        return "in doubt"
    if call.outcome is not None:
        return call.outcome.result.status
    if call.is_half_done:
        return "not finished"
    if call.decided is not None:
        return f"{call.decided.approval.answer} by {call.decided.approval.by}, not run yet"
    return "waiting" if call.is_waiting else "not run"


def content_of(parts: tuple[Part, ...] | None) -> str:
    return "\n".join(map(_part_in_words, parts or ()))


def _part_in_words(part: Part) -> str:
    if isinstance(part, Text):
        return part.text
    if not isinstance(part, Media):
        return f"[{type(part).__name__.lower()}]"
    size = size_of(part)
    return f"[{part.kind}]" if size is None else f"[{part.kind}, {size[0]} x {size[1]}]"


# ---- on a page


def page(story: Story) -> Iterator[str]:
    clean = story.redactor.text
    yield headed(story)
    yield f"workspace {spelled(story.about.facts.get('workspace', ''))}"
    yield f"prompt {shown(clean(story.prompt))}"
    for turn in story.turns:
        usage = "" if turn.response is None else f", {tokens(turn.response.usage)}"
        took = "not answered" if turn.finished is None else f"{turn.finished - turn.begun:.1f}s"
        yield f"\n--- turn {turn.number}, {took}{usage}"
        if text := clean("".join(map(text_of, turn.said))).strip():
            yield shown(text)
        for id, name, arguments in calls_of(turn):
            yield from _call_lines(id, name, clean(arguments), turn.calls.get(id), story.redactor)
    if story.ended is not None:
        why = f": {in_one_line(clean(story.ended.why), 300)}" if story.ended.why else ""
        yield f"\n{story.ended.stopped}{why}"
    for ask in story.waiting:
        yield f"waiting: toolwire runs resume {story.id} --approve {spelled(ask.call_id)}"
    for id in story.in_doubt:
        yield f"in doubt: {spelled(id)} was under way when the run ended"


def _call_lines(id: str, name: str, arguments: str, call: RecordedCall | None, redactor: Redactor) -> Iterator[str]:
    yield f"* {spelled(name)} {spelled(id)}: {state_of(call)}"
    yield f"  arguments {spelled(arguments)}"
    if call is None:
        return
    if call.ask is not None and call.is_waiting:
        yield f"  waits: {spelled(call.ask.why)}"
        if call.ask.preview is not None:
            yield _indented(spelled(redactor.text(call.ask.preview)))
    if call.outcome is None:
        return
    record = call.outcome.record
    noted = [f"{record.end - record.start:.3f}s", spelled(record.approval)]
    noted += [
        f"{count} {what}" for count, what in ((record.retries, "retries"), (record.redacted, "redacted")) if count
    ]
    noted += ["truncated"] if record.truncated else []
    noted += [f"error {record.error}"] if record.error else []
    yield f"  {', '.join(noted)}"
    text = redactor.text(content_of(call.outcome.result.content))
    yield _indented(shown(text[:_MOST_OF_A_RESULT]))
    if len(text) > _MOST_OF_A_RESULT:
        yield f"  ... {len(text)} characters in all: --json has them"


def _indented(text: str) -> str:
    return "\n".join(f"  | {line}" for line in text.rstrip("\n").split("\n"))


# ---- what a replay found


def difference_lines(one: Compared, redactor: Redactor) -> Iterator[str]:
    """A call's differences: texts of several lines as those lines that differ."""
    for found in one.differences:
        place = f"turn {one.turn} {spelled(one.tool)} {spelled(one.id)}"
        if isinstance(found.before, str) and isinstance(found.after, str) and "\n" in found.before + found.after:
            yield f"{place}: {found.kind} {found.path}"
            before, after = (redactor.text(text).splitlines() for text in (found.before, found.after))
            lines = list(difflib.unified_diff(before, after, "then", "now", lineterm="", n=1))
            yield _indented(shown("\n".join(lines[:_MOST_DIFFERING])))
            if len(lines) > _MOST_DIFFERING:
                yield f"  ... {len(lines) - _MOST_DIFFERING} more lines"
        else:
            yield shown(redactor.text(f"{place}: {found}"))
