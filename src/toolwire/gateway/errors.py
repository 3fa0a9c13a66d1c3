"""Errors of the gateway, and their conversion to the `ApiError` that a client receives.

Errors of an upstream name the provider and contain none of the configured secrets.
"""

import math
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
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
"""The state of a failed upstream request: rejected by the provider, not processed at all, or perhaps processed."""


class RequestRejected(Exception):
    """An error to send to the client in its protocol."""

    def __init__(self, error: ApiError, *, attempt: Attempt = "rejected", failover: bool = False) -> None:
        """Wrap an error; `failover` allows the next provider of the route to be tried."""
        super().__init__(error.message)
        self.error = error
        self.attempt: Attempt = attempt
        self.failover = failover


class ModelNameTooLong(ToolwireError):
    """The requested model name exceeds the length limit."""


class RouteNotFound(ToolwireError):
    """No provider is configured for the requested model."""


class ModelNotSpecified(RouteNotFound):
    """The request has no model, and there is no default."""


STATUS_KINDS: dict[int, ErrorKind] = {401: "authentication", 402: "billing", 403: "permission", 404: "not_found"}
_TEXT_FIELDS = ("message", "code", "param", "raw", "request_id")


def transport_api_error(provider: Provider, error: TransportError) -> ApiError:
    """Return the client's error for a transport failure, with status 503, 504 or 502."""
    if error.exhausted:
        message = f"too many open connections or files to reach {provider.name}: try again later"
        return ApiError(kind="overloaded", message=message, status=503)
    kind: Literal["timeout", "server"] = "timeout" if error.timed_out else "server"
    return ApiError(kind=kind, message=f"{provider.name}: {error}", status=504 if error.timed_out else 502)


def transport_rejection(provider: Provider, error: TransportError) -> RequestRejected:
    """Return a rejection for a transport failure; it notes whether the request may have been processed."""
    return RequestRejected(transport_api_error(provider, error), attempt="unknown" if error.sent else "unprocessed")


def redact_error(error: ApiError, redactor: Redactor) -> ApiError:
    """Return a provider's error with all known secrets redacted, in every field."""
    texts = {name: redactor.redact_text(text) for name in _TEXT_FIELDS if (text := getattr(error, name)) is not None}
    return replace(error, **texts, extras=redact_extras(error.extras, redactor))


def redact_failed_event(event: ResponseFailed, redactor: Redactor) -> ResponseFailed:
    """Return a `ResponseFailed` event with all known secrets redacted."""
    return replace(event, error=redact_error(event.error, redactor), extras=redact_extras(event.extras, redactor))


def redact_extras(extras: Extras | None, redactor: Redactor) -> Extras | None:
    """Return extras (wire fields without a canonical counterpart) with all known secrets redacted."""
    if extras is None:
        return None
    return {
        family: {name: Raw(redactor.redact_bytes(bytes(raw))) for name, raw in fields.items()}
        for family, fields in extras.items()
    }


def provider_error(provider: Provider, kind: ErrorKind, reason: str) -> ApiError:
    """Build an error of status 502 whose message starts with the provider's name."""
    return ApiError(kind=kind, message=f"{provider.name} {reason}", status=502)


def unavailable_error(provider: Provider, reason: str) -> ApiError:
    """Build the error for a provider that its configuration makes unusable; clients should not retry it."""
    message = f"{provider.name} can't be used: {reason}"
    if provider.client_credential is not None:
        return ApiError(kind="authentication", message=message, status=401)
    return ApiError(kind="permission", message=message, status=403)


def invalid_response_error(provider: Provider, error: DecodeError) -> ApiError:
    """Build the error for a provider response that can't be decoded."""
    return provider_error(provider, "server", f"sent an invalid response: {error}")


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a response asks to wait: `retry-after-ms` (OpenAI, Azure), or `Retry-After`."""
    milliseconds = parse_seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    seconds = parse_seconds(text)
    return _seconds_until(text) if seconds is None and text else seconds


def _seconds_until(date: str) -> float | None:
    """Return the seconds until an HTTP date (RFC 9110, 10.2.3); None if it is not valid."""
    try:
        return max(0.0, parsedate_to_datetime(date).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def parse_seconds(text: str | None) -> float | None:
    """Parse a number of seconds; None if it is missing, a date, or not finite."""
    try:
        seconds = max(0.0, float(text or ""))
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) else None


def encode_retry_after(error: ApiError) -> bytes | None:
    """Return the value of `Retry-After` in whole seconds; None if the error has none.

    It is at most 2**31 - 1, which caches must understand (RFC 9111, 1.2.2).
    """
    return None if error.retry_after is None else b"%d" % math.ceil(max(0.0, min(error.retry_after, 2**31 - 1)))


def to_api_error(error: Exception) -> ApiError:
    """Convert any exception to an error for the client; unexpected ones become an internal error (500)."""
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
            return ApiError(kind="server", message="internal error: see the gateway's log", status=500)


def _with_error_status(error: ApiError) -> ApiError:
    """Return the error with 502 in place of a status that is no error status.

    Some providers and proxies send 299, 600 or 999.
    """
    if error.status is None or 400 <= error.status <= 599:
        return with_default_status(error)
    return replace(error, status=502)


def with_default_status(error: ApiError) -> ApiError:
    """Return the error, with status 502 if it has none and its kind is unknown or a server error."""
    return replace(error, status=error.status or (502 if error.kind in ("server", "other") else None))
