"""Tool calling for models that have none: the choice of prompting, and the models that are known to need it.

A server that refuses tools did nothing yet. The request is then sent once more, with the tools in the prompt.
"""

import re
import time

from msgspec.structs import replace

from toolwire.canonical.errors import ApiError
from toolwire.canonical.request import Request
from toolwire.codec.interface import TextRecovery
from toolwire.codec.memo import BoundedMemo, estimate_entry_size
from toolwire.codec.models.info import ModelInfo
from toolwire.gateway.config import RouteSection
from toolwire.gateway.exchange.routing import Backend
from toolwire.translation.prompted_tools import choose_dialect, uses_tools
from toolwire.translation.stages.tool_call_parsers.dialect import Dialect

_REFUSALS = re.compile(
    r"does not support tools"  # Ollama
    r"|requires --enable-auto-tool-choice"  # vLLM
    r"|tools param requires --jinja"  # llama.cpp
    r"|support tool use"  # OpenRouter: No endpoints found that support tool use
)
_VALID_SECONDS = 3600.0


class RefusedTools:
    """The models whose server refused tools, each for an hour: a server may be restarted with other settings."""

    def __init__(self) -> None:
        self._deadlines: BoundedMemo[tuple[str, str | None], float] = BoundedMemo()

    def add(self, backend: Backend) -> None:
        """Remember that the server of this backend refused tools."""
        key = (backend.provider.name, backend.model)
        self._deadlines.put(key, time.monotonic() + _VALID_SECONDS, estimate_entry_size(*key))

    def __contains__(self, backend: Backend) -> bool:
        deadline = self._deadlines.get((backend.provider.name, backend.model))
        return deadline is not None and time.monotonic() < deadline


def refuses_tools(error: ApiError, backend: Backend, options: RouteSection) -> bool:
    """Return whether an error says that the server takes no tools, and the request may be sent again with a prompt."""
    return _tool_calling(backend, options) == "auto" and _REFUSALS.search(error.message) is not None


def prompting_dialect(
    request: Request, backend: Backend, options: RouteSection, info: ModelInfo | None, refusals: RefusedTools
) -> Dialect | None:
    """Return the dialect in which the tools of a request are prompted; None if the server takes them."""
    mode = _tool_calling(backend, options)
    lacks_tools = (info is not None and info.tools is False) or backend in refusals
    if mode == "native" or (mode == "auto" and not lacks_tools) or not uses_tools(request):
        return None
    parser = options.tool_call_parser or backend.provider.tool_call_parser or "auto"
    return choose_dialect(parser, backend.model or request.model)


def text_recovery(
    request: Request, backend: Backend, options: RouteSection, dialect: Dialect | None
) -> TextRecovery | None:
    """Return what to recover from the text of a response, by the settings of route and provider.

    If tools are prompted in a `dialect`, calls are always recovered.
    """
    model = backend.model or request.model
    recovery = backend.provider.text_recovery(model, options.tool_call_parser, options.reasoning_parser)
    if dialect is None or (recovery is not None and recovery.tool_calls != "off"):
        return recovery
    return replace(recovery or TextRecovery(reasoning="off", model=model), tool_calls="auto")


def _tool_calling(backend: Backend, options: RouteSection) -> str:
    """Return the configured mode: `native`, `prompt` or `auto`."""
    return options.tool_calling or backend.provider.tool_calling
