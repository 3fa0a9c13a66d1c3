"""Endpoints for stored responses and conversations: get, list, delete, cancel and add.

An id that another key created does not exist for the caller.
"""

import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import parse_qs

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.canonical.errors import ApiError
from toolwire.canonical.fold import unfold
from toolwire.codec.framing import escape_line_separators
from toolwire.codec.interface import Codec, ResponseContext
from toolwire.gateway.config import LimitsSection
from toolwire.gateway.errors import RequestRejected
from toolwire.gateway.limits import MANY_OBJECTS, check_values, is_heavy_body
from toolwire.gateway.state.adapters import (
    STATE_ADAPTERS,
    StateAdapter,
    conversation_not_found,
    item_not_found,
    with_item_id,
)
from toolwire.gateway.state.background_jobs import (
    FRAMES_KIND,
    RUNNING_STATUSES,
    FrameLogReader,
    is_running,
    number_frames,
    response_status,
    with_cancelled_status,
)
from toolwire.gateway.state.conversations import (
    CONVERSATION_KIND,
    ITEM_KIND,
    REFERENCE_KIND,
    ConversationState,
    StoredResponse,
    item_rows,
)
from toolwire.gateway.state.store import Row
from toolwire.protocols import PROTOCOLS

_RESPONSE_PATHS = [
    (re.compile(r"/v1/responses/([^/]+)(?:/(cancel|input_items))?"), "openai-responses"),
    (re.compile(r"/v1(?:beta)?/interactions/([^/]+)(?:/(cancel))?"), "gemini-interactions"),
]
_CONVERSATION_PATH = re.compile(r"/v1/conversations(?:/([^/]+)(?:/items(?:/([^/]+))?)?)?")
_MAX_PAGE_SIZE = 100

R = TypeVar("R")

_decode = msgspec.json.decode
_encode = msgspec.json.encode


class ResourceRequest(Struct, frozen=True):
    """A request for a stored resource."""

    owner: str
    """The tenant of the caller."""
    method: str
    path: str
    query: dict[str, list[str]]
    read_body: Callable[[], Awaitable[bytes]]
    """Reads the request body."""

    def query_value(self, name: str, default: str = "") -> str:
        """Return the value of a query parameter, or the default."""
        return self.query.get(name, [default])[0]


class ResourceResponse(Struct, frozen=True):
    """The response: a JSON body, or a stream."""

    body: bytes = b""
    stream: FrameLogReader | None = None


