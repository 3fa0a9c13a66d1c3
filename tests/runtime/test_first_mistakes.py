"""Mistakes of a first day, many by habits from other frameworks: each is an error that says what to write."""

import asyncio
import dataclasses
import functools
import inspect
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import toolwire as tw
from tests.support.assertions import non_empty
from toolwire.canonical.content import Media, Text
from toolwire.canonical.tools import FunctionTool
from toolwire.gateway.errors import RouteNotFound
from toolwire.gateway.in_process import open_model
from toolwire.testing import ScriptedModel, call, fail

PNG = b"\x89PNG\r\n\x1a\n" + bytes(24)
PDF = b"%PDF-1.7\n" + bytes(24)


@dataclasses.dataclass
class User:
    name: str


@tw.tool(read_only=True)
def weather(city: str) -> str:
    """The weather of a city."""
    return f"rain in {city}"


@tw.tool(read_only=True)
def who(context: tw.ToolContext[User]) -> str:
    """The user of a run."""
    return context.deps.name


def agent(*turns: Any, **options: Any) -> tw.Agent[Any, Any]:
    return tw.Agent(ScriptedModel(*(turns or ("Hello.",))), **options)


def run(prompt: Any = "Hi", **options: Any) -> tw.Run[Any]:
    return agent().run(prompt, **options)


