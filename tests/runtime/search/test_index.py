"""The index: words and patterns find tools, and nothing that is asked or described can break it."""

import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.search.catalog import catalog
from tests.loops import some
from toolwire.runtime.search.index import Entry, Index, SearchFault
from toolwire.runtime.search.words import asked, words_of

TOOLS = [
    Entry("github_create_issue", "Opens an issue in a repository."),
    Entry("github_list_issues", "Lists the issues of a repository."),
    Entry("getUserHTTPStatus", "Says whether somebody is online."),
    Entry("slack-send.message", "Posts to a channel.", {"properties": {"channel": {"description": "Which room"}}}),
    Entry("invoices_void", "Voids an invoice."),
    Entry("weather_forecast", "Tells tomorrow's temperature.", {"properties": {"postcode": {"type": "string"}}}),
]


@pytest.fixture(scope="module")
def index() -> Index:
    return Index(TOOLS)


@pytest.mark.parametrize("name", ["getUserHTTPStatus", "get_user-http.status", "Get user HTTP status"])
def test_a_name_is_cut_into_its_words_however_it_is_written(name: str) -> None:
    assert words_of(name) == ["get", "user", "http", "status"]


@pytest.mark.parametrize(
    ("query", "tool"),
    [
        ("create issue", "github_create_issue"),
        ("creating issues", "github_create_issue"),
        ("report a bug, I mean add one", "github_create_issue"),
        ("all defects of the repo", "github_list_issues"),
        ("http status", "getUserHTTPStatus"),
        ("forec", "weather_forecast"),
        ("postcode", "weather_forecast"),
        ("which room", "slack-send.message"),
        ("hand over a msg", "slack-send.message"),
        ("cancel my bill", "invoices_void"),
    ],
)
def test_words_find_the_tool_by_name_description_arguments_and_meaning(index: Index, query: str, tool: str) -> None:
    assert index.ranked(query, 1) == [tool]


def test_words_that_nothing_has_find_nothing(index: Index) -> None:
    assert index.ranked("zygote", 5) == []
    assert index.ranked("", 5) == []


def test_a_pattern_finds_names_descriptions_and_arguments(index: Index) -> None:
    assert index.matching("^github_", 5) == ["github_create_issue", "github_list_issues"]
    assert index.matching("(?i)which ROOM", 5) == ["slack-send.message"]
    assert index.matching("post(code|man)", 5) == ["weather_forecast"]
    assert index.matching("^github_", 1) == ["github_create_issue"]


@pytest.mark.parametrize(
    ("pattern", "said"), [("(", "missing )"), ("(?=a)", "invalid perl operator"), ("a" * 201, "200 characters")]
)
def test_a_pattern_that_cannot_be_read_is_refused(index: Index, pattern: str, said: str) -> None:
    with pytest.raises(SearchFault, match=re.escape(said)) as fault:
        index.matching(pattern, 5)
    assert fault.value.kind == "invalid_tool_input"


def test_what_may_not_be_used_is_not_found_and_takes_no_place(index: Index) -> None:
    def usable(name: str) -> bool:
        return name != "github_create_issue"

    assert index.ranked("create issue", 1, usable) == ["github_list_issues"]
    assert index.matching("issue", 1, usable) == ["github_list_issues"]


@given(st.text(max_size=500))
def test_no_question_breaks_it(query: str) -> None:
    assert len(Index(TOOLS).ranked(query, 3)) <= 3


@given(st.text(max_size=200))
def test_a_pattern_is_read_or_refused(pattern: str) -> None:
    with suppress(SearchFault):
        assert len(Index(TOOLS).matching(pattern, 3)) <= 3


def test_a_question_without_end_is_refused(index: Index) -> None:
    with pytest.raises(SearchFault, match="500 characters"):
        index.ranked("a" * 501, 3)


@pytest.mark.parametrize(
    "query", ['"', "name: x", "a AND", "NEAR(a b)", "a*", "(a", "-", "^a", "\0", "issue\0", "\ud800"]
)
def test_the_words_of_the_database_mean_nothing_in_a_question(index: Index, query: str) -> None:
    assert index.ranked(query + " invoice", 1) == ["invoices_void"]


