"""Decoding wire objects: typed and tolerant decoding agree, everything round-trips, and errors have a path."""

import json
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw, UnsetType, field

from toolwire.canonical.errors import DecodeError
from toolwire.canonical.node import Node
from toolwire.codec.wire import reader as reader_module
from toolwire.codec.wire.extras import (
    as_dict,
    collect_extras,
    encode_with_extras,
    merge_extras,
    restore_extras,
    unescape_pointer,
)
from toolwire.codec.wire.reader import (
    Extra,
    Reader,
    UnknownVariant,
    WireObject,
    decode_json,
    describe_json,
    escape_pointer,
    tag_of,
)

FAMILY = "acme"


class Leaf(WireObject, tag="leaf"):
    text: str
    level: Literal["low", "high"] | UnsetType = UNSET


class Branch(WireObject, tag="branch"):
    children: "list[Leaf | Branch]"
    note: str | UnsetType | None = UNSET


class Options(WireObject):
    count: int | UnsetType = UNSET
    ratio: int | float | UnsetType | None = UNSET
    words: list[str] | UnsetType = UNSET


class Body(WireObject):
    model: str
    tree: list[Leaf | Branch] | UnsetType = UNSET
    content: str | list[Leaf | Branch] | UnsetType = UNSET
    options: Options | UnsetType = UNSET
    flag: bool | UnsetType | None = UNSET
    asynchronous: bool | UnsetType | None = field(default=UNSET, name="async")
    schema: Raw | UnsetType = UNSET
    known_only: Extra = field(default=UNSET, name="known-only")
    anything: Any = UNSET


READER = Reader[Body](Body, FAMILY)
COMPLETE: dict[str, Any] = {
    "model": "m",
    "tree": [{"type": "leaf", "text": "a", "level": "low"}, {"type": "branch", "children": [], "note": None}],
    "content": "text",
    "options": {"count": 3, "ratio": 0.5, "words": ["a"]},
    "flag": None,
    "async": None,
    "schema": {"type": "object"},
    "known-only": [1, None],
    "anything": {"at": ["all"]},
}

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
LEAVES = st.fixed_dictionaries(
    {"type": st.just("leaf"), "text": st.text(max_size=4)}, optional={"level": st.sampled_from(["low", "high"])}
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.fixed_dictionaries(
        {"type": st.just("branch"), "children": st.lists(inner, max_size=3)}, optional={"note": st.none() | st.text()}
    ),
    max_leaves=4,
)
BODIES = st.fixed_dictionaries(
    {"model": st.text(max_size=4)},
    optional={
        "tree": st.lists(TREES, max_size=3),
        "content": st.text(max_size=4) | st.lists(TREES, max_size=2),
        "options": st.fixed_dictionaries(
            {},
            optional={
                "count": st.integers(0, 9),
                "ratio": st.none() | st.integers(0, 9) | st.floats(0, 1),
                "words": st.lists(st.text(max_size=3), max_size=2),
            },
        ),
        "flag": st.none() | st.booleans(),
        "async": st.none() | st.booleans(),
        "schema": JSON,
        "known-only": JSON,
        "anything": JSON,
    },
)
NEW_NAMES = st.sampled_from(["new", "a/b", "~", "~1", "", "\x7funknown", "\x7fnulls", "acme:null:x"])


def encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def plain(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value))


def round_trip(body: Body) -> Any:
    """Encode a decoded body again by way of canonical values, as a protocol does for each object."""
    wire = msgspec.structs.replace(body, unknown=UNSET, nulls=UNSET, known_only=UNSET)
    if isinstance(body.options, Options):
        options = encode_with_extras(
            msgspec.structs.replace(body.options, unknown=UNSET, nulls=UNSET),
            Node(**collect_extras(body.options, FAMILY)),
            FAMILY,
        )
        return encode_with_extras(wire, Node(**collect_extras(body, FAMILY)), FAMILY), options
    return encode_with_extras(wire, Node(**collect_extras(body, FAMILY)), FAMILY), None


# ---- decoding


