"""The memo of conversations: what it reuses changes nothing that clients, upstreams and records can see."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.gateway.in_process import journal_config, read_journal, run_gateway_with
from tests.support.servers.http_responses import BUSY_RESPONSE, CHAT_RESPONSE
from tests.support.servers.upstream import ScriptedUpstream
from toolwire.codec.interface import Route, Target
from toolwire.gateway.config import LimitsSection
from toolwire.gateway.errors import RequestRejected
from toolwire.gateway.exchange.conversation_memo import MIN_BODY, CompleteEncodingRequired, ConversationMemo
from toolwire.gateway.exchange.exchange import ClientRequest
from toolwire.protocols import PROTOCOLS
from toolwire.translation.encoding_snapshot import EncodingSnapshot
from toolwire.translation.incremental import RequestSnapshot

CLIENT, UPSTREAM = PROTOCOLS["anthropic"], PROTOCOLS["openai-chat"]
LIMIT, LIMITS = 10_000_000, LimitsSection()
KEYS = '[server]\nkeys = ["first-secret-key", "second-secret-key"]\n'


def conversation_body(turns: int, **fields: Any) -> bytes:
    """Return an Anthropic request with this many tool calls, and a cache mark on its last message."""
    messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "Read the files. " * 4000}]}]
    for number in range(turns):
        thinking = {"type": "thinking", "thinking": "Next file.", "signature": "c2ln"}
        use = {"type": "tool_use", "id": f"toolu_{number}", "name": "read", "input": {"path": f"{number}.py"}}
        result = {"type": "tool_result", "tool_use_id": use["id"], "content": f"file {number} " * 50}
        messages += [{"role": "assistant", "content": [thinking, use]}, {"role": "user", "content": [result]}]
    messages[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    tools = [{"name": "read", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}]
    body = {"model": "m", "max_tokens": 100, "messages": messages, "tools": tools, "system": "Be brief."}
    return json.dumps(body | fields, separators=(",", ":")).encode()


def client_request(body: bytes, tenant: str = "t") -> ClientRequest:
    return ClientRequest(codec=CLIENT, body=body, route=Route(), tenant=tenant)


def learn(memo: ConversationMemo, request: ClientRequest) -> None:
    """Decode and encode a request twice, the second time incrementally if possible."""
    for _ in range(2):
        send(memo, request)


def send(memo: ConversationMemo, request: ClientRequest) -> None:
    """Decode and encode a request, incrementally if possible."""
    conversation = memo.find(request)
    if (decoded := conversation.decode_new_messages(request, LIMITS)) is None:
        decoded = request.codec.decode_request(request.body, request.route)
        conversation.remember(request, decoded)
    conversation.encode(decoded, request.codec, UPSTREAM, Target(model="m", realm="up"))


def is_known(memo: ConversationMemo, request: ClientRequest) -> bool:
    """Return whether a request continues a conversation that the memo knows."""
    decoded = memo.find(request).decode_new_messages(request, LIMITS)
    assert decoded is None or decoded == request.codec.decode_request(request.body, request.route)
    return decoded is not None


def test_a_longer_request_of_a_conversation_is_known() -> None:
    memo = ConversationMemo(LIMIT)
    learn(memo, client_request(conversation_body(3)))
    assert is_known(memo, client_request(conversation_body(4)))
    assert is_known(memo, client_request(conversation_body(5)))


def test_a_conversation_is_known_from_its_first_request_on() -> None:
    memo = ConversationMemo(LIMIT)
    send(memo, client_request(conversation_body(3)))
    assert is_known(memo, client_request(conversation_body(4)))


def test_conversations_do_not_cross_tenants() -> None:
    memo = ConversationMemo(LIMIT)
    learn(memo, client_request(conversation_body(3)))
    assert not is_known(memo, client_request(conversation_body(4), tenant="other"))


def test_conversations_do_not_cross_protocols_or_routes() -> None:
    memo = ConversationMemo(LIMIT)
    learn(memo, client_request(conversation_body(3)))
    request = client_request(conversation_body(4))
    assert not is_known(memo, replace(request, route=Route(stream=True)))
    assert memo.find(replace(request, codec=PROTOCOLS["ollama"])) is not memo.find(request)


def test_limit_zero_turns_the_memo_off() -> None:
    memo = ConversationMemo(0)
    learn(memo, client_request(conversation_body(3)))
    assert not is_known(memo, client_request(conversation_body(3)))


def test_small_bodies_are_not_remembered() -> None:
    memo = ConversationMemo(LIMIT)
    body = json.dumps({"messages": [{"role": "user", "content": "Hi"}]}).encode()
    assert len(body) < MIN_BODY
    learn(memo, client_request(body))
    assert not is_known(memo, client_request(body))


def numbered_requests(count: int) -> list[ClientRequest]:
    """Return the requests of different conversations."""
    return [client_request(conversation_body(3).replace(b"Read", b"Read%d" % number)) for number in range(count)]


def test_the_least_recently_used_conversations_are_forgotten() -> None:
    requests = numbered_requests(20)
    memo = ConversationMemo(32 * 5 * len(requests[0].body) // 3)  # three quarters hold 8 conversations
    learn(memo, requests[0])
    for request in requests[1:]:
        learn(memo, request)
        assert is_known(memo, requests[0])
        assert is_known(memo, request)
    known = [memo.find(request)._snapshot is not None for request in requests]
    assert known[0]
    assert known[-5:] == [True] * 5
    assert sum(known) <= 8


def test_single_requests_do_not_displace_conversations() -> None:
    requests = numbered_requests(20)
    memo = ConversationMemo(8 * 5 * len(requests[0].body))
    learn(memo, requests[0])
    for request in requests[1:]:
        send(memo, request)
    known = [memo.find(request)._snapshot is not None for request in requests]
    assert known[0]
    assert 0 < sum(known) <= 3


def test_a_conversation_larger_than_a_quarter_of_the_memo_is_not_remembered() -> None:
    request = client_request(conversation_body(3))
    memo = ConversationMemo(8 * len(request.body))
    learn(memo, request)
    assert not is_known(memo, request)


def test_references_to_stored_history_are_not_remembered() -> None:
    codec = PROTOCOLS["openai-responses"]
    items = [{"role": "user", "content": "Read. " * 10000}]
    body = json.dumps({"model": "m", "previous_response_id": "resp_1", "input": items}).encode()
    request = ClientRequest(codec=codec, body=body, route=Route(), tenant="t")
    memo = ConversationMemo(LIMIT)
    learn(memo, request)
    assert not is_known(memo, request)


def test_limits_apply_to_known_conversations() -> None:
    memo, limits = ConversationMemo(LIMIT), LimitsSection(parts=20)
    request = client_request(conversation_body(3))
    learn(memo, request)
    later = client_request(conversation_body(9))
    with pytest.raises(RequestRejected, match=r"limits\.parts"):
        memo.find(later).decode_new_messages(later, limits)
    assert memo.find(later).decode_new_messages(later, LimitsSection(values=1000)) is None  # to be counted first


def test_a_known_conversation_needs_no_thread() -> None:
    memo = ConversationMemo(LIMIT)
    for turns in (3, 4):
        request = client_request(conversation_body(turns))
        assert memo.find(request).decode_light(request, LIMITS) is None  # not known, or its messages not located yet
        learn(memo, request)
    conversation, later = memo.find(request), client_request(conversation_body(5))
    decoded = conversation.decode_light(later, LIMITS)
    assert decoded is not None
    conversation.encode(decoded, CLIENT, UPSTREAM, Target(model="m", realm="up"), complete=False)
    with pytest.raises(CompleteEncodingRequired):
        conversation.encode(decoded, CLIENT, UPSTREAM, Target(model="m", realm="other"), complete=False)


@pytest.mark.parametrize("change", ["much is new", "much is known"])
def test_a_known_conversation_may_need_a_thread(change: str) -> None:
    memo = ConversationMemo(10 * LIMIT)
    sizes = (3, 4, 100) if change == "much is new" else (2000, 2001, 2002)
    for turns in sizes[:2]:
        learn(memo, client_request(conversation_body(turns)))
    later = client_request(conversation_body(sizes[2]))
    assert memo.find(later).decode_light(later, LIMITS) is None
    assert is_known(memo, later)


# ---- through the gateway


def count_reuses(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the requests that are decoded and encoded incrementally."""
    counter: Counter[str] = Counter()
    for name, kind in (("decoded", RequestSnapshot), ("encoded", EncodingSnapshot)):
        continue_with: Callable[..., Any] = kind.continue_with

        def counted(*args: Any, name: str = name, complete: Callable[..., Any] = continue_with) -> Any:
            continued = complete(*args)
            counter.update([name] if continued is not None else [])
            return continued

        monkeypatch.setattr(kind, "continue_with", counted)
    return counter


