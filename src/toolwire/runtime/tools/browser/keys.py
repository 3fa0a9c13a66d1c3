"""Key names: those of the W3C, and the aliases that models use from xdotool, Playwright and OpenAI."""

from toolwire.runtime.tools.browser.network_policy import ActionRefused

MODIFIERS = frozenset({"Control", "Shift", "Alt", "Meta"})

# Aliases in lower case, without `_`, `-` and spaces.
KEY_ALIASES = {
    "return": "Enter",
    "enter": "Enter",
    "kpenter": "Enter",
    "esc": "Escape",
    "escape": "Escape",
    "tab": "Tab",
    "isolefttab": "Tab",
    "space": " ",
    "spacebar": " ",
    "backspace": "Backspace",
    "bksp": "Backspace",
    "del": "Delete",
    "delete": "Delete",
    "kpdelete": "Delete",
    "ins": "Insert",
    "insert": "Insert",
    "home": "Home",
    "end": "End",
    "pageup": "PageUp",
    "pgup": "PageUp",
    "prior": "PageUp",
    "pagedown": "PageDown",
    "pgdn": "PageDown",
    "pgdown": "PageDown",
    "next": "PageDown",
    "left": "ArrowLeft",
    "right": "ArrowRight",
    "up": "ArrowUp",
    "down": "ArrowDown",
    "arrowleft": "ArrowLeft",
    "arrowright": "ArrowRight",
    "arrowup": "ArrowUp",
    "arrowdown": "ArrowDown",
    "ctrl": "Control",
    "control": "Control",
    "controll": "Control",
    "controlr": "Control",
    "controlleft": "Control",
    "controlright": "Control",
    "controlormeta": "Control",
    "shift": "Shift",
    "shiftl": "Shift",
    "shiftr": "Shift",
    "shiftleft": "Shift",
    "shiftright": "Shift",
    "alt": "Alt",
    "altl": "Alt",
    "altr": "Alt",
    "altleft": "Alt",
    "altright": "Alt",
    "option": "Alt",
    "isolevel3shift": "AltGraph",
    "altgraph": "AltGraph",
    "meta": "Meta",
    "metal": "Meta",
    "metar": "Meta",
    "metaleft": "Meta",
    "metaright": "Meta",
    "super": "Meta",
    "superl": "Meta",
    "superr": "Meta",
    "cmd": "Meta",
    "command": "Meta",
    "win": "Meta",
    "windows": "Meta",
    "os": "Meta",
    "capslock": "CapsLock",
    "numlock": "NumLock",
    "scrolllock": "ScrollLock",
    "pause": "Pause",
    "print": "PrintScreen",
    "printscreen": "PrintScreen",
    "menu": "ContextMenu",
    "contextmenu": "ContextMenu",
    "plus": "+",
    "minus": "-",
    "equal": "=",
    "comma": ",",
    "period": ".",
    "slash": "/",
    "backslash": "\\",
    "semicolon": ";",
    "colon": ":",
    "apostrophe": "'",
    "quotedbl": '"',
    "grave": "`",
    "asciitilde": "~",
    "bracketleft": "[",
    "bracketright": "]",
    "braceleft": "{",
    "braceright": "}",
    "parenleft": "(",
    "parenright": ")",
    "underscore": "_",
    "asterisk": "*",
    "kpmultiply": "*",
    "kpadd": "+",
    "kpsubtract": "-",
    "kpdivide": "/",
    "ampersand": "&",
    "percent": "%",
    "dollar": "$",
    "numbersign": "#",
    "at": "@",
    "exclam": "!",
    "question": "?",
    "less": "<",
    "greater": ">",
    "bar": "|",
    "asciicircum": "^",
    **{f"f{number}": f"F{number}" for number in range(1, 13)},
    **{f"kp{digit}": str(digit) for digit in range(10)},
    **{f"digit{digit}": str(digit) for digit in range(10)},
    **{f"key{letter}": letter for letter in "abcdefghijklmnopqrstuvwxyz"},
}


def canonical_key(name: str) -> str:
    """Return the W3C name of a key, or the character that it types."""
    if len(name) == 1:
        return name
    key = KEY_ALIASES.get(name.lower().replace("_", "").replace("-", "").replace(" ", ""))
    if key is None:
        raise ActionRefused(f"unknown key {name[:40]!r}")
    return key


def canonical_chord(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the canonical keys of a chord. Names may also be joined: `ctrl+shift+t`, `Control+a`, `ctrl++`."""
    keys: list[str] = []
    for name in names:
        parts = [name] if len(name) == 1 or name == "+" else name.replace("++", "+plus").split("+")
        keys.extend(canonical_key(part) for part in parts if part)
    if not keys:
        raise ActionRefused("no key was given")
    return tuple(keys)


# The chords for copy, cut and paste.
CLIPBOARD_CHORDS = frozenset(
    {
        ("Control", "c"),
        ("Control", "v"),
        ("Control", "x"),
        ("Control", "Insert"),
        ("Shift", "Insert"),
        ("Shift", "Delete"),
    }
)


def uses_clipboard(keys: tuple[str, ...], held_keys: frozenset[str] = frozenset()) -> bool:
    """Return whether the keys, together with those held, copy, cut or paste."""
    pressed = {key.lower() if len(key) == 1 else key for key in (*keys, *held_keys)}
    pressed = {"Control" if key == "Meta" else key for key in pressed}
    return any(set(chord) <= pressed for chord in CLIPBOARD_CHORDS)


def physical_key(key: str, *, with_modifier: bool) -> str:
    """Return Playwright's name of the key to press.

    With a modifier, a letter or digit is pressed as its physical key, so that Shift makes it a capital and `Control`
    with `A` works as with `a`.
    """
    if with_modifier and len(key) == 1 and key.isascii() and key.isalnum():
        return f"Digit{key}" if key.isdigit() else f"Key{key.upper()}"
    return key


def types_text(key: str) -> bool:
    """Return whether a key types a character."""
    return len(key) == 1
