"""Encoding plans: ids and names legal for the target, and unchanged within the same protocol."""

import json
import re
from typing import Any

import pytest

from toolwire.canonical.content import Text, ToolCall
from toolwire.codec.encoding.plan import EncodingPlan, IdAndNameRules
from toolwire.codec.encoding.tools import NameRules
from toolwire.codec.encoding.turns import LocatedPart, derive_call_id, is_derived_id
from toolwire.codec.hosts.registry import profile_named
from toolwire.codec.interface import OriginalTool, Route, Target
from toolwire.codec.losses import LossReport
from toolwire.protocols import PROTOCOLS

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


# ---- system text


def request_body(*system: dict[str, Any], text: str = "Hi.") -> bytes:
    message = {"role": "user", "content": [{"type": "text", "text": text}]}
    return json.dumps({"model": "m", "max_tokens": 9, "system": system, "messages": [message]}).encode()


def block(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text} | more


MARK = {"cache_control": {"type": "ephemeral"}}
SYSTEMS = [
    (block("You are an agent."), block("Answer briefly.", **MARK)),
    (block("You are an agent.", **MARK), block("Answer briefly.")),
    (block("You are an agent."), block("Answer briefly.")),
    (block("You are no agent!"), block("Answer briefly.", **MARK)),
]


@pytest.mark.parametrize("host", ["generic", "openai", "deepseek", "dashscope"])
def test_repeated_system_text_has_the_same_encoding_and_losses(host: str) -> None:
    reader, writer = PROTOCOLS["anthropic"], PROTOCOLS["openai-chat"]
    target = Target(model="m", host=profile_named(host, "openai-chat"))
    outcomes: list[list[Any]] = []
    for number in range(3):
        outcomes.append([])
        for system in SYSTEMS:
            request = reader.decode_request(request_body(*system, text=f"Question {number}."), Route())
            encoding = writer.encode_request(request, target)
            losses = encoding.report.resolve(request, reader.wire_names) if encoding.report else []
            outcomes[-1].append((encoding.body["messages"][0], losses))
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_cached_system_message_is_not_changed_through_a_request_that_got_it() -> None:
    reader, writer = PROTOCOLS["anthropic"], PROTOCOLS["openai-chat"]
    request = reader.decode_request(request_body(block("Stay the same.")), Route())
    writer.encode_request(request, Target()).body["messages"][0]["content"] = "changed"
    assert writer.encode_request(request, Target()).body["messages"][0]["content"] == "Stay the same."
