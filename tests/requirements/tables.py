"""Tables of requirements: each requirement with the tests that prove it."""

from typing import NamedTuple


class Requirement(NamedTuple):
    """One requirement and the tests that prove it."""

    id: str  # section and number, such as `invariants-3`
    text: str
    tests: tuple[str, ...]  # pytest node ids

    @property
    def section(self) -> str:
        return self.id.rpartition("-")[0]


def parse_requirements(table: str) -> list[Requirement]:
    """Parse a table in which each line `ID TEXT` is followed by lines `  -> NODE_ID`."""
    requirements: list[Requirement] = []
    for line in table.strip().splitlines():
        if line.startswith("  -> "):
            latest = requirements[-1]
            requirements[-1] = latest._replace(tests=(*latest.tests, line.removeprefix("  -> ")))
        else:
            requirement_id, text = line.split(" ", 1)
            requirements.append(Requirement(requirement_id, text, ()))
    return requirements
