"""Key names that models use."""

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
def test_aliases_map_to_canonical_keys(name: str, key: str) -> None:
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
def test_chord_may_be_one_name(names: tuple[str, ...], keys: tuple[str, ...]) -> None:
    assert canonical_chord(names) == keys


@pytest.mark.parametrize("names", [("Frobnicate",), ("ctrl+nokey",), (), ("",)])
def test_unknown_key_is_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(ActionRefused, match="key"):
        canonical_chord(names)


@pytest.mark.parametrize("keys", [("Control", "c"), ("Control", "V"), ("Meta", "x"), ("Shift", "Insert")])
def test_clipboard_chords_are_detected(keys: tuple[str, ...]) -> None:
    assert uses_clipboard(keys)
    assert uses_clipboard(keys[1:], frozenset(keys[:1]))
    assert not uses_clipboard(keys[1:])


@pytest.mark.parametrize("keys", [("Control", "a"), ("v",), ("Shift", "v"), ("Insert",)])
def test_other_chords_do_not_use_the_clipboard(keys: tuple[str, ...]) -> None:
    assert not uses_clipboard(keys)
