"""The traffic of a run: random agents, their requests, and the upstream's answers, all drawn from one seed."""

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any, BinaryIO

from msgspec import Struct, field, structs

from benchmarks.gateway import agents
from benchmarks.gateway.agents import Agent, Turn, Writer, marker, to_json
from benchmarks.gateway.answers import draw_answer, encode_body, encode_stream

AT_ONCE, PACED, STALLED = 0, 1, 2
ANTHROPIC, CHAT = "/v1/messages", "/v1/chat/completions"
# Text of a stream with some 300 deltas.
LONG = (300, 2500)
_HEAD = b'{"model":"bench","messages":['

Records = Iterator[tuple[bytes, bytes]]


class Workload(Struct, frozen=True, kw_only=True):
    name: str
    summary: str
    path: str
    streamed: bool = False
    # Turns of a conversation at its first request and at its last one.
    turns: tuple[int, int] = (1, 1)
    # The maximum of the last, if conversations differ in length.
    longest: int | None = None
    agents: int = 200
    # The same five tools for all; conversations differ in their questions and answers.
    small: bool = False
    # Least and greatest size of an answer's text.
    text: tuple[int, int] = (20, 600)
    mode: int = AT_ONCE
    # Requests that fill the caches of a program.
    warm_up: int = 100
    # The maximum cost as a multiple of nginx, with 16 connections and with 1.
    limit: float | None = None
    single_limit: float | None = None

    @property
    def grows(self) -> bool:
        return self.turns != (1, 1) or self.longest is not None


MEASURED = (
    Workload(
        name="growing",
        summary="growing histories: 200 agents with 5 to 30 tools each, 1 to 60 turns",
        path=ANTHROPIC,
        longest=60,
        warm_up=600,
        limit=10,
        single_limit=6,
    ),
    Workload(name="first", summary="first turns of 200 agents", path=ANTHROPIC, warm_up=600, limit=13),
    Workload(
        name="turns-100",
        summary="80 to 120 turns, growing",
        path=ANTHROPIC,
        turns=(80, 120),
        agents=24,
        warm_up=200,
        limit=7,
    ),
    Workload(
        name="turns-400", summary="390 to 410 turns, growing", path=ANTHROPIC, turns=(390, 410), agents=20, warm_up=60
    ),
    Workload(
        name="stream", summary="streams in one burst", path=ANTHROPIC, streamed=True, text=LONG, warm_up=200, limit=6
    ),
    Workload(
        name="small",
        summary="small exchange: 5 tools, 2 KB",
        path=ANTHROPIC,
        small=True,
        agents=400,
        warm_up=1000,
        limit=9,
    ),
    Workload(
        name="chat", summary="small exchange, Chat to Chat", path=CHAT, small=True, agents=400, warm_up=1000, limit=6
    ),
    Workload(
        name="chat-growing", summary="growing histories, Chat to Chat", path=CHAT, longest=60, agents=100, warm_up=600
    ),
    Workload(
        name="chat-stream",
        summary="streams, Chat to Chat",
        path=CHAT,
        streamed=True,
        text=LONG,
        agents=100,
        warm_up=200,
    ),
)
# Streams that last: not measured by their cost.
LASTING = (
    Workload(
        name="paced",
        summary="a small request, a delta at a time",
        path=ANTHROPIC,
        streamed=True,
        small=True,
        mode=PACED,
    ),
    Workload(
        name="paced-first",
        summary="first turns, a delta at a time",
        path=ANTHROPIC,
        streamed=True,
        agents=50,
        mode=PACED,
    ),
    Workload(name="stalled", summary="no end", path=ANTHROPIC, streamed=True, small=True, agents=20, mode=STALLED),
)
HEAVY_HISTORY = Workload(
    name="heavy-history", summary="2,500 turns of an agent", path=ANTHROPIC, turns=(2500, 2500), agents=1
)
HEAVY = {
    "heavy-messages": "99,000 messages",
    "heavy-parts": "190,000 parts in one message",
    "heavy-text": "30 MB of text",
    "heavy-tools": "9,900 tools",
    "heavy-values": "900,000 values in the input of a call",
    HEAVY_HISTORY.name: HEAVY_HISTORY.summary,
}


class Traffic(Struct):
    """What was drawn: by the number of an answer, the agent and the turn that it belongs to."""

    seed: int
    expected: list[tuple[Agent, int]] = field(default_factory=list)
    # Mean size of a request, by workload.
    sizes: dict[str, int] = field(default_factory=dict)


def write_traffic(seed: int, folder: Path, names: set[str], scale: float = 1.0) -> Traffic:
    """Write `requests` and `answers`, the files of load generator and upstream, with `scale` times the agents."""
    traffic = Traffic(seed)
    with (folder / "requests").open("wb") as requests, (folder / "answers").open("wb") as answers:
        for workload in (*MEASURED, *LASTING, HEAVY_HISTORY):
            if workload.name in names:
                _write_workload(traffic, workload, requests, answers, scale)
        for name in HEAVY:
            if name in names and name != HEAVY_HISTORY.name:
                _write_heavy(traffic, name, requests, answers)
    return traffic


def _write_workload(traffic: Traffic, workload: Workload, requests: BinaryIO, answers: BinaryIO, scale: float) -> None:
    writer = Writer(Random(f"{traffic.seed} {workload.name}"))
    _write_records(requests, _workload_records(workload))
    sizes: list[int] = []
    for agent in _draw_agents(traffic, workload, writer, scale):
        records = list(_agent_records(workload, agent))
        _write_records(requests, records)
        sizes += _request_sizes(records, workload)
        for turn in agent.turns:
            answer = draw_answer(writer, agent, turn, reasoning=workload.mode == AT_ONCE)
            if workload.streamed:
                response = streamed_response(encode_stream(answer))
            else:
                response = complete_response(encode_body(answer))
            numbers = (workload.mode, agent.turns[0].number, len(agent.tools), turn.markers, int(agent.id, 16))
            _write_records(answers, [(b"R", struct.pack("<5I", *numbers) + response)])
    traffic.sizes[workload.name] = sum(sizes) // len(sizes)


