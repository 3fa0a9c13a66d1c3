"""What can be done with answers and conversations by their ids: look, list, delete, cancel, add.

An id that another key made is not there, whatever is asked of it.
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
from toolwire.gateway.limits import MANY_OBJECTS, check_values, is_heavy_body, run_in_thread_if
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
    """What is asked of a resource, and by whom. `body` reads what was sent with it."""

    owner: str
    method: str
    path: str
    query: dict[str, list[str]]
    read_body: Callable[[], Awaitable[bytes]]

    def query_value(self, name: str, default: str = "") -> str:
        return self.query.get(name, [default])[0]


class ResourceResponse(Struct, frozen=True):
    """`stream`, if it is one."""

    body: bytes = b""
    stream: FrameLogReader | None = None


class Resources:
    def __init__(self, conversation_state: ConversationState, limits: LimitsSection | None = None) -> None:
        self._conversation_state = conversation_state
        self._store = conversation_state.store
        self._limits = limits or LimitsSection()

    @property
    def unavailable_reason(self) -> str | None:
        """Why state is unavailable, if it is. Asking has the store find out whether it still is."""
        if (trouble := self._store.unavailable_reason) is not None:
            self._store.schedule_check()
        return trouble

    def protocol_for(self, path: str) -> str | None:
        """In whose words an address is answered; None, if there is nothing here under it."""
        if path.startswith(("/v1/responses/input_tokens", "/v1/responses/compact")):
            return None
        if _CONVERSATION_PATH.fullmatch(path):
            return "openai-responses"
        return next((name for place, name in _RESPONSE_PATHS if place.fullmatch(path)), None)

    async def serve(
        self, owner: str, method: str, path: str, query: bytes, read_body: Callable[[], Awaitable[bytes]]
    ) -> ResourceResponse:
        asking = ResourceRequest(owner, method, path, parse_qs(query.decode("latin-1")), read_body)
        if (found := _CONVERSATION_PATH.fullmatch(path)) is not None:
            return ResourceResponse(_encode(await self._serve_conversation(asking, found)))
        for place, name in _RESPONSE_PATHS:
            if (found := place.fullmatch(path)) is not None:
                return await self._serve_response(
                    asking, PROTOCOLS[name], found[1], found[2] if len(found.groups()) > 1 else None
                )
        raise RequestRejected(_not_found(asking))

    # ---- answers

    async def _serve_response(
        self, request: ResourceRequest, client: Codec, id: str, action: str | None
    ) -> ResourceResponse:
        holder = STATE_ADAPTERS[client.name]
        match request.method, action:
            case "GET", None:
                return await self._get_response(request, client, holder, id)
            case "GET", "input_items":
                record = await self._load_response(request.owner, holder, id)
                heavy = len(record.input) > MANY_OBJECTS
                return ResourceResponse(await run_in_thread_if(_list_input, record.input, id, request, heavy=heavy))
            case "DELETE", None:
                if not await self._store.delete(request.owner, holder.kind, id):
                    raise RequestRejected(holder.not_found(id))
                await self._store.delete_children(request.owner, REFERENCE_KIND, id)
                await self._store.delete_children(request.owner, FRAMES_KIND, id)
                self._conversation_state.background_jobs.stop_job(request.owner, id)
                return ResourceResponse(
                    _encode({"id": id, "object": holder.kind, "deleted": True} if holder.kind == "response" else {})
                )
            case "POST", "cancel":
                return ResourceResponse(await self._cancel_response(request.owner, holder, id))
            case _:
                raise RequestRejected(_method_not_allowed(request))

    async def _load_response(self, owner: str, adapter: StateAdapter, id: str) -> StoredResponse:
        found = await self._store.get(owner, adapter.kind, [id])
        if id not in found:
            raise RequestRejected(adapter.not_found(id))
        record = _decode(found[id], type=StoredResponse)
        answer = await self._conversation_state.background_jobs.current_response(owner, adapter, id, record.answer)
        return replace(record, answer=answer)

    async def _get_response(
        self, request: ResourceRequest, client: Codec, adapter: StateAdapter, id: str
    ) -> ResourceResponse:
        record = await self._load_response(request.owner, adapter, id)
        if request.query_value("stream") != "true":
            if request.query_value("include_input") != "true":
                return ResourceResponse(bytes(record.answer))
            whole = _decode(record.answer, type=dict[str, Raw])
            return ResourceResponse(_encode(whole | {adapter.output_field: record.new_items(adapter)}))
        after, lasting = _resume_position(request, adapter), _is_background(record.answer)
        if after >= 0 and adapter.sequence_is_integer and record.streamed and not lasting:
            # As it came it had other numbers, which are not kept.
            why = f"{adapter.resume_parameter}: of what is streamed, only what is made in the background can be resumed"
            raise RequestRejected(
                ApiError(kind="invalid_request", message=why, status=400, param=adapter.resume_parameter)
            )
        if lasting:
            return ResourceResponse(
                stream=FrameLogReader(
                    self._conversation_state.background_jobs.read_frames(request.owner, adapter, id, after)
                )
            )
        frames = number_frames(adapter, _encode_stream(client, bytes(record.answer)))
        return ResourceResponse(stream=FrameLogReader(_single_chunk(b"".join(frames[after + 1 :]))))

    async def _cancel_response(self, owner: str, adapter: StateAdapter, id: str) -> bytes:
        record = await self._load_response(owner, adapter, id)
        if not _is_background(record.answer):
            why = f"Cannot cancel a synchronous {adapter.kind}."
            raise RequestRejected(ApiError(kind="invalid_request", message=why, status=400))
        if response_status(record.answer) not in RUNNING_STATUSES:
            return bytes(record.answer)  # it is as done as it will be
        told = with_cancelled_status(record.answer)
        parents = [row.parent for row in await self._store.lineage(owner, adapter.kind, id)]
        body = _encode(replace(record, answer=Raw(told)))
        row = Row(owner, adapter.kind, id, body, parents[-1] if parents else None)
        if not await self._store.put_if([row], is_running):
            return bytes((await self._load_response(owner, adapter, id)).answer)  # it ended meanwhile
        self._conversation_state.background_jobs.stop_job(owner, id)
        return told

    # ---- conversations

    async def _serve_conversation(self, request: ResourceRequest, path_match: re.Match[str]) -> Any:
        id, item = path_match[1], path_match[2]
        if id is None:
            if request.method != "POST":
                raise RequestRejected(_method_not_allowed(request))
            return await self._create_conversation(request)
        kept = (await self._store.get(request.owner, CONVERSATION_KIND, [id])).get(id)
        if kept is None:
            raise RequestRejected(conversation_not_found(id))
        if "/items" in request.path:
            return await self._serve_items(request, id, item, Raw(kept))
        match request.method:
            case "GET":
                return Raw(kept)
            case "POST":
                sent = await self._read(request, lambda sent: {"metadata": sent.get("metadata")})
                changed = _decode(kept) | sent
                await self._store.put([Row(request.owner, CONVERSATION_KIND, id, _encode(changed))])
                return changed
            case "DELETE":
                await self._store.delete(request.owner, CONVERSATION_KIND, id)
                await self._store.delete_children(request.owner, ITEM_KIND, id)
                return {"id": id, "object": "conversation.deleted", "deleted": True}
            case _:
                raise RequestRejected(_method_not_allowed(request))

    async def _create_conversation(self, request: ResourceRequest) -> Any:
        id = f"conv_{secrets.token_hex(24)}"
        metadata, items = await self._read(
            request, lambda sent: (sent.get("metadata") or {}, item_rows(request.owner, id, _decode_items(sent)))
        )
        made = {
            "id": id,
            "object": "conversation",
            "created_at": int(time.time()),
            "metadata": metadata,
        }
        await self._store.put([Row(request.owner, CONVERSATION_KIND, id, _encode(made)), *items])
        return made

    async def _serve_items(self, request: ResourceRequest, id: str, item: str | None, conversation: Raw) -> Any:
        match request.method, item:
            case "GET", None:
                rows = await self._store.children(request.owner, ITEM_KIND, id)
                items = [Raw(row.body) for row in rows]
                return await run_in_thread_if(_list_items, items, request, heavy=len(items) > MANY_OBJECTS)
            case "POST", None:
                added = await self._read(request, lambda sent: item_rows(request.owner, id, _decode_items(sent)))
                await self._store.put(added)
                shown = [Raw(row.body) for row in added]
                return await run_in_thread_if(
                    lambda: _encode_page(shown, has_more=False), heavy=len(shown) > MANY_OBJECTS
                )
            case "GET", str():
                known = await self._store.get(request.owner, ITEM_KIND, [f"{id}/{item}"])
                if not known:
                    raise RequestRejected(item_not_found(item))
                return Raw(known[f"{id}/{item}"])
            case "DELETE", str():
                if not await self._store.delete(request.owner, ITEM_KIND, f"{id}/{item}"):
                    raise RequestRejected(item_not_found(item))
                return conversation
            case _:
                raise RequestRejected(_method_not_allowed(request))

    async def _read(self, asking: ResourceRequest, read: Callable[[dict[str, Any]], R]) -> R:
        """Return what `read` makes of the object that was sent: in a thread if that is a large one."""
        body = await asking.read_body()

        def work() -> R:
            check_values(body, self._limits)
            return read(_object_of(body))

        return await run_in_thread_if(work, heavy=is_heavy_body(body))


# ---- what is sent, and what is shown


def _object_of(body: bytes) -> dict[str, Any]:
    try:
        return _decode(body or b"{}", type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise RequestRejected(ApiError(kind="invalid_request", message=str(error), status=400)) from None


def _decode_items(body: dict[str, Any]) -> list[Raw]:
    items = body.get("items") or []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise RequestRejected(ApiError(kind="invalid_request", message="items: a list of items is wanted", status=400))
    return [Raw(_encode(_normalize_item(item))) for item in items]


def _normalize_item(item: dict[str, Any]) -> dict[str, Any]:
    """A message in the form that lists show it in."""
    if item.get("type", "message") != "message" or not isinstance(text := item.get("content"), str):
        return item
    kind = "output_text" if item.get("role") == "assistant" else "input_text"
    more: dict[str, Any] = {"annotations": []} if kind == "output_text" else {}
    return {"type": "message", "status": "completed"} | item | {"content": [{"type": kind, "text": text, **more}]}


def _with_item_ids(items: Sequence[Raw], seed: str) -> list[Raw]:
    """Items with ids: those that came without get the same ones each time."""
    found: list[Raw] = []
    for index, item in enumerate(items):
        whole = _normalize_item(_decode(item, type=dict[str, Any]))
        _, named = with_item_id(Raw(_encode(whole | ({} if whole.get("id") else {"id": f"item_{index}_{seed}"}))))
        found.append(named)
    return found


def _list_input(items: Sequence[Raw], seed: str, asking: ResourceRequest) -> bytes:
    return _encode(_list_items(_with_item_ids(items, seed), asking))


def _list_items(items: Sequence[Raw], request: ResourceRequest) -> dict[str, Any]:
    """A page of them: the latest first, unless it is asked otherwise."""
    shown = list(items) if request.query_value("order", "desc") == "asc" else list(reversed(items))
    if after := request.query_value("after"):
        ids = [_decode(item, type=dict[str, Any]).get("id") for item in shown]
        shown = shown[ids.index(after) + 1 :] if after in ids else []
    limit = request.query_value("limit", "20")
    count = min(max(int(limit) if limit.isdigit() else 20, 1), _MAX_PAGE_SIZE)
    return _encode_page(shown[:count], has_more=len(shown) > count)


def _encode_page(items: Sequence[Raw], *, has_more: bool) -> dict[str, Any]:
    ids = [_decode(item, type=dict[str, Any]).get("id") for item in items]
    return {
        "object": "list",
        "data": list(items),
        "first_id": ids[0] if ids else None,
        "last_id": ids[-1] if ids else None,
        "has_more": has_more,
    }


def _is_background(response: Raw) -> bool:
    return bool(_decode(response, type=dict[str, Any]).get("background"))


def _encode_stream(client: Codec, response: bytes) -> bytes:
    """The stream that tells this answer."""
    encoder = client.stream_encoder(ResponseContext())
    return escape_line_separators(
        encoder.encode(unfold(client.decode_response(response, ResponseContext()))) + encoder.close()
    )


def _resume_position(request: ResourceRequest, adapter: StateAdapter) -> int:
    """The number of the frame behind which to go on; -1, if it is all of them."""
    said = request.query_value(adapter.resume_parameter)
    if said and not (said.isdecimal() and said.isascii() and len(said) < 10):
        why = f"{adapter.resume_parameter}: there is no event {said[:100]!r}"
        raise RequestRejected(ApiError(kind="invalid_request", message=why, status=400, param=adapter.resume_parameter))
    return int(said) if said else -1


async def _single_chunk(data: bytes) -> AsyncIterator[bytes]:
    yield data


# ---- refusals


def _not_found(request: ResourceRequest) -> ApiError:
    return ApiError(kind="not_found", message=f"there is nothing at {request.path}", status=404)


def _method_not_allowed(request: ResourceRequest) -> ApiError:
    return ApiError(kind="invalid_request", message=f"{request.path} does not take {request.method}", status=405)
