"""Stored conversations, resolved for each request, and histories of WebSocket connections.

Each channel (`stream_id`) keeps its last response and everything that led to it. The histories are bounded in bytes;
the least recently used are evicted first. `previous_response_id` is then not found, and the client resends everything.

Stored responses and conversations, for upstreams that store none.

A request that continues a response (`previous_response_id`) gets its history and nothing else: tools, instructions and
settings are its own. The history is complete, or the request is rejected. A response is stored when complete, as the
client got it, with the new input of its request; a chain of responses is stored link by link.
"""

import asyncio
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from toolwire.canonical.content import ItemRef
from toolwire.canonical.errors import ApiError, Loss
from toolwire.canonical.fold import unfold
from toolwire.canonical.request import Continuation, Request
from toolwire.canonical.response import Candidate, Response, Stop, Usage
from toolwire.codec.encoding.computer import decode_computer_use
from toolwire.codec.framing import escape_line_separators
from toolwire.codec.interface import Codec, ResponseContext, Route
from toolwire.codec.losses import with_source_positions
from toolwire.codec.memo import BoundedMemo
from toolwire.gateway.errors import RequestRejected
from toolwire.gateway.in_flight_counts import InFlightCounts
from toolwire.gateway.limits import LARGE_BODY, MANY_OBJECTS, BodyExecutor, Quota, is_heavy_body
from toolwire.gateway.state.adapters import (
    STATE_ADAPTERS,
    StateAdapter,
    conversation_not_found,
    item_not_found,
    with_item_id,
    without_item_id,
)
from toolwire.gateway.state.background_jobs import RUNNING_STATUSES, BackgroundJobs, response_status
from toolwire.gateway.state.signatures import IssuedSignatures
from toolwire.gateway.state.store import Row, StateStore, StateUnavailable
from toolwire.gateway.state.withheld_turns import WithheldTurns

HistoryMemo = BoundedMemo[tuple["ConnectionState", str], list[Raw]]
"""The histories of all WebSocket connections, by connection and channel."""


class ConnectionState:
    """The channels of one connection."""

    def __init__(self, histories: HistoryMemo) -> None:
        self._histories = histories
        self._response_ids: dict[str, str] = {}
        self._closed = False

    @property
    def last_response_ids(self) -> set[str]:
        """Return the id of the last response of each channel."""
        return set(self._response_ids.values())

    def find_history(self, id: str) -> list[Raw] | None:
        """Return the conversation's items up to this response, as raw JSON.

        None if it is not the last response of a channel, or was evicted.
        """
        for stream_id, response_id in self._response_ids.items():
            if response_id == id and (items := self._histories.get((self, stream_id))) is not None:
                self._histories.touch((self, stream_id))
                return items
        return None

    def store_history(self, stream_id: str, id: str, items: list[Raw]) -> None:
        """Store the items up to this response as the channel's history."""
        if not self._closed:  # a response may complete just after its connection is closed
            self._response_ids[stream_id] = id
            copies = [item.copy() for item in items]  # otherwise each item keeps the entire message it came in alive
            self._histories.put((self, stream_id), copies, sum(len(memoryview(item)) for item in copies))

    def close(self) -> None:
        """Remove all histories of the connection."""
        self._closed = True
        for stream_id in self._response_ids:
            self._histories.remove((self, stream_id))


class ChannelState(Struct, frozen=True):
    """One channel of a connection, as the request that it carries sees it."""

    stream_id: str
    connection: ConnectionState

    def find_history(self, id: str) -> list[Raw] | None:
        """Return the items up to this response of the connection; None if they are not there."""
        return self.connection.find_history(id)

    def store_history(self, id: str, items: list[Raw]) -> None:
        """Store the items up to this response as the channel's history."""
        self.connection.store_history(self.stream_id, id, items)


CONVERSATION_KIND = "conversation"
ITEM_KIND = "item"
REFERENCE_KIND = "reference"
_RETRY_DELAY = 0.05  # seconds; another process may be writing the row
_decode = msgspec.json.decode
_encode = msgspec.json.encode