def _workload_records(workload: Workload) -> Records:
    yield b"W", workload.name.encode()
    yield b"P", workload.path.encode()
    yield b"F", struct.pack("<II", workload.grows, workload.streamed)


def _draw_agents(traffic: Traffic, workload: Workload, writer: Writer, scale: float) -> Iterator[Agent]:
    shared = writer.small_agent()
    # More than there are connections, since an agent waits for its answer.
    for _ in range(max(min(workload.agents, 20), int(workload.agents * scale))):
        agent = structs.replace(shared, server=writer.server(), turns=[]) if workload.small else writer.agent()
        count = writer.random.randint(1, workload.longest) if workload.longest else workload.turns[1]
        for index in range(count):
            last = workload.grows and index == count - 1
            writer.add_turn(agent, len(traffic.expected), last=last, text_size=workload.text)
            traffic.expected.append((agent, index))
        yield agent


def _agent_records(workload: Workload, agent: Agent) -> Records:
    anthropic = workload.path == ANTHROPIC
    parts = agents.anthropic_parts(agent) if anthropic else agents.chat_parts(agent)
    tail = agents.anthropic_tail if anthropic else agents.chat_tail
    yield b"A", struct.pack("<I", workload.turns[0] - 1)
    yield b"H", _HEAD
    for index, (plain, cached) in enumerate(parts[:-1]):  # the last answer is in no request
        yield b"M", plain.encode()
        if cached != plain:
            yield b"C", cached.encode()
        if index % 2 == 0:
            turn = agent.turns[index // 2]
            yield b"X", struct.pack("<II", turn.number, turn.markers)
    yield b"T", tail(agent, streamed=workload.streamed).encode()


def _request_sizes(records: list[tuple[bytes, bytes]], workload: Workload) -> list[int]:
    sizes, grown = [], len(_HEAD) + len(records[-1][1])
    for kind, payload in records:
        if kind == b"M":
            grown += len(payload)
        elif kind == b"X":
            sizes.append(grown)
    return sizes[workload.turns[0] - 1 :]


def _write_heavy(traffic: Traffic, name: str, requests: BinaryIO, answers: BinaryIO) -> None:
    """Write a request near one of the limits of a client, with a small answer."""
    writer, number = Writer(Random(f"{traffic.seed} {name}")), len(traffic.expected)
    agent = Agent(
        "00000000", "openai", "", [], [Turn(number, "", [], failed=False, text=marker("a", number), calls=[])]
    )
    traffic.expected.append((agent, 0))
    messages, tools = _heavy_request(name, writer, marker("u", number))
    tail = "]," + to_json({"tools": tools, "max_tokens": 1000} if tools else {"max_tokens": 1000})[1:]
    _write_records(requests, _workload_records(Workload(name=name, summary=HEAVY[name], path=ANTHROPIC)))
    _write_records(requests, [(b"A", struct.pack("<I", 0)), (b"H", _HEAD), (b"M", to_json(messages)[1:-1].encode())])
    _write_records(requests, [(b"X", struct.pack("<II", number, 1)), (b"T", tail.encode())])
    body = encode_body(draw_answer(writer, agent, agent.turns[0]))
    _write_records(answers, [(b"R", struct.pack("<5I", AT_ONCE, number, 0, 1, 0) + complete_response(body))])


def _heavy_request(name: str, writer: Writer, mark: str) -> tuple[list[Any], list[Any]]:
    """Return messages and tools."""
    last = {"role": "user", "content": mark}
    match name:
        case "heavy-messages":
            roles = ("user", "assistant")
            return [{"role": roles[index % 2], "content": f"word {index}"} for index in range(98_999)] + [last], []
        case "heavy-parts":
            parts = [{"type": "text", "text": f"word {index}"} for index in range(190_000)]
            return [{"role": "user", "content": [*parts, {"type": "text", "text": mark}]}], []
        case "heavy-text":
            text = writer.prose(300_000, 300_001) * (30_000_000 // 400_000)
            return [{"role": "user", "content": f"{text} {mark}"}], []
        case "heavy-tools":
            schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
            return [last], [
                {"name": f"tool_{index}", "description": writer.prose(20, 80), "input_schema": schema}
                for index in range(9_900)
            ]
        case _:
            values = {"rows": [[index, f"v{index}"] for index in range(300_000)]}
            call = {"type": "tool_use", "id": "call_heavy", "name": "load", "input": values}
            result = {"type": "tool_result", "tool_use_id": "call_heavy", "content": mark}
            question = {"role": "user", "content": "Load the table."}
            return [
                question,
                {"role": "assistant", "content": [call]},
                {"role": "user", "content": [result]},
            ], [{"name": "load", "description": "Load.", "input_schema": {"type": "object"}}]


def _write_records(file: BinaryIO, records: Iterable[tuple[bytes, bytes]]) -> None:
    file.writelines(struct.pack("<cI", kind, len(payload)) + payload for kind, payload in records)


def complete_response(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


def streamed_response(frames: list[bytes]) -> bytes:
    """Return a stream with one chunk per event, as providers send it."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(frame), frame) for frame in frames) + b"0\r\n\r\n"


def read_records(path: Path) -> Records:
    data, position = path.read_bytes(), 0
    while position < len(data):
        kind, length = struct.unpack_from("<cI", data, position)
        position += 5
        yield kind, data[position : position + length]
        position += length
