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
from toolwire.codec.interface import Codec, Context
from toolwire.codec.lines import in_one_line
from toolwire.gateway.config import LimitsSection
from toolwire.gateway.offload import MANY_OBJECTS, check_values, is_heavy, run_apart
from toolwire.gateway.refusal import Refused
from toolwire.protocols import PROTOCOLS

from .background import RUNNING, cancelled, status_of
from .holders import HOLDERS, Holder, named_item, no_conversation, no_item
from .memory import CONVERSATION, ITEM, REFERENCE, Memory, Record, item_rows
from .store import Row
from .telling import FRAMES, Following, renumbered

_PLACES = [
    (re.compile(r"/v1/responses/([^/]+)(?:/(cancel|input_items))?"), "openai-responses"),
    (re.compile(r"/v1(?:beta)?/interactions/([^/]+)(?:/(cancel))?"), "gemini-interactions"),
]
_CONVERSATIONS = re.compile(r"/v1/conversations(?:/([^/]+)(?:/items(?:/([^/]+))?)?)?")
_MOST = 100

R = TypeVar("R")

_decode = msgspec.json.decode
_encode = msgspec.json.encode


class Asking(Struct, frozen=True):
    """What is asked of a resource, and by whom. `body` reads what was sent with it."""

    owner: str
    method: str
    path: str
    query: dict[str, list[str]]
    body: Callable[[], Awaitable[bytes]]

    def said(self, name: str, otherwise: str = "") -> str:
        return self.query.get(name, [otherwise])[0]


class Told(Struct, frozen=True):
    """`stream`, if it is one."""

    body: bytes = b""
    stream: Following | None = None


