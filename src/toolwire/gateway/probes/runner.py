"""Sending of probes to a host, and the table of what it accepts.

A host that answers 400, 422 or 500 does not accept what a probe changed. Any other failure ends the probing, since it
says nothing about what the host accepts.
"""

from collections.abc import Callable
from itertools import groupby

import msgspec
from msgspec import to_builtins

from toolwire.codec.interface import Route
from toolwire.codec.toml_text import toml_key, toml_value
from toolwire.gateway.probes import chat, messages, responses
from toolwire.gateway.probes.probe_set import Body, ProbeResult
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.address import address_request
from toolwire.upstream.key_command import KeyCommandError
from toolwire.upstream.provider import Provider
from toolwire.upstream.transport import Transport, TransportError, request_head

PROBE_SETS = {"openai-chat": chat.PROBES, "anthropic": messages.PROBES, "openai-responses": responses.PROBES}
"""The probes of each protocol that has some."""

_REFUSED = (400, 422, 500)  # 500: a chat template that fails
_LIMIT_RESPONSE = 1024 * 1024


class ProbeFailed(Exception):
    """Raised if a host can't be probed."""


async def probe_host(
    provider: Provider, model: str, transport: Transport, timeout: float, report: Callable[[str, bool], None]
) -> ProbeResult:
    """Send all probes, one after the other; `report` receives each result. Raises `ProbeFailed`."""
    if provider.unavailable_reason is not None:
        raise ProbeFailed(f"{provider.name}: {provider.unavailable_reason}")
    probes = PROBE_SETS[provider.protocol]
    request = {"model": model, **probes.request}
    accepted: dict[str, bool] = {}

    async def send(name: str, body: Body) -> None:
        accepted[name] = await _send(provider, body, transport, timeout)
        report(name, accepted[name])

    for name, change in probes.forms.items():
        await send(name, request | change)
    form = next((change for name, change in probes.forms.items() if accepted[name]), None)
    if form is None:
        raise ProbeFailed(f"{provider.name} rejects the simplest request for {model}")
    for name, change in probes.changes.items():
        await send(name, request | form | change)
    return ProbeResult(provider.profile(model), model, accepted)


async def _send(provider: Provider, body: Body, transport: Transport, timeout: float) -> bool:
    """Send one probe, and return whether the host accepts it."""
    surface = PROTOCOLS[provider.protocol].surface
    path, data = surface.endpoints[0].path, msgspec.json.encode(body)
    if provider.address is not None:
        addressed = address_request(provider, provider.address, Route(model=body["model"]), data)
        path, data = addressed.path, addressed.body
    try:
        headers = {"content-type": "application/json"} | (await provider.with_current_key()).request_headers(surface)
        head = request_head(provider.origin, provider.request_target(path), headers.items())
        response = await transport.send(
            provider.origin, head, data, read_timeout=timeout, connect_timeout=provider.connect_timeout
        )
        await response.read(_LIMIT_RESPONSE)
    except (TransportError, KeyCommandError) as error:
        raise ProbeFailed(f"{provider.name}: {error}") from None
    if response.status < 300:
        return True
    if response.status in _REFUSED:
        return False
    raise ProbeFailed(
        f"{provider.name} responded with status {response.status}, which does not show what the host accepts"
    )


def render_table(provider: Provider, result: ProbeResult) -> str:
    """Return the probed facts as a table `[hosts.NAME]` for `toolwire.toml`."""
    name = toml_key(provider.name)
    table = f"hosts.{name}"
    lines = [
        f"# probed with {result.model}; use it with host = {toml_value(provider.name)} in [providers.{name}]",
        f"[{table}]",
        f"extends = {toml_value(result.host.name)}",
        f"protocol = {toml_value(provider.protocol)}",
    ]
    facts = PROBE_SETS[provider.protocol].facts(result)
    for group, names in groupby(facts, key=lambda name: name.partition(".")[0]):
        lines += ["", f"[{table}.{group}]"]
        lines += [f"{name.partition('.')[2]} = {toml_value(to_builtins(facts[name]))}" for name in names]
    return "\n".join(lines)
