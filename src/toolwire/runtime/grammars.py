"""Grammar tools: whether a text is one that a Lark or a regular grammar describes, and where it stops being one."""

from functools import lru_cache
from typing import Any

from toolwire.canonical.tools import Grammar

_LONGEST_TEXT = 1_000_000
_SHOWN = 40


def grammar_error(grammar: Grammar, text: str) -> str | None:
    """Why the text does not fit; None if it does."""
    data = text.encode("utf-8", "replace")
    if len(data) > _LONGEST_TEXT:
        return f"it is longer than {_LONGEST_TEXT} bytes"
    if grammar.syntax == "regex":
        return _regex_error(grammar.definition, text)
    tokenizer, matcher = _matcher(grammar.definition)
    if matcher.is_error():
        return f"the grammar itself can't be read: {matcher.get_error()[:200]}"
    matcher = matcher.deep_copy()
    tokens = tokenizer.tokenize_bytes(data)
    fits = matcher.try_consume_tokens(tokens)
    if fits < len(tokens):
        return f"at byte {fits}, {data[fits : fits + _SHOWN].decode('utf-8', 'replace')!r} is not expected"
    if not matcher.is_accepting():
        return "it ends too early"
    return None


@lru_cache(maxsize=256)
def _matcher(definition: str) -> tuple[Any, Any]:
    import llguidance  # noqa: PLC0415 - only who runs grammar tools needs it

    tokenizer = llguidance.LLTokenizer("byte")
    limits = llguidance.LLParserLimits(step_lexer_fuel=200_000, initial_lexer_fuel=1_000_000, max_grammar_size=500_000)
    grammar = llguidance.LLMatcher.grammar_from_lark(definition)
    return tokenizer, llguidance.LLMatcher(tokenizer, grammar, log_level=0, limits=limits)


def _regex_error(definition: str, text: str) -> str | None:
    import re2  # noqa: PLC0415 - as above

    options = re2.Options()
    options.log_errors = False
    options.max_mem = 8 * 1024 * 1024
    try:
        found = re2.compile(definition, options).fullmatch(text)
    except re2.error as error:
        return f"the grammar itself can't be read: {error}"
    return None if found is not None else "the whole text does not match the pattern"
