"""Key names, as each vendor writes them."""

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
def test_chords_are_parsed(text: str, keys: tuple[str, ...]) -> None:
    assert chord_of(text) == keys


def test_letters_are_lower_cased_unless_case_sensitive() -> None:
    assert (key_of("C", case_sensitive=False), key_of("C")) == ("c", "C")
