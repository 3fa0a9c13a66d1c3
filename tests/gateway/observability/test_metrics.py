"""Shared memory of workers: counters that add up, and bounded loss reports."""

import json

from tests.support.assertions import non_empty
from tests.support.gateway.in_process import LOSSY_REQUEST, run_async, run_gateway_with
from tests.support.servers.http_responses import CHAT_RESPONSE
from tests.support.servers.upstream import ScriptedUpstream
from toolwire.canonical.response import Usage
from toolwire.gateway.observability.access_log import LIMIT_REPORT, RequestRecord
from toolwire.gateway.observability.metrics import LIMIT_LOSS_BYTES, OVERFLOW_METRIC, Metrics, Scoreboard
from toolwire.gateway.server.auth import Principal

MINE, OTHER = Principal("0123456789abcdef"), Principal("fedcba9876543210")


def id_of(number: int) -> str:
    return f"ex_{number:016x}"


def report_of(number: int, size: int = 0) -> bytes:
    return b'{"losses":["%d%b"]}' % (number, b"x" * size)


def test_losses_are_shared_by_workers_but_not_by_keys() -> None:
    scoreboard = Scoreboard(workers=3, entries=10)
    workers = [scoreboard.loss_store(number) for number in range(3)]
    for number, worker in enumerate(workers, start=1):
        worker.add(id_of(number), MINE, report_of(number))
        worker.add(id_of(number + 100), MINE)
    for reader in non_empty(workers):
        for number in range(1, 4):
            assert reader.find_losses(id_of(number), MINE) == report_of(number)
            assert reader.find_losses(id_of(number), OTHER) is None
            assert reader.find_losses(id_of(number), Principal("")) is None
            assert reader.find_losses(id_of(number + 100), MINE) == b'{"losses":[]}'
            assert reader.find_losses(id_of(number + 100), OTHER) is None
        assert reader.find_losses(id_of(999), MINE) is None
        assert reader.find_losses(id_of(0), Principal("")) is None


def test_later_losses_replace_those_of_the_same_exchange() -> None:
    store = Scoreboard(1, entries=2).loss_store(0)
    entry = store.add(id_of(1), MINE, report_of(1))
    assert store.add(id_of(1), MINE, report_of(2), entry) == entry
    assert store.find_losses(id_of(1), MINE) == report_of(2)
    store.add(id_of(2), MINE, report_of(2))
    store.add(id_of(3), MINE, report_of(3))  # overwrites the first entry
    assert store.add(id_of(1), MINE, report_of(4), entry) != entry
    assert [store.find_losses(id_of(number), MINE) for number in (1, 2, 3)] == [report_of(4), None, report_of(3)]


