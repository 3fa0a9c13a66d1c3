"""What holds for a whole encoding: ids and names as the target takes them, and at home as they are."""

import re

import pytest

from toolwire.canonical.content import Text, ToolCall
from toolwire.codec.encoding.ids import derive_call_id, is_derived_id
from toolwire.codec.encoding.plan import EncodingPlan, IdAndNameRules
from toolwire.codec.encoding.tools import NameRules
from toolwire.codec.encoding.turns import LocatedPart
from toolwire.codec.interface import OriginalTool, Target
from toolwire.codec.losses import LossReport

RULES = IdAndNameRules(
    id_pattern=re.compile(r"[a-z0-9_]+"), id_limit=40, names=NameRules(re.compile(r"[a-z_0-9]+"), 32), freeform=False
)
TRAIL = ("messages", 4, "parts", 2)


def plan(*, home: bool = False, issued_ids: bool = False, answering: bool = False) -> EncodingPlan:
    return EncodingPlan(RULES, LossReport(), Target(issued_ids=issued_ids), same_protocol=home, for_client=answering)


@pytest.mark.parametrize(
    ("home", "issued", "sent"), [(False, False, "twx_a_3a_1"), (True, False, "a:1"), (False, True, "a:1")]
)
def test_ids_are_made_legal_only_for_others(home: bool, issued: bool, sent: str) -> None:
    chosen = plan(home=home, issued_ids=issued)
    assert chosen.call_id("a:1") == sent
    assert chosen.id_of(LocatedPart(ToolCall(id="a:1", name="f", arguments="{}"), TRAIL)) == sent


@pytest.mark.parametrize(
    ("id", "home", "made"), [(None, False, True), ("", False, True), (None, True, True), ("", True, False)]
)
def test_a_missing_id_is_made_from_its_place(id: str | None, home: bool, made: bool) -> None:
    found = plan(home=home).id_of(LocatedPart(ToolCall(id=id, name="f", arguments="{}"), TRAIL))
    assert is_derived_id(found) == made
    assert found == (derive_call_id("f", "{}", 4, 2) if made else "")


def test_only_a_call_has_an_id() -> None:
    with pytest.raises(TypeError, match="Text is not a tool call"):
        plan().id_of(LocatedPart(Text(text="a"), TRAIL))


def test_names_are_aliased_only_for_others() -> None:
    away, home = plan(), plan(home=True)
    assert home.tool_name("a.b", "n") == "a.b"
    assert home.tools.mapping.tools == {}
    assert plan(answering=True).tool_name("a.b") == "a.b"
    assert plan(answering=True).tool_name("f", "n") == "n__f"
    alias = away.tool_name("f", "n")
    assert alias == "n__f"
    assert away.tools.mapping.tools == {alias: OriginalTool("f", "n")}
