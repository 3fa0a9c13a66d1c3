"""The figures in the documentation match the computed ones."""

import pytest

from tests.documentation.figures import FIGURES, markdown_table, published_table


@pytest.mark.parametrize("name", FIGURES)
def test_page_shows_the_computed_figures(name: str) -> None:
    assert published_table(name) == markdown_table(FIGURES[name]()), (
        "python -m tests.documentation.figures rewrites them"
    )
