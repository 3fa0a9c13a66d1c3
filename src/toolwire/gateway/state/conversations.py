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
from toolwire.codec.encoding.computer import decode_computer_use
from toolwire.codec.framing import escape_line_separators
from toolwire.codec.interface import Codec, ResponseContext, Route
from toolwire.codec.losses import with_source_positions
from toolwire.gateway.errors import RequestRejected
from toolwire.gateway.limits import LARGE_BODY, MANY_OBJECTS, Quota, is_heavy_body, run_in_thread_if
from toolwire.gateway.state.adapters import (
    STATE_ADAPTERS,
    StateAdapter,
    conversation_not_found,
    item_not_found,
    with_item_id,
    without_item_id,
)
from toolwire.gateway.state.background_jobs import RUNNING_STATUSES, BackgroundJobs, response_status
from toolwire.gateway.state.connection_state import ChannelState
from toolwire.gateway.state.store import Row, StateStore, StateUnavailable
from toolwire.gateway.state.withheld_turns import TurnKey, WithheldTurns

CONVERSATION_KIND = "conversation"
ITEM_KIND = "item"
REFERENCE_KIND = "reference"
_RETRY_DELAY = 0.05  # seconds: another process may just be writing it
_decode = msgspec.json.decode
_encode = msgspec.json.encode


class StoredResponse(Struct, frozen=True):
    """One answer: what was new in its request, and the answer as the client has it. `before`: what came before it, if
    that is in no row above. `streamed`: the client was told it as it came."""

    input: list[Raw]
    answer: Raw
    before: list[Raw] = []
    streamed: bool = False

    def new_items(self, adapter: StateAdapter) -> list[Raw]:
        told = _decode(self.answer, type=dict[str, Raw]).get(adapter.output_field)
        return self.input + ([] if told is None else _decode(told, type=list[Raw]))

    def items(self, adapter: StateAdapter) -> list[Raw]:
        return self.before + self.new_items(adapter)


class _InputBody(Struct):
    input: Raw | UnsetType = UNSET
    tools: Raw | UnsetType = UNSET


class History(Struct):
    """`parent`: the row that it is the history of."""

    items: list[Raw] = []
    parent: str | None = None


