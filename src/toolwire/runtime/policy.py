"""What may run: rules by tool and arguments, written as `tool` or `tool(argument=pattern, ...)`.

1. A call that any `deny` rule matches is denied, whatever else is said; else `ask` wins over `allow`.
2. With no rule, reading inside the workspace is allowed, and everything else asks.
3. Patterns are globs over a whole value; `*` stands for anything. What is no string is matched as its JSON text. A path
   of the workspace is matched as it really is, absolute or from the workspace on.
4. A call that stands for several (the commands of a shell line) is allowed only if each of them is, and denied or asked
   for if one of them is.
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
# In a rule a backslash takes the next character as it is; in a glob, brackets do.
_ESCAPES = {"\\": r"\\", ",": r"\,", "*": "[*]", "?": "[?]", "[": "[[]"}
NO_RULE = "no rule allows it"
INPUT_ARGUMENT = "input"
"""What the text of a grammar tool is called in a rule."""


class PolicyError(ToolwireError):
    """A rule can't be read."""


class Rule(Struct, frozen=True):
    """`definition`: the rule is only for the tool that has this digest, and not for another of the same name."""

    verdict: Verdict
    tool: str
    arguments: tuple[tuple[str, str], ...] = ()
    definition_digest: str = ""

    def applies_to(self, tool: Tool) -> bool:
        return fnmatchcase(tool.name, self.tool) and self.definition_digest in (
            "",
            tool.definition_digest if self.definition_digest else "",
        )

    def matches(self, tool: Tool, values: Mapping[str, Any]) -> bool:
        if not self.applies_to(tool):
            return False
        return all(key in values and _value_matches(values[key], pattern) for key, pattern in self.arguments)

    def __str__(self) -> str:
        bounds = ", ".join(f"{name}={pattern}" for name, pattern in self.arguments)
        return f"{self.tool}({bounds})" if bounds else self.tool


def _value_matches(value: Any, pattern: str) -> bool:
    if isinstance(value, AliasedValue) and fnmatchcase(value.alias, pattern):
        return True
    return fnmatchcase(_value_text(value), pattern)


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def parse_rule(verdict: Verdict, text: str) -> Rule:
    """`run_shell_command(command=git status*)`; a comma in a pattern is written `\\,`."""
    found = _RULE_PATTERN.fullmatch(text)
    if found is None:
        raise PolicyError(f"{text!r} is no rule: write tool, or tool(argument=pattern, ...)")
    bounds, rest = list[tuple[str, str]](), found["arguments"] or ""
    while rest.strip():
        one = _ARGUMENT_PATTERN.match(rest)
        if one is None:
            raise PolicyError(f"{text!r}: {rest.strip()!r} is not argument=pattern")
        bounds.append((one["name"], re.sub(r"\\(.)", r"\1", one["pattern"].strip())))
        rest = rest[one.end() :]
    return Rule(verdict, found["tool"], tuple(bounds))


class Decision(Struct, frozen=True):
    """`by` names the rule, or says that there is none."""

    verdict: Verdict
    reason: str


class Policy:
    """Rules as texts, by what they say; `rules` as they are."""

    def __init__(
        self,
        *,
        allow: Iterable[str] = (),
        ask: Iterable[str] = (),
        deny: Iterable[str] = (),
        rules: Iterable[Rule] = (),
    ) -> None:
        said: tuple[tuple[Verdict, Iterable[str]], ...] = (("allow", allow), ("ask", ask), ("deny", deny))
        read = [parse_rule(verdict, text) for verdict, texts in said for text in texts]
        self.rules: tuple[Rule, ...] = (*rules, *read)

    def with_rules(self, *rules: Rule) -> "Policy":
        return Policy(rules=(*self.rules, *rules)) if rules else self

    def decide(self, tool: Tool, arguments: Arguments) -> Decision:
        stands_for: Sequence[Arguments] | None = [arguments]
        if tool.subcalls is not None:
            stands_for = tool.subcalls(arguments)
        # Nobody can tell what it amounts to: rules against it still read it as it is written.
        readings = [_argument_values(one) for one in (*(stands_for or ()), arguments)]
        for verdict in ("deny", "ask"):
            for values in readings:
                if (rule := self._first_match(verdict, tool, values)) is not None:
                    return Decision(rule.verdict, f"the rule {verdict} {rule}")
        return self._allow_decision(tool, stands_for) or _default_decision(tool, arguments)

    def _first_match(self, verdict: str, tool: Tool, values: Mapping[str, Any]) -> Rule | None:
        found = (rule for rule in self.rules if rule.verdict == verdict and rule.matches(tool, values))
        return next(found, None)

    def _allow_decision(self, tool: Tool, subcalls: Sequence[Arguments] | None) -> Decision | None:
        if (rule := self._unconditional_allow(tool)) is not None:
            if subcalls is None and self._has_conditional_restriction(tool):
                return Decision("ask", "nobody can tell what it amounts to, and a rule forbids some of it")
            return Decision("allow", f"the rule allow {rule}")
        if not subcalls:
            return None
        found = [
            self._first_match("allow", tool, _argument_values(one)) for one in subcalls if not tool.is_read_only(one)
        ]
        return Decision("allow", f"the rule allow {found[0]}" if found else "it only looks") if all(found) else None

    def _has_conditional_restriction(self, tool: Tool) -> bool:
        return any(rule.arguments and rule.verdict != "allow" and rule.applies_to(tool) for rule in self.rules)

    def _unconditional_allow(self, tool: Tool) -> Rule | None:
        allowing = (rule for rule in self.rules if rule.verdict == "allow" and not rule.arguments)
        return next((rule for rule in allowing if rule.applies_to(tool)), None)


def suggest_rules(tool: Tool, arguments: Arguments) -> tuple[str, ...]:
    """The narrowest rules under which such a call would be allowed, as texts."""
    stands_for = [arguments] if tool.subcalls is None else tool.subcalls(arguments)
    if not stands_for:
        return (tool.name,)
    return tuple(dict.fromkeys(_suggest_rule(tool, one) for one in stands_for))


def _suggest_rule(tool: Tool, arguments: Arguments) -> str:
    """It binds what the tool can't do without, of which the first says what it is about."""
    names = [*tool.parameters.get("required", ()), *tool.parameters.get("properties", ())]
    if isinstance(arguments, Mapping):
        names += arguments  # what stands for a call may have names of its own
    found = next((name for name in names if isinstance(arguments, Mapping) and name in arguments), None)
    value = None if found is None else arguments[found]
    if (
        not isinstance(value, str)
        or not value.isprintable()
        or not 0 < len(value) <= _MAX_SUGGESTED_LENGTH
        or value != value.strip()
    ):
        return tool.name
    return f"{tool.name}({found}={_SPECIAL_CHARACTER.sub(lambda one: _ESCAPES[one[0]], value)})"


def _argument_values(arguments: Arguments) -> Mapping[str, Any]:
    return arguments if isinstance(arguments, Mapping) else {INPUT_ARGUMENT: arguments}


def _default_decision(tool: Tool, arguments: Arguments) -> Decision:
    says = tool.annotations
    if tool.locus == "local" and says.read_only and not says.open_world:
        return Decision("allow", "it only reads, inside the workspace")
    if tool.locus == "human":
        return Decision("allow", "it only asks a person")
    return Decision("ask", NO_RULE)
