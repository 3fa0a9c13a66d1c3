"""Reports of recorded runs: turns, calls with their results, screenshots, and pending approvals."""

import base64
import binascii
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from toolwire.canonical.content import Inline, Media, Message, Part, Reasoning, ReasoningText, Text
from toolwire.codec.escapes import escape_controls
from toolwire.gateway.config import Config, runs_location
from toolwire.journal.redaction import Redactor
from toolwire.journal.runs import RunStore, StoredRun, approval_command, decode_stored
from toolwire.runtime.run.events import RunEnded
from toolwire.runtime.run.recorded_run import RecordedCall, RecordedTurn, read_turns

MAX_RUNS = 200
MAX_TEXT = 20_000
_MAX_PROMPT = 300
_PICTURE_TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif")


class RunFacts(Struct):
    """The part of a run's metadata that is shown."""

    agent: str = ""
    model: str = ""
    messages: tuple[Message, ...] = ()
    facts: dict[str, str] = field(default_factory=dict)


class RunReports:
    """Reads the store of runs, which is opened for each request because other processes write it."""

    def __init__(self, config: Config, environment: Mapping[str, str], redactor: Redactor) -> None:
        self._location = runs_location(config, environment)
        self._redactor = redactor

    def list_runs(self) -> bytes:
        """Return the latest runs as JSON, newest first."""
        if self._is_missing:
            return b"[]"
        with closing(RunStore(self._location)) as store:
            return self._encode([self._summary(store, run) for run in store.latest(MAX_RUNS)])

    def show_run(self, id: str) -> bytes | None:
        """Return one run with its turns as JSON; None if it is unknown."""
        if self._is_missing:
            return None
        with closing(RunStore(self._location)) as store:
            if not store.has(id):
                return None
            run = store.find(id)
            pictures = iter(range(1_000_000))
            turns = [_turn_as_json(turn, pictures, run) for turn in read_turns(store.steps(id))]
            return self._encode(self._summary(store, run) | {"prompt": _prompt(run)[:MAX_TEXT], "turns": turns})

    def find_picture(self, id: str, number: int) -> tuple[bytes, str] | None:
        """Return a picture of a run and its media type; None if there is none."""
        if self._is_missing:
            return None
        with closing(RunStore(self._location)) as store:
            if not store.has(id):
                return None
            parts = [part for turn in read_turns(store.steps(id)) for part in _pictures(turn)]
        if not 0 <= number < len(parts):
            return None
        part = parts[number]
        try:
            data = base64.b64decode(part.source.data) if isinstance(part.source, Inline) else b""
        except (binascii.Error, ValueError):
            return None
        return data, part.media_type or ""

    @property
    def _is_missing(self) -> bool:
        """Return whether there is no store yet."""
        return isinstance(self._location, Path) and not self._location.exists()

    def _summary(self, store: RunStore, run: StoredRun) -> dict[str, Any]:
        """Return the row of a run."""
        facts, ended = _facts(run), None
        if run.end_event is not None:
            ended = decode_stored(run.end_event, RunEnded, f"the end of the run {run.id}")
        state = ended.stopped if ended is not None else _unfinished_state(store, run)
        summary = {
            "id": run.id,
            "at": run.at,
            "state": state,
            "agent": facts.agent,
            "model": facts.model,
            "workspace": facts.facts.get("workspace", ""),
            "prompt": _prompt(run)[:_MAX_PROMPT],
        }
        if ended is not None:
            summary |= {"turns_count": ended.turns, "calls_count": ended.calls, "reason": ended.reason[:MAX_TEXT]}
            summary["usage"] = None if ended.usage is None else _usage(ended.usage)
        return summary

    def _encode(self, value: Any) -> bytes:
        """Return a value as JSON without secrets."""
        return self._redactor.redact_bytes(msgspec.json.encode(value))


def _unfinished_state(store: RunStore, run: StoredRun) -> str:
    """Return "running", "queued" for workers, or "interrupted" if its process is gone."""
    if store.is_held(run.id):
        return "running"
    return "interrupted" if run.queue is None else "queued"


