"""Losses: a trail through canonical values becomes a pointer into the source, and nothing foreign goes unclaimed."""

import pytest
from msgspec import Raw

from toolwire.canonical.content import Message, Reasoning, ReasoningText, Signature, Text, ToolCall, ToolResult
from toolwire.canonical.loss import Loss
from toolwire.canonical.request import Request
from toolwire.canonical.tools import FunctionTool, Sampling, ToolChoice
from toolwire.codec.losses import LossReport, SourcePath, element_pointers, foreign_extras, source_pointers

NAMES = {
    "Message.parts": "/content",
    "Request.sampling": "",
    "Sampling.max_tokens": "/max_output",
    "ToolResult.call_id": "/tool_use_id",
    "FunctionTool.parameters": "/function/parameters",
    "ToolChoice.parallel": "//parallel_tool_calls",
}
KEPT = {"x": Raw(b"1")}

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
                    content=(Text(text="c", extras={"acme": KEPT}),),
                    extras={"acme": KEPT},
                    wire_form=("acme:content:string",),
                ),
            ),
        ),
    ),
)


@pytest.mark.parametrize(
    ("trail", "field", "path"),
    [
        ((), "", ""),
        ((), "model", "/model"),
        ((), "//metadata/user~1id", "/metadata/user~1id"),
        (("messages", 1), "", "/messages/1"),
        (("messages", 1), "role", "/messages/1/role"),
        (("messages", 1, "parts", 1), "", "/messages/1/content/1"),
        (("messages", 1, "parts", 1), "name", "/messages/1/content/1/name"),
        # The wire name that a decoder met goes before the usual one.
        (("messages", 1, "parts", 1), "arguments", "/messages/1/content/1/input"),
        (("sampling",), "temperature", "/heat"),
        # A group of canonical fields need not be an object on the wire.
        (("sampling",), "max_tokens", "/max_output"),
        # Nor need its fields stand together there.
        (("tool_choice",), "parallel", "/parallel_tool_calls"),
        # A value's own place goes before all names.
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
def test_pointers(trail: SourcePath, field: str, path: str) -> None:
    assert list(source_pointers(REQUEST, trail, field, NAMES)) == [path]


@pytest.mark.parametrize(
    ("trail", "field", "paths"),
    [
        (("messages",), "", ["/turns/3", "/messages/1", "/messages/2"]),
        ((), "messages", ["/turns/3", "/messages/1", "/messages/2"]),
        ((), "system", ["/instructions"]),
        (("sampling",), "stop", ["/stop/0", "/stop/1"]),
        (("tool_choice",), "names", ["/tool_choice/names"]),
        # Unless it was no list on the wire.
        (("messages", 2, "parts", 0), "content", ["/messages/2/content/0/content"]),
        (("messages", 0), "parts", ["/turns/3/content/0", "/turns/3/content"]),
    ],
)
def test_a_list_is_named_by_its_elements(trail: SourcePath, field: str, paths: list[str]) -> None:
    assert list(source_pointers(REQUEST, trail, field, NAMES)) == paths


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
def test_a_list_of_any_depth_is_named_by_its_elements(value: str, paths: list[str]) -> None:
    assert list(element_pointers(Raw(value.encode()), "x")) == paths


def test_extras_of_other_families_are_found_wherever_they_are() -> None:
    found = [(trail, *kept) for trail, _, kept in foreign_extras(REQUEST, ("other",))]
    assert found == [
        ((), "metadata/user~1id"),
        (("messages", 2, "parts", 0), "x"),
        (("messages", 2, "parts", 0, "content", 0), "x"),
        (("tools", 0), "a~1b~0c"),
    ]
    assert list(foreign_extras(REQUEST, ("acme",))) == [((), "other", {"y": Raw(b"[2, 3]")})]
    assert list(foreign_extras(REQUEST, ("acme", "other"))) == []


def test_unclaimed_extras_are_losses_by_their_exact_place() -> None:
    report = LossReport()
    report.report_foreign_extras(REQUEST, ("other",))
    assert [(loss.kind, loss.path, loss.constraint) for loss in report.resolve(REQUEST, NAMES)] == [
        ("dropped", "/metadata/user~1id", False),
        ("dropped", "/messages/2/content/0/x", False),
        ("dropped", "/messages/2/content/0/content/0/x", False),
        ("dropped", "/tools/0/a~1b~0c", False),
    ]


def test_an_unclaimed_list_is_told_element_by_element() -> None:
    report = LossReport()
    report.report_foreign_extras(REQUEST, ("acme",))
    assert [loss.path for loss in report.resolve(REQUEST, NAMES)] == ["/y/0", "/y/1"]


def test_what_is_guarded_may_not_be_dropped() -> None:
    root = Request(origin="acme", extras={"acme:constraint": {"a": Raw(b"1")}, "acme": {"b": Raw(b"1")}})
    report = LossReport()
    report.report_foreign_extras(root, ())
    assert [(loss.path, loss.constraint) for loss in report.resolve(root, NAMES)] == [("/a", True), ("/b", False)]


def test_each_kind_of_loss() -> None:
    report = LossReport()
    report.dropped(("tools", 0))
    report.approximated(("messages", 0), "role", "why")
    report.added(("messages", 1), "", "/messages/2", "because")
    report.dropped(("sampling",), "max_tokens", "never", constraint=True)
    assert report.resolve(REQUEST, NAMES) == [
        Loss(kind="dropped", path="/tools/0", reason="the target has no counterpart"),
        Loss(kind="approximated", path="/turns/3/role", reason="why"),
        Loss(kind="added", path="/messages/1", reason="because", target="/messages/2"),
        Loss(kind="dropped", path="/max_output", reason="never", constraint=True),
    ]


def test_one_place_is_told_once() -> None:
    report = LossReport()
    report.dropped((), "model", "first")
    report.dropped((), "model", "second")
    report.approximated((), "model", "another kind")
    assert [loss.reason for loss in report.resolve(REQUEST, NAMES)] == ["first", "another kind"]


@pytest.mark.parametrize("guards", [(True, False), (False, True)])
def test_a_guard_holds_whoever_reported_first(guards: tuple[bool, bool]) -> None:
    report = LossReport()
    for guarded in guards:
        report.dropped((), "model", constraint=guarded)
    (loss,) = report.resolve(REQUEST, NAMES)
    assert loss.constraint


def test_what_is_told_in_other_words_is_not_dropped() -> None:
    report = LossReport()
    report.dropped(("sampling",), "max_tokens")
    report.approximated(("sampling",), "max_tokens", "one more")
    report.dropped(("sampling",), "temperature")
    assert [(loss.kind, loss.path) for loss in report.resolve(REQUEST, NAMES)] == [
        ("approximated", "/max_output"),
        ("dropped", "/heat"),
    ]
