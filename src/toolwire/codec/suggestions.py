"""Suggestions for names that are unknown: "did you mean" with the nearest known ones."""

from collections.abc import Iterable
from difflib import get_close_matches

_LONGEST_NAME = 200  # matching takes quadratic time, and names come from outside
_MOST_NAMES = 2_000


def similar_names(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Return the known names nearest to `name`, best first: by spelling, then those that contain it."""
    candidates = {candidate.casefold(): candidate for candidate, _ in zip(known, range(_MOST_NAMES), strict=False)}
    wanted = name[:_LONGEST_NAME].casefold()
    if wanted in candidates:
        return [candidates[wanted]]
    matches = get_close_matches(wanted, candidates, n=limit, cutoff=0.65)
    if len(wanted) >= 3:
        matches += [candidate for candidate in candidates if wanted in candidate and candidate not in matches]
    return [candidates[match] for match in matches[:limit]]


def suggest(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return `did you mean "a" or "b"?` for an unknown name, or `otherwise` if no known name is near."""
    similar = similar_names(name, known)
    if not similar:
        return otherwise
    quoted = [f'"{match}"' for match in similar]
    choices = quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
    return f"did you mean {choices}?"


def unknown_name(kind: str, name: str, known: Iterable[str], otherwise: str = "none are configured") -> str:
    """Return the error for an unknown name, with the nearest known names and all of them; `otherwise` if none exist."""
    choices = list(known)
    if not choices:
        return f"unknown {kind} {name!r}: {otherwise}"
    suggestion = suggest(name, choices)
    return f"unknown {kind} {name!r}{suggestion and f' ({suggestion})'}; expected one of {', '.join(choices)}"
