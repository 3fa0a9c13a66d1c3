"""Rules that protect nothing, because a name in them is misspelled."""

import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.support.runtime.scripted_agent import ScriptedModel, text_turn
from toolwire import Agent, AgentWarning, Policy
from toolwire.runtime.hosted_tools import CodeExecution, WebFetch, WebSearch
from toolwire.runtime.policy import PolicyError, parse_rule
from toolwire.runtime.rule_checks import OWN_TOOLS, describe_unknown_argument, describe_unknown_tool
from toolwire.runtime.sandbox.bubblewrap import NO_SANDBOX
from toolwire.runtime.sandbox.code.tool import RUN_CODE
from toolwire.runtime.search.deferred_tools import SEARCH_TOOL_NAME
from toolwire.runtime.tool import Tool, Toolset
from toolwire.runtime.tools.browser.toolset import Browser
from toolwire.runtime.tools.builtin import built_in_tools

CLOSED = {"type": "object", "properties": {"file_path": {}, "content": {}}, "additionalProperties": False}


async def nothing(arguments: Any, calling: Any) -> str:
    return ""


def tool(name: str = "write_file", parameters: dict[str, Any] = CLOSED, **fields: Any) -> Tool:
    return Tool(name=name, run=nothing, parameters=parameters, **fields)


class Listed:
    """A toolset; None for its tools fails to list them."""

    name = "listed"

    def __init__(self, tools: list[Tool] | None) -> None:
        self.listed = tools

    async def open(self) -> None:
        pass

    async def tools(self) -> list[Tool]:
        if self.listed is None:
            raise OSError("down")
        return self.listed

    async def close(self) -> None:
        pass


def warnings_of_run(policy: Policy, *sources: Tool | Toolset) -> list[str]:
    agent = Agent(ScriptedModel(text_turn("done")), tools=list(sources), policy=policy)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert agent.run("hi").text == "done"
    return [str(one.message) for one in caught if issubclass(one.category, AgentWarning)]


@pytest.mark.parametrize("verdict", ["allow", "ask", "deny"])
def test_rule_with_an_argument_that_its_tool_lacks_is_an_error(verdict: str) -> None:
    policy = Policy(**{verdict: ["write_file(file_pth=*secret*)"]})  # type: ignore[arg-type]
    message = rf"'{verdict} write_file\(file_pth=\*secret\*\)' never applies: write_file has no argument 'file_pth' "
    message += r'\(did you mean "file_path"\?\)'
    with pytest.raises(PolicyError, match=message):
        Agent(ScriptedModel(), tools=[tool()], policy=policy)
    with pytest.raises(PolicyError, match=message):
        Agent(ScriptedModel(text_turn("done")), tools=[Listed([tool()])], policy=policy).run("hi")


@pytest.mark.parametrize("verdict", ["ask", "deny"])
@pytest.mark.parametrize("sources", [[tool()], [Listed([tool()])], [tool("other"), Listed([tool()])]])
def test_restriction_of_an_unknown_tool_is_a_warning(verdict: str, sources: list[Any]) -> None:
    (warning,) = warnings_of_run(Policy(**{verdict: ["write_fil"]}), *sources)  # type: ignore[arg-type]
    assert warning == (
        f"the rule '{verdict} write_fil' restricts nothing: unknown tool 'write_fil' (did you mean \"write_file\"?)"
    )


def test_restriction_of_every_tool_with_a_misspelled_argument_is_a_warning() -> None:
    (warning,) = warnings_of_run(Policy(deny=["*(file_pth=*secret*)"]), tool())
    assert warning.endswith("no tool that '*' matches has the argument 'file_pth' (did you mean \"file_path\"?)")


@pytest.mark.parametrize(
    "policy",
    [
        Policy(deny=["write_file(file_path=*)", "write_*", "nothing_like_it_*", "*(command=*rm -rf*)"]),
        Policy(ask=["run_code", "find_tools"], deny=["computer", "run_shell_command"]),  # not of every agent
        Policy(allow=["of_another_agent"]),  # its calls are denied, and the message names the rule
    ],
)
def test_rules_that_may_apply_cause_no_warning(policy: Policy) -> None:
    assert warnings_of_run(policy, tool()) == []


def test_own_tools_are_listed(tmp_path: Path) -> None:
    built_in = [one.name for one in (*built_in_tools(tmp_path, sandbox=NO_SANDBOX), *Browser(None).static_tools())]
    hosted = [source.kind for source in (WebSearch(), WebFetch(), CodeExecution())]
    assert sorted(OWN_TOOLS) == sorted({*built_in, *hosted, SEARCH_TOOL_NAME, RUN_CODE})


@pytest.mark.parametrize("listed", [None, []], ids=["down", "disabled"])
def test_tools_of_a_server_that_is_down_are_not_called_unknown(listed: list[Tool] | None) -> None:
    assert not any("restricts nothing" in text for text in warnings_of_run(Policy(deny=["pay"]), Listed(listed)))


@pytest.mark.parametrize(
    ("candidate", "name", "is_known"),
    [
        (tool(), "content", True),
        (tool(), "x", False),
        (tool(parameters={"type": "object", "properties": {"a": {}}}), "x", False),
        (tool(parameters={"type": "object", "properties": {"a": {}}, "additionalProperties": True}), "x", True),
        (tool(parameters={"type": "object", "properties": {"a": {}}, "additionalProperties": {}}), "x", True),
        (tool(parameters={"type": "object", "properties": {"a": {}}, "patternProperties": {"^x": {}}}), "x", True),
        (tool(parameters={"properties": {"a": {}}, "allOf": [{"properties": {"x": {}}}]}), "x", True),
        (tool(parameters={"type": "object"}), "x", True),
        (tool(parameters={"type": "object", "properties": {}}), "x", True),
        (tool(parameters={"type": "object", "properties": {}, "additionalProperties": False}), "x", False),
        (tool(subcall_arguments=("kind",)), "kind", True),
    ],
)
def test_arguments_are_those_that_the_schema_takes(candidate: Tool, name: str, is_known: bool) -> None:
    rule = parse_rule("deny", f"write_file({name}=*)")
    assert (describe_unknown_argument(rule, [candidate]) is None) is is_known


def test_problem_lists_the_arguments_if_none_is_similar() -> None:
    problem = describe_unknown_argument(parse_rule("deny", "write_file(zzz=*)"), [tool()])
    assert problem == "write_file has no argument 'zzz' (it has content, file_path)"
    assert describe_unknown_tool(parse_rule("deny", "zzz"), ["write_file"]) == "unknown tool 'zzz'"
