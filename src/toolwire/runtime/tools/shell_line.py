"""Which simple commands a shell line runs, for rules that allow some of them.

It answers only what it is sure of. Whatever runs or names something that the line does not spell out (substitutions,
variables, redirections to files, functions, control structures, `eval`) makes the answer None: nobody can tell.
"""

import re
import shlex

_TELLS_NOT = frozenset(
    {
        *("eval", "source", ".", "exec", "command", "builtin", "trap", "alias", "unalias", "enable", "hash", "bind"),
        *("if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "in", "select"),
        *("function", "coproc", "time", "{", "}", "!", "[[", "]]"),
    }
)
_HARMLESS = re.compile(r"(?:[0-9]*>>?|&>>?|[0-9]*<)[ \t]*/dev/null(?=[\s;&|)]|$)|[0-9]*[<>]&(?:[0-9]+|-)(?=[\s;&|)]|$)")
_SEPARATOR = re.compile(r"&&|\|\||\|&|[;&|\n]")
_ASSIGNMENT = re.compile(r"\w+\+?=")
_EXPANDED = re.compile(r"[*?\[{~]")
_PLAIN = re.compile(r"[^\s'\"\\$`;&|<>()#]+")


def simple_commands(line: str) -> list[str] | None:
    """Each with one space between its words; a word that was quoted is quoted anew where that is needed."""
    if "\0" in line:
        return None
    return _Reader(line).commands()


class _Untold(Exception):
    pass


class _Reader:
    def __init__(self, line: str) -> None:
        self._line = line
        self._at = 0
        self._depth = 0
        self._found = list[str]()
        self._words = list[str]()

    def commands(self) -> list[str] | None:
        try:
            while self._at < len(self._line):
                self._step()
            self._end()
        except _Untold:
            return None
        return None if self._depth else self._found

    def _step(self) -> None:
        line, at = self._line, self._at
        one = line[at]
        if one in " \t":
            self._at += 1
        elif line.startswith("\\\n", at):
            self._at += 2
        elif one == "#":
            end = line.find("\n", at)
            self._at = len(line) if end < 0 else end
        elif (harmless := _HARMLESS.match(line, at)) is not None:
            self._at = harmless.end()
        elif (separator := _SEPARATOR.match(line, at)) is not None:
            self._end()
            self._at = separator.end()
        elif one == "(":
            # Elsewhere it makes a function, a pattern or a sum.
            if self._words or line.startswith("((", at):
                raise _Untold
            self._depth += 1
            self._at += 1
        elif one == ")":
            if not self._depth:
                raise _Untold
            self._end()
            self._depth -= 1
            self._at += 1
        else:
            self._words.append(self._word())

    def _end(self) -> None:
        if not self._words:
            return
        command = next((word for word in self._words if not _ASSIGNMENT.match(word)), "")
        # A pattern for the command's own name runs whatever matches it.
        if command in _TELLS_NOT or (_EXPANDED.search(command) and not command.startswith("'")):
            raise _Untold
        self._found.append(" ".join(self._words))
        self._words = []

    def _word(self) -> str:
        start, meant, quoted, expanded = self._at, list[str](), False, False
        while self._at < len(self._line):
            one = self._line[self._at]
            if (plain := _PLAIN.match(self._line, self._at)) is not None:
                meant.append(plain[0])
                expanded = expanded or _EXPANDED.search(plain[0]) is not None
                self._at = plain.end()
            elif one == "#" and self._at > start:
                meant.append(one)
                self._at += 1
            elif one in "'\"\\":
                quoted = True
                meant.append(self._quoted(one))
            elif one in " \t\n;&|)" or _HARMLESS.match(self._line, self._at):
                break
            else:  # $ ` < > ( and what else a shell would act on
                raise _Untold
        word = "".join(meant)
        if not quoted:
            return word
        if expanded:
            # Quoted as a whole it would say something else.
            raise _Untold
        return shlex.quote(word)

    def _quoted(self, one: str) -> str:
        line = self._line
        if one == "\\":
            if self._at + 1 >= len(line):
                raise _Untold
            self._at += 2
            return "" if line[self._at - 1] == "\n" else line[self._at - 1]
        if one == "'":
            end = line.find("'", self._at + 1)
            if end < 0:
                raise _Untold
            inside = line[self._at + 1 : end]
            self._at = end + 1
            return inside
        return self._double_quoted()

    def _double_quoted(self) -> str:
        found, at = list[str](), self._at + 1
        while at < len(self._line) and self._line[at] != '"':
            one = self._line[at]
            if one in "$`":
                raise _Untold
            if one == "\\" and self._line[at + 1 : at + 2] in ("\\", '"', "$", "`", "\n"):
                at += 1
                one = "" if self._line[at] == "\n" else self._line[at]
            found.append(one)
            at += 1
        if at >= len(self._line):
            raise _Untold
        self._at = at + 1
        return "".join(found)
