"""The encoding plan of the Responses API: state shared while one request or response is encoded."""

import hashlib

from toolwire.canonical.content import HostedUse, Message, ToolCall
from toolwire.codec.encoding.plan import EncodingPlan, IdAndNameRules
from toolwire.codec.interface import Target
from toolwire.codec.losses import LossReport, SourcePath


class ItemPlan(EncodingPlan):
    """An encoding plan with the ids and calls of items."""

    def __init__(
        self, rules: IdAndNameRules, report: LossReport, target: Target, *, same_protocol: bool, seed: str | None = None
    ) -> None:
        super().__init__(rules, report, target, same_protocol=same_protocol, for_client=seed is not None)
        self.seed = seed  # for item ids; None in requests
        self.calls: dict[str, tuple[str, str]] = {}  # shape and tool name by call id, to match outputs
        self.announced_header: Message | None = None  # of an item that a stream has announced
        # Server-side calls by id, until their results arrive.
        self.pending_calls: dict[str | None, tuple[HostedUse | ToolCall, SourcePath]] = {}
        self._item_count = 0

    def item_header(self, prefix: str, *, complete: bool = True) -> Message:
        """Return a message that holds id and status for a new item.

        It has neither in requests, where the provider rejects invented ids.
        """
        if self.announced_header is not None:
            return self.announced_header
        if self.seed is None or self.same_protocol:
            return Message(role="assistant", parts=())
        self._item_count += 1
        id = make_item_id(prefix, self.seed, self._item_count - 1)
        return Message(role="assistant", parts=(), id=id, status="completed" if complete else "incomplete")

    def native_item_header(self, part: ToolCall) -> Message:
        """Return a message that holds id and status for a native call; `computer_call` needs them in requests, too."""
        if part.native != "computer_call":
            return self.item_header("call")
        if self.for_client:
            return self.item_header("cu", complete=part.complete)
        return Message(role="assistant", parts=(), id=make_item_id("cu", part.id or "", 0), status="completed")


def make_item_id(prefix: str, seed: str, number: int) -> str:
    """Derive an item id with this prefix from the seed and the item's number."""
    digest = hashlib.blake2s(f"{seed}\0{number}".encode(errors="surrogatepass"), digest_size=16)
    return f"{prefix}_{digest.hexdigest()}"
