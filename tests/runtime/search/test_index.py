"""The tool index: word and pattern search, with hostile queries and descriptions."""

import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.search.catalog import catalog
from tests.support.assertions import non_empty
from tests.support.deadlines import DEADLINE
from toolwire.runtime.search.index import IndexedTool, SearchError, ToolIndex
from toolwire.runtime.search.ranking import Weights
from toolwire.runtime.search.words import split_words, stem

TOOLS = [
    IndexedTool("github_create_issue", "Opens an issue in a repository."),
    IndexedTool("github_list_issues", "Lists the issues of a repository."),
    IndexedTool("getUserHTTPStatus", "Says whether somebody is online."),
    IndexedTool(
        "slack-send.message", "Posts to a channel.", {"properties": {"channel": {"description": "Which room"}}}
    ),
    IndexedTool("invoices_void", "Voids an invoice."),
    IndexedTool("weather_forecast", "Tells tomorrow's temperature.", {"properties": {"postcode": {"type": "string"}}}),
]


@pytest.fixture(scope="module")
def index() -> ToolIndex:
    return ToolIndex(TOOLS)


@pytest.mark.parametrize("name", ["getUserHTTPStatus", "get_user-http.status", "Get user HTTP status"])
def test_names_are_split_into_words(name: str) -> None:
    assert split_words(name) == ["get", "user", "http", "status"]


@pytest.mark.parametrize(
    ("query", "tool"),
    [
        ("create issue", "github_create_issue"),
        ("creating issues", "github_create_issue"),
        ("list what is open in the repository", "github_list_issues"),
        ("http status", "getUserHTTPStatus"),
        ("forec", "weather_forecast"),
        ("postcode", "weather_forecast"),
        ("which room", "slack-send.message"),
        ("voided invoice", "invoices_void"),
    ],
)
def test_search_covers_names_descriptions_and_arguments(index: ToolIndex, query: str, tool: str) -> None:
    assert index.search_words(query, 1) == [tool]


def test_unknown_words_find_nothing(index: ToolIndex) -> None:
    assert index.search_words("zygote", 5) == []
    assert index.search_words("", 5) == []


def test_pattern_matches_names_descriptions_and_arguments(index: ToolIndex) -> None:
    assert index.search_pattern("^github_", 5) == ["github_create_issue", "github_list_issues"]
    assert index.search_pattern("(?i)which ROOM", 5) == ["slack-send.message"]
    assert index.search_pattern("post(code|man)", 5) == ["weather_forecast"]
    assert index.search_pattern("^github_", 1) == ["github_create_issue"]


@pytest.mark.parametrize(
    ("pattern", "expected_message"),
    [("(", "missing )"), ("(?=a)", "invalid perl operator"), ("a" * 201, "200 characters")],
)
def test_invalid_pattern_is_refused(index: ToolIndex, pattern: str, expected_message: str) -> None:
    with pytest.raises(SearchError, match=re.escape(expected_message)) as error_info:
        index.search_pattern(pattern, 5)
    assert error_info.value.kind == "invalid_tool_input"


def test_unusable_tools_are_skipped_before_the_limit(index: ToolIndex) -> None:
    def usable(name: str) -> bool:
        return name != "github_create_issue"

    assert index.search_words("create issue", 1, usable) == ["github_list_issues"]
    assert index.search_pattern("issue", 1, usable) == ["github_list_issues"]


@given(st.text(max_size=500))
def test_any_query_is_accepted(query: str) -> None:
    assert len(ToolIndex(TOOLS).search_words(query, 3)) <= 3


@given(st.text(max_size=200))
def test_any_pattern_matches_or_is_refused(pattern: str) -> None:
    with suppress(SearchError):
        assert len(ToolIndex(TOOLS).search_pattern(pattern, 3)) <= 3


def test_overlong_query_is_refused(index: ToolIndex) -> None:
    with pytest.raises(SearchError, match="10000 characters"):
        index.search_words("a" * 10_001, 3)


@pytest.mark.parametrize(
    "query", ['"', "name: x", "a AND", "NEAR(a b)", "a*", "(a", "-", "^a", "\0", "issue\0", "\ud800"]
)
def test_fts5_operators_have_no_effect_in_a_query(index: ToolIndex, query: str) -> None:
    assert index.search_words(query + " invoice", 1) == ["invoices_void"]


@given(name=st.text(max_size=80), description=st.text(max_size=200))
def test_any_description_can_be_indexed(name: str, description: str) -> None:
    index = ToolIndex([IndexedTool(name, description), IndexedTool("invoices_void")])
    assert "invoices_void" in index.search_words("invoices_void", 2)
    assert "invoices_void" in index.search_pattern("invoices_void", 2)


def test_huge_schemas_are_indexed_within_limits() -> None:
    around: dict[str, Any] = {"type": "object"}
    around["properties"] = {"itself": around}
    wide = {"properties": {f"p{number}": {"description": "d" * 5000} for number in range(50_000)}}
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"properties": {"inner": deep}, "items": deep}
    index = ToolIndex(
        [
            IndexedTool("around", "", around),
            IndexedTool("wide", "", wide),
            IndexedTool("deep", "", deep),
            IndexedTool("told", "x" * 10**7),
        ]
    )
    assert index.search_pattern("^around\n", 5) == ["around"]
    assert index.search_words("inner", 5) == ["deep"]
    # Taken apart level by level: the interpreter itself would do it recursively.
    while deep:
        deep = deep.pop("properties")["inner"] if deep.pop("items", None) is not None else {}


