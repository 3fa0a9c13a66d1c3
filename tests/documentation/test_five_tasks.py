"""The programs in the comparison with Pydantic AI are as short; `make test-frameworks` runs those of Pydantic AI."""

import pytest

from tests.documentation.compared_programs import compared_programs, statement_lines

PROGRAMS = compared_programs()


def test_five_tasks_are_compared() -> None:
    assert len(PROGRAMS) == 5


@pytest.mark.parametrize("task", PROGRAMS)
def test_program_is_as_short_as_that_of_pydantic_ai(task: str) -> None:
    ours, theirs = PROGRAMS[task]
    assert "import toolwire" in ours
    assert "from pydantic_ai import" in theirs
    assert statement_lines(ours) <= statement_lines(theirs)
