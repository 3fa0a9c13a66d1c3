"""What the encoders of the Responses API decide and remember for a whole request or answer."""

import hashlib

from toolwire.canonical.content import HostedUse, Message, ToolCall
from toolwire.codec.encoding.plan import EncodingPlan, IdAndNameRules
from toolwire.codec.interface import Target
from toolwire.codec.losses import LossReport, SourcePath


class ItemPlan(EncodingPlan):
    """`calls` remembers the shape and name of each call, so that its output is written to match. `seed` is there for
    answers, whose items must have ids; `asked` is what hosted tools were asked, by call, until the results come;
    `held` is the envelope of an item that a stream has announced already."""

    def __init__(
        self, rules: IdAndNameRules, report: LossReport, target: Target, *, same_protocol: bool, seed: str | None = None
    ) -> None:
        super().__init__(rules, report, target, same_protocol=same_protocol, for_client=seed is not None)
        self.seed = seed
        self.calls: dict[str, tuple[str, str]] = {}
        self.announced_header: Message | None = None
        self.pending_calls: dict[str | None, tuple[HostedUse | ToolCall, SourcePath]] = {}
        self._item_count = 0

    def item_header(self, prefix: str, *, complete: bool = True) -> Message:
        """The id and status of a new item: none in a request, where a made-up id would be refused."""
        if self.announced_header is not None:
            return self.announced_header
        if self.seed is None or self.same_protocol:
            return Message(role="assistant", parts=())
        self._item_count += 1
        id = make_item_id(prefix, self.seed, self._item_count - 1)
        return Message(role="assistant", parts=(), id=id, status="completed" if complete else "incomplete")

    def native_item_header(self, part: ToolCall) -> Message:
        """The same of a vendor's own call: a computer's has them in a request, too."""
        if part.native != "computer_call":
            return self.item_header("call")
        if self.for_client:
            return self.item_header("cu", complete=part.complete)
        return Message(role="assistant", parts=(), id=make_item_id("cu", part.id or "", 0), status="completed")


def make_item_id(prefix: str, seed: str, number: int) -> str:
    digest = hashlib.blake2s(f"{seed}\0{number}".encode(errors="surrogatepass"), digest_size=16)
    return f"{prefix}_{digest.hexdigest()}"
