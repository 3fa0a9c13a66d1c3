"""Encoding plans: ids and names legal for the target, and unchanged within the same protocol."""

import re

import pytest

from toolwire.canonical.content import Text, ToolCall
from toolwire.codec.encoding.plan import EncodingPlan, IdAndNameRules
from toolwire.codec.encoding.tools import NameRules
from toolwire.codec.encoding.turns import LocatedPart, derive_call_id, is_derived_id
from toolwire.codec.interface import OriginalTool, Target
from toolwire.codec.losses import LossReport

RULES = IdAndNameRules(
    id_pattern=re.compile(r"[a-z0-9_]+"), id_limit=40, names=NameRules(re.compile(r"[a-z_0-9]+"), 32), freeform=False
)
PATH = ("messages", 4, "parts", 2)


def plan(*, same_protocol: bool = False, issued_ids: bool = False, for_client: bool = False) -> EncodingPlan:
    target = Target(issued_ids=issued_ids)
    return EncodingPlan(RULES, LossReport(), target, same_protocol=same_protocol, for_client=for_client)


@pytest.mark.parametrize(
    ("same_protocol", "issued", "sent"), [(False, False, "twx_a_3a_1"), (True, False, "a:1"), (False, True, "a:1")]
)
def test_ids_are_escaped_only_for_other_protocols(same_protocol: bool, issued: bool, sent: str) -> None:
    encoding_plan = plan(same_protocol=same_protocol, issued_ids=issued)
    assert encoding_plan.call_id("a:1") == sent
    assert encoding_plan.id_of(LocatedPart(ToolCall(id="a:1", name="f", arguments="{}"), PATH)) == sent


@pytest.mark.parametrize(
    ("id", "same_protocol", "derived"), [(None, False, True), ("", False, True), (None, True, True), ("", True, False)]
)
def test_missing_id_is_derived_from_its_position(id: str | None, same_protocol: bool, derived: bool) -> None:
    call_id = plan(same_protocol=same_protocol).id_of(LocatedPart(ToolCall(id=id, name="f", arguments="{}"), PATH))
    assert is_derived_id(call_id) == derived
    assert call_id == (derive_call_id("f", "{}", 4, 2) if derived else "")


def test_id_of_requires_a_tool_call() -> None:
    with pytest.raises(TypeError, match="Text is not a tool call"):
        plan().id_of(LocatedPart(Text(text="a"), PATH))


def test_names_are_aliased_only_for_other_protocols() -> None:
    other, same = plan(), plan(same_protocol=True)
    assert same.tool_name("a.b", "n") == "a.b"
    assert same.tools.mapping.tools == {}
    assert plan(for_client=True).tool_name("a.b") == "a.b"
    assert plan(for_client=True).tool_name("f", "n") == "n__f"
    alias = other.tool_name("f", "n")
    assert alias == "n__f"
    assert other.tools.mapping.tools == {alias: OriginalTool("f", "n")}
