"""Ollama servers, which may not run: those that answer, and a note on each that does not."""

import asyncio
import socket
from collections.abc import Mapping

from msgspec.structs import replace

from toolwire.gateway.providers.discovery import discover_providers
from toolwire.gateway.providers.models import with_ollama_models
from toolwire.upstream.provider import Provider
from toolwire.upstream.tunnel import describe_os_error

_TIMEOUT = 2.0  # seconds to connect to a server on this machine or in its network
_DEFAULT_HOST = "127.0.0.1:11434"


async def find_unreachable(providers: Mapping[str, Provider]) -> dict[str, str]:
    """Return the Ollama servers that can't be connected to, each with a note for the user."""
    servers = [
        provider
        for provider in providers.values()
        if provider.protocol == "ollama" and not provider.unavailable_reason and provider.origin.network.proxy is None
    ]
    reasons = await asyncio.gather(*map(_connection_error, servers))
    return {
        provider.name: f"{provider.name}: no Ollama answers at {provider.base_url} ({reason}); "
        f"start it, or change {'OLLAMA_HOST' if provider.name == 'ollama' else 'its base_url'}"
        for provider, reason in zip(servers, reasons, strict=True)
        if reason
    }


async def _connection_error(provider: Provider) -> str:
    """Return why a server can't be connected to, or an empty text."""
    try:
        async with asyncio.timeout(_TIMEOUT):
            _, writer = await asyncio.open_connection(provider.origin.host, provider.origin.port)
    except TimeoutError:
        return "timed out"
    except OSError as error:
        return "unknown host" if isinstance(error, socket.gaierror) else describe_os_error(error)
    writer.close()
    return ""


async def find_providers(environment: Mapping[str, str]) -> tuple[dict[str, Provider], list[str]]:
    """Return the providers that the environment names, and a note on each Ollama that does not answer.

    Such an Ollama is left out. Without `OLLAMA_HOST`, the default address is tried, and no note is returned.
    """
    providers = discover_providers({"OLLAMA_HOST": _DEFAULT_HOST} | dict(environment))
    unreachable = await find_unreachable(providers)
    reachable = {name: provider for name, provider in providers.items() if name not in unreachable}
    listed = await with_ollama_models(reachable)
    found = {name: replace(one, default_model=listed[name].default_model) for name, one in reachable.items()}
    return found, list(unreachable.values()) if environment.get("OLLAMA_HOST") else []