def any_tool(**options: Any) -> Any:
    return tw.tool(**options)


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "output_type": (lambda: agent(output_type=User), r"unknown option 'output_type'; did you mean \"output\"\?"),
    "system_prompt": (lambda: agent(system_prompt="Be brief."), r"did you mean \"instructions\"\?"),
    "deps_type": (lambda: agent(deps_type=User), r"did you mean \"deps\"\?"),
    "mcp_servers": (lambda: agent(mcp_servers=[]), r"did you mean \"tools\"\?"),
    "model_settings": (lambda: agent(model_settings={}), "as a keyword: temperature, top_p"),
    "misspelled": (lambda: agent(instuctions="Be brief."), r"did you mean \"instructions\"\?"),
    "message_history": (lambda: run(message_history=[]), r"did you mean \"history\"\?"),
    "option of the agent": (
        lambda: run(system_prompt="Be brief."),
        r"option of the agent: tw.Agent\(instructions=...\)",
    ),
    "limits of a run": (lambda: run(limits=tw.RunLimits()), r"unknown option 'limits'; .*: tw.Agent\(limits=...\)"),
    "max_turns of a run": (lambda: run(max_turns=3), r"the agent: tw.Agent\(limits=tw.RunLimits\(turns=...\)\)"),
    "max_turns": (lambda: agent(max_turns=3), r"unknown option 'max_turns'; use limits=tw.RunLimits\(turns=...\)"),
    "usage_limits": (lambda: run(usage_limits=3), r"tw.Agent\(limits=tw.RunLimits\(requests=..., tokens=...\)\)"),
    "output_type of a run": (lambda: run(output_type=User), r"option of the agent: tw.Agent\(output=...\)"),
    "context": (lambda: run(context=User("Ada")), r"unknown option 'context'; did you mean \"deps\"\?"),
    "experimental_context": (lambda: agent(experimental_context=5), r"did you mean \"deps\"\?"),
    "middleware": (lambda: agent(middleware=[]), r"did you mean \"hooks\"\?"),
    "history is a run": (lambda: run(history=run()), "the `messages` of a run"),
    "prompt of messages": (
        lambda: run([{"role": "user", "content": "Hi"}]),
        "earlier messages go to `history`",
    ),
    "no prompt": (lambda: run(None), "a prompt is a text, or a list of texts and images, not None"),
    "bytes that are no image": (lambda: run(["Look", b"\0"]), "must be a PNG, JPEG, GIF or WebP image"),
    "prompt of bytes": (lambda: run(PNG), "a prompt is a text, or a list of texts and images, not bytes"),
    "one tool": (lambda: agent(tools=weather), r"tools must be a list: write tools=\[...\]"),
    "one hook": (lambda: agent(hooks=tw.Hooks()), r"hooks must be a list"),
    "hook without Hooks": (lambda: agent(hooks=[print]), r"write hooks=\[tw.Hooks\(before_model=...\)\]"),
    "policy of another type": (lambda: agent(policy=["weather"]), r"use tw.Policy\(allow="),
    "limits of another type": (lambda: agent(limits={"turns": 3}), r"use tw.RunLimits\("),
    "output is a value": (lambda: agent(output=User("Ada")), "use a type, such as a pydantic model"),
    "outputs in a list": (lambda: agent(output=[User, str]), r"for one of several types, City \| Country"),
    "deps is a value": (lambda: agent(deps=User("Ada")), r"Agent\(deps=User\), run\(..., deps=...\)"),
    "run without deps": (lambda: agent(tools=[who], deps=User).run("Hi"), "need a User: pass run"),
    "stream without deps": (lambda: agent(tools=[who], deps=User).stream("Hi"), "need a User: pass run"),
    "function as approver": (lambda: agent(approver=print), "use an object with `name` and `async def approve`"),
    "list of instructions": (lambda: agent(instructions=["Be brief."]), "use a text, or a function of the RunContext"),
    "no prepared tools": (
        lambda: agent(tools=[weather], prepare_tools=lambda *_: None).run("Hi"),
        "prepare_tools returned None: return the tools to offer",
    ),
    "option of a tool": (
        lambda: any_tool(read_onyl=True),
        r"unknown option 'read_onyl' of @tool; did you mean \"read_only\"",
    ),
    "another option of a tool": (
        lambda: any_tool(strict=True),
        "'strict' of @tool; its options are read_only, .*, preview",
    ),
    "approval of a tool": (lambda: any_tool(requires_approval=True), "all calls need approval, except those"),
    "fallbacks of a Model": (lambda: agent(fallbacks=["openai/gpt-5.5"]), "fallbacks need a model name"),
    "list as a turn": (lambda: ScriptedModel(["Hello."]), r"turn 1 of the script is \['Hello.'\]"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_a_type_error_that_says_what_to_write(mistake: str) -> None:
    make, message = MISTAKES[mistake]
    with pytest.raises(TypeError, match=message):
        make()


class Search:
    """A tool with state."""

    def __call__(self, query: str) -> str:
        """Search."""
        return query


def with_run_context(context: tw.RunContext[User]) -> str:
    """Return the user's name."""
    return context.deps.name


def with_missing_type(value: "Missing") -> str:  # type: ignore[name-defined]  # noqa: F821
    """Take a value of a type that is imported for type checkers only."""
    return str(value)


class Place:
    """A class that is no data type."""


def test_signature_of_the_decorator_shows_its_options() -> None:
    assert {"read_only", "timeout", "preview"} < set(inspect.signature(tw.tool).parameters)


def test_unsupported_type_is_an_error_with_its_tool_and_parameter() -> None:
    def find(city: str, place: Place) -> str:
        """Find a place."""
        return f"{city} {place}"

    with pytest.raises(tw.ToolwireError, match=r"find: parameter place: no JSON Schema for type .*Place"):
        agent(tools=[weather, find])
    with pytest.raises(tw.ToolwireError, match=r"weather: output_schema: no JSON Schema for type .*Place"):
        any_tool(name="weather", output_schema=Place)(lambda: None)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (tw.WebSearch, r"WebSearch is a class: pass an instance, WebSearch\(...\)"),
        ("weather", "'weather' is no tool: use a function"),
        ({"type": "function", "function": {"name": "weather"}}, "is no tool: use a function"),
        (lambda city: city, r"has no name: write tw.tool\(name=...\)\(function\)"),
        (Search(), r"has no name: write tw.tool\(name=...\)\(function\)"),
        (with_run_context, "annotate context with tw.ToolContext"),
        (
            with_missing_type,
            "with_missing_type: an annotation refers to a missing import: name 'Missing' is not defined",
        ),
    ],
)
def test_value_that_is_no_tool_is_an_error_that_says_what_to_write(source: Any, message: str) -> None:
    with pytest.raises(tw.ToolwireError, match=message):
        agent(tools=[source])