def test_overwritten_losses_are_unknown_not_empty() -> None:
    exchanges = Scoreboard(entries=1000).loss_store(0)
    exchanges.add(id_of(1), MINE)
    assert exchanges.find_losses(id_of(1), MINE) == b'{"losses":[]}'
    exchanges.add(id_of(1), MINE, report_of(1))
    assert exchanges.find_losses(id_of(1), MINE) == report_of(1)
    for number in range(2, 2 + LIMIT_LOSS_BYTES // LIMIT_REPORT + 1):  # until its report is overwritten
        exchanges.add(id_of(number), MINE, report_of(number, LIMIT_REPORT - 100))
    assert exchanges.find_losses(id_of(1), MINE) is None


def test_loss_reports_are_bounded_in_bytes() -> None:
    exchanges = Scoreboard(entries=1000).loss_store(0)
    count = 200
    for number in range(1, count + 1):
        exchanges.add(id_of(number), MINE, report_of(number, LIMIT_REPORT - 100))
    found = [exchanges.find_losses(id_of(number), MINE) for number in range(1, count + 1)]
    stored = [report for report in found if report is not None]
    assert LIMIT_LOSS_BYTES - LIMIT_REPORT < sum(map(len, stored)) <= LIMIT_LOSS_BYTES
    assert found[-len(stored) :] == stored


def test_exchanges_are_bounded_in_number() -> None:
    exchanges = Scoreboard(entries=3).loss_store(0)
    for number in range(1, 6):
        exchanges.add(id_of(number), MINE)
    assert [exchanges.find_losses(id_of(number), MINE) is None for number in range(1, 6)] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_long_report_is_truncated_between_losses() -> None:
    async def work() -> None:
        async with run_gateway_with(ScriptedUpstream(CHAT_RESPONSE)) as gateway:
            unknown = {f"field_{number}_{'x' * 200}": number for number in range(3000)}
            response = await gateway.post("/v1/messages", json.dumps(LOSSY_REQUEST | unknown).encode())
            path = f"/toolwire/exchanges/{response.headers['toolwire-exchange']}/losses"
            status, body = await gateway.get(path)
            assert status == 200
            assert LIMIT_REPORT - 1000 < len(body) <= LIMIT_REPORT
            report = json.loads(body)
            assert len(report["losses"]) + report["more"] >= 3000
            header = json.loads(response.headers["toolwire-losses"])
            counted = len(header["losses"]) + header["more"]
            assert 3000 <= counted <= len(report["losses"]) + report["more"]

    run_async(work())


def make_record(provider: str = "up", seconds: float = 0.2) -> RequestRecord:
    one = RequestRecord(
        id="ex_1", method="POST", path="/", started_at=0.0, duration=seconds, status=200, client="anthropic"
    )
    one.provider, one.losses, one.usage = provider, 2, Usage(input_tokens=5, output_tokens=7)
    return one


def test_metrics_are_summed_and_survive_a_restart() -> None:
    scoreboard = Scoreboard(workers=2)
    first, second = Metrics(scoreboard, 0), Metrics(scoreboard, 1)
    first.count_request(make_record())
    first.set_streams(3)
    first.set_journal_counts(4, 1)
    second.count_request(make_record(seconds=1000.0))
    second.set_streams(2)
    assert first.render() == second.render()
    assert b"\ntoolwire_streams 5\n" in second.render()
    replacement = Metrics(scoreboard, 0)
    replacement.count_request(make_record())
    replacement.set_journal_counts(1, 0)
    text = second.render().decode()
    assert 'toolwire_requests_total{client="anthropic",provider="up",status="200"} 3\n' in text
    assert 'toolwire_tokens_total{provider="up",kind="output"} 21\n' in text
    assert 'toolwire_losses_total{severity="warning"} 6\n' in text
    assert "toolwire_streams 2\n" in text
    assert 'toolwire_request_seconds_bucket{le="0.25"} 2\n' in text
    assert 'toolwire_request_seconds_bucket{le="300"} 2\n' in text
    assert 'toolwire_request_seconds_bucket{le="+Inf"} 3\n' in text
    assert "toolwire_request_seconds_sum 1000.400000\n" in text
    assert scoreboard.totals()["toolwire_journal_written_total"] == 5
    assert scoreboard.totals()["toolwire_journal_dropped_total"] == 1


def test_samples_beyond_the_limit_share_one_counter() -> None:
    scoreboard = Scoreboard()
    metrics = Metrics(scoreboard)
    for number in range(5000):
        metrics.count_request(make_record(provider=f"p{number}"))
    metrics.count_request(make_record(provider="\\" * 5000))
    text = metrics.render().decode()
    totals = scoreboard.totals()
    assert totals[OVERFLOW_METRIC] > 0
    assert "toolwire_request_seconds_count 5001\n" in text
    requests = sum(value for name, value in totals.items() if name.startswith("toolwire_requests_total"))
    tokens = sum(value for name, value in totals.items() if name.startswith("toolwire_tokens_total"))
    assert requests + tokens + totals[OVERFLOW_METRIC] == 5001 * (1 + 5 + 7)
