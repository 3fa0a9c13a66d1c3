"""Positions of keys in TOML: every form of key and value, and any document that `tomllib` accepts."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.gateway.config.positions import KeyPath, KeyPositions

DOCUMENT = """\
# a comment with [brackets] and key = 1
title = "x" # [no]
dotted . key."quoted.key".'literal "key"' = 1
"escaped \\u00e9\\"]" = 2
text = \"\"\"
[not.a.table]
not_a_key = "\\"" \\"\"" ""x\"\"\"\"\"
raw = '''
[nor.this]
it''s'''''
empty = ""
date = 1979-05-27 07:32:00Z
array = [ 1, # ]
  [ "]", '}' ], { inner = { deep = [ {} , { last = 1 } ] } },
]

[a.b]
c = 1
[[fruit]]
name = "apple"
[fruit.physical]
color = "red"
[[fruit.kinds]]
name = "one"
[[fruit.kinds]]
name = "two"
[[fruit]]
[[ fruit . kinds ]]
name = "three"
[a]
d = inf
"""


def paths(value: Any, path: KeyPath = ()) -> set[KeyPath]:
    """Return the path of every key and element."""
    if not isinstance(value, dict | list):
        return set()
    members = value.items() if isinstance(value, dict) else enumerate(value)
    return {found for key, inner in members for found in ((*path, key), *paths(inner, (*path, key)))}


@pytest.mark.parametrize("text", [DOCUMENT, DOCUMENT.replace("\n", "\r\n"), "", "a=1", "\n#"])
def test_every_key_is_found(text: str) -> None:
    assert KeyPositions(text).paths == paths(tomllib.loads(text))


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        (("title",), (2, 1), (2, 9)),
        (("dotted", "key"), (3, 10), (3, 45)),
        (("dotted", "key", "quoted.key", 'literal "key"'), (3, 27), (3, 45)),
        (('escaped é"]',), (4, 1), (4, 23)),
        (("array", 1, 1), (14, 10), (14, 10)),
        (("array", 2, "inner", "deep", 1, "last"), (14, 45), (14, 52)),
        (("a", "b", "c"), (18, 1), (18, 5)),
        (("fruit", 0, "physical", "color"), (22, 1), (22, 9)),
        (("fruit", 0, "kinds", 1, "name"), (26, 1), (26, 8)),
        (("fruit", 1, "kinds", 0, "name"), (29, 1), (29, 8)),
        (("fruit", 1, "missing"), (27, 3), (27, 3)),
        (("a", "d"), (31, 1), (31, 5)),
        (("missing",), (1, 1), (1, 1)),
    ],
)
def test_keys_and_values_have_positions(path: KeyPath, key: tuple[int, int], value: tuple[int, int]) -> None:
    positions = KeyPositions(DOCUMENT)
    assert (positions.locate(path), positions.locate(path, value=True)) == (key, value)


QUOTES = ['"s"', "'t'", '"""', "'''", "\\", '"', "'"]
PAIRS = ["a = 1\n", "[[t]]\n", "[t.u]\n", "= [", "= {", "true", "1.5e3", "\r\n", "é"]
KEYS = ["a", "b.c", '"d e"', "'f'", "=", " ", "\n", "#x\n", "[", "]", "[[", "]]", "{", "}", ",", "1"]
PIECES = st.sampled_from([*KEYS, *QUOTES, *PAIRS])


@given(st.lists(PIECES, max_size=12).map("".join))
def test_any_valid_document_is_scanned(text: str) -> None:
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    assert KeyPositions(text).paths == paths(tree)


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=5)
VALUES = st.recursive(
    st.integers() | st.booleans() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_any_values_are_scanned(tree: dict[str, Any]) -> None:
    from toolwire.codec.toml_text import toml_key, toml_value

    text = "".join(f"{toml_key(name)} = {toml_value(value)}\n" for name, value in tree.items())
    assert tomllib.loads(text) == tree
    assert KeyPositions(text).paths == paths(tree)
