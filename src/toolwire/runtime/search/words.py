"""Words: how names, descriptions and questions are cut, and which of them mean the same."""

import re

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W_]+")

_SAME = (
    "create add new make insert register open start compose generate setup|set up|sign up|put in|write a",
    "delete remove erase drop purge discard destroy wipe|get rid of|throw away|clean up|take out|take away",
    "update edit change modify alter amend revise adjust patch set",
    "get fetch read retrieve show view load lookup describe obtain display|look at|look up|show me|pull up|tell me",
    "list enumerate browse overview all",
    "search find query locate seek|look for",
    "send deliver dispatch transmit forward post|hand over",
    "cancel abort revoke withdraw|call off",
    "archive shelve stash|put away|put aside",
    "assign allocate delegate",
    "approve accept authorize confirm|sign off",
    "reject decline deny refuse|turn down",
    "export download dump extract|write out",
    "import upload ingest|read in|bring in",
    "copy duplicate clone replicate",
    "move transfer relocate migrate",
    "rename retitle",
    "merge combine join unify|put together",
    "close end finish complete resolve",
    "enable activate|turn on|switch on",
    "disable deactivate|turn off|switch off",
    "share publish",
    "plan book arrange reserve",
    "run execute trigger launch invoke",
    "count total tally|how many",
    "restore recover undelete|bring back",
    "subscribe follow watch",
    "connect link attach",
    "pause suspend freeze",
    "pay purchase buy",
    "repo repository",
    "doc docs document documentation",
    "msg message",
    "config configuration settings preferences",
    "db database",
    "dir directory folder",
    "image picture photo",
    "email mail",
    "org organization organisation company",
    "env environment",
    "user person people member account",
    "customer client buyer",
    "employee staff worker colleague",
    "bug issue defect ticket",
    "task todo chore",
    "calendar appointment meeting",
    "schedule timetable",
    "invoice bill",
    "price cost fee",
    "contact|address book|phone book",
    "tag label",
    "comment remark",
    "vehicle car",
    "job vacancy",
    "site website page",
    "secret password credential",
    "weather forecast temperature",
)
"""What tools and people call by several names; the first stands for all. After a bar: what takes several words."""

_GROUPS = [group.split("|") for group in _SAME]
MEANINGS = {word: words.split()[0] for words, *_ in _GROUPS for word in words.split()}
_PHRASES = {tuple(said.split()): words.split()[0] for words, *phrases in _GROUPS for said in phrases}
_LONGEST = max(map(len, _PHRASES))

_FILLING = (
    "a an and any are as at be by can could do for from have how i in into is it its like me my need of on one or our "
    "out please some so that the their them then there these they this those to up us use using want was we what "
    "when where which who will with would you your"
)
_SAYS_NOTHING = frozenset(_FILLING.split())


def words_of(text: str) -> list[str]:
    """The words of a name or a text, small: `getUserHTTPStatus`, `get-user.http_status` and the same in prose alike."""
    return [word.lower() for word in _WORD.findall(_CAMEL.sub(" ", text))]


def asked(query: str, most: int) -> tuple[list[str], list[str]]:
    """The words that a question is about, each once, and what they mean. What several words say together is only
    meant: apart they say something else."""
    left, meant = list[str](), list[str]()
    words, place = words_of(query), 0
    while place < len(words):
        length = next((n for n in range(_LONGEST, 1, -1) if tuple(words[place : place + n]) in _PHRASES), 1)
        if length > 1:
            meant.append(_PHRASES[tuple(words[place : place + length])])
        else:
            left.append(words[place])
        place += length
    telling = [word for word in left if word not in _SAYS_NOTHING]
    if not telling and not meant:
        telling = left
    return list(dict.fromkeys(telling))[:most], list(dict.fromkeys(meant + meanings(telling)))[:most]


def meanings(words: list[str]) -> list[str]:
    """What the words stand for, where several do. A plural or a third person is read without its ending."""
    found = (MEANINGS.get(word) or MEANINGS.get(word.removesuffix("s")) or _last(word) for word in words)
    return list(dict.fromkeys(one for one in found if one is not None))


def _last(word: str) -> str | None:
    """`copies` and `publishes`."""
    if word.endswith("ies"):
        return MEANINGS.get(word[:-3] + "y")
    return MEANINGS.get(word.removesuffix("es"))
