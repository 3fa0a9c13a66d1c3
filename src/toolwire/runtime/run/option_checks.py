"""Checks of an agent's options, whose errors say what to write instead."""

import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolwire.codec.options import require, require_bool, require_integer, require_text
from toolwire.codec.suggestions import suggest
from toolwire.journal.runs import RunStore
from toolwire.runtime.policy import Policy
from toolwire.runtime.run.hooks import Hooks
from toolwire.runtime.run.limits import RunLimits

_ELSEWHERE = {
    "builtin_tools": "tools",
    "context": "deps",
    "deps_type": "deps",
    "experimental_context": "deps",
    "guardrails": "hooks",
    "input_guardrails": "hooks",
    "max_completion_tokens": "max_tokens",
    "max_iterations": "limits",
    "max_output_tokens": "max_tokens",
    "max_steps": "limits",
    "max_turns": "limits",
    "mcp_servers": "tools",
    "message_history": "history",
    "messages": "history",
    "middleware": "hooks",
    "output_guardrails": "hooks",
    "output_type": "output",
    "parallel_tool_calls": "parallel",
    "reasoning_effort": "effort",
    "response_format": "output",
    "response_model": "output",
    "result_type": "output",
    "stop_sequences": "stop",
    "stop_when": "limits",
    "system": "instructions",
    "system_prompt": "instructions",
    "thinking": "effort",
    "timeout": "limits",
    "toolsets": "tools",
    "usage_limits": "limits",
}
"""Names of other agent frameworks, with ours."""
_VALUES = {
    "max_iterations": "tw.RunLimits(turns=...)",
    "max_steps": "tw.RunLimits(turns=...)",
    "max_turns": "tw.RunLimits(turns=...)",
    "stop_when": "tw.RunLimits(turns=...)",
    "timeout": "tw.RunLimits(seconds=...)",
    "usage_limits": "tw.RunLimits(requests=..., tokens=...)",
}
"""Examples of values for those of our options that are limits."""
_SETTINGS_OBJECTS = ("model_settings", "settings", "extra_body", "model_kwargs")


def check_names(
    options: Mapping[str, object],
    function: Callable[..., object],
    settings: Sequence[str],
    *,
    elsewhere: Callable[..., object] | None = None,
) -> None:
    """Raise `TypeError` for an option that is neither a keyword of the function nor a model setting.

    The error names the option to use, also if `elsewhere`, the constructor of the agent, has it.
    """
    known = [*(getattr(function, "__kwdefaults__", None) or ()), *settings]
    of_agent = getattr(elsewhere, "__kwdefaults__", None) or ()
    for name in options:
        if name in known:
            continue
        equivalent = _ELSEWHERE.get(name, name)
        if name in _SETTINGS_OBJECTS:
            hint = f"pass each model setting as a keyword: {', '.join(settings)}"
        elif equivalent in of_agent and equivalent not in known:
            hint = f"it is an option of the agent: tw.Agent({equivalent}={_VALUES.get(name, '...')})"
        elif equivalent in known:
            hint = f"use {equivalent}={_VALUES[name]}" if name in _VALUES else f'did you mean "{equivalent}"?'
        else:
            hint = suggest(name, known, f"the model settings are {', '.join(settings)}")
        raise TypeError(f"unknown option {name!r}; {hint}")


def require_text_list(option: str, values: Sequence[str]) -> tuple[str, ...]:
    """Return the texts of an option as a tuple; raise `TypeError` for a string, which is a sequence of texts, too.

    The error leaves the values out: they may be secrets.
    """
    if isinstance(values, str):
        raise TypeError(f"{option} must be a list of strings, not one string")
    items: Any = values
    if not isinstance(items, Iterable) or not all(isinstance(item, str) for item in items):
        raise TypeError(f"{option} must be a list of strings")
    return tuple(values)


def _check_model(model: object) -> None:
    """Raise `TypeError` for a model that is neither a name nor an object with the methods of `tw.Model`."""
    is_model = isinstance(getattr(model, "name", None), str) and callable(getattr(model, "stream", None))
    require(
        "model",
        model,
        "a name such as 'anthropic/claude-sonnet-4-5', or a tw.Model, such as toolwire.testing.ScriptedModel(...)",
        valid=model is None or isinstance(model, str) or (is_model and not isinstance(model, type)),
    )