class StoredResponse(Struct, frozen=True):
    """A stored response: the new input of its request, and the response as the client got it."""

    input: list[Raw]
    response: Raw
    before: list[Raw] = []
    """Earlier items that no parent row has."""
    streamed: bool = False
    """Whether the client got the response as a stream."""

    def new_items(self, adapter: StateAdapter) -> list[Raw]:
        """Return the items that this response added to the conversation, as raw JSON.

        These are the new input of its request and its output; `adapter` knows the protocol's name for the latter.
        """
        output = _decode(self.response, type=dict[str, Raw]).get(adapter.output_field)
        return self.input + ([] if output is None else _decode(output, type=list[Raw]))

    def items(self, adapter: StateAdapter) -> list[Raw]:
        """Return the items of `before`, then those that this response added, as raw JSON."""
        return self.before + self.new_items(adapter)


class _InputBody(Struct):
    """The fields of a request body that hold items and tools."""

    input: Raw | UnsetType = UNSET
    tools: Raw | UnsetType = UNSET


class History(Struct):
    """The items that precede a request."""

    items: list[Raw] = []
    parent: str | None = None
    """The row of the last response of the history; None if the items come from elsewhere."""


class PendingResponse:
    """A response to be stored: the request with its history, and where its response goes."""

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
        """Return whether the response is produced in the background."""
        return bool(self._continuation.background) and bool(self._continuation.store)

    @property
    def has_heavy_history(self) -> bool:
        """Return whether encoding the history may block the event loop for more than a few milliseconds."""
        return _are_items_heavy(self._history.items)

    def upstream_request(self, request: Request, *, same_protocol: bool) -> Request:
        """Return the request without `previous_response_id` and other state that the gateway holds itself."""
        requested = self._client_continuation or Continuation()
        if same_protocol and requested.id is None and not requested.background:
            return replace(request, continuation=self._client_continuation)
        store = requested.store if same_protocol or requested.store is False else None
        return replace(request, continuation=None if store is None else Continuation(store=store))

    async def store_prewarm(self, client: Codec, created: int) -> bytes:
        """Store the request with an empty response, to be continued by the next request.

        Returns the SSE stream of the empty response.
        """
        context = ResponseContext(request=self.request, created=created)
        empty_response = Response(
            origin="",
            id=self.id,
            model=self.request.model,
            created=created,
            candidates=(Candidate(stop=Stop(reason="end_turn")),),
            usage=Usage(input_tokens=0, output_tokens=0),
        )
        self.stage(client.encode_response(empty_response, context).to_bytes())
        await self.flush()
        encoder = client.stream_encoder(context)
        return escape_line_separators(encoder.encode(unfold(empty_response)) + encoder.close())

    def complete(self, body: bytes) -> None:
        """Take a complete response body; a background job stores it once it is known to be still wanted."""
        if self.is_background:
            fields = _decode(body, type=dict[str, Raw])
            self.completed_body = _encode(fields | {"id": Raw(_encode(self.id)), "background": Raw(b"true")})
        else:
            self.stage(body)

    def incomplete_row(self, body: bytes) -> Row:
        """Return the row of an incomplete response, which can't be continued."""
        return self._row(self.id, self._stored_response(body))

    async def register(self, body: bytes) -> None:
        """Store an incomplete response, before the client gets its id."""
        await self._store.put([self.incomplete_row(body)])

    def take_staged_rows(self) -> list[Row]:
        """Return the rows of a complete response, its own first, for a caller that stores them itself."""
        rows, self._staged_rows = self._staged_rows, []
        return rows

    async def flush(self) -> Loss | None:
        """Store the staged response, and return a loss if that failed.

        Called before the last byte is sent, so that an id which the client has read is valid even if the gateway
        crashes.
        """
        if not self._staged_rows:
            return None
        try:
            await self._store.put(self.take_staged_rows())
        except StateUnavailable as error:
            reason = f"the response was not stored: {error.reason}"
            return Loss(severity="error", kind="dropped", path="/store", reason=reason, direction="request")
        return None

    def stage(self, body: bytes) -> None:
        """Take a complete response body, and prepare the rows that `flush` stores."""
        continuation, history = self._continuation, self._history
        record = self._stored_response(body)
        fields = _decode(body, type=dict[str, Raw])
        id = _decode(fields["id"], type=str) if "id" in fields else None
        rows: list[Row] = []
        if continuation.store and id is not None:
            rows += [self._row(id, record), *self._reference_rows(id, fields)]
        if continuation.kind == CONVERSATION_KIND and continuation.id is not None:
            rows += item_rows(self.owner, continuation.id, record.new_items(self.adapter))
        self._staged_rows += rows
        if self._channel is not None and id is not None:
            self._channel.store_history(id, history.items + record.new_items(self.adapter))

    def _reference_rows(self, id: str, response: dict[str, Raw]) -> list[Row]:
        """Build the rows that map each output item to this response, for `item_reference`."""
        if self.adapter.kind != "response" or self.adapter.output_field not in response:
            return []
        items = _decode(response[self.adapter.output_field], type=list[Raw])
        return [
            Row(self.owner, REFERENCE_KIND, item_id, id.encode(), id) for item in items if (item_id := _item_id(item))
        ]

    @property
    def _inline_history(self) -> list[Raw]:
        """Return the earlier items that must be stored with the response, as no parent row has them."""
        return self._history.items if self._history.parent is None else []

    def _stored_response(self, body: bytes) -> StoredResponse:
        """Build the stored form of a response."""
        return StoredResponse(self._new_items, Raw(body), self._inline_history, bool(self.request.stream))

    def _row(self, id: str, record: StoredResponse) -> Row:
        """Build the row of a response."""
        return Row(self.owner, self.adapter.kind, id, _encode(record), self._history.parent)


