"""Names of MCP tools for models."""

import re

from hypothesis import given
from hypothesis import strategies as st

from toolwire.runtime.mcp.toolset import MAX_NAME_LENGTH, McpToolNames

LEGAL = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
# Short words of few signs, so that they meet.
word = st.one_of(st.text("ab_.", min_size=1, max_size=5), st.text(min_size=1, max_size=200))
pairs = st.lists(st.tuples(word, word), max_size=30)


def test_plain_name_joins_server_and_tool() -> None:
    assert McpToolNames().name_for("files", "read-text_2") == "files__read-text_2"


@given(pairs, st.lists(word, max_size=5))
def test_names_are_valid_unique_and_reversible(origins: list[tuple[str, str]], taken: list[str]) -> None:
    names = McpToolNames(taken)
    made = {origin: names.name_for(*origin) for origin in origins}
    assert len(set(made.values())) == len(made)
    assert not set(made.values()) & set(taken)
    for origin, name in made.items():
        assert LEGAL.fullmatch(name), name
        assert names.origin(name) == origin


@given(pairs, word, word)
def test_name_is_stable_when_tools_are_added(origins: list[tuple[str, str]], server: str, tool: str) -> None:
    names = McpToolNames()
    before = names.name_for(server, tool)
    for origin in origins:
        names.name_for(*origin)
    assert names.name_for(server, tool) == before


@given(pairs)
def test_names_are_the_same_in_every_process(origins: list[tuple[str, str]]) -> None:
    first, second = McpToolNames(), McpToolNames()
    assert [first.name_for(*one) for one in origins] == [second.name_for(*one) for one in origins]


def test_long_name_ends_with_a_hash() -> None:
    names = McpToolNames()
    one, other = names.name_for("server", "t" * 100 + "1"), names.name_for("server", "t" * 100 + "2")
    assert len(one) == len(other) == MAX_NAME_LENGTH
    assert one != other
    assert one[:50] == other[:50] == "server__" + "t" * 42


def test_changed_name_never_equals_a_plain_one() -> None:
    names = McpToolNames()
    assert names.name_for("a", "b.c") != names.name_for("a", "b_c")
    assert names.origin("a__b_c") == ("a", "b_c")


def test_reserved_name_gets_a_suffix() -> None:
    name = McpToolNames(["files__read"]).name_for("files", "read")
    assert re.fullmatch(r"files__read_[0-9a-f]{8}", name)


def test_server_cannot_forge_another_servers_name() -> None:
    honest = McpToolNames().name_for("bank", "pay.now")
    names = McpToolNames()
    assert names.name_for("bank", "pay.now") == honest
    assert names.name_for("bank__pay_now"[:4], honest.removeprefix("bank__")) != honest


def test_name_exists_when_all_hashes_are_used() -> None:
    taken: list[str] = []
    for _ in range(70):
        taken.append(McpToolNames(taken).name_for("a", "b"))
    assert len(set(taken)) == 70
    assert all(LEGAL.fullmatch(one) for one in taken)