class PendingResponse:
    """What one request is to continue, and what becomes of its answer. `request` has its history; `id` is the name of
    the answer, unless the upstream names it in the client's own protocol."""

    def __init__(
        self,
        store: StateStore,
        owner: str,
        adapter: StateAdapter,
        *,
        request: Request,
        client_continuation: Continuation | None,
        new_items: list[Raw],
        history: History,
        channel: ChannelState | None,
    ) -> None:
        self.id = adapter.new_id()
        self.completed_body: bytes | None = None
        self.owner = owner
        self.adapter = adapter
        self.request = request
        self._continuation = request.continuation or Continuation()
        self._client_continuation = client_continuation
        self._store = store
        self._new_items = new_items
        self._history = history
        self._channel = channel
        self._staged_rows: list[Row] = []

    @property
    def is_background(self) -> bool:
        return bool(self._continuation.background) and bool(self._continuation.store)

    def upstream_request(self, request: Request, *, same_protocol: bool) -> Request:
        """The request as the upstream is to have it: what the gateway does itself is not asked of it."""
        said = self._client_continuation or Continuation()
        if same_protocol and said.id is None and not said.background:
            return replace(request, continuation=self._client_continuation)
        store = said.store if same_protocol or said.store is False else None
        return replace(request, continuation=None if store is None else Continuation(store=store))

    async def store_prewarm(self, client: Codec, created: int) -> bytes:
        """Keep the request alone: nothing was said yet, but the next one goes on from here."""
        context = ResponseContext(request=self.request, created=created)
        nothing = Response(
            origin="",
            id=self.id,
            model=self.request.model,
            created=created,
            candidates=(Candidate(stop=Stop(reason="end_turn")),),
            usage=Usage(input_tokens=0, output_tokens=0),
        )
        self.stage(client.encode_response(nothing, context).to_bytes())
        await self.flush()
        encoder = client.stream_encoder(context)
        return escape_line_separators(encoder.encode(unfold(nothing)) + encoder.close())

    def complete(self, body: bytes) -> None:
        """Keep a complete answer; one that is made in the background once it is known to be still wanted."""
        if self.is_background:
            whole = _decode(body, type=dict[str, Raw])
            self.completed_body = _encode(whole | {"id": Raw(_encode(self.id)), "background": Raw(b"true")})
        else:
            self.stage(body)

    def incomplete_row(self, body: bytes) -> Row:
        """The row of an answer that is not complete: nobody can go on from it."""
        return self._row(self.id, self._stored_response(body))

    async def register(self, body: bytes) -> None:
        """Store an answer that is not complete, before its client is told the id."""
        await self._store.put([self.incomplete_row(body)])

    def take_staged_rows(self) -> list[Row]:
        """The rows of a complete answer, its own first, for a caller that stores them itself."""
        rows, self._staged_rows = self._staged_rows, []
        return rows

    async def flush(self) -> Loss | None:
        """Wait until the answer is stored, if it is complete: called before its last byte goes out, so that an id which
        the client has read is there whatever happens to the gateway. The loss, if it could not be stored."""
        if not self._staged_rows:
            return None
        try:
            await self._store.put(self.take_staged_rows())
        except StateUnavailable as error:
            return Loss(kind="dropped", path="/store", reason=f"the answer was not stored: {error.reason}")
        return None

    def stage(self, body: bytes) -> None:
        """Take a complete answer; `settle` stores it."""
        held, history = self._continuation, self._history
        record = self._stored_response(body)
        whole = _decode(body, type=dict[str, Raw])
        id = _decode(whole["id"], type=str) if "id" in whole else None
        rows: list[Row] = []
        if held.store and id is not None:
            rows += [self._row(id, record), *self._reference_rows(id, whole)]
        if held.kind == CONVERSATION_KIND and held.id is not None:
            rows += item_rows(self.owner, held.id, record.new_items(self.adapter))
        self._staged_rows += rows
        if self._channel is not None and id is not None:
            self._channel.store_history(id, history.items + record.new_items(self.adapter))

    def _reference_rows(self, id: str, response: dict[str, Raw]) -> list[Row]:
        """Where each item of an answer is, for those who refer to it."""
        if self.adapter.kind != "response" or self.adapter.output_field not in response:
            return []
        items = _decode(response[self.adapter.output_field], type=list[Raw])
        return [Row(self.owner, REFERENCE_KIND, name, id.encode(), id) for item in items if (name := _item_id(item))]

    @property
    def _inline_history(self) -> list[Raw]:
        return self._history.items if self._history.parent is None else []

    def _stored_response(self, body: bytes) -> StoredResponse:
        return StoredResponse(self._new_items, Raw(body), self._inline_history, bool(self.request.stream))

    def _row(self, id: str, record: StoredResponse) -> Row:
        return Row(self.owner, self.adapter.kind, id, _encode(record), self._history.parent)


