"""What a provider does itself, and another upstream does not: the gateway does it in its place."""

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.loss import Loss
from toolwire.canonical.request import Request
from toolwire.canonical.tools import NativeTool
from toolwire.codec.interface import Codec, Encoding, Undo

from .inner import Crossing, InnerCalls, Offer
from .pauses import Legs
from .programs import Prepared, prepared
from .searching import Emulated, Searching, emulated
from .state.store import Store

if TYPE_CHECKING:
    from .coding import Desk


class Emulation(Struct, frozen=True):
    """The request as the upstream can be asked it, and what is done for it."""

    request: Request
    losses: list[Loss]
    programs: Prepared | None
    search: Emulated | None
    offer: Offer | None = None


def emulation(
    request: Request, client: Codec, upstream: Codec, model: str | None, offer: Offer | None = None
) -> Emulation | None:
    """What has to be done in an upstream's place; None, as for nearly all requests, if there is nothing."""
    if offer is None and (client is upstream or not request.tools or NativeTool not in map(type, request.tools)):
        return None
    if (programs := prepared(request, client, upstream)) is not None:
        request = programs.request
    if (search := emulated(request, client, upstream, model)) is not None:
        request = search.request
    if offer is not None:
        request = offer.added_to(request)
    if programs is None and search is None and offer is None:
        return None
    losses = [loss for one in (programs, search) if one is not None for loss in one.losses]
    return Emulation(request, losses, programs, search, offer)


def losses_of(found: Emulation | None, encoding: Encoding, request: Request, crossing: Crossing) -> list[Loss]:
    """What is lost of a request, tools that are only found later included: their guards hold, too."""
    if found is not None and found.search is not None:
        request = found.search.everything(request)
        encoding = crossing.upstream.encode_request(request, crossing.target)
    return encoding.report.resolve(request, crossing.client.names) if encoding.report else []


class Workshop:
    """Where it is done. The sandbox is opened by the first who needs it."""

    def __init__(self, store: Store, keys: list[bytes]) -> None:
        self._store = store
        self._keys = keys
        self.desk: Desk | None = None

    def close(self) -> None:
        if self.desk is not None:
            self.desk.close()

    def legs(
        self, found: Emulation | None, request: Request, crossing: Crossing, undo: Undo, owner: str
    ) -> Legs | None:
        """The answers to this request, as it was sent, as one answer; None if there will be one only."""
        if found is None:
            pauses = crossing.upstream.surface.pauses and crossing.client is not crossing.upstream
            return Legs() if pauses else None
        if found.programs is None and found.search is None:
            return InnerCalls(request, crossing, undo, found.offer)
        if found.programs is None:
            search = found.search or Emulated(request, [], "", "", {}, {})
            return Searching(replace(search, request=request), crossing, undo, found.offer)
        from .coding import Coding, Desk  # noqa: PLC0415 - the sandbox is there only where it was installed

        self.desk = self.desk or Desk(self._store, self._keys)
        plan = replace(found.programs, request=request)
        return Coding(plan, found.search, crossing, undo, desk=self.desk, owner=owner, offer=found.offer)
