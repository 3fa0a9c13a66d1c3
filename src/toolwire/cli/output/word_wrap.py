"""Wrapping of streamed text at words, where a terminal would break it within one."""

import re

from toolwire.cli.output.terminal import text_width

_PIECE = re.compile(r"\n|[^\S\n]+|\S+")
_CODE_FENCE = "```"
_TABLE_ROW = "|"


class WordWrapper:
    """Wraps text that arrives in pieces: a word is held back until it is complete.

    Code blocks and table rows stay as they are, since a break changes what they mean.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._column = 0
        self._space = ""
        self._word = ""
        self._is_code = False
        self._is_verbatim = False  # the line is code or a table row
        self._is_line_start = True

    def feed(self, text: str) -> str:
        """Return what can be written now that more text has arrived."""
        output = ""
        for piece in _PIECE.findall(text):
            if piece == "\n":
                output += f"{self._end_word()}{self._space}\n"
                self._column, self._space, self._is_line_start = 0, "", True
            elif piece.isspace():
                output += self._end_word()
                self._space += piece
            else:
                self._word += piece
                if text_width(piece) > len(piece):  # Chinese or Japanese, which has no spaces to wait for
                    output += self._end_word()
        return output

    def flush(self) -> str:
        """Return what was held back, at the end of the text."""
        rest = f"{self._end_word()}{self._space}"
        self._column, self._space, self._is_line_start = 0, "", True
        return rest

    def _end_word(self) -> str:
        """Return the space and the word that were held back, with a line break in place of the space if needed."""
        word, self._word = self._word, ""
        if not word:
            return ""
        if self._is_line_start:
            if word.startswith(_CODE_FENCE):
                self._is_code = not self._is_code
            self._is_verbatim = self._is_code or word.startswith((_CODE_FENCE, _TABLE_ROW))
        space, self._space = self._space, ""
        needed = text_width(space) + text_width(word)
        breaks = not (self._is_verbatim or self._is_line_start) and self._column + needed > self._width
        self._is_line_start = False
        # The terminal itself breaks a word that is longer than a line.
        end = text_width(word) if breaks else self._column + needed
        self._column = (end - 1) % self._width + 1
        return f"\n{word}" if breaks else f"{space}{word}"
