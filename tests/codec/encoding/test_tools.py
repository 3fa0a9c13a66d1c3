"""Tools for targets with fewer features: aliases, flattened groups, freeform tools as functions, constraints."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from toolwire.canonical.content import Message, ToolCall, ToolChange
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FreeformTool, FunctionTool, Grammar, NativeTool, ToolGroup, ToolRef
from toolwire.codec.encoding.tools import (
    LocatedTool,
    NameRules,
    ToolNamePlan,
    conversation_tools,
    freeform_description,
    freeform_schema,
    report_allowed_callers,
    report_tool_change,
    unwrap_freeform_input,
    wrap_freeform_input,
)
from toolwire.codec.interface import OriginalTool
from toolwire.codec.losses import LossReport
from toolwire.translation.stages.restore_calls import restore_part

LIMIT = 32
RULES = NameRules(re.compile(r"[a-zA-Z0-9_-]+"), LIMIT)

# Few letters, so that names collide; and long names, so that they are truncated.
NAMES = st.text("ab_.é/", max_size=5) | st.text("a.", min_size=LIMIT - 2, max_size=LIMIT + 6)
KEYS = st.tuples(st.none() | st.text("ab_.", max_size=4), NAMES)


def plan(*, freeform: bool = False) -> ToolNamePlan:
    return ToolNamePlan(RULES, freeform=freeform)


# ---- names


@pytest.mark.parametrize("name", ["f", "get_weather", "a-b", "A1", "x" * LIMIT])
def test_legal_name_needs_no_mapping(name: str) -> None:
    tools = plan()
    assert tools.alias(name) == name
    assert tools.mapping.tools == {}


@pytest.mark.parametrize(
    ("name", "namespace", "readable"),
    [
        ("a.b", None, r"a_b_\w{8}"),
        ("é", None, r"__\w{8}"),
        ("", None, r"tool_\w{8}"),
        ("x" * 40, None, r"x{23}_\w{8}"),
        ("f", "files", "files__f"),
        ("f", "my files", r"my_files__f_\w{8}"),
        ("f", "", "__f"),
    ],
)
def test_aliases_stay_readable(name: str, namespace: str | None, readable: str) -> None:
    tools = plan()
    alias = tools.alias(name, namespace)
    assert re.fullmatch(readable, alias)
    assert tools.mapping.tools == {alias: OriginalTool(name, namespace)}


@settings(deadline=None)
@given(st.lists(KEYS, max_size=12))
def test_aliases_are_legal_distinct_and_reversible(keys: list[tuple[str | None, str]]) -> None:
    tools = plan()
    aliases = {(namespace, name): tools.alias(name, namespace) for namespace, name in keys}
    assert len(set(aliases.values())) == len(aliases)
    for (namespace, name), alias in aliases.items():
        assert RULES.pattern.fullmatch(alias)
        assert len(alias) <= LIMIT
        assert tools.alias(name, namespace) == alias
        restored = restore_part(ToolCall(id="1", name=alias, arguments="{}"), tools.mapping)
        assert restored == ToolCall(id="1", name=name, namespace=namespace, arguments="{}")


@settings(deadline=None)
@given(st.lists(KEYS, max_size=8), st.lists(KEYS, max_size=8))
def test_later_tools_do_not_rename_earlier_ones(first: list[Any], later: list[Any]) -> None:
    before, after = plan(), plan()
    for namespace, name in first:
        before.alias(name, namespace)
    for namespace, name in [*first, *later]:
        after.alias(name, namespace)
    assert [before.alias(name, namespace) for namespace, name in first] == [
        after.alias(name, namespace) for namespace, name in first
    ]


def test_name_that_equals_an_alias_stays_distinct() -> None:
    """Each tool has the name that the next one's alias would be."""
    names = ["a.b"]
    for _ in range(4):
        earlier = plan()
        for name in reversed(names):
            last = earlier.alias(name)
        names.append(last)
    tools = plan()
    assert len({tools.alias(name) for name in reversed(names)}) == len(set(names))


# ---- declarations


@pytest.mark.parametrize(
    ("tool", "freeform", "alias", "original"),
    [
        (FunctionTool(name="f"), False, "f", None),
        (FunctionTool(name="f", namespace="n"), False, "n__f", OriginalTool("f", "n")),
        (FreeformTool(name="p"), True, "p", None),
        (FreeformTool(name="p"), False, "p", OriginalTool("p", None, freeform=True)),
        (FreeformTool(name="p", namespace="n"), False, "n__p", OriginalTool("p", "n", freeform=True)),
        (FreeformTool(name="p", namespace="n"), True, "n__p", OriginalTool("p", "n")),
    ],
)
def test_declared_tools_can_be_mapped_back(
    tool: FunctionTool | FreeformTool, freeform: bool, alias: str, original: OriginalTool | None
) -> None:
    tools, report = plan(freeform=freeform), LossReport()
    tools.alias(tool.name, tool.namespace)  # a call in the history may come first
    assert tools.declare(tool, ("tools", 0), report) == alias
    assert tools.mapping.tools == ({} if original is None else {alias: original})
    losses = report.resolve(Request(origin="", tools=(tool,)), {})
    as_function = original is not None and original.freeform
    expected = [("info", "/tools/0/name")] if alias != tool.name else []
    expected += [("warning", "/tools/0")] if as_function else []
    assert [(loss.severity, loss.path) for loss in losses] == expected


