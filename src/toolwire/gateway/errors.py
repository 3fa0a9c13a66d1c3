"""An error on its way to the client.

What goes wrong, as errors that a client can be told: of an upstream they name it, and tell none of its secrets.
"""

import math
from typing import Literal

from msgspec import Raw
from msgspec.structs import replace

from toolwire.canonical.errors import ApiError, DecodeError, ErrorKind, LossyTranslationError, ToolwireError
from toolwire.canonical.events import ResponseFailed
from toolwire.canonical.node import Extras
from toolwire.journal.redaction import Redactor
from toolwire.upstream.provider import Provider
from toolwire.upstream.transport import TransportError

Attempt = Literal["rejected", "unprocessed", "unknown"]
"""What is known of a request that failed upstream: the provider refused it, did no work on it, or may have worked on
it."""


class RequestRejected(Exception):
    """An error to tell the client, in its own protocol. `failover`: another provider of the route may be asked."""

    def __init__(self, error: ApiError, *, attempt: Attempt = "rejected", failover: bool = False) -> None:
        super().__init__(error.message)
        self.error = error
        self.attempt: Attempt = attempt
        self.failover = failover


class ModelNameTooLong(ToolwireError):
    """The model's name is longer than any provider's."""


class RouteNotFound(ToolwireError):
    """No provider is configured for this name."""


class ModelNotSpecified(RouteNotFound):
    """The request names no model, and there is none for that."""


STATUS_KINDS: dict[int, ErrorKind] = {401: "authentication", 402: "billing", 403: "permission", 404: "not_found"}
_TEXT_FIELDS = ("message", "code", "param", "raw", "request_id")


def transport_api_error(provider: Provider, error: TransportError) -> ApiError:
    if error.exhausted:
        why = f"toolwire has too many open connections or files to reach {provider.name}: try again later"
        return ApiError(kind="overloaded", message=why, status=503)
    kind: Literal["timeout", "server"] = "timeout" if error.timed_out else "server"
    return ApiError(kind=kind, message=f"{provider.name}: {error}", status=504 if error.timed_out else 502)


def transport_rejection(provider: Provider, error: TransportError) -> RequestRejected:
    return RequestRejected(transport_api_error(provider, error), attempt="unknown" if error.sent else "unprocessed")


def redact_error(error: ApiError, redactor: Redactor) -> ApiError:
    """Copy an upstream's error without the secrets that the gateway knows, whatever member of it they stand in."""
    texts = {name: redactor.redact_text(text) for name in _TEXT_FIELDS if (text := getattr(error, name)) is not None}
    return replace(error, **texts, extras=redact_extras(error.extras, redactor))


def redact_failed_event(event: ResponseFailed, redactor: Redactor) -> ResponseFailed:
    """The same for the event that ends a stream with an error."""
    return replace(event, error=redact_error(event.error, redactor), extras=redact_extras(event.extras, redactor))


def redact_extras(extras: Extras | None, redactor: Redactor) -> Extras | None:
    if extras is None:
        return None
    return {
        family: {name: Raw(redactor.redact_bytes(bytes(raw))) for name, raw in kept.items()}
        for family, kept in extras.items()
    }


def provider_error(provider: Provider, kind: ErrorKind, reason: str, status: int = 502) -> ApiError:
    return ApiError(kind=kind, message=f"{provider.name} {reason}", status=status)


def invalid_response_error(provider: Provider, error: DecodeError) -> ApiError:
    return provider_error(provider, "server", f"gave an answer that can't be read: {error}")


def parse_seconds(text: str | None) -> float | None:
    try:
        found = max(0.0, float(text or ""))
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def encode_retry_after(error: ApiError) -> bytes | None:
    """Encode `Retry-After`: whole seconds, at most as many as RFC 9111 (1.2.2) wants every cache to read."""
    return None if error.retry_after is None else b"%d" % math.ceil(max(0.0, min(error.retry_after, 2**31 - 1)))


def to_api_error(error: Exception) -> ApiError:
    """Whatever went wrong, as an error that a client can be told."""
    match error:
        case RequestRejected():
            return _with_error_status(error.error)
        case DecodeError() | LossyTranslationError() | ModelNotSpecified():
            return ApiError(kind="invalid_request", message=str(error), status=400)
        case RouteNotFound():
            return ApiError(kind="not_found", message=str(error), status=404)
        case ToolwireError():
            return ApiError(kind="invalid_request", message=str(error), status=400)
        case _:
            return ApiError(kind="server", message="toolwire itself failed; its log says how", status=500)


def _with_error_status(error: ApiError) -> ApiError:
    """Replace a status that no error has: some providers and the walls before them say 299, 600 or 999."""
    if error.status is None or 400 <= error.status <= 599:
        return with_default_status(error)
    return replace(error, status=502)


def with_default_status(error: ApiError) -> ApiError:
    """The first event of a stream: where its kind has no status of its own, the provider is at fault."""
    return replace(error, status=error.status or (502 if error.kind in ("server", "other") else None))