def _facts(run: StoredRun) -> RunFacts:
    """Return the metadata of a run."""
    return decode_stored(run.metadata, RunFacts, f"the run {run.id}")


def _prompt(run: StoredRun) -> str:
    """Return the text of the message that started a run."""
    messages = _facts(run).messages
    return _message_text(messages[-1]) if messages else ""


def _message_text(message: Message) -> str:
    """Join the text parts of a message."""
    return "".join(part.text for part in message.parts if isinstance(part, Text))


def _usage(usage: Any) -> dict[str, int | None]:
    """Return the token counts that are shown."""
    return {"input": usage.input_tokens, "output": usage.output_tokens, "cache_read": usage.cache_read}


def _turn_as_json(turn: RecordedTurn, pictures: Iterator[int], run: StoredRun) -> dict[str, Any]:
    """Return a turn and its calls as JSON data."""
    proposed = {id: (call.name, call.arguments) for id, call in turn.proposed_calls}
    reasoning = [part for message in turn.messages for part in message.parts if isinstance(part, Reasoning)]
    thoughts = [passage.text for part in reasoning for passage in part.content if isinstance(passage, ReasoningText)]
    calls = [
        _call_as_json(id, *proposed.get(id, ("", "")), turn.calls.get(id), pictures)
        for id in dict.fromkeys([*proposed, *turn.calls])
    ]
    for call in calls:
        if call["state"] == "waiting":
            call["command"] = escape_controls(approval_command(run.id, call["id"], run.queue))
    return {
        "turn": turn.number,
        "at": turn.started_at,
        "seconds": None if turn.finished_at is None else turn.finished_at - turn.started_at,
        "text": "".join(map(_message_text, turn.messages))[:MAX_TEXT],
        "thinking": "\n".join(thoughts)[:MAX_TEXT],
        "usage": None if turn.response is None or turn.response.usage is None else _usage(turn.response.usage),
        "calls": calls,
    }


def _call_as_json(
    id: str, name: str, arguments: str, call: RecordedCall | None, pictures: Iterator[int]
) -> dict[str, Any]:
    """Return a call as JSON data, with its approval and its result."""
    fields: dict[str, Any] = {"id": id, "tool": name, "arguments": arguments[:MAX_TEXT], "state": "not run"}
    if call is None:
        return fields
    source = call.intent or call.approval_request
    if not name and source is not None:
        fields |= {"tool": source.tool, "arguments": source.arguments[:MAX_TEXT], "is_nested": True}
    if call.decision is not None:
        approval = call.decision.approval
        fields["decision"] = f"{approval.answer} by {approval.decided_by}"
    if call.is_waiting and call.approval_request is not None:
        request = call.approval_request
        fields |= {"state": "waiting", "reason": request.reason, "preview": (request.preview or "")[:MAX_TEXT]}
    elif call.is_in_doubt:
        fields["state"] = "in doubt"
    elif call.outcome is not None:
        fields["state"] = call.outcome.result.status
    elif call.intent is not None:
        fields["state"] = "not finished"
    if call.outcome is not None:
        record, parts = call.outcome.record, call.outcome.result.content or ()
        fields["seconds"] = record.end - record.start
        fields["approval"] = record.approval
        fields["error"] = record.error
        fields["result"] = "\n".join(part.text for part in parts if isinstance(part, Text))[:MAX_TEXT]
        fields["pictures"] = [next(pictures) for part in parts if _is_picture(part)]
    return fields


def _pictures(turn: RecordedTurn) -> Iterator[Media]:
    """Yield the pictures in the results of a turn, in the order of its calls."""
    proposed = [id for id, _ in turn.proposed_calls]
    for id in dict.fromkeys([*proposed, *turn.calls]):
        call = turn.calls.get(id)
        if call is not None and call.outcome is not None:
            for part in call.outcome.result.content or ():
                if isinstance(part, Media) and _is_picture(part):
                    yield part


def _is_picture(part: Part) -> bool:
    """Return whether a part is a picture that a browser shows."""
    return isinstance(part, Media) and isinstance(part.source, Inline) and part.media_type in _PICTURE_TYPES