@pytest.mark.parametrize("name", ["mcp.files.read", "f" * 65, "søk"])
def test_renamed_tools_are_reported(name: str) -> None:
    tools, report, tool = plan(freeform=False), LossReport(), FunctionTool(name=name)
    alias = tools.declare(tool, ("tools", 0), report)
    (loss,) = report.resolve(Request(origin="", tools=(tool,)), {})
    assert (loss.severity, loss.kind, loss.path) == ("warning", "approximated", "/tools/0/name")
    assert loss.reason == f"sent as {alias}"


def test_conversation_tools_include_later_and_removed_ones() -> None:
    group = ToolGroup(name="n", tools=(FunctionTool(name="g"), FreeformTool(name="h")))
    native = NativeTool(protocol="acme", kind="search", body=Raw(b"{}"))
    # A repeated declaration is the same tool; one of the same name in a group is a different tool.
    again = ToolGroup(name="n", tools=(FunctionTool(name="g"), FunctionTool(name="f")))
    change = ToolChange(add=(ToolRef(name="f"), FunctionTool(name="k"), again), remove=(ToolRef(name="f"),))
    request = Request(
        origin="",
        tools=(FunctionTool(name="f"), group, native),
        messages=(Message(role="user", parts=()), Message(role="system", parts=(change,))),
    )
    added = ("messages", 1, "parts", 0, "add")
    assert list(conversation_tools(request)) == [
        LocatedTool(FunctionTool(name="f"), ("tools", 0)),
        LocatedTool(FunctionTool(name="g", namespace="n"), ("tools", 1, "tools", 0)),
        LocatedTool(FreeformTool(name="h", namespace="n"), ("tools", 1, "tools", 1)),
        LocatedTool(native, ("tools", 2)),
        LocatedTool(FunctionTool(name="k"), (*added, 1)),
        LocatedTool(FunctionTool(name="f", namespace="n"), (*added, 2, "tools", 1)),
    ]


# ---- allowed callers


@pytest.mark.parametrize(
    ("callers", "constraint"),
    [(None, None), (("direct",), None), (("direct", "code_execution"), False), (("code_execution",), True), ((), True)],
)
def test_unsupported_callers_are_reported(callers: tuple[str, ...] | None, constraint: bool | None) -> None:
    tool, report = FunctionTool(name="f", allowed_callers=callers), LossReport()
    report_allowed_callers(tool, ("tools", 0), report)
    losses = report.resolve(Request(origin="", tools=(tool,)), {})
    assert {loss.path.startswith("/tools/0/allowed_callers") for loss in losses} == ({True} if losses else set())
    assert {loss.constraint for loss in losses} == (set() if constraint is None else {constraint})


# ---- freeform tools as functions


@settings(deadline=None)
@given(st.text())
def test_wrapped_freeform_input_is_unwrapped(text: str) -> None:
    wrapped = wrap_freeform_input(text)
    assert json.loads(wrapped) == {"input": text}
    assert unwrap_freeform_input(wrapped) == text


@pytest.mark.parametrize(
    "arguments", ["", "text", "{}", "[]", '"text"', '{"input":1}', '{"input":null}', '{"in', "[" * 9999]
)
def test_arguments_of_another_shape_are_not_unwrapped(arguments: str) -> None:
    assert unwrap_freeform_input(arguments) is None


def test_freeform_schema_has_one_string() -> None:
    schema = json.loads(bytes(freeform_schema()))
    del schema["properties"]["input"]["description"]
    assert schema == {
        "type": "object",
        "properties": {"input": {"type": "string"}},
        "required": ["input"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("description", "grammar", "expected"),
    [
        (None, None, ""),
        ("Edits.", None, "Edits."),
        (
            "Edits.",
            Grammar(syntax="lark", definition="a: b"),
            "Edits.\n\nThe input must match this lark grammar:\na: b",
        ),
        (None, Grammar(syntax="regex", definition="a+"), "The input must match this regex grammar:\na+"),
    ],
)
def test_grammar_moves_into_the_description(description: str | None, grammar: Grammar | None, expected: str) -> None:
    assert freeform_description(FreeformTool(name="p", description=description, grammar=grammar)) == expected


def test_direct_caller_is_not_reported() -> None:
    tool, report = FunctionTool(name="f", allowed_callers=("direct", "programs")), LossReport()
    report_allowed_callers(tool, ("tools", 0), report)
    request = Request(origin="", messages=(), tools=(tool,))
    assert [loss.path for loss in report.resolve(request, {})] == ["/tools/0/allowed_callers/1"]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (ToolChange(remove=(ToolRef(name="f"),)), "dropped"),
        (ToolChange(add=(ToolRef(name="", server="crm", kind="server"),)), "dropped"),
        (ToolChange(add=(ToolRef(name="f"),)), "approximated"),
    ],
)
def test_tool_changes_are_reported(change: ToolChange, kind: str) -> None:
    report, path = LossReport(), ("messages", 0, "parts", 0)
    report_tool_change(change, path, report)
    request = Request(origin="", messages=(Message(role="system", parts=(change,)),))
    assert [loss.kind for loss in report.resolve(request, {})] == [kind]