def test_two_agents_without_names_can_not_be_tools() -> None:
    with pytest.raises(tw.ToolwireError, match=r"duplicate tool name 'agent': pass Agent\(name=...\)"):
        agent(tools=[agent(), agent()])


def test_command_of_a_server_is_one_program() -> None:
    arguments: Any = {"command": ["npx", "-y", "notes"]}
    with pytest.raises(tw.ToolwireError, match="command is one program: put its arguments into `args`"):
        tw.mcp_server("notes", **arguments)


def wrong_arguments(_: tw.RunContext[Any], __: tw.ProposedCall) -> Any:
    return True


@pytest.mark.parametrize(
    ("hooks", "message"),
    [
        (tw.Hooks(before_model=lambda _, __: "no"), "the before_model hook returned 'no': return Request"),  # type: ignore[arg-type,return-value]
        (tw.Hooks(after_model=lambda _, __: False), "the after_model hook returned False: return Response or str"),  # type: ignore[arg-type,return-value]
        (tw.Hooks(before_tool=wrong_arguments), "the before_tool hook returned True: return dict or str"),
    ],
)
def test_hook_with_a_wrong_result_is_an_error(hooks: tw.Hooks, message: str) -> None:
    with pytest.raises(TypeError, match=f"{message}, or None for no change; to deny, raise tw.Denied"):
        agent(call("weather", city="Oslo"), "It rains.", tools=[weather], hooks=[hooks]).run("Hi")


def test_dependencies_may_be_optional() -> None:
    optional: Any = User | None
    assert agent(tools=[weather], deps=optional).run("Hi").text == "Hello."


def test_partial_functions_are_tools_without_the_arguments_they_have() -> None:
    def look_up(table: str, key: int = 1, *, database: User) -> str:
        """Look up a row.

        Args:
            key: of the row
        """
        return f"{table} {key} of {database.name}"

    source = functools.partial(look_up, "users", database=User("Ada"))
    policy = tw.Policy(allow=["look_up"])
    calls = agent(call("look_up", key=7), "Done.", tools=[source], policy=policy).run("Hi").calls
    assert [record.summary for record in calls] == ["users 7 of Ada"]
    model = ScriptedModel("Hello.")
    tw.Agent(model, tools=[source]).run("Hi")
    (tool,) = non_empty(model.requests[0].tools or ())
    assert isinstance(tool, FunctionTool)
    assert tool.description == "Look up a row."
    assert list(json.loads(bytes(tool.parameters or b"{}"))["properties"]) == ["key"]


def test_prompt_may_hold_images_and_files_as_bytes() -> None:
    model = ScriptedModel("A cat.")
    tw.Agent(model).run(["What is this?", PNG, PDF, Text(text="Be brief.")])
    parts = model.requests[0].messages[-1].parts
    assert [
        part.text if isinstance(part, Text) else part.media_type for part in parts if isinstance(part, Text | Media)
    ] == [
        "What is this?",
        "image/png",
        "application/pdf",
        "Be brief.",
    ]


def test_run_warns_of_a_tool_that_is_missing() -> None:
    """`run` reads the events itself, so that nobody would see them there."""
    servers = [tw.mcp_server("notes", command="no-such-program --flag")]
    with pytest.warns(
        tw.AgentWarning, match="MCP server 'notes' failed to start: .* \\(put its arguments into `args`\\)"
    ):
        run = agent(tools=servers).run("Hi")
    assert len(run.warnings) == 1
    with warnings.catch_warnings(action="error"):
        stream = agent(tools=[tw.mcp_server("notes", command="no-such-program")]).stream("Hi")
        events = list(stream)
    assert [event.text for event in events if isinstance(event, tw.RunWarning)] == stream.run.warnings
    assert len(stream.run.warnings) == 1


