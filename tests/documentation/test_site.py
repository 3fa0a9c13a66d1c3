"""The documentation site has every page, and its generated pages are current."""

import ast
import re

import toolwire
from tests.documentation import api_page, page_lists, verified
from tests.documentation.module_index import SOURCES
from tests.documentation.page_lists import DECISIONS, DOCS, LLMS, navigation
from tests.documentation.test_examples import PYTHON
from tests.support.assertions import non_empty

MESSAGES = DOCS / "start" / "troubleshooting.md"


def test_every_page_is_in_the_navigation_once() -> None:
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    decisions = {page for page in pages if page.startswith("decisions/0")}
    assert sorted(path for _, path in navigation()) == sorted(pages - decisions), "add the page to mkdocs.yml"


def test_lists_of_pages_are_current() -> None:
    command = "run `python -m tests.documentation.page_lists`"
    assert LLMS.read_text(encoding="utf-8") == page_lists.render_llms(), command
    assert DECISIONS.read_text(encoding="utf-8") == page_lists.render_decisions(), command


def test_api_page_is_current() -> None:
    assert api_page.PAGE.read_text(encoding="utf-8") == api_page.render_page(), (
        "run `python -m tests.documentation.api_page`"
    )


def test_api_page_has_every_public_name_once() -> None:
    assert sorted(name for names in api_page.sections().values() for name in names) == sorted(toolwire.__all__)


def test_names_that_examples_import_are_in_the_reference() -> None:
    imported = {
        (str(node.module).removeprefix("toolwire").removeprefix("."), alias.name, where)
        for where, block in PYTHON.items()
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "toolwire"
        for alias in node.names
    }
    known = {("", name) for name in toolwire.__all__}
    known |= {(module, name) for module, names in api_page.MODULES.items() for name in names}
    assert [found for found in sorted(non_empty(imported)) if found[:2] not in known] == []


# Of pip and of Codex.
MESSAGES_OF_OTHERS = {"externally-managed-environment", "Model metadata for"}


def test_every_message_of_the_troubleshooting_page_is_in_the_source() -> None:
    table = MESSAGES.read_text(encoding="utf-8").partition("## By message")[2]
    messages = [
        part for row in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE) for part in re.findall("`(.+?)`", row)
    ]
    assert len(messages) >= 10
    source = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py"))
    assert {message for message in messages if message not in source} == MESSAGES_OF_OTHERS


def test_pages_of_agents_and_protocols_say_how_they_were_verified() -> None:
    for page, section in verified.sections().items():
        text = page.read_text(encoding="utf-8")
        assert text == verified.with_section(text, section), "run `python -m tests.documentation.verified`"


def test_pictures_are_used_and_self_contained() -> None:
    landing_page = (DOCS / "README.md").read_text(encoding="utf-8")
    pictures = list((DOCS / "pictures").iterdir())
    assert len(pictures) >= 4
    for picture in pictures:
        assert f"](pictures/{picture.name})" in landing_page
        text = picture.read_text(encoding="utf-8")
        assert re.findall(r'(?:href|src|url)[=(]["\']?https?:', text) == []