@settings(deadline=None)
@given(BODIES)
def test_typed_and_tolerant_decoding_agree(body: Any) -> None:
    typed, exact = READER.read_with_exactness(encoded(body))
    assert exact
    assert READER._open_read(Raw(encoded(body)), "") == typed


@settings(deadline=None)
@given(BODIES, NEW_NAMES, JSON)
def test_unknown_field_is_kept_and_changes_nothing_else(body: Any, name: str, value: Any) -> None:
    typed = READER.read(encoded(body))
    opened, exact = READER.read_with_exactness(encoded({**body, name: value}))
    assert not exact
    assert isinstance(opened.unknown, dict)
    assert {key: json.loads(bytes(raw)) for key, raw in opened.unknown.items()} == {name: value}
    assert msgspec.structs.replace(opened, unknown=UNSET) == typed


def test_whitespace_around_the_body_is_ignored() -> None:
    reader = Reader[Any](Leaf | Branch, FAMILY)
    body = b' \r\n\t{"type": "leaf", "text": "a", "new": 1} \n'
    assert reader.read(body) == Leaf(text="a", unknown=reader_module.UnknownFields(new=Raw(b"1")))


def test_escaped_tag_is_recognized() -> None:
    reader = Reader[Any](Leaf | Branch, FAMILY)
    assert reader.read(b'{"type": "le\\u0061f", "text": "a", "new": 1}').text == "a"


def test_optional_field_of_wrong_type_is_kept_verbatim() -> None:
    body = READER.read(encoded({"model": "m", "flag": "yes", "options": {"count": "3", "ratio": []}}))
    assert body.flag is UNSET
    assert body.unknown == {"flag": Raw(b'"yes"')}
    assert isinstance(body.options, Options)
    assert body.options == Options(unknown=reader_module.UnknownFields(count=Raw(b'"3"'), ratio=Raw(b"[]")))


def test_unexpected_null_is_recorded() -> None:
    body = READER.read(encoded({"model": "m", "tree": None, "options": {"count": None, "ratio": None}}))
    assert body.tree is UNSET
    assert body.nulls == ("tree",)
    assert body.options == Options(ratio=None, nulls=reader_module.NullFields(["count"]))


def test_element_with_unknown_tag_is_kept_verbatim() -> None:
    new = {"type": "flower", "petals": 5}
    tree = [COMPLETE["tree"][0], new, {"type": "branch", "children": [new]}]
    body: Any = READER.read(encoded({"model": "m", "tree": tree, "content": [new]}))
    assert body.tree[0] == Leaf(text="a", level="low")
    assert body.tree[1] == UnknownVariant("flower", Raw(encoded(new)), "/tree/1")
    assert body.tree[2] == Branch(children=[UnknownVariant("flower", Raw(encoded(new)), "/tree/2/children/0")])  # type: ignore[list-item]
    assert body.content == [UnknownVariant("flower", Raw(encoded(new)), "/content/0")]


@pytest.mark.parametrize(
    ("body", "path", "expected", "got"),
    [
        ({}, "/model", "a value", "nothing"),
        ({"model": None}, "/model", "a string", "null"),
        ({"model": 1}, "/model", "a string", "1"),
        ({"model": {}}, "/model", "a string", "an object"),
        ([], "", "an object", "an array"),
        ("m" * 60, "", "an object", '"' + "m" * 39 + "..."),
        # An optional field with a structure must have that structure.
        ({"model": "m", "options": {"words": {}}}, "/options/words", "an array", "an object"),
        ({"model": "m", "options": []}, "/options", "an object", "an array"),
        ({"model": "m", "options": {"words": ["a", 1]}}, "/options/words/1", "a string", "1"),
        ({"model": "m", "tree": [{}]}, "/tree/0/type", "a string", "nothing"),
        ({"model": "m", "tree": [{"type": 1}]}, "/tree/0/type", "a string", "nothing"),
        ({"model": "m", "tree": [1]}, "/tree/0", "an object", "1"),
        ({"model": "m", "tree": [{"type": "leaf"}]}, "/tree/0/text", "a value", "nothing"),
        (
            {"model": "m", "tree": [{"type": "branch", "children": [{"type": "leaf", "text": []}]}]},
            "/tree/0/children/0/text",
            "a string",
            "an array",
        ),
        ({"model": "m", "content": [{"type": "leaf"}]}, "/content/0/text", "a value", "nothing"),
    ],
)
def test_decode_error_has_the_exact_path(body: Any, path: str, expected: str, got: str) -> None:
    with pytest.raises(DecodeError) as caught:
        READER.read(encoded(body))
    assert (caught.value.protocol, caught.value.path) == (FAMILY, path)
    assert (caught.value.expected, caught.value.got) == (expected, got)
    with pytest.raises(DecodeError) as below:
        READER.read(encoded(body), "/outer")
    assert below.value.path == "/outer" + path


