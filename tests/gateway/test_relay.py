"""A stream on its way: beats before anybody answers, and what is said at the end."""

import asyncio
import json

import anthropic
import pytest

from tests.clock import Clock
from tests.gateway.running import NEVER, PROTOCOL_NAMES, in_front_of, run, running
from tests.gateway.test_exchange import STREAMED, Script, in_front
from tests.gateway.test_faults import BEGUN, STREAM, chunk, events_of, piece, told, whole
from tests.upstream.sockets import received, upstream
from toolwire.canonical.events import ResponseEnd
from toolwire.protocols import PROTOCOLS

LOSSY = STREAM + piece(BEGUN.replace(b'"id"', b'"x_unknown": "v", "id"') + chunk({}, "stop") + b"data: [DONE]\n\n")
LOSSY += b"0\r\n\r\n"
COMMENT = b": toolwire-losses "


@pytest.mark.parametrize("protocol", [name for name in PROTOCOL_NAMES if name != "openai-chat"])
def test_what_the_answer_lost_is_told_at_the_end_where_comments_are_taken(protocol: str) -> None:
    async def work() -> None:
        async with in_front(Script(LOSSY)) as gateway:
            answer = await gateway.ask(protocol, stream=True)
            wire = await answer.read(100_000)
            path = f"/toolwire/exchanges/{answer.headers['toolwire-exchange']}/losses"
            kept = [loss["path"] for loss in json.loads((await gateway.get(path))[1])["losses"]]
        assert isinstance(events_of(protocol, wire)[-1], ResponseEnd)
        assert "/x_unknown" in kept
        assert (COMMENT in wire) is PROTOCOLS[protocol].surface.comments
        if PROTOCOLS[protocol].surface.comments:
            comment = wire[wire.index(COMMENT) + len(COMMENT) :]
            assert comment.endswith(b"\n\n")
            header = json.loads(answer.headers.get("toolwire-losses", '{"losses":[]}'))
            assert [loss["path"] for loss in (*header["losses"], *json.loads(comment)["losses"])] == kept

    run(work())


def test_an_sdk_reads_over_what_is_told_at_the_end() -> None:
    async def work() -> None:
        async with (
            in_front(Script(LOSSY)) as gateway,
            anthropic.AsyncAnthropic(base_url=gateway.root, api_key="none", max_retries=0) as client,
            client.messages.stream(model="m", max_tokens=100, messages=[{"role": "user", "content": "Hi"}]) as stream,
        ):
            assert await stream.get_final_text() == "It is sunny"

    run(work())


def test_an_answer_that_lost_nothing_says_nothing() -> None:
    async def work() -> None:
        async with in_front(Script(STREAMED)) as gateway:
            assert COMMENT not in await (await gateway.ask("openai-responses", stream=True)).read(100_000)
        async with in_front(Script(LOSSY)) as gateway:
            assert COMMENT not in await (await gateway.ask("openai-chat", stream=True)).read(100_000)

    run(work())


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_the_next_upstream_is_asked_behind_the_beats(protocol: str, clock: Clock) -> None:
    async def work() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def slow_and_busy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await received(reader)
            begun.set()
            await go_on.wait()
            writer.write(whole("503 Busy", told("busy")))
            await reader.read()

        second = Script(STREAMED)
        async with upstream(slow_and_busy) as one, upstream(second) as two:
            config = in_front_of(one, more="[limits]\nretries = 0\nheartbeat = 10", timeout=NEVER)
            config = config.replace('provider = "up"', 'providers = ["up", "next"]')
            config += f'[providers.next]\nprotocol = "openai-chat"\nbase_url = "http://{two.authority}"'
            async with running(config) as gateway:
                asking = asyncio.create_task(gateway.ask(protocol, stream=True))
                await begun.wait()
                answer = await clock.expire(asking)
                assert answer.status == 200
                assert second.asked == []  # the head came first
                go_on.set()
                wire = await answer.read(100_000)
        assert b"sunny" in wire
        assert isinstance(events_of(protocol, wire)[-1], ResponseEnd)

    run(work())


def test_a_stream_too_many_is_refused_before_anybody_is_asked() -> None:
    async def work() -> None:
        script = Script(STREAMED)
        async with in_front(script, more="[limits]\nstreams = 0") as gateway:
            assert (await gateway.ask("anthropic", stream=True)).status == 503
            assert script.asked == []

    run(work())
