"""Names of keys: every vendor's words to those of the W3C's UI Events, and how to find others again."""

from collections.abc import Mapping

_WORDS = {
    "Control": "ctrl control",
    "Meta": "meta cmd command super super_l win windows",
    "Alt": "alt option",
    "Shift": "shift",
    "Enter": "enter return kp_enter",
    "Escape": "escape esc",
    "Tab": "tab",
    " ": "space spacebar",
    "Backspace": "backspace back_space",
    "Delete": "delete del",
    "Insert": "insert",
    "Home": "home",
    "End": "end",
    "PageUp": "pageup page_up prior pgup",
    "PageDown": "pagedown page_down next pgdn",
    "ArrowUp": "arrowup up arrow_up",
    "ArrowDown": "arrowdown down arrow_down",
    "ArrowLeft": "arrowleft left arrow_left",
    "ArrowRight": "arrowright right arrow_right",
    "CapsLock": "capslock caps_lock",
    "+": "plus",
    "-": "minus",
    "=": "equal",
    ",": "comma",
    ".": "period",
    "/": "slash",
    "\\": "backslash",
    ";": "semicolon",
    "'": "apostrophe",
    "`": "grave",
    "[": "bracketleft",
    "]": "bracketright",
}
_KNOWN = {word: key for key, words in _WORDS.items() for word in words.split()}
_KNOWN |= {f"f{number}": f"F{number}" for number in range(1, 25)}


def key_of(word: str, *, cased: bool = True) -> str:
    """The key that a word names. `cased`: a capital letter is one; else all letters are written so."""
    if len(word) == 1:
        return word if cased else word.lower()
    return _KNOWN.get(word.lower(), word)


def chord_of(text: str, *, cased: bool = True) -> tuple[str, ...]:
    """The keys of `ctrl+shift+t`; a plus sign may be the last of them."""
    words = text.removesuffix("+").split("+") if text.endswith("+") and text != "+" else text.split("+")
    last = ("+",) if text.endswith("+") else ()
    return tuple(key_of(word, cased=cased) for word in words if word) + last


def spelt(keys: tuple[str, ...], names: Mapping[str, str]) -> list[str]:
    """The keys in a vendor's words, where it has others."""
    return [names.get(key, key) for key in keys]
