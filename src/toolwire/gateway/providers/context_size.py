"""The context size to request from Ollama (`num_ctx`).

Ollama reserves memory for the context when it loads a model, and cuts a longer prompt silently. Its default, at least
4096 tokens, is too small for most agents. A request gets the next power of two that holds its prompt and an answer, up
to the context length of the model. Another size makes the server load the model again, so a size is never lowered
while the process lives.
"""

from toolwire.upstream.models.catalog import CatalogEntry
from toolwire.upstream.provider import ContextSize, Provider

DEFAULT_CONTEXT = 4096
"""The smallest default of a server."""

OUTPUT_RESERVE = 2048
"""Tokens reserved for the answer, unless the request limits it to fewer."""

_LIMIT_MODELS = 1024


class ContextSizes:
    """Context sizes by provider and model."""

    def __init__(self) -> None:
        self._sizes: dict[tuple[str, str], int] = {}

    def choose(
        self,
        provider: Provider,
        model: str,
        entry: CatalogEntry,
        setting: ContextSize,
        *,
        prompt_tokens: int,
        max_tokens: int | None,
    ) -> int | None:
        """Return the context size for a prompt of this estimated size; None to leave it to the server."""
        if setting == "off":
            return None
        greatest = entry.info.context
        if isinstance(setting, int):
            return setting if greatest is None else min(setting, greatest)
        if greatest is None:
            return None
        key, needed = (provider.name, model), prompt_tokens + min(max_tokens or OUTPUT_RESERVE, OUTPUT_RESERVE)
        known = self._sizes.get(key, 0)
        if max(needed, known) <= (entry.preset_context or DEFAULT_CONTEXT):
            return None
        size = min(max(1 << (needed - 1).bit_length(), 2 * DEFAULT_CONTEXT, known), greatest)
        if key in self._sizes or len(self._sizes) < _LIMIT_MODELS:
            self._sizes[key] = size
        return size


def may_exceed_default(body_size: int) -> bool:
    """Return whether a prompt of so many bytes may not fit into the smallest default context."""
    return body_size > DEFAULT_CONTEXT - OUTPUT_RESERVE
