"""Checks of permission rules against the tools that they name: a misspelled rule would protect nothing.

1. A tool name without wildcards must be that of a known tool.
2. Each argument must be one of a tool that the rule applies to. A tool whose schema takes more than it lists has any.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from toolwire.codec.suggestions import suggest
from toolwire.runtime.policy import INPUT_ARGUMENT, Policy, PolicyError, Rule
from toolwire.runtime.tool import Tool

OWN_TOOLS = (
    "apply_patch",
    "ask_user",
    "code_execution",
    "computer",
    "find_tools",
    "glob",
    "google_web_search",
    "list_directory",
    "read_file",
    "read_many_files",
    "replace",
    "run_code",
    "run_shell_command",
    "search_file_content",
    "view_image",
    "web_fetch",
    "web_search",
    "write_file",
)
"""Tools that toolwire has or adds itself. Not every agent has all: some need an extra or an option."""
_WILDCARDS = frozenset("*?[")
_OPEN_KEYWORDS = ("$dynamicRef", "$ref", "allOf", "anyOf", "else", "if", "oneOf", "patternProperties", "then")


def is_exact(rule: Rule) -> bool:
    """Return True if the rule names one tool, without wildcards."""
    return not _WILDCARDS.intersection(rule.tool)


def describe_unknown_tool(rule: Rule, names: Iterable[str], absent: Collection[str] = ()) -> str | None:
    """Return the problem of a rule that names a tool which does not exist; None if it exists or has wildcards.

    `absent` names tools that exist, but not here, so that they are not suggested.
    """
    known = list(names)
    if not is_exact(rule) or rule.tool in known or rule.tool in absent:
        return None
    hint = suggest(rule.tool, known)
    return f"unknown tool {rule.tool!r}{hint and f' ({hint})'}"


def describe_unknown_argument(rule: Rule, tools: Iterable[Tool]) -> str | None:
    """Return the problem of a rule if no tool that it matches has its arguments; None if it matches no tool."""
    wanted = [name for name, _ in rule.arguments]
    candidates = [_argument_names(tool) for tool in tools if wanted and rule.applies_to(tool)]
    if not candidates or any(known is None or known.issuperset(wanted) for known in candidates):
        return None
    all_known = sorted(set[str]().union(*(known or () for known in candidates)))
    unknown = next((name for name in wanted if name not in all_known), None)
    if unknown is None:
        return f"no tool that {rule.tool!r} matches has all of these arguments"
    if is_exact(rule):
        hint = suggest(unknown, all_known, f"it has {', '.join(all_known)}" if all_known else "it has none")
        return f"{rule.tool} has no argument {unknown!r} ({hint})"
    hint = suggest(unknown, all_known)
    return f"no tool that {rule.tool!r} matches has the argument {unknown!r}{hint and f' ({hint})'}"


def check_arguments(policy: Policy, tools: Mapping[str, Tool]) -> None:
    """Raise `PolicyError` for a rule with an argument that the tool which it names does not have."""
    for rule in policy.rules:
        tool = tools.get(rule.tool) if is_exact(rule) else None
        if tool is not None and (problem := describe_unknown_argument(rule, [tool])) is not None:
            raise PolicyError(f"the rule '{rule.verdict} {rule}' never applies: {problem}")


def find_unused_restrictions(policy: Policy, tools: Collection[Tool], other_names: Iterable[str] = ()) -> Iterator[str]:
    """Yield a warning for each `deny` or `ask` rule that restricts no tool of an agent, and is probably misspelled.

    `other_names` are those of tools that are not among `tools`.
    """
    names = [*(tool.name for tool in tools), *other_names]
    for rule in policy.rules:
        if rule.verdict == "allow":
            continue
        problem = describe_unknown_tool(rule, names, OWN_TOOLS)
        if problem is None and not is_exact(rule):
            problem = describe_unknown_argument(rule, tools)
            if problem is not None and "did you mean" not in problem:
                problem = None  # a rule that agents share, such as `*(command=*rm*)` for one without a shell
        if problem is not None:
            yield f"the rule '{rule.verdict} {rule}' restricts nothing: {problem}"


def _argument_names(tool: Tool) -> frozenset[str] | None:
    """Return the argument names that rules for a tool can match; None if it takes names that its schema lacks."""
    if tool.grammar is not None:
        return frozenset((INPUT_ARGUMENT, *tool.subcall_arguments))
    properties = _closed_properties(tool.parameters)
    return None if properties is None else frozenset((*properties, *tool.subcall_arguments))


def _closed_properties(schema: Mapping[str, Any]) -> Iterable[str] | None:
    """Return the names of a schema's properties; None if it allows others."""
    is_open = any(schema.get(name, False) is not False for name in ("additionalProperties", "unevaluatedProperties"))
    if is_open or any(keyword in schema for keyword in _OPEN_KEYWORDS):
        return None
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or (not properties and "additionalProperties" not in schema):
        return None  # any object
    return properties
