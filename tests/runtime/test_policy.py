from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire import Policy
from toolwire.runtime.policy import PolicyError, parse_rule, suggest_rules
from toolwire.runtime.tool import Annotations, Locus, Tool


async def nothing(arguments: Any, calling: Any) -> None:
    return None


def tool(
    name: str = "run_shell_command", *, locus: Locus = "local", amounts_to: Any = None, **annotations: bool
) -> Tool:
    return Tool(name=name, run=nothing, locus=locus, annotations=Annotations(**annotations), subcalls=amounts_to)


def verdict(policy: Policy, arguments: Any, candidate: Tool | None = None) -> str:
    return policy.decide(candidate or tool(), arguments).verdict


READING = tool("read_file", read_only=True)


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        (tool("read_file", read_only=True), "allow"),
        (tool("web_fetch", read_only=True, open_world=True), "ask"),
        (tool("write_file"), "ask"),
        (tool("server__list", locus="mcp", read_only=True), "ask"),
        (tool("run_code", locus="sandbox", read_only=True), "ask"),
        (tool("ask_user", locus="human"), "allow"),
    ],
)
def test_only_workspace_reads_are_allowed_by_default(candidate: Tool, expected: str) -> None:
    assert verdict(Policy(), {}, candidate) == expected


@pytest.mark.parametrize("verdict", ["allow", "ask", "deny"])
def test_rules_in_a_single_string_are_refused(verdict: str) -> None:
    with pytest.raises(PolicyError, match=r"expected a list of rules: Policy\(\w+=\['github__\*'\]\)"):
        Policy(**{verdict: "github__*"})  # type: ignore[arg-type]


def test_deny_wins_over_ask_and_ask_over_allow() -> None:
    policy = Policy(allow=["run_*"], ask=["run_shell_command(command=git push*)"], deny=["*(command=*rm -rf*)"])
    assert verdict(policy, {"command": "ls"}) == "allow"
    assert verdict(policy, {"command": "git push origin"}) == "ask"
    assert verdict(policy, {"command": "git push; rm -rf /"}) == "deny"
    assert "deny *(command=*rm -rf*)" in policy.decide(tool(), {"command": "rm -rf /"}).reason


def test_deny_rule_overrides_the_default_allow() -> None:
    assert verdict(Policy(deny=["read_file(absolute_path=*.env)"]), {"absolute_path": "/w/.env"}, READING) == "deny"


def test_patterns_match_complete_values_of_every_argument() -> None:
    policy = Policy(allow=["run_shell_command(command=ls*, directory=src)"])
    assert verdict(policy, {"command": "ls -l", "directory": "src"}) == "allow"
    assert verdict(policy, {"command": "ls -l"}) == "ask"
    assert verdict(policy, {"command": "ls", "directory": "src/other"}) == "ask"


def test_non_text_values_match_as_json_and_grammar_text_as_input() -> None:
    assert verdict(Policy(allow=["t(n=3)"]), {"n": 3}, tool("t")) == "allow"
    assert (
        verdict(Policy(deny=["apply_patch(input=*Delete File*)"]), "*** Delete File: a", tool("apply_patch")) == "deny"
    )


def commands(arguments: Any) -> list[Any] | None:
    text = arguments["command"]
    return None if "$(" in text else [{"command": one.strip()} for one in text.split(";")]


def test_every_subcall_must_be_allowed() -> None:
    shell, policy = (
        tool(amounts_to=commands),
        Policy(allow=["run_shell_command(command=git *)"], deny=["*(command=rm *)"]),
    )
    assert verdict(policy, {"command": "git status; git log"}, shell) == "allow"
    assert verdict(policy, {"command": "git status; curl x"}, shell) == "ask"
    assert verdict(policy, {"command": "git status; rm x"}, shell) == "deny"
    assert verdict(policy, {"command": "git status $(curl x)"}, shell) == "ask"


def test_unparsable_call_needs_an_unconditional_allow_rule() -> None:
    shell = tool(amounts_to=commands)
    assert verdict(Policy(allow=["run_shell_command"]), {"command": "$(x)"}, shell) == "allow"
    assert verdict(Policy(allow=["run_shell_command(command=*)"]), {"command": "$(x)"}, shell) == "ask"


def test_tool_names_match_exactly() -> None:
    """A tool name that equals a method or attribute name has no special meaning."""
    policy = Policy(allow=["read_file"])
    for name in ("__class__", "constructor", "toString", "rules", "allow", "*", "[r]ead_file", "read_file "):
        assert verdict(policy, {}, tool(name)) == "ask"


@pytest.mark.parametrize("text", ["", "a b", "tool(", "tool(x)", "tool(=3)", "tool(a=1) more"])
def test_invalid_rule_is_refused(text: str) -> None:
    with pytest.raises(PolicyError):
        parse_rule("allow", text)


def test_commas_are_escaped_with_a_backslash() -> None:
    assert parse_rule("allow", r"t(a=x\,y, b= z )").arguments == (("a", "x,y"), ("b", "z"))


SCHEMA = {"type": "object", "properties": {"content": {}, "path": {}}, "required": ["path", "content"]}


@given(st.text(max_size=300), st.text(max_size=300))
def test_suggested_rules_allow_this_call_and_few_others(path: str, other: str) -> None:
    candidate = Tool(name="write", run=nothing, parameters=SCHEMA)
    rules = suggest_rules(candidate, {"path": path, "content": "x"})
    assert verdict(Policy(allow=rules), {"path": path, "content": "y"}, candidate) == "allow"
    if rules != ("write",) and other != path:
        assert verdict(Policy(allow=rules), {"path": other, "content": "x"}, candidate) == "ask"


def test_each_subcall_gets_a_suggested_rule() -> None:
    candidate = tool(
        amounts_to=lambda one: None if "$" in one["command"] else [{"command": c} for c in one["command"].split(";")]
    )
    candidate = msgspec.structs.replace(candidate, parameters={"type": "object", "properties": {"command": {}}})
    assert suggest_rules(candidate, {"command": "ls *,a;pwd;pwd"}) == (
        r"run_shell_command(command=ls [*]\,a)",
        "run_shell_command(command=pwd)",
    )
    assert suggest_rules(candidate, {"command": "$x"}) == ("run_shell_command",)
