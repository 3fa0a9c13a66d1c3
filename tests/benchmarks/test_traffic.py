"""Load generator and upstream accept each drawn exchange, and nothing that lost, moved or mixed up a part of it."""

import contextlib
import http.client
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.gateway.checks import Difference, check_request, check_samples
from benchmarks.gateway.load import Load as Composer
from benchmarks.gateway.load import read_workloads
from benchmarks.gateway.peers import free_port
from benchmarks.gateway.programs import Load, Order, compiler, start_programs
from benchmarks.gateway.traffic import Traffic, write_traffic
from tests.support.deadlines import DEADLINE, wait_until

NAMES = {"growing", "small", "stream", "chat-growing", "chat-stream"}
COMPILED = [
    pytest.param(True, marks=pytest.mark.skipif(compiler() is None, reason="needs a C compiler"), id="compiled"),
    pytest.param(False, id="python"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Traffic]:
    path = tmp_path_factory.mktemp("traffic")
    return path, write_traffic(7, path, NAMES, scale=0)


@contextlib.contextmanager
def running(folder: Path, *, compiled: bool) -> Iterator[tuple[Load, int]]:
    port = free_port()
    with start_programs(folder, port, 1, compiled=compiled, cores=(None, None), delta_ms=1) as (load, _):
        wait_until(lambda: answers(port), "the upstream")
        yield load, port


def answers(port: int) -> bool:
    """Return whether the upstream answers and has no unfinished stream."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)) as connection:
        try:
            connection.request("GET", "/")
        except ConnectionRefusedError:
            return False
        return connection.getresponse().read() == b"0"


def send(port: int, body: bytes) -> tuple[int, bytes]:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)) as connection:
        connection.request("POST", "/v1/messages", body)
        answer = connection.getresponse()
        return answer.status, answer.read()


def compose(folder: Path, name: str) -> bytes:
    """Return the body of a request with several turns."""
    composer = Composer(folder / "requests", folder / "unused", 1)
    workload = read_workloads(folder / "requests")[name]
    agent = max(workload.agents, key=lambda agent: len(agent.turns))
    agent.conversations[1] = composer._begin(len(agent.turns) - 1)
    return composer._message(workload, agent, 1, 1).partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize("compiled", COMPILED)
def test_every_drawn_exchange_is_valid(folder: tuple[Path, Traffic], compiled: bool) -> None:
    path, traffic = folder
    with running(path, compiled=compiled) as (load, port):
        for name in sorted(NAMES):
            outcome = load.run(Order(workload=name, count=60, connections=4), 1, port)
            assert (outcome.good, outcome.bad, outcome.error) == (60, 0, ""), name
            assert check_samples(load.samples, traffic) >= 5, name


def drop_turn(body: dict[str, Any]) -> None:
    del body["messages"][1:3]


def drop_first_message(body: dict[str, Any]) -> None:
    del body["messages"][0]


def drop_last_message(body: dict[str, Any]) -> None:
    del body["messages"][-1]


def drop_block(body: dict[str, Any]) -> None:
    turn = next(
        message for message in body["messages"] if len(message["content"]) > 1 and message["role"] == "assistant"
    )
    del turn["content"][0]


def swap_turns(body: dict[str, Any]) -> None:
    messages = body["messages"]
    messages[1:3], messages[3:5] = messages[3:5], messages[1:3]


def drop_tool(body: dict[str, Any]) -> None:
    body["tools"].pop()


def swap_tools(body: dict[str, Any]) -> None:
    body["tools"].reverse()


def mix_conversations(body: dict[str, Any]) -> None:
    text = msgspec.json.encode(body["messages"][1])
    start = text.index(b"~a") + 2
    body["messages"][1] = msgspec.json.decode(text[:start] + b"00000000" + text[start + 8 :])


def mix_tools(body: dict[str, Any]) -> None:
    description = body["tools"][1]["description"]
    body["tools"][1]["description"] = description[:2] + "00000000" + description[10:]


DAMAGES = [
    drop_turn,
    drop_first_message,
    drop_last_message,
    drop_block,
    swap_turns,
    drop_tool,
    swap_tools,
    mix_conversations,
    mix_tools,
]


@pytest.mark.parametrize("compiled", COMPILED)
def test_upstream_rejects_requests_that_lost_something(folder: tuple[Path, Traffic], compiled: bool) -> None:
    body = msgspec.json.decode(compose(folder[0], "growing"))
    with running(folder[0], compiled=compiled) as (_, port):
        assert send(port, msgspec.json.encode(body))[0] == 200
        statuses = {}
        for damage in DAMAGES:
            damaged = msgspec.json.decode(msgspec.json.encode(body))
            damage(damaged)
            statuses[damage.__name__] = send(port, msgspec.json.encode(damaged))[0]
    assert statuses == {damage.__name__: 400 for damage in DAMAGES}


class Repeater(socketserver.StreamRequestHandler):
    """A gateway that caches wrongly: the first response to everybody."""

    upstream = 0
    first = b""

    def handle(self) -> None:
        while line := self.rfile.readline():
            length = 0
            while line.strip():
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
                line = self.rfile.readline()
            response = self.respond(self.rfile.read(length))
            self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(response) + response)

    def respond(self, body: bytes) -> bytes:
        Repeater.first = Repeater.first or send(self.upstream, body)[1]
        return self.first


@contextlib.contextmanager
def serving(handler: type[Repeater], upstream: int) -> Iterator[int]:
    """Serve on a free port, and return it."""
    Repeater.upstream, Repeater.first = upstream, b""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


class Splitter(Repeater):
    """A gateway that splits the deltas of a stream within their marks."""

    def respond(self, body: bytes) -> bytes:
        rest = send(self.upstream, body)[1]
        frames = []
        for frame in rest.split(b"\n\n"):
            cut = frame.find(b"~a") + 12
            head, tail = frame.find(b'"content":"'), frame.find(b'"', cut)
            if head > 0 and cut > 12:
                frames.append(frame[:cut] + b'"}}]}')
                frame = b'data: {"choices":[{"delta":{"content":"' + frame[cut : tail + 1] + b"}}]}"  # noqa: PLW2901
            frames.append(frame)
        return b"\n\n".join(frames)


@pytest.mark.parametrize("compiled", COMPILED)
def test_load_counts_streams_whose_deltas_are_split(folder: tuple[Path, Traffic], compiled: bool) -> None:
    with running(folder[0], compiled=compiled) as (load, port), serving(Splitter, port) as splitter:
        outcome = load.run(Order(workload="chat-stream", count=10, connections=1), 1, splitter)
    assert (outcome.good, outcome.bad, outcome.error) == (10, 0, "")


@pytest.mark.parametrize("compiled", COMPILED)
def test_load_does_not_count_answers_to_other_requests(folder: tuple[Path, Traffic], compiled: bool) -> None:
    with running(folder[0], compiled=compiled) as (load, port), serving(Repeater, port) as repeater:
        outcome = load.run(Order(workload="small", count=10, connections=1), 1, repeater)
    assert (outcome.good, outcome.bad) == (1, 9)


def test_complete_checks_find_changed_content(folder: tuple[Path, Traffic], tmp_path: Path) -> None:
    path, traffic = folder
    with running(path, compiled=False) as (load, port):
        load.run(Order(workload="small", count=6, connections=1), 1, port)
        data = load.samples.read_bytes()
    assert check_samples(load.samples, traffic) == 3
    (tmp_path / "samples").write_bytes(data.replace(b"tool_calls", b"tool_balls"))
    with pytest.raises((Difference, KeyError)):
        check_samples(tmp_path / "samples", traffic)
    body = compose(path, "chat-growing")
    check_request(body, traffic)
    with pytest.raises(Difference):
        check_request(body.replace(b'"role":"tool"', b'"role":"user"', 1), traffic)


def test_traffic_is_repeated_by_its_seed_only(tmp_path: Path) -> None:
    def draw(seed: int) -> tuple[bytes, bytes]:
        write_traffic(seed, tmp_path, {"small", "stream"}, scale=0)
        return (tmp_path / "requests").read_bytes(), (tmp_path / "answers").read_bytes()

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_answers_have_the_shapes_of_four_servers(folder: tuple[Path, Traffic]) -> None:
    servers = {agent.server for agent, _ in folder[1].expected}
    assert servers == {"openai", "vllm", "deepseek", "llamacpp"}
    agents = {agent.id: agent for agent, _ in folder[1].expected}
    tools = [tool["name"] for agent in agents.values() for tool in agent.tools]
    assert len(set(tools)) == len(tools)


@pytest.mark.skipif(compiler() is None, reason="needs a C compiler")
def test_delays_and_streams_are_measured(tmp_path: Path) -> None:
    write_traffic(3, tmp_path, {"small", "paced", "stalled", "heavy-tools"}, scale=0)
    with running(tmp_path, compiled=True) as (load, port):
        probe = load.run(
            Order(workload="small", mode="probe", seconds=0.3, interval_us=5000, heavy="heavy-tools"), 1, port
        )
        assert probe.bad == 0
        assert 0 < probe.latency_ms.count <= 59  # a busy machine may end the time before the last one is due
        assert probe.heavy >= 2
        streams = load.run(Order(workload="paced", mode="streams", count=5, connections=3, interval_us=1000), 1, port)
        assert streams.bad == 0
        assert streams.first_token_ms.count >= 5
        held = load.run(Order(workload="stalled", mode="hold", connections=5), 1, port)
        assert held.first_token_ms.count == 5
        assert not answers(port)  # five streams are open
        load.release()
        wait_until(lambda: answers(port), "the end of the streams")
        left = load.run(Order(workload="stalled", mode="leave", count=8, connections=2), 1, port)
        assert (left.good, left.bad) == (8, 0)
