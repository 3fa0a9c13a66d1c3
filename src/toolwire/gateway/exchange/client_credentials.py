"""Credentials that clients send for providers, in the header that `client_credential` of the provider names.

A credential goes to the provider whose header it came in, and to no other: the configuration refuses a header that
providers at different addresses share. A key of the gateway is never passed on.
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from toolwire.codec.interface import Codec
from toolwire.gateway.exchange.routing import Backend, RouteMatch
from toolwire.journal.redaction import Redactor
from toolwire.protocols import PROTOCOLS
from toolwire.upstream.provider import Provider

_AUTHORIZATION = "authorization"
_LIMIT_CREDENTIAL = 16 * 1024


def read_credentials(
    headers: Mapping[bytes, bytes], names: Iterable[str], is_gateway_key: Callable[[bytes], bool]
) -> dict[str, str]:
    """Return the credentials in the named headers of a request, without their scheme `Bearer`."""
    found = {}
    for name in names:
        value = headers.get(name.encode(), b"").strip()
        if name == _AUTHORIZATION:
            scheme, _, token = value.partition(b" ")
            value = token.strip() if scheme.lower() == b"bearer" else b""
        is_valid = 0 < len(value) <= _LIMIT_CREDENTIAL and all(0x20 < byte < 0x7F for byte in value)
        if is_valid and not is_gateway_key(value):
            found[name] = value.decode("ascii")
    return found


def use_client_credentials(
    match: RouteMatch, credentials: Mapping[str, str], client: Codec, redactor: Redactor
) -> RouteMatch:
    """Return the match with the client's credentials as the keys of the providers that require them."""
    if all(backend.provider.client_credential is None for backend in match.backends):
        return match
    for secret in credentials.values():
        redactor.add_secret(secret)
    backends = [_with_credential(backend, credentials, client) for backend in match.backends]
    return replace(match, backends=tuple(backends))


def _with_credential(backend: Backend, credentials: Mapping[str, str], client: Codec) -> Backend:
    """Return the backend with the client's credential; mark it as unavailable if the client sent none."""
    provider = backend.provider
    if (header := provider.client_credential) is None:
        return backend
    if (credential := credentials.get(header)) is None:
        reason = f"it needs the client's own key in the header {header!r}, not a key of the gateway"
        return replace(backend, provider=replace(provider, unavailable_reason=reason))
    return replace(backend, provider=_authorize(provider, header, credential, client))


def _authorize(provider: Provider, header: str, credential: str, client: Codec) -> Provider:
    """Return the provider with a credential as its key.

    If a client of the provider's own protocol sends a bearer token, as with a subscription, it remains a bearer token.
    """
    is_token = header == _AUTHORIZATION and client.name == provider.protocol
    if is_token and PROTOCOLS[provider.protocol].surface.key_header != _AUTHORIZATION:
        return replace(provider, headers=provider.headers | {_AUTHORIZATION: f"Bearer {credential}"})
    return replace(provider, api_key=credential)