def test_exponential_pattern_takes_linear_time() -> None:
    index = ToolIndex([IndexedTool("a" * 3000)])
    assert index.search_pattern("^(a+)+$b", 5) == []


TELLING = [
    "^Lists", "^github", "room$", "^room", r"\Agithub_l", r"\Achannel", r"room\z", r"channel\z",
    "(?-m)^channel", "(?-m)^slack",
    "(?-m)room$", r"temperature\.\s+postcode", r"postcode\s", r"\.\sgithub", "(?s)room.*invoices", "(?s)slack.*room",
    "[^x]{400}", r"\Bgithub", r"\bvoid\b", r"\QVoids an\E", r"\Q\A", r"\\A", r"(?i)ONLINE\.$",
    "nothing at all", "", "^$",
]  # fmt: skip


@pytest.mark.parametrize("pattern", TELLING)
def test_block_search_equals_search_per_tool(index: ToolIndex, pattern: str) -> None:
    alone = [entry.name for entry in TOOLS if ToolIndex([entry]).search_pattern(pattern, 1)]
    assert index.search_pattern(pattern, 99) == alone
    assert ToolIndex(TOOLS * 40).search_pattern(pattern, 999) == alone * 40


def test_name_description_and_argument_are_separate_lines(index: ToolIndex) -> None:
    assert index.search_pattern("_issue$", 5) == ["github_create_issue"]
    assert index.search_pattern("^channel$", 5) == ["slack-send.message"]
    assert index.search_pattern("^Voids", 5) == ["invoices_void"]


def test_slow_pattern_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    entries, _ = catalog()
    index, pattern = ToolIndex(entries), "(.{1,30}a){1,20}Q"
    index.build()
    started_at = time.thread_time()
    with pytest.raises(SearchError, match="takes too long") as error_info:
        index.search_pattern(pattern, 5)
    seconds = time.thread_time() - started_at
    assert error_info.value.kind == "execution_time_exceeded"
    monkeypatch.setattr("toolwire.runtime.search.index._MAX_PATTERN_SECONDS", DEADLINE)
    started_at = time.thread_time()
    index.search_pattern(pattern, 5)
    assert seconds < time.thread_time() - started_at


def test_index_is_thread_safe() -> None:
    entries, questions = catalog(500)
    index, sample_questions = ToolIndex(entries), questions[:200]
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda one: index.search_words(one.text, 5), sample_questions))
    assert results == [index.search_words(one.text, 5) for one in sample_questions]


@pytest.mark.parametrize(
    "words",
    ["create creates created creating creation", "query queries", "stop stops stopped stopping", "class classes"],
)
def test_forms_of_a_word_have_one_stem(words: str) -> None:
    assert len({stem(word) for word in words.split()}) == 1


def test_accents_do_not_matter() -> None:
    index = ToolIndex([IndexedTool("historique", "Compte les étapes"), IndexedTool("other", "Compte")])
    assert index.search_words("ETAPES", 5) == index.search_words("étapes", 5) == ["historique"]


def test_stop_words_count_only_in_a_query_of_nothing_else() -> None:
    index = ToolIndex([IndexedTool("for", "Please do it"), IndexedTool("invoices_void")])
    assert index.search_words("please void it for me", 5) == ["invoices_void"]
    assert index.search_words("for", 5) == ["for"]
    assert index.search_words("do in", 5) == []


def test_words_at_the_end_of_a_long_query_count(index: ToolIndex) -> None:
    filler = " ".join(f"word{number}" for number in range(900))
    assert index.search_words(f"{filler} postcode", 1) == ["weather_forecast"]


def test_rare_words_count_in_a_query_of_common_ones() -> None:
    common = " ".join(f"common{number}" for number in range(200))
    index = ToolIndex([*(IndexedTool(f"tool_{number}", common) for number in range(400)), IndexedTool("a", "zebra")])
    assert index.search_words(f"{common} zebra", 1) == ["a"]


def test_names_weigh_more_than_descriptions_and_these_more_than_arguments() -> None:
    tools = [
        IndexedTool("a", "b", {"properties": {"zebra": {}}}),
        IndexedTool("c", "zebra", {"properties": {"d": {}}}),
        IndexedTool("zebra", "e", {"properties": {"f": {}}}),
    ]
    assert ToolIndex(tools).search_words("zebra", 3) == ["zebra", "c", "a"]
    assert ToolIndex(tools, Weights(arguments=9.0)).search_words("zebra", 1) == ["a"]


def test_similarities_count_as_much_as_words(index: ToolIndex) -> None:
    similarities = [0.0] * len(TOOLS)
    similarities[4] = 0.9
    assert index.search_words("zygote", 5, similarities=similarities) == ["invoices_void"]
    assert index.search_words("postcode", 5, similarities=similarities) == ["weather_forecast", "invoices_void"]


def test_sample_queries_do_not_copy_descriptions() -> None:
    entries, questions = catalog()
    for entry, question in non_empty(zip(entries, questions, strict=True)):
        assert question.text not in entry.description
        shared = set(split_words(question.text)) & set(split_words(entry.description))
        assert len(shared) < len(set(split_words(question.text)))
