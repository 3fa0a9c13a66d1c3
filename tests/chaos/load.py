"""The clients of the chaos run: streams and complete bodies, chains, conversations and background responses.

A client records what it may rely on, and what it got. It never leaves before its response ends.
"""

import asyncio
import itertools
import json
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.chaos.cluster import AMPLE_KEYS, OPEN_KEY, PROVIDERS, TIGHT_KEY
from tests.chaos.dialects import DIALECTS, Body, Dialect, request_body
from tests.chaos.records import Answer, Background
from tests.chaos.upstream import write_job
from tests.support.servers.nginx import GATEWAY_HEADER

CLIENTS = 8
_TIMEOUT = httpx.Timeout(60, connect=10)
_BACKGROUND_DEADLINE = 90.0
_POLL_INTERVAL = 0.4
_RETRY_INTERVAL = 0.5
_RESPONSES = DIALECTS["openai-responses"]
_RUNNING = ("queued", "in_progress")
_UNSTORED_MARK = '"path":"/store"'


@dataclass
class Load:
    """Clients that send requests until they are stopped."""

    root: str
    secrets: dict[str, str]
    seed: int
    answers: list[Answer] = field(default_factory=list)
    backgrounds: list[Background] = field(default_factory=list)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._numbers = itertools.count(1)

    async def run(self) -> None:
        """Send requests until stopped, and wait for their ends."""
        async with httpx.AsyncClient(base_url=self.root, timeout=_TIMEOUT) as http:
            clients = [Client(self, http, random.Random(f"{self.seed} client {n}")) for n in range(CLIENTS)]
            await asyncio.gather(*[client.run() for client in clients])

    def new_answer(self, key: str, client: str, provider: str, kind: str) -> Answer:
        """Record a new request."""
        answer = Answer(f"job-{next(self._numbers)}", key, client, provider, kind)
        self.answers.append(answer)
        return answer


