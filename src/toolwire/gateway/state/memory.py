"""Earlier answers by their ids, in front of upstreams that hold none.

A request that continues an answer gets the history of that answer, and nothing else of it: tools, system text and
settings are its own. The history is all of it or a refusal, never a part. An answer is kept once it is complete, as the
client has it, with what it was asked; a chain of answers is kept link by link.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import ItemRef
from toolwire.canonical.errors import ApiError
from toolwire.canonical.fold import unfold
from toolwire.canonical.loss import Loss
from toolwire.canonical.request import Continuation, Request
from toolwire.canonical.response import Candidate, Response, Stop, Usage
from toolwire.codec.computer import with_screens
from toolwire.codec.interface import Codec, Context, Route
from toolwire.codec.lines import in_one_line
from toolwire.codec.losses import pinned
from toolwire.gateway.lanes import Lane
from toolwire.gateway.offload import LARGE_BODY, MANY_OBJECTS, is_heavy, run_apart
from toolwire.gateway.quota import Quota
from toolwire.gateway.refusal import Refused

from .background import RUNNING, Background, status_of
from .holders import HOLDERS, Holder, named_item, no_conversation, no_item, unnamed_item
from .store import Row, Store, Unavailable
from .turns import Speaker, Turns

CONVERSATION = "conversation"
ITEM = "item"
REFERENCE = "reference"
_SECOND_LOOK = 0.05  # seconds: another process may just be writing it
_decode = msgspec.json.decode
_encode = msgspec.json.encode


class Record(Struct, frozen=True):
    """One answer: what was new in its request, and the answer as the client has it. `before`: what came before it, if
    that is in no row above. `streamed`: the client was told it as it came."""

    input: list[Raw]
    answer: Raw
    before: list[Raw] = []
    streamed: bool = False

    def new_items(self, holder: Holder) -> list[Raw]:
        told = _decode(self.answer, type=dict[str, Raw]).get(holder.output)
        return self.input + ([] if told is None else _decode(told, type=list[Raw]))

    def items(self, holder: Holder) -> list[Raw]:
        return self.before + self.new_items(holder)


class _Body(Struct):
    input: Raw | UnsetType = UNSET
    tools: Raw | UnsetType = UNSET


class History(Struct):
    """`parent`: the row that it is the history of."""

    items: list[Raw] = []
    parent: str | None = None


class Keeping:
    """What one request is to continue, and what becomes of its answer. `request` has its history; `id` is the name of
    the answer, unless the upstream names it in the client's own protocol."""

    def __init__(
        self,
        store: Store,
        owner: str,
        holder: Holder,
        *,
        request: Request,
        said: Continuation | None,
        fresh: list[Raw],
        history: History,
        lane: Lane | None,
    ) -> None:
        self.id = holder.new_id()
        self.complete: bytes | None = None
        self.owner = owner
        self.holder = holder
        self.request = request
        self._held = request.continuation or Continuation()
        self._said = said
        self._store = store
        self._fresh = fresh
        self._history = history
        self._lane = lane
        self._unwritten: list[Row] = []

    @property
    def background(self) -> bool:
        return bool(self._held.background) and bool(self._held.store)

    def outward(self, request: Request, *, home: bool) -> Request:
        """The request as the upstream is to have it: what the gateway does itself is not asked of it."""
        said = self._said or Continuation()
        if home and said.id is None and not said.background:
            return replace(request, continuation=self._said)
        store = said.store if home or said.store is False else None
        return replace(request, continuation=None if store is None else Continuation(store=store))

    async def warm(self, client: Codec, created: int) -> bytes:
        """Keep the request alone: nothing was said yet, but the next one goes on from here."""
        context = Context(request=self.request, created=created)
        nothing = Response(
            origin="",
            id=self.id,
            model=self.request.model,
            created=created,
            candidates=(Candidate(stop=Stop(reason="end_turn")),),
            usage=Usage(input_tokens=0, output_tokens=0),
        )
        self.keep(client.encode_response(nothing, context).to_bytes())
        await self.settle()
        encoder = client.stream_encoder(context)
        return in_one_line(encoder.encode(unfold(nothing)) + encoder.close())

    def finished(self, answer: bytes) -> None:
        """Keep a complete answer; one that is made in the background once it is known to be still wanted."""
        if self.background:
            whole = _decode(answer, type=dict[str, Raw])
            self.complete = _encode(whole | {"id": Raw(_encode(self.id)), "background": Raw(b"true")})
        else:
            self.keep(answer)

    def note(self, answer: bytes) -> None:
        """Keep an answer that is not complete: nobody can go on from it."""
        self._store.keep([self._row(self.id, self._record(answer))])

    async def announce(self, answer: bytes) -> None:
        """Store an answer that is not complete, before its client is told the id."""
        await self._store.put([self._row(self.id, self._record(answer))])

    async def settle(self) -> Loss | None:
        """Wait until the answer is stored, if it is complete: called before its last byte goes out, so that an id which
        the client has read is there whatever happens to the gateway. The loss, if it could not be stored."""
        if not self._unwritten:
            return None
        rows, self._unwritten = self._unwritten, []
        try:
            await self._store.put(rows)
        except Unavailable as error:
            return Loss(kind="dropped", path="/store", why=f"the answer was not stored: {error.why}")
        return None

    def keep(self, answer: bytes) -> None:
        """Take a complete answer; `settle` stores it."""
        held, history = self._held, self._history
        record = self._record(answer)
        whole = _decode(answer, type=dict[str, Raw])
        id = _decode(whole["id"], type=str) if "id" in whole else None
        rows: list[Row] = []
        if held.store and id is not None:
            rows += [self._row(id, record), *self._references(id, whole)]
        if held.kind == CONVERSATION and held.id is not None:
            rows += item_rows(self.owner, held.id, record.new_items(self.holder))
        self._unwritten += rows
        if self._lane is not None and id is not None:
            self._lane.put(id, history.items + record.new_items(self.holder))

    def _references(self, id: str, answer: dict[str, Raw]) -> list[Row]:
        """Where each item of an answer is, for those who refer to it."""
        if self.holder.kind != "response" or self.holder.output not in answer:
            return []
        items = _decode(answer[self.holder.output], type=list[Raw])
        return [Row(self.owner, REFERENCE, name, id.encode(), id) for item in items if (name := _id_of(item))]

    @property
    def _before(self) -> list[Raw]:
        return self._history.items if self._history.parent is None else []

    def _record(self, answer: bytes) -> Record:
        return Record(self._fresh, Raw(answer), self._before, bool(self.request.stream))

    def _row(self, id: str, record: Record) -> Row:
        return Row(self.owner, self.holder.kind, id, _encode(record), self._history.parent)