def _check_approver(approver: object) -> None:
    """Raise `TypeError` for an approver that can't be asked."""
    if approver is not None and not inspect.iscoroutinefunction(getattr(approver, "approve", None)):
        raise TypeError(f"approver={approver!r} is invalid: use an object with `name` and `async def approve`")


def _check_journal(journal: object) -> None:
    """Raise `TypeError` for a journal that is neither a store nor a place of one."""
    is_place = journal is None or isinstance(journal, Path | str | RunStore)
    require("journal", journal, "a path such as 'runs.db', or the URL of a database", valid=is_place)


def check_override(model: object, approver: object) -> None:
    """Raise `TypeError` for an object that can't be used as a model or an approver."""
    _check_model(model)
    _check_approver(approver)


def check_values(
    name: object,
    description: object,
    *,
    switches: Mapping[str, object],
    counts: Mapping[str, object],
) -> None:
    """Raise `TypeError` or `ValueError` for a text, a switch or a count that is something else."""
    require("name", name, "a non-empty string", valid=isinstance(name, str) and name != "")
    require_text("description", description)
    for option, value in switches.items():
        require_bool(option, value)
    for option, value in counts.items():
        require_integer(option, value, 0)


def check_run(*, facts: object, queue: object = None) -> None:
    """Raise `TypeError` for facts that are no texts, and a queue that is no name."""
    is_text_map = isinstance(facts, Mapping) and all(isinstance(one, str) for pair in facts.items() for one in pair)
    require("facts", facts, "a dict of strings", valid=facts is None or is_text_map)
    require("queue", queue, "the name of a queue", valid=queue is None or isinstance(queue, str))


def check_agent_options(
    *,
    model: object,
    policy: object,
    limits: object,
    approver: object,
    journal: object,
    lists: Mapping[str, Sequence[object]],
) -> None:
    """Raise `TypeError` for an option of the wrong type, which would fail in the middle of a run."""
    _check_model(model)
    if policy is not None and not isinstance(policy, Policy):
        raise TypeError(f"policy={policy!r} is invalid: use tw.Policy(allow=[...], ask=[...], deny=[...])")
    if limits is not None and not isinstance(limits, RunLimits):
        raise TypeError(f"limits={limits!r} is invalid: use tw.RunLimits(turns=..., tokens=...)")
    _check_approver(approver)
    _check_journal(journal)
    for name, values in lists.items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise TypeError(f"{name} must be a list: write {name}=[...]")
    for one in lists.get("handoffs", ()):
        if not hasattr(one, "handoffs"):
            raise TypeError(f"{one!r:.100} is no agent: write handoffs=[tw.Agent(...)]")
    for one in lists.get("hooks", ()):
        if not isinstance(one, Hooks):
            raise TypeError(f"{one!r} is no tw.Hooks: write hooks=[tw.Hooks(before_model=...)]")


def check_types(*, instructions: object, output: object, deps: object, **functions: object) -> None:
    """Raise `TypeError` for instructions that are no string, and for values that are no type or function."""
    for option, value in functions.items():
        require(option, value, "a function", valid=value is None or callable(value))
    if not isinstance(instructions, str) and not callable(instructions):
        raise TypeError(f"instructions={instructions!r:.100} is invalid: use a text, or a function of the RunContext")
    if not _is_type(output):
        raise TypeError(
            f"output={output!r} is invalid: use a type, such as a pydantic model, a dataclass or list[City]; "
            "for one of several types, City | Country"
        )
    if not _is_type(deps):
        raise TypeError(
            f"deps={deps!r} is invalid: an agent has the type of its dependencies, and each run gets a value: "
            f"Agent(deps={type(deps).__name__}), run(..., deps=...)"
        )


def check_deps(deps_type: object, deps: object) -> None:
    """Raise `TypeError` if a run lacks the dependencies that its agent declares."""
    if deps is None and isinstance(deps_type, type) and deps_type is not type(None):
        raise TypeError(f"the tools of this agent need a {deps_type.__name__}: pass run(..., deps=...)")


def _is_type(value: object) -> bool:
    """Return whether a value is a type or a type expression, such as `User | None`."""
    is_alias = hasattr(value, "__supertype__") or hasattr(value, "__value__")  # of `NewType` and `type`
    is_expression = typing.get_origin(value) is not None or value is Any
    return isinstance(value, type) or is_expression or is_alias
