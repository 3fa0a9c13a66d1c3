"""Permission rules for tool calls, written `TOOL` or `TOOL(ARG=PATTERN, ...)`.

1. `deny` rules win over `ask` rules, which win over `allow` rules.
2. Without a matching rule, reading inside the workspace is allowed and everything else asks.
3. Patterns are globs that match the complete value; non-string values are matched as JSON text. A workspace path
   matches by its resolved form, absolute or relative to the workspace.
4. A call with subcalls, such as the commands of a shell line, is allowed only if every subcall is. It is denied, or
   needs approval, if any subcall does.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

import msgspec
from msgspec import Struct

from toolwire.canonical.errors import ToolwireError
from toolwire.runtime.tool import AliasedValue, Arguments, Tool

Verdict = Literal["allow", "ask", "deny"]

_RULE_PATTERN = re.compile(r"\s*(?P<tool>[^\s()]+)\s*(?:\((?P<arguments>.*)\)\s*)?", re.DOTALL)
_ARGUMENT_PATTERN = re.compile(r"\s*(?P<name>[^\s=,()]+)\s*=\s*(?P<pattern>(?:\\.|[^\\,])*)(?:,|$)", re.DOTALL)
_MAX_SUGGESTED_LENGTH = 200
_SPECIAL_CHARACTER = re.compile(r"[\\,*?\[]")
# A backslash escapes for the rule syntax, brackets escape for the glob.
_ESCAPES = {"\\": r"\\", ",": r"\,", "*": "[*]", "?": "[?]", "[": "[[]"}
NO_RULE = "no rule allows it"
INPUT_ARGUMENT = "input"
"""Argument name under which rules match the text input of a grammar tool."""


class PolicyError(ToolwireError):
    """A permission rule has invalid syntax."""


class Rule(Struct, frozen=True):
    """One permission rule: a verdict for calls of a tool whose arguments match."""

    verdict: Verdict
    tool: str
    """Glob over tool names."""
    arguments: tuple[tuple[str, str], ...] = ()
    """Argument names with the glob that each value must match."""
    definition_digest: str = ""
    """If set, the rule applies only to the tool with this `Tool.definition_digest`."""

    def applies_to(self, tool: Tool) -> bool:
        """Return True if the rule covers this tool, whatever its arguments."""
        return fnmatchcase(tool.name, self.tool) and self.definition_digest in (
            "",
            tool.definition_digest if self.definition_digest else "",
        )

    def matches(self, tool: Tool, values: Mapping[str, Any]) -> bool:
        """Return True if the rule covers a call of this tool with these arguments."""
        if not self.applies_to(tool):
            return False
        return all(key in values and _value_matches(values[key], pattern) for key, pattern in self.arguments)

    def __str__(self) -> str:
        """Format the rule as it is written in the configuration, without its verdict."""
        conditions = ", ".join(f"{name}={pattern}" for name, pattern in self.arguments)
        return f"{self.tool}({conditions})" if conditions else self.tool


def _value_matches(value: Any, pattern: str) -> bool:
    """Match one argument value, or its alias, against a glob."""
    if isinstance(value, AliasedValue) and fnmatchcase(value.alias, pattern):
        return True
    return fnmatchcase(_value_text(value), pattern)


def _value_text(value: Any) -> str:
    """Return the text that a rule's pattern is matched against: a string as it is, other values as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def parse_rule(verdict: Verdict, text: Any) -> Rule:
    """Parse a rule such as `run_shell_command(command=git status*)`.

    A comma inside a pattern is written `\\,`.
    """
    if not isinstance(text, str):
        raise PolicyError(f"a rule is a text such as 'pay' or 'pay(amount=5)', not {text!r}")
    rule_match = _RULE_PATTERN.fullmatch(text)
    if rule_match is None:
        raise PolicyError(f"invalid rule {text!r}: expected TOOL or TOOL(ARG=PATTERN, ...)")
    conditions, remaining = list[tuple[str, str]](), rule_match["arguments"] or ""
    while remaining.strip():
        match = _ARGUMENT_PATTERN.match(remaining)
        if match is None:
            raise PolicyError(f"invalid rule {text!r}: expected ARG=PATTERN, got {remaining.strip()!r}")
        conditions.append((match["name"], re.sub(r"\\(.)", r"\1", match["pattern"].strip())))
        remaining = remaining[match.end() :]
    return Rule(verdict, rule_match["tool"], tuple(conditions))


class Decision(Struct, frozen=True):
    """The verdict of a policy on one call."""

    verdict: Verdict
    reason: str
    """The rule that decided, or the default that applies without one."""


