"""The exchanges that the console keeps, feeds and shows in full."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.console.console_client import open_console, settled
from tests.support.assertions import non_empty
from tests.support.gateway.in_process import journal_config, question_request, read_journal, run_async
from tests.support.servers.http_responses import (
    CHAT_RESPONSE,
    CHAT_STREAM,
    SSE_HEAD,
    STREAM_START,
    chat_sse_event,
    http_response,
    openai_error_body,
    transfer_chunk,
)
from tests.support.servers.upstream import ScriptedUpstream, StalledUpstream
from toolwire.canonical.errors import Loss
from toolwire.gateway.console.exchange_buffer import ExchangeBuffer
from toolwire.gateway.console.exchange_details import split_stream
from toolwire.gateway.console.exchange_rows import MAX_LOSS_TEXTS, MAX_TEXT, describe_losses
from toolwire.gateway.observability.access_log import RequestRecord
from toolwire.gateway.observability.recorder import MAX_USER_AGENT
from toolwire.gateway.server.auth import Principal

SECRET = "secret-of-p0"
LOSSY = {"model": "gpt-5.5", "max_tokens": 9, "top_k": 4, "messages": [{"role": "user", "content": "Hi"}]}
BODIES = "[console]\nbodies = true\n"


def test_row_describes_an_exchange_with_losses() -> None:
    async def work() -> None:
        async with open_console() as console:
            await console.send("POST", "/v1/messages", LOSSY)
            async with console.feed() as feed:
                (row,) = await feed.rows(1)
            assert (row["client"], row["client_model"], row["status"]) == ("anthropic", "gpt-5.5", 200)
            assert (row["provider"], row["protocol"]) == ("p0", "openai-chat")
            assert (row["input"], row["output"]) == (3, 4)
            assert row["losses"] == {"warning": 1, "info": 1}
            assert row["loss_texts"][0] == "warning dropped /top_k: the target has no such field"
            assert not row.get("is_simulated")
            assert 0 < row["first"] <= row["duration"]
            assert row["cost"] > 0
            assert not row.get("has_bodies")

    run_async(work())


PROMPT = "Which museum in Oslo is open on Mondays?"
CALL = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "a result"}


@pytest.mark.parametrize(
    ("content", "prompt"),
    [
        (PROMPT, PROMPT),
        (
            [{"type": "text", "text": "<system-reminder>No.</system-reminder>"}, {"type": "text", "text": PROMPT}],
            PROMPT,
        ),
        (
            [{"type": "text", "text": PROMPT}, {"type": "text", "text": "<system-reminder>No.</system-reminder>"}],
            PROMPT,
        ),
        ("Two\n\n  lines", "Two lines"),
        ("word " * 100, ("word " * 16)[:79] + "…"),
        (f"{'a' * 72} {SECRET}", f"{'a' * 72} [remov…"),
        ([{"type": "text", "text": "<system-reminder>No.</system-reminder>"}], None),
    ],
)
def test_captured_row_has_the_first_words_of_the_user(content: Any, prompt: str | None) -> None:
    messages = [
        {"role": "user", "content": content},
        {"role": "assistant", "content": [CALL]},
        {"role": "user", "content": [RESULT]},
    ]

    async def work() -> None:
        async with open_console(BODIES) as console:
            await console.send("POST", "/v1/messages", LOSSY | {"messages": messages})
            async with console.feed() as feed:
                (row,) = await feed.rows(1)
            assert row.get("prompt") == prompt
        async with open_console() as console:
            await console.send("POST", "/v1/messages", LOSSY | {"messages": messages})
            async with console.feed() as feed:
                (row,) = await feed.rows(1)
            assert "prompt" not in row

    run_async(work())


@pytest.mark.parametrize(
    ("user_agent", "program"),
    [
        ("claude-cli/2.1.0 (external, cli)", "claude-cli"),
        ("<img src=x>", None),
        ("a" * 5000, "a" * MAX_USER_AGENT),
    ],
)
def test_row_names_the_program_of_the_client(user_agent: str, program: str | None) -> None:
    async def work() -> None:
        async with open_console() as console:
            await console.send("POST", "/v1/messages", LOSSY, user_agent=user_agent)
            async with console.feed() as feed:
                (row,) = await feed.rows(1)
            assert row.get("program") == program

    run_async(work())


def test_search_texts_have_each_lost_field_once() -> None:
    def lose(path: str, reason: str = "the target has no such field") -> Loss:
        return Loss(severity="warning", kind="dropped", path=path, reason=reason, direction="request")

    repeated = [lose(f"/messages/{number}/content/0", "groq has no field for reasoning") for number in range(300)]
    texts = describe_losses([*repeated, lose("/top_k"), lose("/metadata"), lose("/top_k", "another reason")])
    assert [text.partition(": ")[0] for text in texts] == [
        "warning dropped /messages/0/content/0",
        "warning dropped /top_k",
        "warning dropped /metadata",
        "warning dropped /top_k",
    ]
    assert len(describe_losses([lose(f"/field_{number}") for number in range(400)])) == MAX_LOSS_TEXTS
    assert describe_losses([lose("/" + "x" * 10_000)])[0].endswith("xxx")
    assert len(describe_losses([lose("/" + "x" * 10_000)])[0]) == MAX_TEXT


def test_feed_continues_after_a_reconnect() -> None:
    async def work() -> None:
        async with open_console() as console:
            await console.send("POST", "/v1/messages", LOSSY)
            async with console.feed() as feed:
                (first,) = await feed.rows(1)
                last_id = feed.last_id
            await console.send("POST", "/v1/messages", LOSSY)
            async with console.feed(last_event_id=last_id) as feed:
                batch = await feed.batch()
                assert not batch["reset"]
                (second,) = batch["rows"]
            assert second["id"] != first["id"]
            async with console.feed(last_event_id="other:1") as feed:  # another process has other numbers
                batch = await feed.batch()
                assert batch["reset"]
                assert [row["id"] for row in batch["rows"]] == [first["id"], second["id"]]

    run_async(work())


def test_failed_requests_show_and_catalog_lookups_do_not() -> None:
    async def work() -> None:
        async with open_console() as console:
            await console.send("GET", "/v1/models")
            await console.send("GET", "/v1/no-such-path")
            await console.send("POST", "/v1/chat/completions", {"model": "m", "messages": 3})
            async with console.feed() as feed:
                rows = await feed.rows(2)
            assert [(row["path"], row["status"]) for row in rows] == [
                ("/v1/no-such-path", 404),
                ("/v1/chat/completions", 400),
            ]
            assert rows[1]["error"]

    run_async(work())


def test_stream_under_way_shows_before_it_ends() -> None:
    async def work() -> None:
        upstream = StalledUpstream()
        async with open_console(BODIES, upstream) as console, console.feed() as feed:  # type: ignore[arg-type]
            await feed.batch()
            response = await console.gateway.send_question("anthropic", stream=True)
            (row,) = (await feed.batch())["rows"]
            assert row["is_open"]
            details = (await console.get(f"exchanges/{row['id']}")).json
            assert details["bodies"]["request"]
            upstream.released.set()
            await response.read(100_000)
            (finished,) = await feed.rows(1)
            assert (finished["id"], finished["streamed"], finished["status"]) == (row["id"], True, 200)

    run_async(work())


def test_details_show_both_sides_without_secrets() -> None:
    async def work() -> None:
        error = http_response("400 Bad", openai_error_body(f"bad key {SECRET}"))
        async with open_console(BODIES, ScriptedUpstream(CHAT_RESPONSE, error)) as console:
            lossy = LOSSY | {"messages": [{"role": "user", "content": f"my key is {SECRET}"}]}
            await console.send("POST", "/v1/messages", lossy)
            await console.send("POST", "/v1/messages", lossy)
            async with console.feed() as feed:
                rows = await feed.rows(2)
            for row in rows:
                reply = await console.get(f"exchanges/{row['id']}")
                bundle = zipfile.ZipFile(io.BytesIO((await console.get(f"export/{row['id']}")).body))
                files = [bundle.read(name) for name in bundle.namelist()]
                for shown in non_empty([reply.body, *files, json.dumps(row).encode()]):
                    assert SECRET.encode() not in shown
            details = (await console.get(f"exchanges/{rows[0]['id']}")).json
            assert json.loads(details["bodies"]["request"])["top_k"] == 4
            assert "top_k" not in json.loads(details["bodies"]["translated"])
            assert json.loads(details["bodies"]["answers"][0])["object"] == "chat.completion"
            assert json.loads(details["bodies"]["response"])["type"] == "message"
            assert ("/top_k", "dropped") in [(loss["path"], loss["kind"]) for loss in details["losses"]]
            assert details["upstream"]["url"].endswith("/v1/chat/completions")
            assert details["upstream"]["key_header"] == "authorization"

    run_async(work())


def test_streams_have_events_with_times() -> None:
    async def work() -> None:
        async with open_console(BODIES, ScriptedUpstream(CHAT_STREAM)) as console:
            await (await console.gateway.send_question("anthropic", stream=True)).read(100_000)
            async with console.feed() as feed:
                (row,) = await feed.rows(1)
            details = (await console.get(f"exchanges/{row['id']}")).json
            upstream, client = details["streams"]
            assert upstream["protocol"] == "openai-chat"
            assert upstream["events"][-1]["text"] == "[DONE]"
            assert json.loads(client["events"][0]["text"])["type"] == "message_start"
            times = [event["at"] for event in upstream["events"]]
            assert times == sorted(times)
            assert 0 < times[0] <= client["events"][0]["at"] <= row["duration"]

    run_async(work())


def test_stream_with_a_split_secret_hides_its_events() -> None:
    async def work() -> None:
        half = len(SECRET) // 2
        events = chat_sse_event({"content": SECRET[:half]}) + chat_sse_event({"content": SECRET[half:]})
        end = chat_sse_event({}, "stop") + b"data: [DONE]\n\n"
        stream = SSE_HEAD + transfer_chunk(STREAM_START + events + end) + b"0\r\n\r\n"
        async with open_console(BODIES, ScriptedUpstream(stream)) as console:
            await (await console.gateway.send_question("anthropic", stream=True)).read(100_000)
            async with console.feed() as feed:
                (row,) = await feed.rows(1)
            reply = await console.get(f"exchanges/{row['id']}")
            assert SECRET[:half].encode() not in reply.body
            assert [stream["is_hidden"] for stream in reply.json["streams"]] == [True, True]
            assert "[removed]" in reply.json["bodies"]["response"]

    run_async(work())


def test_bodies_are_captured_only_while_switched_on() -> None:
    async def work() -> None:
        async with open_console() as console:
            await console.send("POST", "/v1/messages", LOSSY)
            await console.act("capture", {"seconds": 600})
            await console.send("POST", "/v1/messages", LOSSY)
            await console.act("capture", {"seconds": 0})
            await console.send("POST", "/v1/messages", LOSSY)
            async with console.feed() as feed:
                rows = await feed.rows(3)
            assert [row.get("has_bodies", False) for row in rows] == [False, True, False]
            details = (await console.get(f"exchanges/{rows[0]['id']}")).json
            assert (details["bodies"], details["missing_bodies"]) == (None, "off")
            assert details["losses"]

    run_async(work())


def test_console_bodies_do_not_reach_the_journal(tmp_path: Path) -> None:
    async def work() -> None:
        async with open_console(journal_config(tmp_path, "bodies = false") + BODIES) as console:
            await console.send("POST", "/v1/messages", LOSSY)
            await settled(console.buffer, 1)
            (exchange,) = console.buffer.after(0, 10)
            assert exchange.captured is not None
            recorder = console.gateway.gateway.app._recorder
            assert recorder is not None
            assert recorder.journal._large_entries == []  # which have bodies, and wait half a second to be written
        (record,) = read_journal(tmp_path)
        assert record.bodies is None

    run_async(work())


def test_replay_command_is_offered_for_recorded_exchanges_only(tmp_path: Path) -> None:
    async def work() -> None:
        for config, is_offered in ((journal_config(tmp_path), True), (BODIES, False)):
            async with open_console(config) as console:
                await console.send("POST", "/v1/messages", LOSSY)
                async with console.feed() as feed:
                    (row,) = await feed.rows(1)
                replay = (await console.get(f"exchanges/{row['id']}")).json["replay"]
                assert replay == (f"toolwire journal replay {row['id']}" if is_offered else "")

    run_async(work())


def test_buffer_is_bounded_in_count_and_bytes() -> None:
    async def work() -> None:
        async with open_console("[console]\nbodies = true\nexchanges = 4\nsize = 5000\n") as console:
            for _ in range(6):
                await console.send("POST", *question_body())
            await settled(console.buffer, 4)
            exchanges = console.buffer.after(0, 100)
            assert [exchange.number for exchange in exchanges] == [3, 4, 5, 6]
            assert 0 < console.buffer.used_bytes <= 5000
            evicted = exchanges[0]
            assert evicted.captured is None
            assert exchanges[-1].captured is not None
            details = (await console.get(f"exchanges/{evicted.record.id}")).json
            assert details["missing_bodies"] == "evicted"

    run_async(work())


def test_exchange_under_way_is_yielded_once_per_change() -> None:
    buffer = ExchangeBuffer(3, 0, body_limit=0)
    buffer.watch()
    record = RequestRecord(id="ex", method="POST", path="/", started_at=0.0, client="ollama")
    buffer.start(StubObserver(record), None)  # type: ignore[arg-type]
    known: dict[str, bool] = {}
    assert [exchange.record.id for exchange in buffer.under_way(0, known)] == ["ex"]
    assert list(buffer.under_way(0, known)) == []
    record.responded_at = 1.0
    assert [exchange.number for exchange in buffer.under_way(0, known)] == [0]
    buffer.add(StubObserver(record))  # type: ignore[arg-type]
    assert list(buffer.under_way(0, known)) == []
    assert known == {}


class StubObserver:
    """An observer without capture and losses."""

    capture = losses = request_losses = None
    principal = Principal("")

    def __init__(self, record: RequestRecord) -> None:
        self.record = record


def question_body() -> tuple[str, object]:
    path, body = question_request("openai-chat")
    return path, json.loads(body)


def test_slow_page_skips_exchanges_that_left_the_buffer() -> None:
    buffer = ExchangeBuffer(3, 0, body_limit=0)
    record = RequestRecord(id="ex", method="POST", path="/", started_at=0.0, client="ollama")
    for _ in range(10):
        buffer.add(StubObserver(record))  # type: ignore[arg-type]
    assert [exchange.number for exchange in buffer.after(0, 2)] == [8, 9]
    assert [exchange.number for exchange in buffer.after(9, 2)] == [10]
    assert buffer.after(10, 2) == []


def test_stream_events_are_split_at_any_chunk() -> None:
    data = b"data: 1\n\ndata: 2\n\ndata: 3\n\n"
    for cut in range(len(data)):
        stream = split_stream("openai-chat", data, [(10.0, cut), (11.0, len(data) - cut)], 9.0)
        assert [event.text for event in stream.events] == ["1", "2", "3"]
        assert [event.at for event in stream.events] == [1.0 if cut >= end else 2.0 for end in (9, 18, 27)]
    lines = split_stream("ollama", b'{"a":1}\n{"a":2}\n', [(5.0, 16)], 5.0)
    assert [event.text for event in lines.events] == ['{"a":1}', '{"a":2}']
