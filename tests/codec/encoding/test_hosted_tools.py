"""Hosted tools: what a declaration means, and what becomes of it at a target that has the tool, or lacks it."""

import json
import re
from typing import Any

import pytest
from msgspec import Raw

from toolwire.canonical.content import Message, Text
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool, NativeTool, ToolChoice, ToolRef
from toolwire.codec.encoding.hosted_tools import (
    HostedToolNames,
    chosen_native_tool,
    decode_hosted_tool,
    encode_hosted_options,
    has_native,
    report_missing_native,
    substitute_functions,
)
from toolwire.codec.encoding.plan import EncodingPlan, IdAndNameRules
from toolwire.codec.encoding.tools import LocatedTool, NameRules
from toolwire.codec.interface import OriginalTool, Target
from toolwire.codec.losses import LossReport

ACME = HostedToolNames(
    family="acme",
    names={"web_search": ("search", "old_search"), "web_fetch": ("fetch",), "code_execution": ("code",)},
    option_pointers={"web_search": {"max_uses": "limits/uses", "allowed_domains": "domains", "location": "where"}},
)
BARE = HostedToolNames(family="bare", names={"web_search": ("find",)}, option_pointers={})
RULES = IdAndNameRules(
    id_pattern=re.compile("[a-z]+"), id_limit=9, names=NameRules(re.compile(r"[a-zA-Z0-9_-]+"), 64), freeform=False
)


def native(body: Any = None, kind: str = "search", name: str | None = None) -> NativeTool:
    raw = Raw(json.dumps({} if body is None else body).encode())
    return NativeTool(protocol="acme", kind=kind, name=name, body=raw, hosted=decode_hosted_tool(kind, raw, ACME))


def planned(policy: Any = "drop", request: Request | None = None) -> EncodingPlan:
    plan = EncodingPlan(RULES, LossReport(), Target(hosted_tools=policy), same_protocol=False)
    plan.request = request
    return plan


def losses(plan: EncodingPlan, tool: NativeTool) -> list[tuple[str, str, bool]]:
    found = plan.report.resolve(Request(origin="acme", tools=(tool,)), {})
    return [(loss.kind, loss.path, loss.constraint) for loss in found]


def test_a_declaration_is_read_by_its_spelling() -> None:
    body = {"type": "old_search", "limits": {"uses": 2, "time": 9}, "domains": ["a"], "where": {"city": "Oslo"}, "x": 1}
    hosted = native(body, "old_search").hosted
    assert hosted is not None
    assert (hosted.kind, hosted.max_uses, hosted.allowed_domains) == ("web_search", 2, ("a",))
    assert json.loads(bytes(hosted.location or b"null")) == {"city": "Oslo"}
    assert hosted.others == ("limits/time", "x")


@pytest.mark.parametrize(("kind", "body"), [("shell", {}), ("search", []), ("search", None)])
def test_what_nobody_else_has_or_can_read_has_no_common_meaning(kind: str, body: Any) -> None:
    assert decode_hosted_tool(kind, Raw(json.dumps(body).encode()), ACME) is None


def test_a_bound_of_another_type_is_left_to_its_vendor() -> None:
    hosted = native({"limits": {"uses": "many"}, "domains": None}).hosted
    assert hosted is not None
    assert (hosted.max_uses, hosted.allowed_domains, hosted.others) == (None, None, ("limits/uses",))


def test_bounds_go_where_the_target_has_them() -> None:
    tool, plan = native({"limits": {"uses": 2}, "domains": ["a"]}), planned()
    assert encode_hosted_options(tool, ("tools", 0), ACME, plan) == {"limits": {"uses": 2}, "domains": ("a",)}
    assert losses(plan, tool) == []


def test_a_bound_that_the_target_lacks_is_reported_and_a_filter_refused() -> None:
    tool, plan = native({"limits": {"uses": 2}, "domains": ["a", "b"], "x": {"y": 1}}), planned()
    assert encode_hosted_options(tool, ("tools", 0), BARE, plan) == {}
    assert losses(plan, tool) == [
        ("dropped", "/tools/0/limits/uses", False),
        ("dropped", "/tools/0/domains/0", True),
        ("dropped", "/tools/0/domains/1", True),
        ("dropped", "/tools/0/x", False),
    ]


def test_an_empty_filter_bounds_nothing() -> None:
    tool, plan = native({"domains": []}), planned()
    encode_hosted_options(tool, ("tools", 0), BARE, plan)
    assert losses(plan, tool) == [("dropped", "/tools/0/domains", False)]


@pytest.mark.parametrize(("kind", "expected"), [("search", True), ("code", False), ("shell", False)])
def test_what_a_target_has_itself(kind: str, expected: bool) -> None:
    assert has_native(native(kind=kind), BARE) is expected