class ConversationState:
    """Resolves references to stored responses and conversations, and stores new ones."""

    def __init__(
        self,
        store: StateStore,
        max_background: int,
        max_bytes: int,
        key_quota: int | None = None,
        *,
        counts: InFlightCounts | None = None,
    ) -> None:
        """Create the state; the limits are those of background responses, `key_quota` per key."""
        self.store = store
        self.body_executor = BodyExecutor()
        """Threads for large histories and bodies; those of the dispatcher, too."""

        self.withheld_turns = WithheldTurns(store)
        self.signatures = IssuedSignatures(store)
        quota = Quota(
            "background responses", max_background, max_background if key_quota is None else key_quota, counts
        )
        self.background_jobs = BackgroundJobs(store, quota, max_bytes)

    def close(self) -> None:
        """Stop background jobs and worker threads, and close the store."""
        self.background_jobs.close()
        self.body_executor.close()
        self.store.close()

    async def resolve(
        self, client: Codec, owner: str, body: bytes, request: Request, channel: ChannelState | None = None
    ) -> PendingResponse | None:
        """Add the stored history to a request, and return the response to be stored.

        None if the request refers to nothing stored and its response is not stored either.
        """
        adapter = STATE_ADAPTERS.get(client.name)
        if adapter is None:
            return None
        continuation = request.continuation or Continuation()
        has_references = any(type(part) is ItemRef for message in request.messages for part in message.parts)
        if _is_stateless(continuation) and not has_references and channel is None:
            return None
        await self._check_storable(continuation)
        input_body, new_items = await self.body_executor.run(_read_new_items, body, adapter, heavy=is_heavy_body(body))
        history = await self._load_history(owner, adapter, continuation, channel)
        heavy = is_heavy_body(body) or _are_items_heavy(history.items)
        if history.items:
            request, new_items = await self.body_executor.run(
                _drop_repeated_items, request, new_items, history.items, heavy=heavy
            )
        if has_references:
            new_items = await self._resolve_references(owner, adapter, new_items)
            resolved = await self.body_executor.run(
                _decode_items, client, new_items, input_body.tools, heavy=heavy or _are_items_heavy(new_items)
            )
            request = replace(request, messages=resolved.messages)
        continued = await self.body_executor.run(
            _prepend_history, client, request, history.items, input_body.tools, adapter, heavy=heavy
        )
        effective = replace(continuation, store=continuation.store is not False)
        return PendingResponse(
            self.store,
            owner,
            adapter,
            request=replace(continued, continuation=effective),
            client_continuation=request.continuation,
            new_items=new_items,
            history=history,
            channel=channel,
        )

    async def _check_storable(self, continuation: Continuation) -> None:
        """Reject a request whose response must be stored but can't be: better before it is paid for."""
        if continuation.background and continuation.store is False:
            message = "background requires store, which is false"
            raise RequestRejected(ApiError(kind="invalid_request", message=message, status=400, param="background"))
        in_conversation = continuation.kind == CONVERSATION_KIND and continuation.id
        must_store = continuation.store or continuation.background or in_conversation
        if must_store and self.store.unavailable_reason is not None:
            await self.store.check_writable()

    async def _load_history(
        self, owner: str, adapter: StateAdapter, continuation: Continuation, channel: ChannelState | None
    ) -> History:
        """Load the items of the conversation or response that the request continues."""
        if continuation.id is None:
            return History()
        if continuation.kind == CONVERSATION_KIND:
            return History(await self._load_conversation(owner, continuation.id))
        if channel is not None and (items := channel.find_history(continuation.id)) is not None:
            return History(items)
        rows = await self._load_lineage(owner, adapter, continuation.id)
        if not rows:
            raise RequestRejected(adapter.previous_not_found(continuation.id))
        if response_status(_decode(rows[-1].body, type=StoredResponse).response) in RUNNING_STATUSES:
            message = f"{adapter.kind.capitalize()} with id '{continuation.id}' is still in progress."
            raise RequestRejected(
                ApiError(kind="invalid_request", message=message, status=400, param=adapter.previous_field)
            )
        heavy = sum([len(row.body) for row in rows]) > LARGE_BODY
        return History(await self.body_executor.run(_stored_items, rows, adapter, heavy=heavy), continuation.id)

    async def _resolve_references(self, owner: str, adapter: StateAdapter, items: list[Raw]) -> list[Raw]:
        """Replace item references by the stored items.

        References never reach the upstream, which might resolve them to items of another key.
        """
        indexes = {id: index for index, item in enumerate(items) if (id := _referenced_id(item)) is not None}
        response_ids = await self.store.get(owner, REFERENCE_KIND, list(indexes))
        records = await self.store.get(
            owner, adapter.kind, [response_id.decode() for response_id in response_ids.values()]
        )
        items_found = [
            item for record in records.values() for item in _decode(record, type=StoredResponse).new_items(adapter)
        ]
        items_by_id = {_item_id(item): item for item in items_found}
        resolved = list(items)
        for id, index in indexes.items():
            if id not in items_by_id:
                raise RequestRejected(item_not_found(id))
            resolved[index] = items_by_id[id]
        return resolved

    async def _load_lineage(self, owner: str, adapter: StateAdapter, id: str) -> list[Row]:
        """Load the rows of a response and of all responses before it, retrying once."""
        if rows := await self.store.lineage(owner, adapter.kind, id):
            return rows
        await asyncio.sleep(_RETRY_DELAY)
        return await self.store.lineage(owner, adapter.kind, id)

    async def _load_conversation(self, owner: str, id: str) -> list[Raw]:
        """Load the items of a conversation."""
        if not await self.store.get(owner, CONVERSATION_KIND, [id]):
            raise RequestRejected(conversation_not_found(id))
        rows = await self.store.children(owner, ITEM_KIND, id)
        return await self.body_executor.run(_items_without_ids, rows, heavy=len(rows) > MANY_OBJECTS)


