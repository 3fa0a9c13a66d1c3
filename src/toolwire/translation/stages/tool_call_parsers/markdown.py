"""Where in Markdown the text stands: in a code fence, in inline code, or in a quoted line, a mark is only shown."""

import re

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_BACKTICKS = re.compile("`+")
_LIMIT_PIECES = 256
_LIMIT_UNREAD = 2**14
_LIMIT_HEAD = 400


class MarkdownPosition:
    """The position after all text that was added; lines are only looked at when it is needed."""

    def __init__(self) -> None:
        self._pieces: list[str] = []  # that were added since lines were looked at
        self._head = ""  # of the current line
        self._fence = ""  # that is open
        self._inline = ""  # backticks that are open on the current line
        self._backticks = ""  # at the end of the line, which may go on
        self._last = ""  # character before the pieces

    def add(self, text: str) -> None:
        """Move past this text."""
        self._pieces.append(text)
        if len(self._pieces) > _LIMIT_PIECES:
            self._pieces[:] = ["".join(self._pieces)]
            if len(self._pieces[0]) > _LIMIT_UNREAD:
                self._read()

    def continues_word(self, character: str) -> bool:
        """Return whether a letter or closing bracket that follows belongs to what is before it."""
        last = next((piece[-1] for piece in reversed(self._pieces) if piece), self._last)
        if character == "]":
            return bool(last) and not last.isspace()
        return character.isalpha() and (last.isalnum() or last == "_")

    @property
    def shows_code(self) -> bool:
        """Return whether text here is only shown: in a fence, in inline code, or in a quoted line."""
        self._read()
        return bool(
            self._fence
            or self._head.lstrip().startswith(">")
            or (self._backticks != self._inline if self._backticks else self._inline)
        )

    @property
    def begins_line(self) -> bool:
        """Return whether only white space stands before this position on its line."""
        self._read()
        return not self._head.strip()

    def _read(self) -> None:
        """Update the state from the text that was added since."""
        text = "".join(self._pieces)
        self._last = text[-1:] or self._last
        first, *others = text.split("\n")
        self._pieces.clear()
        self._read_in_line(first)
        for line in others:
            self._end_line()
            self._read_in_line(line)

    def _read_in_line(self, text: str) -> None:
        """Move on in the current line."""
        self._head += text[: _LIMIT_HEAD - len(self._head)]
        text = self._backticks + text
        self._backticks = text[len(text.rstrip("`")) :]
        for run in _BACKTICKS.findall(text[: len(text) - len(self._backticks)]):
            self._inline = "" if run == self._inline else self._inline or run

    def _end_line(self) -> None:
        """Move to the next line; this one may open or close a fence."""
        if (match := _FENCE.match(self._head)) is not None:
            if not self._fence:
                self._fence = "" if "`" in match[2] else match[1]
            elif match[1].startswith(self._fence) and not match[2].strip():
                self._fence = ""
        self._head = self._inline = self._backticks = ""
