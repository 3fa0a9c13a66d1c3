"""The page of hosts is up to date."""

from tests.documentation.host_page import PAGE, render_page


def test_host_page_is_what_the_profiles_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_page(), "run `python -m tests.documentation.host_page`"
