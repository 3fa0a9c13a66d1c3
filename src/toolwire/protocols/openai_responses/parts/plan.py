"""What the encoders of the Responses API decide and remember for a whole request or answer."""

import hashlib

from toolwire.canonical.content import HostedUse, Message, ToolCall
from toolwire.codec.interface import Target
from toolwire.codec.losses import Report, Trail
from toolwire.codec.plan import Plan, Rules


class ItemPlan(Plan):
    """`calls` remembers the shape and name of each call, so that its output is written to match. `seed` is there for
    answers, whose items must have ids; `asked` is what hosted tools were asked, by call, until the results come;
    `held` is the envelope of an item that a stream has announced already."""

    def __init__(self, rules: Rules, report: Report, target: Target, *, home: bool, seed: str | None = None) -> None:
        super().__init__(rules, report, target, home=home, answering=seed is not None)
        self.seed = seed
        self.calls: dict[str, tuple[str, str]] = {}
        self.held: Message | None = None
        self.asked: dict[str | None, tuple[HostedUse | ToolCall, Trail]] = {}
        self._minted = 0

    def envelope(self, prefix: str, *, complete: bool = True) -> Message:
        """The id and status of a new item: none in a request, where a made-up id would be refused."""
        if self.held is not None:
            return self.held
        if self.seed is None or self.home:
            return Message(role="assistant", parts=())
        self._minted += 1
        id = minted_id(prefix, self.seed, self._minted - 1)
        return Message(role="assistant", parts=(), id=id, status="completed" if complete else "incomplete")

    def native_envelope(self, part: ToolCall) -> Message:
        """The same of a vendor's own call: a computer's has them in a request, too."""
        if part.native != "computer_call":
            return self.envelope("call")
        if self.answering:
            return self.envelope("cu", complete=part.complete)
        return Message(role="assistant", parts=(), id=minted_id("cu", part.id or "", 0), status="completed")


def minted_id(prefix: str, seed: str, number: int) -> str:
    digest = hashlib.blake2s(f"{seed}\0{number}".encode(errors="surrogatepass"), digest_size=16)
    return f"{prefix}_{digest.hexdigest()}"