SEQUENCE = [
    *((conversation_body(turns), "first-secret-key") for turns in range(3, 8)),
    (conversation_body(7), "first-secret-key"),
    (conversation_body(8, system="Be verbose."), "first-secret-key"),
    (conversation_body(8), "second-secret-key"),
    (conversation_body(5), "first-secret-key"),
    (conversation_body(9), "first-secret-key"),
    (conversation_body(10).replace(b"file 0 file 0", b"[cleared]"), "first-secret-key"),
    (conversation_body(11), "first-secret-key"),
]
"""A conversation that grows, is repeated, changes its system text, is sent by another client, goes back, is edited."""


@pytest.mark.parametrize("responses", [(CHAT_RESPONSE,), (BUSY_RESPONSE, CHAT_RESPONSE)], ids=["served", "failed over"])
def test_a_gateway_with_memo_sends_and_records_the_same(
    responses: tuple[bytes, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reuses = count_reuses(monkeypatch)

    async def work(history: int, folder: Path) -> list[Any]:
        first, second = ScriptedUpstream(responses[0]), ScriptedUpstream(CHAT_RESPONSE)
        folder.mkdir()  # noqa: ASYNC240 - nothing else runs yet
        config = f"{KEYS}{journal_config(folder)}[limits]\nhistory = {history}\nretries = 0\n"
        observed: list[Any] = []
        async with run_gateway_with(first, second, extra_config=config) as gateway:
            for body, key in SEQUENCE:
                response = await gateway.post("/v1/messages", body, **{"x-api-key": key})
                assert response.status == 200
                observed.append((await response.read(100_000), response.headers.get("toolwire-losses")))
        sent = [request.partition(b"\r\n\r\n")[2] for request in first.requests + second.requests]
        journal = [(record.bodies, record.losses, record.tenant, record.provider) for record in read_journal(folder)]
        return [observed, sent, journal]

    expected = asyncio.run(work(0, tmp_path / "without"))
    assert not reuses
    assert asyncio.run(work(LIMIT, tmp_path / "with")) == expected
    assert reuses["decoded"] >= 5
    assert reuses["encoded"] >= 5
