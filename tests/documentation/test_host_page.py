"""The pages of hosts are up to date, and their configurations lead to these hosts."""

import re

import pytest

from tests.documentation.host_page import FOLDER, PAGE, render_pages
from toolwire.codec.hosts.registry import HOST_NAMES
from toolwire.gateway.config import build_providers, parse_config
from toolwire.gateway.config.document import SourceText

_CONFIGURATION = re.compile(r"^```(?:toml|text)\n(\[providers.+?)^```$", re.MULTILINE | re.DOTALL)


def test_host_pages_are_what_the_profiles_say() -> None:
    rendered = render_pages()
    assert rendered.keys() == {PAGE, *FOLDER.glob("*.md")}
    for path, text in rendered.items():
        assert path.read_text(encoding="utf-8") == text, "run `python -m tests.documentation.host_page`"


@pytest.mark.parametrize("name", [name for name in HOST_NAMES if name not in ("generic", "compatible")])
def test_configuration_on_the_page_leads_to_the_host(name: str) -> None:
    (text,) = _CONFIGURATION.findall((FOLDER / f"{name}.md").read_text(encoding="utf-8"))
    variables = dict.fromkeys(re.findall(r'"env:(\w+)"', text), "secret-key")
    text = text.replace("RESOURCE", "resource")
    providers = build_providers(parse_config(text, variables))
    assert len(providers) == len(SourceText("page", text).parse()["providers"])
    assert {provider.profile("some-model").name for provider in providers.values()} == {name}
