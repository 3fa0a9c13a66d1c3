"""Compare recorded exchanges field by field."""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import Struct

from toolwire.codec.wire.reader import escape_pointer
from toolwire.journal.records import Record, body_content, recorded_response_body

# Fields that differ between any two responses: ids, times, durations and signatures.
_VOLATILE_FIELDS = frozenset(
    (
        *("id", "call_id", "tool_use_id", "item_id", "interaction_id", "responseId", "system_fingerprint"),
        *("created", "created_at", "completed_at", "updated", "createTime"),
        *("total_duration", "load_duration", "prompt_eval_duration", "eval_duration"),
        *("signature", "thoughtSignature", "thought_signature", "encrypted_content", "obfuscation"),
    )
)
_MAX_VALUE_LENGTH = 120
_FIRST_ERROR = 400


class Difference(Struct, frozen=True):
    """One field that differs."""

    kind: Literal["changed", "added", "removed"]
    path: str
    """JSON pointer."""
    before: Any = None
    after: Any = None

    def __str__(self) -> str:
        """Format the difference as one line, such as `changed /model: "a" -> "b"`."""
        change = f"{self.kind} {self.path}".rstrip()
        match self.kind:
            case "changed":
                return f"{change}: {_format_value(self.before)} -> {_format_value(self.after)}"
            case "added":
                return f"{change}: {_format_value(self.after)}"
            case "removed":
                return f"{change}: {_format_value(self.before)}"


def _format_value(value: Any) -> str:
    """Format a value as JSON, shortened if it is long."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}... ({len(text)} characters)"


def find_differences(
    before: Any, after: Any, path: str = "", *, include_volatile: bool = False
) -> Iterator[Difference]:
    """Yield every field that differs between two JSON values; ids, times and signatures only if requested."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in before | after:
            if name in _VOLATILE_FIELDS and not include_volatile:
                continue
            member_path = f"{path}/{escape_pointer(name)}"
            if name not in after:
                yield Difference("removed", member_path, before=before[name])
            elif name not in before:
                yield Difference("added", member_path, after=after[name])
            else:
                yield from find_differences(before[name], after[name], member_path, include_volatile=include_volatile)
    elif isinstance(before, list) and isinstance(after, list):
        for index in range(max(len(before), len(after))):
            item_path = f"{path}/{index}"
            if index >= len(after):
                yield Difference("removed", item_path, before=before[index])
            elif index >= len(before):
                yield Difference("added", item_path, after=after[index])
            else:
                yield from find_differences(before[index], after[index], item_path, include_volatile=include_volatile)
    elif before != after or type(before) is not type(after):
        yield Difference("changed", path, before, after)


def compare_records(before: Record, after: Record, *, include_volatile: bool = False) -> dict[str, list[Difference]]:
    """Compare two records, and return the differences of status, request, losses and response by these names.

    Requests are compared as translated for the provider, and only if both went to the same protocol. An error is not
    compared with an answer.
    """
    differences: dict[str, list[Difference]] = {}
    if before.status != after.status:
        differences["status"] = [Difference("changed", "", before.status, after.status)]
    if before.protocol == after.protocol and before.bodies is not None and after.bodies is not None:
        requests = body_content(before.bodies.translated), body_content(after.bodies.translated)
        differences["request"] = list(find_differences(*requests, include_volatile=True))
    differences["losses"] = list(_loss_differences(before, after))
    if (before.status < _FIRST_ERROR) != (after.status < _FIRST_ERROR):
        return {section: items for section, items in differences.items() if items}
    responses = body_content(recorded_response_body(before)), body_content(recorded_response_body(after))
    differences["response"] = list(find_differences(*responses, include_volatile=include_volatile))
    return {section: items for section, items in differences.items() if items}


def _loss_differences(before: Record, after: Record) -> Iterator[Difference]:
    """Yield the losses that only one of the two records has, as added or removed at the path of the loss."""
    losses_before, losses_after = (
        [(loss.path, f"{loss.severity} {loss.kind}: {loss.reason}") for loss in record.losses]
        for record in (before, after)
    )
    for path, text in losses_before:
        if (path, text) not in losses_after:
            yield Difference("removed", path, before=text)
    for path, text in losses_after:
        if (path, text) not in losses_before:
            yield Difference("added", path, after=text)
