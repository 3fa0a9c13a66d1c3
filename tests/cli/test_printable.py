"""Untrusted text on a terminal: control characters are removed or escaped."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.cli.output.run_output import strip_controls, truncate_line
from toolwire.codec.escapes import escape_controls

TURNING = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        ("plain\n\ttext, caf\u00e9 \U0001f468\u200d\U0001f469", "plain\n\ttext, caf\u00e9 \U0001f468\u200d\U0001f469"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x9b2Jgone", "gone"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1;2q data \x1b\\after", "after"),
        ("\x1b]never ended\nnext line", "\nnext line"),
        ("\x1bcreset", "reset"),
        ("over\rwritten\x08", "overwritten"),
        ("line\r\nline", "line\nline"),
        ("gpj\u202eexe.\u2066", "gpjexe."),
    ],
)
def test_strip_controls_removes_escape_sequences(text: str, harmless: str) -> None:
    assert strip_controls(text) == harmless


@given(st.text(st.characters(max_codepoint=0x20FF) | st.sampled_from("\x1b\x9b\x9d\x07[]m;0\\"), max_size=60))
def test_stripped_text_never_controls_a_terminal(text: str) -> None:
    for escaped in (
        strip_controls(text),
        escape_controls(text),
        truncate_line(text, 20),
        strip_controls(text[:5]) + strip_controls(text[5:]),
    ):
        assert not [one for one in escaped if (ord(one) < 32 and one not in "\n\t") or 127 <= ord(one) < 160]
        assert not set(escaped) & set(TURNING)
    assert len(truncate_line(text, 20)) <= 20
    assert "\n" not in truncate_line(text, 20)


@given(st.text(max_size=60))
def test_escaped_text_hides_nothing(text: str) -> None:
    escaped = escape_controls(text)
    assert all(one.isprintable() or one in "\n\t" for one in escaped)
    assert len(escaped) >= len(text)
    plain = "".join(one for one in text if one.isprintable() or one in "\n\t")
    assert escaped == plain or len(escaped) > len(plain)
