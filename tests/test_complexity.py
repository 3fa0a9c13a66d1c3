"""No function is too complex to read, as radon counts it: with conditional expressions and boolean operators."""

from pathlib import Path

from radon.complexity import cc_visit

import toolwire
from tests.support.assertions import non_empty

SOURCES = Path(toolwire.__file__).parent
MAX_COMPLEXITY = 20
HIGH_COMPLEXITY = 15
MAX_HIGH_SHARE = 0.02


def complexities() -> dict[str, int]:
    """The cyclomatic complexity of every function and method in the sources."""
    return {
        f"{path.relative_to(SOURCES)}:{block.lineno} {block.name}": block.complexity
        for path in sorted(SOURCES.rglob("*.py"))
        for block in cc_visit(path.read_text(encoding="utf-8"))
        if block.letter in ("F", "M")
    }


def test_functions_are_not_too_complex() -> None:
    found = complexities()
    over = {name: complexity for name, complexity in found.items() if complexity > MAX_COMPLEXITY}
    assert over == {}
    high = [complexity for complexity in non_empty(found.values()) if complexity > HIGH_COMPLEXITY]
    assert len(high) <= MAX_HIGH_SHARE * len(found), sorted(found.items(), key=lambda item: -item[1])[:30]
