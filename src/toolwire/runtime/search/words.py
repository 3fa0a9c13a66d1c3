"""Words of names, descriptions and queries: split, without stop words, and reduced to a stem."""

import re
import unicodedata
from functools import lru_cache

_CAMEL_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W_]+")

_STOP_WORD_LIST = (
    "a about an and any are as at be by can could do does for from has have how i in into is it its like me my need of "
    "on one or our out please s so some t that the their them then there these they this those to up us use using want "
    "was we what when where which who will with would you your"
)
STOP_WORDS = frozenset(_STOP_WORD_LIST.split())
_ENDINGS = ("ing", "ed", "es", "s")
_DERIVATIONS = (
    "ational", "ation", "ization", "ment", "ator", "ion", "ive", "or", "er", "ly", "al", "at",
)  # fmt: skip
_SHORTEST_STEM = 3
_SHORTEST_DERIVED_STEM = 4


def split_words(text: str) -> list[str]:
    """Split a name or text into lowercase words without accents, at `camelCase` boundaries and punctuation."""
    if not text.isascii():
        text = "".join(letter for letter in unicodedata.normalize("NFKD", text) if not unicodedata.combining(letter))
    return [word.lower() for word in _WORD.findall(_CAMEL_BOUNDARY.sub(" ", text))]


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """Remove the endings of an English word, so that `creates`, `creating` and `creation` are the same."""
    word = _remove_derivation(_remove_inflection(word))
    return word[:-1] + "y" if len(word) > _SHORTEST_STEM and word.endswith("i") else word


def _remove_inflection(word: str) -> str:
    """Remove the ending of a plural or of a form of a verb, and a final `e`."""
    if len(word) > _SHORTEST_DERIVED_STEM and word.endswith("ies"):
        return word[:-3] + "y"
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM:
            if ending == "s" and word.endswith("ss"):
                break
            word = word.removesuffix(ending)
            if ending in ("ing", "ed") and len(word) > _SHORTEST_STEM and word[-1] == word[-2] not in "lsz":
                word = word[:-1]
            break
    return word[:-1] if len(word) > _SHORTEST_STEM and word.endswith("e") else word


def _remove_derivation(word: str) -> str:
    """Remove the ending with which a noun, adjective or adverb is derived."""
    for ending in _DERIVATIONS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_DERIVED_STEM:
            return word.removesuffix(ending)
    return word