@given(name=st.text(max_size=80), description=st.text(max_size=200))
def test_no_description_breaks_it(name: str, description: str) -> None:
    index = Index([Entry(name, description), Entry("invoices_void")])
    assert "invoices_void" in index.ranked("invoices_void", 2)
    assert "invoices_void" in index.matching("invoices_void", 2)


def test_schemas_without_end_are_read_in_bounds() -> None:
    around: dict[str, Any] = {"type": "object"}
    around["properties"] = {"itself": around}
    wide = {"properties": {f"p{number}": {"description": "d" * 5000} for number in range(50_000)}}
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"properties": {"inner": deep}, "items": deep}
    index = Index(
        [Entry("around", "", around), Entry("wide", "", wide), Entry("deep", "", deep), Entry("told", "x" * 10**7)]
    )
    assert index.matching("^around\n", 5) == ["around"]
    assert index.ranked("inner", 5) == ["deep"]
    # Taken apart level by level: the interpreter itself would do it recursively.
    while deep:
        deep = deep.pop("properties")["inner"] if deep.pop("items", None) is not None else {}


def test_a_pattern_that_explodes_elsewhere_takes_no_time() -> None:
    index = Index([Entry("a" * 3000)])
    assert index.matching("^(a+)+$b", 5) == []


TELLING = [
    "^Lists", "^github", "room$", "^room", r"\Agithub_l", r"\Achannel", r"room\z", r"channel\z",
    "(?-m)^channel", "(?-m)^slack",
    "(?-m)room$", r"temperature\.\s+postcode", r"postcode\s", r"\.\sgithub", "(?s)room.*invoices", "(?s)slack.*room",
    "[^x]{400}", r"\Bgithub", r"\bvoid\b", r"\QVoids an\E", r"\Q\A", r"\\A", r"(?i)ONLINE\.$",
    "nothing at all", "", "^$",
]  # fmt: skip


@pytest.mark.parametrize("pattern", TELLING)
def test_looking_at_many_at_once_finds_what_looking_at_each_does(index: Index, pattern: str) -> None:
    alone = [entry.name for entry in TOOLS if Index([entry]).matching(pattern, 1)]
    assert index.matching(pattern, 99) == alone
    assert Index(TOOLS * 40).matching(pattern, 999) == alone * 40


def test_a_name_a_description_and_an_argument_are_lines_of_their_own(index: Index) -> None:
    assert index.matching("_issue$", 5) == ["github_create_issue"]
    assert index.matching("^channel$", 5) == ["slack-send.message"]
    assert index.matching("^Voids", 5) == ["invoices_void"]


def test_a_pattern_that_takes_too_long_is_given_up() -> None:
    entries, _ = catalog()
    index = Index(entries)
    index.make()
    begun = time.thread_time()
    with pytest.raises(SearchFault, match="takes too long") as fault:
        index.matching("(.{1,30}a){1,20}Q", 5)
    assert fault.value.kind == "execution_time_exceeded"
    assert time.thread_time() - begun < 0.3


def test_many_threads_may_ask_it_at_once() -> None:
    entries, questions = catalog(500)
    index, asked = Index(entries), questions[:200]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda one: index.ranked(one.text, 5), asked))
    assert found == [index.ranked(one.text, 5) for one in asked]


def test_the_question_is_what_it_is_about() -> None:
    assert asked("Could you please get rid of the timetable for me?", 9) == (["timetable"], ["delete", "schedule"])
    assert asked("to be or not", 9) == (["not"], [])
    assert asked("the", 9) == (["the"], [])


def test_the_right_tool_is_among_the_first_five_of_thousands() -> None:
    entries, questions = catalog()
    assert len(entries) == len({entry.name for entry in entries}) == 5_000
    index = Index(entries)
    sample = questions[::10]
    right = sum(question.tool in index.ranked(question.text, 5) for question in sample)
    assert right / len(sample) >= 0.95


def test_questions_are_no_copies_of_descriptions() -> None:
    entries, questions = catalog()
    for entry, question in some(zip(entries, questions, strict=True)):
        assert question.text not in entry.description
        shared = set(words_of(question.text)) & set(words_of(entry.description))
        assert len(shared) < len(set(words_of(question.text)))