class Resources:
    def __init__(self, memory: Memory, limits: LimitsSection | None = None) -> None:
        self._memory = memory
        self._store = memory.store
        self._limits = limits or LimitsSection()

    @property
    def trouble(self) -> str | None:
        """Why state is unavailable, if it is. Asking has the store find out whether it still is."""
        if (trouble := self._store.trouble) is not None:
            self._store.recheck()
        return trouble

    def speaker(self, path: str) -> str | None:
        """In whose words an address is answered; None, if there is nothing here under it."""
        if path.startswith(("/v1/responses/input_tokens", "/v1/responses/compact")):
            return None
        if _CONVERSATIONS.fullmatch(path):
            return "openai-responses"
        return next((name for place, name in _PLACES if place.fullmatch(path)), None)

    async def answer(
        self, owner: str, method: str, path: str, query: bytes, body: Callable[[], Awaitable[bytes]]
    ) -> Told:
        asking = Asking(owner, method, path, parse_qs(query.decode("latin-1")), body)
        if (found := _CONVERSATIONS.fullmatch(path)) is not None:
            return Told(_encode(await self._conversation(asking, found)))
        for place, name in _PLACES:
            if (found := place.fullmatch(path)) is not None:
                return await self._held(
                    asking, PROTOCOLS[name], found[1], found[2] if len(found.groups()) > 1 else None
                )
        raise Refused(_nothing(asking))

    # ---- answers

    async def _held(self, asking: Asking, client: Codec, id: str, deed: str | None) -> Told:
        holder = HOLDERS[client.name]
        match asking.method, deed:
            case "GET", None:
                return await self._look(asking, client, holder, id)
            case "GET", "input_items":
                record = await self._record(asking.owner, holder, id)
                heavy = len(record.input) > MANY_OBJECTS
                return Told(await run_apart(_list_input, record.input, id, asking, heavy=heavy))
            case "DELETE", None:
                if not await self._store.delete(asking.owner, holder.kind, id):
                    raise Refused(holder.not_found(id))
                await self._store.delete_under(asking.owner, REFERENCE, id)
                await self._store.delete_under(asking.owner, FRAMES, id)
                self._memory.background.stop(asking.owner, id)
                return Told(
                    _encode({"id": id, "object": holder.kind, "deleted": True} if holder.kind == "response" else {})
                )
            case "POST", "cancel":
                return Told(await self._cancel(asking.owner, holder, id))
            case _:
                raise Refused(_not_that(asking))

    async def _record(self, owner: str, holder: Holder, id: str) -> Record:
        found = await self._store.get(owner, holder.kind, [id])
        if id not in found:
            raise Refused(holder.not_found(id))
        record = _decode(found[id], type=Record)
        answer = await self._memory.background.seen(owner, holder, id, record.answer)
        return replace(record, answer=answer)

    async def _look(self, asking: Asking, client: Codec, holder: Holder, id: str) -> Told:
        record = await self._record(asking.owner, holder, id)
        if asking.said("stream") != "true":
            if asking.said("include_input") != "true":
                return Told(bytes(record.answer))
            whole = _decode(record.answer, type=dict[str, Raw])
            return Told(_encode(whole | {holder.output: record.new_items(holder)}))
        after, lasting = _after(asking, holder), _is_background(record.answer)
        if after >= 0 and holder.counts and record.streamed and not lasting:
            # As it came it had other numbers, which are not kept.
            why = f"{holder.after}: of what is streamed, only what is made in the background can be resumed"
            raise Refused(ApiError(kind="invalid_request", message=why, status=400, param=holder.after))
        if lasting:
            return Told(stream=Following(self._memory.background.follow(asking.owner, holder, id, after)))
        frames = renumbered(holder, _replayed(client, bytes(record.answer)))
        return Told(stream=Following(_at_once(b"".join(frames[after + 1 :]))))

    async def _cancel(self, owner: str, holder: Holder, id: str) -> bytes:
        record = await self._record(owner, holder, id)
        if not _is_background(record.answer):
            why = f"Cannot cancel a synchronous {holder.kind}."
            raise Refused(ApiError(kind="invalid_request", message=why, status=400))
        if status_of(record.answer) not in RUNNING:
            return bytes(record.answer)  # it is as done as it will be
        told = cancelled(record.answer)
        parents = [row.parent for row in await self._store.lineage(owner, holder.kind, id)]
        body = _encode(replace(record, answer=Raw(told)))
        await self._store.put([Row(owner, holder.kind, id, body, parents[-1] if parents else None)])
        self._memory.background.stop(owner, id)
        return told

    # ---- conversations

    async def _conversation(self, asking: Asking, found: re.Match[str]) -> Any:
        id, item = found[1], found[2]
        if id is None:
            if asking.method != "POST":
                raise Refused(_not_that(asking))
            return await self._create(asking)
        kept = (await self._store.get(asking.owner, CONVERSATION, [id])).get(id)
        if kept is None:
            raise Refused(no_conversation(id))
        if "/items" in asking.path:
            return await self._items(asking, id, item, Raw(kept))
        match asking.method:
            case "GET":
                return Raw(kept)
            case "POST":
                sent = await self._read(asking, lambda sent: {"metadata": sent.get("metadata")})
                changed = _decode(kept) | sent
                await self._store.put([Row(asking.owner, CONVERSATION, id, _encode(changed))])
                return changed
            case "DELETE":
                await self._store.delete(asking.owner, CONVERSATION, id)
                await self._store.delete_under(asking.owner, ITEM, id)
                return {"id": id, "object": "conversation.deleted", "deleted": True}
            case _:
                raise Refused(_not_that(asking))

    async def _create(self, asking: Asking) -> Any:
        id = f"conv_{secrets.token_hex(24)}"
        metadata, items = await self._read(
            asking, lambda sent: (sent.get("metadata") or {}, item_rows(asking.owner, id, _items_of(sent)))
        )
        made = {
            "id": id,
            "object": "conversation",
            "created_at": int(time.time()),
            "metadata": metadata,
        }
        await self._store.put([Row(asking.owner, CONVERSATION, id, _encode(made)), *items])
        return made

    async def _items(self, asking: Asking, id: str, item: str | None, conversation: Raw) -> Any:
        match asking.method, item:
            case "GET", None:
                rows = await self._store.under(asking.owner, ITEM, id)
                items = [Raw(row.body) for row in rows]
                return await run_apart(_listed, items, asking, heavy=len(items) > MANY_OBJECTS)
            case "POST", None:
                added = await self._read(asking, lambda sent: item_rows(asking.owner, id, _items_of(sent)))
                await self._store.put(added)
                shown = [Raw(row.body) for row in added]
                return await run_apart(lambda: _page(shown, more=False), heavy=len(shown) > MANY_OBJECTS)
            case "GET", str():
                known = await self._store.get(asking.owner, ITEM, [f"{id}/{item}"])
                if not known:
                    raise Refused(no_item(item))
                return Raw(known[f"{id}/{item}"])
            case "DELETE", str():
                if not await self._store.delete(asking.owner, ITEM, f"{id}/{item}"):
                    raise Refused(no_item(item))
                return conversation
            case _:
                raise Refused(_not_that(asking))

    async def _read(self, asking: Asking, read: Callable[[dict[str, Any]], R]) -> R:
        """Return what `read` makes of the object that was sent: in a thread if that is a large one."""
        body = await asking.body()

        def work() -> R:
            check_values(body, self._limits)
            return read(_object_of(body))

        return await run_apart(work, heavy=is_heavy(body))