class Memory:
    """`most` and `limit` are those of answers in the background, and `share` is how many of them one key may have."""

    def __init__(self, store: Store, most: int, limit: int, share: int | None = None) -> None:
        self.store = store
        self.turns = Turns(store)
        places = Quota("answers in the background", most, most if share is None else share)
        self.background = Background(store, places, limit)

    def close(self) -> None:
        self.background.close()
        self.store.close()

    async def recall(
        self, client: Codec, owner: str, body: bytes, request: Request, lane: Lane | None = None
    ) -> Keeping | None:
        """The request with its history. None, if there is nothing to remember or to keep."""
        holder = HOLDERS.get(client.name)
        if holder is None:
            return None
        held = request.continuation or Continuation()
        stores = held.store is not False
        refers = any(type(part) is ItemRef for message in request.messages for part in message.parts)
        if not stores and held.id is None and not held.background and not refers and lane is None:
            return None
        if held.background and not stores:
            why = "background needs an answer that is stored: store is false"
            raise Refused(ApiError(kind="invalid_request", message=why, status=400, param="background"))
        must_store = bool(held.store or held.background or (held.kind == CONVERSATION and held.id))
        if must_store and self.store.trouble is not None:
            await self.store.check()  # it is better refused now than once it is paid for
        asked, fresh = await run_apart(_fresh_items, body, holder, heavy=is_heavy(body))
        history = await self._history(owner, holder, held, lane)
        heavy = is_heavy(body) or _are_heavy(history.items)
        if history.items:
            request, fresh = await run_apart(_without_repeats, request, fresh, history.items, heavy=heavy)
        if refers:
            fresh = await self._dereferenced(owner, holder, fresh)
            meant = await run_apart(_decoded, client, fresh, asked.tools, heavy=heavy or _are_heavy(fresh))
            request = replace(request, messages=meant.messages)
        continued = await run_apart(_continued, client, request, history.items, asked.tools, holder, heavy=heavy)
        continued = replace(continued, continuation=replace(held, store=stores))
        return Keeping(
            self.store,
            owner,
            holder,
            request=continued,
            said=request.continuation,
            fresh=fresh,
            history=history,
            lane=lane,
        )

    def finish(
        self, client: Codec, context: Context, keeping: Keeping | None, speaker: Speaker
    ) -> Callable[[Response], None]:
        """What is done with a complete answer, as the client has it, to remember it."""
        withheld = context.withholding

        def finish(response: Response) -> None:
            if withheld is not None:
                # It can wait until the answer is on its way, but not until the client has asked again.
                keep = self.turns.keep
                asyncio.get_running_loop().call_soon(keep, withheld, response, client, context, speaker)
            if keeping is not None:
                keeping.finished(client.encode_response(response, context).to_bytes())

        return finish

    async def _history(self, owner: str, holder: Holder, held: Continuation, lane: Lane | None) -> History:
        if held.id is None:
            return History()
        if held.kind == CONVERSATION:
            return History(await self._conversation(owner, held.id))
        if lane is not None and (items := lane.find(held.id)) is not None:
            return History(items)
        rows = await self._lineage(owner, holder, held.id)
        if not rows:
            raise Refused(holder.no_previous(held.id))
        if status_of(_decode(rows[-1].body, type=Record).answer) in RUNNING:
            why = f"{holder.kind.capitalize()} with id '{held.id}' is still in progress."
            raise Refused(ApiError(kind="invalid_request", message=why, status=400, param=holder.previous))
        heavy = sum([len(row.body) for row in rows]) > LARGE_BODY
        return History(await run_apart(_items_in, rows, holder, heavy=heavy), held.id)

    async def _dereferenced(self, owner: str, holder: Holder, items: list[Raw]) -> list[Raw]:
        """The items that are meant, in place of mere references. An upstream is never asked for one: it would give that
        of another key, too."""
        wanted = {id: index for index, item in enumerate(items) if (id := _reference(item)) is not None}
        places = await self.store.get(owner, REFERENCE, list(wanted))
        records = await self.store.get(owner, holder.kind, [place.decode() for place in places.values()])
        held = [item for record in records.values() for item in _decode(record, type=Record).new_items(holder)]
        known = {_id_of(item): item for item in held}
        found = list(items)
        for id, index in wanted.items():
            if id not in known:
                raise Refused(no_item(id))
            found[index] = known[id]
        return found

    async def _lineage(self, owner: str, holder: Holder, id: str) -> list[Row]:
        if rows := await self.store.lineage(owner, holder.kind, id):
            return rows
        await asyncio.sleep(_SECOND_LOOK)
        return await self.store.lineage(owner, holder.kind, id)

    async def _conversation(self, owner: str, id: str) -> list[Raw]:
        if not await self.store.get(owner, CONVERSATION, [id]):
            raise Refused(no_conversation(id))
        rows = await self.store.under(owner, ITEM, id)
        return await run_apart(_unnamed_items, rows, heavy=len(rows) > MANY_OBJECTS)


