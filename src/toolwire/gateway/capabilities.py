"""Capabilities of Ollama's models, as `/api/show` lists them.

Ollama refuses `think` for a model that can't think, with 400, and a level such as `"high"` for most that can. Which is
which only the server knows. A model is asked about once, by the first request that wants thinking of it. If the server
does not tell, the request goes without `think`: the model then does as it does by default.
"""

import asyncio

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.canonical.request import Request
from toolwire.codec.hosts import COMPATIBLE, HostProfile
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.provider import Provider
from toolwire.upstream.transport import Transport, TransportError, head_of

PATIENCE = 10.0
LIMIT_ANSWER = 8 * 1024 * 1024
LIMIT_MODELS = 1024
LIMIT_NAME = 256

_THINKING = replace(COMPATIBLE, name="ollama", effort_levels=False)
_LEVELS = replace(_THINKING, effort_levels=True)
_PLAIN = replace(_THINKING, effort=False)


class ModelDetails(Struct, frozen=True):
    family: str = ""


class ShownModel(Struct, frozen=True):
    """The part of an answer of `/api/show` that is used here. Servers before 0.6.4 list no capabilities."""

    capabilities: tuple[str, ...] = ()
    details: ModelDetails = ModelDetails()


class Capabilities:
    """`profile` is what a model takes; it asks the server if it has to, `known` does not."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._profiles: dict[tuple[str, str], HostProfile] = {}

    async def profile(self, provider: Provider, model: str | None, request: Request) -> HostProfile:
        """Return the profile for a request; the server is asked if the request wants thinking in another protocol."""
        if provider.protocol != "ollama" or request.origin == "ollama" or request.thinking is None or model is None:
            return self.known(provider, model)
        if (known := self._profiles.get((provider.name, model))) is not None:
            return known
        shown = await self._show(provider, model) if len(model) <= LIMIT_NAME else None
        if shown is None:
            return _PLAIN
        found = _PLAIN
        if "thinking" in shown.capabilities:
            found = _LEVELS if shown.details.family == "gptoss" else _THINKING
        if len(self._profiles) >= LIMIT_MODELS:
            self._profiles.clear()
        self._profiles[provider.name, model] = found
        return found

    def known(self, provider: Provider, model: str | None) -> HostProfile:
        return self._profiles.get((provider.name, model or "")) or provider.profile(model)

    async def _show(self, provider: Provider, model: str) -> ShownModel | None:
        """Ask for a model; None if the server does not tell."""
        headers = {"content-type": "application/json"} | provider.own_headers(PROTOCOLS["ollama"].surface)
        head = head_of(provider.origin, replace(provider, path=None).address("/api/show"), headers.items())
        body = msgspec.json.encode({"model": model})
        try:
            async with asyncio.timeout(PATIENCE):
                answer = await self._transport.send(
                    provider.origin, head, body, silence=PATIENCE, patience=provider.connect_timeout
                )
                data = await answer.read(LIMIT_ANSWER)
            return msgspec.json.decode(data, type=ShownModel) if answer.status == 200 else None
        except (TransportError, TimeoutError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
