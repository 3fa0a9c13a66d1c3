"""What models call keys."""

import pytest

from toolwire.runtime.tools.browser.keys import canonical_chord, canonical_key, uses_clipboard
from toolwire.runtime.tools.browser.network_policy import ActionRefused


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("Return", "Enter"),
        ("KP_Enter", "Enter"),
        ("ENTER", "Enter"),
        ("ESC", "Escape"),
        ("BackSpace", "Backspace"),
        ("Page_Down", "PageDown"),
        ("Prior", "PageUp"),
        ("ARROWLEFT", "ArrowLeft"),
        ("Left", "ArrowLeft"),
        ("CTRL", "Control"),
        ("Control_L", "Control"),
        ("super", "Meta"),
        ("CMD", "Meta"),
        ("Option", "Alt"),
        ("SPACE", " "),
        ("space", " "),
        ("F12", "F12"),
        ("f5", "F5"),
        ("KeyA", "a"),
        ("Digit7", "7"),
        ("plus", "+"),
        ("a", "a"),
        ("A", "A"),
        ("é", "é"),
    ],
)
def test_each_name_is_one_key(name: str, key: str) -> None:
    assert canonical_key(name) == key


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        (("ctrl+shift+t",), ("Control", "Shift", "t")),
        (("CTRL", "A"), ("Control", "A")),
        (("Control+a",), ("Control", "a")),
        (("ctrl++",), ("Control", "+")),
        (("+",), ("+",)),
        (("Control", "+"), ("Control", "+")),
        (("shift+Page_Up",), ("Shift", "PageUp")),
    ],
)
def test_a_chord_may_be_one_name(names: tuple[str, ...], keys: tuple[str, ...]) -> None:
    assert canonical_chord(names) == keys


@pytest.mark.parametrize("names", [("Frobnicate",), ("ctrl+nokey",), (), ("",)])
def test_a_key_that_is_none_is_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(ActionRefused, match="key"):
        canonical_chord(names)


@pytest.mark.parametrize("keys", [("Control", "c"), ("Control", "V"), ("Meta", "x"), ("Shift", "Insert")])
def test_chords_that_use_the_clipboard_are_known(keys: tuple[str, ...]) -> None:
    assert uses_clipboard(keys)
    assert uses_clipboard(keys[1:], frozenset(keys[:1]))
    assert not uses_clipboard(keys[1:])


@pytest.mark.parametrize("keys", [("Control", "a"), ("v",), ("Shift", "v"), ("Insert",)])
def test_others_do_not(keys: tuple[str, ...]) -> None:
    assert not uses_clipboard(keys)