def _is_stateless(continuation: Continuation) -> bool:
    """Return whether a request neither refers to stored responses nor stores its own."""
    return continuation.store is False and continuation.id is None and not continuation.background


def item_rows(owner: str, conversation: str, items: Sequence[Raw]) -> list[Row]:
    """Build the rows of conversation items, assigning ids where needed."""
    return [
        Row(owner, ITEM_KIND, f"{conversation}/{id}", bytes(item), conversation)
        for id, item in map(with_item_id, items)
    ]


def _are_items_heavy(items: Sequence[Raw]) -> bool:
    """Return whether decoding items may block the event loop for more than a few milliseconds."""
    return len(items) > MANY_OBJECTS or sum([len(bytes(item)) for item in items]) > LARGE_BODY


def _stored_items(rows: Sequence[Row], adapter: StateAdapter) -> list[Raw]:
    """Decode all items of a chain of responses."""
    return [item for row in rows for item in _decode(row.body, type=StoredResponse).items(adapter)]


def _items_without_ids(rows: Sequence[Row]) -> list[Raw]:
    """Return conversation items without the ids that the gateway assigned."""
    return [without_item_id(Raw(row.body)) for row in rows]


def _read_new_items(body: bytes, adapter: StateAdapter) -> tuple[_InputBody, list[Raw]]:
    """Return the decoded request body, and its input as a list of items."""
    input_body = _decode_body(body)
    return input_body, [] if input_body.input is UNSET or bytes(input_body.input) == b"null" else adapter.input_items(
        input_body.input
    )