class Resources:
    """Serves stored responses and conversations."""

    def __init__(self, conversation_state: ConversationState, limits: LimitsSection | None = None) -> None:
        self._conversation_state = conversation_state
        self._store = conversation_state.store
        self._body_executor = conversation_state.body_executor
        self._limits = limits or LimitsSection()

    @property
    def unavailable_reason(self) -> str | None:
        """Return why state is unavailable, if it is, and schedule a check whether it still is."""
        if (reason := self._store.unavailable_reason) is not None:
            self._store.schedule_check()
        return reason

    def protocol_for(self, path: str) -> str | None:
        """Return the name of the protocol that a resource path belongs to; None if the path is no resource."""
        if path.startswith(("/v1/responses/input_tokens", "/v1/responses/compact")):
            return None
        if _CONVERSATION_PATH.fullmatch(path):
            return "openai-responses"
        return next((protocol for pattern, protocol in _RESPONSE_PATHS if pattern.fullmatch(path)), None)

    async def serve(
        self, owner: str, method: str, path: str, query: bytes, read_body: Callable[[], Awaitable[bytes]]
    ) -> ResourceResponse:
        """Serve one request, or raise `RequestRejected`."""
        request = ResourceRequest(owner, method, path, parse_qs(query.decode("latin-1")), read_body)
        if (path_match := _CONVERSATION_PATH.fullmatch(path)) is not None:
            return ResourceResponse(_encode(await self._serve_conversation(request, path_match)))
        for pattern, protocol in _RESPONSE_PATHS:
            if (path_match := pattern.fullmatch(path)) is not None:
                return await self._serve_response(
                    request, PROTOCOLS[protocol], path_match[1], path_match[2] if len(path_match.groups()) > 1 else None
                )
        raise RequestRejected(_not_found(request))

    # ---- responses

    async def _serve_response(
        self, request: ResourceRequest, client: Codec, id: str, action: str | None
    ) -> ResourceResponse:
        """Serve a request for one stored response."""
        adapter = STATE_ADAPTERS[client.name]
        match request.method, action:
            case "GET", None:
                return await self._get_response(request, client, adapter, id)
            case "GET", "input_items":
                record = await self._load_response(request.owner, adapter, id)
                heavy = len(record.input) > MANY_OBJECTS
                return ResourceResponse(
                    await self._body_executor.run(_list_input, record.input, id, request, heavy=heavy)
                )
            case "DELETE", None:
                if not await self._store.delete(request.owner, adapter.kind, id):
                    raise RequestRejected(adapter.not_found(id))
                await self._store.delete_children(request.owner, REFERENCE_KIND, id)
                await self._store.delete_children(request.owner, FRAMES_KIND, id)
                self._conversation_state.background_jobs.stop_job(request.owner, id)
                return ResourceResponse(
                    _encode({"id": id, "object": adapter.kind, "deleted": True} if adapter.kind == "response" else {})
                )
            case "POST", "cancel":
                return ResourceResponse(await self._cancel_response(request.owner, adapter, id))
            case _:
                raise RequestRejected(_method_not_allowed(request))

    async def _load_response(self, owner: str, adapter: StateAdapter, id: str) -> StoredResponse:
        """Load a response in its current state."""
        rows = await self._store.get(owner, adapter.kind, [id])
        if id not in rows:
            raise RequestRejected(adapter.not_found(id))
        record = _decode(rows[id], type=StoredResponse)
        response = await self._conversation_state.background_jobs.current_response(owner, adapter, id, record.response)
        return replace(record, response=response)

    async def _get_response(
        self, request: ResourceRequest, client: Codec, adapter: StateAdapter, id: str
    ) -> ResourceResponse:
        """Return a response as JSON, or stream it from any event on."""
        record = await self._load_response(request.owner, adapter, id)
        if request.query_value("stream") != "true":
            if request.query_value("include_input") != "true":
                return ResourceResponse(bytes(record.response))
            fields = _decode(record.response, type=dict[str, Raw])
            return ResourceResponse(_encode(fields | {adapter.output_field: record.new_items(adapter)}))
        after, is_background = _resume_position(request, adapter), _is_background(record.response)
        if after >= 0 and adapter.sequence_is_integer and record.streamed and not is_background:
            # The original event numbers are not stored.
            message = f"{adapter.resume_parameter}: only background responses can be resumed"
            raise RequestRejected(
                ApiError(kind="invalid_request", message=message, status=400, param=adapter.resume_parameter)
            )
        if is_background:
            return ResourceResponse(
                stream=FrameLogReader(
                    self._conversation_state.background_jobs.read_frames(request.owner, adapter, id, after)
                )
            )
        frames = number_frames(adapter, _encode_stream(client, bytes(record.response)))
        return ResourceResponse(stream=FrameLogReader(_single_chunk(b"".join(frames[after + 1 :]))))

    async def _cancel_response(self, owner: str, adapter: StateAdapter, id: str) -> bytes:
        """Cancel a background response, and return its body; one that has ended is returned unchanged."""
        record = await self._load_response(owner, adapter, id)
        if not _is_background(record.response):
            message = f"Cannot cancel a synchronous {adapter.kind}."
            raise RequestRejected(ApiError(kind="invalid_request", message=message, status=400))
        if response_status(record.response) not in RUNNING_STATUSES:
            return bytes(record.response)  # it has ended already
        cancelled = with_cancelled_status(record.response)
        parents = [row.parent for row in await self._store.lineage(owner, adapter.kind, id)]
        body = _encode(replace(record, response=Raw(cancelled)))
        row = Row(owner, adapter.kind, id, body, parents[-1] if parents else None)
        if not await self._store.put_if([row], is_running):
            return bytes((await self._load_response(owner, adapter, id)).response)  # it ended meanwhile
        self._conversation_state.background_jobs.stop_job(owner, id)
        return cancelled

    # ---- conversations

    async def _serve_conversation(self, request: ResourceRequest, path_match: re.Match[str]) -> Any:
        """Return the JSON value that answers a request for conversations."""
        id, item_id = path_match[1], path_match[2]
        if id is None:
            if request.method != "POST":
                raise RequestRejected(_method_not_allowed(request))
            return await self._create_conversation(request)
        stored = (await self._store.get(request.owner, CONVERSATION_KIND, [id])).get(id)
        if stored is None:
            raise RequestRejected(conversation_not_found(id))
        if "/items" in request.path:
            return await self._serve_items(request, id, item_id, Raw(stored))
        match request.method:
            case "GET":
                return Raw(stored)
            case "POST":
                changes = await self._read_object(request, lambda body: {"metadata": body.get("metadata")})
                updated = _decode(stored) | changes
                await self._store.put([Row(request.owner, CONVERSATION_KIND, id, _encode(updated))])
                return updated
            case "DELETE":
                await self._store.delete(request.owner, CONVERSATION_KIND, id)
                await self._store.delete_children(request.owner, ITEM_KIND, id)
                return {"id": id, "object": "conversation.deleted", "deleted": True}
            case _:
                raise RequestRejected(_method_not_allowed(request))

    async def _create_conversation(self, request: ResourceRequest) -> Any:
        """Create a conversation with the given items, and return it as a JSON value."""
        id = f"conv_{secrets.token_hex(24)}"
        metadata, items = await self._read_object(
            request, lambda body: (body.get("metadata") or {}, item_rows(request.owner, id, _decode_items(body)))
        )
        conversation = {
            "id": id,
            "object": "conversation",
            "created_at": int(time.time()),
            "metadata": metadata,
        }
        await self._store.put([Row(request.owner, CONVERSATION_KIND, id, _encode(conversation)), *items])
        return conversation

    async def _serve_items(self, request: ResourceRequest, id: str, item_id: str | None, conversation: Raw) -> Any:
        """Return the JSON value that answers a request for the items of a conversation."""
        match request.method, item_id:
            case "GET", None:
                rows = await self._store.children(request.owner, ITEM_KIND, id)
                items = [Raw(row.body) for row in rows]
                return await self._body_executor.run(_list_items, items, request, heavy=len(items) > MANY_OBJECTS)
            case "POST", None:
                rows = await self._read_object(request, lambda body: item_rows(request.owner, id, _decode_items(body)))
                await self._store.put(rows)
                items = [Raw(row.body) for row in rows]
                return await self._body_executor.run(
                    lambda: _encode_page(items, has_more=False), heavy=len(items) > MANY_OBJECTS
                )
            case "GET", str():
                stored = await self._store.get(request.owner, ITEM_KIND, [f"{id}/{item_id}"])
                if not stored:
                    raise RequestRejected(item_not_found(item_id))
                return Raw(stored[f"{id}/{item_id}"])
            case "DELETE", str():
                if not await self._store.delete(request.owner, ITEM_KIND, f"{id}/{item_id}"):
                    raise RequestRejected(item_not_found(item_id))
                return conversation
            case _:
                raise RequestRejected(_method_not_allowed(request))

    async def _read_object(self, request: ResourceRequest, convert: Callable[[dict[str, Any]], R]) -> R:
        """Read the JSON object in the request body and convert it, in a thread if it is large."""
        body = await request.read_body()

        def work() -> R:
            """Decode the body as a JSON object, and convert it."""
            check_values(body, self._limits)
            return convert(_decode_object(body))

        return await self._body_executor.run(work, heavy=is_heavy_body(body))