class Client:
    """One client, which holds one conversation after the other."""

    def __init__(self, load: Load, http: httpx.AsyncClient, chance: random.Random) -> None:
        self._load = load
        self._http = http
        self._chance = chance

    async def run(self) -> None:
        """Choose what to do next until stopped."""
        kinds: list[Callable[[], Coroutine[Any, Any, None]]] = [
            *[self._ask_once] * 5,
            self._ask_tight,
            *[self._hold_chain] * 2,
            self._hold_conversation,
            self._ask_in_background,
        ]
        while not self._load.stopping.is_set():
            await self._chance.choice(kinds)()
            await asyncio.sleep(self._chance.uniform(0, 0.3))

    # ---- what clients do

    async def _ask_once(self) -> None:
        """Send one request in any protocol to any provider; those of a key without limits may break off."""
        client = self._chance.choice([*DIALECTS.values()])
        key = self._chance.choice([*AMPLE_KEYS, OPEN_KEY])
        answer = self._new_answer(client, "one", key)
        cut = self._chance.randint(2, 10) if key == OPEN_KEY and self._chance.random() < 0.3 else 0
        fields = {"store": False} if client is _RESPONSES else {}
        await self._ask(client, answer, cut=cut, **fields)

    async def _ask_tight(self) -> None:
        """Send a request whose key has little money."""
        await self._ask(DIALECTS["anthropic"], self._new_answer(DIALECTS["anthropic"], "one", TIGHT_KEY))

    async def _hold_chain(self) -> None:
        """Continue stored responses, each from the last one that was acknowledged."""
        key, last = self._chance.choice(AMPLE_KEYS), None
        for _ in range(self._chance.randint(2, 4)):
            if last is None:
                answer = self._new_answer(_RESPONSES, "chain", key)
                await self._ask(_RESPONSES, answer, store=True)
            else:
                answer = await self.continue_from(last)
            last = answer if answer.is_stored else last

    async def _hold_conversation(self) -> None:
        """Create a conversation, and add responses to it."""
        key, tags = self._chance.choice(AMPLE_KEYS), list[str]()
        response = await self._request("POST", "/v1/conversations", key, {})
        if response is None or response.status_code != 200:
            return
        conversation = str(response.json()["id"])
        for _ in range(self._chance.randint(2, 3)):
            answer = self._new_answer(_RESPONSES, "conversation", key)
            answer.conversation, answer.lineage = conversation, tuple(tags)
            await self._ask(_RESPONSES, answer, store=True, conversation=conversation)
            if answer.is_stored:
                tags.append(answer.tag)

    async def _ask_in_background(self) -> None:
        """Start a background response, and ask any replica for its status until it ends."""
        key = self._chance.choice(AMPLE_KEYS)
        answer = self._new_answer(_RESPONSES, "background", key)
        body = request_body(_RESPONSES, f"{answer.provider}-sim", self._prompt(answer), stream=False, background=True)
        response = await self._request("POST", "/v1/responses", key, body | {"store": True})
        if response is None or response.status_code != 200:
            self._note_error(answer, response)
            return
        answer.id, answer.running_at = str(response.json()["id"]), time.time()
        _note_head(answer, response)
        job = Background(answer, [str(response.json()["status"])])
        self._load.backgrounds.append(job)
        await self._follow(job, key)

    async def _follow(self, job: Background, key: str) -> None:
        """Poll a background response until it ends."""
        deadline = time.monotonic() + _BACKGROUND_DEADLINE
        while job.statuses[-1] in _RUNNING and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_INTERVAL)
            response = await self._request("GET", f"/v1/responses/{job.answer.id}", key)
            if response is None or response.status_code in (502, 503, 504):
                continue
            status, job.answer.ended_at = str(response.json().get("status", response.status_code)), time.time()
            if status in _RUNNING:
                job.answer.running_at = job.answer.ended_at
            if status != job.statuses[-1]:
                job.statuses.append(status)
            if status == "completed":
                reading = _RESPONSES.read_body(response.content)
                job.answer.text, job.answer.outcome, job.answer.is_stored = reading.text, "complete", True

    async def continue_from(self, last: Answer) -> Answer:
        """Continue a stored response."""
        answer = self._new_answer(_RESPONSES, "chain", last.key)
        answer.lineage = (*last.lineage, last.tag)
        await self._ask(_RESPONSES, answer, store=True, previous_response_id=last.id)
        return answer

    # ---- requests

    def _new_answer(self, client: Dialect, kind: str, key: str) -> Answer:
        return self._load.new_answer(key, client.name, self._chance.choice([*PROVIDERS]), kind)

    def _prompt(self, answer: Answer, cut: int = 0) -> str:
        words, pace = self._chance.randint(10, 60), self._chance.choice([0.005, 0.02, 0.05])
        return write_job(answer.tag, words=words, pace=pace, cut=cut)

    async def _ask(self, client: Dialect, answer: Answer, *, cut: int = 0, **fields: Any) -> None:
        """Send a request, and record how its response ends."""
        stream, model = self._chance.random() < 0.6, f"{answer.provider}-sim"
        body = request_body(client, model, self._prompt(answer, cut), stream=stream, **fields)
        request = self._http.build_request(
            "POST", client.path(model, stream), json=body, headers=self._headers(answer.key)
        )
        data, is_cut = bytearray(), False
        try:
            response = await self._http.send(request, stream=True)
            try:
                _note_head(answer, response)
                async for chunk in response.aiter_raw():
                    data += chunk
            finally:
                await response.aclose()
        except httpx.TransportError as error:
            is_cut, answer.error = True, type(error).__name__
        answer.ended_at = time.time()
        if answer.status == 200:
            self._read(client, answer, bytes(data), response.headers, stream=stream, is_cut=is_cut)
        else:
            if answer.status:
                answer.outcome, answer.error = "error", data.decode(errors="replace")[:300]
            await asyncio.sleep(_RETRY_INTERVAL)

    def _read(
        self, client: Dialect, answer: Answer, data: bytes, headers: httpx.Headers, *, stream: bool, is_cut: bool
    ) -> None:
        """Judge how a response with status 200 ended."""
        reading = client.read_stream(data) if stream else client.read_body(data)
        answer.text, answer.id = reading.text, reading.id
        losses = headers.get("toolwire-losses", "") + data.decode(errors="replace")
        if reading.is_complete:
            answer.outcome = "complete"
            is_reported_lost = _UNSTORED_MARK in losses.replace(" ", "")
            answer.is_stored = answer.kind in ("chain", "conversation") and not is_reported_lost
        elif is_cut:
            answer.outcome = "cut"
        else:
            answer.outcome = "error" if b"error" in data else "false end"

    async def _request(self, method: str, path: str, key: str, body: Body | None = None) -> httpx.Response | None:
        """Send a request with a small response; None if the connection broke."""
        try:
            return await self._http.request(method, path, json=body, headers=self._headers(key))
        except httpx.TransportError:
            return None

    def _headers(self, key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self._load.secrets[key]}"}

    def _note_error(self, answer: Answer, response: httpx.Response | None) -> None:
        """Record a failed request."""
        if response is not None:
            answer.status, answer.outcome = response.status_code, "error"
            answer.error = json.dumps(response.text[:300])


def _note_head(answer: Answer, response: httpx.Response) -> None:
    """Record status, exchange and gateway of a response."""
    answer.status = response.status_code
    answer.exchange, answer.gateway = (
        response.headers.get("toolwire-exchange", ""),
        response.headers.get(GATEWAY_HEADER, ""),
    )
