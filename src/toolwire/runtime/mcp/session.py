"""The session with one server, and the negotiation of its protocol version.

The SDK's client negotiates, too, but allows `server/discover` ten seconds, which include the requests to sign in.
"""

from typing import Any

import mcp_types as types
from mcp import ClientSession, MCPError
from mcp.shared.dispatcher import CallOptions
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types.version import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LATEST_MODERN_VERSION,
    MODERN_PROTOCOL_VERSIONS,
)
from pydantic import ValidationError

from toolwire.runtime.mcp.config import IMPLEMENTATION_NAME, IMPLEMENTATION_VERSION, ProtocolVersion

_VERSION_HEADER, _METHOD_HEADER = "mcp-protocol-version", "mcp-method"
_MAX_ATTEMPTS = 2


class Session(ClientSession):
    """A session whose dispatcher is accessible, for requests that the SDK has no method for."""

    def __init__(self, streams: tuple[Any, Any], capabilities: types.ClientCapabilities, **options: Any) -> None:
        self.dispatcher = JSONRPCDispatcher[Any](*streams)
        self.capabilities = capabilities
        self.info = types.Implementation(name=IMPLEMENTATION_NAME, version=IMPLEMENTATION_VERSION)
        super().__init__(
            dispatcher=self.dispatcher, client_info=self.info, extensions=capabilities.extensions, **options
        )

    @property
    def version(self) -> str:
        """The negotiated protocol version."""
        return self.protocol_version or ""

    @property
    def is_modern(self) -> bool:
        """True if the negotiated version has no handshake."""
        return self.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def send_raw_request(self, method: str, params: dict[str, Any], timeout: float) -> dict[str, Any]:
        """Send a request of the older version, and return its raw result, which the SDK's types may not admit."""
        options: CallOptions = {"timeout": timeout, "headers": {_VERSION_HEADER: self.version}}
        return await self.dispatcher.send_raw_request(method, params, options)


async def negotiate(session: Session, version: ProtocolVersion, *, probe_timeout: float, timeout: float) -> None:
    """Agree on a protocol version; raise `MCPError` or `RuntimeError` if that fails.

    `probe_timeout` is the time to wait for `server/discover` before the older version is tried. With a configured
    version, only that one is tried.
    """
    if version == "2025-11-25":
        await _initialize(session, timeout)
    elif version == "2026-07-28":
        session.adopt(types.DiscoverResult.model_validate(await _discover(session, version, timeout)))
    else:
        await _negotiate_automatically(session, probe_timeout, timeout)


async def _negotiate_automatically(session: Session, probe_timeout: float, timeout: float) -> None:
    """Try the newer version, and fall back to the older one unless the server supports only newer ones."""
    version = LATEST_MODERN_VERSION
    for attempt in range(_MAX_ATTEMPTS):
        is_last = attempt == _MAX_ATTEMPTS - 1
        try:
            raw = await _discover(session, version, probe_timeout)
        except MCPError as error:
            supported = _supported_versions(error)
            if (mutual := _newest_modern(supported)) is not None and not is_last:
                version = mutual
                continue
            if supported and not set(supported) & set(HANDSHAKE_PROTOCOL_VERSIONS):
                raise
        else:
            if (result := _parse_discovery(raw)) is not None:
                session.adopt(result)
                return
        try:
            await _initialize(session, timeout)
        except MCPError as error:
            # A slow server can answer the probe after its timeout, and then expects the newer version.
            mutual = _newest_modern(_supported_versions(error))
            if mutual is None or is_last:
                raise
            version = mutual
        else:
            return


async def _discover(session: Session, version: str, timeout: float) -> dict[str, Any]:
    """Send `server/discover`, and return its raw result."""
    meta = {
        types.PROTOCOL_VERSION_META_KEY: version,
        types.CLIENT_INFO_META_KEY: session.info.model_dump(by_alias=True, mode="json", exclude_none=True),
        types.CLIENT_CAPABILITIES_META_KEY: session.capabilities.model_dump(
            by_alias=True, mode="json", exclude_none=True
        ),
    }
    method = "server/discover"
    options: CallOptions = {
        "timeout": timeout,
        "cancel_on_abandon": False,
        "headers": {_VERSION_HEADER: version, _METHOD_HEADER: method},
    }
    raw = await session.dispatcher.send_raw_request(method, {"_meta": meta}, options)
    if isinstance(ttl := raw.get("ttlMs"), int | float) and ttl < 0:
        raw["ttlMs"] = 0
    return raw


async def _initialize(session: Session, timeout: float) -> None:
    """Perform the handshake of the older version."""
    params = types.InitializeRequestParams(
        protocol_version=LATEST_HANDSHAKE_VERSION, capabilities=session.capabilities, client_info=session.info
    )
    result = await session.send_request(types.InitializeRequest(params=params), types.InitializeResult, timeout)
    if result.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS:
        raise RuntimeError(f"unsupported protocol version {result.protocol_version!r}")
    session.adopt(result)
    await session.send_notification(types.InitializedNotification())


def _parse_discovery(raw: dict[str, Any]) -> types.DiscoverResult | None:
    """Parse the result of `server/discover`; None if the server supports only the older version."""
    try:
        result = types.DiscoverResult.model_validate(raw)
    except ValidationError:
        return None
    return None if _newest_modern(result.supported_versions) is None else result


def _supported_versions(error: MCPError) -> list[str]:
    """Return the versions that an error names as supported."""
    if error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
        return []
    try:
        return types.UnsupportedProtocolVersionErrorData.model_validate(error.error.data).supported
    except ValidationError:
        return []


def _newest_modern(versions: list[str]) -> str | None:
    """Return the newest of the versions without a handshake; None if there is none."""
    return next((version for version in reversed(MODERN_PROTOCOL_VERSIONS) if version in versions), None)
