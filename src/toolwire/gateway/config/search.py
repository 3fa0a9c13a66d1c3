"""The web search service of the configuration, for tools that search."""

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from toolwire.codec.env_references import describe_unset
from toolwire.gateway.config.sections import SearchSection
from toolwire.runtime.hosted_tools import WebSearch
from toolwire.runtime.tool import ToolSource

if TYPE_CHECKING:
    from toolwire.runtime.tools.web_search import SearchBackend


def search_backend(section: SearchSection) -> "SearchBackend | None":
    """Return the configured web search service, if there is one and its settings are complete."""
    if section.url is None or describe_unset(msgspec.structs.asdict(section)) is not None:
        return None
    from toolwire.runtime.tools.web_search import JsonSearch  # noqa: PLC0415 - needed only where a service is configured

    return JsonSearch(
        url=section.url.replace("{key}", quote(section.api_key or "", safe="")),
        headers=section.headers,
        results=section.results,
        title=section.title,
        link=section.link,
        text=section.text,
        seconds=section.timeout,
    )


def with_search_backend(tools: Sequence[ToolSource], section: SearchSection) -> list[ToolSource]:
    """Return the tools, with the configured service for a web search that names none."""
    backend = search_backend(section)
    return [
        replace(tool, backend=backend) if isinstance(tool, WebSearch) and tool.backend is None else tool
        for tool in tools
    ]
