"""Losses: source paths resolve to JSON pointers, and foreign extras are always reported."""

from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.content import Message, Reasoning, ReasoningText, Signature, Text, ToolCall, ToolResult
from toolwire.canonical.errors import Loss
from toolwire.canonical.request import Request
from toolwire.canonical.tools import CacheMark, FunctionTool, Sampling, ToolChoice
from toolwire.codec.losses import LossReport, SourcePath, element_pointers, foreign_extras, node_fields, source_pointers

WIRE_NAMES = {
    "Message.parts": "/content",
    "Request.sampling": "",
    "Sampling.max_tokens": "/max_output",
    "ToolResult.call_id": "/tool_use_id",
    "FunctionTool.parameters": "/function/parameters",
    "ToolChoice.parallel": "//parallel_tool_calls",
}
EXTRA = {"x": Raw(b"1")}

REQUEST = Request(
    origin="acme",
    extras={"acme": {"metadata/user~1id": Raw(b"1")}, "other": {"y": Raw(b"[2, 3]")}},
    system=(Text(text="system", at="/instructions"),),
    tool_choice=ToolChoice(parallel=True),
    sampling=Sampling(max_tokens=1, temperature=1, stop=("a", "b"), wire_form=("acme:name:temperature=heat",)),
    tools=(FunctionTool(name="f", parameters=Raw(b"{}"), extras={"acme": {"a~1b~0c": Raw(b"3")}}),),
    messages=(
        Message(role="user", parts=(Text(text="a"), Text(text="b", at="/content")), at="/turns/3"),
        Message(
            role="assistant",
            parts=(
                Reasoning(
                    content=(ReasoningText(kind="full", text="t", at=""),),
                    signature=Signature(issuer="acme", data="s", kind="signature", at="/signature"),
                ),
                ToolCall(id="1", name="f", arguments="{}", wire_form=("acme:name:arguments=input",)),
            ),
        ),
        Message(
            role="user",
            parts=(
                ToolResult(
                    call_id="1",
                    content=(Text(text="c", extras={"acme": EXTRA}),),
                    extras={"acme": EXTRA},
                    wire_form=("acme:content:string",),
                ),
            ),
        ),
    ),
)


@pytest.mark.parametrize(
    ("source_path", "field", "path"),
    [
        ((), "", ""),
        ((), "model", "/model"),
        ((), "//metadata/user~1id", "/metadata/user~1id"),
        (("messages", 1), "", "/messages/1"),
        (("messages", 1), "role", "/messages/1/role"),
        (("messages", 1, "parts", 1), "", "/messages/1/content/1"),
        (("messages", 1, "parts", 1), "name", "/messages/1/content/1/name"),
        # The wire name that a decoder found overrides the usual one.
        (("messages", 1, "parts", 1), "arguments", "/messages/1/content/1/input"),
        (("sampling",), "temperature", "/heat"),
        # A group of canonical fields need not be an object on the wire.
        (("sampling",), "max_tokens", "/max_output"),
        # Its fields may be apart from each other, too.
        (("tool_choice",), "parallel", "/parallel_tool_calls"),
        # The position of a value (`at`) overrides all names.
        (("messages", 0), "role", "/turns/3/role"),
        (("messages", 0, "parts", 0), "text", "/turns/3/content/0/text"),
        (("messages", 0, "parts", 1), "text", "/turns/3/content/text"),
        (("system", 0), "", "/instructions"),
        (("messages", 1, "parts", 0, "content", 0), "", "/messages/1/content/0"),
        (("messages", 1, "parts", 0, "signature"), "", "/messages/1/content/0/signature"),
        (("messages", 1, "parts", 0, "signature"), "data", "/messages/1/content/0/signature/data"),
        (("messages", 2, "parts", 0), "call_id", "/messages/2/content/0/tool_use_id"),
        (("messages", 2, "parts", 0, "content", 0), "//x", "/messages/2/content/0/content/0/x"),
        (("tools", 0), "parameters", "/tools/0/function/parameters"),
        (("tools", 0), "//a~1b~0c", "/tools/0/a~1b~0c"),
        (("tools", 0), "//", "/tools/0/"),
    ],
)
def test_pointers(source_path: SourcePath, field: str, path: str) -> None:
    assert list(source_pointers(REQUEST, source_path, field, WIRE_NAMES)) == [path]


@pytest.mark.parametrize(
    ("source_path", "field", "paths"),
    [
        (("messages",), "", ["/turns/3", "/messages/1", "/messages/2"]),
        ((), "messages", ["/turns/3", "/messages/1", "/messages/2"]),
        ((), "system", ["/instructions"]),
        (("sampling",), "stop", ["/stop/0", "/stop/1"]),
        (("tool_choice",), "names", ["/tool_choice/names"]),
        # Unless it was not a list on the wire.
        (("messages", 2, "parts", 0), "content", ["/messages/2/content/0/content"]),
        (("messages", 0), "parts", ["/turns/3/content/0", "/turns/3/content"]),
    ],
)
def test_list_field_resolves_to_its_elements(source_path: SourcePath, field: str, paths: list[str]) -> None:
    assert list(source_pointers(REQUEST, source_path, field, WIRE_NAMES)) == paths


