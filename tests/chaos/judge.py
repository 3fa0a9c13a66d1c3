"""The rules of the chaos run: each reads the evidence, and returns violations and figures."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from tests.chaos.cluster import AMPLE_KEYS, GATEWAYS, INPUT_PRICE, OUTPUT_PRICE, TIGHT_BUDGET, TIGHT_KEY
from tests.chaos.records import Answer, Evidence, Served
from toolwire.journal.leases import LeaseTerms

_PATIENCE = 10.0
"""Seconds after the end of a lease in which a worker that is ready takes over its run, while PostgreSQL is up."""
ADOPTION_SECONDS = LeaseTerms().seconds + _PATIENCE
_ALLOWED_STATUSES = {0, 200, 502, 503, 504}
"""0: the connection broke before the head of the response."""
_INTERNAL_ERROR = re.compile(r"Traceback|internal error|already exists|does not exist|syntax error")
_BOOKING_SECONDS = 30
"""In which a gateway books a response, even if PostgreSQL restarts meanwhile."""
_MAX_TOKENS = 2_000
"""More than a request of the clients can use."""


@dataclass(frozen=True)
class Verdict:
    """What a rule found."""

    rule: str
    violations: tuple[str, ...]
    figures: str

    @property
    def is_kept(self) -> bool:
        """Whether there are no violations."""
        return not self.violations


def judge(evidence: Evidence) -> list[Verdict]:
    """Apply all rules."""
    return [rule(evidence) for rule in RULES]


def _every_run_ends(evidence: Evidence) -> Verdict:
    stops = Counter(run.stopped or "unfinished" for run in evidence.runs)
    violations = [f"{run.run} has not ended" for run in evidence.runs if not run.stopped]
    return Verdict("every run ends", tuple(violations), _counts(stops))


def _no_program_exits(evidence: Evidence) -> Verdict:
    violations = [f"{name} has ended, although nobody killed it" for name in evidence.exits]
    return Verdict("no program ends by itself", tuple(violations), f"{len(evidence.kills)} gateways were killed")


def _no_effect_twice(evidence: Evidence) -> Verdict:
    payments = [effect for effect in evidence.effects if effect.tool == "pay"]
    violations = [
        f"{name} was paid {count} times"
        for keys in (((one.run, one.entry) for one in payments), ((one.run, one.call) for one in payments))
        for name, count in Counter(keys).items()
        if count > 1
    ]
    repeatable = Counter((one.run, one.entry) for one in evidence.effects if one.tool != "pay")
    repeated = sum(count > 1 for count in repeatable.values())
    return Verdict(
        "no effect twice",
        tuple(violations),
        f"{len(payments)} payments; {len(repeatable)} repeatable calls, {repeated} of them repeated",
    )


def _missing_effects_in_doubt(evidence: Evidence) -> Verdict:
    done = {(effect.run, effect.tool, effect.entry) for effect in evidence.effects}
    violations, doubts, missing = list[str](), 0, 0
    for run in evidence.runs:
        reports = {(call.tool, call.entry): call.error for call in run.calls}
        doubts += sum(error == "in_doubt" for error in reports.values())
        for tool, entry in run.plan:
            if (run.run, tool, entry) in done:
                continue
            error = reports.get((tool, entry))
            missing += error == "in_doubt"
            if error == "" or (error != "in_doubt" and run.stopped == "finished"):
                violations.append(f"{run.run}: {tool} {entry} has no effect, and is reported as {error or 'done'!r}")
    return Verdict(
        "every missing effect is in doubt",
        tuple(violations),
        f"{doubts} calls in doubt, {missing} without their effect",
    )


def _adopted_in_time(evidence: Evidence) -> Verdict:
    violations, figures = list[str](), list[str]()
    for cause in ("killed", "paused"):
        times = [one.seconds for one in evidence.adoptions if one.cause == cause and one.seconds is not None]
        if times:
            figures.append(f"{cause}: {len(times)} runs, median {median(times):.1f} s, at most {max(times):.1f} s")
    for one in evidence.adoptions:
        if one.seconds is None or one.waited > _PATIENCE:
            after = "never" if one.seconds is None else f"after {one.seconds:.1f} s"
            violations.append(
                f"{one.run} of {one.cause} {one.worker} was taken over {after}; it waited {one.waited:.1f} s for a "
                "worker that was ready, while PostgreSQL was up"
            )
    waited = max((one.waited for one in evidence.adoptions), default=0.0)
    figures.append(f"at most {waited:.1f} s after the lease while a worker and PostgreSQL were there")
    return Verdict(f"adopted within {_PATIENCE:g} s after the lease", tuple(violations), "; ".join(figures))


def _no_answer_lost(evidence: Evidence) -> Verdict:
    served = _served_by_tag(evidence)
    violations = list(evidence.unread)
    for answer in evidence.answers:
        if answer.outcome != "complete" or not answer.lineage:
            continue
        expected = (*answer.lineage, answer.tag)
        for one in served.get(answer.tag, ()):
            # A conversation may also have a response that was stored, but did not reach the client.
            tags = tuple(tag for tag in one.tags if tag in expected) if answer.conversation else one.tags
            if tags != expected:
                violations.append(f"{answer.tag} was sent after {one.tags[:-1]} instead of {answer.lineage}")
    stored = sum(answer.is_stored for answer in evidence.answers)
    unstored = sum(
        answer.outcome == "complete" and answer.kind in ("chain", "conversation") and not answer.is_stored
        for answer in evidence.answers
    )
    figures = f"{stored} acknowledged, {evidence.reads} reads and continuations, {unstored} reported as not stored"
    return Verdict("no acknowledged answer is lost", tuple(violations), figures)


def _background_answers_end(evidence: Evidence) -> Verdict:
    ends = Counter(job.statuses[-1] for job in evidence.backgrounds)
    violations = [
        f"{job.answer.id} ({job.answer.tag}): {' -> '.join(job.statuses)}"
        for job in evidence.backgrounds
        if job.statuses[-1] not in ("completed", "failed")
    ]
    return Verdict("every background answer ends", tuple(violations), _counts(ends))


def _no_false_end(evidence: Evidence) -> Verdict:
    served = _served_by_tag(evidence)
    violations = list[str]()
    for answer in evidence.answers:
        if answer.outcome == "false end":
            violations.append(f"{answer.tag} ({answer.client} to {answer.provider}): ended properly without its end")
        if answer.outcome == "complete":
            texts = [one.text for one in served.get(answer.tag, ()) if one.is_complete]
            if answer.text not in texts:
                violations.append(
                    f"{answer.tag} ({answer.client} to {answer.provider}): the client has {len(answer.text)} "
                    f"characters, the provider wrote {[len(text) for text in texts]}"
                )
    return Verdict(
        "no response ends as if complete", tuple(violations), _counts(Counter(one.outcome for one in evidence.answers))
    )


def _money_is_exact(evidence: Evidence) -> Verdict:
    served = _served_by_tag(evidence)
    violations, figures = list[str](), list[str]()
    for key in (*AMPLE_KEYS, TIGHT_KEY):
        answers = [answer for answer in evidence.answers if answer.key == key]
        ended = [answer for answer in answers if answer.outcome == "complete"]
        unbooked = [answer for answer in ended if answer.exchange in evidence.unsettled]
        violations += [
            f"{one.tag} of {key} has ended, is not booked, and its gateway was not killed"
            for one in unbooked
            if not _was_killed(evidence, one)
        ]
        others = [answer for answer in answers if answer.outcome != "complete" and answer.status != 429]
        counted = [_counted(served.get(answer.tag, ())) for answer in ended if answer not in unbooked]
        rows = [row for row in evidence.ledger if row.key == key]
        booked = sum(row.requests for row in rows)
        unsettled = sum(owner == key for owner, _ in evidence.unsettled.values()) - len(unbooked)
        reached, extra = sum(answer.tag in served for answer in others), booked - len(counted)
        summary = (
            f"{key}: {len(ended)} ended ({len(unbooked)} of them in a killed gateway), {booked} booked; "
            f"{len(others)} failed ({reached} after they were sent), {unsettled} of them unsettled"
        )
        figures.append(summary)
        if not 0 <= extra <= len(others) or not reached <= extra + unsettled <= len(others):
            violations.append(summary)
        for unit, expected, actual, allowance in (
            ("input tokens", sum(one.input_tokens for one in counted), sum(row.input_tokens for row in rows), 1),
            ("output tokens", sum(one.output_tokens for one in counted), sum(row.output_tokens for row in rows), 1),
            ("nanodollars", sum(map(_price, counted)), sum(row.nanodollars for row in rows), 1000 * OUTPUT_PRICE),
        ):
            if not expected <= actual <= expected + max(extra, 0) * _MAX_TOKENS * allowance:
                violations.append(f"{key}: {actual} {unit} are booked, the providers count {expected} ({extra} extra)")
    return Verdict("money and tokens equal the providers' count", tuple(violations), "; ".join(figures))


def _killed_keep_reservations(evidence: Evidence) -> Verdict:
    free = [
        f"a reservation of {key} is for nothing" for key, nanodollars in evidence.unsettled.values() if nanodollars <= 0
    ]
    if evidence.listed_unsettled != len(evidence.unsettled):
        free.append(f"`toolwire usage` lists {evidence.listed_unsettled} of {len(evidence.unsettled)} reservations")
    total = sum(nanodollars for _, nanodollars in evidence.unsettled.values()) / 1e9
    return Verdict(
        "killed requests keep their reservations", tuple(free), f"{len(evidence.unsettled)} unsettled, ${total:.2f}"
    )


def _budget_is_kept(evidence: Evidence) -> Verdict:
    served = _served_by_tag(evidence)
    tight = [answer for answer in evidence.answers if answer.key == TIGHT_KEY]
    costs = [_price(one) for answer in tight for one in served.get(answer.tag, ()) if one.is_complete]
    spent, most = sum(costs) / 1e9, max(costs, default=0) / 1e9
    refused = sum(answer.status == 429 for answer in tight)
    figures = f"${spent:.2f} of ${TIGHT_BUDGET:g} spent, {refused} requests refused, at most ${most:.2f} each"
    violations = [figures] if spent > TIGHT_BUDGET + GATEWAYS * most else []
    return Verdict("budgets are overspent by one request per replica at most", tuple(violations), figures)


def _no_unexpected_errors(evidence: Evidence) -> Verdict:
    statuses = Counter(answer.status for answer in evidence.answers)
    violations = [
        f"{answer.tag} ({answer.client}, {answer.kind}): {answer.status} {answer.error}"
        for answer in evidence.answers
        if answer.status not in _ALLOWED_STATUSES and not (answer.status == 429 and answer.key == TIGHT_KEY)
    ]
    violations += [
        f"{one.path}: the provider refused {one.tags[-1:]} with {one.status}"
        for one in evidence.served
        if one.status not in (0, 200)
    ]
    violations += [
        f"{name} logged an internal error" for name, log in evidence.logs.items() if _INTERNAL_ERROR.search(log)
    ]
    return Verdict("no unexpected errors", tuple(violations), _counts(statuses))


RULES: tuple[Callable[[Evidence], Verdict], ...] = (
    _every_run_ends,
    _no_program_exits,
    _no_effect_twice,
    _missing_effects_in_doubt,
    _adopted_in_time,
    _no_answer_lost,
    _background_answers_end,
    _money_is_exact,
    _killed_keep_reservations,
    _budget_is_kept,
    _no_false_end,
    _no_unexpected_errors,
)


def _served_by_tag(evidence: Evidence) -> dict[str, list[Served]]:
    """Return the requests that the providers got, by the tag of their last prompt."""
    found: dict[str, list[Served]] = {}
    for one in evidence.served:
        if one.tags:
            found.setdefault(one.tags[-1], []).append(one)
    return found


def _was_killed(evidence: Evidence, answer: Answer) -> bool:
    """Return whether the gateway of a response was killed soon after its end, before it could book it."""
    earliest = (answer.running_at or answer.ended_at) - 1
    latest = answer.ended_at + _BOOKING_SECONDS
    return any(gateway == answer.gateway and earliest < at < latest for gateway, at in evidence.kills)


def _counted(served: Sequence[Served]) -> Served:
    """Return the complete response to a request; an empty one if there is none."""
    return next((one for one in served if one.is_complete), Served((), ""))


def _price(served: Served) -> int:
    """Return the price of a response in nanodollars."""
    return 1000 * (served.input_tokens * INPUT_PRICE + served.output_tokens * OUTPUT_PRICE)


def _counts(counter: Iterable[object]) -> str:
    """Return counts as text."""
    assert isinstance(counter, Counter)
    return ", ".join(f"{name}: {count}" for name, count in sorted(counter.items(), key=str))
