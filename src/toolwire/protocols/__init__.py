"""The registry of protocols: the built-in ones, and those that other packages bring."""

from collections.abc import Iterator, Mapping
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
    """Codecs by name, each loaded when it is first asked for."""

    def __init__(self) -> None:
        self._loaded: dict[str, Codec] = {}

    def __getitem__(self, name: str) -> Codec:
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def _load(self, name: str) -> Codec:
        if name in _BUILT_IN:
            codec = import_module(_BUILT_IN[name]).CODEC
        else:
            found = next((one for one in _plugin_entry_points() if one.name == name), None)
            if found is None:
                raise KeyError(name)
            codec = found.load()
        if not isinstance(codec, Codec):
            raise TypeError(f"{name} is not a Codec")
        return codec

    def __iter__(self) -> Iterator[str]:
        yield from _BUILT_IN
        for found in _plugin_entry_points():
            if found.name not in _BUILT_IN:
                yield found.name

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _plugin_entry_points() -> "EntryPoints":
    """Protocols of other packages, looked for only when one is asked for that is not built in, or all are listed."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - it loads half the standard library

    return entry_points(group="toolwire.protocols")


PROTOCOLS = Protocols()
