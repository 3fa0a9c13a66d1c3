"""The module index is up to date."""

from tests.documentation.module_index import PAGE, folders, render_page, summary


def test_module_index_is_what_the_docstrings_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_page(), "run `python -m tests.documentation.module_index`"


def test_every_module_has_a_summary() -> None:
    missing = [
        path for folder in folders() for path in folder.glob("*.py") if not summary(path) or "TODO" in summary(path)
    ]
    assert missing == []