class ConversationState:
    """`most` and `limit` are those of answers in the background, and `share` is how many of them one key may have."""

    def __init__(self, store: StateStore, max_background: int, max_bytes: int, key_quota: int | None = None) -> None:
        self.store = store
        self.withheld_turns = WithheldTurns(store)
        places = Quota("answers in the background", max_background, max_background if key_quota is None else key_quota)
        self.background_jobs = BackgroundJobs(store, places, max_bytes)

    def close(self) -> None:
        self.background_jobs.close()
        self.store.close()

    async def resolve(
        self, client: Codec, owner: str, body: bytes, request: Request, channel: ChannelState | None = None
    ) -> PendingResponse | None:
        """The request with its history. None, if there is nothing to remember or to keep."""
        holder = STATE_ADAPTERS.get(client.name)
        if holder is None:
            return None
        held = request.continuation or Continuation()
        stores = held.store is not False
        refers = any(type(part) is ItemRef for message in request.messages for part in message.parts)
        if not stores and held.id is None and not held.background and not refers and channel is None:
            return None
        if held.background and not stores:
            why = "background needs an answer that is stored: store is false"
            raise RequestRejected(ApiError(kind="invalid_request", message=why, status=400, param="background"))
        must_store = bool(held.store or held.background or (held.kind == CONVERSATION_KIND and held.id))
        if must_store and self.store.unavailable_reason is not None:
            await self.store.check_writable()  # it is better refused now than once it is paid for
        asked, fresh = await run_in_thread_if(_read_new_items, body, holder, heavy=is_heavy_body(body))
        history = await self._load_history(owner, holder, held, channel)
        heavy = is_heavy_body(body) or _are_items_heavy(history.items)
        if history.items:
            request, fresh = await run_in_thread_if(_drop_repeated_items, request, fresh, history.items, heavy=heavy)
        if refers:
            fresh = await self._resolve_references(owner, holder, fresh)
            meant = await run_in_thread_if(
                _decode_items, client, fresh, asked.tools, heavy=heavy or _are_items_heavy(fresh)
            )
            request = replace(request, messages=meant.messages)
        continued = await run_in_thread_if(
            _prepend_history, client, request, history.items, asked.tools, holder, heavy=heavy
        )
        continued = replace(continued, continuation=replace(held, store=stores))
        return PendingResponse(
            self.store,
            owner,
            holder,
            request=continued,
            client_continuation=request.continuation,
            new_items=fresh,
            history=history,
            channel=channel,
        )

    def completion_callback(
        self, client: Codec, context: ResponseContext, pending_response: PendingResponse | None, turn_key: TurnKey
    ) -> Callable[[Response], None]:
        """What is done with a complete answer, as the client has it, to remember it."""
        withheld = context.withheld

        def finish(response: Response) -> None:
            if withheld is not None:
                # It can wait until the answer is on its way, but not until the client has asked again.
                keep = self.withheld_turns.store
                asyncio.get_running_loop().call_soon(keep, withheld, response, client, context, turn_key)
            if pending_response is not None:
                pending_response.complete(client.encode_response(response, context).to_bytes())

        return finish

    async def _load_history(
        self, owner: str, adapter: StateAdapter, continuation: Continuation, channel: ChannelState | None
    ) -> History:
        if continuation.id is None:
            return History()
        if continuation.kind == CONVERSATION_KIND:
            return History(await self._load_conversation(owner, continuation.id))
        if channel is not None and (items := channel.find_history(continuation.id)) is not None:
            return History(items)
        rows = await self._load_lineage(owner, adapter, continuation.id)
        if not rows:
            raise RequestRejected(adapter.previous_not_found(continuation.id))
        if response_status(_decode(rows[-1].body, type=StoredResponse).answer) in RUNNING_STATUSES:
            why = f"{adapter.kind.capitalize()} with id '{continuation.id}' is still in progress."
            raise RequestRejected(
                ApiError(kind="invalid_request", message=why, status=400, param=adapter.previous_field)
            )
        heavy = sum([len(row.body) for row in rows]) > LARGE_BODY
        return History(await run_in_thread_if(_stored_items, rows, adapter, heavy=heavy), continuation.id)

    async def _resolve_references(self, owner: str, adapter: StateAdapter, items: list[Raw]) -> list[Raw]:
        """The items that are meant, in place of mere references. An upstream is never asked for one: it would give that
        of another key, too."""
        wanted = {id: index for index, item in enumerate(items) if (id := _referenced_id(item)) is not None}
        places = await self.store.get(owner, REFERENCE_KIND, list(wanted))
        records = await self.store.get(owner, adapter.kind, [place.decode() for place in places.values()])
        held = [item for record in records.values() for item in _decode(record, type=StoredResponse).new_items(adapter)]
        known = {_item_id(item): item for item in held}
        found = list(items)
        for id, index in wanted.items():
            if id not in known:
                raise RequestRejected(item_not_found(id))
            found[index] = known[id]
        return found

    async def _load_lineage(self, owner: str, adapter: StateAdapter, id: str) -> list[Row]:
        if rows := await self.store.lineage(owner, adapter.kind, id):
            return rows
        await asyncio.sleep(_RETRY_DELAY)
        return await self.store.lineage(owner, adapter.kind, id)

    async def _load_conversation(self, owner: str, id: str) -> list[Raw]:
        if not await self.store.get(owner, CONVERSATION_KIND, [id]):
            raise RequestRejected(conversation_not_found(id))
        rows = await self.store.children(owner, ITEM_KIND, id)
        return await run_in_thread_if(_items_without_ids, rows, heavy=len(rows) > MANY_OBJECTS)


