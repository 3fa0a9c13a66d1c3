"""Every rule of the chaos run finds a violation: sound evidence is falsified in one place."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.chaos.cluster import AMPLE_KEYS, TIGHT_BUDGET, TIGHT_KEY
from tests.chaos.dialects import DIALECTS
from tests.chaos.judge import judge
from tests.chaos.records import (
    Adoption,
    Answer,
    Background,
    CallReport,
    Effect,
    Evidence,
    LedgerRow,
    RunReport,
    Served,
)
from tests.support.paths import ROOT

KEY = AMPLE_KEYS[0]


def served(*tags: str, is_complete: bool = True) -> Served:
    return Served(tags, "/v1/messages", 200, is_complete, tags[-1], 10, 20)


def sound_evidence() -> Evidence:
    """Two responses of a chain, one in the background, one that was cut off with its gateway, and a run."""
    first = Answer("job-1", KEY, "openai-responses", "claude", "chain", "complete", 200, "job-1", "r1", is_stored=True)
    second = replace(first, tag="job-2", text="job-2", id="r2", lineage=("job-1",), exchange="e2", gateway="g")
    later = replace(first, tag="job-3", text="job-3", id="r3", kind="background")
    cut = Answer("job-4", KEY, "anthropic", "claude", "one", "cut", 200, "job", exchange="e4", gateway="g")
    return Evidence(
        answers=[first, second, later, cut],
        backgrounds=[Background(later, ["queued", "completed"])],
        served=[served("job-1"), served("job-1", "job-2"), served("job-3"), served("job-4", is_complete=False)],
        effects=[Effect("run_1", "c1", "pay", "a")],
        runs=[
            RunReport(
                "run_1",
                "finished",
                "",
                (("pay", "a"), ("pay", "b")),
                (CallReport("pay", "a", ""), CallReport("pay", "b", "in_doubt")),
            )
        ],
        adoptions=[Adoption("run_1", "worker-1", "killed", 5.0), Adoption("run_1", "worker-2", "paused", 60.0, 9.9)],
        ledger=[LedgerRow(KEY, "claude", 3, 30, 60, 3 * (10 + 2 * 20) * 1_000_000)],
        unsettled={"e4": (KEY, 10)},
        listed_unsettled=1,
        kills=[("g", 0.0)],
    )


def broken_rules(evidence: Evidence) -> list[str]:
    return [verdict.rule for verdict in judge(evidence) if not verdict.is_kept]


def test_sound_evidence_keeps_all_rules() -> None:
    assert broken_rules(sound_evidence()) == []


def run_goes_on(evidence: Evidence) -> None:
    evidence.runs[0] = replace(evidence.runs[0], stopped="")


def worker_exits(evidence: Evidence) -> None:
    evidence.exits.append("worker-1")


def effect_is_repeated(evidence: Evidence) -> None:
    evidence.effects.append(Effect("run_1", "c2", "pay", "a"))


def doubt_is_hidden(evidence: Evidence) -> None:
    evidence.runs[0] = replace(evidence.runs[0], calls=(evidence.runs[0].calls[0], CallReport("pay", "b", "")))


def call_is_missing(evidence: Evidence) -> None:
    evidence.runs[0] = replace(evidence.runs[0], calls=evidence.runs[0].calls[:1])


def adoption_is_late(evidence: Evidence) -> None:
    evidence.adoptions.append(Adoption("run_2", "worker-2", "paused", 40.1, waited=10.1))


def nobody_adopts(evidence: Evidence) -> None:
    evidence.adoptions.append(Adoption("run_2", "worker-2", "paused", None))


def response_is_gone(evidence: Evidence) -> None:
    evidence.unread.append("job-1 is gone")


def history_is_gone(evidence: Evidence) -> None:
    evidence.served[1] = served("job-2")


def background_response_goes_on(evidence: Evidence) -> None:
    evidence.backgrounds[0].statuses[-1] = "in_progress"


def usage_is_booked_twice(evidence: Evidence) -> None:
    row = evidence.ledger[0]
    evidence.ledger.append(replace(row, requests=0))


def usage_is_not_booked(evidence: Evidence) -> None:
    evidence.ledger[0] = replace(evidence.ledger[0], requests=2)


def reservation_of_an_ended_request_stays(evidence: Evidence) -> None:
    evidence.kills.clear()
    evidence.unsettled["e2"] = (KEY, 10)
    evidence.ledger[0] = LedgerRow(KEY, "claude", 2, 20, 40, 2 * 50 * 1_000_000)
    evidence.listed_unsettled = 2


def killed_request_is_forgotten(evidence: Evidence) -> None:
    evidence.unsettled.clear()
    evidence.listed_unsettled = 0


def reservation_is_not_listed(evidence: Evidence) -> None:
    evidence.listed_unsettled = 0


def budget_is_overspent(evidence: Evidence) -> None:
    count = int(TIGHT_BUDGET / 0.05) + 4
    evidence.answers += [
        Answer(f"tight-{number}", TIGHT_KEY, "anthropic", "claude", "one", "complete", 200, f"tight-{number}")
        for number in range(count)
    ]
    evidence.served += [served(f"tight-{number}") for number in range(count)]
    evidence.ledger.append(LedgerRow(TIGHT_KEY, "claude", count, 10 * count, 20 * count, 50_000_000 * count))


def text_is_cut(evidence: Evidence) -> None:
    evidence.answers[0] = replace(evidence.answers[0], text="job")


def stream_ends_properly_too_early(evidence: Evidence) -> None:
    evidence.answers[3] = replace(evidence.answers[3], outcome="false end")


def client_gets_an_error(evidence: Evidence) -> None:
    evidence.answers[3] = replace(evidence.answers[3], outcome="error", status=500)


def provider_refuses(evidence: Evidence) -> None:
    evidence.served[3] = replace(evidence.served[3], status=400)


def gateway_fails(evidence: Evidence) -> None:
    evidence.logs["gateway-1"] = "Traceback (most recent call last):"


MONEY = "money and tokens equal the providers' count"


@pytest.mark.parametrize(
    ("falsify", "rule"),
    [
        (run_goes_on, "every run ends"),
        (worker_exits, "no program ends by itself"),
        (effect_is_repeated, "no effect twice"),
        (doubt_is_hidden, "every missing effect is in doubt"),
        (call_is_missing, "every missing effect is in doubt"),
        (adoption_is_late, "adopted within 10 s after the lease"),
        (nobody_adopts, "adopted within 10 s after the lease"),
        (response_is_gone, "no acknowledged answer is lost"),
        (history_is_gone, "no acknowledged answer is lost"),
        (background_response_goes_on, "every background answer ends"),
        (usage_is_booked_twice, MONEY),
        (usage_is_not_booked, MONEY),
        (reservation_of_an_ended_request_stays, MONEY),
        (killed_request_is_forgotten, MONEY),
        (reservation_is_not_listed, "killed requests keep their reservations"),
        (budget_is_overspent, "budgets are overspent by one request per replica at most"),
        (text_is_cut, "no response ends as if complete"),
        (stream_ends_properly_too_early, "no response ends as if complete"),
        (client_gets_an_error, "no unexpected errors"),
        (provider_refuses, "no unexpected errors"),
        (gateway_fails, "no unexpected errors"),
    ],
)
def test_judge_finds_the_violation(falsify: Callable[[Evidence], None], rule: str) -> None:
    evidence = sound_evidence()
    falsify(evidence)
    assert broken_rules(evidence) == [rule]


@pytest.mark.parametrize("name", DIALECTS)
def test_readers_know_a_stream_that_was_cut(name: str) -> None:
    folder = ROOT / "tests" / "fixtures" / name.replace("-", "_") / "streams"
    (path,) = [path for path in folder.iterdir() if path.stem == "text"]
    data = path.read_bytes()
    assert DIALECTS[name].read_stream(data).is_complete
    assert DIALECTS[name].read_stream(data).text
    assert not DIALECTS[name].read_stream(data[: len(data) // 2]).is_complete