# ---- wire forms


def _decode_object(body: bytes) -> dict[str, Any]:
    """Decode a JSON object; an empty body is an empty object."""
    try:
        return _decode(body or b"{}", type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise RequestRejected(ApiError(kind="invalid_request", message=str(error), status=400)) from None


def _decode_items(body: dict[str, Any]) -> list[Raw]:
    """Decode the `items` of a request body."""
    items = body.get("items") or []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise RequestRejected(ApiError(kind="invalid_request", message="items: expected a list of objects", status=400))
    return [Raw(_encode(_normalize_item(item))) for item in items]


def _normalize_item(item: dict[str, Any]) -> dict[str, Any]:
    """Convert string content of a message to a list of one text part, as OpenAI lists items; others are unchanged."""
    if item.get("type", "message") != "message" or not isinstance(text := item.get("content"), str):
        return item
    kind = "output_text" if item.get("role") == "assistant" else "input_text"
    extra_fields: dict[str, Any] = {"annotations": []} if kind == "output_text" else {}
    return (
        {"type": "message", "status": "completed"} | item | {"content": [{"type": kind, "text": text, **extra_fields}]}
    )


def _with_item_ids(items: Sequence[Raw], seed: str) -> list[Raw]:
    """Add ids to items that have none; the same seed gives the same ids."""
    named_items: list[Raw] = []
    for index, item in enumerate(items):
        fields = _normalize_item(_decode(item, type=dict[str, Any]))
        _, named_item = with_item_id(
            Raw(_encode(fields | ({} if fields.get("id") else {"id": f"item_{index}_{seed}"})))
        )
        named_items.append(named_item)
    return named_items


def _list_input(items: Sequence[Raw], seed: str, request: ResourceRequest) -> bytes:
    """Encode a page of a response's input items."""
    return _encode(_list_items(_with_item_ids(items, seed), request))


def _list_items(items: Sequence[Raw], request: ResourceRequest) -> dict[str, Any]:
    """Return a page of items, the latest first by default."""
    page = list(items) if request.query_value("order", "desc") == "asc" else list(reversed(items))
    if after := request.query_value("after"):
        ids = [_decode(item, type=dict[str, Any]).get("id") for item in page]
        page = page[ids.index(after) + 1 :] if after in ids else []
    limit = request.query_value("limit", "20")
    count = min(max(int(limit) if limit.isdigit() else 20, 1), _MAX_PAGE_SIZE)
    return _encode_page(page[:count], has_more=len(page) > count)


def _encode_page(items: Sequence[Raw], *, has_more: bool) -> dict[str, Any]:
    """Build the list object for a page of items."""
    ids = [_decode(item, type=dict[str, Any]).get("id") for item in items]
    return {
        "object": "list",
        "data": list(items),
        "first_id": ids[0] if ids else None,
        "last_id": ids[-1] if ids else None,
        "has_more": has_more,
    }


def _is_background(response: Raw) -> bool:
    """Return whether a response was produced in the background."""
    return bool(_decode(response, type=dict[str, Any]).get("background"))


def _encode_stream(client: Codec, response: bytes) -> bytes:
    """Return a stored response as the bytes of a complete stream."""
    encoder = client.stream_encoder(ResponseContext())
    return escape_line_separators(
        encoder.encode(unfold(client.decode_response(response, ResponseContext()))) + encoder.close()
    )


def _resume_position(request: ResourceRequest, adapter: StateAdapter) -> int:
    """Return the number of the last event that the client has seen; -1 if none."""
    value = request.query_value(adapter.resume_parameter)
    if value and not (value.isdecimal() and value.isascii() and len(value) < 10):
        message = f"{adapter.resume_parameter}: invalid event number {value[:100]!r}"
        raise RequestRejected(
            ApiError(kind="invalid_request", message=message, status=400, param=adapter.resume_parameter)
        )
    return int(value) if value else -1


async def _single_chunk(data: bytes) -> AsyncIterator[bytes]:
    """Yield the data as one chunk."""
    yield data


# ---- errors


def _not_found(request: ResourceRequest) -> ApiError:
    """Build the error for a path that does not exist."""
    return ApiError(kind="not_found", message=f"not found: {request.path}", status=404)


def _method_not_allowed(request: ResourceRequest) -> ApiError:
    """Build the error for a method that the path does not support."""
    return ApiError(kind="invalid_request", message=f"method not allowed: {request.method}", status=405)
