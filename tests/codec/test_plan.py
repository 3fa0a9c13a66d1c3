"""What holds for a whole encoding: ids and names as the target takes them, and at home as they are."""

import re

import pytest

from toolwire.canonical.content import Text, ToolCall
from toolwire.codec.ids import is_made, made_id
from toolwire.codec.interface import Target, ToolName
from toolwire.codec.losses import Report
from toolwire.codec.plan import Plan, Rules
from toolwire.codec.tools import NameRules
from toolwire.codec.turns import Placed

RULES = Rules(
    ids=re.compile(r"[a-z0-9_]+"), id_limit=40, names=NameRules(re.compile(r"[a-z_0-9]+"), 32), freeform=False
)
TRAIL = ("messages", 4, "parts", 2)


def plan(*, home: bool = False, issued_ids: bool = False, answering: bool = False) -> Plan:
    return Plan(RULES, Report(), Target(issued_ids=issued_ids), home=home, answering=answering)


@pytest.mark.parametrize(
    ("home", "issued", "sent"), [(False, False, "twx_a_3a_1"), (True, False, "a:1"), (False, True, "a:1")]
)
def test_ids_are_made_legal_only_for_others(home: bool, issued: bool, sent: str) -> None:
    chosen = plan(home=home, issued_ids=issued)
    assert chosen.call_id("a:1") == sent
    assert chosen.id_of(Placed(ToolCall(id="a:1", name="f", arguments="{}"), TRAIL)) == sent


@pytest.mark.parametrize(
    ("id", "home", "made"), [(None, False, True), ("", False, True), (None, True, True), ("", True, False)]
)
def test_a_missing_id_is_made_from_its_place(id: str | None, home: bool, made: bool) -> None:
    found = plan(home=home).id_of(Placed(ToolCall(id=id, name="f", arguments="{}"), TRAIL))
    assert is_made(found) == made
    assert found == (made_id("f", "{}", 4, 2) if made else "")


def test_only_a_call_has_an_id() -> None:
    with pytest.raises(TypeError, match="Text is no call"):
        plan().id_of(Placed(Text(text="a"), TRAIL))


def test_names_are_aliased_only_for_others() -> None:
    away, home = plan(), plan(home=True)
    assert home.name("a.b", "n") == "a.b"
    assert home.tools.undo.names == {}
    assert plan(answering=True).name("a.b") == "a.b"
    assert plan(answering=True).name("f", "n") == "n__f"
    alias = away.name("f", "n")
    assert alias == "n__f"
    assert away.tools.undo.names == {alias: ToolName("f", "n")}