def _decode_body(body: bytes) -> _InputBody:
    """Decode a request body, which may be a bare list of items."""
    if body.lstrip()[:1] == b"[":
        return _InputBody(input=Raw(body))  # a bare list of items
    return _decode(body, type=_InputBody)


def _drop_repeated_items(request: Request, items: list[Raw], history: list[Raw]) -> tuple[Request, list[Raw]]:
    """Return the request and its items without those that repeat the history: some clients resend everything."""
    known_ids = {id for item in history if (id := _item_id(item)) is not None}
    repeated = {index for index, item in enumerate(items) if _item_id(item) in known_ids}
    if not repeated or len(items) != len(request.messages):
        return request, items
    messages = tuple([message for index, message in enumerate(request.messages) if index not in repeated])
    return replace(request, messages=messages), [item for index, item in enumerate(items) if index not in repeated]


class _ItemHead(Struct):
    """The identifying fields of an item."""

    id: str | None = None
    type: str | None = None


def _item_id(item: Raw) -> str | None:
    """Return the id of an item; None if it has none."""
    return _decode(item, type=_ItemHead).id


def _referenced_id(item: Raw) -> str | None:
    """Return the id in an `item_reference`; None for other items."""
    head = _decode(item, type=_ItemHead)
    return head.id if head.type == "item_reference" else None


def _decode_items(client: Codec, items: list[Raw], tools: Raw | UnsetType) -> Request:
    """Decode items as the input of a request."""
    body = {"input": items} | ({} if tools is UNSET else {"tools": tools})
    return client.decode_request(_encode(body), Route())


def _prepend_history(
    client: Codec, request: Request, history: list[Raw], tools: Raw | UnsetType, adapter: StateAdapter
) -> Request:
    """Return the request with the history before its messages, which keep their paths for loss reports."""
    if not history:
        return request
    earlier = _decode_items(client, history, tools)
    path = (
        f"/{adapter.previous_field}"
        if request.continuation is None or request.continuation.kind != CONVERSATION_KIND
        else "/conversation"
    )
    located = [replace(message, at=f"{path}/{index}") for index, message in enumerate(earlier.messages)]
    new = with_source_positions(request, client.wire_names, "messages").messages
    combined = replace(request, messages=(*located, *new))
    # Only now does a tool result follow its call.
    return combined if client.computer_use is None else decode_computer_use(combined, client.computer_use)
