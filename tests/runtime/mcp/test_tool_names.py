"""What a server's tool is called to a model."""

import re

from hypothesis import given
from hypothesis import strategies as st

from toolwire.runtime.mcp.tool_names import MAX_NAME_LENGTH, McpToolNames

LEGAL = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
# Short words of few signs, so that they meet.
word = st.one_of(st.text("ab_.", min_size=1, max_size=5), st.text(min_size=1, max_size=200))
pairs = st.lists(st.tuples(word, word), max_size=30)


def test_a_plain_name_is_the_servers_and_the_tools() -> None:
    assert McpToolNames().name_for("files", "read-text_2") == "files__read-text_2"


@given(pairs, st.lists(word, max_size=5))
def test_names_are_legal_everywhere_differ_and_lead_back(origins: list[tuple[str, str]], taken: list[str]) -> None:
    names = McpToolNames(taken)
    made = {origin: names.name_for(*origin) for origin in origins}
    assert len(set(made.values())) == len(made)
    assert not set(made.values()) & set(taken)
    for origin, name in made.items():
        assert LEGAL.fullmatch(name), name
        assert names.origin(name) == origin


@given(pairs, word, word)
def test_a_name_stays_whoever_comes_later(origins: list[tuple[str, str]], server: str, tool: str) -> None:
    names = McpToolNames()
    before = names.name_for(server, tool)
    for origin in origins:
        names.name_for(*origin)
    assert names.name_for(server, tool) == before


@given(pairs)
def test_the_same_servers_get_the_same_names_in_every_process(origins: list[tuple[str, str]]) -> None:
    first, second = McpToolNames(), McpToolNames()
    assert [first.name_for(*one) for one in origins] == [second.name_for(*one) for one in origins]


def test_a_long_name_is_cut_and_ends_with_a_hash() -> None:
    names = McpToolNames()
    one, other = names.name_for("server", "t" * 100 + "1"), names.name_for("server", "t" * 100 + "2")
    assert len(one) == len(other) == MAX_NAME_LENGTH
    assert one != other
    assert one[:50] == other[:50] == "server__" + "t" * 42


def test_a_changed_name_never_takes_the_place_of_a_plain_one() -> None:
    names = McpToolNames()
    assert names.name_for("a", "b.c") != names.name_for("a", "b_c")
    assert names.origin("a__b_c") == ("a", "b_c")


def test_a_clients_own_tool_keeps_its_name_and_the_other_gets_the_suffix() -> None:
    name = McpToolNames(["files__read"]).name_for("files", "read")
    assert re.fullmatch(r"files__read_[0-9a-f]{8}", name)


def test_a_server_can_not_choose_a_name_that_is_anothers() -> None:
    honest = McpToolNames().name_for("bank", "pay.now")
    names = McpToolNames()
    assert names.name_for("bank", "pay.now") == honest
    assert names.name_for("bank__pay_now"[:4], honest.removeprefix("bank__")) != honest


def test_there_is_a_name_left_when_all_the_hashes_are_taken() -> None:
    taken: list[str] = []
    for _ in range(70):
        taken.append(McpToolNames(taken).name_for("a", "b"))
    assert len(set(taken)) == 70
    assert all(LEGAL.fullmatch(one) for one in taken)