# ---- what is sent, and what is shown


def _object_of(body: bytes) -> dict[str, Any]:
    try:
        return _decode(body or b"{}", type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise Refused(ApiError(kind="invalid_request", message=str(error), status=400)) from None


def _items_of(sent: dict[str, Any]) -> list[Raw]:
    items = sent.get("items") or []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise Refused(ApiError(kind="invalid_request", message="items: a list of items is wanted", status=400))
    return [Raw(_encode(_as_stored(item))) for item in items]


def _as_stored(item: dict[str, Any]) -> dict[str, Any]:
    """A message in the form that lists show it in."""
    if item.get("type", "message") != "message" or not isinstance(text := item.get("content"), str):
        return item
    kind = "output_text" if item.get("role") == "assistant" else "input_text"
    more: dict[str, Any] = {"annotations": []} if kind == "output_text" else {}
    return {"type": "message", "status": "completed"} | item | {"content": [{"type": kind, "text": text, **more}]}


def _identified(items: Sequence[Raw], seed: str) -> list[Raw]:
    """Items with ids: those that came without get the same ones each time."""
    found: list[Raw] = []
    for index, item in enumerate(items):
        whole = _as_stored(_decode(item, type=dict[str, Any]))
        _, named = named_item(Raw(_encode(whole | ({} if whole.get("id") else {"id": f"item_{index}_{seed}"}))))
        found.append(named)
    return found


def _list_input(items: Sequence[Raw], seed: str, asking: Asking) -> bytes:
    return _encode(_listed(_identified(items, seed), asking))


def _listed(items: Sequence[Raw], asking: Asking) -> dict[str, Any]:
    """A page of them: the latest first, unless it is asked otherwise."""
    shown = list(items) if asking.said("order", "desc") == "asc" else list(reversed(items))
    if after := asking.said("after"):
        ids = [_decode(item, type=dict[str, Any]).get("id") for item in shown]
        shown = shown[ids.index(after) + 1 :] if after in ids else []
    limit = asking.said("limit", "20")
    count = min(max(int(limit) if limit.isdigit() else 20, 1), _MOST)
    return _page(shown[:count], more=len(shown) > count)


def _page(items: Sequence[Raw], *, more: bool) -> dict[str, Any]:
    ids = [_decode(item, type=dict[str, Any]).get("id") for item in items]
    return {
        "object": "list",
        "data": list(items),
        "first_id": ids[0] if ids else None,
        "last_id": ids[-1] if ids else None,
        "has_more": more,
    }


def _is_background(answer: Raw) -> bool:
    return bool(_decode(answer, type=dict[str, Any]).get("background"))


def _replayed(client: Codec, answer: bytes) -> bytes:
    """The stream that tells this answer."""
    encoder = client.stream_encoder(Context())
    return in_one_line(encoder.encode(unfold(client.decode_response(answer, Context()))) + encoder.close())


def _after(asking: Asking, holder: Holder) -> int:
    """The number of the frame behind which to go on; -1, if it is all of them."""
    said = asking.said(holder.after)
    if said and not (said.isdecimal() and said.isascii() and len(said) < 10):
        why = f"{holder.after}: there is no event {said[:100]!r}"
        raise Refused(ApiError(kind="invalid_request", message=why, status=400, param=holder.after))
    return int(said) if said else -1


async def _at_once(data: bytes) -> AsyncIterator[bytes]:
    yield data


# ---- refusals


def _nothing(asking: Asking) -> ApiError:
    return ApiError(kind="not_found", message=f"there is nothing at {asking.path}", status=404)


def _not_that(asking: Asking) -> ApiError:
    return ApiError(kind="invalid_request", message=f"{asking.path} does not take {asking.method}", status=405)