def item_rows(owner: str, conversation: str, items: Sequence[Raw]) -> list[Row]:
    return [Row(owner, ITEM, f"{conversation}/{id}", bytes(item), conversation) for id, item in map(named_item, items)]


def _are_heavy(items: Sequence[Raw]) -> bool:
    """Whether decoding items may hold the event loop for more than a few milliseconds."""
    return len(items) > MANY_OBJECTS or sum([len(bytes(item)) for item in items]) > LARGE_BODY


def _items_in(rows: Sequence[Row], holder: Holder) -> list[Raw]:
    return [item for row in rows for item in _decode(row.body, type=Record).items(holder)]


def _unnamed_items(rows: Sequence[Row]) -> list[Raw]:
    return [unnamed_item(Raw(row.body)) for row in rows]


def _fresh_items(body: bytes, holder: Holder) -> tuple[_Body, list[Raw]]:
    asked = _asked(body)
    return asked, [] if asked.input is UNSET or bytes(asked.input) == b"null" else holder.items(asked.input)


def _asked(body: bytes) -> _Body:
    if body.lstrip()[:1] == b"[":
        return _Body(input=Raw(body))  # the items alone
    return _decode(body, type=_Body)


def _without_repeats(request: Request, fresh: list[Raw], history: list[Raw]) -> tuple[Request, list[Raw]]:
    """The request without the items that it repeats of its history: some clients send all that they know."""
    known = {id for item in history if (id := _id_of(item)) is not None}
    repeated = {index for index, item in enumerate(fresh) if _id_of(item) in known}
    if not repeated or len(fresh) != len(request.messages):
        return request, fresh
    messages = tuple([message for index, message in enumerate(request.messages) if index not in repeated])
    return replace(request, messages=messages), [item for index, item in enumerate(fresh) if index not in repeated]


class _Named(Struct):
    id: str | None = None
    type: str | None = None


def _id_of(item: Raw) -> str | None:
    return _decode(item, type=_Named).id


def _reference(item: Raw) -> str | None:
    named = _decode(item, type=_Named)
    return named.id if named.type == "item_reference" else None


def _decoded(client: Codec, items: list[Raw], tools: Raw | UnsetType) -> Request:
    body = {"input": items} | ({} if tools is UNSET else {"tools": tools})
    return client.decode_request(_encode(body), Route())


def _continued(client: Codec, request: Request, history: list[Raw], tools: Raw | UnsetType, holder: Holder) -> Request:
    if not history:
        return request
    before = _decoded(client, history, tools)
    place = (
        f"/{holder.previous}"
        if request.continuation is None or request.continuation.kind != CONVERSATION
        else "/conversation"
    )
    told = [replace(message, at=f"{place}/{index}") for index, message in enumerate(before.messages)]
    new = pinned(request, client.names, "messages").messages
    whole = replace(request, messages=(*told, *new), plain=request.plain and before.plain)
    # Only now a result stands behind the call that it answers.
    return whole if client.screen is None else with_screens(whole, client.screen)
