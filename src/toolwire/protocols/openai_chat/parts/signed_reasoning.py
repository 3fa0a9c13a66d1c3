"""Encode reasoning and signatures as `reasoning_details`, for servers and clients that have them."""

from typing import Any

from msgspec.structs import replace

from toolwire.canonical.content import Media, Message, Part, Reasoning, ReasoningText, Signature, Text, ToolCall
from toolwire.codec.encoding.fallbacks import report_reasoning
from toolwire.codec.encoding.plan import EncodingPlan
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.losses import LossReport, SourcePath
from toolwire.protocols.openai_chat.parts.details import (
    DEFAULT_ISSUER,
    DETAILS_FIELD,
    ENTRY_FORM,
    encode_entries,
    is_known_issuer,
)
from toolwire.protocols.openai_chat.parts.reasoning import replay_rule

MODEL_ISSUERS = {
    "anthropic": ("anthropic",),
    "google": ("google",),
    "openai": ("openai", "azure-openai", "bedrock-openai"),
    "x-ai": ("xai", "bedrock-xai"),
    "meta-llama": ("meta",),
}
"""Issuers of signatures by the vendor in a model's name. A model rejects signatures of other vendors."""


def uses_details(parts: list[LocatedPart], plan: EncodingPlan) -> bool:
    """Tell whether the reasoning of another protocol's turn is sent as `reasoning_details`.

    Servers without the fact `reasoning.details` get back only entries that they issued, which envelopes restore.
    """
    if plan.target.host.reasoning.details:
        return True
    return not plan.for_client and any(ENTRY_FORM in located_part.part.wire_form for located_part in parts)


class ReasoningEncoder:
    """The reasoning of a turn: signed entries, and plain text for models that accept it."""

    def __init__(self, plan: EncodingPlan, messages: tuple[Message, ...]) -> None:
        self._plan = plan
        self._messages = messages  # of the request or the candidate
        self._entries: list[dict[str, Any]] = []
        self._texts: list[str] = []
        self._sent_parts: list[LocatedPart] = []
        self._moved_parts: list[LocatedPart] = []  # reasoning after text or calls
        self._unsigned_parts: list[LocatedPart] = []  # summaries that may belong to an encrypted entry
        self._accepts_text = not plan.for_client and replay_rule(plan) is not None  # without a signature
        self._issuers = MODEL_ISSUERS.get((plan.target.model or "").partition("/")[0])  # None: any

    def accepts(self, signature: Signature) -> bool:
        """Tell whether an entry can hold a signature, and the model's vendor may have issued it."""
        if not is_known_issuer(signature) or self._issuers is None or self._plan.for_client:
            return is_known_issuer(signature)
        return signature.issuer in self._issuers or signature.issuer == DEFAULT_ISSUER

    def add(self, part: Reasoning, located_part: LocatedPart, *, follows_content: bool) -> None:
        """Add reasoning; an unsigned summary is held back, since an encrypted part that belongs to it may follow."""
        path = located_part.path
        report_images(part, path, self._plan.report)
        if follows_content:
            self._moved_parts.append(located_part)
        if self._plan.for_client:
            self._add_for_client(part, located_part)
            return
        if part.signature is None or not self.accepts(part.signature):
            if not (part.signature is None and _is_summary(part)):
                self._flush()
            self._unsigned_parts.append(located_part)
            return
        if part.signature.kind == "encrypted" and part.signature.issuer not in ("anthropic", "google"):
            # These issuers send encrypted content after its summary, in a separate entry.
            for summary in self._unsigned_parts:
                content = summary.part.content if isinstance(summary.part, Reasoning) else ()
                part = replace(part, content=(*content, *part.content))
            self._sent_parts += self._unsigned_parts
            self._unsigned_parts = []
        self._flush()
        self._entries += encode_entries(part, self._item_id(part, path), len(self._entries))
        self._sent_parts.append(located_part)

    def _add_for_client(self, part: Reasoning, located_part: LocatedPart) -> None:
        """Add reasoning of a response: all of its texts, and its signature if an entry can hold it."""
        self._texts += _texts(part)
        self._entries += encode_entries(part, self._item_id(part, located_part.path), len(self._entries))
        if part.signature is None or not is_known_issuer(part.signature):
            report_reasoning(replace(part, content=()), located_part, self._plan)

    def add_text(self, part: Reasoning) -> None:
        """Add only the text of reasoning whose `reasoning_details` are sent unchanged."""
        if part.at is not None and not part.at.startswith(f"/{DETAILS_FIELD}"):
            self._texts += _texts(part)

    def take_signature(self, part: Part, located_part: LocatedPart) -> Part:
        """Return a text or call without its signature, which becomes an entry; unchanged if it can't be one."""
        if not isinstance(part, ToolCall | Text) or part.signature is None:
            return part
        if isinstance(part, ToolCall) and part.executor == "server":
            if not self._plan.for_client:
                path = (*located_part.path, "signature")
                self._plan.report.dropped(path, "", "a call sent as text cannot have a signature")
            return part
        if not self.accepts(part.signature):
            return part
        id = None
        if isinstance(part, ToolCall):
            id = part.id if self._plan.for_client else self._plan.id_of(located_part)
        self._entries += encode_signature(part.signature, id, len(self._entries))
        return replace(part, signature=None)

    def finish(self, *, is_sent: bool) -> dict[str, Any]:
        """Return the reasoning fields of the message; if nothing else `is_sent` either, report them instead."""
        self._flush()
        report = self._plan.report
        if not is_sent:
            for located_part in self._sent_parts:
                report.dropped(located_part.path, "", "the turn contains only reasoning")
            return {}
        sent_paths = {located_part.path for located_part in self._sent_parts}
        for located_part in self._moved_parts:
            if located_part.path in sent_paths:
                report.approximated(located_part.path, "", "reasoning moved before text and calls")
        fields: dict[str, Any] = {"reasoning": "\n\n".join(self._texts)} if self._texts else {}
        return fields | ({DETAILS_FIELD: self._entries} if self._entries else {})

    def _flush(self) -> None:
        """Encode the parts that are held back, which turned out to be unsigned."""
        for located_part in self._unsigned_parts:
            if isinstance(located_part.part, Reasoning) and (texts := self._encode_unsigned(located_part)):
                self._texts += texts
                self._sent_parts.append(located_part)
        self._unsigned_parts = []

    def _encode_unsigned(self, located_part: LocatedPart) -> list[str]:
        """Return the texts of unsigned reasoning if the model accepts it; else report it and return none."""
        part, path, plan = located_part.part, located_part.path, self._plan
        if not isinstance(part, Reasoning):
            return []
        if not self._accepts_text:
            plan.report.dropped(path, "", "the target only accepts reasoning that it signed")
            return []
        report_reasoning(replace(part, content=tuple(_text_blocks(part))), located_part, plan)
        if (message := self._message_at(path)) is not None and is_reasoning_item(message) and message.id is not None:
            plan.report.dropped(path[:-2], "id")
        return _texts(part)

    def _message_at(self, path: SourcePath) -> Message | None:
        """Return the message that holds the part at `path`; None for system text."""
        number = path[-3] if len(path) >= 3 else None
        return self._messages[number] if isinstance(number, int) and path[-4] == "messages" else None

    def _item_id(self, part: Reasoning, path: SourcePath) -> str | None:
        """Return the issuer's id for reasoning; one from a Responses item has it on its message."""
        message = self._message_at(path) if part.id is None else None
        return part.id if message is None or not is_reasoning_item(message) else message.id