@pytest.mark.parametrize(
    ("kind", "body", "policy", "guarded"),
    [
        ("search", {}, "drop", False),
        ("search", {}, "refuse", True),
        ("code", {}, "function", False),
        # What is not offered can't run unbounded.
        ("search", {"domains": ["a"]}, "drop", False),
        ("mcp", {"require_approval": "never"}, "drop", False),
        ("mcp", {"require_approval": None}, "drop", False),
    ],
)
def test_without_native(*, kind: str, body: Any, policy: str, guarded: bool) -> None:
    tool, plan = native(body, kind), planned(policy)
    report_missing_native(LocatedTool(tool, ("tools", 0)), plan)
    assert losses(plan, tool) == [("dropped", "/tools/0", guarded)]


@pytest.mark.parametrize("asked", ["always", {"always": {"tool_names": ["x"]}}])
def test_an_approval_that_nobody_is_asked_for_is_refused_by_its_own_name(asked: Any) -> None:
    tool, plan = native({"require_approval": asked}, "mcp"), planned()
    report_missing_native(LocatedTool(tool, ("tools", 0)), plan)
    assert losses(plan, tool) == [("dropped", "/tools/0", False), ("dropped", "/tools/0/require_approval", True)]


@pytest.mark.parametrize(
    ("kind", "made", "parameter"),
    [
        ("search", "google_web_search", "query"),
        ("old_search", "google_web_search", "query"),
        ("fetch", "web_fetch", "prompt"),
    ],
)
def test_functions_that_the_client_runs(kind: str, made: str, parameter: str) -> None:
    tool, plan = native(kind=kind), planned("function")
    (function,) = substitute_functions(Request(origin="acme", tools=(tool,)), plan).tools or ()
    assert isinstance(function, FunctionTool)
    assert function.name == made
    schema = json.loads(bytes(function.parameters or b"{}"))
    assert ([*schema["properties"]], schema["required"]) == ([parameter], [parameter])
    assert losses(plan, tool) == [("approximated", "/tools/0", False)]


@pytest.mark.parametrize(
    ("body", "kind", "policy", "spelling"),
    [({}, "code", "function", None), ({}, "search", "drop", None), ({}, "code", "function", ACME)],
)
def test_what_no_function_can_do_or_nobody_asked_for_stays(body: Any, kind: str, policy: str, spelling: Any) -> None:
    tool, plan = native(body, kind), planned(policy)
    assert substitute_functions(Request(origin="acme", tools=(tool,)), plan, spelling).tools == (tool,)
    assert losses(plan, tool) == []


def test_a_filter_that_a_function_would_lose_is_refused() -> None:
    tool, plan = native({"domains": ["a"]}), planned("function")
    substitute_functions(Request(origin="acme", tools=(tool,)), plan)
    assert losses(plan, tool) == [("dropped", "/tools/0", True)]


def test_a_function_in_place_of_a_tool_keeps_the_name_that_calls_have() -> None:
    plan = planned("function")
    substitute_functions(Request(origin="acme", tools=(native(),)), plan)
    assert plan.tool_name("web_search") == "google_web_search"
    assert plan.tools.mapping.tools == {"google_web_search": OriginalTool("web_search")}


SEARCH = native(name="look_up")
FUNCTION = FunctionTool(name="f")
NAMED = ToolChoice(mode="named", names=(ToolRef(name="look_up"),))


@pytest.mark.parametrize(
    ("tools", "choice", "refused"),
    [
        ((SEARCH, FUNCTION), None, False),
        ((SEARCH, FUNCTION), ToolChoice(mode="required"), False),
        ((SEARCH, FUNCTION), NAMED, True),
        ((SEARCH, FUNCTION), ToolChoice(mode="allowed", names=NAMED.names, required=True), True),
        ((SEARCH, FUNCTION), ToolChoice(mode="allowed", names=NAMED.names), False),
        ((SEARCH, FUNCTION), ToolChoice(mode="named", names=(ToolRef(name="f"),)), False),
        ((SEARCH, FUNCTION), ToolChoice(mode="named", names=(ToolRef(name="search_2025", kind="native"),)), True),
        ((SEARCH,), ToolChoice(mode="required"), True),
        ((SEARCH,), ToolChoice(mode="auto"), True),
        ((SEARCH,), None, True),
        ((SEARCH,), ToolChoice(mode="none"), False),
        ((SEARCH, native(kind="fetch")), None, False),
    ],
)
def test_a_tool_that_must_be_called_or_is_alone_is_refused_by_name(
    tools: Any, choice: ToolChoice | None, refused: bool
) -> None:
    request = Request(origin="acme", messages=(Message("user", (Text("Go"),)),), tools=tools, tool_choice=choice)
    plan = planned(request=request)
    report_missing_native(LocatedTool(SEARCH, ("tools", 0)), plan)
    (loss,) = plan.report.resolve(request, {})
    assert loss.constraint is refused
    assert "search" in loss.reason


def test_a_function_of_the_same_name_is_what_is_chosen() -> None:
    request = Request(origin="acme", tools=(SEARCH, FunctionTool(name="look_up")), tool_choice=NAMED)
    assert chosen_native_tool(request) is None
