"""`load.c` in Python, for machines without a C compiler: the same orders and checks, but only `run`."""

import asyncio
import re
import struct
import sys
import time
from pathlib import Path
from random import Random
from typing import cast

import httptools
import msgspec
import uvloop
from msgspec import Struct, field

from benchmarks.gateway.agents import NONCE, marker
from benchmarks.gateway.programs import Outcome, Times
from benchmarks.gateway.traffic import read_records

TIMEOUT = 120.0
_STRINGS = re.compile(rb'"(?:text|content|partial_json|arguments)":"((?:[^"\\]|\\.)*)"')


class Conversation(Struct):
    turn: int
    nonce: str
    busy: bool = False


class Agent(Struct):
    first: int
    head: bytes = b""
    tail: bytes = b""
    # As they are, and with `cache_control`.
    parts: list[tuple[bytes, bytes]] = field(default_factory=list)
    # Last part, answer and number of markers.
    turns: list[tuple[int, int, int]] = field(default_factory=list)
    # By peer.
    conversations: dict[int, Conversation] = field(default_factory=dict)


class Workload(Struct):
    path: str = ""
    grows: bool = False
    streamed: bool = False
    agents: list[Agent] = field(default_factory=list)


def read_workloads(path: Path) -> dict[str, Workload]:
    workloads: dict[str, Workload] = {}
    for kind, payload in read_records(path):
        match kind:
            case b"W":
                workload = workloads[payload.decode()] = Workload()
            case b"P":
                workload.path = payload.decode()
            case b"F":
                workload.grows, workload.streamed = map(bool, struct.unpack("<II", payload))
            case b"A":
                agent = Agent(struct.unpack("<I", payload)[0])
                workload.agents.append(agent)
            case b"H":
                agent.head = payload
            case b"T":
                agent.tail = payload
            case b"M":
                agent.parts.append((payload, payload))
            case b"C":
                agent.parts[-1] = (agent.parts[-1][0], payload)
            case _:
                agent.turns.append((len(agent.parts) - 1, *struct.unpack("<II", payload)))
    return workloads


class Client(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._done: asyncio.Future[tuple[int, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._finish(0, b"the connection ended")

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        self._chunks.append(data)

    def on_message_complete(self) -> None:
        self._finish(self._parser.get_status_code(), b"".join(self._chunks))

    def _finish(self, status: int, body: bytes) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result((status, body))

    async def send(self, message: bytes) -> tuple[int, bytes]:
        self._parser = httptools.HttpResponseParser(self)
        self._chunks.clear()
        self._done = asyncio.get_running_loop().create_future()
        self.transport.write(message)
        return await asyncio.wait_for(self._done, TIMEOUT)


class Load:
    """The traffic and its progress."""

    def __init__(self, requests: Path, samples: Path, seed: int) -> None:
        self._workloads = read_workloads(requests)
        self._samples = samples
        self._random = Random(seed)
        self._headers: dict[int, list[str]] = {}

    def add_header(self, peer: int, header: str) -> None:
        self._headers.setdefault(peer, []).append(header)

    async def run(self, peer: int, port: int, name: str, count: int, connections: int) -> Outcome:
        workload, start = self._workloads[name], time.monotonic()
        latencies: list[float] = []
        errors: list[str] = []
        remaining = iter(range(count))
        with self._samples.open("wb") as samples:

            async def work() -> None:
                client: Client | None = None
                for number in remaining:
                    if client is None or client.transport.is_closing():
                        _, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", port)
                    agent = self._choose_agent(workload, peer)
                    conversation = agent.conversations[peer]
                    _, answer, markers = agent.turns[conversation.turn]
                    began = time.monotonic()
                    status, body = await client.send(self._message(workload, agent, peer, port))
                    latencies.append(1000 * (time.monotonic() - began))
                    mark = marker("a", answer, conversation.nonce).encode()
                    # Boundaries of deltas may have moved.
                    text = b"".join(_STRINGS.findall(body)) if workload.streamed else body
                    good = status == 200 and text.count(mark) == markers
                    good = good and (not workload.streamed or b"message_stop" in body or b"[DONE]" in body)
                    if not good:
                        errors.append(f"{status} {body[:300].decode(errors='replace')}")
                    elif number % (count // 6 + 1) == 0:
                        samples.write(struct.pack("<I8sI", answer, conversation.nonce.encode(), len(body)) + body)
                    self._advance(workload, agent, peer, good=good)
                if client is not None:
                    client.transport.close()

            await asyncio.gather(*(work() for _ in range(connections)))
        times = _times(latencies)
        error = errors[0] if errors else ""
        return Outcome(count - len(errors), len(errors), error, time.monotonic() - start, 0, times, times, times, times)

    def _choose_agent(self, workload: Workload, peer: int) -> Agent:
        while True:
            agent = self._random.choice(workload.agents)
            if not workload.grows:
                agent.conversations[peer] = self._begin(agent.first)
            elif peer not in agent.conversations:
                agent.conversations[peer] = self._begin(self._random.randrange(agent.first, len(agent.turns)))
            if not agent.conversations[peer].busy:
                agent.conversations[peer].busy = workload.grows
                return agent

    def _begin(self, turn: int) -> Conversation:
        return Conversation(turn, f"{self._random.getrandbits(32):08x}")

    def _advance(self, workload: Workload, agent: Agent, peer: int, *, good: bool) -> None:
        conversation = agent.conversations[peer]
        conversation.busy = False
        if good and conversation.turn + 1 < len(agent.turns):
            conversation.turn += 1
        elif workload.grows:
            agent.conversations[peer] = self._begin(agent.first)

    def _message(self, workload: Workload, agent: Agent, peer: int, port: int) -> bytes:
        conversation = agent.conversations[peer]
        last = agent.turns[conversation.turn][0]
        cached = {last} | ({agent.turns[conversation.turn - 1][0]} if conversation.turn else set())
        parts = [pair[index in cached] for index, pair in enumerate(agent.parts[: last + 1])]
        body = (agent.head + b",".join(parts) + agent.tail).replace(NONCE.encode(), conversation.nonce.encode())
        lines = [
            f"POST {workload.path} HTTP/1.1",
            f"host: 127.0.0.1:{port}",
            "content-type: application/json",
            "user-agent: bench",
            "accept: */*",
            *self._headers.get(peer, ()),
            f"content-length: {len(body)}",
        ]
        if "messages" in workload.path:
            lines.append("anthropic-version: 2023-06-01")
        return "\r\n".join([*lines, "", ""]).encode() + body


def _times(latencies: list[float]) -> Times:
    ordered = sorted(latencies) or [0.0]
    last = len(ordered) - 1
    return Times(len(latencies), ordered[last // 2], ordered[last * 99 // 100], ordered[last])


async def main() -> None:
    load = Load(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := (await reader.readline()).decode():
        mode, peer, rest = line.split(" ", 2)
        if mode == "header":
            load.add_header(int(peer), rest.strip())
            continue
        port, name, count, connections = rest.split()[:4]
        try:
            outcome = await load.run(int(peer), int(port), name, int(count), int(connections))
        except (OSError, TimeoutError) as error:
            none = _times([])
            outcome = Outcome(0, 1, f"{type(error).__name__}: {error}", 0.0, 0, none, none, none, none)
        print(msgspec.json.encode(outcome).decode(), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
