"""What an exchange came to, told apart field by field from what it came to before."""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import Struct

from toolwire.codec.fields import escape

from .reading import answer_of
from .records import Record, content

# What every answer has anew: ids, moments, durations and proofs.
_ANEW = frozenset(
    (
        *("id", "call_id", "tool_use_id", "item_id", "interaction_id", "responseId", "system_fingerprint"),
        *("created", "created_at", "completed_at", "updated", "createTime"),
        *("total_duration", "load_duration", "prompt_eval_duration", "eval_duration"),
        *("signature", "thoughtSignature", "thought_signature", "encrypted_content", "obfuscation"),
    )
)
_LONGEST = 120


class Difference(Struct, frozen=True):
    """One field that is not the same. `path` is a JSON pointer."""

    kind: Literal["changed", "added", "removed"]
    path: str
    before: Any = None
    after: Any = None

    def __str__(self) -> str:
        match self.kind:
            case "changed":
                return f"changed {self.path}: {_shown(self.before)} -> {_shown(self.after)}"
            case "added":
                return f"added {self.path}: {_shown(self.after)}"
            case "removed":
                return f"removed {self.path}: {_shown(self.before)}"


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text)} characters)"


def differences(before: Any, after: Any, path: str = "", *, anew: bool = False) -> Iterator[Difference]:
    """Every field that differs; those that every answer has anew only if asked for."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in before | after:
            if name in _ANEW and not anew:
                continue
            place = f"{path}/{escape(name)}"
            if name not in after:
                yield Difference("removed", place, before=before[name])
            elif name not in before:
                yield Difference("added", place, after=after[name])
            else:
                yield from differences(before[name], after[name], place, anew=anew)
    elif isinstance(before, list) and isinstance(after, list):
        for index in range(max(len(before), len(after))):
            place = f"{path}/{index}"
            if index >= len(after):
                yield Difference("removed", place, before=before[index])
            elif index >= len(before):
                yield Difference("added", place, after=after[index])
            else:
                yield from differences(before[index], after[index], place, anew=anew)
    elif before != after or type(before) is not type(after):
        yield Difference("changed", path, before, after)


def compare(before: Record, after: Record, *, anew: bool = False) -> dict[str, list[Difference]]:
    """What differs, part by part. Requests are compared if they went to the same protocol."""
    found: dict[str, list[Difference]] = {}
    if before.status != after.status:
        found["status"] = [Difference("changed", "", before.status, after.status)]
    if before.protocol == after.protocol and before.bodies is not None and after.bodies is not None:
        pair = content(before.bodies.translated), content(after.bodies.translated)
        found["request"] = list(differences(*pair, anew=True))
    found["losses"] = list(_lost(before, after))
    then, now = content(answer_of(before)), content(answer_of(after))
    found["response"] = list(differences(then, now, anew=anew))
    return {part: told for part, told in found.items() if told}


def _lost(before: Record, after: Record) -> Iterator[Difference]:
    """What is lost only now, or was only then; its path is that of the loss."""
    then, now = ([(loss.path, f"{loss.kind}: {loss.why}") for loss in record.losses] for record in (before, after))
    for path, told in then:
        if (path, told) not in now:
            yield Difference("removed", path, before=told)
    for path, told in now:
        if (path, told) not in then:
            yield Difference("added", path, after=told)
