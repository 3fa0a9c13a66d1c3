"""The registry of protocols: the built-in ones, and those that other packages bring."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import entry_points

from toolwire.codec.interface import Codec

_BUILT_IN = {
    "anthropic": "toolwire.protocols.anthropic",
    "openai-chat": "toolwire.protocols.openai_chat",
    "openai-responses": "toolwire.protocols.openai_responses",
}


class Protocols(Mapping[str, Codec]):
    """Codecs by name, each loaded when it is first asked for."""

    def __init__(self) -> None:
        self._loaded: dict[str, Codec] = {}
        self._plugins: dict[str, str] | None = None

    def __getitem__(self, name: str) -> Codec:
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def _load(self, name: str) -> Codec:
        if name in _BUILT_IN:
            codec = import_module(_BUILT_IN[name]).CODEC
        else:
            (found,) = entry_points(group="toolwire.protocols", name=name) or (None,)
            if found is None:
                raise KeyError(name)
            codec = found.load()
        if not isinstance(codec, Codec):
            raise TypeError(f"{name} is not a Codec")
        return codec

    def __iter__(self) -> Iterator[str]:
        yield from _BUILT_IN
        for found in entry_points(group="toolwire.protocols"):
            if found.name not in _BUILT_IN:
                yield found.name

    def __len__(self) -> int:
        return sum(1 for _ in self)


PROTOCOLS = Protocols()
