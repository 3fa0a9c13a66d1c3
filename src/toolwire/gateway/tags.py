"""What an Ollama has: only it knows which models were pulled, so that it is asked once, at the start."""

import asyncio
from collections.abc import Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.protocols import PROTOCOLS
from toolwire.upstream.provider import Provider
from toolwire.upstream.transport import Transport, TransportError, head_of

LIMIT_ANSWER = 1024 * 1024


class Tag(Struct):
    name: str


class Tags(Struct):
    models: tuple[Tag, ...] = ()


async def with_tags(providers: Mapping[str, Provider], seconds: float = 2) -> dict[str, Provider]:
    """The providers, each Ollama with its models; the first, which is the latest, answers names that nobody knows."""
    transport = Transport()
    try:
        found = await asyncio.gather(*(_with_tags(one, transport, seconds) for one in providers.values()))
    finally:
        transport.close()
    return dict(zip(providers, found, strict=True))


async def _with_tags(provider: Provider, transport: Transport, seconds: float) -> Provider:
    if provider.protocol != "ollama":
        return provider
    headers = provider.own_headers(PROTOCOLS["ollama"].surface).items()
    head = head_of(provider.origin, replace(provider, path=None).address("/api/tags"), headers, "GET")
    try:
        answer = await transport.send(provider.origin, head, None, silence=seconds, patience=seconds)
        tags = msgspec.json.decode(await answer.read(LIMIT_ANSWER), type=Tags)
    except (TransportError, msgspec.MsgspecError):
        return provider  # `toolwire doctor` says what is wrong; it may well come up later
    names = tuple(tag.name for tag in tags.models)
    default = provider.default_model or next(iter(names), None)
    return replace(provider, models=(*provider.models, *names), default_model=default)