def is_reasoning_item(message: Message) -> bool:
    """Tell whether a message holds reasoning only, like a reasoning item of the Responses API."""
    return len(message.parts) == 1 and isinstance(message.parts[0], Reasoning)


def is_id_encoded(message: Message, plan: EncodingPlan) -> bool:
    """Tell whether an entry holds the id of a message for a client, as that of its signed reasoning."""
    if not plan.target.host.reasoning.details or not is_reasoning_item(message):
        return False
    (part,) = message.parts
    return isinstance(part, Reasoning) and part.signature is not None and is_known_issuer(part.signature)


def encode_signature(signature: Signature, call_id: str | None, index: int) -> list[dict[str, Any]]:
    """Encode the signature of a text or call as an element of `reasoning_details`, in a list.

    A call is identified by its id. `index` is the index of the element in its message.
    """
    kind = "encrypted" if call_id is not None else "signature"
    return encode_entries(Reasoning(signature=replace(signature, kind=kind)), call_id, index)


def report_images(part: Reasoning, path: SourcePath, report: LossReport) -> None:
    """Report as losses the images in reasoning."""
    for index, block in enumerate(part.content):
        if isinstance(block, Media):
            report.dropped((*path, "content", index), "", "thinking of the target is text only")


def _text_blocks(part: Reasoning) -> list[ReasoningText]:
    """Return the texts of reasoning, without its images."""
    return [block for block in part.content if isinstance(block, ReasoningText)]


def _texts(part: Reasoning) -> list[str]:
    """Return the texts of reasoning as strings."""
    return [block.text for block in _text_blocks(part)]


def _is_summary(part: Reasoning) -> bool:
    """Tell whether reasoning consists of summaries only."""
    return (
        bool(part.content)
        and all(block.kind == "summary" for block in _text_blocks(part))
        and (len(_text_blocks(part)) == len(part.content))
    )
