"""The registry of protocols: built-in codecs, and plug-ins found through the `toolwire.protocols` entry points."""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from toolwire.codec.interface import Codec

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

_BUILT_IN = {
    "anthropic": "toolwire.protocols.anthropic",
    "openai-chat": "toolwire.protocols.openai_chat",
    "openai-responses": "toolwire.protocols.openai_responses",
    "gemini": "toolwire.protocols.gemini",
    "gemini-interactions": "toolwire.protocols.gemini_interactions",
    "ollama": "toolwire.protocols.ollama",
    "openrouter": "toolwire.protocols.openrouter",
}


class Protocols(Mapping[str, Codec]):
    """Codecs by protocol name, each loaded on first use."""

    def __init__(self) -> None:
        self._loaded: dict[str, Codec] = {}

    def __getitem__(self, name: str) -> Codec:
        """Return the codec of a protocol, importing it on first use."""
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def _load(self, name: str) -> Codec:
        """Import a built-in codec or load the plug-in of that name."""
        if name in _BUILT_IN:
            codec = import_module(_BUILT_IN[name]).CODEC
        else:
            entry_point = next((candidate for candidate in _plugin_entry_points() if candidate.name == name), None)
            if entry_point is None:
                raise KeyError(name)
            codec = entry_point.load()
        if not isinstance(codec, Codec):
            raise TypeError(f"protocol {name!r}: expected a Codec, got {type(codec).__name__}")
        return codec

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of all protocols, built-in ones and plug-ins."""
        yield from _BUILT_IN
        for entry_point in _plugin_entry_points():
            if entry_point.name not in _BUILT_IN:
                yield entry_point.name

    def __len__(self) -> int:
        """Return the number of protocols, built-in ones and plug-ins."""
        return sum(1 for _ in self)


@cache
def _plugin_entry_points() -> "EntryPoints":
    """Return the entry points of plug-in codecs, looked up once: it reads the metadata of every installed package."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import

    return entry_points(group="toolwire.protocols")


PROTOCOLS = Protocols()
