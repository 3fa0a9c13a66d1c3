"""Check the rules of `[policy]` against the tools that can be known before any MCP server runs."""

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from toolwire.gateway.config import Config
from toolwire.installation import has_extra
from toolwire.runtime.mcp.config import may_be_tool_of
from toolwire.runtime.policy import parse_rule
from toolwire.runtime.rule_checks import OWN_TOOLS, describe_unknown_argument, describe_unknown_tool, is_exact
from toolwire.runtime.tool import Tool

_ADVICE = "correct or remove it"


class UnusedRule(Struct, frozen=True):
    """A rule of the configuration that applies to no known tool."""

    key: str
    """Its place in the configuration, such as `policy.deny[0]`."""
    problem: str
    advice: str = ""
    """Empty if it may be meant for a tool of a Python file (`toolwire mcp serve --module`)."""

    def __str__(self) -> str:
        return f"{self.key}: {self.problem}, so the rule applies to nothing{self.advice and f'; {self.advice}'}"


def find_unused_rules(config: Config) -> Iterator[UnusedRule]:
    """Yield the rules of `[policy]` that name no tool, or an argument that the tool does not have.

    Rules for tools of MCP servers are checked when the servers list them.
    """
    if not any(config.policy.rules_by_verdict.values()):
        return
    tools = _local_tools()
    for verdict, texts in config.policy.rules_by_verdict.items():
        for index, text in enumerate(texts):
            rule, key = parse_rule(verdict, text), f"policy.{verdict}[{index}]"
            problem = describe_unknown_tool(rule, OWN_TOOLS)
            if problem is not None:
                if not any(may_be_tool_of(rule.tool, server) for server in config.mcp.servers):
                    yield UnusedRule(key, problem, _ADVICE if "did you mean" in problem else "")
            elif is_exact(rule) and (problem := describe_unknown_argument(rule, tools)) is not None:
                yield UnusedRule(key, problem, _ADVICE)


def _local_tools() -> list[Tool]:
    """Return the built-in tools and the browser, for their names and arguments only."""
    from toolwire.runtime.sandbox.bubblewrap import NO_SANDBOX  # noqa: PLC0415 - slow to load, for few configurations
    from toolwire.runtime.tools.builtin import built_in_tools  # noqa: PLC0415

    tools = built_in_tools(Path.cwd(), environment=os.environ, sandbox=NO_SANDBOX)
    if has_extra("browser"):
        from toolwire.runtime.tools.browser.toolset import Browser  # noqa: PLC0415

        tools += Browser(None).static_tools()
    return tools
