"""The figures in the documentation are the ones that are counted."""

import pytest

from tests.figures import FIGURES, shown, table


@pytest.mark.parametrize("name", FIGURES)
def test_the_page_shows_what_is_counted(name: str) -> None:
    assert shown(name) == table(FIGURES[name]()), "python -m tests.figures writes them anew"
