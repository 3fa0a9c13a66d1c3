"""Hosted tools: decoding of declarations, and their encoding for targets with and without the tool."""

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


def make_plan(policy: Any = "drop", request: Request | None = None) -> EncodingPlan:
    plan = EncodingPlan(RULES, LossReport(), Target(hosted_tools=policy), same_protocol=False)
    plan.request = request
    return plan


def losses(plan: EncodingPlan, tool: NativeTool) -> list[tuple[str, str, bool]]:
    resolved = plan.report.resolve(Request(origin="acme", tools=(tool,)), {})
    return [(loss.kind, loss.path, loss.constraint) for loss in resolved]


def test_declaration_is_decoded_by_its_pointers() -> None:
    body = {"type": "old_search", "limits": {"uses": 2, "time": 9}, "domains": ["a"], "where": {"city": "Oslo"}, "x": 1}
    hosted = native(body, "old_search").hosted
    assert hosted is not None
    assert (hosted.kind, hosted.max_uses, hosted.allowed_domains) == ("web_search", 2, ("a",))
    assert json.loads(bytes(hosted.location or b"null")) == {"city": "Oslo"}
    assert hosted.others == ("limits/time", "x")


@pytest.mark.parametrize(("kind", "body"), [("shell", {}), ("search", []), ("search", None)])
def test_unknown_or_malformed_declaration_is_not_hosted(kind: str, body: Any) -> None:
    assert decode_hosted_tool(kind, Raw(json.dumps(body).encode()), ACME) is None


def test_option_of_wrong_type_is_left_unread() -> None:
    hosted = native({"limits": {"uses": "many"}, "domains": None}).hosted
    assert hosted is not None
    assert (hosted.max_uses, hosted.allowed_domains, hosted.others) == (None, None, ("limits/uses",))


def test_supported_options_are_encoded() -> None:
    tool, plan = native({"limits": {"uses": 2}, "domains": ["a"]}), make_plan()
    assert encode_hosted_options(tool, ("tools", 0), ACME, plan) == {"limits": {"uses": 2}, "domains": ("a",)}
    assert losses(plan, tool) == []


def test_unsupported_option_is_reported_and_filter_refused() -> None:
    tool, plan = native({"limits": {"uses": 2}, "domains": ["a", "b"], "x": {"y": 1}}), make_plan()
    assert encode_hosted_options(tool, ("tools", 0), BARE, plan) == {}
    assert losses(plan, tool) == [
        ("dropped", "/tools/0/limits/uses", False),
        ("dropped", "/tools/0/domains/0", True),
        ("dropped", "/tools/0/domains/1", True),
        ("dropped", "/tools/0/x", False),
    ]


def test_empty_filter_is_not_a_constraint() -> None:
    tool, plan = native({"domains": []}), make_plan()
    encode_hosted_options(tool, ("tools", 0), BARE, plan)
    assert losses(plan, tool) == [("dropped", "/tools/0/domains", False)]


@pytest.mark.parametrize(("kind", "expected"), [("search", True), ("code", False), ("shell", False)])
def test_native_kinds_of_a_target(kind: str, expected: bool) -> None:
    assert has_native(native(kind=kind), BARE) is expected


@pytest.mark.parametrize(
    ("kind", "body", "policy", "constraint"),
    [
        ("search", {}, "drop", False),
        ("search", {}, "refuse", True),
        ("code", {}, "function", False),
        # A dropped tool cannot run without its filter.
        ("search", {"domains": ["a"]}, "drop", False),
        ("mcp", {"require_approval": "never"}, "drop", False),
        ("mcp", {"require_approval": None}, "drop", False),
    ],
)
def test_missing_native_tool_is_dropped_or_refused(*, kind: str, body: Any, policy: str, constraint: bool) -> None:
    tool, plan = native(body, kind), make_plan(policy)
    report_missing_native(LocatedTool(tool, ("tools", 0)), plan)
    assert losses(plan, tool) == [("dropped", "/tools/0", constraint)]


@pytest.mark.parametrize("approval", ["always", {"always": {"tool_names": ["x"]}}])
def test_dropped_approval_is_a_constraint(approval: Any) -> None:
    tool, plan = native({"require_approval": approval}, "mcp"), make_plan()
    report_missing_native(LocatedTool(tool, ("tools", 0)), plan)
    assert losses(plan, tool) == [("dropped", "/tools/0", False), ("dropped", "/tools/0/require_approval", True)]


@pytest.mark.parametrize(
    ("kind", "name", "parameter"),
    [
        ("search", "google_web_search", "query"),
        ("old_search", "google_web_search", "query"),
        ("fetch", "web_fetch", "prompt"),
    ],
)
def test_hosted_tool_becomes_a_client_function(kind: str, name: str, parameter: str) -> None:
    tool, plan = native(kind=kind), make_plan("function")
    (function,) = substitute_functions(Request(origin="acme", tools=(tool,)), plan).tools or ()
    assert isinstance(function, FunctionTool)
    assert function.name == name
    schema = json.loads(bytes(function.parameters or b"{}"))
    assert ([*schema["properties"]], schema["required"]) == ([parameter], [parameter])
    assert losses(plan, tool) == [("approximated", "/tools/0", False)]


@pytest.mark.parametrize(
    ("body", "kind", "policy", "names"),
    [({}, "code", "function", None), ({}, "search", "drop", None), ({}, "code", "function", ACME)],
)
def test_tools_without_substitute_stay(body: Any, kind: str, policy: str, names: Any) -> None:
    tool, plan = native(body, kind), make_plan(policy)
    assert substitute_functions(Request(origin="acme", tools=(tool,)), plan, names).tools == (tool,)
    assert losses(plan, tool) == []


def test_function_substitute_cannot_drop_a_filter() -> None:
    tool, plan = native({"domains": ["a"]}), make_plan("function")
    substitute_functions(Request(origin="acme", tools=(tool,)), plan)
    assert losses(plan, tool) == [("dropped", "/tools/0", True)]


def test_substituted_function_maps_back_to_its_tool() -> None:
    plan = make_plan("function")
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
def test_required_or_only_hosted_tool_is_refused(tools: Any, choice: ToolChoice | None, refused: bool) -> None:
    request = Request(origin="acme", messages=(Message("user", (Text("Go"),)),), tools=tools, tool_choice=choice)
    plan = make_plan(request=request)
    report_missing_native(LocatedTool(SEARCH, ("tools", 0)), plan)
    (loss,) = plan.report.resolve(request, {})
    assert loss.constraint is refused
    assert "search" in loss.reason


def test_function_of_the_same_name_takes_precedence() -> None:
    request = Request(origin="acme", tools=(SEARCH, FunctionTool(name="look_up")), tool_choice=NAMED)
    assert chosen_native_tool(request) is None
