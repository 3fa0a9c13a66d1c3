"""Names of keys, as every vendor writes them."""

import pytest

from toolwire.codec.encoding.computer import chord_of, key_of


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("Return", ("Enter",)),
        ("ctrl+shift+Escape", ("Control", "Shift", "Escape")),
        ("cmd+A", ("Meta", "A")),
        ("Page_Down", ("PageDown",)),
        ("super", ("Meta",)),
        ("F5", ("F5",)),
        ("space", (" ",)),
        ("ctrl++", ("Control", "+")),
        ("ctrl+plus", ("Control", "+")),
        ("+", ("+",)),
        ("XF86AudioPlay", ("XF86AudioPlay",)),
        ("", ()),
    ],
)
def test_a_chord(text: str, keys: tuple[str, ...]) -> None:
    assert chord_of(text) == keys


def test_a_letter_is_no_capital_where_all_are_written_so() -> None:
    assert (key_of("C", case_sensitive=False), key_of("C")) == ("c", "C")
