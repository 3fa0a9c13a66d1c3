"""Stubs of tools: typed functions, in which descriptions are only comments."""

import ast
import keyword
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.canonical.tools import Grammar
from toolwire.runtime.sandbox.code.description import HELPER_STUBS, STUB_IMPORTS, make_stubs
from toolwire.runtime.tool import Tool, ToolContext


async def do_nothing(arguments: Any, calling: ToolContext) -> None: ...


def tool(name: str, **more: Any) -> Tool:
    return Tool(name=name, run=do_nothing, **more)


def schema(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), **more}


def code(one: Tool) -> str:
    (stub,) = make_stubs([one]).values()
    return stub.declaration


def test_arguments_are_named_and_typed() -> None:
    kinds = {"a": "string", "b": "integer", "c": "number", "d": "boolean"}
    properties: dict[str, Any] = {name: {"type": kind} for name, kind in kinds.items()}
    properties["e"] = {"type": "array", "items": {"type": "string"}}
    properties["f"] = {"type": "object", "properties": {"x": {"type": "string"}}}
    properties["g"] = {"type": ["string", "null"]}
    properties["h"] = {"anyOf": [{"type": "string"}]}
    assert code(tool("f", parameters=schema(properties, "a", "e"))) == (
        "async def f(*, a: str, b: int = ..., c: float = ..., d: bool = ..., e: Sequence[str], "
        "f: Mapping[str, Any] = ..., g: str | None = ..., h: Any = ...) -> Any: ..."
    )


def test_results_are_typed_by_their_schema() -> None:
    row = schema({"id": {"type": "integer"}, "state": {"enum": ["open", "done"]}}, "id")
    output_schema = {"type": "object", "properties": {"rows": {"type": "array", "items": {"$ref": "#/$defs/row"}}}}
    stub_code = code(tool("list_rows", output_schema={**output_schema, "required": ["rows"], "$defs": {"row": row}}))
    assert stub_code.splitlines() == [
        "class Result_list_rows(TypedDict):",
        "    id: int",
        "    state: NotRequired[Literal['open', 'done']]",
        "class Result_list_rows_1(TypedDict):",
        "    rows: list[Result_list_rows]",
        "async def list_rows() -> Result_list_rows_1: ...",
    ]


def test_arguments_without_python_names_are_one_mapping() -> None:
    assert "(arguments: Mapping[str, Any], /)" in code(tool("f", parameters=schema({"from": {}})))
    assert "(arguments: Mapping[str, Any], /)" in code(tool("f", parameters=schema({"x-y": {}})))
    assert "(input: str, /)" in code(tool("f", grammar=Grammar(syntax="regex", definition="a+")))


def test_additional_properties_are_allowed() -> None:
    assert "(*, a: Any = ..., **others: Any)" in code(
        tool("f", parameters=schema({"a": {}}, additionalProperties=True))
    )


def test_names_become_legal_and_shadow_nothing() -> None:
    tools = [
        tool(name)
        for name in ("slack-send.message", "slack_send_message", "print", "class", "7zip", "asyncio", "__x__")
    ]
    tools += [tool("search_tools"), tool("Any"), tool("ﬁle"), tool("")]
    stubs = make_stubs(tools)
    assert [stub.tool for stub in stubs.values()] == [one.name for one in tools]
    assert list(stubs)[:7] == [
        "slack_send_message", "slack_send_message_2", "print_2", "class_2", "tool_7zip", "asyncio_2", "tool_x",
    ]  # fmt: skip
    assert all(name.isidentifier() and name.isascii() and not keyword.iskeyword(name) for name in stubs)
    assert not stubs.keys() & {*HELPER_STUBS, "Any", "print", "asyncio"}


@given(
    name=st.text(max_size=40),
    description=st.text(max_size=200),
    properties=st.dictionaries(st.text(max_size=20), st.fixed_dictionaries({"description": st.text(max_size=80)})),
    values=st.lists(st.none() | st.text(max_size=20) | st.integers(), max_size=4),
)
def test_tool_descriptions_never_become_code(name: str, description: str, properties: Any, values: Any) -> None:
    given_back = schema({"kind": {"enum": values}})
    one = tool(name, description=description, parameters=schema(properties), output_schema=given_back)
    ((identifier, stub),) = make_stubs([one]).items()
    declared = ast.parse(STUB_IMPORTS + stub.declaration).body[2:]
    assert [type(node) for node in declared] == [ast.ClassDef, ast.AsyncFunctionDef]
    assert ast.dump(ast.parse(stub.description)) != ""
    statements = ast.parse(stub.description).body
    assert {node.name for node in statements if isinstance(node, ast.AsyncFunctionDef)} == {identifier}
    assert len(statements) == 2


@pytest.mark.parametrize(
    "hostile",
    [
        {"type": "object", "properties": {f"p{number}": {} for number in range(100_000)}},
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"type": "array", "items": {"$ref": "#"}},
        {"anyOf": [{"anyOf": [{"$ref": "#"}] * 8}] * 8},
        {"enum": ["x" * 10_000] * 40},
        {"properties": [], "type": "object"},
        {"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}, "c": {"$ref": "#"}}},
        {"type": 7},
        {"type": [[]]},
    ],
)
def test_stub_size_is_limited_for_any_schema(hostile: dict[str, Any]) -> None:
    stub_code = code(tool("f", parameters=hostile, output_schema=hostile))
    assert len(stub_code) < 60_000
    assert isinstance(ast.parse(STUB_IMPORTS + stub_code).body[-1], ast.AsyncFunctionDef)