def item_rows(owner: str, conversation: str, items: Sequence[Raw]) -> list[Row]:
    return [
        Row(owner, ITEM_KIND, f"{conversation}/{id}", bytes(item), conversation)
        for id, item in map(with_item_id, items)
    ]


def _are_items_heavy(items: Sequence[Raw]) -> bool:
    """Whether decoding items may hold the event loop for more than a few milliseconds."""
    return len(items) > MANY_OBJECTS or sum([len(bytes(item)) for item in items]) > LARGE_BODY


def _stored_items(rows: Sequence[Row], holder: StateAdapter) -> list[Raw]:
    return [item for row in rows for item in _decode(row.body, type=StoredResponse).items(holder)]


def _items_without_ids(rows: Sequence[Row]) -> list[Raw]:
    return [without_item_id(Raw(row.body)) for row in rows]


def _read_new_items(body: bytes, holder: StateAdapter) -> tuple[_InputBody, list[Raw]]:
    asked = _decode_body(body)
    return asked, [] if asked.input is UNSET or bytes(asked.input) == b"null" else holder.input_items(asked.input)


def _decode_body(body: bytes) -> _InputBody:
    if body.lstrip()[:1] == b"[":
        return _InputBody(input=Raw(body))  # the items alone
    return _decode(body, type=_InputBody)


def _drop_repeated_items(request: Request, items: list[Raw], history: list[Raw]) -> tuple[Request, list[Raw]]:
    """The request without the items that it repeats of its history: some clients send all that they know."""
    known = {id for item in history if (id := _item_id(item)) is not None}
    repeated = {index for index, item in enumerate(items) if _item_id(item) in known}
    if not repeated or len(items) != len(request.messages):
        return request, items
    messages = tuple([message for index, message in enumerate(request.messages) if index not in repeated])
    return replace(request, messages=messages), [item for index, item in enumerate(items) if index not in repeated]


class _ItemHead(Struct):
    id: str | None = None
    type: str | None = None


def _item_id(item: Raw) -> str | None:
    return _decode(item, type=_ItemHead).id


def _referenced_id(item: Raw) -> str | None:
    named = _decode(item, type=_ItemHead)
    return named.id if named.type == "item_reference" else None


def _decode_items(client: Codec, items: list[Raw], tools: Raw | UnsetType) -> Request:
    body = {"input": items} | ({} if tools is UNSET else {"tools": tools})
    return client.decode_request(_encode(body), Route())


def _prepend_history(
    client: Codec, request: Request, history: list[Raw], tools: Raw | UnsetType, adapter: StateAdapter
) -> Request:
    if not history:
        return request
    before = _decode_items(client, history, tools)
    place = (
        f"/{adapter.previous_field}"
        if request.continuation is None or request.continuation.kind != CONVERSATION_KIND
        else "/conversation"
    )
    told = [replace(message, at=f"{place}/{index}") for index, message in enumerate(before.messages)]
    new = with_source_positions(request, client.wire_names, "messages").messages
    whole = replace(request, messages=(*told, *new), plain=request.plain and before.plain)
    # Only now a result stands behind the call that it answers.
    return whole if client.computer_use is None else decode_computer_use(whole, client.computer_use)