class Policy:
    """An ordered set of permission rules, given as texts by verdict or as `Rule` objects."""

    def __init__(
        self,
        *,
        allow: Iterable[str] = (),
        ask: Iterable[str] = (),
        deny: Iterable[str] = (),
        rules: Iterable[Rule] = (),
    ) -> None:
        texts_by_verdict: tuple[tuple[Verdict, Iterable[str]], ...] = (("allow", allow), ("ask", ask), ("deny", deny))
        for verdict, texts in texts_by_verdict:
            if isinstance(texts, str):  # its characters would be rules, and `*` would match every tool
                raise PolicyError(f"expected a list of rules: Policy({verdict}=[{texts!r}])")
            if not isinstance(texts, Iterable):
                raise PolicyError(f"expected a list of rules, not {verdict}={texts!r}: '*' matches every tool")
        source: Any = rules
        given = tuple(source) if isinstance(source, Iterable) else (source,)
        if not all(isinstance(rule, Rule) for rule in given):
            raise PolicyError("rules are Rule objects: pass strings as allow=[...], ask=[...] or deny=[...]")
        parsed = [parse_rule(verdict, text) for verdict, texts in texts_by_verdict for text in texts]
        self.rules: tuple[Rule, ...] = (*given, *parsed)

    def with_rules(self, *rules: Rule) -> "Policy":
        """Return a policy with more rules."""
        return Policy(rules=(*self.rules, *rules)) if rules else self

    def decide(self, tool: Tool, arguments: Arguments) -> Decision:
        """Decide whether a call is allowed, denied or needs approval."""
        subcalls: Sequence[Arguments] | None = [arguments]
        if tool.subcalls is not None:
            subcalls = tool.subcalls(arguments)
        # `deny` and `ask` rules are also matched against the call as written, in case its subcalls are unknown.
        readings = [_argument_values(subcall) for subcall in (*(subcalls or ()), arguments)]
        for verdict in ("deny", "ask"):
            for values in readings:
                if (rule := self._first_match(verdict, tool, values)) is not None:
                    return Decision(rule.verdict, f"matches rule '{verdict} {rule}'")
        return self._allow_decision(tool, subcalls) or _default_decision(tool, arguments)

    def _first_match(self, verdict: str, tool: Tool, values: Mapping[str, Any]) -> Rule | None:
        """Return the first rule with this verdict that matches the call."""
        matching = (rule for rule in self.rules if rule.verdict == verdict and rule.matches(tool, values))
        return next(matching, None)

    def _allow_decision(self, tool: Tool, subcalls: Sequence[Arguments] | None) -> Decision | None:
        """Decide by the `allow` rules; None if they do not cover the call, or each of its subcalls."""
        if (rule := self._unconditional_allow(tool)) is not None:
            if subcalls is None and self._has_conditional_restriction(tool):
                return Decision("ask", "the call can't be analyzed, and a rule restricts some calls of this tool")
            return Decision("allow", f"matches rule 'allow {rule}'")
        if not subcalls:
            return None
        rules = [
            self._first_match("allow", tool, _argument_values(subcall))
            for subcall in subcalls
            if not tool.is_read_only(subcall)
        ]
        if not all(rules):
            return None
        return Decision("allow", f"matches rule 'allow {rules[0]}'" if rules else "read-only")

    def restriction_of(self, tool: Tool) -> str | None:
        """Return why some call of this tool may not run unasked; None if every call may, whatever its arguments."""
        restricting = (rule for rule in self.rules if rule.verdict != "allow" and rule.applies_to(tool))
        if (rule := next(restricting, None)) is not None:
            return f"the rule '{rule.verdict} {rule}' restricts it"
        return None if self._unconditional_allow(tool) is not None else "no rule allows every call of it"

    def _has_conditional_restriction(self, tool: Tool) -> bool:
        """Return True if a `deny` or `ask` rule with argument conditions restricts some calls of this tool."""
        return any(rule.arguments and rule.verdict != "allow" and rule.applies_to(tool) for rule in self.rules)

    def _unconditional_allow(self, tool: Tool) -> Rule | None:
        """Return the first rule that allows all calls of this tool."""
        rules = (rule for rule in self.rules if rule.verdict == "allow" and not rule.arguments)
        return next((rule for rule in rules if rule.applies_to(tool)), None)


def suggest_rules(tool: Tool, arguments: Arguments) -> tuple[str, ...]:
    """Return the narrowest `allow` rules, as texts, that would permit this call."""
    subcalls = [arguments] if tool.subcalls is None else tool.subcalls(arguments)
    if not subcalls:
        return (tool.name,)
    return tuple(dict.fromkeys(_suggest_rule(tool, subcall) for subcall in subcalls))


def _suggest_rule(tool: Tool, arguments: Arguments) -> str:
    """Return a rule bound to the first argument, required ones first, or the tool name alone."""
    names = [*tool.parameters.get("required", ()), *tool.parameters.get("properties", ())]
    if isinstance(arguments, Mapping):
        names += arguments  # a subcall may have arguments that the schema does not list
    argument = next((name for name in names if isinstance(arguments, Mapping) and name in arguments), None)
    value = None if argument is None else arguments[argument]
    if (
        not isinstance(value, str)
        or not value.isprintable()
        or not 0 < len(value) <= _MAX_SUGGESTED_LENGTH
        or value != value.strip()
    ):
        return tool.name
    return f"{tool.name}({argument}={_SPECIAL_CHARACTER.sub(lambda match: _ESCAPES[match[0]], value)})"


def _argument_values(arguments: Arguments) -> Mapping[str, Any]:
    """Return the arguments by name; the text of a grammar tool is named `input`."""
    return arguments if isinstance(arguments, Mapping) else {INPUT_ARGUMENT: arguments}


def _default_decision(tool: Tool, arguments: Arguments) -> Decision:
    """Decide without a rule: allow local read-only tools and questions to the user, ask otherwise."""
    annotations = tool.annotations
    if tool.locus == "local" and annotations.read_only and not annotations.open_world:
        return Decision("allow", "read-only in the workspace")
    if tool.locus == "human":
        return Decision("allow", "it only asks the user")
    return Decision("ask", NO_RULE)


def is_denied(policy: Policy, tool: Tool) -> bool:
    """Return True if a rule denies every call of the tool."""
    return any(rule.verdict == "deny" and not rule.arguments and rule.matches(tool, {}) for rule in policy.rules)
