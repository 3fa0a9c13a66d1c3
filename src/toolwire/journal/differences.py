"""What an exchange came to, told apart field by field from what it came to before."""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import Struct

from toolwire.codec.wire.reader import escape_pointer
from toolwire.journal.records import Record, body_content, recorded_response_body

# What every answer has anew: ids, moments, durations and proofs.
_VOLATILE_FIELDS = frozenset(
    (
        *("id", "call_id", "tool_use_id", "item_id", "interaction_id", "responseId", "system_fingerprint"),
        *("created", "created_at", "completed_at", "updated", "createTime"),
        *("total_duration", "load_duration", "prompt_eval_duration", "eval_duration"),
        *("signature", "thoughtSignature", "thought_signature", "encrypted_content", "obfuscation"),
    )
)
_MAX_VALUE_LENGTH = 120


class Difference(Struct, frozen=True):
    """One field that is not the same. `path` is a JSON pointer."""

    kind: Literal["changed", "added", "removed"]
    path: str
    before: Any = None
    after: Any = None

    def __str__(self) -> str:
        match self.kind:
            case "changed":
                return f"changed {self.path}: {_format_value(self.before)} -> {_format_value(self.after)}"
            case "added":
                return f"added {self.path}: {_format_value(self.after)}"
            case "removed":
                return f"removed {self.path}: {_format_value(self.before)}"


def _format_value(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}... ({len(text)} characters)"


def find_differences(
    before: Any, after: Any, path: str = "", *, include_volatile: bool = False
) -> Iterator[Difference]:
    """Every field that differs; those that every answer has anew only if asked for."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in before | after:
            if name in _VOLATILE_FIELDS and not include_volatile:
                continue
            place = f"{path}/{escape_pointer(name)}"
            if name not in after:
                yield Difference("removed", place, before=before[name])
            elif name not in before:
                yield Difference("added", place, after=after[name])
            else:
                yield from find_differences(before[name], after[name], place, include_volatile=include_volatile)
    elif isinstance(before, list) and isinstance(after, list):
        for index in range(max(len(before), len(after))):
            place = f"{path}/{index}"
            if index >= len(after):
                yield Difference("removed", place, before=before[index])
            elif index >= len(before):
                yield Difference("added", place, after=after[index])
            else:
                yield from find_differences(before[index], after[index], place, include_volatile=include_volatile)
    elif before != after or type(before) is not type(after):
        yield Difference("changed", path, before, after)


def compare_records(before: Record, after: Record, *, include_volatile: bool = False) -> dict[str, list[Difference]]:
    """What differs, part by part. Requests are compared if they went to the same protocol."""
    found: dict[str, list[Difference]] = {}
    if before.status != after.status:
        found["status"] = [Difference("changed", "", before.status, after.status)]
    if before.protocol == after.protocol and before.bodies is not None and after.bodies is not None:
        pair = body_content(before.bodies.translated), body_content(after.bodies.translated)
        found["request"] = list(find_differences(*pair, include_volatile=True))
    found["losses"] = list(_loss_differences(before, after))
    then, now = body_content(recorded_response_body(before)), body_content(recorded_response_body(after))
    found["response"] = list(find_differences(then, now, include_volatile=include_volatile))
    return {part: told for part, told in found.items() if told}


def _loss_differences(before: Record, after: Record) -> Iterator[Difference]:
    """What is lost only now, or was only then; its path is that of the loss."""
    then, now = ([(loss.path, f"{loss.kind}: {loss.reason}") for loss in record.losses] for record in (before, after))
    for path, told in then:
        if (path, told) not in now:
            yield Difference("removed", path, before=told)
    for path, told in now:
        if (path, told) not in then:
            yield Difference("added", path, after=told)
