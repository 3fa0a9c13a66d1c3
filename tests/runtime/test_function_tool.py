import asyncio
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import pytest
from pydantic import BaseModel, Field

from tests.support.runtime.scripted_agent import ALLOW_ALL, ScriptedApprover
from toolwire import Agent, ToolContext, tool
from toolwire.runtime.calls.approval import NoApprover
from toolwire.runtime.function_tool import InvalidToolFunction, as_tool
from toolwire.runtime.tool import RateLimit, ToolError
from toolwire.testing import ScriptedModel, call


class Point(msgspec.Struct):
    x: int
    y: int = 0


class Order(BaseModel):
    item: str = Field(min_length=2)
    count: int = 1


@dataclass
class Window:
    start: int
    end: int


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


def run(function: Any, arguments: Any) -> Any:
    converted = as_tool(function)
    context = ToolContext(run="r", id="c", tool=converted.name, idempotency_key="k", approver=NoApprover())

    async def call() -> Any:
        return await converted.run(arguments, context)

    return asyncio.run(call())


def test_signature_becomes_a_schema() -> None:
    def find(text: str, limit: int = 5, exact: bool | None = None, order: Literal["up", "down"] = "up") -> str:
        """Find a text.

        It looks everywhere.

        Args:
            text: what to look for
            limit (int): how many,
                at most
        """
        return text

    converted = as_tool(find)
    assert converted.name == "find"
    assert converted.description == "Find a text.\n\nIt looks everywhere."
    assert converted.parameters == {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "what to look for"},
            "limit": {"type": "integer", "description": "how many, at most", "default": 5},
            "exact": {"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": None},
            "order": {"enum": ["down", "up"], "default": "up"},
        },
        "additionalProperties": False,
        "required": ["text"],
    }


@pytest.mark.parametrize(
    "doc",
    [
        "Say.\n\n:param word: which word\n:returns: it",
        "Say.\n\n:param str word: which word",
        "Say.\n\nParameters\n----------\nword : str\n    which word\n\nReturns\n-------\nstr\n    it",
        "Say.\n\nArgs:\n    word: which word\n\nReturns:\n    it: said",
    ],
)
def test_all_docstring_styles_are_parsed(doc: str) -> None:
    def say(word: str) -> str:
        return word

    say.__doc__ = doc
    converted = as_tool(say)
    assert converted.description == "Say."
    assert converted.parameters["properties"] == {"word": {"type": "string", "description": "which word"}}


def test_arguments_are_converted_to_structs_models_and_dataclasses() -> None:
    def draw(at: Point, order: Order, window: Window, colour: Colour, many: list[Order]) -> Any:
        return [type(at).__name__, order.count, window.end, colour is Colour.BLUE, [one.item for one in many]]

    converted = as_tool(draw)
    assert {"Point", "Window", "Colour", "Order"} <= set(converted.parameters["$defs"])
    given = {
        "at": {"x": 1},
        "order": {"item": "ab", "count": 3},
        "window": {"start": 1, "end": 2},
        "colour": "blue",
        "many": [{"item": "cd"}],
    }
    assert run(draw, given) == ["Point", 3, 2, True, ["cd"]]


def test_conversion_error_names_the_argument() -> None:
    def order(what: Order) -> str:
        return what.item

    with pytest.raises(ToolError, match="/what") as caught:
        run(order, {"what": {"item": "x"}})
    assert caught.value.kind == "schema"


def test_functions_and_coroutine_functions_run() -> None:
    async def slow(n: int) -> int:
        await asyncio.sleep(0)
        return n + 1

    def fast(n: int) -> int:
        return n + 2

    assert run(slow, {"n": 1}) == 2
    assert run(fast, {"n": 1}) == 3


def test_context_parameter_is_passed_and_not_declared() -> None:
    def who(context: ToolContext, name: str) -> str:
        return f"{name} {context.run} {context.id}"

    assert list(as_tool(who).parameters["properties"]) == ["name"]
    assert run(who, {"name": "a"}) == "a r c"


def test_decorator_options_are_applied() -> None:
    @tool(
        name="look_up",
        description="Looks.",
        read_only=True,
        idempotent=True,
        timeout=3,
        rate=RateLimit(2, 1.0),
        output_schema=Point,
    )
    def look(key: Annotated[str, "which one"]) -> Point:
        return Point(1)

    converted = as_tool(look)
    assert (converted.name, converted.description, converted.timeout, converted.rate) == (
        "look_up",
        "Looks.",
        3,
        RateLimit(2, 1.0),
    )
    assert converted.annotations.read_only
    assert converted.annotations.idempotent
    assert not converted.annotations.destructive
    assert converted.parameters["properties"]["key"]["description"] == "which one"
    assert converted.output_schema is not None
    assert look("a") == Point(1)  # it is still the function


@pytest.mark.parametrize("bad", [lambda x: x, lambda *a: a])
def test_invalid_tool_function_error_has_a_reason(bad: Any) -> None:
    with pytest.raises(InvalidToolFunction):
        as_tool(bad)


def test_positional_parameters_are_refused_at_definition() -> None:
    with pytest.raises(InvalidToolFunction, match="can't be passed by name"):

        @tool
        def some(*items: int) -> int:
            return sum(items)


def test_options_for_approvals_and_retries_are_those_of_the_tool() -> None:
    """They existed on `Tool`, but not on `@tool`."""
    attempts = list[int]()

    @tool(
        idempotent=True,
        retries=1,
        preview=lambda arguments: f"pays {arguments['amount']}",
        approval_reason=lambda arguments: "it is much" if arguments["amount"] > 100 else None,
        requires_human=lambda arguments: arguments["amount"] > 1000,
        resources=lambda _: frozenset({"account"}),
        resumable=True,
    )
    def pay(amount: int) -> str:
        attempts.append(amount)
        raise OSError("busy")

    made = as_tool(pay)
    assert (made.retries, made.resumable, made.resources({}), made.requires_human({"amount": 2000})) == (
        1,
        True,
        frozenset({"account"}),
        True,
    )
    model = ScriptedModel(call("pay", amount=5), call("pay", amount=500), "done")
    approver = ScriptedApprover("no")
    agent = Agent(model, tools=[pay], policy=ALLOW_ALL, approver=approver)
    run = agent.run("Pay.")
    assert attempts == [5, 5]
    assert [(request.reason, request.preview) for request in approver.requests] == [("it is much", "pays 500")]
    assert [record.error for record in run.calls] == ["crash", "denied"]