def test_stream_as_a_context_manager_cancels_the_rest_of_the_run(tmp_path: Path) -> None:
    ended: list[str] = []

    def on_response(_: tw.RunContext[Any], turn: tw.ModelTurn) -> None:
        ended.append(turn.text)

    hooks = [tw.Hooks(after_model=on_response)]
    with agent(call("weather", city="Oslo"), "It rains.", tools=[weather], hooks=hooks).stream("Hi") as stream:
        assert isinstance(next(iter(stream)), tw.RunStarted)
    assert (stream.run.stopped, ended) == ("cancelled", [])

    sessions = agent("Hello.", "Hello again.", journal=tmp_path / "runs.db")
    session = sessions.session("ada")
    with session.stream("Hi") as stream:
        next(iter(stream))
        with pytest.raises(tw.SessionInUse):
            session.run("Hi again")
    assert session.run("Hi again").ok, "the cancelled run has released the session"

    async def read_all() -> tw.Run[Any]:
        async with agent("Hello.").stream("Hi") as stream:
            assert [text async for text in stream.stream_text()] == ["Hello."]
        return stream.run

    assert asyncio.run(read_all()).stopped == "finished"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("openai:gpt-5.4", r"unknown model 'openai:gpt-5.4' \(did you mean \"openai/gpt-5.4\"\?\)"),
        ("anthropic:claude-sonnet-5", r"did you mean \"anthropic/claude-sonnet-5\"\?"),
        ("anthropic/claude-sonnet-5", r"unknown provider 'anthropic' .* \(set ANTHROPIC_API_KEY, or configure"),
        ("gpt5", r"unknown model 'gpt5' \(did you mean \"gpt-5.5\"\?\)"),
    ],
)
def test_model_that_no_provider_has_is_never_replaced_by_another(name: str, message: str) -> None:
    with pytest.raises(RouteNotFound, match=message):
        asyncio.run(open_model(name, environment={"OPENAI_API_KEY": "k" * 20, "HOME": "/nonexistent"}))


@pytest.mark.parametrize("name", ["pay", 3])
def test_decorator_takes_no_name_without_its_keyword(name: Any) -> None:
    with pytest.raises(tw.ToolwireError, match=r"@tool takes options by name, not .*: write @tw.tool\(name="):
        tw.tool(name)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (True, r"expected a list of rules, not allow=True: '\*' matches every tool"),
        ([weather], "a rule is a text such as"),
    ],
)
def test_rules_are_texts(rules: Any, message: str) -> None:
    with pytest.raises(tw.ToolwireError, match=message):
        tw.Policy(allow=rules)


class Answering:
    """An approver that gives one answer."""

    name = "desk"

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def approve(self, _: tw.ApprovalRequest) -> Any:
        return self._answer

    async def answer(self, _: str, __: tuple[str, ...] = ()) -> None:
        return None


@pytest.mark.parametrize("answer", [False, True, None, "", "deny", "Yes", 1, tw.ApprovalRequest])
def test_only_the_known_answers_of_an_approver_count(answer: Any) -> None:
    paid: list[int] = []

    def pay(amount: int) -> str:
        """Pay an amount."""
        paid.append(amount)
        return "paid"

    asking = agent(call("pay", amount=5), "Done.", tools=[pay], approver=Answering(answer))
    with pytest.raises(TypeError, match=r"desk.approve returned .*: return 'yes', 'no', 'always' or 'later'"):
        asking.run("Pay.")
    assert paid == []


def test_traceback_of_a_failed_function_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """The model gets the error, so that its author would never see where it came from."""

    @tw.tool(read_only=True, retries=1)
    def divide(a: int, b: int) -> float:
        """Divide."""
        return a / b

    run = agent(call("divide", a=1, b=0), "I can't.", tools=[divide]).run("Hi")
    assert (run.ok, run.calls[0].error) == (True, "crash")
    (record,) = caplog.records
    assert record.getMessage() == "tool divide failed; the model gets the error as its result"
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


def test_runs_show_how_they_ended() -> None:
    done, failed = agent("Hello.").run("Hi"), agent(fail("overloaded", "come back")).run("Hi", check=False)
    assert repr(done) == f"<Run {done.id}, finished: 'Hello.'>"
    assert repr(failed) == f"<Run {failed.id}, failed: 'come back'>"
    assert "in progress" in repr(agent().stream("Hi").run)
