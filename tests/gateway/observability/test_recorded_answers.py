"""The provider's answers in the journal: as they came, bounded and redacted."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway.in_process import (
    journal_config,
    one_provider_config,
    question_request,
    read_journal,
    run_async,
    run_gateway,
)
from tests.support.samples.recorded_bodies import fixture_responses
from tests.support.servers.http_responses import (
    BUSY_RESPONSE,
    CHAT_BODY,
    CHAT_RESPONSE,
    CHAT_STREAM,
    SSE_HEAD,
    STREAM_START,
    chat_sse_event,
    http_response,
    openai_error_body,
    transfer_chunk,
)
from tests.support.servers.upstream import ScriptedUpstream, serve_upstream
from toolwire.journal.records import Bodies, Record
from toolwire.journal.redaction import Redactor

SECRET = "upstream-secret-key"


def record_exchange(
    folder: Path, client: str, *answers: bytes, stream: bool = False, options: str = "bodies = true"
) -> Record:
    """Send one question through a gateway whose upstream gives these answers, and return its record."""

    async def work() -> None:
        async with serve_upstream(ScriptedUpstream(*answers)) as origin:
            config = one_provider_config(origin, extra_config=journal_config(folder, options))
            async with run_gateway(config) as gateway:
                response = await gateway.post(*question_request(client, stream=stream))
                await response.read(1_000_000)

    run_async(work())
    (record,) = read_journal(folder)
    return record


def recorded_bodies(record: Record) -> dict[str, bytes]:
    assert record.bodies is not None
    return record.bodies.by_name


def test_answer_of_another_protocol_is_recorded_as_it_came(tmp_path: Path) -> None:
    bodies = recorded_bodies(record_exchange(tmp_path, "anthropic", CHAT_RESPONSE))
    assert list(bodies) == ["request", "translated", "answer", "response"]
    assert bodies["answer"] == CHAT_BODY
    assert json.loads(bodies["response"])["type"] == "message"


def test_stream_is_recorded_as_it_came(tmp_path: Path) -> None:
    bodies = recorded_bodies(record_exchange(tmp_path, "anthropic", CHAT_STREAM, stream=True))
    assert bodies["answer"] == STREAM_START + chat_sse_event({}, "stop") + b"data: [DONE]\n\n"
    assert bodies["response"].startswith(b"event: message_start")


def test_answer_that_was_passed_through_is_stored_once(tmp_path: Path) -> None:
    record = record_exchange(tmp_path, "openai-chat", CHAT_RESPONSE)
    assert recorded_bodies(record)["answer"] == recorded_bodies(record)["response"] == CHAT_BODY
    assert record.bodies is not None
    assert record.bodies.answers == []


def test_each_attempt_is_recorded(tmp_path: Path) -> None:
    bodies = recorded_bodies(record_exchange(tmp_path, "anthropic", BUSY_RESPONSE, CHAT_RESPONSE))
    assert list(bodies) == ["request", "translated", "answer_1", "answer_2", "response"]
    assert (bodies["answer_1"], bodies["answer_2"]) == (openai_error_body("busy"), CHAT_BODY)


def test_answers_are_recorded_up_to_the_limit(tmp_path: Path) -> None:
    long = chat_sse_event({"content": "x" * 5000})
    stream = SSE_HEAD + b"".join(transfer_chunk(data) for data in (STREAM_START, long, long)) + b"0\r\n\r\n"
    options = "bodies = true\n[limits]\nanswer = 6000"
    bodies = recorded_bodies(record_exchange(tmp_path, "anthropic", stream, stream=True, options=options))
    assert bodies["answer"] == (STREAM_START + long + long)[:6000]


def test_nothing_is_recorded_without_bodies(tmp_path: Path) -> None:
    assert record_exchange(tmp_path, "anthropic", CHAT_RESPONSE, options="").bodies is None


@pytest.mark.parametrize("cut", [7, len(SECRET)], ids=["split over events", "in one event"])
def test_secrets_are_removed_from_answers(tmp_path: Path, cut: int) -> None:
    texts = [f"the key is {SECRET[:cut]}", f"{SECRET[cut:]}."]
    events = [chat_sse_event({"content": text}) for text in texts]
    stream = SSE_HEAD + b"".join(map(transfer_chunk, [*events, chat_sse_event({}, "stop")])) + b"0\r\n\r\n"
    bodies = recorded_bodies(record_exchange(tmp_path, "anthropic", stream, stream=True))
    assert b"the key is [removed]" in bodies["answer"]
    assert not any(text.encode() in bodies["answer"] for text in (SECRET, SECRET[7:]))


def test_broken_answers_are_redacted_as_text() -> None:
    answers = [b'{"broken": "' + SECRET.encode(), b"\xff" + SECRET.encode()]
    bodies = Bodies(request=b"{}", translated=b"{", answers=answers)
    record = Record(id="x", at=0, toolwire="", client="anthropic", path="/", protocol="openai-chat", bodies=bodies)
    redacted = Redactor([SECRET]).redact_record(record).bodies
    assert redacted is not None
    assert redacted.answers == [b'{"broken": "[removed]', b"\xff[removed]"]


def test_settings_that_the_provider_echoes_are_of_no_consequence(tmp_path: Path) -> None:
    """The Responses API repeats settings that the client never sent; their losses must not drown the others."""
    (echo, *_) = [
        body
        for body in recorded_bodies_of_fixtures()
        if {"truncation", "temperature"} <= body.keys() and body["status"] == "completed"
    ]

    async def work() -> None:
        response = http_response("200 OK", json.dumps(echo).encode())
        async with serve_upstream(ScriptedUpstream(response)) as origin:
            config = one_provider_config(origin, "openai-responses", journal_config(tmp_path))
            async with run_gateway(config) as gateway:
                answer = await gateway.post(*question_request("openai-chat"))
                await answer.read(1_000_000)
                assert answer.status == 200

    run_async(work())
    (record,) = read_journal(tmp_path)
    echoed = [loss for loss in record.losses if loss.path in ("/truncation", "/temperature")]
    assert len(echoed) == 2
    assert {(loss.severity, loss.direction) for loss in echoed} == {("info", "response")}


def recorded_bodies_of_fixtures() -> list[dict[str, Any]]:
    """Return the response bodies of the Responses API in the fixtures."""
    return list(fixture_responses("openai-responses").values())