@pytest.mark.parametrize(
    ("value", "paths"),
    [
        ("1", ["x"]),
        ('{"a": [1]}', ["x"]),
        ("[]", ["x"]),
        ('[1, {"a": []}]', ["x/0", "x/1"]),
        ("[[1, 2], [], 3]", ["x/0/0", "x/0/1", "x/1", "x/2"]),
        ("[" * 600 + "]" * 600, ["x" + "/0" * 599]),
    ],
)
def test_nested_list_resolves_to_its_elements(value: str, paths: list[str]) -> None:
    assert list(element_pointers(Raw(value.encode()), "x")) == paths


def test_foreign_extras_are_found_at_any_depth() -> None:
    foreign = [(path, *fields) for path, _, fields in foreign_extras(REQUEST, ("other",))]
    assert foreign == [
        ((), "metadata/user~1id"),
        (("messages", 2, "parts", 0), "x"),
        (("messages", 2, "parts", 0, "content", 0), "x"),
        (("tools", 0), "a~1b~0c"),
    ]
    assert list(foreign_extras(REQUEST, ("acme",))) == [((), "other", {"y": Raw(b"[2, 3]")})]
    assert list(foreign_extras(REQUEST, ("acme", "other"))) == []


@pytest.mark.parametrize(
    ("node", "field"),
    [
        (node, field)
        for node in (
            Message(role="user", parts=()),
            Text(text=""),
            ToolCall(id="1", name="f", arguments="{}"),
            ToolResult(call_id="1"),
            FunctionTool(name="f"),
            Reasoning(),
        )
        for field in ("extras", *(node_fields(type(node)) or ()))
    ],
)
def test_extras_are_found_in_every_field_of_a_node(node: Any, field: str) -> None:
    extras = {"acme": {"x": Raw(b"1")}}
    is_list = field in ("parts", "content", "annotations")
    child = CacheMark(extras=extras)
    value: Any = extras if field == "extras" else (child,) if is_list else child
    request = Request(origin="acme", messages=(replace(node, **{field: value}), Text(text="")))  # type: ignore[arg-type]
    path: SourcePath = () if field == "extras" else (field, 0) if is_list else (field,)
    assert foreign_extras(request, ("other",)) == [(("messages", 0, *path), "acme", extras["acme"])]


def test_foreign_extras_are_reported_with_exact_pointers() -> None:
    report = LossReport()
    report.report_foreign_extras(REQUEST, ("other",))
    assert [(loss.kind, loss.path, loss.constraint) for loss in report.resolve(REQUEST, WIRE_NAMES)] == [
        ("dropped", "/metadata/user~1id", False),
        ("dropped", "/messages/2/content/0/x", False),
        ("dropped", "/messages/2/content/0/content/0/x", False),
        ("dropped", "/tools/0/a~1b~0c", False),
    ]


def test_foreign_list_is_reported_per_element() -> None:
    report = LossReport()
    report.report_foreign_extras(REQUEST, ("acme",))
    assert [loss.path for loss in report.resolve(REQUEST, WIRE_NAMES)] == ["/y/0", "/y/1"]


def test_constraint_extras_are_reported_as_constraints() -> None:
    root = Request(origin="acme", extras={"acme:constraint": {"a": Raw(b"1")}, "acme": {"b": Raw(b"1")}})
    report = LossReport()
    report.report_foreign_extras(root, ())
    assert [(loss.path, loss.constraint) for loss in report.resolve(root, WIRE_NAMES)] == [("/a", True), ("/b", False)]


def test_loss_kinds_resolve() -> None:
    report = LossReport()
    report.dropped(("tools", 0))
    report.approximated(("messages", 0), "role", "why")
    report.added(("messages", 1), "", "/messages/2", "because")
    report.dropped(("sampling",), "max_tokens", "never", constraint=True)
    assert report.resolve(REQUEST, WIRE_NAMES) == [
        Loss(
            severity="error",
            direction="request",
            kind="dropped",
            path="/tools/0",
            reason="the target has no such field",
        ),
        Loss(severity="warning", direction="request", kind="approximated", path="/turns/3/role", reason="why"),
        Loss(
            severity="warning",
            direction="request",
            kind="added",
            path="/messages/1",
            reason="because",
            target="/messages/2",
        ),
        Loss(
            severity="error", direction="request", kind="dropped", path="/max_output", reason="never", constraint=True
        ),
    ]


def test_losses_are_deduplicated_by_kind_and_path() -> None:
    report = LossReport()
    report.dropped((), "model", "first")
    report.dropped((), "model", "second")
    report.approximated((), "model", "another kind")
    assert [loss.reason for loss in report.resolve(REQUEST, WIRE_NAMES)] == ["first", "another kind"]


@pytest.mark.parametrize("constraints", [(True, False), (False, True)])
def test_constraint_wins_regardless_of_order(constraints: tuple[bool, bool]) -> None:
    report = LossReport()
    for constraint in constraints:
        report.dropped((), "model", constraint=constraint)
    (loss,) = report.resolve(REQUEST, WIRE_NAMES)
    assert loss.constraint


def test_approximated_field_is_not_reported_as_dropped() -> None:
    report = LossReport()
    report.dropped(("sampling",), "max_tokens")
    report.approximated(("sampling",), "max_tokens", "one more")
    report.dropped(("sampling",), "temperature")
    assert [(loss.kind, loss.path) for loss in report.resolve(REQUEST, WIRE_NAMES)] == [
        ("approximated", "/max_output"),
        ("dropped", "/heat"),
    ]