@pytest.mark.parametrize(
    ("data", "expected", "got"),
    [
        (b"", "JSON", "Input data was truncated"),
        (b'{"model": ', "JSON", "Input data was truncated"),
        (b'{"model": "m"} x', "JSON", "trailing characters"),
        (b'{"model": "\xff"}', "UTF-8", "byte 0xff at offset 11"),
        (b"\xef\xbb\xbf{}", "JSON", "JSON is malformed"),
        (b"[" * 100_000, "bounded nesting", "nested too deeply"),
    ],
)
def test_invalid_json_is_distinguished(data: bytes, expected: str, got: str) -> None:
    with pytest.raises(DecodeError) as caught:
        READER.read(data)
    assert caught.value.path == ""
    assert caught.value.expected == expected
    assert got in caught.value.got


def test_body_size_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "LIMIT_BYTES", 20)
    assert READER.read(b'{"model": "m"}').model == "m"
    with pytest.raises(DecodeError, match="at most 20 bytes, got 31 bytes"):
        READER.read(b'{"model": "m",     "new": true}')


def test_wrong_tag_is_rejected() -> None:
    with pytest.raises(DecodeError) as caught:
        Reader[Leaf](Leaf, FAMILY).read(b'{"type": "branch", "text": "a"}')
    assert (caught.value.path, caught.value.expected, caught.value.got) == ("/type", '"leaf"', '"branch"')


@pytest.mark.parametrize(
    ("text", "tag"), [('{"type": "a"}', "a"), ("{}", None), ('{"type": 1}', None), ("[]", None), ("1", None)]
)
def test_tags(text: str, tag: str | None) -> None:
    assert tag_of(Raw(text.encode())) == tag


@pytest.mark.parametrize(
    ("text", "short"), [("{}", "an object"), ("[1]", "an array"), ("null", "null"), ("", "nothing")]
)
def test_values_are_described_briefly(text: str, short: str) -> None:
    assert describe_json(Raw(text.encode())) == short


# ---- encoding


@settings(deadline=None)
@given(BODIES, st.dictionaries(NEW_NAMES, JSON, max_size=3), st.sets(st.sampled_from(["tree", "content"])))
def test_unknown_fields_and_nulls_round_trip(body: Any, new: Any, nulls: set[str]) -> None:
    body = {**body, **dict.fromkeys(nulls), **new}
    if "options" in body:
        body["options"] = {**body["options"], **new, "count": None}
    wire, options = round_trip(READER.read(encoded(body)))
    assert plain(wire) | ({} if options is None else {"options": plain(options)}) == body


def test_value_without_extras_is_encoded_unchanged() -> None:
    leaf = Leaf(text="a")
    assert collect_extras(leaf, FAMILY) == {}
    for node in (
        None,
        Node(),
        Node(extras={"other": {"new": Raw(b"1")}}, wire_form=("acme:spelling", "other:null:level")),
    ):
        assert encode_with_extras(leaf, node, FAMILY) is leaf
    assert collect_extras(leaf, FAMILY, "acme:spelling") == {"wire_form": ("acme:spelling",)}


