"""All dialects by name, and the choice of those to look for."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import chain
from operator import attrgetter

from msgspec import Struct

from toolwire.translation.stages.tool_call_parsers import (
    anthropic_invoke,
    apertus,
    deepseek_v3,
    gemma4,
    glm,
    harmony,
    hermes,
    json_bare,
    kimi_k2,
    kimi_k3,
    llama3_json,
    minimax_m3,
    mistral,
    pythonic,
    qwen3_coder,
    step3,
)
from toolwire.translation.stages.tool_call_parsers.dialect import Dialect
from toolwire.translation.stages.tool_call_parsers.marks import MarkFinder
from toolwire.translation.stages.tool_call_parsers.reasoning import (
    ANSWER_MARKS,
    OPEN_REASONING,
    REASONING_MARKS,
    TURN_ENDS,
    AnswerMarks,
    ReasoningMarks,
)

_MODULES = (
    qwen3_coder,
    hermes,
    glm,
    anthropic_invoke,
    step3,
    kimi_k2,
    kimi_k3,
    deepseek_v3,
    mistral,
    llama3_json,
    pythonic,
    gemma4,
    harmony,
    minimax_m3,
    apertus,
    json_bare,
)
DIALECTS: Mapping[str, Dialect] = {dialect.name: dialect for module in _MODULES for dialect in module.DIALECTS}
_REASONING_PARSERS = {**REASONING_MARKS, **OPEN_REASONING}
_INTERLEAVED_MODELS = ("minimax", "kimi")


def hinted_dialect(model: str | None) -> Dialect | None:
    """Return the dialect that a model of this name is known to write; None if it is not known."""
    name = (model or "").lower()
    hints = [(len(part), dialect) for dialect in DIALECTS.values() for part in dialect.models if part in name]
    return max(hints, key=lambda hint: hint[0])[1] if hints else None


class Vocabulary(Struct, frozen=True, gc=False):
    """The marks to look for, and what each of them means."""

    finder: MarkFinder  # of all marks in text
    start_finder: MarkFinder  # of marks that begin with a letter, which count only at the beginning of text
    calls: dict[str, tuple[Dialect, ...]]  # by the mark that opens them
    bare: tuple[Dialect, ...]
    closers_after_call: frozenset[str]  # without content
    reasoning: dict[str, ReasoningMarks]  # by the mark that opens them
    stray: frozenset[str]  # marks that close reasoning which the prompt opened
    answers: dict[str, AnswerMarks]  # by the mark that opens them
    turn_ends: frozenset[str]
    interleaved: bool  # reasoning may follow text
    open_marks: ReasoningMarks | None  # of reasoning that is open from the beginning
    opening_finder: MarkFinder  # of marks that begin with a letter, and of what opens bare calls
    sorted_openers: tuple[str, ...]  # of calls, the longest first
    sorted_closers: tuple[str, ...]  # of calls, the longest first

    def may_open(self, text: str) -> bool:
        """Return whether text at the beginning of an answer may begin with a mark, or with a call without marks."""
        text = text.lstrip()
        return not text or self.opening_finder.match(text) is not None

    def reasoning_finder(self, marks: ReasoningMarks) -> MarkFinder:
        """Return the finder of marks that count inside reasoning: its end, calls, and the end of the turn."""
        return _reasoning_finder(frozenset({marks.closer, *self.sorted_openers, *self.turn_ends}))


_reasoning_finder = lru_cache(maxsize=256)(MarkFinder)


@lru_cache(maxsize=256)
def vocabulary(calls: str, reasoning: str, hint: str | None, *, interleaved: bool) -> Vocabulary:
    """Return the marks to look for.

    Args:
        calls: `auto`, `off` or the name of a dialect.
        reasoning: `auto`, `off` or the name of a reasoning parser.
        hint: The dialect that the model is known to write, which is tried first.
        interleaved: Reasoning may follow text.

    """
    dialects = _chosen_dialects(calls, hint)
    open_marks = OPEN_REASONING.get(reasoning)
    formats = _chosen_reasoning(reasoning)
    by_opener = _dialects_by_opener(dialects)
    is_on = bool(dialects or formats)
    answers = {mark: marks for marks in ANSWER_MARKS for mark in marks.openers} if is_on else {}
    answer_closers = _marks(marks.closers for marks in answers.values())
    call_closers = _marks(dialect.closers for dialect in dialects)
    by_reasoning = {mark: marks for marks in formats for mark in marks.openers}
    stray = frozenset(marks.closer for marks in formats if marks.stray)
    turn_ends = frozenset(TURN_ENDS if is_on else ())
    marks = {*by_opener, *by_reasoning, *answers, *answer_closers, *call_closers, *stray, *turn_ends}
    starters = {mark for mark in marks if mark[0].isalpha()} - _marks(dialect.openers for dialect in dialects)
    bare = tuple(filter(attrgetter("bare"), dialects))
    return Vocabulary(
        finder=MarkFinder(marks - starters, whole_words=True),
        start_finder=MarkFinder(starters),
        calls=by_opener,
        bare=bare,
        closers_after_call=call_closers | answer_closers,
        reasoning=by_reasoning,
        stray=stray,
        answers=answers,
        turn_ends=turn_ends,
        interleaved=interleaved,
        open_marks=open_marks,
        opening_finder=MarkFinder(starters | _marks(dialect.openers for dialect in bare)),
        sorted_openers=tuple(sorted(by_opener.keys() - starters, key=len, reverse=True)),
        sorted_closers=tuple(sorted(call_closers, key=len, reverse=True)),
    )


def _dialects_by_opener(dialects: list[Dialect]) -> dict[str, tuple[Dialect, ...]]:
    """Return the dialects that each mark may open."""
    by_opener: dict[str, tuple[Dialect, ...]] = {}
    for dialect in dialects:
        for opener in () if dialect.bare else (*dialect.openers, *dialect.starters):
            by_opener[opener] = (*by_opener.get(opener, ()), dialect)
    return by_opener


def _marks(groups: Iterable[tuple[str, ...]]) -> frozenset[str]:
    """Return all marks of several groups."""
    return frozenset(chain.from_iterable(groups))


def _chosen_dialects(calls: str, hint: str | None) -> list[Dialect]:
    """Return the dialects to look for, the one that the model is known to write first."""
    if calls == "off":
        return []
    if calls == "auto":
        return sorted(DIALECTS.values(), key=lambda dialect: dialect.name != hint)
    return [DIALECTS[calls]]


def _chosen_reasoning(reasoning: str) -> list[ReasoningMarks]:
    """Return the marks of reasoning to look for."""
    if reasoning == "off":
        return []
    if reasoning == "auto":
        return list(REASONING_MARKS.values())
    return [OPEN_REASONING.get(reasoning) or REASONING_MARKS[reasoning]]


@lru_cache(maxsize=1024)
def model_vocabulary(calls: str, reasoning: str, model: str | None) -> Vocabulary:
    """Return the marks to look for in text of a model."""
    hint = hinted_dialect(model)
    return vocabulary(calls, reasoning, None if hint is None else hint.name, interleaved=interleaves_reasoning(model))


def interleaves_reasoning(model: str | None) -> bool:
    """Return whether models of this name reason between texts and calls, not only at the beginning."""
    return any(part in (model or "").lower() for part in _INTERLEAVED_MODELS)


def check_parser_names(tool_calls: str, reasoning: str) -> None:
    """Raise `ValueError` if a parser is neither `auto`, `off` nor the name of one."""
    for setting, name, known in (
        ("tool_call_parser", tool_calls, DIALECTS),
        ("reasoning_parser", reasoning, _REASONING_PARSERS),
    ):
        if name not in ("auto", "off", *known):
            raise ValueError(f"unknown {setting} {name!r}; expected auto, off, {', '.join(sorted(known))}")