def test_extras_are_keyed_by_wire_name() -> None:
    body = READER.read(encoded({**COMPLETE, "a/b~c": 1, "content": None}))
    assert collect_extras(body, FAMILY, "acme:spelling") == {
        "extras": {FAMILY: {"known-only": Raw(b"[1, null]"), "a~1b~0c": Raw(b"1")}},
        "wire_form": ("acme:spelling", "acme:null:flag", "acme:null:async", "acme:null:content"),
    }
    assert collect_extras(body, FAMILY, prefix="part/") == {
        "extras": {FAMILY: {"part/known-only": Raw(b"[1, null]"), "part/a~1b~0c": Raw(b"1")}},
        "wire_form": ("acme:null:part/flag", "acme:null:part/async", "acme:null:part/content"),
    }


def test_extras_of_several_objects_are_merged() -> None:
    first = {"extras": {"a": {"x": Raw(b"1")}}, "wire_form": ("f",)}
    second = {"extras": {"a": {"y": Raw(b"2")}, "b": {"z": Raw(b"3")}}, "wire_form": ("g",)}
    both = {"extras": {"a": {"x": Raw(b"1"), "y": Raw(b"2")}, "b": {"z": Raw(b"3")}}, "wire_form": ("f", "g")}
    assert merge_extras(first, {}, {"extras": None}, second) == both
    assert first["extras"] == {"a": {"x": Raw(b"1")}}
    assert merge_extras() == {"extras": None, "wire_form": ()}


@pytest.mark.parametrize(
    ("out", "key", "expected"),
    [
        ({}, "new", {"new": 1}),
        ({"new": 0}, "new", {"new": 0}),
        ({}, "a/new", {"a": {"new": 1}}),
        ({"a": None}, "a/new", {"a": {"new": 1}}),
        ({"a": {"b": 0}}, "a/new", {"a": {"b": 0, "new": 1}}),
        ({"a": Options(count=0)}, "a/new", {"a": {"count": 0, "new": 1}}),
        ({"a": Raw(b'{"b": 0}')}, "a/new", {"a": {"b": 0, "new": 1}}),
        ({"a": "text"}, "a/new", {"a": "text"}),
        ({"a": Raw(b"[0]")}, "a/new", {"a": [0]}),
        ({}, "a~1b/c~0d", {"a/b": {"c~d": 1}}),
        ({}, "", {"": 1}),
    ],
)
def test_existing_members_win_over_extras(out: dict[str, Any], key: str, expected: Any) -> None:
    node = Node(extras={FAMILY: {key: Raw(b"1")}, "other": {"not": Raw(b"1")}})
    assert plain(restore_extras(out, node, FAMILY)) == expected


def test_nulls_are_restored() -> None:
    node = Node(wire_form=("acme:null:a", "acme:null:b/c", "other:null:d", "acme:spelling"))
    assert restore_extras({"a": 0}, node, FAMILY) == {"a": 0, "b": {"c": None}}
    assert restore_extras({"a": 0}, None, FAMILY) == {"a": 0}


def test_as_dict_uses_wire_names() -> None:
    body = Body(model="m", asynchronous=True, tree=[Leaf(text="a")], unknown=reader_module.UnknownFields(new=Raw(b"1")))
    assert as_dict(body) == {"model": "m", "async": True, "tree": [Leaf(text="a")]}
    assert as_dict(Leaf(text="a")) == {"type": "leaf", "text": "a"}


@settings(deadline=None)
@given(st.text(st.sampled_from("~/01a")))
def test_pointer_escaping_round_trips(name: str) -> None:
    assert "/" not in escape_pointer(name)
    assert unescape_pointer(escape_pointer(name)) == name


@pytest.mark.parametrize("number", [b"1e999", b"-1e400", b"9" * 5000])
def test_a_number_that_python_cannot_hold_is_kept_as_it_is_written(number: bytes) -> None:
    text = b'{"a":[%b,1.5,"x"],"b":{"c":%b}}' % (number, number)
    assert msgspec.json.encode(decode_json(b" " + text)) == text
    assert msgspec.json.encode(decode_json(text.decode())) == text


@pytest.mark.parametrize("text", [b"[1e999,]", b'{"a":1e999', b'[1e999,"\\ud83d"]'])
def test_text_that_is_no_json_is_refused_also_behind_such_a_number(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_json(text)
